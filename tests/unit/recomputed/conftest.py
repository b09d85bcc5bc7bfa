"""One results folder of invented records, analysed once."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.analysis import analyse
from tests.fakes.records import FakeWorld, write_results
from tests.unit.recomputed.arithmetic import FAILED, Records


@pytest.fixture(scope="package")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = FakeWorld(blocks=7, failed=(FAILED,))
    folder = write_results(tmp_path_factory.mktemp("results"), world)
    analyse(folder)
    return folder


@pytest.fixture(scope="package")
def summary(results: Path) -> dict[str, Any]:
    return dict(json.loads((results / "summary.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="package")
def config(results: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((results / "config.yaml").read_text(encoding="utf-8")))


@pytest.fixture(scope="package")
def records(results: Path) -> Records:
    """Records by (group, method id, role), in the order of the blocks."""
    found: Records = defaultdict(list)
    for path in sorted((results / "records").glob("*/*/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        cell = record["cell"]
        found[record["group"], cell["method_id"], cell["role"]].append(record)
    return found

"""A small invented results folder whose parts a test can change before it is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.cells import GroupSpec
from tests.fakes.records import FakeWorld, block_records, config, environment

SMALL = GroupSpec(1, "natural", (3,), 4)
Change = Callable[[dict[str, Any]], None]


def unchanged(_: dict[str, Any]) -> None:
    """Leaves a record as it is."""


@dataclass
class Folder:
    """Everything known and tested, as an adoption needs it; tests then take something away.

    `record` may change each record; one that it marks `drop` is not written.
    """

    world: FakeWorld = field(default_factory=lambda: FakeWorld(groups=(SMALL,)))
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    record: Change = unchanged

    def __post_init__(self) -> None:
        self.config = config(self.world)
        self.config["cost"]["assumed"] = {"demand": False, "price": False}
        self.environment = environment()
        self.environment["model"]["dequantized_baseline"] = False
        self.environment["faults_tested"] = True
        self.environment["workload"] = {"text_assumed": False, "pool_text_assumed": False}

    def write(self, path: Path) -> Path:
        """Writes the folder and returns its path."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.yaml").write_text(yaml.safe_dump(self.config), encoding="utf-8")
        (path / "environment.json").write_text(json.dumps(self.environment), encoding="utf-8")
        for group in self.world.groups:
            for number, records in enumerate(block_records(self.world, group)):
                block = path / "records" / group.name / f"{number:03d}"
                block.mkdir(parents=True, exist_ok=True)
                for record in records:
                    self.record(record)
                    if not record.pop("drop", False):
                        name = f"{record['cell']['hash']}.json"
                        (block / name).write_text(json.dumps(record), encoding="utf-8")
        return path

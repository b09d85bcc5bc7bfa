"""Ratios of the native engine and a peer, from records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peer_ratios import compare, main
from tests.fakes.cells import GroupSpec
from tests.fakes.records import FakeWorld, write_results


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder whose native w4a16 is given out as llama.cpp's Q4_0: 1.25 times a step of w4a8."""
    world = FakeWorld(groups=(GroupSpec(1, "natural", (3,), 4),))
    folder = write_results(tmp_path / "results", world)
    for path in folder.glob("records/*/*/*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        cell = record["cell"]
        peer = cell["precision"] == "w4a16" and cell["drafter"]["kind"] == "none"
        cell["worker"] = "llama_cpp_q4_0" if peer else "native"
        path.write_text(json.dumps(record), encoding="utf-8")
    return folder


def read_group(results: Path, precision: str) -> dict[str, Any]:
    """A record of the plain method at `precision`."""
    records = (json.loads(path.read_text()) for path in results.glob("records/*/*/*.json"))
    return next(
        record
        for record in records
        if record["cell"]["precision"] == precision and record["cell"]["drafter"]["kind"] == "none"
    )


def test_a_pair_is_compared_where_both_were_measured(results: Path) -> None:
    (entry,) = compare(results)
    assert (entry["native"], entry["peer"]) == ("w4a8", "w4a16")
    assert entry["ratio"]["n"] == 6
    assert entry["ratio"]["ci_low"] <= 1.25 <= entry["ratio"]["ci_high"]
    quotient = entry["native_tokens_s"]["mean"] / entry["peer_tokens_s"]["mean"]
    assert entry["ratio"]["mean"] == pytest.approx(quotient)
    # Batch 1: a token is a forward, which reads the weights of the records' proof once.
    cell = read_group(results, "w4a8")
    bytes_s = entry["native_tokens_s"]["mean"] * cell["proof"]["bytes_per_token"]
    assert entry["native_bytes_s"] == pytest.approx(bytes_s)
    assert entry["read_bytes_s"] == cell["bandwidth"]["read_bytes_s"]


def test_the_command_prints_and_stores_the_figures(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "ratios.json"
    assert main([str(results), "--out", str(out)]) == 0
    assert "| w4a8 |" in capsys.readouterr().out
    assert json.loads(out.read_text(encoding="utf-8"))[0]["native"] == "w4a8"


def test_a_single_block_has_no_interval(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in results.glob("records/*/00[1-9]"):
        block.rename(tmp_path / block.name)
    assert main([str(results)]) == 0
    assert "[?, ?]" in capsys.readouterr().out


def test_a_folder_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == 2
    assert "nothing is no results folder" in capsys.readouterr().err

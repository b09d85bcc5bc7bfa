"""What holds for the summary as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.analysis import analyse
from tests.unit.recomputed.arithmetic import FAILED, ok


def test_failures(summary: dict[str, Any]) -> None:
    assert {failure["method_id"] for failure in summary["failures"]} == {FAILED}
    assert len(summary["failures"]) == 7
    row = next(row for row in summary["methods"] if row["method_id"] == FAILED)
    assert (row["status"], row["speedup"], row["blocks"]) == ("failed", None, 0)
    assert row["error"]["type"] == "device"


def intervals(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if {"mean", "ci_low", "ci_high"} <= value.keys():
            yield path, value
        for key, inner in value.items():
            yield from intervals(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from intervals(inner, f"{path}[{index}]")


def test_every_interval_holds_its_mean_and_says_n_and_level(summary: dict[str, Any]) -> None:
    found = [pair for pair in intervals(summary) if pair[1]["mean"] is not None]
    assert len(found) > 500
    for path, interval in found:
        assert interval["level"] == 0.95, path
        assert interval["n"] >= 1, path
        assert interval["ci_low"] is None or interval["ci_low"] <= interval["mean"], path
        assert interval["ci_high"] is None or interval["ci_high"] >= interval["mean"], path


def test_plain_numbers_have_an_interval_beside_them(summary: dict[str, Any]) -> None:
    for row in filter(ok, summary["methods"]):
        for name in (
            "mean_tpot_ms", "mean_ttft_ms", "p99_itl_ms", "p99_round_ms", "acceptance_length",
            "acceptance_rate", "reached_acceptance_rate",
        ):  # fmt: skip
            if row[name] is not None:
                assert row["intervals"][name]["n"] > 1
                assert row["intervals"][name]["mean"] == row[name]


def test_the_same_records_give_the_same_summary(results: Path, summary: dict[str, Any]) -> None:
    again = json.loads(json.dumps(analyse(results)))
    assert again.pop("created_at")
    assert again == {name: value for name, value in summary.items() if name != "created_at"}

"""Decisions, interactions and the noise floor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.recomputed.arithmetic import (
    FAILED,
    Records,
    decode_rate,
    encloses_student,
    geometric,
    ok,
    word,
)


def test_decisions_follow_from_the_intervals(summary: dict[str, Any]) -> None:
    for row in summary["methods"]:
        if row["role"] == "baseline":
            assert row["decision"] == "baseline"
        elif not ok(row):
            assert row["decision"] == "undecided"
        else:
            assert row["decision"] == word(row["speedup"])
        if row["versus_target"]:
            assert row["versus_target_decision"] == word(row["versus_target"])


def test_interactions(summary: dict[str, Any], records: Records) -> None:
    known = 0
    for row in summary["interaction"]:
        if row["reason"] is not None:
            assert row["mean"] is None
            missing = row["combined"] is None or row["speculation"] is None
            assert missing or row["combined"] == FAILED
            continue
        logs = []
        parts = [(row["combined"], "method"), (row["quantization"], "method"),
                 (row["speculation"], "method"), ("fp16", "baseline")]  # fmt: skip
        for block in range(7):
            c, q, s, b = (decode_rate(records[row["group"], *part][block]) for part in parts)
            logs.append((c / b) / ((q / b) * (s / b)))
        assert row["mean"] == pytest.approx(geometric(logs))
        encloses_student(row, logs)
        words = {"faster": "help", "slower": "eat", "equal": "multiply", "undecided": "undecided"}
        assert row["decision"] == words[word(row)]
        known += 1
    assert known == 12 + 4 + 4 - 1  # w4a16 with three drafters, w4a8 with one; one failed


def test_noise_floor(summary: dict[str, Any], records: Records) -> None:
    everything = []
    for group, found in summary["noise_floor"]["groups"].items():
        pairs = zip(records[group, "fp16", "noise"], records[group, "fp16", "baseline"],
                    strict=True)  # fmt: skip
        ratios = [decode_rate(a) / decode_rate(b) for a, b in pairs]
        assert found["mean"] == pytest.approx(geometric(ratios))
        encloses_student(found, ratios)
        everything += ratios
    overall = summary["noise_floor"]["overall"]
    assert overall["mean"] == pytest.approx(geometric(everything))
    assert overall["n"] == len(everything) == 21

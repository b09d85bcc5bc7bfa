"""What is printed at the end of a sweep, from a summary alone."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from harness import closing

GROUP = "m.w.cpu.b1.natural"


def interval(mean: float, half: float) -> dict[str, Any]:
    return {"mean": mean, "ci_low": mean - half, "ci_high": mean + half, "n": 6, "level": 0.95}


def method(method_id: str, arm: str, rate: float, decision: str, role: str = "method") -> Any:
    return {
        "method_id": method_id, "name": f"the {method_id}", "arm": arm, "group": GROUP,
        "role": role, "status": "ok", "output_throughput": interval(rate, 2.0),
        "speedup": interval(rate / 100, 0.1), "decision": decision,
    }  # fmt: skip


def summary(**changes: Any) -> dict[str, Any]:
    return {
        "verdict": {
            "decision": "pilot", "arm": "quantization", "method_id": "w4a8",
            "reasons": [{"key": "k", "params": {}, "text": "It is [twice] as fast."}],
            "conditions": [{"key": "k", "params": {}, "text": "Batch up to 4."}],
            "next_measurement": {"key": "k", "params": {}, "text": "Measure batch 8."},
        },
        "groups": [{"name": GROUP, "blocks": 6, "baseline": "fp16"}],
        "methods": [
            method("fp16", "baseline", 100.0, "baseline", "baseline"),
            method("fp16", "baseline", 999.0, "equal", "noise"),
            method("w4a8", "quantization", 300.0, "faster"),
            method("w4a4", "quantization", 310.0, "faster"),
        ],
        "arms": [
            {"group": GROUP, "arm": "quantization", "method_id": "w4a8",
             "speedup": interval(2.5, 0.2), "end_to_end_speedup": interval(1.5, 0.25)},
            {"group": GROUP, "arm": "combined", "method_id": None, "speedup": None,
             "end_to_end_speedup": None},
        ],
        "failures": [],
    } | changes  # fmt: skip


def shown(value: dict[str, Any]) -> str:
    stream = io.StringIO()
    closing.show(value, Console(file=stream, width=140))
    return stream.getvalue()


def test_the_verdict_comes_first_with_reasons_and_conditions() -> None:
    lines = shown(summary()).strip().splitlines()
    assert lines[0] == "Verdict: pilot: w4a8 (quantization)"
    assert lines[1:4] == [
        "  because: It is [twice] as fast.",
        "  on condition that: Batch up to 4.",
        "  next: Measure batch 8.",
    ]


def test_the_table_has_a_row_for_each_arm_that_was_measured() -> None:
    rows = [line.split() for line in shown(summary()).splitlines() if "the " in line]
    assert [row[0] for row in rows] == ["baseline", "quantization"]
    text = " ".join(rows[0])
    assert "100 [98, 102]" in text, "the A/A run must not stand for the baseline"
    # The arm's speedup is the one estimated on other blocks than it was picked on.
    assert "2.50 [2.30, 2.70] 1.50 [1.25, 1.75]" in " ".join(rows[1])


def test_failures_are_listed_and_unknown_ends_are_shown_as_such() -> None:
    failure = {
        "group": GROUP, "method_id": "w4a4", "name": "w4a4", "block": "001",
        "error": {"type": "worker", "message": "It died.", "stderr_tail": ""},
    }  # fmt: skip
    value = summary(failures=[failure])
    value["methods"][2]["output_throughput"]["ci_high"] = None
    text = shown(value)
    assert f"Failed: w4a4 in {GROUP} block 001: It died." in text
    assert "300 [298, ?]" in text

"""The cost model by hand, and that it is checked on cells it has not seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from harness.costmodel import Curve, predict, read_curves, seconds_per_token
from harness.derive import RecordError
from tests.fakes.folder import Folder
from tests.fakes.records import ROW_SHARE, STEP_S, FakeWorld, GroupSpec


def curve(precision: str, seconds: dict[int, float], model: str = "target") -> Curve:
    return Curve("native", model, precision, "chain", 128, 1, seconds)


def row(method_id: str, precision: str, drafter: Any, gamma: int, rates: list[float],
        speedup: float) -> dict[str, Any]:  # fmt: skip
    shape = {"kind": "chain", "gamma": gamma} if gamma else {"kind": "none"}
    return {
        "method_id": method_id, "worker": "native", "precision": precision,
        "kv_precision": "kv16", "drafter": drafter, "shape": shape, "batch_size": 1,
        "context_length": "natural", "per_position_acceptance_rates": rates,
        "speedup": {"mean": speedup},
    }  # fmt: skip


PLAIN = {"kind": "none"}
SELF = {"kind": "self", "precision": "w4a4"}
CURVES = [
    curve("fp16", {1: 0.010}), curve("w4a16", {1: 0.004, 4: 0.007}), curve("w4a4", {1: 0.003}),
]  # fmt: skip
BASE = row("fp16", "fp16", PLAIN, 0, [], 1.0)


def test_time_per_token_by_hand() -> None:
    # Three drafts of 3 ms and a verification of 7 ms yield 1 + 0.9 + 0.8 + 0.7 tokens.
    found = seconds_per_token(CURVES[1], CURVES[2], 3, [0.9, 0.8, 0.7, 0.6])
    assert found == pytest.approx((3 * 0.003 + 0.007) / 3.4)


def test_a_curve_is_read_between_its_points_and_not_beyond() -> None:
    assert CURVES[1].at(2) == pytest.approx(0.005)
    assert CURVES[1].at(5) is None
    assert seconds_per_token(CURVES[1], None, 5, [0.5] * 5) is None


def test_acceptance_comes_from_another_draft_length() -> None:
    short = row("g3", "w4a16", SELF, 3, [0.1, 0.1, 0.1], 2.0)
    long = row("g5", "w4a16", SELF, 5, [0.9, 0.8, 0.7, 0.6, 0.5], 2.0)
    found = predict(short, [BASE, short, long], BASE, CURVES)
    assert found is not None
    assert (found["acceptance_from"], found["held_out"]) == ("g5", True)
    assert found["speedup"] == pytest.approx(0.010 / ((3 * 0.003 + 0.007) / 3.4))
    assert found["relative_error"] == pytest.approx(found["speedup"] / 2.0 - 1)
    alone = predict(short, [BASE, short], BASE, CURVES)
    assert alone is not None
    assert alone["held_out"] is False


def test_plain_quantization_needs_no_acceptance() -> None:
    found = predict(row("w4a16", "w4a16", PLAIN, 0, [], 2.4), [], BASE, CURVES)
    assert found is not None
    assert found["speedup"] == pytest.approx(2.5)


def test_no_curve_no_prediction() -> None:
    other = row("x", "w8a8", PLAIN, 0, [], 2.0)
    assert predict(other, [], BASE, CURVES) is None
    model = row("x", "fp16", {"kind": "model", "id": "tiny", "precision": "fp16"}, 1, [0.5], 1.2)
    assert predict(model, [], BASE, CURVES) is None
    tree = {**BASE, "shape": {"kind": "tree", "depth": 2, "top_k": 2, "nodes": 6}}
    assert predict(tree, [], BASE, CURVES) is None


def test_predictions_of_a_whole_folder_are_near_what_was_measured(tmp_path: Path) -> None:
    """The fake's times follow the model, so that every prediction must come near."""
    folder = Folder(FakeWorld(groups=(GroupSpec(1, "natural", (2, 3, 5), 4),))).write(tmp_path)
    rows = (1, 3, 4, 6)
    curves = [
        {"worker": "native", "model": "target", "precision": name, "mask": "chain",
         "context": 128, "batch": 1, "bandwidth_bytes_s": 5e10, "bytes_per_token": 1,
         "times": {str(n): [STEP_S[name] * (1 + ROW_SHARE[name] * (n - 1))] for n in rows}}
        for name in STEP_S
    ]  # fmt: skip
    content = {"schema_version": 1, "curves": curves}
    (folder / "curves.json").write_text(json.dumps(content), encoding="utf-8")
    found = [
        m for m in analyse(folder)["methods"]
        if m["role"] == "method" and m["drafter"]["kind"] != "ngram"
    ]  # fmt: skip
    assert len(found) == 3 + 12
    for method in found:
        assert abs(method["prediction"]["relative_error"]) < 0.12, method["method_id"]
    held_out = [m for m in found if m["prediction"]["held_out"]]
    assert len(held_out) == 3 + 8  # all but the longest chains


def test_a_bad_curves_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    assert read_curves(tmp_path) == []
    path.write_text('{"schema_version": 1, "curves": [{}]}', encoding="utf-8")
    with pytest.raises(RecordError, match=r"curves\.json"):
        read_curves(tmp_path)
    path.write_text('{"schema_version": 9, "curves": []}', encoding="utf-8")
    with pytest.raises(RecordError, match="schema_version 9"):
        read_curves(tmp_path)

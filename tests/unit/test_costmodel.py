"""The cost model by hand, and that it is checked on cells it has not seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from harness.costmodel import Curve, Drafted, Times, modelled_round, predict, read_curves
from harness.derive import RecordError
from tests.fakes.cells import GroupSpec
from tests.fakes.folder import Folder
from tests.fakes.records import FakeWorld
from tests.fakes.speeds import ROW_SHARE, STEP_S


def curve(
    precision: str, seconds: dict[int, float], model: str = "target", mask: str = "chain"
) -> Curve:
    return Curve("native", model, precision, mask, 128, 1, seconds)


def row(method_id: str, precision: str, drafter: Any, gamma: int, rates: list[float],
        speedup: float) -> dict[str, Any]:  # fmt: skip
    shape = {"kind": "chain", "gamma": gamma} if gamma else {"kind": "none"}
    return {
        "method_id": method_id, "worker": "native", "precision": precision,
        "kv_precision": "kv16", "drafter": drafter, "shape": shape, "batch_size": 1,
        "context_length": "natural", "per_position_acceptance_rates": rates,
        "speedup": {"mean": speedup}, "acceptance_length": 1 + sum(rates),
        "drafted_shares": {str(gamma): 1.0},
    }  # fmt: skip


PLAIN = {"kind": "none"}
SELF = {"kind": "self", "precision": "w4a4"}
CURVES = [
    curve("fp16", {1: 0.010}), curve("w4a16", {1: 0.004, 4: 0.007}), curve("w4a4", {1: 0.003}),
]  # fmt: skip
BASE = row("fp16", "fp16", PLAIN, 0, [], 1.0)


def test_a_round_by_hand() -> None:
    # Three drafts of 3 ms and a verification of 7 ms.
    method = row("g3", "w4a16", SELF, 3, [0.9, 0.8, 0.7], 2.0)
    found = modelled_round(method, Drafted.of(method), Times(CURVES, method))
    assert found is not None
    assert (found.draft_s, found.verify_s) == (pytest.approx(0.009), pytest.approx(0.007))


def test_a_curve_is_read_between_its_points_and_not_beyond() -> None:
    assert CURVES[1].at(2) == pytest.approx(0.005)
    assert CURVES[1].at(5) is None
    long = row("g5", "w4a16", SELF, 5, [0.5] * 5, 2.0)
    assert modelled_round(long, Drafted.of(long), Times(CURVES, long)) is None


def test_rounds_in_which_lookup_found_nothing_verify_a_single_row() -> None:
    lookup = row("n3", "w4a16", {"kind": "ngram"}, 3, [0.4, 0.2, 0.1], 1.5)
    lookup["drafted_shares"] = {"0": 0.75, "3": 0.25}
    found = predict(lookup, [BASE, lookup], BASE, CURVES)
    assert found is not None
    assert found["speedup"] == pytest.approx(0.010 * 1.7 / (0.75 * 0.004 + 0.25 * 0.007))


TREE = {"kind": "tree", "depth": 3, "top_k": 4, "nodes": 12}
HEAD = {"kind": "head", "id": "head", "precision": "w4a8"}
DRAFTERS = [
    curve("w4a16", {1: 0.004, 13: 0.010}, mask="tree"), curve("w4a8", {1: 0.0005}, "head"),
    curve("w4a8", {1: 0.0005, 4: 0.0007}, "head", "tree"),
    curve("w4a8", {1: 0.0012, 13: 0.0020}, "small", "tree"),
    curve("w4a16", {1: 0.004, 7: 0.006, 11: 0.007}),
]  # fmt: skip


def test_a_tree_is_drafted_level_by_level() -> None:
    method = {**row("t", "w4a16", HEAD, 0, [], 1.8), "shape": TREE, "acceptance_length": 2.5,
              "drafted_shares": {"12": 1.0}}  # fmt: skip
    found = predict(method, [BASE, method], BASE, [*CURVES, *DRAFTERS])
    assert found is not None
    assert found["speedup"] == pytest.approx(0.010 * 2.5 / (0.0005 + 2 * 0.0007 + 0.010))
    assert (found["acceptance_from"], found["held_out"]) == ("t", False)


def test_a_cascade_pays_for_its_inner_rounds() -> None:
    cascade = {"kind": "cascade", "id": "small", "precision": "w4a8", "inner": HEAD,
               "inner_shape": TREE}  # fmt: skip
    method = {
        **row("c", "w4a16", cascade, 6, [0.8] * 6, 2.0), "acceptance_length": 5.5,
        "drafted_shares": {"6": 0.5, "10": 0.5}, "inner_drafted_shares": {"0": 0.25, "12": 0.75},
        "intervals": {"inner_rounds": {"mean": 2.0}},
    }  # fmt: skip
    found = predict(method, [BASE, method], BASE, [CURVES[0], *DRAFTERS])
    assert found is not None
    inner = 0.25 * 0.0012 + 0.75 * (0.0020 + 0.0005 + 2 * 0.0007)
    assert found["speedup"] == pytest.approx(0.010 * 5.5 / (2 * inner + 0.0065))


def test_auto_is_no_single_shape() -> None:
    method = {**row("a", "w4a16", HEAD, 0, [], 1.8), "shape": {"kind": "auto", "candidates": []}}
    assert predict(method, [BASE, method], BASE, CURVES) is None


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
    tree = {**model, "shape": TREE, "drafted_shares": {"12": 1.0}}
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
        m for m in analyse(folder)["methods"] if m["role"] == "method"
    ]  # fmt: skip
    assert len(found) == 3 + 21
    for method in found:
        assert abs(method["prediction"]["relative_error"]) < 0.12, method["method_id"]
    held_out = [m for m in found if m["prediction"]["held_out"]]
    assert len(held_out) == 3 + 14  # all but the longest chains


def test_a_bad_curves_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    assert read_curves(tmp_path) == []
    path.write_text('{"schema_version": 1, "curves": [{}]}', encoding="utf-8")
    with pytest.raises(RecordError, match=r"curves\.json"):
        read_curves(tmp_path)
    path.write_text('{"schema_version": 9, "curves": []}', encoding="utf-8")
    with pytest.raises(RecordError, match="schema_version 9"):
        read_curves(tmp_path)

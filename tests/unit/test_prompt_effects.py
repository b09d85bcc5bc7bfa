"""Acceptance and gain by category, and what is left without requests that repeat themselves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis import analyse
from harness.by_category import throughput_ratio
from harness.derive import Trial
from harness.subset import only, repeating_prompts
from harness.trial import repeats_itself
from tests.fakes.cells import GroupSpec
from tests.fakes.folder import Folder
from tests.fakes.records import FakeWorld

SPAN = list(range(12))


@pytest.mark.parametrize(
    ("tokens", "repeats"),
    [
        (SPAN * 3, True),
        (SPAN * 2 + [99] + SPAN, True),
        (SPAN * 2 + [99] + SPAN[:11], False),
        ([7] * 14, True),  # three places, though they overlap
        ([7] * 13, False),
        ([], False),
    ],
)
def test_a_request_repeats_itself_where_a_span_stands_three_times(
    tokens: list[int], repeats: bool
) -> None:
    assert repeats_itself(tokens) is repeats


def trial(**changes: Any) -> Trial:
    three = np.array([1.0, 2.0, 3.0])
    return Trial(
        cell={}, group="g", block="000", status="ok", error=None, prompt_ids=("a", "b", "c"),
        interleaved=True, left_out={}, categories=("x", "y", "x"), output_tokens=three,
        decode_s=three, position_accepts=np.arange(6.0).reshape(3, 2),
        repeats=np.array([0.0, 1.0, 0.0]), round_s=np.ones(5), **changes,
    )  # fmt: skip


def test_part_of_a_trial_keeps_what_belongs_to_its_requests() -> None:
    part = only(trial(), np.array([True, False, True]))
    assert (part.prompt_ids, part.categories) == (("a", "c"), ("x", "x"))
    assert part.output_tokens.tolist() == [1, 3]
    assert part.position_accepts.tolist() == [[0, 1], [4, 5]]
    assert len(part.round_s) == 5
    assert repeating_prompts([trial()]) == {"b"}


def test_a_ratio_of_throughputs_by_hand_and_its_interval() -> None:
    rng = np.random.default_rng(0)
    # 30 tokens in 2 s against 20 in 4 s.
    sums = np.array([[10.0, 1.0, 10.0, 2.0], [20.0, 1.0, 10.0, 2.0]])
    found = throughput_ratio(sums, 0.95, 500, rng)
    assert found is not None
    assert found.mean == pytest.approx(3.0)
    assert found.ci_low < 3.0 < found.ci_high
    alone = throughput_ratio(sums[:1], 0.95, 500, rng)
    assert alone is not None
    assert alone.to_json()["ci_high"] is None
    assert throughput_ratio(np.zeros((2, 4)), 0.95, 500, rng) is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    hits, trials = 0, 300
    for _ in range(trials):
        tokens = rng.integers(20, 120, 10).astype(float)
        base = tokens * 0.01 * np.exp(0.1 * rng.standard_normal(10))
        faster = base / 1.5 * np.exp(0.2 * rng.standard_normal(10) - 0.02)
        found = throughput_ratio(np.column_stack([tokens, faster, tokens, base]), 0.9, 300, rng)
        assert found is not None
        hits += found.ci_low <= 1.5 <= found.ci_high
    assert hits / trials > 0.85


def summary(path: Path, change: Any = None) -> dict[str, Any]:
    world = FakeWorld(groups=(GroupSpec(1, "natural", (3,), 6),))
    folder = Folder(world) if change is None else Folder(world, record=change)
    return analyse(folder.write(path))


def test_every_method_is_left_with_the_same_prompts(tmp_path: Path) -> None:
    names: dict[str, set[str]] = {}

    def change(record: dict[str, Any]) -> None:
        for place, request in enumerate(record["requests"]):
            request["category"] = "xy"[place % 2]
            # One method's output alone goes in circles, on the first prompt of each block.
            own = record["cell"]["method_id"] == "w4a4"
            request["repeats"] = own and place == 0
            if request["repeats"]:
                names.setdefault(record["block"], set()).add(request["id"])

    found = summary(tmp_path, change)
    (group,) = found["groups"]
    dropped = set().union(*names.values())
    assert group["repeats"]["prompts"] == len(dropped) > 0
    rows = {m["method_id"]: m for m in found["methods"] if m["role"] == "method"}
    assert rows["w4a4"]["repeating_requests"] == {"requests": 6, "of": 36}
    assert rows["w4a8"]["repeating_requests"] == {"requests": 0, "of": 36}
    left = {name: row["without_repeats"] for name, row in rows.items()}
    assert len({row["requests"] for row in left.values()}) == 1
    assert next(iter(left.values()))["requests"] <= 30
    for name, row in rows.items():
        assert left[name]["speedup"]["mean"] == pytest.approx(row["speedup"]["mean"], rel=0.05)
        by_name = {entry["category"]: entry for entry in row["by_category"]}
        assert set(by_name) == {"x", "y"}
        assert sum(entry["requests"] for entry in by_name.values()) == 36
        without = sum(e["without_repeats"]["requests"] for e in by_name.values())
        assert without == left[name]["requests"]


def test_a_category_has_its_acceptance_and_its_gain_over_baseline_and_target(
    tmp_path: Path,
) -> None:
    def change(record: dict[str, Any]) -> None:
        for place, request in enumerate(record["requests"]):
            request["category"] = "xy"[place % 2]

    found = summary(tmp_path, change)
    rows = {m["method_id"]: m for m in found["methods"] if m["role"] == "method"}
    (group,) = found["groups"]
    assert group["repeats"]["prompts"] == 0
    method = rows["w4a16+self-w4a4.g3"]
    assert method["without_repeats"] is None
    x, y = method["by_category"]
    assert x["without_repeats"] == {k: v for k, v in x.items() if k not in
                                    ("category", "without_repeats")}  # fmt: skip
    mean = method["acceptance_length"]
    assert min(x["acceptance_length"]["mean"], y["acceptance_length"]["mean"]) <= mean
    assert max(x["acceptance_length"]["mean"], y["acceptance_length"]["mean"]) >= mean
    for entry in (x, y):
        assert entry["speedup"]["mean"] == pytest.approx(method["speedup"]["mean"], rel=0.1)
        assert entry["versus_target"]["mean"] == pytest.approx(
            method["versus_target"]["mean"], rel=0.1
        )
    assert rows["w4a16"]["by_category"][0]["versus_target"] is None
    assert math.isclose(rows["w4a16"]["by_category"][0]["acceptance_length"]["mean"], 1.0)


def test_a_chosen_shape_is_compared_with_the_best_fixed_one_by_category(tmp_path: Path) -> None:
    chosen, fixed = "w4a16+self-w4a4.g5", "w4a16+self-w4a4.g3"

    def change(record: dict[str, Any]) -> None:
        if record["cell"]["method_id"] == chosen:
            record["cell"]["shape"] = {"kind": "auto", "candidates": [record["cell"]["shape"]]}
        for place, request in enumerate(record["requests"]):
            request["category"] = "xy"[place % 2]

    world = FakeWorld(groups=(GroupSpec(1, "natural", (3, 5), 6),))
    found = analyse(Folder(world, record=change).write(tmp_path))
    (entry,) = found["auto"]
    assert (entry["method_id"], entry["best_fixed"]) == (chosen, fixed)
    rows = {m["method_id"]: m for m in found["methods"] if m["role"] == "method"}
    own = {row["category"]: row["versus_target"]["mean"] for row in rows[chosen]["by_category"]}
    best = {row["category"]: row["versus_target"]["mean"] for row in rows[fixed]["by_category"]}
    for name in "xy":
        over_plain = entry["over_plain_by_category"][name]
        assert over_plain["mean"] == pytest.approx(own[name])
        assert over_plain["ci_low"] < over_plain["mean"] < over_plain["ci_high"]
        over_best = entry["over_best_by_category"][name]
        assert over_best["mean"] == pytest.approx(own[name] / best[name])

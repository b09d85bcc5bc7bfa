"""The front of speed against quality, with areas computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.front import Point, front, group_front, hypervolume

POINTS = [
    Point("exact", 0.2, 0.0),
    Point("beaten", 0.15, 0.01),
    Point("fast", 1.0, 0.02),
    Point("fastest", 3.0, 0.045),
    Point("too lossy", 9.0, 0.06),
    Point("slow", -0.1, 0.0),
]


def test_the_front_holds_what_no_other_beats_within_the_limit() -> None:
    assert [p.method_id for p in front(POINTS, 0.05)] == ["fastest", "fast", "exact"]
    twins = [Point("a", 1.0, 0.02), Point("b", 1.0, 0.02), Point("c", 1.0, 0.01)]
    assert [p.method_id for p in front(twins, 0.05)] == ["c"]
    assert front([Point("slow", 0.0, 0.0)], 0.05) == []


def test_the_hypervolume_is_the_mean_gain_over_tolerances() -> None:
    # 0.2 up to 0.02, then 1.0 up to 0.045, then 3.0 up to 0.05.
    assert hypervolume(POINTS, 0.05) == pytest.approx(
        (0.2 * 0.02 + 1.0 * 0.025 + 3.0 * 0.005) / 0.05
    )
    assert hypervolume([], 0.05) == 0.0
    assert hypervolume([Point("better than the baseline", 0.5, -0.01)], 0.05) == 0.5


COORDINATES = st.lists(st.tuples(st.floats(-0.5, 4), st.floats(-0.01, 0.08)), max_size=6)


@given(COORDINATES)
def test_it_equals_the_mean_of_the_best_gain_on_a_grid(pairs: list[tuple[float, float]]) -> None:
    points = [Point(str(i), gain, loss) for i, (gain, loss) in enumerate(pairs)]
    steps = 4000
    total = 0.0
    for step in range(steps):
        tolerance = (step + 0.5) / steps * 0.05
        total += max([p.gain for p in points if p.loss <= tolerance] + [0.0])
    assert hypervolume(points, 0.05) == pytest.approx(total / steps, abs=0.01)


def row(name: str, speed: tuple[float, ...], ratio: tuple[float, ...] | None) -> dict[str, Any]:
    ends = ("mean", "ci_low", "ci_high")
    return {
        "method_id": name, "role": "method", "precision": "w4a8" if ratio else "fp16",
        "speedup": {**dict(zip(ends, speed, strict=True)), "n": 6, "level": 0.95},
        "quality": {"perplexity_ratio": dict(zip(ends, ratio, strict=True))} if ratio else None,
    }  # fmt: skip


def test_a_groups_front_is_conservative_at_both_ends() -> None:
    rows = [
        row("self", (1.2, 1.1, 1.3), None),
        row("w4a8", (2.0, 1.8, 2.2), (1.02, 1.01, 1.03)),
        {**row("noise", (9.0, 9.0, 9.0), None), "role": "noise"},
        {**row("failed", (9.0, 9.0, 9.0), None), "speedup": None},
    ]
    found = group_front(rows, "fp16", 1.05)
    assert found is not None
    assert found["methods"] == ["w4a8", "self"]
    assert found["perplexity_ratio_limit"] == 1.05
    volume = found["hypervolume"]
    assert volume["mean"] == pytest.approx((0.2 * 0.02 + 1.0 * 0.03) / 0.05)
    assert volume["ci_low"] == pytest.approx((0.1 * 0.03 + 0.8 * 0.02) / 0.05)
    assert volume["ci_high"] == pytest.approx((0.3 * 0.01 + 1.2 * 0.04) / 0.05)
    assert volume["n"] == 6


def test_a_group_without_both_figures_has_no_front() -> None:
    assert group_front([], "fp16", None) is None
    unscored = {**row("w4a8", (2.0, 1.8, 2.2), (1.0, 1.0, 1.0)), "quality": None}
    assert group_front([unscored], "fp16", 1.05) is None

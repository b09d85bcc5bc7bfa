"""The front of speed against quality, and its hypervolume: the trade-off as one number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.stats import Interval

DEFAULT_LIMIT = 1.05
"""Perplexity ratio up to which quality counts, where the configuration has no quality gate."""


@dataclass(frozen=True)
class Point:
    """A method: `gain` is its speedup less 1, `loss` its perplexity ratio less 1."""

    method_id: str
    gain: float
    loss: float


def front(points: Iterable[Point], limit: float) -> list[Point]:
    """The points that no other beats in both gain and loss, fastest first.

    Points that lose more than `limit` or gain nothing over the baseline are not on it; among equals
    the first stays. A loss below 0 counts as 0.
    """
    kept: list[Point] = []
    usable = [p for p in points if p.gain > 0 and p.loss <= limit]
    for point in sorted(usable, key=lambda p: (-p.gain, max(p.loss, 0.0))):
        if not kept or max(point.loss, 0.0) < max(kept[-1].loss, 0.0):
            kept.append(point)
    return kept


def hypervolume(points: Iterable[Point], limit: float) -> float:
    """The area that the points dominate, gain times loss left until `limit`, over `limit`.

    Equal to the mean, over tolerances between no loss and `limit`, of the greatest gain that a
    method within the tolerance has (Zitzler and Thiele 1999, with the reference point at gain 0 and
    loss `limit`). `limit` is above 0.
    """
    area, edge = 0.0, limit
    for point in front(points, limit):
        loss = max(point.loss, 0.0)
        area += point.gain * (edge - loss)
        edge = loss
    return area / limit


def group_front(
    rows: Sequence[Mapping[str, Any]], baseline_precision: str, tolerance: float | None
) -> dict[str, Any] | None:
    """The `front` of a group out of its methods' rows, None where none has both figures.

    A method of the baseline's precision loses nothing by definition. The interval of the
    hypervolume is conservative: every point at the pessimistic ends of speed and quality, and every
    point at the optimistic ends; an end that is unknown leaves its point out.
    """
    ratio = tolerance if tolerance is not None and tolerance > 1.0 else DEFAULT_LIMIT
    limit = ratio - 1.0
    measured = [row for row in rows if row["role"] == "method" and row["speedup"]]
    exact = [row for row in measured if row["precision"] == baseline_precision]
    scored = [row for row in measured if row["quality"] and row not in exact]
    if not exact and not scored:
        return None

    def points(speed_end: str, quality_end: str) -> list[Point]:
        return [
            Point(str(row["method_id"]), speed - 1.0, loss - 1.0)
            for row in (*exact, *scored)
            if (speed := row["speedup"][speed_end]) is not None
            and (loss := 1.0 if row in exact else row["quality"]["perplexity_ratio"][quality_end])
            is not None
        ]

    means = points("mean", "mean")
    volume = Interval(
        hypervolume(means, limit),
        hypervolume(points("ci_low", "ci_high"), limit),
        hypervolume(points("ci_high", "ci_low"), limit),
        min(int(row["speedup"]["n"]) for row in (*exact, *scored)),
        float(measured[0]["speedup"]["level"]),
    )
    return {
        "methods": [point.method_id for point in front(means, limit)],
        "hypervolume": volume.to_json(),
        "perplexity_ratio_limit": ratio,
    }

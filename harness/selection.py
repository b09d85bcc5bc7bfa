"""The best method of a set, and its effect estimated on blocks that did not choose it.

The largest of many estimates is too large. So the even blocks pick a method and the odd blocks
estimate its effect, then the other way round, and the two estimates are averaged (cross-fitting).
Each is free of the bias of the choice. They are not independent of each other, so their standard
errors are averaged and not combined: by the triangle inequality the error of a mean of two
estimates is at most the mean of their errors, whatever their dependence. The half-width has the
t quantile of one half's degrees of freedom, so with six blocks that of two: wide, and honest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.comparison import Group, Key, Rates
from harness.stats import Interval, simultaneous_half_widths

MIN_HALF = 2  # blocks that a half needs to know its own spread
SELECTED_ON = "alternate blocks, estimated on the others, both directions averaged"


@dataclass(frozen=True)
class Winner:
    """The picked method. Intervals are ratios to the baseline.

    `picks` are the choices of the two halves. Where they differ, `key` is the better of the two
    over all blocks, and the estimate is that of the procedure of choosing.
    """

    key: Key
    picks: tuple[Key, Key]
    speedup: Interval
    end_to_end_speedup: Interval


def cross_fit(group: Group, candidates: Sequence[Key]) -> Winner | None:
    """The candidate with the highest end-to-end throughput. None without enough blocks or any."""
    found = [key for key in candidates if key in group.keys]
    count = len(group.blocks)
    if not found or count // 2 < MIN_HALF:
        return None
    halves = (range(0, count, 2), range(1, count, 2))
    rates = [group.rates_of(half, f"half {i}") for i, half in enumerate(halves)]
    picks = [_best(group, found, end_to_end) for _, end_to_end in rates]
    estimates = []
    for metric in (0, 1):
        # picks[0] chose on the even blocks and is estimated on the odd ones.
        parts = [_estimate(group, picks[i], rates[1 - i][metric]) for i in (0, 1)]
        estimates.append(_average(parts, count, group.settings.level))
    overall = group.end_to_end.values.mean(axis=0)
    key = max(picks, key=lambda pick: overall[group.keys.index(pick)])
    return Winner(key, (picks[0], picks[1]), estimates[0].exp(), estimates[1].exp())


def _best(group: Group, candidates: Sequence[Key], rates: Rates) -> Key:
    mean = rates.values.mean(axis=0)
    return max(candidates, key=lambda key: mean[group.keys.index(key)])


def _estimate(group: Group, key: Key, rates: Rates) -> tuple[float, float]:
    """(mean, half-width) of the log ratio to the baseline on one half."""
    matrix = group.weights([group.versus_baseline(key)])
    values = rates.values @ matrix
    width = simultaneous_half_widths(
        values, rates.draws @ matrix, group.settings.level, group.rng("selection")
    )
    return float(values.mean()), float(width[0])


def _average(parts: Sequence[tuple[float, float]], blocks: int, level: float) -> Interval:
    mean, half_width = (float(x) for x in np.mean(parts, axis=0))
    return Interval.around(mean, half_width, blocks, level)

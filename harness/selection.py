"""The best method of a set, and its effect estimated on blocks that did not choose it.

The largest of many estimates is too large. So the even blocks pick a method and the odd blocks
estimate its effect, then the other way round, and the two estimates are averaged (cross-fitting).
Each is free of the bias of the choice. They are not independent of each other, so their standard
errors are averaged and not combined: by the triangle inequality the error of a mean of two
estimates is at most the mean of their errors, whatever their dependence. The half-width has the
t quantile of one half's degrees of freedom, so with six blocks that of two: wide, and honest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.comparison import Contrast, Group, Key, Rates
from harness.stats import FloatArray, Interval, simultaneous_half_widths

MIN_BLOCKS = 4  # each half needs two blocks to know its own spread
SELECTED_ON = "alternate blocks, estimated on the others, both directions averaged"
Score = Callable[[Key, float], tuple[float, ...]]
"""What a candidate is worth, from its end-to-end log speedup; the largest wins."""


@dataclass(frozen=True)
class CrossFit:
    """The contrasts that the two halves chose, and their cross-fitted log-scale estimates."""

    chosen: tuple[Contrast, Contrast]
    decode: Interval
    end_to_end: Interval


@dataclass(frozen=True)
class Winner:
    """The picked method and its log-scale effects against the baseline.

    `picks` are the choices of the two halves. Where they differ, `key` is the better of the two
    over all blocks, and the estimate is that of the procedure of choosing.
    """

    key: Key
    picks: tuple[Key, Key]
    speedup: Interval
    end_to_end_speedup: Interval


def cross_fit(group: Group, choose: Callable[[FloatArray], Contrast]) -> CrossFit | None:
    """Chooses a contrast on one half of the blocks and estimates it on the other, both ways.

    `choose` gets the mean end-to-end log throughputs (K,) of a half. None with too few blocks.
    """
    count = len(group.blocks)
    if count < MIN_BLOCKS:
        return None
    halves = (range(0, count, 2), range(1, count, 2))
    rates = [group.rates_of(half, f"half {i}") for i, half in enumerate(halves)]
    chosen = [choose(end_to_end.values.mean(axis=0)) for _, end_to_end in rates]
    intervals = []
    for metric in (0, 1):
        # What the even blocks chose is estimated on the odd ones, and the reverse.
        parts = [_estimate(group, chosen[i], rates[1 - i][metric]) for i in (0, 1)]
        mean, half_width = (float(x) for x in np.mean(parts, axis=0))
        intervals.append(Interval.around(mean, half_width, count, group.settings.level))
    return CrossFit((chosen[0], chosen[1]), intervals[0], intervals[1])


def best(group: Group, means: FloatArray, candidates: Sequence[Key], score: Score) -> Key:
    """The candidate of the highest score for given mean log throughputs (K,)."""
    base = means[group.keys.index(group.baseline)]
    return max(candidates, key=lambda key: score(key, float(means[group.keys.index(key)] - base)))


def by_speed(_key: Key, log_speedup: float) -> tuple[float, ...]:
    """The score of a choice by end-to-end throughput alone."""
    return (log_speedup,)


def pick_winner(group: Group, candidates: Sequence[Key], score: Score = by_speed) -> Winner | None:
    """The best candidate with its cross-fitted effect. None without candidates or blocks."""
    found = [key for key in candidates if key in group.keys]
    if not found:
        return None
    fit = cross_fit(group, lambda means: group.versus_baseline(best(group, means, found, score)))
    if fit is None:
        return None
    first, second = (
        next(key for key in contrast if key != group.baseline) for contrast in fit.chosen
    )
    overall = group.end_to_end.values.mean(axis=0)
    key = best(group, overall, [first, second], score)
    return Winner(key, (first, second), fit.decode, fit.end_to_end)


def _estimate(group: Group, contrast: Contrast, rates: Rates) -> tuple[float, float]:
    """(mean, half-width) of a contrast on one half."""
    matrix = group.weights([contrast])
    values = rates.values @ matrix
    width = simultaneous_half_widths(
        values, rates.draws @ matrix, group.settings.level, group.rng("selection")
    )
    return float(values.mean()), float(width[0])

"""Intervals over requests: positions of one answer are not independent, answers are.

A rate's interval is the wider of the cluster bootstrap and Student's t over requests, and of
Wilson's where all positions are alike, because a resample of them has no spread at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import stats

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Sampling:
    """Level of every interval, bootstrap draws and seed."""

    level: float
    draws: int
    seed: int


class Clusters:
    """Rows that belong to requests. `codes` gives each row its request, 0 to `count` - 1.

    Requests without rows count as requests all the same.
    """

    def __init__(self, codes: NDArray[np.int64], count: int, sampling: Sampling) -> None:
        self._codes = codes
        self._count = count
        self._sampling = sampling

    def _sums(self, values: NDArray[Any]) -> FloatArray:
        return np.bincount(self._codes, weights=values, minlength=self._count).astype(float)

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self._sampling.seed)

    def ratios(
        self, parts: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
    ) -> dict[str, dict[str, Any]]:
        """For each name the sum of the first array over the sum of the second, both over rows.

        Returns {mean, ci_low, ci_high, n (requests), level, of (sum of the second)}; the mean is
        null where the second sum is 0, an end where it is unknown (fewer than two requests).
        """
        found = {name: _empty(self._count, self._sampling.level) for name in parts}
        names = [name for name, (_, below) in parts.items() if below.sum() > 0]
        if not names:
            return found
        above = np.stack([self._sums(parts[name][0]) for name in names], axis=1)
        below = np.stack([self._sums(parts[name][1]) for name in names], axis=1)
        sampling = self._sampling
        intervals = stats.ratio_intervals(above, below, sampling.level, sampling.draws, self._rng())
        for name, interval, weight in zip(names, intervals, below.sum(axis=0), strict=True):
            found[name] = {**interval.to_json(), "of": int(weight)}
        return found

    def rates(self, parts: Mapping[str, tuple[BoolArray, BoolArray]]) -> dict[str, dict[str, Any]]:
        """For each name the share of the rows of the second mask that are in the first too.

        As `ratios`, with `count`, the rows in both; ends are held within 0 and 1.
        """
        found = self.ratios({name: (a & b, b) for name, (a, b) in parts.items()})
        for name, (inside, of) in parts.items():
            rate = found[name]
            rate["count"] = count = int((inside & of).sum())
            if not rate["of"]:
                continue
            if count in (0, rate["of"]):
                low, high = stats.wilson(count, rate["of"], self._sampling.level)
                rate["ci_low"] = min(_or(rate["ci_low"], 1.0), low)
                rate["ci_high"] = max(_or(rate["ci_high"], 0.0), high)
            rate["ci_low"] = None if rate["ci_low"] is None else max(0.0, rate["ci_low"])
            rate["ci_high"] = None if rate["ci_high"] is None else min(1.0, rate["ci_high"])
        return found

    def median(self, values: NDArray[Any]) -> dict[str, Any]:
        """The median with the percentile interval of the bootstrap over requests."""
        sampling = self._sampling
        entry = _empty(self._count, sampling.level)
        if not len(values):
            return entry
        order = np.argsort(values, kind="stable")
        ordered, owners = np.asarray(values, float)[order], self._codes[order]
        entry |= {"mean": float(np.median(ordered)), "of": len(ordered)}
        if self._count < 2:
            return entry
        weights = stats.resampling_weights(self._count, sampling.draws, self._rng())
        middles = [
            m for row in weights if (m := _weighted_median(ordered, row[owners])) is not None
        ]
        low, high = np.quantile(middles, [0.5 - sampling.level / 2, 0.5 + sampling.level / 2])
        entry["ci_low"] = min(float(low), entry["mean"])
        entry["ci_high"] = max(float(high), entry["mean"])
        return entry


def _weighted_median(ordered: FloatArray, weights: FloatArray) -> float | None:
    """Median of rising values, each as often as its weight; None where none is drawn."""
    running = np.cumsum(weights)
    total = running[-1]
    if total == 0:
        return None
    low = int(np.searchsorted(running, total / 2, side="left"))
    high = int(np.searchsorted(running, total / 2, side="right"))
    return float((ordered[low] + ordered[min(high, len(ordered) - 1)]) / 2)


def _empty(count: int, level: float) -> dict[str, Any]:
    return {"mean": None, "ci_low": None, "ci_high": None, "n": count, "level": level, "of": 0}


def _or(value: float | None, other: float) -> float:
    return other if value is None or not math.isfinite(value) else value


def codes_of(requests: Sequence[int], rows: NDArray[Any]) -> NDArray[np.int64]:
    """Place of each row's request in `requests`. Raises ValueError for a row of none of them."""
    order = np.argsort(requests)
    ordered = np.asarray(requests)[order]
    places = np.searchsorted(ordered, rows)
    if len(rows) and (places.max() >= len(ordered) or (ordered[places] != rows).any()):
        raise ValueError("a row of the trace belongs to a request that was not run")
    codes: NDArray[np.int64] = order[places].astype(np.int64)
    return codes

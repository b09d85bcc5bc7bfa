"""Figures of a forward curve for the summary: T(n), T(n) / T(1), bytes a second, roofline.

Repeats of a curve take turns over its numbers of rows, so that T(n) / T(1) is formed inside a
repeat. Intervals of medians are distribution-free: two order statistics whose binomial coverage is
at least the level (Conover, Practical Nonparametric Statistics, section 3.2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from scipy.stats import binom

from harness.derive import RecordError


def median_interval(values: Sequence[float], level: float) -> dict[str, Any]:
    """An interval whose `mean` is the median, with the level that the order statistics reach.

    Where even least and greatest reach less than `level`, they are given, with what they reach.
    """
    ordered = sorted(values)
    n = len(ordered)
    cut = 0
    while 2 * (cut + 1) < n and 1 - 2 * float(binom.cdf(cut + 1, n, 0.5)) >= level:
        cut += 1
    return {
        "mean": median(ordered),
        "ci_low": ordered[cut],
        "ci_high": ordered[n - 1 - cut],
        "n": n,
        "level": 1 - 2 * float(binom.cdf(cut, n, 0.5)),
    }


def curve_rows(results: Path, level: float) -> list[dict[str, Any]]:
    """The rows of a folder's curves.json; none without the file. Raises RecordError."""
    path = results / "curves.json"
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [curve_row(curve, level) for curve in content["curves"]]
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{path} cannot be used: {error!r}.") from None


def curve_row(curve: Mapping[str, Any], level: float) -> dict[str, Any]:
    """A curve of curves.json with figures instead of single times.

    `bytes_s` counts the weight bytes, once a forward; `roofline_fraction` is its share of the read
    bandwidth that the worker measured in the same call, null without one.
    """
    named = ("worker", "model", "precision", "mask", "context", "batch", "bandwidth_bytes_s",
             "bytes_per_token")  # fmt: skip
    times = {int(n): [float(t) for t in values] for n, values in curve["times"].items()}
    points = [_point(curve, n, times, level) for n in sorted(times)]
    return {**{key: curve[key] for key in named}, "points": points}


def _point(
    curve: Mapping[str, Any], rows: int, times: Mapping[int, Sequence[float]], level: float
) -> dict[str, Any]:
    seconds = median_interval(times[rows], level)
    bytes_s = _inverse(seconds, float(curve["bytes_per_token"]))
    bandwidth = curve["bandwidth_bytes_s"]
    ratio = None
    if 1 in times:
        pairs = zip(times[rows], times[1], strict=True)
        ratio = median_interval([many / one for many, one in pairs], level)
    return {
        "tokens": rows,
        "seconds": seconds,
        "ratio": ratio,
        "bytes_s": bytes_s,
        "roofline_fraction": _scaled(bytes_s, 1 / float(bandwidth)) if bandwidth else None,
    }


def _inverse(seconds: Mapping[str, Any], numerator: float) -> dict[str, Any]:
    """The interval of numerator / seconds."""
    return {
        **seconds,
        "mean": numerator / seconds["mean"],
        "ci_low": numerator / seconds["ci_high"],
        "ci_high": numerator / seconds["ci_low"],
    }


def _scaled(interval: Mapping[str, Any], factor: float) -> dict[str, Any]:
    return {**interval, **{key: interval[key] * factor for key in ("mean", "ci_low", "ci_high")}}

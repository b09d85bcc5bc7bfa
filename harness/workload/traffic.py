"""What traffic looks like in numbers: lengths, arrival rate, burstiness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

QUANTILES = {"min": 0.0, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95,
             "p99": 0.99, "max": 1.0}  # fmt: skip
GAPS_PER_WINDOW = 10
MIN_WINDOWS = 30


@dataclass(frozen=True)
class Arrivals:
    """How requests arrive.

    ``gap_variation`` is the coefficient of variation of the gaps between arrivals, and
    ``count_dispersion`` the variance over the mean of the number of arrivals in windows of
    ``window_s`` seconds (10 mean gaps), None where there are fewer than 30 windows. Both are 1
    for a Poisson process; gaps that look like one while counts do not mean a changing rate.
    """

    rate_per_s: float
    duration_s: float
    gap_variation: float
    count_dispersion: float | None
    window_s: float

    @property
    def words(self) -> str:
        """The shape in words."""
        if self.count_dispersion is not None and self.count_dispersion > 1.5:
            return "burstier than chance: busy and quiet stretches follow each other"
        if self.gap_variation > 1.3:
            return "burstier than chance: many gaps are short and some are long"
        if self.gap_variation < 0.7:
            return "regular: gaps are more even than chance would make them"
        return "much like independent arrivals at a steady rate"


@dataclass(frozen=True)
class Traffic:
    """Quantiles of lengths in tokens, and arrivals where times are known."""

    requests: int
    prompt_tokens: dict[str, float]
    output_tokens: dict[str, float] | None
    arrivals: Arrivals | None

    def as_dict(self) -> dict[str, Any]:
        """The form in which YAML files and records keep it."""
        return asdict(self)


def describe(
    prompt_tokens: Sequence[int], output_tokens: Sequence[int] | None,
    times_s: Sequence[float] | None,
) -> Traffic:  # fmt: skip
    """Summarizes traffic; ``times_s`` need no order."""
    return Traffic(
        requests=len(prompt_tokens),
        prompt_tokens=quantiles(prompt_tokens),
        output_tokens=quantiles(output_tokens) if output_tokens else None,
        arrivals=arrivals(times_s) if times_s else None,
    )


def quantiles(values: Sequence[int]) -> dict[str, float]:
    """Quantiles by linear interpolation, by name."""
    found = np.quantile(np.asarray(values, dtype=np.float64), list(QUANTILES.values()))
    return {name: round(float(value), 1) for name, value in zip(QUANTILES, found, strict=True)}


def arrivals(times_s: Sequence[float]) -> Arrivals | None:
    """Rate and shape of arrivals; None with fewer than three, or where all come at once."""
    times = np.sort(np.asarray(times_s, dtype=np.float64))
    duration = float(times[-1] - times[0]) if len(times) else 0.0
    if len(times) < 3 or duration <= 0:
        return None
    gaps = np.diff(times)
    window = GAPS_PER_WINDOW * float(gaps.mean())
    windows = int(duration / window)
    dispersion = None
    if windows >= MIN_WINDOWS:
        counts, _ = np.histogram(times, bins=times[0] + window * np.arange(windows + 1))
        dispersion = float(counts.var() / counts.mean())
    return Arrivals(
        rate_per_s=len(gaps) / duration,
        duration_s=duration,
        gap_variation=float(gaps.std() / gaps.mean()),
        count_dispersion=dispersion,
        window_s=window,
    )

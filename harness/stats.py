"""Intervals, simultaneous intervals and decisions. docs/statistics.md says why each is as it is.

All comparisons live on the log scale, where a ratio is a difference. Shapes: B blocks, K columns
(methods, or contrasts between methods), P prompts of a block, S draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions

FloatArray = NDArray[np.float64]
Decision = Literal["faster", "slower", "equal", "undecided"]
# Draws of the max-t law: enough for its 99 % point to move by about 1 % from seed to seed.
CRITICAL_DRAWS = 6000
MAD_TO_SIGMA = 1.4826  # of a normal law


@dataclass(frozen=True)
class Settings:
    """The `stats:` block of the configuration."""

    level: float = 0.95
    min_effect: float = 0.02
    min_blocks: int = 6
    target: float = 0.02
    stop_level: float = 0.99
    bootstrap_draws: int = 2000
    outlier_mads: float = 3.5
    seed: int = 1

    @classmethod
    def read(cls, block: Mapping[str, Any]) -> Settings:
        """Settings from a mapping; absent keys keep their defaults.

        Raises ValueError naming the key for an unknown key or a value out of range.
        """
        known = cls.__dataclass_fields__
        for key in block:
            if key not in known:
                raise ValueError(f"stats.{key} is not a setting; known are {', '.join(known)}.")
        made = cls(**block)
        for key in ("level", "stop_level"):
            if not 0.5 < getattr(made, key) < 1.0:
                raise ValueError(f"stats.{key} must lie between 0.5 and 1.")
        for key in ("min_effect", "target", "outlier_mads"):
            if not (math.isfinite(getattr(made, key)) and getattr(made, key) > 0):
                raise ValueError(f"stats.{key} must be a number above 0.")
        if made.min_blocks < 2 or made.bootstrap_draws < 200:
            raise ValueError("stats.min_blocks must be at least 2, stats.bootstrap_draws 200.")
        return made

    @property
    def zone(self) -> float:
        """Half-width, on the log scale, of the zone that counts as no difference."""
        return math.log1p(self.min_effect)


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, the number of observations and the level."""

    mean: float
    ci_low: float
    ci_high: float
    n: int
    level: float

    @classmethod
    def around(cls, mean: float, half_width: float, n: int, level: float) -> Interval:
        """mean ± half_width."""
        return cls(mean, mean - half_width, mean + half_width, n, level)

    def exp(self) -> Interval:
        """From the log scale to a ratio; an end that is not known stays so."""
        low = math.exp(self.ci_low) if math.isfinite(self.ci_low) else -math.inf
        return Interval(math.exp(self.mean), low, math.exp(self.ci_high), self.n, self.level)

    def scaled(self, factor: float) -> Interval:
        """In another unit; `factor` is above 0."""
        mean, low, high = (x * factor for x in (self.mean, self.ci_low, self.ci_high))
        return Interval(mean, low, high, self.n, self.level)

    def clipped(self, low: float, high: float) -> Interval:
        """Ends held inside the values that the quantity can take."""
        return Interval(
            self.mean, max(low, self.ci_low), min(high, self.ci_high), self.n, self.level
        )

    def to_json(self) -> dict[str, Any]:
        """{mean, ci_low, ci_high, n, level}; an end that is not finite becomes null."""
        ends = {"mean": self.mean, "ci_low": self.ci_low, "ci_high": self.ci_high}
        found = {key: value if math.isfinite(value) else None for key, value in ends.items()}
        return {**found, "n": self.n, "level": self.level}


def decide(low: float, high: float, zone: float) -> Decision:
    """The word for a log-scale interval against the zone [-zone, +zone]."""
    if low > zone:
        return "faster"
    if high < -zone:
        return "slower"
    if low >= -zone and high <= zone:
        return "equal"
    return "undecided"


def standard_errors(values: FloatArray) -> FloatArray:
    """Standard error of the mean over the first axis: (B, K) -> (K,). Needs B >= 2."""
    spread: FloatArray = np.std(values, axis=0, ddof=1) / math.sqrt(len(values))
    return spread


def shrunk_correlation(values: FloatArray) -> FloatArray:
    """Correlation of the columns, shrunk towards independence: (B, K) -> (K, K).

    The intensity is that of Schaefer and Strimmer (2005), for a target without correlation. Six
    blocks tell little of a correlation; independence gives the widest intervals, so to shrink
    towards it errs on the safe side.
    """
    blocks, columns = values.shape
    centred = values - values.mean(axis=0)
    scale = centred.std(axis=0, ddof=1)
    unit = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 0)
    products = unit[:, :, None] * unit[:, None, :]  # (B, K, K)
    mean_product = products.mean(axis=0)
    correlation = mean_product * blocks / (blocks - 1)
    variance = ((products - mean_product) ** 2).sum(axis=0) * blocks / (blocks - 1) ** 3
    off = ~np.eye(columns, dtype=bool)
    strength = float((correlation[off] ** 2).sum())
    intensity = min(1.0, float(variance[off].sum()) / strength) if strength > 0 else 1.0
    shrunk: FloatArray = (1.0 - intensity) * correlation
    np.fill_diagonal(shrunk, 1.0)
    return shrunk


def critical_value(values: FloatArray, level: float, rng: np.random.Generator) -> float:
    """The factor c for which mean ± c standard errors covers all K columns at once.

    The law of max |t| is drawn: B normal rows with the shrunk correlation of the columns, each
    column studentized by its own spread, as in the data. One column needs no drawing: Student's t.
    """
    blocks, columns = values.shape
    if columns == 1:
        return float(distributions.t.ppf(0.5 + level / 2, blocks - 1))
    root = np.linalg.cholesky(shrunk_correlation(values) + 1e-9 * np.eye(columns))
    # Mean and spread of a normal sample are independent: draw the mean, and B - 1 residuals.
    noise = rng.standard_normal((CRITICAL_DRAWS, blocks, columns), dtype=np.float32)
    noise = noise @ root.T.astype(np.float32)
    spread = np.sqrt(np.einsum("sbk,sbk->sk", noise[:, 1:], noise[:, 1:]) / (blocks - 1))
    return float(np.quantile(np.abs(noise[:, 0] / spread).max(axis=1), level))


@dataclass(frozen=True)
class BlockSample:
    """Per-prompt sums of one block: `amount` over `seconds`, both (P, K), are the K throughputs."""

    amount: FloatArray
    seconds: FloatArray

    def log_rates(self) -> FloatArray:
        """log(sum of amounts / sum of seconds) for each column: (K,)."""
        rates: FloatArray = np.log(self.amount.sum(axis=0)) - np.log(self.seconds.sum(axis=0))
        return rates


def two_level_bootstrap(
    blocks: Sequence[BlockSample], draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draws of the mean over blocks of log_rates: (S, K).

    Blocks are resampled, and in each chosen block its prompts; all columns share the choice, so
    that differences of columns stay paired. A resample without a single token (all of its
    requests ended with the first one) is replaced by the block as it was.
    """
    count = len(blocks)
    chosen = rng.integers(0, count, size=(draws, count))
    total = np.zeros((draws, blocks[0].amount.shape[1]))
    for index, block in enumerate(blocks):
        times_chosen = (chosen == index).sum(axis=1)
        owner = np.repeat(np.arange(draws), times_chosen)
        if not len(owner):
            continue
        prompts = len(block.amount)
        weights = resampling_weights(prompts, len(owner), rng)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.log(weights @ block.amount) - np.log(weights @ block.seconds)
        rates = np.where(np.isfinite(rates), rates, block.log_rates())
        starts = np.cumsum(times_chosen) - times_chosen
        # The extra row gives draws at the end that did not choose this block a place to start.
        sums = np.add.reduceat(np.vstack([rates, np.zeros_like(rates[:1])]), starts, axis=0)
        total += np.where(times_chosen[:, None] > 0, sums, 0.0)
    mean: FloatArray = total / count
    return mean


def resampling_weights(count: int, draws: int, rng: np.random.Generator) -> FloatArray:
    """How often each of `count` items is in each resample of that size: (draws, count)."""
    chosen = rng.integers(0, count, size=(draws, count)) + count * np.arange(draws)[:, None]
    times = np.bincount(chosen.ravel(), minlength=draws * count)
    return times.reshape(draws, count).astype(float)


def simultaneous_half_widths(
    values: FloatArray, draws: FloatArray, level: float, rng: np.random.Generator
) -> FloatArray:
    """Half-widths of simultaneous intervals for the K column means: (B, K), (S, K) -> (K,).

    The wider, for each column, of max-t on block values and of the bootstrap's max-t. With one
    block nothing is known of the spread, and the half-widths are infinite.
    """
    blocks, columns = values.shape
    if blocks < 2:
        return np.full(columns, np.inf)
    student = critical_value(values, level, rng) * standard_errors(values)
    return np.maximum(student, bootstrap_half_widths(values.mean(axis=0), draws, level))


def bootstrap_half_widths(estimate: FloatArray, draws: FloatArray, level: float) -> FloatArray:
    """q times the bootstrap's standard errors, q the level quantile of the largest deviation."""
    errors = np.std(draws, axis=0)
    deviation = np.abs(draws - estimate)
    scaled = np.divide(deviation, errors, out=np.zeros_like(deviation), where=errors > 0)
    widths: FloatArray = float(np.quantile(scaled.max(axis=1), level)) * errors
    return widths


def ratio_intervals(
    numerators: FloatArray, denominators: FloatArray, level: float, draws: int,
    rng: np.random.Generator,
) -> list[Interval]:  # fmt: skip
    """For each column, sum of numerators / sum of denominators over n clusters: (n, K) each.

    The wider of the percentile bootstrap over clusters and of Student's t on the linearised ratio
    (Cochran 1977, section 6.3). One cluster gives infinite ends. Column sums of the denominators
    must be above 0.
    """
    count = len(numerators)
    below = denominators.sum(axis=0)
    ratios = numerators.sum(axis=0) / below
    if count < 2:
        return [Interval(float(r), -math.inf, math.inf, count, level) for r in ratios]
    residuals = numerators - ratios * denominators
    errors = np.sqrt(count / (count - 1) * (residuals**2).sum(axis=0)) / below
    half = float(distributions.t.ppf(0.5 + level / 2, count - 1)) * errors
    weights = resampling_weights(count, draws, rng)
    resampled = weights @ denominators
    drawn = np.broadcast_to(ratios, resampled.shape).copy()
    np.divide(weights @ numerators, resampled, out=drawn, where=resampled > 0)
    low, high = np.quantile(drawn, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    low, high = np.minimum(low, ratios - half), np.maximum(high, ratios + half)
    return [
        Interval(float(r), float(lo), float(hi), count, level)
        for r, lo, hi in zip(ratios, low, high, strict=True)
    ]


def wilson(successes: int, trials: int, level: float) -> tuple[float, float]:
    """Wilson's interval of a share (1927). Unlike the bootstrap it is open where all succeed."""
    z = float(distributions.norm.ppf(0.5 + level / 2))
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = (
        z
        / (1 + z * z / trials)
        * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    )
    # At the ends rounding could leave the share itself outside.
    return min(share, centre - half), max(share, centre + half)


def quantile_interval(values: FloatArray, share: float, level: float) -> Interval:
    """A quantile with the distribution-free interval between two order statistics.

    The values count as independent; where too few lie beyond the quantile, the end is the
    largest or smallest value seen.
    """
    ordered = np.sort(values)
    count = len(ordered)
    low = int(distributions.binom.ppf(0.5 - level / 2, count, share))
    high = int(distributions.binom.ppf(0.5 + level / 2, count, share))
    point = float(np.quantile(ordered, share))
    return Interval(
        point,
        min(point, float(ordered[max(0, low - 1)])),
        max(point, float(ordered[min(count - 1, high)])),
        count,
        level,
    )


def mad_outliers(values: FloatArray, limit: float) -> list[int]:
    """Indices further than `limit` robust sigmas (median absolute deviations) from the median."""
    distance = np.abs(values - np.median(values))
    sigma = MAD_TO_SIGMA * float(np.median(distance))
    if sigma == 0.0:
        return []
    return [int(i) for i in np.flatnonzero(distance > limit * sigma)]

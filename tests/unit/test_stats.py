"""The building blocks of the statistics, against textbook values and independent computation."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats as reference

from harness.stats import (
    BlockSample,
    Interval,
    Settings,
    bootstrap_half_widths,
    critical_value,
    decide,
    mad_outliers,
    quantile_interval,
    ratio_intervals,
    shrunk_correlation,
    simultaneous_half_widths,
    standard_errors,
    two_level_bootstrap,
    wilson,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.03, 0.10, "faster"),
        (-0.10, -0.03, "slower"),
        (-0.01, 0.01, "equal"),
        (-0.019, 0.02, "equal"),
        (0.01, 0.10, "undecided"),
        (0.02, 0.10, "undecided"),
        (-0.10, -0.01, "undecided"),
        (-0.10, 0.10, "undecided"),
    ],
)
def test_a_decision_needs_an_interval_clear_of_the_zone(low: float, high: float, word: str) -> None:
    assert decide(low, high, 0.02) == word


def test_one_comparison_has_students_t() -> None:
    values = np.array([[0.1], [0.3], [0.2], [0.25], [0.05], [0.12]])
    critical = critical_value(values, 0.95, rng())
    assert critical == pytest.approx(2.5705818)  # t, 5 degrees of freedom, two-sided 95 %
    listed = [float(x) for x in values[:, 0]]
    error = statistics.stdev(listed) / math.sqrt(6)
    assert standard_errors(values)[0] == pytest.approx(error)


def test_the_max_t_law_of_independent_columns_is_sidaks() -> None:
    values = rng().standard_normal((8, 10))
    sidak = reference.t.ppf(0.5 + 0.95 ** (1 / 10) / 2, 7)
    assert critical_value(values, 0.95, rng()) == pytest.approx(sidak, rel=0.06)


def test_perfectly_correlated_columns_cost_little() -> None:
    column = rng().standard_normal((30, 1))
    values = np.repeat(column, 10, axis=1) + 1e-6 * rng().standard_normal((30, 10))
    one = reference.t.ppf(0.975, 29)
    ten = reference.t.ppf(0.5 + 0.95 ** (1 / 10) / 2, 29)
    assert one * 0.97 < critical_value(values, 0.95, rng()) < (one + ten) / 2


def test_a_correlation_from_few_blocks_is_shrunk_and_a_known_one_is_kept() -> None:
    noise = rng()
    common = noise.standard_normal((400, 1))
    long = common + 0.5 * noise.standard_normal((400, 6))
    assert abs(shrunk_correlation(long)[0, 1] - 0.8) < 0.1
    few = noise.standard_normal((6, 20))
    off = ~np.eye(20, dtype=bool)
    plain = np.asarray(np.corrcoef(few, rowvar=False))
    assert np.abs(shrunk_correlation(few)[off]).mean() < 0.4 * np.abs(plain[off]).mean()


def test_a_constant_column_does_not_spoil_the_others() -> None:
    values = rng().standard_normal((6, 3))
    values[:, 1] = 0.25
    widths = simultaneous_half_widths(values, np.tile(values.mean(axis=0), (300, 1)), 0.95, rng())
    assert widths[1] == 0.0
    assert (widths[[0, 2]] > 0).all()


def test_the_interval_is_the_wider_of_the_two() -> None:
    values = rng().standard_normal((8, 1))
    student = float(reference.t.ppf(0.975, 7) * standard_errors(values)[0])
    narrow = values.mean() + 1e-3 * rng().standard_normal((500, 1))
    wide = values.mean() + 10.0 * rng().standard_normal((500, 1))
    assert simultaneous_half_widths(values, narrow, 0.95, rng())[0] == pytest.approx(student)
    found = simultaneous_half_widths(values, wide, 0.95, rng())[0]
    assert found == pytest.approx(bootstrap_half_widths(values.mean(axis=0), wide, 0.95)[0])
    assert found > 2 * student


def test_one_block_has_no_interval() -> None:
    widths = simultaneous_half_widths(np.zeros((1, 2)), np.zeros((300, 2)), 0.95, rng())
    assert np.isinf(widths).all()


def test_the_bootstrap_resamples_both_levels() -> None:
    """Its variance is that of blocks plus that of prompts in blocks (both without the n-1)."""
    noise = rng()
    blocks = []
    for _ in range(5):
        seconds = np.exp(0.2 * noise.standard_normal((6, 1)) + 0.3 * noise.standard_normal())
        blocks.append(BlockSample(np.ones((6, 1)), seconds))
    draws = two_level_bootstrap(blocks, 40000, noise)[:, 0]
    rates = [float(block.log_rates()[0]) for block in blocks]
    between = statistics.pvariance(rates)
    within = 0.0
    for block in blocks:  # delta method: variance of -log(mean of seconds)
        column = [float(x) for x in block.seconds[:, 0]]
        within += statistics.pvariance(column) / 6 / statistics.fmean(column) ** 2 / 5
    assert float(np.var(draws)) == pytest.approx((between + within) / 5, rel=0.05)
    assert float(np.mean(draws)) == pytest.approx(statistics.fmean(rates), abs=0.02)


def test_the_bootstrap_keeps_columns_paired() -> None:
    noise = rng()
    blocks = []
    for _ in range(6):
        seconds = np.exp(noise.standard_normal((4, 1)))
        blocks.append(BlockSample(np.ones((4, 2)), np.hstack([seconds, 2 * seconds])))
    draws = two_level_bootstrap(blocks, 500, noise)
    assert draws[:, 0] - draws[:, 1] == pytest.approx(np.full(500, math.log(2)))


def test_a_resample_without_tokens_falls_back_to_the_block() -> None:
    block = BlockSample(np.array([[0.0], [10.0]]), np.array([[0.0], [2.0]]))
    draws = two_level_bootstrap([block, block], 400, rng())
    assert np.isfinite(draws).all()
    assert draws == pytest.approx(np.full((400, 1), math.log(5)))


def test_ratio_interval_is_at_least_the_linearised_one() -> None:
    top, below = [3.0, 5.0, 4.0, 9.0], [2.0, 2.5, 2.0, 5.0]
    found = ratio_intervals(np.array([top]).T, np.array([below]).T, 0.95, 2000, rng())[0]
    ratio = sum(top) / sum(below)
    residuals = [a - ratio * b for a, b in zip(top, below, strict=True)]
    error = math.sqrt(4 / 3 * sum(r * r for r in residuals)) / sum(below)
    half = 3.1824463 * error  # t, 3 degrees of freedom
    assert found.mean == pytest.approx(ratio)
    assert found.ci_low <= ratio - half + 1e-9
    assert found.ci_high >= ratio + half - 1e-9
    assert found.n == 4


def test_one_cluster_has_an_open_interval() -> None:
    found = ratio_intervals(np.array([[3.0]]), np.array([[2.0]]), 0.95, 300, rng())[0]
    assert found.to_json() == {"mean": 1.5, "ci_low": None, "ci_high": None, "n": 1, "level": 0.95}


def test_wilson_against_its_published_values() -> None:
    low, high = wilson(10, 10, 0.95)  # Newcombe 1998: 0.7225 to 1
    assert low == pytest.approx(0.7225, abs=1e-4)
    assert high == pytest.approx(1.0)
    low, high = wilson(81, 263, 0.95)  # Newcombe 1998, method 3: 0.2553 to 0.3662
    assert low == pytest.approx(0.2553, abs=1e-4)
    assert high == pytest.approx(0.3662, abs=1e-4)


def test_quantile_interval_holds_the_quantile_as_often_as_it_says() -> None:
    noise, truth, held = rng(), -math.log(0.1), 0
    for _ in range(500):
        found = quantile_interval(noise.exponential(size=80), 0.9, 0.95)
        held += found.ci_low <= truth <= found.ci_high
    assert held >= 0.93 * 500


def test_outliers_are_named_by_their_place() -> None:
    assert mad_outliers(np.array([1.0, 1.1, 0.9, 1.05, 0.95, 9.0]), 3.5) == [5]
    assert mad_outliers(np.array([1.0, 1.0, 1.0, 1.0, 9.0]), 3.5) == []


def test_interval_in_json_has_no_infinity() -> None:
    assert Interval(math.inf, 2.0, math.inf, 6, 0.95).to_json()["mean"] is None


@pytest.mark.parametrize(
    ("block", "word"),
    [
        ({"levl": 0.95}, "levl"),
        ({"level": 1.5}, "level"),
        ({"min_effect": 0.0}, "min_effect"),
        ({"min_effect": math.nan}, "min_effect"),
        ({"min_blocks": 1}, "min_blocks"),
    ],
)
def test_bad_settings_are_named(block: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Settings.read(block)

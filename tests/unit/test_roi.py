"""Return on investment by hand, and what a cost block may not say."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.cost import read_cost
from harness.errors import ConfigError
from harness.roi import Throughputs, business, net_value, roi, sensitivity, stretched, validate_cost
from harness.stats import Interval

CONF = Path(__file__).parents[2] / "conf" / "cost"


def block() -> dict[str, Any]:
    """One device yields 100 tok/s · 0.5 · 2,628,000 s = 131.4 million tokens a month."""
    return {
        "currency": "USD", "device_price_per_hour": 2.0, "utilization": 0.5,
        "demand_tokens_per_month": 131.4e6 * 10, "horizon_months": 10,
        "engineering_rate_per_day": 1000,
        "engineering_days": {"quantization": 3, "speculation": 5, "combined": 8},
        "quality": {"perplexity_ratio": 1.05, "agreement_rate": 0.95, "kl": 0.05},
        "slo": {"ttft_ms": 1000, "tpot_ms": 100, "attainment": 0.95},
        "operating_point": {"batch_size": None, "context_length": None},
        "assumed": {"demand": True, "price": False},
        "sensitivity": {"price": [0.5, 2.0], "demand": [0.5, 2.0], "utilization": [0.5, 3.0]},
    }  # fmt: skip


def figures(method: float, baseline: float = 100.0, arm: str = "quantization") -> dict[str, float]:
    model = read_cost(block())
    found = business(model, np.array([method]), np.array([baseline]), model.engineering[arm])
    return {name: float(values[0]) for name, values in found.items()}


def test_return_by_hand() -> None:
    found = figures(200.0)
    assert found["devices"] == 5  # of 10
    assert found["monthly_cost"] == pytest.approx(5 * 2 * 730)
    assert found["monthly_saving"] == pytest.approx(5 * 2 * 730)
    assert found["net_value"] == pytest.approx(10 * 7300 - 3000)
    assert found["payback_months"] == pytest.approx(3000 / 7300)
    assert found["per_million_tokens"] == pytest.approx(2 / 3600 / (200 * 0.5) * 1e6)


def test_devices_are_whole_and_an_exact_fit_needs_no_more() -> None:
    assert figures(100.0)["devices"] == 10
    assert figures(99.9)["devices"] == 11
    assert figures(1e9)["devices"] == 1


def test_without_a_saving_there_is_no_payback() -> None:
    assert math.isinf(figures(100.0)["payback_months"])
    assert figures(50.0)["net_value"] == pytest.approx(-10 * 2 * 730 * 10 - 3000)


def test_intervals_follow_the_draws() -> None:
    model = read_cost(block())
    ratio = np.log([2.0, *np.linspace(1.5, 2.5, 1001)])
    base = np.full(1002, math.log(100.0))
    found = roi(model, "combined", Throughputs(base, base + ratio, 6), 0.95)
    assert found["devices"]["mean"] == 5
    assert (found["devices"]["ci_low"], found["devices"]["ci_high"]) == (5.0, 7.0)  # 2.475, 1.525
    assert found["net_value"]["ci_low"] == pytest.approx(3 * 2 * 730 * 10 - 8000)
    assert found["net_value"]["n"] == 6
    assert found["projected"] is True


def test_a_payback_that_may_never_come_has_an_open_end() -> None:
    model = read_cost(block())
    ratio = np.log([1.3, *np.linspace(0.9, 1.7, 1001)])
    base = np.full(1002, math.log(100.0))
    found = roi(model, "combined", Throughputs(base, base + ratio, 6), 0.95)
    assert found["payback_months"]["mean"] is not None
    assert found["payback_months"]["ci_high"] is None


def test_draws_are_stretched_to_the_reported_interval() -> None:
    draws = np.random.default_rng(3).standard_normal(4000)
    interval = Interval(0.4, 0.1, 0.7, 6, 0.95)
    found = stretched(draws, interval)
    assert found[0] == 0.4
    inside = (found[1:] >= 0.1) & (found[1:] <= 0.7)
    assert inside.mean() == pytest.approx(0.95, abs=0.001)


def test_sensitivity_changes_one_figure_at_a_time() -> None:
    model = read_cost(block())
    base = np.full(3, math.log(100.0))
    speedup = Interval(2.0, 1.5, 2.5, 6, 0.95)
    rows = sensitivity(model, "quantization", Throughputs(base, base, 6), speedup)
    found = {row["factor"]: row for row in rows}
    assert found["price"]["low"]["net_value"] == pytest.approx(5 * 1 * 730 * 10 - 3000)
    assert found["demand"]["high"]["net_value"] == pytest.approx(10 * 2 * 730 * 10 - 3000)
    assert found["utilization"]["high"]["value"] == 1.0  # never above the whole device
    assert found["speedup"]["low"]["net_value"] == net_value(model, "quantization", 100.0, 1.5)


@pytest.mark.parametrize("name", ["default", "h200"])
def test_the_shipped_blocks_are_valid_and_say_that_they_are_assumed(name: str) -> None:
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    validate_cost(content)
    assert read_cost(content).assumed == {"demand": True, "price": True}


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("device_price_per_hour",), math.nan, r"cost\.device_price_per_hour.*finite"),
        (("device_price_per_hour",), math.inf, r"cost\.device_price_per_hour.*finite"),
        (("device_price_per_hour",), -1.0, r"cost\.device_price_per_hour=-1.0"),
        (("device_price_per_hour",), 0, r"cost\.device_price_per_hour=0.*above 0"),
        (("device_price_per_hour",), "1e3", r"cost\.device_price_per_hour=1e3.*number"),
        (("device_price_per_hour",), True, r"cost\.device_price_per_hour=True"),
        (("utilization",), 1.5, r"cost\.utilization=1.5.*at most 1"),
        (("engineering_days", "combined"), -2, r"cost\.engineering_days\.combined=-2"),
        (("quality", "kl"), math.nan, r"cost\.quality\.kl"),
        (("quality", "agreement_rate"), 95, r"cost\.quality\.agreement_rate=95"),
        (("slo", "tpot_ms"), None, r"cost\.slo\.tpot_ms=None"),
        (("assumed", "demand"), "no", r"cost\.assumed\.demand=no"),
        (("sensitivity", "price"), [2.0, 0.5], r"cost\.sensitivity\.price.*low factor"),
        (("sensitivity", "price"), 2.0, r"cost\.sensitivity\.price.*two factors"),
        (("sensitivity", "price"), [0.5, math.nan], r"cost\.sensitivity\.price\.1"),
        (("operating_point", "batch_size"), 0, r"cost\.operating_point\.batch_size=0"),
        (("operating_point", "context_length"), "long", r"cost\.operating_point\.context_length"),
        (("currency",), "", r"cost\.currency"),
        (("slo",), 3, r"cost\.slo"),
    ],
)
def test_a_bad_value_is_named(place: tuple[str, ...], value: Any, message: str) -> None:
    bad = copy.deepcopy(block())
    target = bad
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    with pytest.raises(ConfigError, match=message):
        validate_cost(bad)


@pytest.mark.parametrize("key", [key for key in block() if key != "name"])
def test_a_missing_key_is_named(key: str) -> None:
    bad = block()
    del bad[key]
    with pytest.raises(ConfigError, match=rf"cost\.{key}"):
        validate_cost(bad)


def test_a_misspelt_key_gets_its_near_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean utilization"):
        validate_cost({**block(), "utilisation": 0.5})

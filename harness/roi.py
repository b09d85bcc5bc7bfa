"""Return on investment: what a throughput is worth, with the uncertainty of its measurement.

All of it is projected: prices, demand and days come from the configuration, the throughputs alone
are measured. Each figure is computed for every draw of the measured throughputs, so that a ceiling
or a division carries their uncertainty as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.comparison import Group, Key
from harness.cost import CostModel, read_cost
from harness.stats import FloatArray, Interval

HOURS_PER_MONTH = 730.0
SECONDS_PER_MONTH = 3600.0 * HOURS_PER_MONTH
FIGURES = (
    "per_million_tokens", "devices", "monthly_cost", "monthly_saving", "payback_months",
    "net_value",
)  # fmt: skip


def validate_cost(block: Mapping[str, Any]) -> None:
    """Raises ConfigError naming the key of the `cost:` block that is missing or cannot be used."""
    read_cost(block)


@dataclass(frozen=True)
class Throughputs:
    """log end-to-end throughputs: the baseline's and the method's, point first, then S draws."""

    baseline: FloatArray
    method: FloatArray
    blocks: int


def business(
    model: CostModel, throughput: FloatArray, baseline: FloatArray, engineering: float
) -> dict[str, FloatArray]:
    """The FIGURES for arrays of throughputs (tokens per second of a device).

    A device yields throughput · utilization; devices are whole; saving = the baseline's monthly
    cost − the method's; net value = saving · horizon − engineering; payback = engineering / saving,
    infinite where nothing is saved.
    """
    devices = _devices(model, throughput)
    monthly = devices * model.price_per_hour * HOURS_PER_MONTH
    saving = _devices(model, baseline) * model.price_per_hour * HOURS_PER_MONTH - monthly
    payback = np.divide(engineering, saving, out=np.full_like(saving, math.inf), where=saving > 0)
    per_second = throughput * model.utilization
    return {
        "per_million_tokens": model.price_per_hour / 3600.0 / per_second * 1e6,
        "devices": devices,
        "monthly_cost": monthly,
        "monthly_saving": saving,
        "payback_months": payback,
        "net_value": saving * model.horizon_months - engineering,
    }


def _devices(model: CostModel, throughput: FloatArray) -> FloatArray:
    needed = model.demand / (throughput * model.utilization * SECONDS_PER_MONTH)
    # A demand that fills its devices exactly must not need one more for a rounding error.
    whole: FloatArray = np.maximum(1.0, np.ceil(needed * (1.0 - 1e-12)))
    return whole


def throughputs(group: Group, key: Key, log_speedup: Interval) -> Throughputs | None:
    """The baseline's and a method's throughput, for a measured end-to-end log speedup.

    The bootstrap's draws are stretched about each estimate until they fill its interval, which is
    the wider one. None where the interval is not known.
    """
    place, base = group.keys.index(key), group.keys.index(group.baseline)
    draws = group.end_to_end.draws
    level = group.single({group.baseline: 1.0}, group.end_to_end)
    if math.isinf(log_speedup.ci_high) or math.isinf(level.ci_high):
        return None
    baseline = stretched(draws[:, base], level)
    ratio = stretched(draws[:, place] - draws[:, base], log_speedup)
    return Throughputs(baseline, baseline + ratio, len(group.blocks))


def stretched(draws: FloatArray, interval: Interval) -> FloatArray:
    """The interval's mean, then draws of which `level` lie inside the interval: (1 + S,)."""
    deviation = draws - draws.mean()
    reach = float(np.quantile(np.abs(deviation), interval.level))
    width = (interval.ci_high - interval.ci_low) / 2
    scale = width / reach if reach > 0 else 0.0
    return np.concatenate([[interval.mean], interval.mean + deviation * scale])


def roi(model: CostModel, arm: str, found: Throughputs, level: float) -> dict[str, Any]:
    """The `cost` object of a method: an interval for each of FIGURES, and the engineering cost."""
    engineering = model.engineering[arm]
    figures = business(model, np.exp(found.method), np.exp(found.baseline), engineering)
    answer: dict[str, Any] = {
        name: _interval(values, found.blocks, level).to_json() for name, values in figures.items()
    }
    return {**answer, "engineering": engineering, "currency": model.currency, "projected": True}


def _interval(values: FloatArray, blocks: int, level: float) -> Interval:
    ends = np.quantile(values[1:], [0.5 - level / 2, 0.5 + level / 2], method="inverted_cdf")
    point = float(values[0])
    return Interval(point, min(point, float(ends[0])), max(point, float(ends[1])), blocks, level)


def sensitivity(
    model: CostModel, arm: str, found: Throughputs, speedup: Interval
) -> list[dict[str, Any]]:
    """Net value when one figure changes and the others stay; the last row is the speedup itself."""
    base = math.exp(found.baseline[0])
    used = {
        "price": model.price_per_hour, "demand": model.demand, "utilization": model.utilization,
    }  # fmt: skip
    rows = []
    for factor, ends in model.sensitivity.items():
        low, high = (
            min(1.0, used[factor] * end) if factor == "utilization" else used[factor] * end
            for end in ends
        )
        rows.append({
            "factor": factor, "used": used[factor],
            "low": {"value": low, "net_value": _changed(model, arm, base, speedup, factor, low)},
            "high": {"value": high, "net_value": _changed(model, arm, base, speedup, factor, high)},
        })  # fmt: skip
    rows.append({
        "factor": "speedup", "used": speedup.mean,
        "low": {"value": speedup.ci_low,
                "net_value": net_value(model, arm, base, speedup.ci_low)},
        "high": {"value": speedup.ci_high,
                 "net_value": net_value(model, arm, base, speedup.ci_high)},
    })  # fmt: skip
    return rows


def net_value(model: CostModel, arm: str, baseline: float, speedup: float) -> float:
    """Net value at a baseline throughput and an end-to-end speedup."""
    figures = business(
        model, np.array([baseline * speedup]), np.array([baseline]), model.engineering[arm]
    )
    return float(figures["net_value"][0])


def _changed(
    model: CostModel, arm: str, baseline: float, speedup: Interval, factor: str, value: float
) -> float:
    fields = {"price": "price_per_hour", "demand": "demand", "utilization": "utilization"}
    other = CostModel(**{**vars(model), fields[factor]: value})
    return net_value(other, arm, baseline, speedup.mean)

"""Rates, means, intervals and money, written down a second time."""

from __future__ import annotations

import math
from typing import Any

import pytest

# Student's t, two-sided 95 %, by degrees of freedom.
T95 = {1: 12.7062047, 2: 4.30265273, 3: 3.18244631, 4: 2.77644511, 5: 2.57058184, 6: 2.44691185,
       7: 2.36462425}  # fmt: skip
FAILED = "w4a16+ngram.g5"
"""The method that fails in every block."""
Records = dict[tuple[str, str, str], list[dict[str, Any]]]
"""Records by (group, method id, role), in the order of the blocks."""


def round_seconds(record: dict[str, Any]) -> list[float]:
    rounds = record["rounds"]
    return [a + b + c for a, b, c in zip(rounds["draft_s"], rounds["verify_s"], rounds["other_s"],
                                         strict=True)]  # fmt: skip


def decode_rate(record: dict[str, Any]) -> float:
    tokens = sum(request["output_tokens"] - 1 for request in record["requests"])
    return float(tokens / sum(round_seconds(record)))


def whole_rate(record: dict[str, Any]) -> float:
    tokens = sum(request["output_tokens"] for request in record["requests"])
    prefill = sum(request["prefill_s"] for request in record["requests"])
    return float(tokens / (sum(round_seconds(record)) + prefill))


def geometric(values: list[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def ok(row: dict[str, Any]) -> bool:
    return bool(row["status"] != "failed")


def encloses_student(interval: dict[str, Any], values: list[float]) -> None:
    """The reported interval is no narrower than Student's t on the logarithms."""
    logs = [math.log(v) for v in values]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
    half = T95[len(logs) - 1] * spread / math.sqrt(len(logs))
    assert math.log(interval["ci_low"]) <= mean - half + 1e-9
    assert math.log(interval["ci_high"]) >= mean + half - 1e-9


def word(interval: dict[str, Any]) -> str:
    if interval["ci_low"] > 1.02:
        return "faster"
    if interval["ci_high"] < 1 / 1.02:
        return "slower"
    inside = interval["ci_low"] >= 1 / 1.02 and interval["ci_high"] <= 1.02
    return "equal" if inside else "undecided"


def money(cost: dict[str, Any], arm: str, rate: float, base: float) -> dict[str, float]:
    month = 730 * 3600
    devices = math.ceil(cost["demand_tokens_per_month"] / (rate * cost["utilization"] * month))
    before = math.ceil(cost["demand_tokens_per_month"] / (base * cost["utilization"] * month))
    hourly = cost["device_price_per_hour"]
    engineering = cost["engineering_rate_per_day"] * cost["engineering_days"].get(arm, 0)
    saving = (before - devices) * hourly * 730
    return {
        "per_million_tokens": hourly / 3600 / (rate * cost["utilization"]) * 1e6,
        "devices": devices,
        "monthly_cost": devices * hourly * 730,
        "monthly_saving": saving,
        "payback_months": engineering / saving if saving > 0 else math.inf,
        "net_value": saving * cost["horizon_months"] - engineering,
    }


def check_money(found: dict[str, Any], want: dict[str, float]) -> None:
    for name, value in want.items():
        interval = found[name]
        if math.isinf(value):
            assert interval["mean"] is None
            continue
        assert interval["mean"] == pytest.approx(value), name
        assert interval["ci_low"] <= value + 1e-9
        assert interval["ci_high"] is None or interval["ci_high"] >= value - 1e-9

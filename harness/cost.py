"""The `cost:` block of the configuration: read, checked, and given types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import ConfigError, unknown

ARMS = ("quantization", "speculation", "combined")
TOLERANCES = ("perplexity_ratio", "agreement_rate", "kl", "accuracy_loss")
ASSUMABLE = ("demand", "price")
FACTORS = ("price", "demand", "utilization")
KEYS = (
    "name", "currency", "device_price_per_hour", "utilization", "demand_tokens_per_month",
    "horizon_months", "engineering_rate_per_day", "engineering_days", "quality", "slo",
    "operating_point", "assumed", "sensitivity",
)  # fmt: skip


@dataclass(frozen=True)
class Slo:
    """Latency targets in milliseconds, and the share of requests that must meet both."""

    ttft_ms: float
    tpot_ms: float
    attainment: float


@dataclass(frozen=True)
class CostModel:
    """Prices in `currency`; `demand` in output tokens a month; `engineering` per arm, once."""

    currency: str
    price_per_hour: float
    utilization: float
    demand: float
    horizon_months: float
    engineering: Mapping[str, float]
    quality: Mapping[str, float]
    slo: Slo
    operating_point: Mapping[str, Any]
    assumed: Mapping[str, bool]
    sensitivity: Mapping[str, tuple[float, float]]


def read_cost(block: Mapping[str, Any]) -> CostModel:
    """The checked cost model. Raises ConfigError that names the key and what it must be."""
    _known(block, KEYS, "cost")
    rate = _number(block, "engineering_rate_per_day", "cost")
    days = _table(block, "engineering_days", ARMS, "cost")
    quality = _table(block, "quality", TOLERANCES, "cost")
    slo = _table(block, "slo", ("ttft_ms", "tpot_ms", "attainment"), "cost")
    assumed = _table(block, "assumed", ASSUMABLE, "cost")
    factors = _table(block, "sensitivity", FACTORS, "cost")
    currency = block.get("currency")
    if not isinstance(currency, str) or not currency:
        raise ConfigError(f"cost.currency={currency}: write a currency's code, for example USD.")
    return CostModel(
        currency=currency,
        price_per_hour=_number(block, "device_price_per_hour", "cost", above=0.0),
        utilization=_number(block, "utilization", "cost", above=0.0, most=1.0),
        demand=_number(block, "demand_tokens_per_month", "cost", above=0.0),
        horizon_months=_number(block, "horizon_months", "cost", above=0.0),
        engineering={arm: rate * _number(days, arm, "cost.engineering_days") for arm in ARMS}
        | {"baseline": 0.0},
        quality={
            "perplexity_ratio": _number(quality, "perplexity_ratio", "cost.quality", above=0.0),
            "agreement_rate": _number(quality, "agreement_rate", "cost.quality", most=1.0),
            "kl": _number(quality, "kl", "cost.quality"),
            # Without a limit, graded answers are reported and not held against a method.
            **(
                {"accuracy_loss": _number(quality, "accuracy_loss", "cost.quality", most=1.0)}
                if "accuracy_loss" in quality
                else {}
            ),
        },
        slo=Slo(
            _number(slo, "ttft_ms", "cost.slo", above=0.0),
            _number(slo, "tpot_ms", "cost.slo", above=0.0),
            _number(slo, "attainment", "cost.slo", above=0.0, most=1.0),
        ),
        operating_point=_operating_point(block),
        assumed={key: _flag(assumed, key, "cost.assumed") for key in ASSUMABLE},
        sensitivity={key: _factors(factors, key) for key in FACTORS},
    )


def _known(table: Mapping[str, Any], keys: Iterable[str], place: str) -> None:
    names = tuple(keys)
    for key in table:
        if key not in names:
            raise unknown("setting", str(key), names, place)


def _table(
    block: Mapping[str, Any], key: str, keys: tuple[str, ...], place: str
) -> Mapping[str, Any]:
    value = block.get(key)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}.{key}: this must hold the keys {', '.join(keys)}.")
    _known(value, keys, f"{place}.{key}")
    return value


def _number(
    table: Mapping[str, Any], key: str, place: str, *, above: float | None = None,
    most: float = math.inf,
) -> float:  # fmt: skip
    """A finite number of 0 or more; with `above`, greater than that."""
    if key not in table:
        raise ConfigError(f"{place}.{key} is missing. Give it a number.")
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{place}.{key}={value}: this must be a number, such as 1.5 or 1.0e+9.")
    if not math.isfinite(value):
        raise ConfigError(f"{place}.{key}={value}: this must be a finite number.")
    if value < 0 or (above is not None and value <= above) or value > most:
        low = "of 0 or more" if above is None else f"above {above:g}"
        high = "" if math.isinf(most) else f" and at most {most:g}"
        raise ConfigError(f"{place}.{key}={value}: this must be a number {low}{high}.")
    return float(value)


def _flag(table: Mapping[str, Any], key: str, place: str) -> bool:
    value = table.get(key)
    if not isinstance(value, bool):
        raise ConfigError(
            f"{place}.{key}={value}: say true if the figure is assumed, false if it is yours."
        )
    return value


def _factors(table: Mapping[str, Any], key: str) -> tuple[float, float]:
    pair = table.get(key)
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ConfigError(f"cost.sensitivity.{key}={pair}: write two factors, such as [0.5, 2].")
    ends = {str(i): value for i, value in enumerate(pair)}
    low, high = (_number(ends, i, f"cost.sensitivity.{key}", above=0.0) for i in ("0", "1"))
    if low > high:
        raise ConfigError(f"cost.sensitivity.{key}={pair}: the low factor comes first.")
    return low, high


def _operating_point(block: Mapping[str, Any]) -> Mapping[str, Any]:
    point = _table(block, "operating_point", ("batch_size", "context_length"), "cost")
    batch, context = point.get("batch_size"), point.get("context_length")
    for key, value in (("batch_size", batch), ("context_length", context)):
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if not (value is None or whole or (key == "context_length" and value == "natural")):
            raise ConfigError(
                f"cost.operating_point.{key}={value}: name a measured one, or null for the first."
            )
    return {"batch_size": batch, "context_length": context}

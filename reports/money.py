"""Cost and return on investment in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.language import Language
from reports.methods import ArmChoice, Method, mapping
from reports.source import as_interval, as_number
from reports.tables import Cell

_FACTOR_FORMS = {
    "price": "exact_money", "demand": "exact", "utilization": "exact_percent", "speedup": "times",
}  # fmt: skip
_COLUMNS = ("arm", "cost", "devices", "saving", "payback", "net", "gate", "slo")


def money_cell(value: Any, t: Language) -> Cell:
    """An amount with its interval beneath."""
    found = as_interval(value)
    if found is None:
        return Cell(t("format.none"))
    return Cell(t.money(found.mean), t.range(found, t.money) if found.bounded else "")


def payback_cell(cost: Mapping[str, Any], t: Language) -> Cell:
    """Months until the saving has paid the engineering. In the summary an infinite end is null:
    with a saving that is not positive, null means never."""
    payback = mapping(cost.get("payback_months"))
    saving = as_interval(cost.get("monthly_saving"))
    mean = as_number(payback.get("mean"))
    low, high = as_number(payback.get("ci_low")), as_number(payback.get("ci_high"))
    if mean is None:
        if not payback or saving is None or saving.mean > 0:
            return Cell(t("format.none"))
        main = t("format.never")
    else:
        main = t.months(mean)
    if low is None:
        return Cell(main)
    if high is None:
        return Cell(main, t("format.range", low=t.months(low), high=t("format.never")))
    ends = t("format.range", low=t.fixed(low, 1), high=t.fixed(high, 1))
    return Cell(main, t("format.months", value=ends))


def arm_table(
    groups: Sequence[tuple[str, Sequence[ArmChoice]]], t: Language
) -> tuple[list[str], list[list[Cell]]]:
    """Heading and one row a group and arm that has a cost."""
    head = [t(f"money.column_{key}") for key in _COLUMNS]
    rows = []
    for caption, choices in groups:
        for choice in choices:
            if choice.method is None or as_interval(choice.cost.get("per_million_tokens")) is None:
                continue
            devices = as_interval(choice.cost.get("devices"))
            baseline = choice.arm == "baseline"
            blank = Cell(t("format.none"))
            rows.append(
                [
                    Cell(
                        t(f"arm.{choice.arm}"),
                        t("money.arm_sub", method=choice.method.name, group=caption),
                    ),
                    money_cell(choice.cost.get("per_million_tokens"), t),
                    Cell(
                        t.value("count", devices.mean) if devices else t("format.none"),
                        t.range(devices, lambda x: t.value("count", x))
                        if devices and devices.bounded
                        else "",
                    ),
                    blank if baseline else money_cell(choice.cost.get("monthly_saving"), t),
                    blank if baseline else payback_cell(choice.cost, t),
                    blank if baseline else money_cell(choice.cost.get("net_value"), t),
                    blank if baseline else _passed(choice.method, "quality_gate", t),
                    _passed(choice.method, "slo", t),
                ]
            )
    return head, rows


def sensitivity_table(entries: Any, t: Language) -> tuple[list[str], list[list[Cell]]]:
    """Net value at the low and the high end of each assumption, the widest swing first."""
    head = [t(f"money.sensitivity_{key}") for key in ("factor", "low", "high")]
    usable = [e for e in entries or [] if isinstance(e, Mapping)]
    usable.sort(key=_swing, reverse=True)
    rows = [
        [
            Cell(
                t.name("assumption", entry.get("factor")),
                t("money.used", value=_factor(entry, entry.get("used"), t)),
            ),
            _end(entry, "low", t),
            _end(entry, "high", t),
        ]
        for entry in usable
    ]
    return head, rows


def assumption_pairs(cost: Mapping[str, Any], t: Language) -> list[tuple[str, str]]:
    """Every assumption behind the amounts, in words; assumed ones are marked."""
    assumed = mapping(cost.get("assumed"))
    forms = {
        "device_price_per_hour": ("exact_money", "price"),
        "utilization": ("exact_percent", ""),
        "demand_tokens_per_month": ("exact", "demand"),
        "horizon_months": ("exact_months", ""),
        "engineering_rate_per_day": ("exact_money", ""),
    }
    pairs = []
    for key, (form, flag) in forms.items():
        if as_number(cost.get(key)) is not None:
            text = t.value(form, cost[key])
            if assumed.get(flag):
                text = t("money.marked_assumed", value=text)
            pairs.append((t(f"assumption.{key}"), text))
    for arm, days in mapping(cost.get("engineering_days")).items():
        pairs.append((t("assumption.engineering_days", arm=t.name("arm", arm)),
                      t("money.days", n=days)))  # fmt: skip
    quality = mapping(cost.get("quality"))
    for key, form in (
        ("perplexity_ratio", "exact"), ("agreement_rate", "exact_percent"), ("kl", "exact"),
        ("accuracy_loss", "exact_percent"),
    ):  # fmt: skip
        if as_number(quality.get(key)) is not None:
            pairs.append((t(f"assumption.quality_{key}"), t.value(form, quality[key])))
    slo = mapping(cost.get("slo"))
    for key, form in (
        ("ttft_ms", "exact_ms"), ("tpot_ms", "exact_ms"), ("attainment", "exact_percent")
    ):  # fmt: skip
        if as_number(slo.get(key)) is not None:
            pairs.append((t(f"assumption.slo_{key}"), t.value(form, slo[key])))
    return pairs


def assumed_things(cost: Mapping[str, Any], t: Language) -> str:
    """What the amounts assume, as one phrase; empty where nothing is assumed."""
    assumed = mapping(cost.get("assumed"))
    return t("format.and").join(t.name("assumed_thing", key) for key, on in assumed.items() if on)


def _swing(entry: Mapping[str, Any]) -> float:
    values = [as_number(mapping(entry.get(end)).get("net_value")) for end in ("low", "high")]
    known = [v for v in values if v is not None]
    return abs(known[0] - known[1]) if len(known) == 2 else -1.0


def _end(entry: Mapping[str, Any], end: str, t: Language) -> Cell:
    side = mapping(entry.get(end))
    return Cell(
        money_cell(side.get("net_value"), t).main,
        t("money.at", value=_factor(entry, side.get("value"), t)),
    )


def _factor(entry: Mapping[str, Any], value: Any, t: Language) -> str:
    """A value of the factor in its own unit."""
    return t.value(_FACTOR_FORMS.get(str(entry.get("factor")), "number"), value)


def _passed(method: Method, key: str, t: Language) -> Cell:
    passed = mapping(method.value(key)).get("passed")
    if passed is None:
        return Cell(t("format.none"))
    return Cell(t("money.passed" if passed else "money.missed"))

"""Shapes that the engine chose while it decoded, beside the best fixed one."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from harness.by_category import ratio_by_category
from harness.comparison import Group, Key
from harness.findings import finding
from harness.quality import plain_target


def auto_rows(group: Group, names: dict[Key, str]) -> list[dict[str, Any]]:
    """The `auto` entries of a group, one for each method of the shape `auto`.

    `predicted_speedup` and `measured_speedup` are the engine's own, over plain decoding, as means
    over the trials; `over_best` compares with the fixed shape of the same target and drafter that
    was the fastest in the same blocks, which favours the fixed one. `names` are for sentences.
    """
    return [
        _entry(group, key, names)
        for key in group.methods
        if group.cell(key)["shape"]["kind"] == "auto"
    ]


def _entry(group: Group, key: Key, names: dict[Key, str]) -> dict[str, Any]:
    trials = [group.trials[key][block] for block in group.blocks]
    choices = [trial.shape_choice for trial in trials if trial.shape_choice]
    axes = ("worker", "precision", "kv_precision", "drafter", "acceptance")
    fixed = [
        other for other in group.methods
        if group.cell(other)["shape"]["kind"] in ("chain", "tree")
        and all(group.cell(other).get(a) == group.cell(key).get(a) for a in axes)
    ]  # fmt: skip
    rates = group.decode.values.mean(axis=0)
    best = max(fixed, key=lambda other: float(rates[group.keys.index(other)]), default=None)
    over_best = group.single({key: 1.0, best: -1.0}).exp() if best else None
    plain = plain_target(group, key)
    plain = plain if plain in group.keys else None
    entry: dict[str, Any] = {
        "group": group.name,
        "method_id": key[0],
        "predicted_speedup": _mean([choice.get("predicted_speedup") for choice in choices]),
        "measured_speedup": _mean([choice.get("measured_speedup") for choice in choices]),
        "switches": _mean([len(choice.get("switches") or []) for choice in choices]),
        "trials": len(choices),
        "best_fixed": best and best[0],
        "over_best": over_best and over_best.to_json(),
        "over_best_by_category": ratio_by_category(group, key, best) if best else {},
        "over_plain_by_category": ratio_by_category(group, key, plain) if plain else {},
    }
    entry["finding"] = None
    if len(group.blocks) < 2:
        return entry  # no interval has ends yet
    params = {
        "method": names[key], "predicted": entry["predicted_speedup"] or 0.0,
        "measured": entry["measured_speedup"] or 0.0, "switches": entry["switches"] or 0.0,
    }  # fmt: skip
    if best is None or over_best is None:
        entry["finding"] = finding("auto_alone", **params)
    else:
        entry["finding"] = finding(
            "auto_choice", **params, best=names[best], ratio=over_best.mean, low=over_best.ci_low,
            high=over_best.ci_high,
        )  # fmt: skip
    return entry


def _mean(values: list[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return fmean(known) if known else None

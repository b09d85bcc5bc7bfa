"""The report's section on forward curves: T(n) by batch size and context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.language import Language
from reports.methods import mapping
from reports.source import as_interval, as_number
from reports.tables import Cell

COLUMNS = ("curve", "rows", "ms", "ratio", "gigabytes", "roofline")


@dataclass(frozen=True)
class Curve:
    """One entry of `curves`: its label, points, and the medians of T(n) / T(1) by n."""

    label: str
    batch: int
    context: int
    points: Sequence[Mapping[str, Any]]
    ratios: Mapping[int, float]


@dataclass(frozen=True)
class Place:
    """Curves of one batch size and context, with their table."""

    caption: str
    curves: Sequence[Curve]
    rows: Sequence[Sequence[Cell]]


def read_places(entries: Any, t: Language) -> list[Place]:
    """The curves of a summary by batch size and context; those that are not whole are left out."""
    curves = [curve for entry in _list(entries) if (curve := _curve(mapping(entry), t)) is not None]
    keys = dict.fromkeys((curve.batch, curve.context) for curve in curves)
    return [
        Place(
            caption=t("curves.caption", batch=batch, context=context),
            curves=found,
            rows=[row for curve in found for row in _rows(curve, t)],
        )
        for batch, context in keys
        for found in [[c for c in curves if (c.batch, c.context) == (batch, context)]]
    ]


def heading(t: Language) -> list[str]:
    """Headings of a place's table."""
    return [t(f"curves.column_{key}") for key in COLUMNS]


def _curve(entry: Mapping[str, Any], t: Language) -> Curve | None:
    points = [
        mapping(point) for point in _list(entry.get("points"))
        if as_number(mapping(point).get("tokens")) and as_interval(mapping(point).get("seconds"))
    ]  # fmt: skip
    batch, context = as_number(entry.get("batch")), as_number(entry.get("context"))
    if not points or batch is None or context is None:
        return None
    ratios = {
        int(point["tokens"]): ratio.mean
        for point in points
        if (ratio := as_interval(point.get("ratio"))) is not None
    }
    model = "" if entry.get("model") in (None, "target") else f" {entry['model']}"
    label = f"{entry.get('worker')}{model} {entry.get('precision')}"
    if entry.get("mask") == "tree":
        label = t("curves.tree_label", label=label)
    return Curve(label, int(batch), int(context), points, ratios)


def _rows(curve: Curve, t: Language) -> Iterable[list[Cell]]:
    for point in curve.points:
        yield [
            Cell(curve.label),
            Cell(t.value("count", point["tokens"])),
            _cell(point.get("seconds"), "fixed2", t, 1e3),
            _cell(point.get("ratio"), "fixed2", t),
            _cell(point.get("bytes_s"), "number", t, 1e-9),
            _cell(point.get("roofline_fraction"), "percent0", t),
        ]


def _cell(value: Any, form: str, t: Language, factor: float = 1.0) -> Cell:
    """A figure times `factor`, its interval beneath."""
    found = as_interval(value)
    if found is None:
        return Cell(t("format.none"))

    def shown(number: Any) -> str:
        return t.value(form, number * factor)

    return Cell(shown(found.mean), t.short_range(found, shown))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

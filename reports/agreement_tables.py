"""Rows of the agreement page's tables, worded in the report's language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.language import Language
from reports.tables import Cell

COUNTS = ("requests", "rounds", "positions", "agreements", "disagreements")
PROBABILITIES = (
    "mean_draft_top1_prob", "mean_target_top1_prob", "median_draft_top1_prob",
    "median_target_top1_prob",
)  # fmt: skip
GROUPS = (
    "both_above_share", "both_above_agreement", "both_at_or_below_share",
    "both_at_or_below_agreement", "one_above_share", "one_above_agreement",
)  # fmt: skip
STUDIED: tuple[tuple[str, str], ...] = (
    *((key, "count") for key in COUNTS),
    ("agreement_rate", "percent2"),
    ("disagreement_rate", "percent2"),
    *((key, "percent3") for key in PROBABILITIES),
    *((key, "percent2") for key in GROUPS),
)
"""Entries of the study's table, and the two that complete its groups, with their format."""
FURTHER: tuple[tuple[str, str], ...] = (
    ("requests_without_positions", "count"),
    ("truncated_rounds", "count"),
    ("accepted", "count"),
    ("rejected", "count"),
    ("discarded", "count"),
    ("acceptance_rate", "percent2"),
    ("reached_acceptance_rate", "percent2"),
    ("mean_kl", "number"),
    ("median_kl", "number"),
    ("mean_margin", "number"),
)
_DECIMALS = {"percent2": 2, "percent3": 3}
DRAFTING_ONLY = {"acceptance_rate", "reached_acceptance_rate"}
"""In a fixed prefix nothing is drafted: there these would repeat the agreement rate."""


def beside_the_study(tables: Mapping[str, Any], t: Language) -> tuple[list[str], list[list[Cell]]]:
    """Heading and rows: each mode of this run, then the study's own figures."""
    columns = [_flat(mode, found) for mode, found in tables["modes"].items()]
    head = [t("agreement.entry"), *_mode_heads(tables, t), t("agreement.study_head")]
    rows = []
    for key, form in STUDIED:
        cells = [figure_cell(column.get(key), form, t) for column in columns]
        studied = figure_cell(tables["study"].get(key), form, t)
        rows.append([_label(key, tables, t), *cells, studied])
    return head, rows


def further(tables: Mapping[str, Any], t: Language) -> tuple[list[str], list[list[Cell]]]:
    """What the study's table lacks, a column a mode."""
    columns = [_flat(mode, found) for mode, found in tables["modes"].items()]
    rows = [
        [_label(key, tables, t), *(figure_cell(column.get(key), form, t) for column in columns)]
        for key, form in FURTHER
    ]
    return [t("agreement.entry"), *_mode_heads(tables, t)], rows


def by_draft_position(
    entries: Sequence[Mapping[str, Any]], t: Language
) -> tuple[list[str], list[list[Cell]]]:
    """Agreement and acceptance at each draft position, counted from 1."""
    keys = ("agreement", "acceptance", "reached_acceptance")
    head = [t("agreement.draft_position"), *(t(f"agreement.position_{key}") for key in keys)]
    rows = [
        [Cell(t.value("count", entry["draft_position"] + 1)),
         *(figure_cell(entry[key], "percent2", t) for key in keys)]
        for entry in entries
    ]  # fmt: skip
    return head, rows


def first_mismatch(
    entries: Sequence[Mapping[str, Any]], unit: str, t: Language
) -> tuple[list[str], list[list[Cell]]]:
    """Shares of rounds (`unit` round) or answers (`unit` answer) by their first mismatch."""
    rows = []
    for entry in entries:
        if entry.get("index", entry.get("low")) is None:
            label = t("agreement.no_mismatch")
        elif unit == "round":
            label = t.value("count", entry["index"] + 1)
        else:
            label = _bin(entry["low"], entry["high"], 1, t)
        rows.append([Cell(label), figure_cell(entry, "percent2", t)])
    return [t(f"agreement.first_in_{unit}"), t(f"agreement.share_of_{unit}s")], rows


def by_margin(
    modes: Mapping[str, Any], tables: Mapping[str, Any], t: Language
) -> tuple[list[str], list[list[Cell]]]:
    """Share of positions and agreement by the target's margin, two columns a mode."""
    head = [t("agreement.margin")]
    for name in _mode_heads(tables, t):
        head += [t("agreement.share_in", mode=name), t("agreement.agreement_in", mode=name)]
    columns = [found["by_margin"] for found in modes.values()]
    rows = []
    for entries in zip(*columns, strict=True):
        cells = [Cell(_bin(entries[0]["low"], entries[0]["high"], 0, t))]
        for entry in entries:
            cells += [figure_cell(entry[key], "percent2", t) for key in ("share", "agreement")]
        rows.append(cells)
    return head, rows


def by_category(
    modes: Mapping[str, Any], tables: Mapping[str, Any], t: Language
) -> tuple[list[str], list[list[Cell]]]:
    """Agreement by the number of calculations in the reference answer."""
    head = [t("agreement.category"), t("agreement.category_requests"), *_mode_heads(tables, t)]
    columns = [found["by_category"] for found in modes.values()]
    rows = []
    for entries in zip(*columns, strict=True):
        first = entries[0]
        cells = [figure_cell(entry["agreement"], "percent2", t) for entry in entries]
        rows.append(
            [Cell(str(first["category"])), Cell(t.value("count", first["agreement"]["n"])), *cells]
        )
    return head, rows


def accuracy(tables: Mapping[str, Any], t: Language) -> tuple[list[str], list[list[Cell]]]:
    """Right answers by the strict and by the flexible filter."""
    head = [t("agreement.filter"), t("agreement.accuracy"), t("agreement.no_number")]
    rows = []
    for key, entry in tables["accuracy"].items():
        shown = figure_cell({**entry, "count": entry["right"], "of": entry["n"]}, "percent2", t)
        rows.append(
            [Cell(t(f"agreement.filter_{key}")), shown, Cell(t.value("count", entry["no_number"]))]
        )
    return head, rows


def figure_cell(value: Any, form: str, t: Language) -> Cell:
    """A figure, with its interval and counts beneath it where it has them."""
    if not isinstance(value, Mapping):
        return Cell(t.value(form, value))
    below = [t.short_range(value, lambda x: _bare(x, form, t))]
    if "count" in value:
        below.append(t("agreement.count_of", count=value["count"], of=value["of"]))
    return Cell(t.value(form, value["mean"]), t("agreement.joined").join(filter(None, below)))


def _bare(value: float, form: str, t: Language) -> str:
    """An end of an interval; the unit stands above it already."""
    return t.fixed(100 * value, _DECIMALS[form]) if form in _DECIMALS else t.value(form, value)


def _flat(mode: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """A mode's entries with its rounds as plain counts, and none that say nothing in this mode."""
    hidden = DRAFTING_ONLY if mode == "fixed_prefix" else set()
    flat = {key: value for key, value in found.items() if key not in hidden}
    if "rounds" in found:
        flat |= {"rounds": found["rounds"]["all"], "truncated_rounds": found["rounds"]["truncated"]}
    return flat


def _mode_heads(tables: Mapping[str, Any], t: Language) -> list[str]:
    return [t(f"agreement.mode.{mode}") for mode in tables["modes"]]


def _label(key: str, tables: Mapping[str, Any], t: Language) -> Cell:
    names = {"draft": tables["draft"], "target": tables["target"]}
    return Cell(t(f"agreement.row.{key}", threshold=tables["threshold"], **names))


def _bin(low: float, high: float | None, step: int, t: Language) -> str:
    """A half-open bin; with `step` 1 the last whole number that lies in it."""
    if high is None:
        return t("agreement.from", low=t.exact(low))
    last = high - step
    if last == low:
        return t.exact(low)
    return t("format.short_range", low=t.exact(low), high=t.exact(last))

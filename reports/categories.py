"""The report's section on categories of prompts, and on requests that go in circles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.language import Language, Message
from reports.methods import Method, mapping
from reports.source import as_number
from reports.tables import Cell
from reports.trees import figure_cell

MOST_METHODS = 8
"""Columns that a table has room for."""
FIGURES = (("acceptance_length", "fixed2"), ("versus_target", "times"))
REPEAT_COLUMNS = ("method", "repeating", "tau", "tau_without", "gain", "gain_without")


def category_groups(
    summary: Mapping[str, Any],
    methods: Sequence[Method],
    captions: Mapping[str, str],
    labels: Mapping[int, str],
    t: Language,
) -> list[Any]:
    """Tables by category for each group with drafting methods and more than one category."""
    found = []
    for group in summary.get("groups") or []:
        name = str(mapping(group).get("name"))
        drafting = [
            m for m in methods
            if m.group == name and m.role == "method" and m.speculative and m.value("by_category")
        ]  # fmt: skip
        fastest = sorted(drafting, key=lambda m: -(m.mean("speedup") or 0.0))[:MOST_METHODS]
        if not fastest:
            continue
        repeats = mapping(mapping(group).get("repeats"))
        some = bool(as_number(repeats.get("prompts")))
        found.append(
            {
                "caption": captions.get(name, name),
                "head": [t("categories.column_category"), *(labels[id(m)] for m in fastest)],
                "tables": _tables(fastest, some, t),
                "repeats": t(
                    "categories.repeats" if some else "categories.no_repeats",
                    n=repeats.get("prompts"), of=repeats.get("of"),
                ),
                "repeat_head": [t(f"categories.column_{key}") for key in REPEAT_COLUMNS],
                "repeat_rows": [_repeat_row(m, labels[id(m)], t) for m in drafting] if some else [],
                "left_out": len(drafting) - len(fastest),
            }
        )  # fmt: skip
    return found


def _tables(methods: Sequence[Method], repeating: bool, t: Language) -> list[Any]:
    """(caption, rows) of each figure, and again without repeating prompts where there are any."""
    parts = ("", "without_repeats") if repeating else ("",)
    return [
        (t(f"categories.{key}{'_without' if part else ''}"), _table(methods, key, form, part, t))
        for key, form in FIGURES
        for part in parts
    ]


def _table(
    methods: Sequence[Method], key: str, form: str, part: str, t: Language
) -> list[list[Cell]]:
    """A row for each category; `part` names the object inside its entry that holds the figures."""
    by_method = [
        {
            str(mapping(row).get("category")): mapping(mapping(row).get(part) if part else row)
            for row in m.value("by_category")
        }
        for m in methods
    ]
    rows = []
    for category in sorted({name for found in by_method for name in found}):
        entries = [found.get(category, {}) for found in by_method]
        counts = [as_number(entry.get("requests")) or 0 for entry in entries]
        name = Cell(category, t("categories.requests", n=max(counts)))
        rows.append([name, *(figure_cell(entry.get(key), form, t) for entry in entries)])
    return rows


def _repeat_row(method: Method, label: str, t: Language) -> list[Cell]:
    own = mapping(method.value("repeating_requests"))
    rest = mapping(method.value("without_repeats"))
    return [
        Cell(label),
        Cell(t("categories.share", n=own.get("requests"), of=own.get("of"))),
        figure_cell(mapping(method.value("intervals")).get("acceptance_length"), "fixed2", t),
        figure_cell(rest.get("acceptance_length"), "fixed2", t),
        figure_cell(method.value("versus_target"), "times", t),
        figure_cell(rest.get("versus_target"), "times", t),
    ]


def auto_sentences(summary: Mapping[str, Any], t: Language) -> list[Message]:
    """How the shapes that the engine chose did beside the best fixed one."""
    return [
        t.message(mapping(entry)["finding"])
        for entry in summary.get("auto") or []
        if mapping(entry).get("finding")
    ]

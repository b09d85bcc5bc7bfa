"""Puts the parts of the report together into what the template prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from reports import background, categories, curves, hierarchy, money, tables, trees
from reports.figures.acceptance import acceptance_figure
from reports.figures.cost import cost_figure
from reports.figures.curves import curve_figure
from reports.figures.interaction import interaction_figure
from reports.figures.phases import PHASES, PhaseRow, phase_figure
from reports.figures.speedup import keep_fastest, sorted_by_speed, speedup_figure
from reports.figures.tradeoff import tradeoff_figure
from reports.interaction import COLUMNS as INTERACTION_COLUMNS
from reports.interaction import read_interactions
from reports.language import Language
from reports.methods import ARMS, ArmChoice, Method, arm_choices, find_method, mapping, read_methods
from reports.source import Results, as_interval, as_number
from reports.verdict import RECOMMENDING, read_verdict

SECTIONS = (
    "three_way", "speedup", "interaction", "drafting", "trees", "hierarchy", "categories",
    "quality", "money", "failures", "methods", "curves", "background", "environment", "glossary",
)  # fmt: skip
OPTIONAL = ("trees", "hierarchy", "categories")
"""Sections that are there only where something of theirs was measured."""
DRAWN_GROUPS = 6
"""Groups that get figures of their own; the tables hold them all."""
DEFAULT_MIN_EFFECT = 0.02
PHASE_ROWS = 16


def page_context(results: Results, t: Language) -> dict[str, Any]:
    """Everything that `report.html.j2` reads, as text in the language `t`."""
    summary = results.summary
    methods = read_methods(summary)
    names = list(
        dict.fromkeys(
            [str(mapping(g).get("name")) for g in summary.get("groups") or []]
            + [m.group for m in methods]
        )
    )
    described = {str(mapping(g).get("name")): mapping(g) for g in summary.get("groups") or []}
    captions = {name: group_caption(name, described.get(name, {}), t) for name in names}
    shorts = {
        name: group_caption(name, described.get(name, {}), t, "table.group_short") for name in names
    }
    choices = {name: arm_choices(summary, methods, name) for name in names}
    statistics = mapping(summary.get("stats")) or mapping(results.config.get("stats"))
    min_effect = as_number(statistics.get("min_effect"))
    min_effect = DEFAULT_MIN_EFFECT if min_effect is None else min_effect
    cost = mapping(summary.get("cost")) or mapping(results.config.get("cost"))
    drawn = names[:DRAWN_GROUPS]
    labels = {
        place: label
        for name in names
        for place, label in tables.labels_of([m for m in methods if m.group == name]).items()
    }
    optional = {
        "trees": trees.tree_groups(summary, captions, t),
        "hierarchy": hierarchy.hierarchy_groups(summary, captions, t),
        "categories": categories.category_groups(summary, methods, captions, labels, t),
    }
    return {
        "t": t,
        "sections": [key for key in SECTIONS if key not in OPTIONAL or optional[key]],
        **optional,
        "auto": categories.auto_sentences(summary, t),
        "page": _page(results, methods, t),
        "verdict": read_verdict(results, methods, t),
        "groups": [
            {
                "caption": captions[name],
                "verdict": _group_verdict(summary, name, methods, t),
                "three_way": tables.three_way(choices[name], t),
                "speed": tables.speed_table(_sorted(methods, name), t),
                "drafting": tables.drafting_table(_sorted(methods, name), t),
            }
            for name in names
        ],
        "drawn_groups": [
            {"caption": captions[name],
             "quality": tables.quality_table(_sorted(methods, name), t),
             "front": _front(described.get(name, {}), methods, name, t),
             **_figures(
                 [m for m in methods if m.group == name], described.get(name, {}), place,
                 min_effect, cost, t,
             )}
            for place, name in enumerate(drawn)
        ],
        "interaction": _interaction(summary, methods, captions, t),
        "curves": _curves(summary, t),
        "money": _money(results, choices, shorts, cost, t),
        "failures": {
            "head": [t(f"failures.column_{k}") for k in ("method", "group", "block", "error")],
            "rows": background.failure_rows(summary.get("failures") or [], t),
            "cells": background.failed_cells(summary.get("failures") or []),
            "left_out": background.left_out_sentences(summary.get("groups") or [], t),
            "noise": background.noise_sentences(summary.get("noise_floor"), t),
            "half_width": background.half_widths(methods, names, t),
        },
        "settings": {
            "min_effect": min_effect,
            "pairs": background.flat_pairs(statistics, t),
        },
        "environment": background.flat_pairs(results.environment, t),
        "config_text": results.config_text,
        "glossary": [k.split(".")[1] for k in t.strings if re.fullmatch(r"glossary\.\w+\.term", k)],
    }  # fmt: skip


def group_caption(name: str, described: Any, t: Language, key: str = "table.group") -> str:
    """Batch size and context in words, and the group's name in the longer form."""
    if described.get("batch_size") is None:
        return name
    context = described.get("context_length")
    words = t("table.natural") if context == "natural" else t("table.tokens", n=context)
    return t(key, batch=described["batch_size"], context=words, name=name)


def _page(results: Results, methods: Sequence[Method], t: Language) -> dict[str, Any]:
    def values(key: str) -> str:
        found = dict.fromkeys(str(m.value(key)) for m in methods if m.value(key))
        return t("format.list_separator").join(found)

    name = str(results.summary.get("name") or results.folder.name)
    meta = [t(f"page.{key}", value=text) for key in ("workload", "model", "device", "backend")
            if (text := values(key))]  # fmt: skip
    instead_of = mapping(results.summary.get("workload")).get("instead_of")
    if instead_of:
        meta.append(t("page.instead_of", value=instead_of))
    if results.summary.get("created_at"):
        meta.append(t("page.date", value=results.summary["created_at"]))
    return {"name": name, "folder": results.folder.name, "meta": meta}


def _sorted(methods: Sequence[Method], group: str) -> list[Method]:
    """A group's methods by arm, in the order of the summary within it; none is left out."""
    order = {arm: place for place, arm in enumerate(ARMS)}
    found = [m for m in methods if m.group == group]
    return sorted(found, key=lambda m: order.get(m.arm, len(ARMS)))


def _group_verdict(summary: Any, group: str, methods: Sequence[Method], t: Language) -> str:
    """The verdict for one group of several, in a sentence; empty where the summary has none."""
    for entry in mapping(summary.get("verdict")).get("by_group") or []:
        if mapping(entry).get("group") != group:
            continue
        method = find_method(methods, group, entry.get("method_id"))
        decision = entry.get("decision")
        form = "verdict" if decision in RECOMMENDING else "candidate"
        if method is None:
            form = "bare"
        return t(
            f"table.group_{form}",
            word=t.name("verdict_word", decision),
            what=t.name("arm_choice", entry.get("arm") or "none"),
            method=method.name if method else None,
        )
    return ""


def _figures(
    methods: Sequence[Method],
    described: Any,
    place: int,
    min_effect: float,
    cost: Any,
    t: Language,
) -> dict[str, Any]:
    labels = tables.labels_of(methods)
    measured = [m for m in methods if m.role == "method" and m.speedup]
    baselines = [m for m in methods if m.role == "baseline"]
    rows = []
    for m in baselines + sorted_by_speed(keep_fastest(measured, PHASE_ROWS)):
        phases = [as_number(mapping(m.value("phases_ms")).get(phase)) for phase in PHASES]
        known = [p for p in phases if p is not None]
        if len(known) == len(PHASES):
            rows.append(PhaseRow(labels[id(m)], *known))
    gate = as_number(mapping(cost.get("quality")).get("perplexity_ratio"))
    return {
        "speedup": speedup_figure(methods, labels, min_effect, f"speedup-{place}", t),
        "acceptance": acceptance_figure(methods, labels, f"acceptance-{place}", t),
        "phases": phase_figure(rows, f"phases-{place}", t),
        "tradeoff": tradeoff_figure(
            methods, labels, _front_ids(described), gate, f"tradeoff-{place}", t
        ),
    }


def _front_ids(described: Any) -> list[str]:
    return [str(name) for name in mapping(mapping(described).get("front")).get("methods") or []]


def _front(described: Any, methods: Sequence[Method], group: str, t: Language) -> str:
    """The methods on the front and the hypervolume, in sentences; empty where it is not known."""
    found = mapping(mapping(described).get("front"))
    volume = as_interval(found.get("hypervolume"))
    if volume is None:
        return ""
    named = [find_method(methods, group, name) for name in _front_ids(described)]
    names = t("format.list_separator").join(m.name for m in named if m is not None)
    key = "quality.front" if names else "quality.front_empty"
    return t(key, methods=names, volume=volume, limit=found.get("perplexity_ratio_limit"))


def _interaction(
    summary: Any, methods: Sequence[Method], captions: dict[str, str], t: Language
) -> dict[str, Any]:
    recommended = mapping(summary.get("verdict")).get("method_id")
    found = read_interactions(summary.get("interaction") or [], methods, recommended, t)
    return {
        "count": found.count(t),
        "head": [t(f"interaction_column.{key}") for key in INTERACTION_COLUMNS],
        "groups": [
            {
                "caption": captions.get(name, name),
                "sentences": group.sentences,
                "table": group.table,
                "missing": [
                    (message, t("format.list_separator").join(labels), len(labels))
                    for message, labels in group.missing.items()
                ],
                "picture": interaction_figure(group.rows, f"interaction-{place}", t),
            }
            for place, (name, group) in enumerate(found.groups.items())
        ],
    }


def _curves(summary: Any, t: Language) -> dict[str, Any]:
    return {
        "head": curves.heading(t),
        "places": [
            {"caption": place.caption, "rows": place.rows,
             "picture": curve_figure(place.curves, f"curves-{number}", t)}
            for number, place in enumerate(curves.read_places(summary.get("curves"), t))
        ],
    }  # fmt: skip


def _money(
    results: Results,
    choices: dict[str, list[ArmChoice]],
    shorts: dict[str, str],
    cost: Any,
    t: Language,
) -> dict[str, Any]:
    groups = [(shorts[name], found) for name, found in choices.items()]
    head, rows = money.arm_table(groups, t)
    sensitivity_head, sensitivity = money.sensitivity_table(results.summary.get("sensitivity"), t)
    return {
        "arms_head": head,
        "arms": rows,
        "picture": cost_figure(groups, "cost", t),
        "sensitivity_head": sensitivity_head,
        "sensitivity": sensitivity,
        "assumptions": money.assumption_pairs(cost, t),
    }

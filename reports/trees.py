"""The report's section on trees: what verifying costs, what it yields, where it stops paying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.figures.lines import Chart, Line, Mark, draw_lines
from reports.figures.phases import PHASES, PhaseRow, phase_figure
from reports.figures.svg import Picture, finish, style
from reports.language import Language
from reports.methods import by_group, mapping
from reports.source import Interval, as_interval, as_number
from reports.tables import Cell

COLUMNS = ("target", "shape", "alone", "round", "tau", "gain", "draft", "verify", "other")
RATIOS = ("verify_ratio", "round_ratio")
"""The ratio of forwards timed alone and, where they were not, the one of the decoding itself."""


def tree_groups(summary: Mapping[str, Any], captions: Mapping[str, str], t: Language) -> list[Any]:
    """The section's groups: caption, sentences, pictures and table. Empty without any tree."""
    found = []
    for place, (name, own) in enumerate(by_group(summary, "trees").items()):
        found.append(
            {
                "caption": captions.get(name, name),
                "sentences": [t.message(f) for e in own for f in e.get("findings") or []],
                "ratio": _ratio_figure(own, f"tree-ratio-{place}", t),
                "gain": _gain_figure(own, f"tree-gain-{place}", t),
                "phases": phase_figure(_phase_rows(own, t), f"tree-phases-{place}", t),
                "head": [t(f"trees.column_{key}") for key in COLUMNS],
                "rows": [row for entry in own for row in _rows(entry, t)],
            }
        )
    return found


def _points(entry: Mapping[str, Any], kind: str | None = None) -> list[Mapping[str, Any]]:
    points = [mapping(point) for point in entry.get("points") or []]
    return [p for p in points if kind is None or mapping(p.get("shape")).get("kind") == kind]


def _line(entry: Mapping[str, Any], keys: Sequence[str]) -> Line:
    pairs = []
    for point in _points(entry, "tree"):
        nodes = as_number(point.get("nodes"))
        value = next((v for key in keys if (v := as_interval(point.get(key)))), None)
        if nodes is not None and value is not None:
            pairs.append((nodes, value))
    return Line(str(entry.get("precision")), pairs)


def _lines(entries: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[Line]:
    """A line for each precision; drafters are told apart where one precision has several."""
    return [line for entry in entries if len((line := _line(entry, keys)).points) > 1]


def _ratio_figure(entries: Sequence[Mapping[str, Any]], ident: str, t: Language) -> Picture | None:
    lines = _lines(entries, RATIOS)
    if not lines:
        return None
    marks = []
    for entry in entries:
        study = mapping(entry.get("study"))
        ratio, nodes = as_number(study.get("ratio")), as_number(study.get("nodes"))
        if ratio is not None and nodes is not None:
            label = t("trees.study_mark", precision=entry.get("precision"), ratio=ratio)
            marks.append(Mark(label, nodes, ratio))
    chart = Chart(
        lines, t("trees.nodes_axis"), t("trees.ratio_axis"), marks=marks, log_x=True, log_y=True
    )
    last = [(line.label, line.points[-1]) for line in lines]
    cheapest = min(last, key=lambda item: item[1][1].mean)
    dearest = max(last, key=lambda item: item[1][1].mean)
    caption = t(
        "trees.ratio_desc", nodes=cheapest[1][0], low=cheapest[1][1].mean, best=cheapest[0],
        high=dearest[1][1].mean, worst=dearest[0],
    )  # fmt: skip
    with style():
        figure, _ = draw_lines(chart, t)
        svg = finish(figure, ident, t("trees.ratio_title"), caption)
    return Picture(svg, caption)


def _gain_figure(entries: Sequence[Mapping[str, Any]], ident: str, t: Language) -> Picture | None:
    lines = _lines(entries, ("versus_target",))
    if not lines:
        return None
    chart = Chart(
        lines, t("trees.nodes_axis"), t("trees.gain_axis"),
        levels=[(1.0, t("trees.plain_level"))], log_x=True,
    )  # fmt: skip
    tops = [(line.label, max(line.points, key=lambda point: point[1].mean)) for line in lines]
    label, (nodes, gain) = max(tops, key=lambda item: item[1][1].mean)
    caption = t("trees.gain_desc", label=label, nodes=nodes, gain=gain.mean)
    with style():
        figure, _ = draw_lines(chart, t)
        svg = finish(figure, ident, t("trees.gain_title"), caption)
    return Picture(svg, caption)


def _shape_name(point: Mapping[str, Any], t: Language) -> str:
    shape = mapping(point.get("shape"))
    return t(f"trees.shape_{shape.get('kind')}", **{k: v for k, v in shape.items() if k != "kind"})


def _phase_rows(entries: Sequence[Mapping[str, Any]], t: Language) -> list[PhaseRow]:
    rows = []
    for entry in entries:
        for point in _points(entry, "tree"):
            phases = [as_interval(mapping(point.get("phases_ms")).get(p)) for p in PHASES]
            known = [phase.mean for phase in phases if phase]
            if len(known) == len(PHASES):
                label = f"{entry.get('precision')}, {_shape_name(point, t)}"
                rows.append(PhaseRow(label, *known))
    return rows


def _rows(entry: Mapping[str, Any], t: Language) -> list[list[Cell]]:
    rows = []
    for point in _points(entry):
        phases = mapping(point.get("phases_ms"))
        rows.append(
            [
                Cell(str(entry.get("precision"))),
                Cell(_shape_name(point, t)),
                figure_cell(point.get("verify_ratio"), "fixed2", t),
                figure_cell(point.get("round_ratio"), "fixed2", t),
                figure_cell(point.get("acceptance_length"), "fixed2", t),
                figure_cell(point.get("versus_target"), "times", t),
                *(figure_cell(phases.get(phase), "number", t) for phase in PHASES),
            ]
        )
    return rows


def figure_cell(value: Any, form: str, t: Language) -> Cell:
    """A figure with its interval beneath it."""
    found: Interval | None = as_interval(value)
    if found is None:
        return Cell(t("format.none"))
    return Cell(t.value(form, found.mean), t.short_range(found, lambda end: t.value(form, end)))

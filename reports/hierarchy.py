"""The report's section on cascades: measured beside plain decoding and trees, and modelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.figures.lines import Chart, Line, Mark, draw_lines
from reports.figures.svg import Picture, finish, style
from reports.language import Language
from reports.methods import by_group, mapping
from reports.source import Interval, as_interval, as_number
from reports.tables import Cell
from reports.trees import figure_cell

COLUMNS = ("target", "compared", "measured", "study", "predicted", "needed", "tau", "inner")
OVER = ("over_plain", "over_tree")


def hierarchy_groups(
    summary: Mapping[str, Any], captions: Mapping[str, str], t: Language
) -> list[Any]:
    """The section's groups: caption, sentences, picture and table. Empty without a cascade."""
    found = []
    for place, (name, own) in enumerate(by_group(summary, "hierarchy").items()):
        found.append(
            {
                "caption": captions.get(name, name),
                "sentences": [t.message(f) for e in own for f in e.get("findings") or []],
                "pictures": [
                    picture for number, entry in enumerate(own)
                    if (picture := _model_figure(entry, f"cascade-{place}-{number}", t))
                ],
                "head": [t(f"hierarchy.column_{key}") for key in COLUMNS],
                "rows": [row for entry in own for row in _rows(entry, t)],
            }
        )  # fmt: skip
    return found


def _rows(entry: Mapping[str, Any], t: Language) -> list[list[Cell]]:
    model, study = mapping(entry.get("model")), mapping(entry.get("study"))
    rows = []
    for key in OVER:
        if as_interval(entry.get(key)) is None:
            continue
        rows.append(
            [
                Cell(str(entry.get("precision"))),
                Cell(t(f"hierarchy.{key}")),
                figure_cell(entry.get(key), "times", t),
                Cell(t.value("times", study.get(key))),
                Cell(t.value("times", mapping(model.get("predicted")).get(key))),
                Cell(t.value("fixed2", mapping(model.get("reached_at")).get(key))),
                figure_cell(entry.get("acceptance_length"), "fixed2", t),
                figure_cell(entry.get("inner_acceptance_length"), "fixed2", t),
            ]
        )
    return rows


def _model_figure(entry: Mapping[str, Any], ident: str, t: Language) -> Picture | None:
    """Both ratios over the acceptance length, by the cost formula with this cost of a round."""
    model = mapping(entry.get("model"))
    needed = {key: as_number(mapping(model.get("reached_at")).get(key)) for key in OVER}
    study = {key: as_number(mapping(entry.get("study")).get(key)) for key in OVER}
    tau, most = as_number(model.get("acceptance_length")), as_number(model.get("most"))
    if tau is None or most is None:
        return None
    lines, levels, marks = [], [], []
    farthest = max([most, *(value for value in needed.values() if value is not None)])
    for key in OVER:
        at, ratio = needed[key], study[key]
        measured = as_interval(entry.get(key))
        if at is None or ratio is None:
            continue
        lines.append(Line(t(f"hierarchy.{key}"), _straight(ratio / at, farthest), markers=False))
        levels.append((ratio, t(f"hierarchy.level_{key}", ratio=ratio)))
        if measured is not None:
            label = t(f"hierarchy.measured_{key}", ratio=measured.mean)
            marks.append(Mark(label, tau, measured.mean))
    if not lines:
        return None
    chart = Chart(
        lines, t("hierarchy.tau_axis"), t("hierarchy.ratio_axis"), levels=levels, marks=marks
    )
    caption = t(
        "hierarchy.figure_desc", precision=entry.get("precision"), most=most,
        over_plain=needed["over_plain"], target=study["over_plain"],
    )  # fmt: skip
    title = t("hierarchy.figure_title", precision=entry.get("precision"))
    with style():
        figure, _ = draw_lines(chart, t)
        svg = finish(figure, ident, title, caption)
    return Picture(svg, caption)


def _straight(slope: float, farthest: float) -> Sequence[tuple[float, Interval]]:
    """A ratio grows with the acceptance length: the cost of a round does not depend on it."""
    return [(x, Interval(slope * x, None, None)) for x in (1.0, farthest)]

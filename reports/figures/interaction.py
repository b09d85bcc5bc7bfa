"""Interaction: the speedup expected if the two gains multiplied, and the measured one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.figures.dots import Dot, DotChart, DotRow, draw_dots, legend_mark
from reports.figures.svg import Picture, finish, style
from reports.language import Language
from reports.source import Interval

MAX_ROWS = 30


@dataclass(frozen=True)
class InteractionRow:
    """S_quantization · S_speculation beside S_combined, and their ratio I."""

    label: str
    expected: float
    measured: Interval
    ratio: Interval


def interaction_figure(rows: Sequence[InteractionRow], ident: str, t: Language) -> Picture | None:
    """A row for each combination whose three speedups were measured. None where there is none."""
    kept = list(rows)[:MAX_ROWS]
    if not kept:
        return None
    chart = DotChart(
        [
            DotRow(
                row.label,
                [
                    Dot(Interval(row.expected, None, None), "baseline", hollow=True),
                    Dot(row.measured, "combined"),
                ],
                t("figure.interaction_note", value=row.ratio),
            )
            for row in kept
        ],
        axis_label=t("figure.speedup_axis"),
        note_label=t("figure.interaction_note_label"),
        reference=1.0,
        legend=[
            legend_mark("baseline", t("figure.expected"), hollow=True),
            legend_mark("combined", t("figure.measured")),
        ],
    )
    strongest = max(kept, key=lambda row: abs(row.ratio.mean - 1))
    description = t(
        "figure.interaction_desc", label=strongest.label, expected=strongest.expected,
        measured=strongest.measured.mean, ratio=strongest.ratio.mean,
    )  # fmt: skip
    with style():
        svg = finish(draw_dots(chart, t), ident, t("figure.interaction_title"), description)
    return Picture(svg, description, len(rows) - len(kept))

"""Dot and whisker rows: the one drawing behind the figures of speedup, cost and interaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from reports.figures.svg import (
    ARM_COLOURS,
    ARM_MARKERS,
    GRID,
    INK,
    MUTED,
    ROW_IN,
    ZONE,
    new_figure,
    shorten,
    text_width,
)
from reports.language import Language
from reports.source import Interval

LOG_SPAN = 8.0
"""Axes whose largest value is this many times the smallest are logarithmic."""


@dataclass(frozen=True)
class Dot:
    """A value with its whisker. `hollow` marks what is undecided or expected, not measured."""

    value: Interval
    arm: str
    hollow: bool = False


@dataclass(frozen=True)
class DotRow:
    """A labelled row of dots; `note` is printed at its right end."""

    label: str
    dots: Sequence[Dot]
    note: str


@dataclass(frozen=True)
class DotChart:
    """Rows in order from the top, with what is drawn behind and around them."""

    rows: Sequence[DotRow]
    axis_label: str
    note_label: str = ""
    reference: float | None = None
    zone: tuple[float, float] | None = None
    legend: Sequence[Artist] = field(default_factory=tuple)
    zero_based: bool = False


def legend_mark(arm: str, label: str, *, hollow: bool = False) -> Line2D:
    """Legend entry in an arm's colour and marker."""
    colour = ARM_COLOURS.get(arm, INK)
    return Line2D(
        [], [], linestyle="none", marker=ARM_MARKERS.get(arm, "o"), markersize=5.5, color=colour,
        markerfacecolor="white" if hollow else colour, label=label,
    )  # fmt: skip


def draw_dots(chart: DotChart, t: Language) -> Figure:
    """Draws the chart. Rows keep their height, so the figure grows with them."""
    legend_rows = _legend_rows(chart.legend)
    top_in = 0.14 + 0.2 * legend_rows + (0.2 if chart.note_label else 0.0)
    height = top_in + 0.55 + ROW_IN * max(2, len(chart.rows))
    labels = [shorten(row.label) for row in chart.rows]
    figure, axes = new_figure(
        height, labels, [row.note for row in chart.rows] + [chart.note_label], top_in=top_in
    )
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    _scale(axes, chart, t)
    if chart.zone:
        axes.axvspan(*chart.zone, color=ZONE, zorder=0, linewidth=0)
    if chart.reference is not None:
        axes.axvline(chart.reference, color=MUTED, linewidth=0.9, zorder=1)
    for y, row in enumerate(chart.rows):
        if len(row.dots) > 1:
            values = [dot.value.mean for dot in row.dots]
            axes.plot(
                [min(values), max(values)],
                [y, y],
                color=GRID,
                linewidth=3,
                zorder=1,
                solid_capstyle="butt",
            )
        for dot in row.dots:
            _draw_dot(axes, dot, y)
        axes.annotate(
            row.note,
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )
    if chart.note_label:
        axes.annotate(
            chart.note_label,
            (1, -0.5),
            xycoords=("axes fraction", "data"),
            xytext=(8, 4),
            textcoords="offset points",
            va="bottom",
            color=MUTED,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", zorder=0)
    axes.set_xlabel(chart.axis_label)
    if chart.legend:
        figure.legend(
            handles=list(chart.legend), loc="upper left", frameon=False, handletextpad=0.3,
            ncols=math.ceil(len(chart.legend) / legend_rows), columnspacing=1.6,
            bbox_to_anchor=(0.02, 1.0), borderaxespad=0.2,
        )  # fmt: skip
    return figure


def _draw_dot(axes: Axes, dot: Dot, y: int) -> None:
    colour = ARM_COLOURS.get(dot.arm, INK)
    value = dot.value
    if value.bounded:
        low, high = float(value.ci_low or 0.0), float(value.ci_high or 0.0)
        axes.plot([low, high], [y, y], color=colour, linewidth=1.4, zorder=2, solid_capstyle="butt")
    axes.plot(
        [value.mean],
        [y],
        linestyle="none",
        marker=ARM_MARKERS.get(dot.arm, "o"),
        markersize=5.5,
        color=colour,
        zorder=3,
        markerfacecolor="white" if dot.hollow else colour,
    )


def _scale(axes: Axes, chart: DotChart, t: Language) -> None:
    """Sets the x range to the finite values drawn, on a log scale where they span much."""
    ends = [chart.reference] if chart.reference is not None else []
    for row in chart.rows:
        for dot in row.dots:
            ends += [
                v
                for v in (dot.value.mean, dot.value.ci_low, dot.value.ci_high)
                if v is not None and math.isfinite(v)
            ]
    low, high = min(ends), max(ends)
    if low > 0 and high / low > LOG_SPAN:
        axes.set_xscale("log", base=2)
        axes.set_xlim(low / 1.15, high * 1.15)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        start = 0.0 if chart.zero_based and low >= 0 else low
        pad = 0.06 * ((high - start) or abs(high) or 1.0)
        axes.set_xlim(0.0 if chart.zero_based and low >= 0 else low - pad, high + pad)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _tick(t, x)))


def _tick(t: Language, value: float) -> str:
    text = t.fixed(value, 3)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _legend_rows(legend: Sequence[Artist]) -> int:
    """Rows that keep the legend inside the figure's width."""
    width = sum(text_width(str(item.get_label())) + 34 for item in legend)
    return max(1, math.ceil(width / 600))

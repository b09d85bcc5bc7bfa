"""Lines over a numeric axis with labels beside them, for the drafting figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from reports.figures.svg import INK, MUTED, new_figure, shorten
from reports.language import Language
from reports.source import Interval

MAX_LINES = 8
"""Lines that eight colours and markers of the colour-blind palette keep apart."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_LABEL = 40
_TICK_RATIO = 1.25
"""Of neighbouring labels of a logarithmic axis: closer ones run into each other."""


@dataclass(frozen=True)
class Line:
    """(x, y) in the order of x; `markers` false for a line that is computed and not measured."""

    label: str
    points: Sequence[tuple[float, Interval]]
    markers: bool = True


@dataclass(frozen=True)
class Mark:
    """A figure of others: a cross with its own label."""

    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Chart:
    """What `draw_lines` draws; `levels` are dotted horizontal lines with their labels."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    levels: Sequence[tuple[float, str]] = ()
    marks: Sequence[Mark] = ()
    log_x: bool = False
    log_y: bool = False


def draw_lines(chart: Chart, t: Language) -> tuple[Figure, Axes]:
    """The figure, to be called inside `style()`. Labels stand right of the axes, top to bottom."""
    kept = list(chart.lines)[:MAX_LINES]
    labels = [shorten(line.label, _LABEL) for line in kept]
    notes = [label for _, label in chart.levels] + [mark.label for mark in chart.marks]
    height = max(3.3, 1.1 + 0.24 * (len(labels) + len(notes)))
    figure, axes = new_figure(
        height, [t.value("fixed2", 10.0)], ["─── " + text for text in (*labels, *notes)]
    )
    palette = sns.color_palette("colorblind", max(1, len(kept)))
    entries = []
    for place, (line, label) in enumerate(zip(kept, labels, strict=True)):
        marker = _MARKERS[place] if line.markers else ""
        _line(axes, line, palette[place], marker)
        entries.append((label, palette[place], marker or "_"))
    for place, mark in enumerate(chart.marks):
        marker = "x" if place % 2 == 0 else "+"
        axes.plot(
            [mark.x], [mark.y], marker=marker, color=INK, markersize=8, markeredgewidth=1.8,
            linestyle="none", zorder=4,
        )  # fmt: skip
        entries.append((mark.label, INK, marker))
    for place, (level, label) in enumerate(chart.levels):
        dashes = (0, (1 + 3 * place, 2))
        axes.axhline(level, color=MUTED, linewidth=1, linestyle=dashes)
        entries.append((label, MUTED, "_"))
    _scales(chart, axes, t)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.grid()
    for place, (label, colour, marker) in enumerate(entries):
        y = 0.97 - place * 0.24 / (height - 0.85)
        axes.plot(
            [1.03], [y], transform=axes.transAxes, marker=marker, color=colour, markersize=7,
            linestyle="none", clip_on=False,
        )  # fmt: skip
        axes.annotate(
            label, (1.03, y), xycoords="axes fraction", xytext=(10, 0),
            textcoords="offset points", va="center", color=INK,
        )  # fmt: skip
    return figure, axes


def _line(axes: Axes, line: Line, colour: tuple[float, float, float], marker: str) -> None:
    x = [point for point, _ in line.points]
    y = [value.mean for _, value in line.points]
    axes.plot(
        x, y, color=colour, marker=marker or None, markersize=6, markeredgecolor="white",
        linewidth=1.5, linestyle="-" if line.markers else (0, (5, 1.5)),
    )  # fmt: skip
    for point, value in line.points:
        if line.markers and value.ci_low is not None and value.ci_high is not None:
            axes.vlines(point, value.ci_low, value.ci_high, color=colour, linewidth=1)


def _scales(chart: Chart, axes: Axes, t: Language) -> None:
    for log, axis, scale in (
        (chart.log_x, axes.xaxis, axes.set_xscale), (chart.log_y, axes.yaxis, axes.set_yscale),
    ):  # fmt: skip
        if log:
            scale("log", base=2)
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: t.exact(float(value))))
    if chart.log_x:
        axes.set_xticks(apart({x for line in chart.lines for x, _ in line.points}))


def apart(values: Iterable[float]) -> list[float]:
    """The values whose labels do not overlap on a logarithmic axis, the largest first of all."""
    kept: list[float] = []
    for value in sorted(values, reverse=True):
        if not kept or kept[-1] >= _TICK_RATIO * value:
            kept.append(value)
    return kept[::-1]

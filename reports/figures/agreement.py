"""Figures of an agreement run: both precisions' top-1 probabilities at each compared position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from reports.figures.svg import (
    GRID,
    INK,
    MUTED,
    WIDTH_IN,
    Picture,
    finish,
    style,
)
from reports.language import Language

MOST_VECTOR_POINTS = 20_000
"""With more points they become an image inside the figure; axes and text stay vectors."""
MATCH, MISMATCH = "#0072b2", "#d55e00"
MARKERS = {"accepted": "o", "rejected": "X", "discarded": "^"}
FEW_POINTS = 3_000
"""Up to here points are drawn darker, since few lie on each other."""
RASTER_DPI = 220
DENSITY_BINS = 50


def scatter_figure(
    rows: pd.DataFrame,
    threshold: float,
    names: tuple[str, str],
    ident: str,
    t: Language,
) -> Picture | None:
    """Target (x) against draft (y) top-1 probability, with the densities of both at the sides.

    `rows` are the trace of one mode, `names` the precisions of target and draft. None where no row
    has both probabilities.
    """
    rows = rows[rows["draft_top1_prob"].notna() & rows["target_top1_prob"].notna()]
    if rows.empty:
        return None
    match = rows["match"].to_numpy(bool)
    with style():
        figure = Figure(figsize=(WIDTH_IN, 6.9))
        figure.set_dpi(RASTER_DPI)
        axes, top, right = _joint_axes(figure)
        opacity = 0.35 if len(rows) > FEW_POINTS else 0.7
        image = len(rows) > MOST_VECTOR_POINTS
        for same in (True, False):  # mismatches are fewer and are drawn last, on top
            for status, marker in MARKERS.items():
                chosen = rows[(match == same) & (rows["status"] == status)]
                axes.scatter(
                    chosen["target_top1_prob"], chosen["draft_top1_prob"],
                    s=11 if same else 20, marker=marker, color=MATCH if same else MISMATCH,
                    alpha=opacity, linewidths=0, zorder=2 if same else 2.1, rasterized=image,
                )  # fmt: skip
        _density(top, rows["target_top1_prob"].to_numpy(), match, upright=True)
        _density(right, rows["draft_top1_prob"].to_numpy(), match, upright=False)
        for line_axes in (axes, top):
            line_axes.axvline(threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
        for line_axes in (axes, right):
            line_axes.axhline(threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
        _probability_axes(axes, names, t)
        statuses = [s for s in MARKERS if (rows["status"] == s).any()]
        _legend(figure, statuses, threshold, t)
        high = rows["both_high"].to_numpy(bool)
        description = t(
            "agreement.scatter_desc", n=len(rows), rate=float(match.mean()), threshold=threshold,
            share=float(high.mean()), high=float(match[high].mean()) if high.any() else None,
        )  # fmt: skip
        svg = finish(figure, ident, t("agreement.scatter_title"), description)
    return Picture(svg, description)


def _joint_axes(figure: Figure) -> tuple[Axes, Axes, Axes]:
    """The square of the scatter, and the strips above it and to its right."""
    height = figure.get_size_inches()[1]

    def place(
        left: float, bottom: float, wide: float, tall: float
    ) -> tuple[float, float, float, float]:
        return (left / WIDTH_IN, bottom / height, wide / WIDTH_IN, tall / height)

    axes = figure.add_axes(place(0.85, 0.6, 5.2, 5.2))
    top = figure.add_axes(place(0.85, 5.88, 5.2, 0.8), sharex=axes)
    right = figure.add_axes(place(6.13, 0.6, 0.8, 5.2), sharey=axes)
    for strip in (top, right):
        strip.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)
        strip.set_frame_on(False)
    return axes, top, right


def _density(axes: Axes, values: Any, match: Any, *, upright: bool) -> None:
    """Densities of matches and mismatches, each of area one: their counts differ too much."""
    edges = np.linspace(0.0, 1.0, DENSITY_BINS + 1).tolist()
    for chosen, colour in ((values[match], MATCH), (values[~match], MISMATCH)):
        if len(chosen):
            axes.hist(
                chosen, bins=edges, density=True, histtype="stepfilled", color=colour, alpha=0.28,
                orientation="vertical" if upright else "horizontal",
            )  # fmt: skip
            axes.hist(
                chosen, bins=edges, density=True, histtype="step", color=colour, linewidth=1.1,
                orientation="vertical" if upright else "horizontal",
            )  # fmt: skip


def _probability_axes(axes: Axes, names: tuple[str, str], t: Language) -> None:
    percent = FuncFormatter(lambda value, _: t.value("percent0", float(value)))
    axes.set_xlim(-0.015, 1.015)
    axes.set_ylim(-0.015, 1.015)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(np.linspace(0, 1, 6))
        axis.set_major_formatter(percent)
    axes.set_xlabel(t("agreement.target_axis", name=names[0]))
    axes.set_ylabel(t("agreement.draft_axis", name=names[1]))
    axes.set_axisbelow(True)
    axes.grid(color=GRID)


def _legend(figure: Figure, statuses: list[str], threshold: float, t: Language) -> None:
    def mark(marker: str, colour: str, label: str) -> Line2D:
        return Line2D([], [], linestyle="none", marker=marker, color=colour, label=label,
                      markeredgewidth=0, markersize=6)  # fmt: skip

    handles = [mark("s", colour, t(f"agreement.top1_{key}"))
               for key, colour in (("same", MATCH), ("other", MISMATCH))]  # fmt: skip
    handles += [
        mark(MARKERS[status], MUTED, t(f"agreement.status.{status}")) for status in statuses
    ]
    line = t("agreement.threshold_line", threshold=threshold)
    handles.append(Line2D([], [], color=INK, linewidth=0.9, linestyle=(0, (4, 3)), label=line))
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.775, 0.98), frameon=False,
                  handletextpad=0.5, labelspacing=0.7, handlelength=1.6)  # fmt: skip


def heat_figure(
    heat: Mapping[str, Any], names: tuple[str, str], ident: str, t: Language
) -> Picture | None:
    """Agreement rate by pair of top-1 probabilities, with the count of positions in each cell.

    `heat` holds edges and, by [target bin][draft bin], positions and agreements. None without
    positions.
    """
    positions = np.asarray(heat["positions"], float)
    if not positions.sum():
        return None
    with np.errstate(invalid="ignore"):
        rates = np.asarray(heat["agreements"], float) / positions
    edges = np.asarray(heat["edges"], float)
    colours = LinearSegmentedColormap.from_list("agreement", ["#fbe3d4", "#f7f7f7", MATCH])
    with style():
        figure = Figure(figsize=(WIDTH_IN, 6.4))
        axes = figure.add_axes((0.85 / WIDTH_IN, 0.6 / 6.4, 6.6 / WIDTH_IN, 5.6 / 6.4))
        mesh = axes.pcolormesh(edges, edges, np.ma.masked_invalid(rates.T), cmap=colours,
                               vmin=0.0, vmax=1.0, edgecolors="white", linewidth=0.8)  # fmt: skip
        middles = (edges[1:] + edges[:-1]) / 2
        for i, j in zip(*np.nonzero(positions), strict=True):
            ink = "white" if rates[i, j] > 0.8 else INK
            for text, size, offset in (
                (t.value("percent0", float(rates[i, j])), 9.0, 0.017),
                (t.value("count", float(positions[i, j])), 7.5, -0.022),
            ):
                axes.text(middles[i], middles[j] + offset, text, color=ink, ha="center",
                          va="center", fontsize=size)  # fmt: skip
        _probability_axes(axes, names, t)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.grid(False)
        bar = figure.colorbar(
            mesh, cax=figure.add_axes((7.75 / WIDTH_IN, 0.6 / 6.4, 0.16 / WIDTH_IN, 5.6 / 6.4)),
            format=FuncFormatter(lambda value, _: t.value("percent0", float(value))),
        )  # fmt: skip
        bar.outline.set_visible(False)
        best = float(positions[-1, -1] / positions.sum())
        description = t("agreement.heat_desc", n=positions.sum(), share=best,
                        rate=float(rates[-1, -1]), low=float(edges[-2]))  # fmt: skip
        svg = finish(figure, ident, t("agreement.heat_title"), description)
    return Picture(svg, description)

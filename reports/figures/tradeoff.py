"""Throughput against quality: what each precision gains in speed and costs in quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.figures.dots import legend_mark
from reports.figures.svg import (
    ARM_COLOURS,
    ARM_MARKERS,
    MUTED,
    Picture,
    finish,
    new_figure,
    style,
)
from reports.language import Language
from reports.methods import ARMS, Method

MAX_POINTS = 60


def tradeoff_figure(
    methods: Sequence[Method],
    labels: dict[int, str],
    front: Sequence[str],
    tolerance: float | None,
    ident: str,
    t: Language,
) -> Picture | None:
    """Points of one group: perplexity ratio to the baseline (x), output throughput (y).

    None where fewer than two methods have both figures. Methods with the baseline's precision stand
    at a ratio of 1 by definition. `front` names the methods that no other beats in both; they are
    labelled, as is the fastest. `tolerance` is the largest ratio that the quality gate lets pass.
    """
    reference = {m.value("precision") for m in methods if m.role == "baseline"}
    points = [
        (m, ratio, rate)
        for m in methods
        if m.role != "noise"
        and (ratio := _ratio(m, reference)) is not None
        and (rate := m.mean("output_throughput")) is not None
    ]
    points.sort(key=lambda point: -point[2])
    kept = points[:MAX_POINTS]
    if len(kept) < 2:
        return None
    with style():
        figure, axes = new_figure(3.5, ["00,000"], ["m"], top_in=0.4)
        arms = [a for a in ARMS if any(m.arm == a for m, _, _ in kept)]
        for m, ratio, rate in kept:
            colour = ARM_COLOURS.get(m.arm, MUTED)
            span = m.interval("output_throughput")
            if span and span.bounded:
                axes.plot(
                    [ratio, ratio],
                    [float(span.ci_low or 0), float(span.ci_high or 0)],
                    color=colour,
                    linewidth=1.1,
                    alpha=0.7,
                )
            axes.plot(
                [ratio],
                [rate],
                marker=ARM_MARKERS.get(m.arm, "o"),
                color=colour,
                markeredgecolor="white",
                markersize=6.5,
                linestyle="none",
            )
        low = min(ratio for _, ratio, _ in kept)
        high = max(ratio for _, ratio, _ in kept)
        # At least a few percent wide, lest a difference that does not matter look like one.
        pad = max(0.02, 0.08 * (high - low))
        # Room for labels: left of the leftmost points, right of all others.
        room = 0.3 * max(high - low, pad)
        axes.set_xlim(low - pad - room, high + pad + room)
        axes.set_ylim(0, _top(kept) * 1.06)
        for place, (m, ratio, rate) in enumerate(kept):
            if place and m.method_id not in front:
                continue
            leftmost = ratio <= low + 1e-3
            axes.annotate(
                labels[id(m)],
                (ratio, rate),
                xytext=(-8 if leftmost else 8, 0),
                textcoords="offset points",
                ha="right" if leftmost else "left",
                va="center",
            )
        if tolerance is not None and tolerance < axes.get_xlim()[1]:
            axes.axvline(tolerance, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate(
                t("figure.gate"),
                (tolerance, 0),
                xycoords=("data", "axes fraction"),
                xytext=(4, 5),
                textcoords="offset points",
                color=MUTED,
            )
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: t.exact(round(float(x), 4))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: t.fixed(float(y), 0)))
        axes.set_xlabel(t("figure.tradeoff_x"))
        axes.set_ylabel(t("figure.tradeoff_y"))
        axes.grid()
        figure.legend(
            handles=[legend_mark(a, t(f"arm.{a}")) for a in arms],
            loc="upper left",
            ncols=4,
            frameon=False,
            bbox_to_anchor=(0.02, 1.0),
            borderaxespad=0.2,
            handletextpad=0.3,
        )
        fastest = kept[0]
        description = t(
            "figure.tradeoff_desc", label=labels[id(fastest[0])], rate=fastest[2],
            ratio=fastest[1],
        )  # fmt: skip
        svg = finish(figure, ident, t("figure.tradeoff_title"), description)
    return Picture(svg, description, len(points) - len(kept))


def _top(points: Sequence[tuple[Method, float, float]]) -> float:
    """The highest end of an interval, or the highest rate without one."""
    spans = [(m.interval("output_throughput"), rate) for m, _, rate in points]
    return max(max(rate, span.ci_high or rate) if span else rate for span, rate in spans)


def _ratio(method: Method, reference: set[Any]) -> float | None:
    if method.value("precision") in reference:
        return 1.0
    return method.mean("perplexity_ratio", "quality")

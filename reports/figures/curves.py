"""The forward curve: how much longer a forward of n rows takes than one of a single row."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.ticker import FuncFormatter, NullLocator

from reports.curves import Curve
from reports.figures.svg import INK, MUTED, Picture, finish, new_figure, shorten, style
from reports.language import Language

MAX_LINES = 8
"""Lines that eight colours and markers of the colour-blind palette keep apart."""
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "p"]
_LABEL = 40


def curve_figure(curves: Sequence[Curve], ident: str, t: Language) -> Picture | None:
    """T(n) / T(1) over n, both logarithmic, of curves of one batch size and context.

    The dotted line is n itself: what n forwards of one row would take. None where no curve has two
    points.
    """
    drawn = [curve for curve in curves if len(curve.ratios) > 1]
    kept = drawn[:MAX_LINES]
    if not kept:
        return None
    names = [shorten(curve.label, _LABEL) for curve in kept]
    data = pd.DataFrame(
        [
            {"rows": rows, "ratio": ratio, "curve": name}
            for name, curve in zip(names, kept, strict=True)
            for rows, ratio in curve.ratios.items()
        ]
    )
    ticks = sorted({int(rows) for rows in data["rows"]})
    with style():
        figure, axes = new_figure(3.3, [t.value("fixed2", 10.0)], ["─── " + n for n in names])
        axes.plot(ticks, ticks, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
        palette = sns.color_palette("colorblind", len(kept))
        sns.lineplot(
            data=data, x="rows", y="ratio", hue="curve", style="curve", ax=axes, palette=palette,
            markers=_MARKERS[: len(kept)], dashes=False, markersize=6, linewidth=1.5,
            errorbar=None, legend=False,
        )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(ticks)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: t.exact(float(value))))
        axes.set_xlabel(t("curves.rows_axis"))
        axes.set_ylabel(t("curves.ratio_axis"))
        axes.grid()
        for place, (name, line) in enumerate(zip(names, axes.lines[1:], strict=True)):
            y = 0.94 - place * 0.1
            axes.plot(
                [1.03], [y], transform=axes.transAxes, marker=line.get_marker(),
                color=line.get_color(), markersize=6, markeredgecolor="white", linestyle="none",
                clip_on=False,
            )  # fmt: skip
            axes.annotate(
                name, (1.03, y), xycoords="axes fraction", xytext=(10, 0),
                textcoords="offset points", va="center", color=INK,
            )  # fmt: skip
        last = {curve.label: max(curve.ratios) for curve in kept}
        most = min(last.values())
        at_most = sorted((c for c in kept if most in c.ratios), key=lambda c: c.ratios[most])
        best, worst = at_most[0], at_most[-1]
        description = t(
            "curves.figure_desc", n=most, best=best.label, low=best.ratios[most],
            worst=worst.label, high=worst.ratios[most],
        )  # fmt: skip
        svg = finish(figure, ident, t("curves.figure_title"), description)
    return Picture(svg, description, len(drawn) - len(kept))

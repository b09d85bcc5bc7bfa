"""Acceptance by draft position: which share of rounds accepted the i-th proposed token."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.ticker import FuncFormatter

from reports.figures.svg import INK, Picture, finish, new_figure, shorten, style
from reports.language import Language
from reports.methods import Method

MAX_LINES = 8
"""Lines that eight colours and markers of the colour-blind palette keep apart."""


def acceptance_figure(
    methods: Sequence[Method], labels: dict[int, str], ident: str, t: Language
) -> Picture | None:
    """The longest draft of each target and drafter of a group. None without measured rates."""
    longest: dict[tuple[str, str], Method] = {}
    for m in methods:
        if m.role == "method" and m.rates():
            axes_key = (str(m.value("precision")), str(m.value("drafter")))
            known = longest.get(axes_key)
            if known is None or len(m.rates()) > len(known.rates()):
                longest[axes_key] = m
    lines = sorted(longest.values(), key=lambda m: -sum(m.rates()))
    kept = lines[:MAX_LINES]
    if not kept:
        return None
    names = [_label(m, labels, t) for m in kept]
    data = pd.DataFrame(
        [
            {"position": i + 1, "rate": rate, "method": name}
            for name, m in zip(names, kept, strict=True)
            for i, rate in enumerate(m.rates())
        ]
    )
    with style():
        figure, axes = new_figure(
            max(2.9, 0.9 + 0.24 * len(kept)), [t.value("percent0", 1.0)],
            ["─── " + shorten(name, 52) for name in names], top_in=0.2,
        )  # fmt: skip
        palette = sns.color_palette("colorblind", len(kept))
        sns.lineplot(
            data=data, x="position", y="rate", hue="method", style="method", ax=axes,
            markers=["o", "s", "^", "D", "v", "P", "X", "p"][: len(kept)], dashes=False,
            palette=palette, markersize=6, linewidth=1.5, errorbar=None, legend=False,
        )  # fmt: skip
        axes.set_ylim(0, 1.03)
        axes.set_xticks(range(1, int(data["position"].max()) + 1))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: t.value("percent0", float(y))))
        axes.set_xlabel(t("figure.position_axis"))
        axes.set_ylabel("")
        axes.grid(axis="y")
        for place, (name, line) in enumerate(zip(names, axes.lines, strict=True)):
            y = 0.94 - place * 0.24 / max(2.0, 0.24 * len(kept) + 0.15)
            axes.plot(
                [1.03],
                [y],
                transform=axes.transAxes,
                marker=line.get_marker(),
                color=line.get_color(),
                markersize=6,
                markeredgecolor="white",
                linestyle="none",
                clip_on=False,
            )
            axes.annotate(
                shorten(name, 52),
                (1.03, y),
                xycoords="axes fraction",
                xytext=(10, 0),
                textcoords="offset points",
                va="center",
                color=INK,
            )
        best, worst = kept[0], kept[-1]
        description = t(
            "figure.acceptance_desc", best=labels[id(best)], first=best.rates()[0],
            last=best.rates()[-1], positions=len(best.rates()), worst=labels[id(worst)],
            worst_first=worst.rates()[0],
        )  # fmt: skip
        svg = finish(figure, ident, t("figure.acceptance_title"), description)
    return Picture(svg, description, len(lines) - len(kept))


def _label(method: Method, labels: dict[int, str], t: Language) -> str:
    tau = method.mean("acceptance_length")
    text = labels[id(method)]
    if method.value("acceptance") == "replay":
        text = t("figure.replayed", label=text)
    return text if tau is None else t("figure.with_tau", label=text, tau=tau)

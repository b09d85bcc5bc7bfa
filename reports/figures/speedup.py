"""Speedup of every method over its group's baseline, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Patch

from reports.figures.dots import Dot, DotChart, DotRow, draw_dots, legend_mark
from reports.figures.svg import ZONE, Picture, finish, style
from reports.language import Language
from reports.methods import ARMS, Method

MAX_ROWS = 32
"""Rows that stay readable on one printed page; the fastest of each arm are kept."""


def speedup_figure(
    methods: Sequence[Method], labels: dict[int, str], min_effect: float, ident: str, t: Language
) -> Picture | None:
    """One group's methods, by arm and then by speed. None where no speedup was measured."""
    drawn = [m for m in methods if m.speedup and m.arm in ARMS and m.role == "method"]
    if not drawn:
        return None
    kept = sorted_by_speed(keep_fastest(drawn, MAX_ROWS))
    rows = [
        DotRow(
            labels[id(m)],
            [Dot(m.speedup, m.arm, hollow=m.decision == "undecided")] if m.speedup else [],
            t.value("times", m.speedup.mean if m.speedup else None),
        )
        for m in kept
    ]
    arms = [a for a in ARMS if any(m.arm == a for m in kept)]
    legend = [legend_mark(a, t(f"arm.{a}")) for a in arms]
    if any(m.decision == "undecided" for m in kept):
        legend.append(legend_mark("baseline", t("figure.hollow"), hollow=True))
    with style():
        chart = DotChart(
            rows,
            axis_label=t("figure.speedup_axis"),
            reference=1.0,
            zone=(1 - min_effect, 1 + min_effect),
            legend=[*legend, Patch(color=ZONE, label=t("figure.zone", effect=min_effect))],
        )
        description = t(
            "figure.speedup_desc",
            best=labels[id(max(kept, key=_mean))],
            speedup=max(_mean(m) for m in kept),
            worst=labels[id(min(kept, key=_mean))],
            slowest=min(_mean(m) for m in kept),
        )
        svg = finish(draw_dots(chart, t), ident, t("figure.speedup_title"), description)
    return Picture(svg, description, len(drawn) - len(kept))


def keep_fastest(methods: Sequence[Method], limit: int) -> list[Method]:
    """At most `limit` methods, the fastest of each arm in equal shares, in the given order."""
    if len(methods) <= limit:
        return list(methods)
    ranked: list[tuple[int, float, Method]] = []
    for arm in ARMS:
        of_arm = sorted((m for m in methods if m.arm == arm), key=lambda m: -_mean(m))
        ranked += [(place, -_mean(m), m) for place, m in enumerate(of_arm)]
    ranked.sort(key=lambda entry: entry[:2])
    chosen = {id(m) for _, _, m in ranked[:limit]}
    return [m for m in methods if id(m) in chosen]


def sorted_by_speed(methods: Sequence[Method]) -> list[Method]:
    """By arm, the fastest of each arm first."""
    order = {arm: place for place, arm in enumerate(ARMS)}
    return sorted(methods, key=lambda m: (order.get(m.arm, len(ARMS)), -_mean(m)))


def _mean(method: Method) -> float:
    return method.speedup.mean if method.speedup else 0.0

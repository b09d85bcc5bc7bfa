"""Cost per million output tokens of the baseline and the best method of each arm."""

from __future__ import annotations

from collections.abc import Sequence

from reports.figures.dots import Dot, DotChart, DotRow, draw_dots, legend_mark
from reports.figures.svg import Picture, finish, style
from reports.language import Language
from reports.methods import ArmChoice
from reports.source import as_interval

MAX_ROWS = 32


def cost_figure(
    groups: Sequence[tuple[str, Sequence[ArmChoice]]], ident: str, t: Language
) -> Picture | None:
    """A row for each group (caption, choices) and arm. None where no method has a cost."""
    priced = [
        (f"{choice.method.name} ({short})" if len(groups) > 1 else choice.method.name,
         choice.arm, cost)
        for short, choices in groups
        for choice in choices
        if choice.method is not None
        and (cost := as_interval(choice.cost.get("per_million_tokens"))) is not None
    ]  # fmt: skip
    if not priced:
        return None
    kept = priced[:MAX_ROWS]
    chart = DotChart(
        [DotRow(label, [Dot(cost, arm)], t.money(cost.mean)) for label, arm, cost in kept],
        axis_label=t("figure.cost_axis", currency=t.currency),
        legend=[legend_mark(a, t(f"arm.{a}")) for a in dict.fromkeys(arm for _, arm, _ in kept)],
        zero_based=True,
    )
    cheapest = min(kept, key=lambda entry: entry[2].mean)
    description = t("figure.cost_desc", label=cheapest[0], cost=cheapest[2].mean)
    with style():
        svg = finish(draw_dots(chart, t), ident, t("figure.cost_title"), description)
    return Picture(svg, description, len(priced) - len(kept))

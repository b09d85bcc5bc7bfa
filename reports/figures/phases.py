"""Where the time goes: drafting, verifying and the rest, for each output token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import seaborn as sns
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from reports.figures.svg import ROW_IN, Picture, finish, new_figure, shorten, style
from reports.language import Language

MAX_ROWS = 24
PHASES = ("draft", "verify", "other")
_HATCHES = {"draft": "//", "verify": "", "other": ""}


@dataclass(frozen=True)
class PhaseRow:
    """Milliseconds per output token by phase."""

    label: str
    draft: float
    verify: float
    other: float

    @property
    def total(self) -> float:
        return self.draft + self.verify + self.other


def phase_figure(rows: Sequence[PhaseRow], ident: str, t: Language) -> Picture | None:
    """Stacked bars, in the given order. None without rows."""
    kept = list(rows)[:MAX_ROWS]
    if not kept:
        return None
    notes = [t.value("ms", row.total) for row in kept]
    with style():
        height = 0.9 + ROW_IN * max(2, len(kept))
        figure, axes = new_figure(height, [shorten(r.label) for r in kept], notes, top_in=0.35)
        colours = dict(zip(PHASES, sns.color_palette("colorblind", 3), strict=True))
        starts = [0.0] * len(kept)
        for phase in PHASES:
            widths = [float(getattr(row, phase)) for row in kept]
            axes.barh(
                range(len(kept)),
                widths,
                left=starts,
                height=0.68,
                color=colours[phase],
                edgecolor="white",
                linewidth=0.6,
                hatch=_HATCHES[phase],
            )
            starts = [a + b for a, b in zip(starts, widths, strict=True)]
        for y, note in enumerate(notes):
            axes.annotate(
                note,
                (1, y),
                xycoords=("axes fraction", "data"),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
            )
        axes.set_ylim(len(kept) - 0.5, -0.5)
        axes.set_yticks(range(len(kept)), [shorten(r.label) for r in kept])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: t.significant(float(x), 2)))
        axes.set_xlabel(t("figure.phase_axis"))
        figure.legend(
            handles=[
                Patch(facecolor=colours[p], hatch=_HATCHES[p], edgecolor="white",
                      label=t(f"phase.{p}"))
                for p in PHASES
            ],
            loc="upper left", ncols=3, frameon=False, bbox_to_anchor=(0.02, 1.0),
            borderaxespad=0.2,
        )  # fmt: skip
        heaviest = max(kept, key=lambda row: row.draft / row.total if row.total else 0.0)
        description = t(
            "figure.phase_desc", label=heaviest.label,
            share=heaviest.draft / heaviest.total if heaviest.total else 0.0,
        )  # fmt: skip
        svg = finish(figure, ident, t("figure.phase_title"), description)
    return Picture(svg, description, len(rows) - len(kept))

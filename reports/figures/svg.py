"""Style of the figures, and their way from matplotlib to a small, accessible inline SVG.

Text stays text, so that it can be searched and shows Japanese in the reader's own font. Margins are
computed from the labels here, not from font metrics, because the reader's font is another one.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import seaborn as sns
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN = 9.0
"""Width of every figure in inches of 72 SVG units."""
FONT_PT = 9.0
ROW_IN = 0.235

INK = "#1c2430"
MUTED = "#5a6472"
GRID = "#dfe3e8"
ZONE = "#e9ecf0"

# Okabe-Ito colours; each arm has a marker of its own too, so that colour is never alone.
ARM_COLOURS = {
    "baseline": "#5a6472",
    "quantization": "#0072b2",
    "speculation": "#d55e00",
    "combined": "#00805d",
}
ARM_MARKERS = {"baseline": "o", "quantization": "s", "speculation": "^", "combined": "D"}


@dataclass(frozen=True)
class Picture:
    """An inline SVG with its caption and how many rows it had to leave out."""

    svg: Markup
    caption: str
    left_out: int = 0


@contextmanager
def style() -> Iterator[None]:
    """Seaborn's white style in the report's ink, with text kept as text."""
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": FONT_PT,
        "axes.titlesize": FONT_PT + 1,
        "axes.labelsize": FONT_PT,
        "xtick.labelsize": FONT_PT,
        "ytick.labelsize": FONT_PT,
        "legend.fontsize": FONT_PT,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "axes.linewidth": 0.7,
        "axes.unicode_minus": True,
        "text.parse_math": False,
    }
    with mpl.rc_context(), sns.axes_style("ticks"):
        mpl.rcParams.update(settings)
        yield


def text_width(text: str, size: float = FONT_PT) -> float:
    """Rough width of a label in points: wide East Asian characters count one em, others 0.56."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (wide + 0.56 * (len(text) - wide))


def shorten(text: str, limit: int = 56) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def new_figure(
    height_in: float, left: Iterable[str], right: Iterable[str] = (), *, top_in: float = 0.3
) -> tuple[Figure, Axes]:
    """A figure with one axes; the side margins fit the given tick and value labels."""
    margin_left = max([text_width(t) for t in left] or [0.0]) / 72 + 0.25
    margin_right = max([text_width(t) for t in right] or [0.0]) / 72 + 0.25
    bottom_in = 0.55
    figure = Figure(figsize=(WIDTH_IN, height_in))
    axes = figure.add_axes(
        (
            margin_left / WIDTH_IN,
            bottom_in / height_in,
            max(0.2, 1 - (margin_left + margin_right) / WIDTH_IN),
            1 - (top_in + bottom_in) / height_in,
        )
    )
    return figure, axes


def finish(figure: Figure, ident: str, title: str, description: str) -> Markup:
    """Serialises a figure. `ident` makes its ids unique in the page; title and description are
    what a screen reader says."""
    buffer = io.StringIO()
    with warnings.catch_warnings(), mpl.rc_context({"svg.hashsalt": ident}):
        # matplotlib's font has no Japanese; the reader's browser draws the text with one that has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style).*?</\1>", "", text, flags=re.S)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r"<[a-z][^>]*>", lambda tag: _tag(tag.group(), ident, used), text, flags=re.I)
    text = re.sub(r">\s+<", "><", text).replace("<g></g>", "").replace("<defs></defs>", "")
    box = re.search(r'viewBox="[^"]+"', text)
    body = text[text.index(">") + 1 :].strip()
    head = (
        f'<svg {box.group() if box else ""} role="img" '
        f'aria-labelledby="{ident}-title {ident}-desc" class="figure">'
        f'<title id="{ident}-title">{escape(title)}</title>'
        f'<desc id="{ident}-desc">{escape(description)}</desc>'
    )
    return Markup(head + body)


def _tag(tag: str, ident: str, used: set[str]) -> str:
    """One start tag with unique ids, two decimals, and the page's fonts instead of its own."""
    tag = tag.replace("xlink:href", "href")
    tag = re.sub(r' id="([^"]+)"', lambda m: f' id="{ident}-{m[1]}"' if m[1] in used else "", tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{ident}-", tag)
    tag = re.sub(
        r"font: (?:[a-z0-9]+ )*([\d.]+px)[^;\"]*|font-family:[^;\"]*;? ?",
        lambda m: f"font-size: {m[1]}" if m[1] else "",
        tag,
    )
    tag = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    return re.sub(r"\s+", " ", tag).replace(' "', '"').replace(": ", ":").replace("; ", ";")

"""Interaction in words: whether the gains of quantization and speculation multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.figures.interaction import InteractionRow
from reports.language import Language, Message
from reports.methods import Method, find_method, mapping
from reports.source import as_interval
from reports.tables import Cell

TRIO = ("quantization", "speculation", "combined")
KINDS = ("eat", "multiply", "help", "undecided")
COLUMNS = ("combination", "quantization", "speculation", "expected", "measured", "ratio", "words")


@dataclass
class GroupInteraction:
    """A group's table, the rows of its figure, and sentences on the combinations that matter."""

    table: list[list[Cell]] = field(default_factory=list)
    rows: list[InteractionRow] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    missing: dict[Message, list[str]] = field(default_factory=dict)


@dataclass
class Interactions:
    """All groups by name, and how often each kind occurs."""

    groups: dict[str, GroupInteraction] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def count(self, t: Language) -> str:
        """One sentence that counts the kinds; empty without any interaction."""
        total = sum(self.kinds.values())
        return t("interaction.count", all=total, **self.kinds) if total else ""


def read_interactions(
    entries: Sequence[Any], methods: Sequence[Method], recommended: Any, t: Language
) -> Interactions:
    """Words every entry of the summary's `interaction`.

    A sentence is written for the combination farthest from multiplying and for the `recommended`
    method id; the table holds them all.
    """
    found = Interactions()
    farthest: dict[str, tuple[float, str]] = {}
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        name = str(entry.get("group", ""))
        group = found.groups.setdefault(name, GroupInteraction())
        trio = [find_method(methods, name, entry.get(arm)) for arm in TRIO]
        combined = trio[2]
        label = combined.name if combined else _label(entry)
        ratio = as_interval(entry)
        if ratio is None:
            reason = t.message(entry.get("reason") or {"text": t("format.none")})
            group.missing.setdefault(reason, []).append(label)
            continue
        kind = str(entry.get("decision"))
        if kind not in KINDS:
            kind = "undecided"
        found.kinds[kind] += 1
        s_q, s_s, measured = (m.speedup.mean if m and m.speedup else None for m in trio)
        expected = s_q * s_s if s_q is not None and s_s is not None else None
        times = [Cell(t.value("times", x)) for x in (s_q, s_s, expected, measured)]
        spread = t.short_range(ratio, lambda end: t.value("ratio", end))
        group.table.append(
            [Cell(label), *times, Cell(t.value("ratio", ratio.mean), spread),
             Cell(t(f"interaction_word.{kind}"), text=True)]
        )  # fmt: skip
        if expected is not None and combined is not None and combined.speedup is not None:
            group.rows.append(InteractionRow(label, expected, combined.speedup, ratio))
        sentence = t(
            f"interaction.{kind}", label=label, ratio=ratio, share=max(0.0, 1 - ratio.mean),
            s_q=s_q, s_s=s_s, expected=expected, measured=measured,
        )  # fmt: skip
        if combined is not None and combined.method_id == recommended:
            group.sentences.append(sentence)
        if abs(ratio.mean - 1) >= farthest.get(name, (0.0, ""))[0]:
            farthest[name] = (abs(ratio.mean - 1), sentence)
    for group in found.groups.values():
        group.table.sort(key=lambda row: row[0].main)
        group.rows.sort(key=lambda row: row.label)
    for name, (_, sentence) in farthest.items():
        if sentence not in found.groups[name].sentences:
            found.groups[name].sentences.append(sentence)
    return found


def _label(entry: Mapping[str, Any]) -> str:
    """Axes of a combination that is not among the methods."""
    drafter, shape = mapping(entry.get("drafter")), mapping(entry.get("shape"))
    inside = ", ".join(str(drafter[key]) for key in ("id", "precision") if drafter.get(key))
    draft = f"{drafter.get('kind', '?')}({inside})" if inside else str(drafter.get("kind", "?"))
    size = f"γ={shape['gamma']}" if "gamma" in shape else f"tree({shape.get('nodes', '?')})"
    return f"{entry.get('precision', '?')} + {draft}, {size}"

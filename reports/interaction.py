"""Interaction in words: whether the gains of quantization and speculation multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.figures.interaction import InteractionRow
from reports.language import Language, Message
from reports.methods import Method, find_method
from reports.source import as_interval

TRIO = ("combined", "quantization", "speculation")
KINDS = ("eat", "multiply", "help", "undecided")


@dataclass
class Interactions:
    """Sentences by group, rows for the figure, a count by kind, and what could not be computed."""

    sentences: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, list[InteractionRow]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    missing: list[tuple[str, Message]] = field(default_factory=list)

    def count(self, t: Language) -> str:
        """One sentence that counts the kinds; empty without any interaction."""
        total = sum(self.kinds.values())
        return t("interaction.count", all=total, **self.kinds) if total else ""


def read_interactions(
    entries: Sequence[Any], methods: Sequence[Method], t: Language
) -> Interactions:
    """Words every entry of the summary's `interaction`."""
    found = Interactions()
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        group = str(entry.get("group", ""))
        trio = {arm: find_method(methods, group, entry.get(arm)) for arm in TRIO}
        combined = trio["combined"]
        label = combined.name if combined else str(entry.get("combined") or entry.get("precision"))
        ratio = as_interval(entry)
        if ratio is None:
            reason = t.message(entry.get("reason") or {"text": t("format.none")})
            found.missing.append((f"{label} [{group}]", reason))
            continue
        kind = str(entry.get("decision"))
        if kind not in KINDS:
            kind = "undecided"
        found.kinds[kind] += 1
        s_q, s_s, measured = (_speedup(trio[arm]) for arm in ("quantization", "speculation",
                                                              "combined"))
        expected = s_q * s_s if s_q is not None and s_s is not None else None
        if expected is not None and combined is not None and combined.speedup is not None:
            found.rows.setdefault(group, []).append(
                InteractionRow(label, expected, combined.speedup, ratio)
            )
        sentence = t(
            f"interaction.{kind}", label=label, ratio=ratio, share=max(0.0, 1 - ratio.mean),
            s_q=s_q, s_s=s_s, expected=expected, measured=measured,
        )  # fmt: skip
        found.sentences.setdefault(group, []).append(sentence)
    return found


def _speedup(method: Method | None) -> float | None:
    return method.speedup.mean if method and method.speedup else None

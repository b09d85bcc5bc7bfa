"""What failed, what was left out, how fine the measurement is, and what it was made on."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reports.language import Language, Message
from reports.methods import Method, mapping
from reports.source import Interval, as_interval
from reports.tables import Cell

_ERROR_CHARACTERS = 400
_HIDDEN_KEYS = frozenset({"schema_version", "fake"})


def failure_rows(failures: Sequence[Any], t: Language) -> list[list[Cell]]:
    """Method, group, blocks and error, a row for each error of a cell."""
    blocks: dict[tuple[str, ...], list[str]] = {}
    for item in failures:
        entry = item if isinstance(item, Mapping) else {"error": item}
        name = str(entry.get("name") or entry.get("method_id") or "?")
        key = (name, str(entry.get("group") or ""), *_error(entry.get("error")))
        blocks.setdefault(key, []).append(str(entry.get("block") or ""))
    return [
        [
            Cell(name),
            Cell(group, text=True),
            Cell(t("format.list_separator").join(found), text=True),
            Cell(message, tail, text=True),
        ]
        for (name, group, message, tail), found in blocks.items()
    ]


def failed_cells(failures: Sequence[Any]) -> int:
    """Cells (a method in a group) that failed in at least one block."""
    return len({(mapping(f).get("group"), mapping(f).get("method_id")) for f in failures})


def _error(error: Any) -> tuple[str, str]:
    """The message with its type, and the tail of stderr where it says more."""
    if not isinstance(error, Mapping):
        return _end(str(error or "")), ""
    kind, message = str(error.get("type") or ""), str(error.get("message") or "")
    tail = str(error.get("stderr_tail") or "").strip()
    text = f"{kind}: {_end(message)}" if kind else _end(message)
    return text, "" if tail in message else _end(tail)


def half_widths(methods: Sequence[Method], groups: Iterable[str], t: Language) -> list[Message]:
    """A sentence for each group: median half-width of its speedup intervals, what is undecided."""
    sentences = []
    for group in groups:
        compared = [m for m in methods if m.group == group and m.role == "method" and m.ok]
        halves = [half for m in compared if (half := half_width(m.speedup)) is not None]
        if not halves:
            continue
        blocks = [n for m in compared if (n := m.mean("blocks")) is not None]
        text = t(
            "failures.half_width", group=group, value=statistics.median(halves), n=len(halves),
            blocks=max(blocks, default=None),
            undecided=sum(m.decision == "undecided" for m in compared),
        )  # fmt: skip
        sentences.append(Message(text, t.code))
    return sentences


def half_width(found: Interval | None) -> float | None:
    """Half of the width of an interval, as a share of its mean."""
    if found is None or found.ci_low is None or found.ci_high is None or not found.mean:
        return None
    return (found.ci_high - found.ci_low) / 2 / found.mean


def noise_sentences(noise_floor: Any, t: Language) -> list[Message]:
    """A sentence for each group's A/A pair."""
    groups = mapping(mapping(noise_floor).get("groups"))
    return [
        Message(t("failures.noise", group=name, value=value), t.code)
        for name, entry in groups.items()
        if (value := as_interval(entry)) is not None
    ]


def left_out_sentences(groups: Iterable[Any], t: Language) -> list[Message]:
    """A sentence for each group that could not use some prompts."""
    sentences = []
    for group in groups:
        left_out = mapping(mapping(group).get("left_out"))
        if left_out.get("count"):
            reason = str(left_out.get("reason") or "")
            text = t(
                "failures.left_out", group=group.get("name"), n=left_out["count"], reason=reason
            )
            sentences.append(Message(text, t.code))
    return sentences


def flat_pairs(tree: Any, t: Language) -> list[tuple[str, str]]:
    """Leaves of a nested mapping as (dotted key, text), in its order."""
    pairs: list[tuple[str, str]] = []

    def walk(node: Any, name: str) -> None:
        if isinstance(node, Mapping):
            for key, value in node.items():
                if key not in _HIDDEN_KEYS:
                    walk(value, f"{name}.{key}" if name else str(key))
        elif node is not None and node != "" and node != []:
            pairs.append((name, _leaf(node, t)))

    walk(tree, "")
    return pairs


def _leaf(value: Any, t: Language) -> str:
    """Text of a leaf; numbers keep their digits, because they are identifiers as often as sizes."""
    if isinstance(value, bool):
        return t.plain(value)
    if isinstance(value, list):
        return t("format.list_separator").join(_leaf(item, t) for item in value)
    return str(value)


def _end(text: str) -> str:
    return text if len(text) <= _ERROR_CHARACTERS else "…" + text[-_ERROR_CHARACTERS:]

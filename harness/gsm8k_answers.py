"""Final numbers in GSM8K answers, extracted and compared as lm-evaluation-harness does.

Its task files `gsm8k` and `gsm8k_cot` (version 3) define the two filters and the normalization.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness import stats

_NUMBER = r"(\-?[0-9\.\,]+)"
STRICT = {
    "hash": re.compile(f"#### {_NUMBER}"),
    "sentence": re.compile(f"The answer is {_NUMBER}."),
}
"""Strict filters by how the prompt shows the final number; the first match counts."""
FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
"""The flexible filter: the last match counts."""
_IGNORED = tuple(re.compile(pattern) for pattern in (",", r"\$", r"(?s).*#### ", r"\.$"))


def reference_number(answer: str) -> str | None:
    """The normalized final number of a reference answer, None without one."""
    return strict(answer, "hash")


def strict(text: str, shown_as: str) -> str | None:
    """The number that `text` gives in the form of its prompt, normalized; None without one."""
    found = STRICT[shown_as].search(text)
    return normalized(found.group(1)) if found else None


def flexible(text: str) -> str | None:
    """The last number in `text`, normalized; None without one.

    As in the original, a match of signs alone (such as `...`) counts as the last number, and is
    then equal to no reference.
    """
    found = [match.group() for match in FLEXIBLE.finditer(text)]
    return normalized(found[-1]) if found else None


def normalized(number: str) -> str:
    """A number as it is compared: without commas, dollar signs and a final point."""
    for pattern in _IGNORED:
        number = pattern.sub("", number)
    return number.strip().lower()


@dataclass(frozen=True)
class Graded:
    """One answer: right by the strict and by the flexible filter; None where it has no number."""

    strict: bool | None
    flexible: bool | None


def grade(text: str, reference: str, shown_as: str) -> Graded:
    """Compare an answer with a reference answer. Raises ValueError where that has no number."""
    expected = reference_number(reference)
    if expected is None:
        raise ValueError("the reference answer has no final number after `####`")
    exact, last = strict(text, shown_as), flexible(text)
    return Graded(
        None if exact is None else exact == expected, None if last is None else last == expected
    )


def accuracy(outcomes: Sequence[bool | None], level: float) -> dict[str, Any]:
    """Share of right answers with Wilson's interval.

    An answer without a number is wrong, and `no_number` counts those.
    """
    right, count = sum(outcome is True for outcome in outcomes), len(outcomes)
    low, high = stats.wilson(right, count, level) if count else (None, None)
    return {
        "mean": right / count if count else None,
        "ci_low": low,
        "ci_high": high,
        "n": count,
        "level": level,
        "right": right,
        "no_number": sum(outcome is None for outcome in outcomes),
    }


def paired_difference(
    ours: Sequence[bool | None], theirs: Sequence[bool | None], level: float
) -> dict[str, Any]:
    """Our accuracy less theirs on the same problems, with Newcombe's interval for pairs.

    Square and add of the two Wilson intervals, less what their correlation explains (Newcombe 1998,
    Statistics in Medicine 17, 2635-2650, method 10). Raises ValueError where the lists differ in
    length or are empty.
    """
    pairs = [(a is True, b is True) for a, b in zip(ours, theirs, strict=True)]
    n = len(pairs)
    if not n:
        raise ValueError("there is no problem to compare on")
    both, first, second, neither = (
        pairs.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))
    )
    right, other = (both + first) / n, (both + second) / n
    low, high = stats.wilson(both + first, n, level)
    other_low, other_high = stats.wilson(both + second, n, level)
    phi = _correlation(both, first, second, neither)
    down = _added(right - low, other_high - other, phi)
    up = _added(high - right, other - other_low, phi)
    mean = (first - second) / n
    return stats.Interval(mean, mean - down, mean + up, n, level).to_json()


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """Phi of a two-by-two table, continuity-corrected; 0 where a margin is empty."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if not margins:
        return 0.0
    product = float(both * neither - first * second)
    if product > 0:
        product = max(product - (both + first + second + neither) / 2, 0.0)
    return product / math.sqrt(margins)


def _added(a: float, b: float, phi: float) -> float:
    return math.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))


def mcnemar(ours: Sequence[bool | None], theirs: Sequence[bool | None]) -> dict[str, Any]:
    """McNemar's exact test of two methods on the same problems (1947; exact binomial form).

    Returns the discordant counts, and the two-sided p value of the smaller one under a fair coin.
    Raises ValueError where the lists differ in length.
    """
    pairs = list(zip(ours, theirs, strict=True))
    only_ours = sum(a is True and b is not True for a, b in pairs)
    only_theirs = sum(b is True and a is not True for a, b in pairs)
    discordant = only_ours + only_theirs
    tail = sum(math.comb(discordant, k) for k in range(min(only_ours, only_theirs) + 1))
    return {
        "n": len(pairs),
        "only_ours": only_ours,
        "only_theirs": only_theirs,
        "p": min(1.0, 2 * tail / 2**discordant),
    }

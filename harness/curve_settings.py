"""Which forward curves a sweep measures: the block `curves` of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import ConfigError, unknown
from harness.vocabulary import MAX_DRAFTED

AUTO = "auto"
MOST_ROWS = MAX_DRAFTED + 1
MOST_CONTEXT = 1 << 20
MOST_REPEATS = 1000


@dataclass(frozen=True)
class CurveSettings:
    """Rows of a forward, tokens in the cache before it, and how often each is timed.

    `tokens` None: one row and what the group's methods verify. `contexts` None: a typical one of
    the group. `show`: a sweep prints the curves at its end.
    """

    tokens: tuple[int, ...] | None
    contexts: tuple[int, ...] | None
    repeats: int
    show: bool

    def as_json(self) -> dict[str, Any]:
        """What of this changes the figures, as `curves.json` keeps it."""
        return {
            "tokens": AUTO if self.tokens is None else list(self.tokens),
            "contexts": AUTO if self.contexts is None else list(self.contexts),
            "repeats": self.repeats,
        }


def read(given: Mapping[str, Any]) -> CurveSettings:
    """Check the block. Raises ConfigError naming the key."""
    keys = ("tokens", "contexts", "repeats", "show")
    for key in given:
        if key not in keys:
            raise unknown("setting", str(key), keys, "curves")
    if not isinstance(given["show"], bool):
        raise ConfigError(f"curves.show={given['show']}: this is either true or false.")
    tokens = _list(given["tokens"], "curves.tokens", 1, MOST_ROWS)
    if tokens and 1 not in tokens:
        raise ConfigError("curves.tokens: 1 is missing, which the others are compared with.")
    return CurveSettings(
        tokens=tokens,
        contexts=_list(given["contexts"], "curves.contexts", 0, MOST_CONTEXT),
        repeats=_whole(given["repeats"], "curves.repeats", 1, MOST_REPEATS),
        show=given["show"],
    )


def _list(value: Any, place: str, low: int, high: int) -> tuple[int, ...] | None:
    if value == AUTO:
        return None
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{place}={value}: write `{AUTO}` or a list, for example [1,2,4].")
    return tuple(sorted({_whole(number, place, low, high) for number in value}))


def _whole(value: Any, place: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{place}={value}: this must be a whole number from {low} to {high}.")
    return value

"""Which drafted tokens are kept: greedily, by rejection sampling, or replayed from a profile.

A replayed profile stands in for acceptance that synthetic weights cannot have. Nothing that it
yields is a measured acceptance, so it names its source, and every record and figure is marked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import ConfigError, refuse_unknown_keys, unknown
from harness.shapes import longest_path
from harness.vocabulary import ACCEPTANCE

_KEYS: Mapping[str, tuple[str, ...]] = {
    "greedy": (), "sampling": ("temperature", "top_p"), "replay": ("profile",),
}  # fmt: skip
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Acceptance:
    """A rule with its settings.

    `temperature` and `top_p` are for `sampling`; `profile` for `replay`: the probability of each
    number of accepted tokens, per level (`accepted`, and `inner` for the rounds in a cascade).
    """

    kind: str = "greedy"
    temperature: float = 1.0
    top_p: float = 1.0
    profile_name: str | None = None
    profile: Mapping[str, Sequence[float]] = field(default_factory=dict)
    source: str | None = None

    def request(self, seed: int) -> dict[str, Any]:
        """The `acceptance` of a worker's `run` request; `seed` decides replayed outcomes."""
        if self.kind != "replay":
            return {"kind": self.kind}
        profile = {level: list(shares) for level, shares in self.profile.items()}
        return {"kind": "replay", "profile": profile, "seed": seed}

    def sampling(self, seed: int) -> dict[str, Any] | None:
        """The `sampling` of a worker's `run` request."""
        if self.kind != "sampling":
            return None
        return {"temperature": self.temperature, "top_p": self.top_p, "seed": seed}

    def settings(self) -> dict[str, Any] | None:
        """What a record keeps besides the kind; None for greedy acceptance."""
        if self.kind == "sampling":
            return {"temperature": self.temperature, "top_p": self.top_p}
        if self.kind == "replay":
            profile = {level: list(shares) for level, shares in self.profile.items()}
            return {"profile": self.profile_name, "source": self.source, **profile}
        return None

    @property
    def suffix(self) -> str:
        """The rule's part of a method's identifier, empty for greedy acceptance."""
        if self.kind == "sampling":
            return f"~sampling-t{self.temperature:g}-p{self.top_p:g}"
        if self.kind == "replay":
            return f"~replay-{self.profile_name}" if self.profile_name else "~replay"
        return ""


def read_acceptance(
    given: Any,
    drafter: Mapping[str, Any],
    shape: Mapping[str, Any],
    profiles: Mapping[str, Any],
    place: str,
) -> Acceptance:
    """The rule of a method with this drafter and shape. Raises ConfigError naming the key.

    Without a drafter nothing is accepted, so that `replay` decodes greedily.
    """
    entry = {"kind": given} if isinstance(given, str) else given
    if not isinstance(entry, Mapping) or entry.get("kind") not in ACCEPTANCE:
        named = entry.get("kind") if isinstance(entry, Mapping) else entry
        raise unknown("acceptance", str(named), ACCEPTANCE, place)
    kind = str(entry["kind"])
    refuse_unknown_keys(entry, ("kind", *_KEYS[kind]), place)
    if kind == "sampling":
        return _sampling(entry, place)
    if kind == "replay" and drafter["kind"] != "none":
        return _replay(entry.get("profile"), drafter, shape, profiles, f"{place}.profile")
    return Acceptance()


def _sampling(entry: Mapping[str, Any], place: str) -> Acceptance:
    temperature = _number(entry.get("temperature", 1.0), f"{place}.temperature")
    top_p = _number(entry.get("top_p", 1.0), f"{place}.top_p")
    if temperature < 0:
        raise ConfigError(
            f"{place}.temperature={temperature:g}: a temperature is 0 or more; 0 is greedy."
        )
    if not 0 < top_p <= 1:
        raise ConfigError(f"{place}.top_p={top_p:g}: this share is above 0 and at most 1.")
    return Acceptance("sampling", temperature=temperature, top_p=top_p)


def _replay(
    given: Any,
    drafter: Mapping[str, Any],
    shape: Mapping[str, Any],
    profiles: Mapping[str, Any],
    place: str,
) -> Acceptance:
    name = given if isinstance(given, str) else None
    if name is not None:
        if name not in profiles:
            raise unknown("profile", name, profiles, place)
        given, place = profiles[name], f"profiles.{name}"
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{place}: `replay` needs a profile: the name of one under `profiles`, or "
            "{accepted: [p0, p1, ...], source: TEXT}."
        )
    refuse_unknown_keys(given, ("accepted", "rate", "inner", "source"), place)
    if not isinstance(given.get("source"), str):
        raise ConfigError(
            f"{place}.source: say where the profile comes from, or write the word assumed."
        )
    levels: dict[str, Sequence[float]] = {}
    if drafter["kind"] == "cascade":
        inner_path = longest_path(drafter["inner_shape"])
        inner = given.get("inner")
        if not isinstance(inner, Mapping):
            raise ConfigError(
                f"{place}.inner: the rounds inside a cascade need a profile of their own."
            )
        refuse_unknown_keys(inner, ("accepted", "rate"), f"{place}.inner")
        levels["inner"] = _shares(inner, inner_path, f"{place}.inner")
    levels["accepted"] = _shares(given, longest_path(shape), place)
    return Acceptance("replay", profile_name=name, profile=levels, source=given["source"])


def _shares(level: Mapping[str, Any], longest: int, place: str) -> list[float]:
    """The probability of accepting exactly k of at most `longest` tokens, k = 0, 1, ..."""
    if ("accepted" in level) == ("rate" in level):
        raise ConfigError(
            f"{place}: give either `accepted`, the probabilities of 0, 1, 2 ... accepted tokens, "
            "or `rate`, the probability that each next one is."
        )
    if "rate" in level:
        rate = _probability(level["rate"], f"{place}.rate")
        return [rate**k * (1 - rate) for k in range(longest)] + [rate**longest]
    given = level["accepted"]
    if not isinstance(given, list) or not given:
        raise ConfigError(f"{place}.accepted={given}: this is a list of probabilities.")
    shares = [_probability(p, f"{place}.accepted[{k}]") for k, p in enumerate(given)]
    if not math.isclose(sum(shares), 1.0, abs_tol=_SUM_TOLERANCE):
        raise ConfigError(f"{place}.accepted: the probabilities add up to {sum(shares):g}, not 1.")
    if len(shares) > longest + 1:
        raise ConfigError(
            f"{place}.accepted: {len(shares)} probabilities speak of up to {len(shares) - 1} "
            f"accepted tokens, and a round of this shape accepts at most {longest}."
        )
    return shares


def _probability(value: Any, place: str) -> float:
    number = _number(value, place)
    if not 0 <= number <= 1:
        raise ConfigError(f"{place}={number:g}: a probability lies between 0 and 1.")
    return number


def _number(value: Any, place: str) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not math.isfinite(float(value))
    ):
        raise ConfigError(f"{place}={value}: this must be a number.")
    return float(value)

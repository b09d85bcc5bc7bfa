"""The methods of a summary as objects, and the choices that the report makes among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reports.source import Interval, as_interval, as_number

ARMS = ("baseline", "quantization", "speculation", "combined")


@dataclass(frozen=True)
class Method:
    """One entry of `methods`. Figures that the analysis left out are None."""

    raw: Mapping[str, Any]
    method_id: str
    name: str
    arm: str
    group: str
    role: str
    status: str
    decision: str

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def speculative(self) -> bool:
        return str(mapping(self.raw.get("drafter")).get("kind", "none")) != "none"

    @property
    def speedup(self) -> Interval | None:
        return self.interval("speedup")

    def interval(self, key: str, inside: str | None = None) -> Interval | None:
        """Interval `key` of the entry, or of its object `inside` (`quality`, `cost`).

        Keys whose frozen form is a plain number have their interval under `intervals`.
        """
        if inside is None:
            measured = as_interval(mapping(self.raw.get("intervals")).get(key))
            if measured is not None:
                return measured
        return as_interval(self._holder(inside).get(key))

    def value(self, key: str, inside: str | None = None) -> Any:
        return self._holder(inside).get(key)

    def mean(self, key: str, inside: str | None = None) -> float | None:
        found = self.interval(key, inside)
        return found.mean if found else None

    def rates(self) -> list[float]:
        """Unconditional acceptance rate of each draft position; empty for plain methods."""
        values = self.raw.get("per_position_acceptance_rates")
        if not isinstance(values, list):
            return []
        return [n for v in values if (n := as_number(v)) is not None]

    def _holder(self, inside: str | None) -> Mapping[str, Any]:
        return self.raw if inside is None else mapping(self.raw.get(inside))


def read_methods(summary: Mapping[str, Any]) -> list[Method]:
    """All entries of the summary in its order, the A/A copies of the baseline included."""
    return [
        Method(
            raw=entry,
            method_id=str(entry.get("method_id", "?")),
            name=str(entry.get("name") or entry.get("method_id", "?")),
            arm=str(entry.get("arm", "?")),
            group=str(entry.get("group", "")),
            role=str(entry.get("role") or "method"),
            status=str(entry.get("status") or "ok"),
            decision=str(entry.get("decision") or "undecided"),
        )
        for entry in summary.get("methods", [])
        if isinstance(entry, Mapping)
    ]


def group_names(methods: Iterable[Method]) -> list[str]:
    """Groups in the order in which their methods first appear."""
    return list(dict.fromkeys(m.group for m in methods))


@dataclass(frozen=True)
class ArmChoice:
    """What an arm offers in a group: the method that the analysis picked, with the effect that it
    estimated on blocks that did not pick it; or the finding why there is none."""

    arm: str
    method: Method | None
    estimates: Mapping[str, Interval]
    cost: Mapping[str, Any]
    reason: Any


def arm_choices(
    summary: Mapping[str, Any], methods: Iterable[Method], group: str
) -> list[ArmChoice]:
    """The baseline and then each arm of a group, in the order of `ARMS`."""
    in_group = [m for m in methods if m.group == group]
    entries = {
        str(e.get("arm")): e
        for e in summary.get("arms") or []
        if isinstance(e, Mapping) and e.get("group") == group
    }
    choices = []
    for arm in ARMS:
        entry = mapping(entries.get(arm))
        if arm == "baseline":
            method = next((m for m in in_group if m.role == "baseline"), None)
        else:
            method = find_method(in_group, group, entry.get("method_id"))
        cost = mapping(entry.get("cost")) or mapping(method.value("cost") if method else None)
        estimates = {
            key: value
            for key in ("speedup", "end_to_end_speedup")
            if (value := as_interval(entry.get(key))) is not None
        }
        choices.append(ArmChoice(arm, method, estimates, cost, entry.get("reason")))
    return choices


def find_method(methods: Iterable[Method], group: Any, method_id: Any) -> Method | None:
    """The method of an identifier in a group; never the A/A copy of the baseline."""
    return next(
        (m for m in methods if m.group == group and m.method_id == method_id and m.role != "noise"),
        None,
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` where it is a mapping, an empty one otherwise."""
    return value if isinstance(value, Mapping) else {}


def by_group(summary: Mapping[str, Any], key: str) -> dict[str, list[Mapping[str, Any]]]:
    """The entries of a list in the summary by their group, in its order."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in summary.get(key) or []:
        found.setdefault(str(mapping(entry).get("group")), []).append(mapping(entry))
    return found

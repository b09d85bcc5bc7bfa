"""Candidates for the verdict: which methods may be adopted, the best of them, and what it earns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.comparison import Group, Key
from harness.cost import ARMS, CostModel
from harness.method_rows import speedups
from harness.roi import Throughputs, net_value, roi, throughputs
from harness.selection import Winner, pick_winner

Rows = Mapping[Key, dict[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """A picked method with its cross-fitted effects and what they are worth.

    `cost` is the ROI object, None without a cost model; `adoptable` says that nothing but money and
    certainty stands against it.
    """

    winner: Winner
    arm: str
    adoptable: bool
    cost: dict[str, Any] | None
    throughputs: Throughputs | None

    @property
    def method_id(self) -> str:
        return self.winner.key[0]


def adoptable(row: Mapping[str, Any]) -> bool:
    """Measured, real weights, real acceptance, inside the quality tolerance and the SLO."""
    return (
        row["status"] == "ok"
        and not row["synthetic"]
        and row["acceptance"] != "replay"
        and row["quality_gate"]["passed"] is True
        and bool(row["slo"] and row["slo"]["passed"])
    )


def choose(
    group: Group, rows: Rows, keys: Sequence[Key], model: CostModel | None
) -> Candidate | None:
    """The best of `keys`: by net value, then by speed. None where nothing can be picked."""

    def score(key: Key, log_speedup: float) -> tuple[float, ...]:
        if model is None:
            return (log_speedup,)
        baseline = math.exp(float(group.end_to_end.values[:, 0].mean()))
        value = net_value(model, str(rows[key]["arm"]), baseline, math.exp(log_speedup))
        return (value, log_speedup)

    winner = pick_winner(group, keys, score)
    if winner is None:
        return None
    arm = str(rows[winner.key]["arm"])
    found = throughputs(group, winner.key, winner.end_to_end_speedup)
    cost = roi(model, arm, found, group.settings.level) if model and found else None
    return Candidate(winner, arm, adoptable(rows[winner.key]), cost, found)


def pool(rows: Rows, keys: Sequence[Key]) -> list[Key]:
    """The adoptable ones of `keys`; without any, those not refused for quality; then all."""
    for test in (adoptable, lambda row: row["quality_gate"]["passed"] is not False):
        found = [key for key in keys if test(rows[key])]
        if found:
            return found
    return list(keys)


def arm_candidates(
    group: Group, rows: Rows, model: CostModel | None
) -> dict[str, Candidate | None]:
    """The candidate of each arm of a group."""
    found: dict[str, Candidate | None] = {}
    for arm in ARMS:
        keys = [key for key in group.methods if rows[key]["arm"] == arm]
        found[arm] = choose(group, rows, pool(rows, keys), model)
    return found


def method_costs(group: Group, model: CostModel) -> dict[Key, dict[str, Any]]:
    """The ROI object of every complete cell, from its own simultaneous interval."""
    costs = {}
    for key, _, end_to_end in speedups(group):
        found = throughputs(group, key, end_to_end)
        if found is not None:
            arm = str(group.cell(key)["arm"])
            costs[key] = roi(model, arm, found, group.settings.level)
    return costs

"""The verdict of a run: one group's decision, and where it holds among the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.conditions import conditions, plain_words
from harness.cost import CostModel
from harness.errors import ConfigError
from harness.roi import sensitivity
from harness.selection import SELECTED_ON
from harness.verdict import Evidence, GroupVerdict


def recommend(
    decided: Sequence[tuple[Evidence, GroupVerdict]], model: CostModel | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the verdict, the sensitivity of its net value) at the operating point."""
    primary = _operating_point(decided, model)
    evidence, outcome = decided[primary]
    candidate = outcome.candidate
    rows: list[dict[str, Any]] = []
    if candidate and candidate.throughputs and model:
        speedup = candidate.winner.end_to_end_speedup.exp()
        rows = sensitivity(model, candidate.arm, candidate.throughputs, speedup)
    verdict = {
        "decision": outcome.decision,
        "arm": outcome.arm,
        "method_id": candidate and candidate.method_id,
        "group": evidence.group.name,
        "conditions": conditions(primary, decided),
        "reasons": outcome.reasons + plain_words(primary, decided),
        "cost": candidate and candidate.cost,
        "speedup": candidate and candidate.winner.speedup.exp().to_json(),
        "end_to_end_speedup": candidate and candidate.winner.end_to_end_speedup.exp().to_json(),
        "selected_on": candidate and SELECTED_ON,
        "next_measurement": outcome.next_measurement,
        "by_group": [
            {"group": other.group.name, "decision": found.decision, "arm": found.arm,
             "method_id": found.candidate and found.candidate.method_id,
             "reasons": found.reasons}
            for other, found in decided
        ],
    }  # fmt: skip
    return verdict, rows


def _operating_point(
    decided: Sequence[tuple[Evidence, GroupVerdict]], model: CostModel | None
) -> int:
    """Place of the group that the verdict speaks of: the configured one, else the first.

    Groups stand with natural lengths first and the smallest batch first. Raises ConfigError where
    the configured point was not measured.
    """
    wanted = model.operating_point if model else {}
    cells = [e.group.cell(e.group.baseline) for e, _ in decided]
    for place, cell in enumerate(cells):
        if all(value in (None, cell[axis]) for axis, value in wanted.items()):
            return place
    measured = ", ".join(f"({c['batch_size']}, {c['context_length']})" for c in cells)
    raise ConfigError(
        f"cost.operating_point={dict(wanted)} was not measured. Measured (batch_size, "
        f"context_length) are {measured}: name one of these, or null."
    )

"""The decision of a group: adopt, pilot, reject or undecided, by the rules of docs/statistics.md.

- adopt: net value above 0 at its low end, a speedup that is decided, the quality gate and the SLO
  passed, real weights, measured acceptance;
- pilot: the same, but something was assumed or not tested;
- reject: net value at or below 0 at its high end for all methods, or no method inside the quality
  tolerance;
- undecided: otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.candidates import Candidate, Rows, adoptable, choose, pool
from harness.comparison import Group, Key
from harness.cost import CostModel
from harness.findings import Finding, finding
from harness.roi import net_value
from harness.selection import MIN_BLOCKS

HOPELESS = 50  # times the blocks measured so far: more is not worth naming as a plan


@dataclass(frozen=True)
class Evidence:
    """A group as the verdict sees it. `caveats` are what makes an adoption a pilot."""

    group: Group
    rows: Rows
    arms: Mapping[str, Candidate | None]
    model: CostModel | None
    caveats: tuple[Finding, ...]


@dataclass(frozen=True)
class GroupVerdict:
    """The decision of one group, for the method of `candidate`."""

    decision: str
    candidate: Candidate | None
    reasons: list[Finding] = field(default_factory=list)
    next_measurement: Finding | None = None

    @property
    def arm(self) -> str | None:
        """The arm to run: the baseline where everything else was rejected."""
        if self.decision == "reject":
            return "baseline"
        return self.candidate.arm if self.candidate else None


def decide_group(evidence: Evidence) -> GroupVerdict:
    """The decision of a group, its reasons, and the cheapest next measurement where it is open."""
    group, rows, model = evidence.group, evidence.rows, evidence.model
    methods = group.methods
    if not methods:
        return GroupVerdict(
            "undecided", None, [finding("no_candidate")],
            finding("repair_failures", group=group.name),
        )  # fmt: skip
    candidates = _candidates(evidence)
    first = candidates[0] if candidates else None
    needed = max(group.settings.min_blocks, MIN_BLOCKS)
    if len(group.blocks) < needed:
        reason = finding("too_few_blocks", blocks=len(group.blocks), min_blocks=needed)
        more = finding("first_blocks", blocks=needed - len(group.blocks), group=group.name)
        return GroupVerdict("undecided", first, [reason], more)
    if model is None:
        return GroupVerdict("undecided", first, [finding("cost_unknown")], finding("set_cost"))
    if all(rows[key]["quality_gate"]["passed"] is False for key in methods):
        return GroupVerdict("reject", first, [finding("quality_failed_all"), *_gates(evidence)])
    for candidate in candidates:
        if candidate.adoptable and _pays(candidate) and _is_faster(candidate, group):
            reasons = [_net_value_reason(candidate, model, "net_value_positive"),
                       _speedup_reason(candidate, group, "speedup_decided")]  # fmt: skip
            decision = "pilot" if evidence.caveats else "adopt"
            return GroupVerdict(decision, candidate, reasons + list(evidence.caveats))
    highest = _highest_net_value(evidence)
    if highest is not None and highest <= 0:
        reason = finding("net_value_negative", high=highest, months=model.horizon_months,
                         currency=model.currency)  # fmt: skip
        return GroupVerdict("reject", first, [reason])
    return _undecided(evidence, candidates)


def _candidates(evidence: Evidence) -> list[Candidate]:
    """The best of all methods, then the best of each arm by its expected net value."""
    group, rows, model = evidence.group, evidence.rows, evidence.model
    first = choose(group, rows, pool(rows, group.methods), model)
    others = [
        c for c in evidence.arms.values()
        if c and first and c.winner.key != first.winner.key
    ]  # fmt: skip
    others.sort(key=lambda c: -(c.cost["net_value"]["mean"] if c.cost else 0.0))
    return [first, *others] if first else []


def _pays(candidate: Candidate) -> bool:
    return bool(candidate.cost and candidate.cost["net_value"]["ci_low"] > 0)


def _is_faster(candidate: Candidate, group: Group) -> bool:
    return candidate.winner.end_to_end_speedup.ci_low > group.settings.zone


def _highest_net_value(evidence: Evidence) -> float | None:
    """The largest high end of a net value over all methods that quality does not exclude.

    Every method counts, from its simultaneous interval, so that nothing is rejected because of how
    a winner was picked. None where one of them is not known.
    """
    ends = []
    for key in evidence.group.methods:
        row = evidence.rows[key]
        if row["quality_gate"]["passed"] is not False:
            end = row["cost"] and row["cost"]["net_value"]["ci_high"]
            if end is None:
                return None
            ends.append(float(end))
    return max(ends, default=None)


def _undecided(evidence: Evidence, candidates: list[Candidate]) -> GroupVerdict:
    group, model = evidence.group, evidence.model
    first = candidates[0] if candidates else None
    if first is None or model is None:
        return GroupVerdict("undecided", first)
    reasons: list[Finding] = []
    if not first.adoptable:
        reasons = _obstacles(evidence, first.winner.key)
        return GroupVerdict("undecided", first, reasons, _remedy(evidence, first.winner.key))
    if not _pays(first):
        reasons.append(_net_value_reason(first, model, "net_value_open"))
    if not _is_faster(first, group):
        reasons.append(_speedup_reason(first, group, "speedup_open"))
    plans = [plan for c in candidates if c.adoptable and (plan := blocks_needed(c, group, model))]
    if not plans:
        half_width = _half_width(first)
        hopeless = finding("too_close", method=first.method_id, group=group.name,
                           half_width=half_width)  # fmt: skip
        return GroupVerdict("undecided", first, reasons, hopeless)
    blocks, candidate, needed = min(plans, key=lambda plan: plan[0])
    more = finding("more_blocks", blocks=blocks, group=group.name, method=candidate.method_id,
                   half_width=_half_width(candidate), needed=needed)  # fmt: skip
    return GroupVerdict("undecided", first, reasons, more)


def blocks_needed(
    candidate: Candidate, group: Group, model: CostModel
) -> tuple[int, Candidate, float] | None:
    """(further blocks, candidate, half-width that decides), by the law of 1/sqrt(blocks).

    The limit to get clear of is the speedup that breaks even, or the zone of no difference where
    that is higher. None where it would take more than HOPELESS times what was measured.
    """
    interval = candidate.winner.end_to_end_speedup
    if candidate.throughputs is None:
        return None
    limit = max(group.settings.zone, math.log(_break_even(candidate, model)))
    needed = abs(interval.mean - limit)
    blocks = len(group.blocks)
    width = interval.ci_high - interval.mean
    if needed <= 0 or width <= 0:
        return None
    total = blocks * (width / needed) ** 2
    if total > HOPELESS * blocks:
        return None
    return max(1, math.ceil(total) - blocks), candidate, needed


def _break_even(candidate: Candidate, model: CostModel) -> float:
    """The smallest end-to-end speedup with a net value above 0, by bisection; at most 1000."""
    assert candidate.throughputs is not None
    baseline = math.exp(float(candidate.throughputs.baseline[0]))
    low, high = 1.0, 1000.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        if net_value(model, candidate.arm, baseline, middle) > 0:
            high = middle
        else:
            low = middle
    return high


def _half_width(candidate: Candidate) -> float:
    interval = candidate.winner.end_to_end_speedup
    return (interval.ci_high - interval.ci_low) / 2


def _net_value_reason(candidate: Candidate, model: CostModel, key: str) -> Finding:
    assert candidate.cost is not None
    value = candidate.cost["net_value"]
    return finding(key, low=value["ci_low"], high=value["ci_high"], currency=model.currency,
                   months=model.horizon_months)  # fmt: skip


def _speedup_reason(candidate: Candidate, group: Group, key: str) -> Finding:
    ratio = candidate.winner.end_to_end_speedup.exp()
    return finding(key, method=candidate.method_id, speedup=ratio.mean, low=ratio.ci_low,
                   high=ratio.ci_high, n=ratio.n, min_effect=group.settings.min_effect)  # fmt: skip


def _gates(evidence: Evidence) -> list[Finding]:
    """Why each target failed the gate; a method that inherits its quality adds nothing."""
    return [
        reason
        for key in evidence.group.methods
        if evidence.rows[key]["drafter"]["kind"] == "none"
        for reason in evidence.rows[key]["quality_gate"]["reasons"]
    ]


def _obstacles(evidence: Evidence, key: Key) -> list[Finding]:
    """What keeps a method from being adopted, besides money and certainty."""
    row, name, found = evidence.rows[key], key[0], []
    if row["synthetic"]:
        found.append(finding("synthetic", method=name))
    if row["acceptance"] == "replay":
        found.append(finding("replayed", method=name))
    if row["quality_gate"]["passed"] is not True:
        found += row["quality_gate"]["reasons"]
    slo = row["slo"]
    if slo and not slo["passed"]:
        found.append(finding("slo_failed", method=name, attainment=slo["attainment"]["mean"],
                             n=slo["n"], required=slo["required"], ttft_ms=slo["ttft_ms"],
                             tpot_ms=slo["tpot_ms"]))  # fmt: skip
    return found


def _remedy(evidence: Evidence, key: Key) -> Finding:
    """The measurement that would remove a method's first obstacle."""
    row = evidence.rows[key]
    assert not adoptable(row)
    if row["synthetic"] or row["acceptance"] == "replay":
        return finding("measure_real_weights", method=key[0])
    if row["quality_gate"]["passed"] is not True:
        return finding("measure_quality", method=key[0], group=evidence.group.name)
    return finding("meet_slo", method=key[0], group=evidence.group.name)

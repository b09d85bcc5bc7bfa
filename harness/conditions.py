"""Where a verdict holds, and what must be said beside it in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.comparison import Contrast, Group, Key
from harness.findings import Finding, finding
from harness.selection import best, by_speed, cross_fit
from harness.stats import FloatArray, decide
from harness.verdict import Evidence, GroupVerdict

Decided = Sequence[tuple[Evidence, GroupVerdict]]


def conditions(primary: int, decided: Decided) -> list[Finding]:
    """Conditions of the verdict of `decided[primary]`, from what the other groups decided."""
    evidence, verdict = decided[primary]
    cell = evidence.group.cell(evidence.group.baseline)
    found = []
    recommended = verdict.decision in ("adopt", "pilot")
    if recommended:
        found += _batch_limit(primary, decided)
    for place, (other, outcome) in enumerate(decided):
        if place == primary:
            continue
        if outcome.decision in ("adopt", "pilot"):
            same = recommended and outcome.arm == verdict.arm
            key = "holds_at" if same else "other_at"
        else:
            key = {"reject": "baseline_at", "undecided": "undecided_at"}[outcome.decision]
        params = _place(other.group)
        if key == "other_at":
            assert outcome.candidate is not None
            params |= {"arm": outcome.arm, "method": outcome.candidate.method_id}
        found.append(finding(key, **params))
    found.append(finding("workload_only", workload=cell["workload"], device=cell["device"]))
    return found


def _place(group: Group) -> dict[str, Any]:
    cell = group.cell(group.baseline)
    return {"group": group.name, "batch": cell["batch_size"], "context": cell["context_length"]}


def _batch_limit(primary: int, decided: Decided) -> list[Finding]:
    """The largest batch, at the verdict's context, up to which the same arm is recommended."""
    evidence, verdict = decided[primary]
    here = _place(evidence.group)
    ladder = sorted(
        (
            (_place(other.group)["batch"], outcome)
            for other, outcome in decided
            if _place(other.group)["context"] == here["context"]
            and _place(other.group)["batch"] >= here["batch"]
        ),
        key=lambda step: step[0],
    )
    limit = None
    for batch, outcome in ladder:
        if outcome.decision not in ("adopt", "pilot") or outcome.arm != verdict.arm:
            break
        limit = batch
    return [] if limit is None else [finding("batch_limit", max_batch=limit)]


def plain_words(primary: int, decided: Decided) -> list[Finding]:
    """What a reader must hear even where it does not carry the decision."""
    evidence, verdict = decided[primary]
    found = []
    for other, _ in decided:
        found += _combined_against_one_arm(other) + _combined_against_target(other)
    found += [word for other, _ in decided for word in _unsteady(other.group)]
    if verdict.candidate and verdict.decision != "reject":
        row = evidence.rows[verdict.candidate.winner.key]
        if row["lossless"] is False:
            compared = row["losslessness"]
            found.append(finding("output_differs", method=verdict.candidate.method_id,
                                 mismatches=compared["mismatches"],
                                 compared=compared["tokens_compared"]))  # fmt: skip
        if row["arm"] == "speculation" and row["drafter_label"] == "quantized_drafter":
            found.append(finding("quantized_drafter", method=verdict.candidate.method_id))
        found += _larger_batch(primary, decided)
    return found


def _combined_against_one_arm(evidence: Evidence) -> list[Finding]:
    """The best combined method against the best of each single arm, cross-fitted."""
    group, found = evidence.group, []
    arms: dict[str, list[Key]] = {}
    for key in group.methods:
        arms.setdefault(str(evidence.rows[key]["arm"]), []).append(key)
    for arm in ("quantization", "speculation"):
        if not arms.get("combined") or not arms.get(arm):
            continue

        def against(means: FloatArray, arm: str = arm) -> Contrast:
            combined = best(group, means, arms["combined"], by_speed)
            return {combined: 1.0, best(group, means, arms[arm], by_speed): -1.0}

        fit = cross_fit(group, against)
        if fit is None or len(group.blocks) < group.settings.min_blocks:
            continue
        if decide(fit.decode.ci_low, fit.decode.ci_high, group.settings.zone) == "slower":
            overall = against(np.asarray(group.end_to_end.values.mean(axis=0)))
            names = {weight: key[0] for key, weight in overall.items()}
            ratio = fit.decode.exp()
            found.append(finding("combined_slower", group=group.name, combined=names[1.0],
                                 single=names[-1.0], arm=arm, ratio=ratio.mean,
                                 low=ratio.ci_low, high=ratio.ci_high))  # fmt: skip
    return found


def _combined_against_target(evidence: Evidence) -> list[Finding]:
    """How many combined methods lose against their own quantized target without a drafter."""
    combined = [
        row for key, row in evidence.rows.items()
        if key in evidence.group.methods and row["arm"] == "combined" and row["versus_target"]
    ]  # fmt: skip
    slower = [row for row in combined if row["versus_target_decision"] == "slower"]
    if not slower:
        return []
    worst: Mapping[str, Any] = min(slower, key=lambda row: float(row["versus_target"]["mean"]))
    ratio = worst["versus_target"]
    return [
        finding("drafting_slower", group=evidence.group.name, count=len(slower),
                total=len(combined), method=worst["method_id"], ratio=ratio["mean"],
                low=ratio["ci_low"], high=ratio["ci_high"])
    ]  # fmt: skip


def _unsteady(group: Group) -> list[Finding]:
    """Says so where two runs of the same baseline decidedly differ."""
    if group.noise is None:
        return []
    ratio = group.single(group.versus_baseline(group.noise))
    if decide(ratio.ci_low, ratio.ci_high, group.settings.zone) not in ("faster", "slower"):
        return []
    shown = ratio.exp()
    return [
        finding("noise_floor_open", group=group.name, ratio=shown.mean, low=shown.ci_low,
                high=shown.ci_high, min_effect=group.settings.min_effect)
    ]  # fmt: skip


def _larger_batch(primary: int, decided: Decided) -> list[Finding]:
    """Says so where the baseline at a larger batch is cheaper than the verdict's method."""
    evidence, verdict = decided[primary]
    candidate, here = verdict.candidate, _place(evidence.group)
    if candidate is None or candidate.cost is None:
        return []
    cost = candidate.cost["per_million_tokens"]
    for other, _ in decided:
        place = _place(other.group)
        baseline = other.rows[other.group.baseline]["cost"]
        if place["context"] != here["context"] or place["batch"] <= here["batch"] or not baseline:
            continue
        alone = baseline["per_million_tokens"]
        if alone["ci_high"] < cost["ci_low"]:
            return [
                finding("larger_batch_cheaper", batch=place["batch"], baseline_cost=alone["mean"],
                        cost=cost["mean"], currency=candidate.cost["currency"],
                        method=candidate.method_id)
            ]  # fmt: skip
    return []

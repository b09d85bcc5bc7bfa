"""Quality of a precision against the baseline's: agreement, KL divergence, perplexity; the gate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.comparison import Group, Key
from harness.derive import RecordError
from harness.findings import Finding, finding
from harness.stats import FloatArray, Interval, ratio_intervals, wilson

SUMS = ("positions", "agree", "kl_sum", "nll_sum", "ref_nll_sum")


def plain_target(group: Group, key: Key) -> Key | None:
    """The method's target without a drafter: same worker and precisions. None if not in the group.

    A plain method is its own target.
    """
    return _plain(group, group.cell(key))


def _plain(group: Group, target: Mapping[str, Any]) -> Key | None:
    """The plain method of `group` that computes what the cell `target` verifies with."""
    for other in group.trials:
        cell = group.cell(other)
        plain = cell["drafter"]["kind"] == "none" and other[1] != "noise"
        if plain and _target_axes(cell) == _target_axes(target):
            return other
    return None


def _target_axes(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cell.get(axis) for axis in ("worker", "precision", "kv_precision", "head"))


def clusters(scores: Iterable[Mapping[str, Any]]) -> FloatArray:
    """Sums by sequence id, (sequences, 5) in the order of SUMS.

    A prompt that was scored in several blocks is one cluster: its repeats are not independent.
    """
    found: dict[str, FloatArray] = {}
    for score in scores:
        for sequence in score["sequences"]:
            row = np.array([float(sequence[name]) for name in SUMS])
            if not np.isfinite(row).all() or row[0] < 0:
                raise RecordError(f"quality of sequence {sequence['id']} holds a bad value.")
            identity = str(sequence["id"])
            found[identity] = found.get(identity, np.zeros(len(SUMS))) + row
    rows = [row for row in found.values() if row[0] > 0]
    return np.array(rows).reshape(-1, len(SUMS))


def measured_quality(group: Group, key: Key, others: Sequence[Group] = ()) -> dict[str, Any] | None:
    """The `quality` object of a method in a group, None where nothing was scored.

    A speculative method has the quality of its target: greedy acceptance gives its tokens, sampling
    acceptance its distribution. A sweep scores each precision in one group, because the logits of
    a row do not depend on the batch; where `group` has no scores, they are those of the first of
    `others` that has some for the same model, workload and target, and `measured_in` names it.
    """
    cell = group.cell(key)
    for place in (group, *others):
        source = _plain(place, cell)
        if source is None or any(
            place.cell(source)[axis] != cell[axis] for axis in ("model", "workload")
        ):
            continue
        scores = [t.quality for t in place.trials[source].values() if t.ok and t.quality]
        rows = clusters(scores)
        if len(rows):
            return _quality(place, key, source, scores, rows)
    return None


def _quality(
    group: Group,
    key: Key,
    source: Key,
    scores: Sequence[Mapping[str, Any]],
    rows: FloatArray,
) -> dict[str, Any]:
    """The `quality` object from the sums `rows` (sequences, 5) of the plain method `source`."""
    settings, rng = group.settings, group.rng(f"quality {source[0]}")
    positions, agree, kl, nll, ref_nll = rows.T
    rate, divergence, log_perplexity, ref_log_perplexity, log_ratio = ratio_intervals(
        np.array([agree, kl, nll, ref_nll, nll - ref_nll]).T,
        np.array([positions] * 5).T,
        settings.level, settings.bootstrap_draws, rng,
    )  # fmt: skip
    low, high = wilson(int(agree.sum()), int(positions.sum()), settings.level)
    agreement = Interval(
        rate.mean, min(rate.ci_low, low), max(rate.ci_high, high), rate.n, rate.level
    )
    return {
        "precision": scores[0]["precision"],
        "reference": scores[0]["reference"],
        "inherited_from": None if source == key else source[0],
        "measured_in": group.name,
        "agreement_rate": agreement.clipped(0.0, 1.0).to_json(),
        "kl": divergence.clipped(0.0, math.inf).to_json(),
        "perplexity": log_perplexity.exp().to_json(),
        "ref_perplexity": ref_log_perplexity.exp().to_json(),
        "perplexity_ratio": log_ratio.exp().to_json(),
        **_flips(scores, group),
    }


def _flips(scores: Sequence[Mapping[str, Any]], group: Group) -> dict[str, Any]:
    """Share of positions with another best token, where the reference hesitated and elsewhere.

    Null where a record does not tell them apart.
    """
    sequences = [sequence for score in scores for sequence in score["sequences"]]
    if any("near_tie_flips" not in sequence for sequence in sequences):
        return {"near_tie_flips": None, "clear_flips": None}
    sums: dict[str, FloatArray] = {}
    for sequence in sequences:
        positions, near = float(sequence["positions"]), float(sequence["near_tie_flips"])
        row = np.array([near, positions - sequence["agree"] - near, positions])
        identity = str(sequence["id"])
        sums[identity] = sums.get(identity, np.zeros(3)) + row
    rows = np.array([row for row in sums.values() if row[2] > 0])
    settings = group.settings
    shares = ratio_intervals(
        rows[:, :2], rows[:, [2, 2]], settings.level, settings.bootstrap_draws, group.rng("flips")
    )
    near_tie, clear = (share.clipped(0.0, 1.0).to_json() for share in shares)
    return {"near_tie_flips": near_tie, "clear_flips": clear}


def gate(
    group: Group,
    key: Key,
    quality: Mapping[str, Any] | None,
    tolerance: Mapping[str, float] | None,
    task: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`{passed, reasons}`: the quality gate, at the pessimistic end of each interval.

    A method whose target computes what the baseline computes passes by construction. `passed` is
    null where nothing was scored, or where there is no tolerance to hold it against. The loss of
    accuracy counts where the workload's answers were graded and there is a tolerance for it.
    """
    name = key[0]
    if any(trial.status == "rejected_by_quality" for trial in group.trials[key].values()):
        return {"passed": False, "reasons": [finding("quality_rejected_in_record", method=name)]}
    if _target_axes(group.cell(key)) == _target_axes(group.cell(group.baseline)):
        return {"passed": True, "reasons": []}
    if quality is None or tolerance is None:
        return {"passed": None, "reasons": [finding("quality_unmeasured", method=name)]}
    reasons = []
    for measure, end, sign in (
        ("perplexity_ratio", "ci_high", 1), ("kl", "ci_high", 1), ("agreement_rate", "ci_low", -1),
    ):  # fmt: skip
        value, limit = quality[measure][end], tolerance[measure]
        if value is None:  # one sequence: the end of its interval is unknown
            return {"passed": None, "reasons": [finding("quality_unmeasured", method=name)]}
        if sign * (value - limit) > 0:
            reasons.append(_failure(name, measure, value, limit))
    if task and task["difference"] and "accuracy_loss" in tolerance:
        loss, limit = -task["difference"]["ci_low"], tolerance["accuracy_loss"]
        if loss > limit:
            reasons.append(_failure(name, "accuracy_loss", loss, limit))
    return {"passed": not reasons, "reasons": reasons}


def _failure(method: str, measure: str, value: float, limit: float) -> Finding:
    return finding("quality_failed", method=method, measure=measure, value=value, limit=limit)


def losslessness(group: Group, key: Key) -> tuple[bool | None, dict[str, Any] | None]:
    """(lossless, totals): tokens compared, mismatches and the smallest margin over the blocks.

    `lossless` is None for plain methods and where nothing was compared.
    """
    found = [t.losslessness for t in group.trials[key].values() if t.ok and t.losslessness]
    if not found:
        return None, None
    margins = [f["smallest_margin"] for f in found if f["smallest_margin"] is not None]
    total = {
        "reference_method_id": found[0]["reference_method_id"],
        "tokens_compared": sum(int(f["tokens_compared"]) for f in found),
        "mismatches": sum(int(f["mismatches"]) for f in found),
        "smallest_margin": min(margins) if margins else None,
    }
    if total["tokens_compared"] == 0:
        return None, total
    return total["mismatches"] == 0, total

"""A method's row of the summary: figures of its own requests, and comparisons with the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.comparison import Group, Key
from harness.cost import CostModel
from harness.derive import Trial
from harness.figures import MS, own_figures
from harness.quality import gate, losslessness, measured_quality, plain_target
from harness.stats import Interval, decide, mad_outliers, wilson
from harness.task_accuracy import task_accuracy
from harness.vocabulary import quantized

AXES = (
    "method_id", "name", "arm", "role", "model", "workload", "backend", "worker", "device",
    "weight_format", "precision", "compute_dtype", "kv_precision", "drafter", "shape", "acceptance",
    "synthetic", "batch_size", "context_length",
)  # fmt: skip


def method_rows(
    group: Group, model: CostModel | None, others: Sequence[Group] = ()
) -> dict[Key, dict[str, Any]]:
    """The rows of a group's cells, baseline and A/A twin included, in the order of the records.

    `cost` and `prediction` are null here; the analysis fills them in. A precision that `group` did
    not score has the quality measured in `others`.
    """
    found = comparisons(group)
    rows = {key: _row(group, key, model, others) for key in group.trials}
    for key, figures in found.items():
        rows[key] |= figures
    return rows


def _row(
    group: Group, key: Key, model: CostModel | None, others: Sequence[Group]
) -> dict[str, Any]:
    cell = group.cell(key)
    trials = list(group.trials[key].values())
    complete = key in group.keys
    quality = measured_quality(group, key, others)
    lossless, compared = losslessness(group, key)
    task = task_accuracy(group, key)
    passed = gate(group, key, quality, model.quality if model else None, task)
    errors = [trial.error for trial in trials if trial.error]
    status = "ok" if complete else "failed"
    if complete and passed["passed"] is False:
        status = "rejected_by_quality"
    row: dict[str, Any] = {
        **{axis: cell.get(axis) for axis in AXES},
        "group": group.name,
        "blocks": sum(trial.ok for trial in trials),
        "status": status,
        "error": errors[0] if errors else None,
        "interleaved": all(trial.interleaved for trial in trials),
        "drafter_label": drafter_label(cell),
        "weight_bytes": next((t.bytes_per_token for t in trials if t.bytes_per_token), None),
        "quality": quality,
        "task": task,
        "quality_gate": passed,
        "lossless": lossless,
        "losslessness": compared,
        "cost": None,
        "prediction": None,
        **_NOTHING_COMPARED,
    }
    measured = [group.trials[key][block] for block in group.blocks] if complete else []
    return row | own_figures(group, key, measured) | {"slo": _slo(measured, model, group)}


_NOTHING_COMPARED: dict[str, Any] = {
    "output_throughput": None, "end_to_end_throughput": None, "speedup": None,
    "end_to_end_speedup": None, "decision": "undecided", "selected_on": None,
    "versus_target": None, "versus_target_decision": None, "by_block": None, "outliers": [],
}  # fmt: skip


def drafter_label(cell: Mapping[str, Any]) -> str | None:
    """`pure` where neither drafter nor any inside it reads 4- or 8-bit weights; None if plain."""
    drafter: Mapping[str, Any] | None = cell["drafter"]
    if not drafter or drafter["kind"] == "none":
        return None
    while drafter:
        if quantized(str(drafter.get("precision", ""))):
            return "quantized_drafter"
        drafter = drafter.get("inner")
    return "pure"


def _slo(trials: list[Trial], model: CostModel | None, group: Group) -> dict[str, Any] | None:
    """Share of requests that meet both targets; a request of one token has no TPOT to meet."""
    if model is None or not trials:
        return None
    slo = model.slo
    ttft = np.concatenate([t.service_ttft_s for t in trials]) * MS
    tpot = np.nan_to_num(np.concatenate([t.tpot_s for t in trials])) * MS
    met = int(((ttft <= slo.ttft_ms) & (tpot <= slo.tpot_ms)).sum())
    level = group.settings.level
    low, high = wilson(met, len(ttft), level)
    share = Interval(met / len(ttft), low, high, len(ttft), level)
    return {
        "attainment": share.to_json(), "required": slo.attainment,
        "passed": share.mean >= slo.attainment, "n": len(ttft),
        "ttft_ms": slo.ttft_ms, "tpot_ms": slo.tpot_ms,
    }  # fmt: skip


def comparisons(group: Group) -> dict[Key, dict[str, Any]]:
    """Throughputs, speedups and decisions of the complete cells."""
    found: dict[Key, dict[str, Any]] = {key: {} for key in group.keys}
    for key in group.keys:
        found[key] = {
            "output_throughput": group.single({key: 1.0}).exp().to_json(),
            "end_to_end_throughput": group.single({key: 1.0}, group.end_to_end).exp().to_json(),
        }
    for key, decode, end_to_end in speedups(group):
        found[key] |= {
            "speedup": decode.exp().to_json(),
            "end_to_end_speedup": end_to_end.exp().to_json(),
            "decision": _word(group, decode),
            **_by_block(group, key),
        }
    found.get(group.baseline, {}).update(decision="baseline")
    drafting = {
        key: target
        for key in group.methods
        if (target := plain_target(group, key)) not in (None, key) and target in group.keys
    }
    versus = group.family([{key: 1.0, target: -1.0} for key, target in drafting.items() if target])
    for key, interval in zip(drafting, versus, strict=True):
        found[key] |= {
            "versus_target": interval.exp().to_json(),
            "versus_target_decision": _word(group, interval),
        }
    return found


def speedups(group: Group) -> list[tuple[Key, Interval, Interval]]:
    """(cell, log speedup, log end-to-end speedup): the methods as one family, the rest singly."""
    if not group.keys:
        return []
    methods = [group.versus_baseline(key) for key in group.methods]
    decode, end_to_end = group.family(methods), group.family(methods, group.end_to_end)
    rows = list(zip(group.methods, decode, end_to_end, strict=True))
    for key in group.keys:
        if key not in group.methods:
            contrast = group.versus_baseline(key)
            rows.append((key, group.single(contrast), group.single(contrast, group.end_to_end)))
    return rows


def _word(group: Group, interval: Interval) -> str:
    if len(group.blocks) < group.settings.min_blocks:
        return "undecided"
    return decide(interval.ci_low, interval.ci_high, group.settings.zone)


def _by_block(group: Group, key: Key) -> dict[str, Any]:
    """Each block's figures, and the blocks that lie far from the others."""
    place, base = group.keys.index(key), group.keys.index(group.baseline)
    rates = group.decode.values
    ratios = rates[:, place] - rates[:, base]
    flagged = mad_outliers(ratios, group.settings.outlier_mads)
    return {
        "by_block": {
            "block": list(group.blocks),
            "output_throughput": [math.exp(x) for x in rates[:, place]],
            "speedup": [math.exp(x) for x in ratios],
        },
        "outliers": [group.blocks[i] for i in flagged],
    }

"""Trees of drafted tokens: what verifying costs, what it yields, and where a tree stops paying.

The question is SpecMQuant's (arXiv 2505.22179): a tree pays while verifying n rows costs little
more than decoding one. Its ratios at 60 nodes stand beside those measured here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.comparison import Group, Key
from harness.derive import PHASES, Trial
from harness.figures import MS
from harness.findings import Finding, finding
from harness.quality import plain_target
from harness.shapes import drafted
from harness.stats import Interval, decide, ratio_intervals
from harness.vocabulary import quantized

STUDY_NODES = 60
STUDY_RATIOS: Mapping[str, float] = {"fp16": 1.2, "w4a16": 1.8}
"""Time to verify 60 drafted tokens over time to decode one, 8B on an RTX 3090 and an A100."""

Row = dict[str, Any]


def tree_rows(
    group: Group, rows: Mapping[Key, Row], curves: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """The `trees` of a group: an entry for each target precision and drafter that drew trees.

    `rows` are the group's method rows, `curves` those of the summary. Points are in the order of
    their nodes, a drafter's chains first.
    """
    families: dict[tuple[str, str, str], list[Key]] = {}
    for key in group.methods:
        cell = group.cell(key)
        if cell["shape"]["kind"] in ("chain", "tree") and plain_target(group, key) in group.keys:
            family = (str(cell["worker"]), str(cell["precision"]), json.dumps(cell["drafter"]))
            families.setdefault(family, []).append(key)
    entries = []
    for (worker, precision, drafter), keys in families.items():
        trees = [key for key in keys if group.cell(key)["shape"]["kind"] == "tree"]
        if not trees:
            continue
        points = [_point(group, key, rows[key], curves) for key in sorted(keys, key=_order(group))]
        entries.append(
            {
                "group": group.name,
                "worker": worker,
                "precision": precision,
                "drafter": json.loads(drafter),
                "points": points,
                "study": {"nodes": STUDY_NODES, "ratio": STUDY_RATIOS.get(precision)},
                "findings": _findings(group, precision, points),
            }
        )
    for entry in entries:
        entry["findings"] += _beside_16_bits(entry, entries)
    return entries


def _beside_16_bits(entry: Row, entries: Sequence[Row]) -> list[Finding]:
    """Does the largest tree cost more decode steps, and gain less, than under 16-bit weights?"""
    others = [
        other for other in entries
        if not quantized(other["precision"]) and quantized(entry["precision"])
        and (other["worker"], other["drafter"]) == (entry["worker"], entry["drafter"])
    ]  # fmt: skip
    if not others or not math.isfinite(_end(entry["points"][-1], "ci_low")):
        return []
    ours, theirs = entry["points"][-1], others[0]["points"][-1]
    if ours["shape"] != theirs["shape"]:
        return []
    shown = _end(ours, "ci_low") > _end(theirs, "ci_high")
    return [
        finding(
            "tree_effect_shown" if shown else "tree_effect_absent",
            precision=entry["precision"], wide=others[0]["precision"], nodes=ours["nodes"],
            ratio=ours["round_ratio"]["mean"], wide_ratio=theirs["round_ratio"]["mean"],
            gain=ours["versus_target"]["mean"], wide_gain=theirs["versus_target"]["mean"],
        )
    ]  # fmt: skip


def _end(point: Row, end: str) -> float:
    """An end of the ratio of verification to a decode step, infinite where it is not known."""
    value = point["round_ratio"][end]
    return (-math.inf if end == "ci_low" else math.inf) if value is None else float(value)


def _order(group: Group) -> Any:
    def place(key: Key) -> tuple[bool, int]:
        shape = group.cell(key)["shape"]
        return shape["kind"] == "tree", drafted(shape)

    return place


def _point(group: Group, key: Key, row: Row, curves: Sequence[Mapping[str, Any]]) -> Row:
    """A shape's figures. `verify_ratio` is T(n + 1) / T(1) of forwards timed alone,
    `round_ratio` the verification of the decoding itself over a plain round, block by block."""
    shape = dict(group.cell(key)["shape"])
    nodes = drafted(shape)
    target = plain_target(group, key)
    assert target is not None
    trials = [group.trials[key][block] for block in group.blocks]
    plain = [group.trials[target][block] for block in group.blocks]
    return {
        "method_id": key[0],
        "shape": shape,
        "nodes": nodes,
        "verify_ratio": _curve_ratio(group.cell(key), nodes + 1, curves),
        "round_ratio": _verify_over_plain(group, trials, plain).to_json(),
        "acceptance_length": row["intervals"]["acceptance_length"],
        "speedup": row["speedup"],
        "versus_target": row["versus_target"],
        "decision": row["versus_target_decision"],
        "round_ms": _round_ms(group, key, trials),
        "phases_ms": row["intervals"]["phases_ms"],
        "replayed": row["acceptance"] == "replay",
    }


def _curve_ratio(
    cell: Mapping[str, Any], tokens: int, curves: Sequence[Mapping[str, Any]]
) -> Row | None:
    mask = "tree" if cell["shape"]["kind"] == "tree" else "chain"
    named = (cell["worker"], "target", cell["precision"], mask, cell["batch_size"])
    for curve in curves:
        if tuple(curve[k] for k in ("worker", "model", "precision", "mask", "batch")) == named:
            for point in curve["points"]:
                if point["tokens"] == tokens:
                    ratio: Row | None = point["ratio"]
                    return ratio
    return None


def _verify_s(trial: Trial) -> float:
    return float(trial.phase_s[PHASES.index("verify_s")]) / len(trial.round_s)


def _verify_over_plain(group: Group, trials: list[Trial], plain: list[Trial]) -> Interval:
    """Verification of a round over that of a plain round, as the geometric mean over blocks."""
    logs = np.array([[math.log(_verify_s(a) / _verify_s(b))] for a, b in zip(trials, plain)])  # noqa: B905
    settings = group.settings
    return ratio_intervals(
        logs, np.ones_like(logs), settings.level, settings.bootstrap_draws, group.rng("verify")
    )[0].exp()


def _round_ms(group: Group, key: Key, trials: list[Trial]) -> Row:
    """Milliseconds of a round by phase; blocks are resampled."""
    rounds = np.array([[float(len(trial.round_s))] * len(PHASES) for trial in trials])
    found = ratio_intervals(
        np.array([trial.phase_s for trial in trials]), rounds, group.settings.level,
        group.settings.bootstrap_draws, group.rng(f"rounds {key}"),
    )  # fmt: skip
    return {
        name.removesuffix("_s"): interval.scaled(MS).clipped(0.0, math.inf).to_json()
        for name, interval in zip(PHASES, found, strict=True)
    }


def _findings(group: Group, precision: str, points: Sequence[Row]) -> list[Finding]:
    """In words: which tree is the fastest, where a larger one stops paying, and why."""
    if len(group.blocks) < 2:
        return []  # no interval has ends yet
    trees = [point for point in points if point["shape"]["kind"] == "tree"]
    best = max(trees, key=lambda point: float(point["versus_target"]["mean"]))
    gain = best["versus_target"]
    found = [
        finding(
            "tree_best" if best["decision"] == "faster" else "tree_never",
            precision=precision, nodes=best["nodes"], gain=gain["mean"], low=gain["ci_low"],
            high=gain["ci_high"], tau=best["acceptance_length"]["mean"],
            ratio=best["round_ratio"]["mean"],
        )
    ]  # fmt: skip
    largest = trees[-1]
    if best is not largest:
        found.append(_stops(group, precision, best, largest))
    elif len(trees) > 1:
        found.append(finding("tree_grows", precision=precision, nodes=best["nodes"]))
    chains = [point for point in points if point["shape"]["kind"] == "chain"]
    if chains:
        chain = max(chains, key=lambda point: float(point["versus_target"]["mean"]))
        found.append(
            finding(
                "tree_beside_chain", precision=precision, nodes=best["nodes"], gain=gain["mean"],
                gamma=chain["shape"]["gamma"], chain_gain=chain["versus_target"]["mean"],
            )
        )  # fmt: skip
    return found + _beside_study(precision, trees)


def _stops(group: Group, precision: str, best: Row, largest: Row) -> Finding:
    """Why the largest tree is no faster than the best: what it yields more, and what it costs."""
    tau, more_tau = (point["acceptance_length"]["mean"] for point in (best, largest))
    times = [{k: v["mean"] for k, v in point["round_ms"].items()} for point in (best, largest)]
    before, after = (sum(time.values()) for time in times)
    rise = after - before
    keys = [(point["method_id"], "method") for point in (best, largest)]
    contrast = group.single({keys[0]: 1.0, keys[1]: -1.0})
    slower = decide(contrast.ci_low, contrast.ci_high, group.settings.zone) == "faster"
    return finding(
        "tree_stops" if slower else "tree_flat",
        precision=precision, nodes=best["nodes"], more=largest["nodes"], tau=tau,
        more_tau=more_tau, tau_factor=more_tau / tau, time_factor=after / before,
        verify_share=(times[1]["verify"] - times[0]["verify"]) / rise if rise > 0 else 0.0,
    )  # fmt: skip


def _beside_study(precision: str, trees: Sequence[Row]) -> list[Finding]:
    for point in trees:
        if point["nodes"] == STUDY_NODES and precision in STUDY_RATIOS:
            ratio = point["verify_ratio"] or point["round_ratio"]
            return [
                finding(
                    "tree_ratio", precision=precision, nodes=STUDY_NODES, ratio=ratio["mean"],
                    low=ratio["ci_low"], high=ratio["ci_high"], study=STUDY_RATIOS[precision],
                )
            ]  # fmt: skip
    return []

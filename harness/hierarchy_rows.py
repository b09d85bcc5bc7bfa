"""Cascades beside plain decoding and beside a tree, measured and by the cost formula.

The study (SpecMQuant, arXiv 2505.22179) reports 2.78 times plain W4A16 decoding and 1.31 times the
tree of EAGLE-2 for Llama-3-70B on one A100. Its cost formula, time per token = (draft + verify) /
τ, says at which acceptance length these are reached here. What the formula gives is modelled, and
called so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.comparison import Group, Key
from harness.costmodel import Curve, Drafted, Round, Times, modelled_round
from harness.drafters import TARGET
from harness.findings import Finding, finding
from harness.forwards import Forward
from harness.quality import plain_target
from harness.shapes import longest_path
from harness.stats import Interval

STUDY = {"over_plain": 2.78, "over_tree": 1.31}

Row = dict[str, Any]


def hierarchy_rows(group: Group, rows: Mapping[Key, Row], curves: Sequence[Curve]) -> list[Row]:
    """The `hierarchy` of a group: an entry for each cascade whose plain target was measured."""
    entries = []
    for key in group.methods:
        plain = plain_target(group, key)
        if group.cell(key)["drafter"]["kind"] != "cascade" or plain not in group.keys:
            continue
        assert plain is not None
        entries.append(_entry(group, rows, key, plain, curves))
    return entries


def _entry(
    group: Group, rows: Mapping[Key, Row], key: Key, plain: Key, curves: Sequence[Curve]
) -> Row:
    cell = group.cell(key)
    others = [
        other for other in group.methods
        if other not in (key, plain) and plain_target(group, other) == plain
        and group.cell(other)["drafter"]["kind"] != "none"
    ]  # fmt: skip
    trees = [other for other in others if group.cell(other)["shape"]["kind"] == "tree"]
    tree = max(trees, key=lambda other: _gain(rows[other]), default=None)
    over_plain = group.single({key: 1.0, plain: -1.0}).exp()
    over_tree = group.single({key: 1.0, tree: -1.0}).exp() if tree else None
    entry: Row = {
        "group": group.name,
        "worker": cell["worker"],
        "precision": cell["precision"],
        "cascade": key[0],
        "plain": plain[0],
        "tree": tree and tree[0],
        "over_plain": over_plain.to_json(),
        "over_tree": over_tree and over_tree.to_json(),
        "acceptance_length": rows[key]["intervals"]["acceptance_length"],
        "inner_acceptance_length": rows[key]["intervals"]["inner_acceptance_length"],
        "replayed": rows[key]["acceptance"] == "replay",
        "study": STUDY,
        "model": _model(rows, key, tree, curves),
    }
    entry["findings"] = _findings(group, rows, entry, key, others)
    return entry


def _gain(row: Row) -> float:
    return float(row["versus_target"]["mean"])


def _model(
    rows: Mapping[Key, Row], key: Key, tree: Key | None, curves: Sequence[Curve]
) -> Row | None:
    """What the cost formula says; None where a curve is missing.

    `plain_s` is T(1), `draft_s` and `verify_s` are of a round, `tree_s` is the time per token of
    the tree. `reached_at` is the acceptance length at which the study's ratios are reached with
    this cost of a round, `most` what a round can commit.
    """
    row = rows[key]
    times = Times(curves, row)
    plain_s = times.of(Forward(TARGET, row["precision"], "chain", 1))
    cascade = modelled_round(row, Drafted.of(row), times)
    if plain_s is None or cascade is None:
        return None
    tau = float(row["acceptance_length"])
    tree_s = _seconds_per_token(rows[tree], times) if tree else None
    per_token = cascade.seconds / tau
    needed = {"over_plain": STUDY["over_plain"] * cascade.seconds / plain_s}
    predicted = {"over_plain": plain_s / per_token}
    if tree_s is not None:
        needed["over_tree"] = STUDY["over_tree"] * cascade.seconds / tree_s
        predicted["over_tree"] = tree_s / per_token
    drafter = row["drafter"]
    return {
        "plain_s": plain_s,
        "draft_s": cascade.draft_s,
        "verify_s": cascade.verify_s,
        "tree_s": tree_s,
        "acceptance_length": tau,
        "predicted": predicted,
        "reached_at": needed,
        "most": longest_path(row["shape"]) + longest_path(drafter["inner_shape"]) + 1,
        "modelled": True,
    }


def _seconds_per_token(row: Row, times: Times) -> float | None:
    found: Round | None = modelled_round(row, Drafted.of(row), times)
    return found.seconds / float(row["acceptance_length"]) if found else None


def _findings(
    group: Group, rows: Mapping[Key, Row], entry: Row, key: Key, others: Sequence[Key]
) -> list[Finding]:
    if len(group.blocks) < 2:
        return []  # no interval has ends yet
    precision = entry["precision"]
    found = [_ratio("cascade_over_plain", precision, entry["over_plain"], STUDY["over_plain"])]
    if entry["over_tree"]:
        found.append(_ratio("cascade_over_tree", precision, entry["over_tree"], STUDY["over_tree"]))
    if others:
        best = max(others, key=lambda other: _gain(rows[other]))
        found.append(_beside_best(group, rows, precision, key, best, len(others) + 1))
    model = entry["model"]
    if model is None:
        return found
    predicted, measured = model["predicted"]["over_plain"], entry["over_plain"]["mean"]
    found.append(
        finding(
            "cascade_model", precision=precision, predicted=predicted, measured=measured,
            error=abs(predicted / measured - 1.0),
        )
    )  # fmt: skip
    needed = model["reached_at"]["over_plain"]
    found.append(
        finding(
            "cascade_needs" if needed <= model["most"] else "cascade_out_of_reach",
            precision=precision, target=STUDY["over_plain"], needed=needed, most=model["most"],
            tau=model["acceptance_length"],
        )
    )  # fmt: skip
    if "over_tree" in model["reached_at"]:
        needed = model["reached_at"]["over_tree"]
        found.append(
            finding(
                "cascade_needs_tree", precision=precision, target=STUDY["over_tree"], needed=needed
            )
        )
    return found


def _beside_best(
    group: Group, rows: Mapping[Key, Row], precision: str, key: Key, best: Key, count: int
) -> Finding:
    """Whether another way of drafting under the same target is faster than the cascade."""
    ratio: Interval = group.single({best: 1.0, key: -1.0}).exp()
    if ratio.mean <= 1.0:
        return finding("cascade_fastest", precision=precision, count=count)
    return finding(
        "cascade_beaten", precision=precision, method=rows[best]["name"], ratio=ratio.mean,
        low=ratio.ci_low, high=ratio.ci_high,
    )  # fmt: skip


def _ratio(key: str, precision: str, ratio: Row, study: float) -> Finding:
    return finding(
        key, precision=precision, ratio=ratio["mean"], low=ratio["ci_low"], high=ratio["ci_high"],
        study=study,
    )  # fmt: skip

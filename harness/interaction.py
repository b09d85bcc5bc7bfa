"""Do the gains of quantization and speculation multiply? The interaction of each pair."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.comparison import Contrast, Group, Key
from harness.findings import Finding, finding
from harness.stats import decide

WORDS = {"faster": "help", "slower": "eat", "equal": "multiply", "undecided": "undecided"}


def interactions(group: Group) -> list[dict[str, Any]]:
    """A row for each worker, quantized precision, drafter and shape of the group.

    I = S_combined / (S_quantization · S_speculation), all four cells on the same worker: on the
    log scale combined − quantization − speculation + plain. The rows of a group are one family.
    A row without one of its parts has null figures and the reason.
    """
    axes = {_axes(group.cell(key)): key for key in group.trials if key[1] != "noise"}
    base_precision = group.cell(group.baseline)["precision"]
    rows, contrasts = [], list[Contrast]()
    for worker, kv, precision, drafter, shape in _wanted(axes, base_precision):
        parts = {
            "combined": axes.get((worker, kv, precision, drafter, shape)),
            "quantization": axes.get((worker, kv, precision, *_PLAIN)),
            "speculation": axes.get((worker, kv, base_precision, drafter, shape)),
            "plain": axes.get((worker, kv, base_precision, *_PLAIN)),
        }
        reason = _missing(group, parts)
        row: dict[str, Any] = {
            "group": group.name,
            "worker": worker,
            "precision": precision,
            "drafter": json.loads(drafter),
            "shape": json.loads(shape),
            **{name: key and key[0] for name, key in parts.items() if name != "plain"},
            "reason": reason,
        }
        if reason is None:
            contrasts.append(_contrast({name: key for name, key in parts.items() if key}))
        rows.append(row)
    intervals = iter(group.family(contrasts))
    for row in rows:
        if row["reason"] is not None:
            row |= dict.fromkeys(("mean", "ci_low", "ci_high", "n", "level", "decision"))
            continue
        log_ratio = next(intervals)
        decision = decide(log_ratio.ci_low, log_ratio.ci_high, group.settings.zone)
        row |= {**log_ratio.exp().to_json(), "decision": WORDS[decision]}
    return rows


_Axes = tuple[str, str, str, str, str]
_PLAIN = (json.dumps({"kind": "none"}), json.dumps({"kind": "none"}))


def _axes(cell: Mapping[str, Any]) -> _Axes:
    drafter, shape = (json.dumps(cell[axis], sort_keys=True) for axis in ("drafter", "shape"))
    return (
        str(cell.get("worker")), str(cell.get("kv_precision")), str(cell["precision"]),
        drafter, shape,
    )  # fmt: skip


def _wanted(axes: Mapping[_Axes, Key], base_precision: str) -> list[_Axes]:
    """Each quantized precision with each drafter and shape of the same worker.

    A drafter that computes what the target computes is no drafter, and is left out.
    """
    targets = dict.fromkeys(a[:3] for a in axes if a[2] != base_precision)
    drafts = dict.fromkeys((a[0], a[1], a[3], a[4]) for a in axes if a[3:] != _PLAIN)
    return [
        (worker, kv, precision, drafter, shape)
        for worker, kv, precision in targets
        for other_worker, other_kv, drafter, shape in drafts
        if (worker, kv) == (other_worker, other_kv) and not _same(precision, drafter)
    ]


def _same(precision: str, drafter: str) -> bool:
    parsed = json.loads(drafter)
    return bool(parsed["kind"] == "self" and parsed["precision"] == precision)


def _missing(group: Group, parts: Mapping[str, Key | None]) -> Finding | None:
    for name, key in parts.items():
        if key is None:
            return finding("part_missing", part=name)
        if key not in group.keys:
            return finding("part_failed", part=name, method=key[0])
    return None


def _contrast(parts: Mapping[str, Key]) -> Contrast:
    signs = {"combined": 1.0, "quantization": -1.0, "speculation": -1.0, "plain": 1.0}
    total: dict[Key, float] = {}
    for name, key in parts.items():
        total[key] = total.get(key, 0.0) + signs[name]
    return total

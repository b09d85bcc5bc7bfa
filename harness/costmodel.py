"""Predicts speedups from forward curves and acceptance, to be checked against measured ones.

time per token = (γ · T_d(1) + T_v(γ + 1)) / τ (the cost model of SpecMQuant, arXiv 2505.22179, for
a chain), with T(n) the measured time of a forward of n rows. τ = 1 + the sum of the first γ
acceptance rates by position, taken where possible from another draft length, so that the prediction
owes nothing to the cell it is checked on. Nothing that this module returns was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harness.derive import SCHEMA_VERSION, RecordError


@dataclass(frozen=True)
class Curve:
    """T(n): median seconds of one forward of n rows a sequence."""

    worker: str
    model: str
    precision: str
    mask: str
    context: int
    batch: int
    seconds: Mapping[int, float]

    def at(self, rows: int) -> float | None:
        """Seconds for `rows`, linear between measured points; None beyond them."""
        below = [n for n in self.seconds if n <= rows]
        above = [n for n in self.seconds if n >= rows]
        if not below or not above:
            return None
        low, high = max(below), min(above)
        if low == high:
            return self.seconds[low]
        share = (rows - low) / (high - low)
        return (1 - share) * self.seconds[low] + share * self.seconds[high]


def read_curves(results: Path) -> list[Curve]:
    """The curves of `curves.json`; an empty list without the file. Raises RecordError."""
    path = results / "curves.json"
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {content['schema_version']}")
        return [
            Curve(
                str(entry["worker"]), str(entry["model"]), str(entry["precision"]),
                str(entry["mask"]), int(entry["context"]), int(entry["batch"]),
                {int(n): median(map(float, times)) for n, times in entry["times"].items()},
            )
            for entry in content["curves"]
        ]  # fmt: skip
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{path} cannot be used: {error!r}.") from None


def seconds_per_token(
    verify: Curve, draft: Curve | None, gamma: int, rates: Sequence[float]
) -> float | None:
    """Seconds for each token of a chain of `gamma`; `draft` None: proposals cost nothing.

    `gamma` 0 is plain decoding. None where a curve does not reach far enough.
    """
    verify_s = verify.at(gamma + 1)
    draft_s = draft.at(1) if draft else 0.0
    if verify_s is None or draft_s is None or len(rates) < gamma:
        return None
    return (gamma * draft_s + verify_s) / (1.0 + sum(rates[:gamma]))


def predict(
    row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any],
    curves: Sequence[Curve],
) -> dict[str, Any] | None:  # fmt: skip
    """The `prediction` of a method's summary row among the `rows` of its group.

    None for other shapes than a chain, without curves, and without a measured speedup.
    """
    if row["speedup"] is None or row["shape"]["kind"] not in ("none", "chain"):
        return None
    gamma = int(row["shape"].get("gamma", 0))
    source = _acceptance_source(row, rows, gamma)
    base = _curve(curves, baseline, "target", baseline["precision"])
    verify = _curve(curves, row, "target", row["precision"])
    drafter = row["drafter"]
    draft = None
    if drafter["kind"] in ("self", "model", "head"):
        draft = _curve(curves, row, str(drafter.get("id", "target")), drafter["precision"])
    needs_draft = drafter["kind"] not in ("none", "ngram")
    if base is None or verify is None or (needs_draft and draft is None):
        return None
    rates = source["per_position_acceptance_rates"] or []
    plain = seconds_per_token(base, None, 0, [])
    per_token = seconds_per_token(verify, draft, gamma, rates)
    if plain is None or per_token is None:
        return None
    measured = float(row["speedup"]["mean"])
    speedup = plain / per_token
    return {
        "speedup": speedup,
        "measured": measured,
        "relative_error": speedup / measured - 1.0,
        "acceptance_from": source["method_id"] if gamma else None,
        "held_out": source is not row or gamma == 0,
    }


def _acceptance_source(
    row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], gamma: int
) -> Mapping[str, Any]:
    """The longest other chain of the same target and drafter that reaches `gamma`, or the row."""
    same = [
        other for other in rows
        if other is not row and other["per_position_acceptance_rates"]
        and all(other[a] == row[a] for a in ("worker", "precision", "kv_precision", "drafter"))
        and other["shape"].get("gamma", 0) >= gamma > 0
    ]  # fmt: skip
    return max(same, key=lambda other: int(other["shape"]["gamma"]), default=row)


def _curve(
    curves: Sequence[Curve], row: Mapping[str, Any], model: str, precision: str
) -> Curve | None:
    """The curve of the row's worker and batch whose context is nearest."""
    found = [
        c for c in curves
        if (c.worker, c.model, c.precision, c.batch, c.mask)
        == (row["worker"], model, precision, row["batch_size"], "chain")
    ]  # fmt: skip
    wanted = 1 if row["context_length"] == "natural" else int(row["context_length"])
    return min(found, key=lambda c: abs(math.log(max(c.context, 1) / wanted)), default=None)

"""Predicts speedups from forward curves and acceptance, to be checked against measured ones.

Time per token = (draft + verify) / τ (the cost model of SpecMQuant, arXiv 2505.22179), with T(n)
the measured time of a forward of n rows. What a round drafts varies (lookup may find nothing, a
cascade may bring more than was missing), so `verify` is T over the numbers of rows that rounds had.
τ and these numbers come from another draft length of the same drafter where there is one, so that
the prediction owes nothing to the cell it is checked on. Nothing that this module returns was
measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harness.derive import SCHEMA_VERSION, RecordError
from harness.drafters import TARGET
from harness.forwards import Forward, draft_steps, inner_round, verification


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


class Times:
    """T(n) of what a row of the summary runs on: its worker, batch size and nearest context."""

    def __init__(self, curves: Sequence[Curve], row: Mapping[str, Any]) -> None:
        self._curves = [
            c for c in curves if (c.worker, c.batch) == (row["worker"], row["batch_size"])
        ]
        context = row["context_length"]
        self._context = 1 if context == "natural" else int(context)

    def of(self, forward: Forward) -> float | None:
        """Seconds of one forward; None where no curve reaches it."""
        named = (forward.model, forward.precision, forward.mask)
        found = [c for c in self._curves if (c.model, c.precision, c.mask) == named]
        near = min(
            found, key=lambda c: abs(math.log(max(c.context, 1) / self._context)), default=None
        )
        return near.at(forward.rows) if near else None

    def total(self, steps: Iterable[Forward]) -> float | None:
        """Seconds of all `steps`; None where one is not known."""
        seconds = [self.of(step) for step in steps]
        return None if None in seconds else sum(s for s in seconds if s is not None)


@dataclass(frozen=True)
class Round:
    """Modelled seconds of a round: drafting, and verifying by the target."""

    draft_s: float
    verify_s: float

    @property
    def seconds(self) -> float:
        """Both together; what a round costs besides is not modelled."""
        return self.draft_s + self.verify_s


@dataclass(frozen=True)
class Drafted:
    """What rounds of a method did: how often they drafted n tokens, and inside a cascade."""

    shares: Mapping[int, float]
    inner_shares: Mapping[int, float]
    inner_rounds: float

    @classmethod
    def of(cls, row: Mapping[str, Any], most: int | None = None) -> Drafted:
        """From a row of the summary; rounds that drafted more than `most` count as that many."""
        shares: dict[int, float] = {}
        for n, share in (row.get("drafted_shares") or {"0": 1.0}).items():
            kept = int(n) if most is None else min(int(n), most)
            shares[kept] = shares.get(kept, 0.0) + float(share)
        inner = {int(n): float(x) for n, x in (row.get("inner_drafted_shares") or {}).items()}
        rounds = (row.get("intervals") or {}).get("inner_rounds") or {}
        return cls(shares, inner, float(rounds.get("mean") or 0.0))


def modelled_round(row: Mapping[str, Any], rounds: Drafted, times: Times) -> Round | None:
    """The round of a row's drafter and shape; None where a curve is missing or too short."""
    shape, drafter = row["shape"], row["drafter"]
    checks = [
        (share, times.of(verification(TARGET, row["precision"], shape, n)))
        for n, share in rounds.shares.items()
    ]
    draft_s = _draft_s(drafter, shape, rounds, times)
    if draft_s is None or any(seconds is None for _, seconds in checks):
        return None
    return Round(draft_s, sum(share * s for share, s in checks if s is not None))


def _draft_s(
    drafter: Mapping[str, Any], shape: Mapping[str, Any], rounds: Drafted, times: Times
) -> float | None:
    if drafter["kind"] == "cascade":
        return _cascade_s(drafter, rounds, times)
    whole = times.total(draft_steps(drafter, shape))
    if whole is None:
        return None
    if shape["kind"] == "chain":
        # Near the end of a request less is drafted.
        return whole * sum(n * share for n, share in rounds.shares.items()) / int(shape["gamma"])
    return whole * sum(share for n, share in rounds.shares.items() if n)


def _cascade_s(drafter: Mapping[str, Any], rounds: Drafted, times: Times) -> float | None:
    """All inner rounds of a round: the inner draft where there is one, and the middle's check."""
    *steps, _ = inner_round(drafter)
    draft_s = times.total(steps)
    total = 0.0
    for n, share in rounds.inner_shares.items():
        check = verification(drafter["id"], drafter["precision"], drafter["inner_shape"], n)
        check_s = times.of(check)
        if check_s is None or draft_s is None:
            return None
        total += share * (check_s + (draft_s if n else 0.0))
    return rounds.inner_rounds * total


def predict(
    row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any],
    curves: Sequence[Curve],
) -> dict[str, Any] | None:  # fmt: skip
    """The `prediction` of a method's summary row among the `rows` of its group.

    None for `auto`, which is no single shape, without curves, and without a measured speedup.
    """
    if row["speedup"] is None or row["shape"]["kind"] == "auto":
        return None
    source = _acceptance_source(row, rows)
    gamma = row["shape"].get("gamma") if source is not row else None
    found = modelled_round(row, Drafted.of(source, gamma), Times(curves, row))
    plain_s = Times(curves, baseline).of(Forward(TARGET, baseline["precision"], "chain", 1))
    if found is None or plain_s is None:
        return None
    tau = _acceptance_length(source, gamma)
    measured = float(row["speedup"]["mean"])
    speedup = plain_s * tau / found.seconds
    plain = row["drafter"]["kind"] == "none"
    return {
        "speedup": speedup,
        "measured": measured,
        "relative_error": speedup / measured - 1.0,
        "acceptance_from": None if plain else source["method_id"],
        "held_out": source is not row or plain,
    }


def _acceptance_length(source: Mapping[str, Any], gamma: int | None) -> float:
    """τ as measured in `source`, or of a chain of the first `gamma` of its positions."""
    if gamma is None:
        return float(source["acceptance_length"] or 1.0)
    return 1.0 + float(sum(source["per_position_acceptance_rates"][:gamma]))


def _acceptance_source(
    row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The longest other chain of the same target and drafter that reaches as far, or the row.

    The chains of a cascade depend on their length, so that only its own rounds tell of it.
    """
    gamma = row["shape"].get("gamma", 0)
    if row["drafter"]["kind"] == "cascade":
        return row
    same = [
        other for other in rows
        if other is not row and other["per_position_acceptance_rates"]
        and all(other[a] == row[a] for a in ("worker", "precision", "kv_precision", "drafter"))
        and other["shape"].get("gamma", 0) >= gamma > 0
    ]  # fmt: skip
    return max(same, key=lambda other: int(other["shape"]["gamma"]), default=row)

"""An agreement trace counted with loops over its Parquet rows: no pandas, nothing of the harness.

Tests hold every point figure of `harness.trace.tables` against these.
"""

from __future__ import annotations

import statistics
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Row = Mapping[str, Any]


def read_rows(path: Path, mode: str) -> list[Row]:
    """The trace's rows of one mode."""
    return [row for row in pq.read_table(path).to_pylist() if row["mode"] == mode]


def single(value: float) -> float:
    """The nearest single-precision number."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def share(part: Iterable[Row], whole: Sequence[Row]) -> tuple[int, int, float | None]:
    """Count, of, and rate."""
    count = len(list(part))
    return count, len(whole), count / len(whole) if whole else None


def counted(rows: Sequence[Row], gamma: int, threshold: float) -> dict[str, Any]:
    """Every point figure of an online or fixed-prefix table under the table's own keys."""
    limit = single(threshold)

    def high(row: Row, side: str) -> bool:
        return bool(row[f"{side}_top1_prob"] > limit)

    agree = [row for row in rows if row["draft_top1"] == row["target_top1"]]
    groups: dict[str, list[Row]] = {"both_above": [], "both_at_or_below": [], "one_above": []}
    for row in rows:
        highs = high(row, "draft") + high(row, "target")
        groups[("both_at_or_below", "one_above", "both_above")[highs]].append(row)
    accepted = [row for row in rows if row["status"] == "accepted"]
    reached = [row for row in rows if row["reached"]]
    found: dict[str, Any] = {
        "positions": len(rows),
        "agreements": len(agree),
        "disagreements": len(rows) - len(agree),
        "agreement_rate": share(agree, rows),
        "disagreement_rate": (len(rows) - len(agree), len(rows), 1 - len(agree) / len(rows)),
        "acceptance_rate": share(accepted, rows),
        "reached_acceptance_rate": share((r for r in accepted if r["reached"]), reached),
    }
    for name, group in groups.items():
        found[f"{name}_share"] = share(group, rows)
        found[f"{name}_agreement"] = share(
            (r for r in group if r["draft_top1"] == r["target_top1"]), group
        )
    for key in ("draft_top1_prob", "target_top1_prob", "kl", "margin"):
        found[f"mean_{key}"] = statistics.fmean(row[key] for row in rows)
        found[f"median_{key}"] = statistics.median(row[key] for row in rows)
    found["statuses"] = {
        key: sum(row["status"] == key for row in rows)
        for key in ("accepted", "rejected", "discarded")
    }
    found["by_draft_position"] = _by_position(rows)
    found["rounds"], found["first_mismatch"] = _rounds(rows, gamma)
    return found


def _by_position(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    found = []
    for place in range(1 + max(row["draft_position"] for row in rows)):
        here = [row for row in rows if row["draft_position"] == place]
        accepted = [row for row in here if row["status"] == "accepted"]
        found.append(
            (
                share((r for r in here if r["draft_top1"] == r["target_top1"]), here),
                share(accepted, here),
                share(accepted, [row for row in here if row["reached"]]),
            )
        )
    return found


def _rounds(rows: Sequence[Row], gamma: int) -> tuple[dict[str, int], dict[int | None, int]]:
    rounds: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        rounds.setdefault((row["request"], row["round"]), []).append(row)
    whole = [members for members in rounds.values() if len(members) == gamma]
    first: dict[int | None, int] = dict.fromkeys([*range(gamma), None], 0)
    for members in whole:
        missed = [r["draft_position"] for r in members if r["draft_top1"] != r["target_top1"]]
        first[min(missed, default=None)] += 1
    counts = {
        "all": len(rounds),
        "whole": len(whole),
        "truncated": len(rounds) - len(whole),
        "missing_positions": sum(gamma - len(members) for members in rounds.values()),
    }
    return counts, first


def assert_equal(table: Mapping[str, Any], plain: Mapping[str, Any], online: bool) -> None:
    """Hold a mode's table against the plain counts."""

    def same(entry: Mapping[str, Any], expected: tuple[int, int, float | None], key: str) -> None:
        count, of, rate = expected
        assert (entry["count"], entry["of"]) == (count, of), key
        if rate is None:
            assert entry["mean"] is None, key
        else:
            assert abs(entry["mean"] - rate) < 1e-12, key
            assert entry["ci_low"] <= entry["mean"] <= entry["ci_high"], key

    for key, expected in plain.items():
        if isinstance(expected, tuple):
            same(table[key], expected, key)
        elif key.startswith(("mean_", "median_")):
            assert abs(table[key]["mean"] - expected) < 1e-9, key
        elif key in ("positions", "agreements", "disagreements"):
            assert table[key] == expected, key
    if not online:
        return
    assert {key: table[key] for key in plain["statuses"]} == plain["statuses"]
    assert table["rounds"] == plain["rounds"]
    for entry, expected in zip(table["by_draft_position"], plain["by_draft_position"], strict=True):
        for key, value in zip(("agreement", "acceptance", "reached_acceptance"), expected,
                              strict=True):  # fmt: skip
            same(entry[key], value, key)
    first = {entry["index"]: entry["count"] for entry in table["first_mismatch_in_round"]}
    assert first == plain["first_mismatch"]

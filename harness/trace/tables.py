"""The tables of an agreement run, from the trace alone.

Every share is {mean, ci_low, ci_high, n, level, of, count}: `count` of `of` positions (or rounds),
with an interval over the `n` requests. Means and medians have no count. docs/agreement.md defines
each entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.trace.columns import FIXED_PREFIX, ONLINE, above
from harness.trace.intervals import BoolArray, Clusters, Sampling, codes_of

MARGIN_EDGES = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Lower ends of the bins of the target's margin, top-1 minus top-2 logit; the last is open."""
HEAT_BINS = 10
ANSWER_EDGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Lower ends of the bins of a first mismatch's output position; the last is open."""


def mode_tables(
    trace: pd.DataFrame,
    *,
    mode: str,
    requests: Sequence[int],
    categories: Mapping[int, str],
    gamma: int,
    threshold: float,
    sampling: Sampling,
) -> dict[str, Any]:
    """All tables of one mode.

    `requests` are all requests that were run, those without a position included; `categories` names
    theirs, where known. `gamma` is the draft length of a whole round (online).
    """
    rows = trace[trace["mode"] == mode]
    clusters = Clusters(codes_of(requests, rows["request"].to_numpy()), len(requests), sampling)
    match = rows["match"].to_numpy(bool)
    found: dict[str, Any] = {
        "requests": len(requests),
        "requests_without_positions": len(requests) - int(rows["request"].nunique()),
        "positions": len(rows),
        "agreements": int(match.sum()),
        "disagreements": int((~match).sum()),
        **clusters.rates(_headline(rows, match, threshold)),
        **_averages(rows, clusters),
        "by_margin": _by_margin(rows, match, clusters),
        "by_category": _by_category(rows, match, categories, clusters),
        "heat": _heat(rows, match),
    }
    if mode == ONLINE:
        status = rows["status"].to_numpy()
        found |= {key: int((status == key).sum()) for key in ("accepted", "rejected", "discarded")}
        found["reached"] = int(rows["reached"].sum())
        found["by_draft_position"] = _by_draft_position(rows, match, clusters)
        rounds, in_rounds = _rounds(rows, gamma, requests, sampling)
        found |= {"rounds": rounds, "first_mismatch_in_round": in_rounds}
    if mode == FIXED_PREFIX:
        found["first_mismatch_in_answer"] = _first_in_answer(rows, requests, sampling)
    return found


def _headline(
    rows: pd.DataFrame, match: BoolArray, threshold: float
) -> dict[str, tuple[BoolArray, BoolArray]]:
    every = np.ones(len(rows), bool)
    draft = above(rows["draft_top1_prob"], threshold).to_numpy(bool)
    target = above(rows["target_top1_prob"], threshold).to_numpy(bool)
    # A drafter without probabilities belongs to none of the three.
    known = rows["draft_top1_prob"].notna().to_numpy(bool)
    groups = {
        "both_above": draft & target,
        "both_at_or_below": known & ~draft & ~target,
        "one_above": known & (draft != target),
    }
    accepted = (rows["status"] == "accepted").to_numpy(bool)
    found = {
        "agreement_rate": (match, every),
        "disagreement_rate": (~match, every),
        "acceptance_rate": (accepted, every),
        "reached_acceptance_rate": (accepted, rows["reached"].to_numpy(bool)),
    }
    for name, group in groups.items():
        found[f"{name}_share"] = (group, every)
        found[f"{name}_agreement"] = (match, group)
    return found


def _averages(rows: pd.DataFrame, clusters: Clusters) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("draft_top1_prob", "target_top1_prob", "kl", "margin"):
        values = rows[key].to_numpy(float)
        known = np.isfinite(values)
        sums = (np.where(known, values, 0.0), known.astype(float))
        found |= clusters.ratios({f"mean_{key}": sums})
        found[f"median_{key}"] = clusters.median(values) if known.all() else None
    return found


def _by_draft_position(
    rows: pd.DataFrame, match: BoolArray, clusters: Clusters
) -> list[dict[str, Any]]:
    """Agreement at each draft position, and acceptance there of all rounds and of those reached."""
    position = rows["draft_position"].to_numpy()
    accepted = (rows["status"] == "accepted").to_numpy(bool)
    reached = rows["reached"].to_numpy(bool)
    found = []
    for place in range(int(position.max()) + 1 if len(rows) else 0):
        here = position == place
        rates = {
            "agreement": (match, here),
            "acceptance": (accepted, here),
            "reached_acceptance": (accepted, here & reached),
        }
        found.append({"draft_position": place, **clusters.rates(rates)})
    return found


def _by_margin(rows: pd.DataFrame, match: BoolArray, clusters: Clusters) -> list[dict[str, Any]]:
    margin = rows["margin"].to_numpy(np.float32)
    found = []
    for low, high in zip(MARGIN_EDGES, (*MARGIN_EDGES[1:], np.inf), strict=True):
        inside = (margin >= np.float32(low)) & (margin < np.float32(high))
        rates = {"share": (inside, np.isfinite(margin)), "agreement": (match, inside)}
        end = None if np.isinf(high) else high
        found.append({"low": low, "high": end, **clusters.rates(rates)})
    return found


def _by_category(
    rows: pd.DataFrame, match: BoolArray, categories: Mapping[int, str], clusters: Clusters
) -> list[dict[str, Any]]:
    """Agreement by category; n counts the category's own requests."""
    names = rows["request"].map(dict(categories)).to_numpy(object)
    found = []
    for category in sorted(set(categories.values())):
        inside = names == category
        entry = clusters.rates({"agreement": (match, inside)})["agreement"]
        members = sum(name == category for name in categories.values())
        found.append({"category": category, "agreement": {**entry, "n": members}})
    return found


def _rounds(
    rows: pd.DataFrame, gamma: int, requests: Sequence[int], sampling: Sampling
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Counts of rounds, and how often each draft position was a whole round's first mismatch.

    The mismatch counts whether or not the round got there: it is the first disagreement. The last
    entry, index null, is the share of whole rounds without any.
    """
    grouped = rows.groupby(["request", "round"], sort=True)
    sizes = grouped.size()
    whole = sizes[sizes == gamma].index
    mismatches = rows[~rows["match"]].groupby(["request", "round"])["draft_position"].min()
    first = mismatches.reindex(whole).to_numpy(float)
    codes = codes_of(requests, whole.get_level_values("request").to_numpy())
    clusters = Clusters(codes, len(requests), sampling)
    every = np.ones(len(first), bool)
    shares = {str(index): (first == index, every) for index in range(gamma)}
    shares["none"] = (np.isnan(first), every)
    rates = clusters.rates(shares)
    counts = {
        "all": len(sizes),
        "whole": len(whole),
        "truncated": len(sizes) - len(whole),
        "missing_positions": int((gamma - sizes).sum()),
    }
    listed = [{"index": index, **rates[str(index)]} for index in range(gamma)]
    return counts, [*listed, {"index": None, **rates["none"]}]


def _first_in_answer(
    rows: pd.DataFrame, requests: Sequence[int], sampling: Sampling
) -> list[dict[str, Any]]:
    """Requests by the output position of their first disagreement; low is null for none."""
    first = rows[~rows["match"]].groupby("request")["output_position"].min()
    answered = np.unique(rows["request"].to_numpy())
    places = first.reindex(answered).to_numpy(float)
    clusters = Clusters(codes_of(requests, answered), len(requests), sampling)
    every = np.ones(len(places), bool)
    found = []
    for low, high in zip(ANSWER_EDGES, (*ANSWER_EDGES[1:], np.inf), strict=True):
        inside = (places >= low) & (places < high)
        rate = clusters.rates({"share": (inside, every)})["share"]
        found.append({"low": low, "high": None if np.isinf(high) else int(high), **rate})
    none = clusters.rates({"share": (np.isnan(places), every)})["share"]
    return [*found, {"low": None, "high": None, **none}]


def _heat(rows: pd.DataFrame, match: BoolArray) -> dict[str, Any]:
    """Positions and agreements by pair of top-1 probabilities: [target bin][draft bin]."""
    # In the precision of the columns, as in `above`.
    edges = np.linspace(0.0, 1.0, HEAT_BINS + 1).astype(np.float32).astype(float)
    pair = rows[["target_top1_prob", "draft_top1_prob"]].to_numpy(float)

    def counts(mask: BoolArray) -> list[list[int]]:
        table: NDArray[np.float64] = np.histogram2d(
            pair[mask, 0], pair[mask, 1], bins=[edges, edges]
        )[0]
        return [[int(value) for value in row] for row in table]

    known = np.isfinite(pair).all(axis=1)
    return {
        "edges": [round(float(edge), 6) for edge in edges],
        "positions": counts(known),
        "agreements": counts(known & match),
    }

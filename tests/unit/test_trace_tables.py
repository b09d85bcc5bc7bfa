"""The tables of an agreement run against figures worked out by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.trace import study
from harness.trace.columns import COLUMNS, FIXED_PREFIX, ONLINE, both_above
from harness.trace.intervals import Clusters, Sampling, codes_of
from harness.trace.store import write_parquet
from harness.trace.tables import mode_tables
from tests.unit import plain_tables

SAMPLING = Sampling(level=0.95, draws=200, seed=0)
THRESHOLD = 0.8
GAMMA = 3
EMPTY = 2
REQUESTS = [0, 1, EMPTY, 5]
CATEGORIES = {0: "2", 1: "3", EMPTY: "2", 5: "3"}
# Request and round; then for each draft position draft and target top-1 probability, match, the
# letter of the status, margin.
ROUNDS: list[tuple[int, int, list[tuple[float, float, bool, str, float]]]] = [
    (0, 0, [(.9, .95, True, "a", 3.0), (.8, .9, True, "a", 2.5), (.8, .8, True, "a", 1.0)]),
    (0, 1, [(.5, .4, False, "r", .05), (.85, .9, True, "d", 5.0), (.3, .2, False, "d", .1)]),
    (0, 2, [(.99, .99, True, "a", 9.0), (.7, .6, False, "r", .3), (.81, .7, True, "d", .6)]),
    (0, 3, [(.9, .9, True, "a", 4.0), (.6, .8, True, "a", 1.5)]),
    (1, 0, [(.95, .97, True, "a", 8.0), (.97, .99, True, "a", 8.5), (.6, .7, False, "r", .2)]),
    (1, 1, [(.4, .5, True, "a", .7), (.9, .85, False, "r", .4), (.8, .81, False, "d", .15)]),
    (1, 2, [(.99, .999, True, "a", 10.0), (.9, .9, True, "a", 3.5), (.95, .9, True, "a", 4.5)]),
    (5, 0, [(.1, .2, False, "r", 0.0), (.5, .5, True, "d", .9), (.6, .6, True, "d", 1.0)]),
    (5, 1, [(.85, .95, True, "a", 2.0)]),
]  # fmt: skip
STATUS = {"a": "accepted", "r": "rejected", "d": "discarded"}


def trace_of(rounds: Any, mode: str = ONLINE, threshold: float = THRESHOLD) -> pd.DataFrame:
    """A trace with all columns; KL divergences are 0.00, 0.01, 0.02 ... in the order of rows."""
    rows = []
    for request, number, positions in rounds:
        for place, (draft, target, match, status, margin) in enumerate(positions):
            rows.append({
                "request": request, "round": number, "draft_position": place,
                "output_position": number * 4 + place + 1, "prompt_length": 10, "token_id": 7,
                "token_text": "x", "draft_prob": draft, "target_prob": target if match else 0.1,
                "draft_top1": 7, "draft_top1_prob": draft, "target_top1": 7 if match else 8,
                "target_top1_prob": target, "match": match, "status": STATUS[status],
                "reached": status != "d", "mode": mode, "margin": margin, "kl": 0.01 * len(rows),
            })  # fmt: skip
    table = pd.DataFrame(rows)
    for key in ("draft_prob", "target_prob", "draft_top1_prob", "target_top1_prob", "margin", "kl"):
        table[key] = table[key].astype(np.float32)
    table["both_high"] = both_above(table, threshold)
    return table[list(COLUMNS)]


def tables_of(trace: pd.DataFrame, mode: str = ONLINE, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "requests": REQUESTS, "categories": CATEGORIES, "gamma": GAMMA, "threshold": THRESHOLD,
        "sampling": SAMPLING, **changes,
    }  # fmt: skip
    return mode_tables(trace, mode=mode, **settings)


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    trace = trace_of(ROUNDS)
    assert len(trace) == 24
    return tables_of(trace)


def test_counts_by_hand(table: dict[str, Any]) -> None:
    expected = {
        "requests": 4, "requests_without_positions": 1, "positions": 24, "agreements": 17,
        "disagreements": 7, "accepted": 13, "rejected": 5, "discarded": 6, "reached": 18,
    }  # fmt: skip
    assert {key: table[key] for key in expected} == expected
    assert table["rounds"] == {"all": 9, "whole": 7, "truncated": 2, "missing_positions": 3}


@pytest.mark.parametrize(
    ("key", "count", "of"),
    [
        ("agreement_rate", 17, 24),
        ("disagreement_rate", 7, 24),
        ("acceptance_rate", 13, 24),
        ("reached_acceptance_rate", 13, 18),
        # One row has exactly 0.8 in both, three have it in one of them: it is not above 0.8.
        ("both_above_share", 11, 24),
        ("both_above_agreement", 10, 11),
        ("both_at_or_below_share", 10, 24),
        ("both_at_or_below_agreement", 5, 10),
        ("one_above_share", 3, 24),
        ("one_above_agreement", 2, 3),
    ],
)
def test_rates_by_hand(table: dict[str, Any], key: str, count: int, of: int) -> None:
    entry = table[key]
    assert (entry["count"], entry["of"], entry["n"]) == (count, of, 4)
    assert entry["mean"] == pytest.approx(count / of)
    assert 0 <= entry["ci_low"] < entry["mean"] < entry["ci_high"] <= 1


@pytest.mark.parametrize(
    ("key", "mean"),
    [
        ("mean_draft_top1_prob", 17.66 / 24),
        ("mean_target_top1_prob", 18.009 / 24),
        ("median_draft_top1_prob", 0.805),
        ("median_target_top1_prob", 0.83),
        ("mean_kl", 0.115),
        ("median_kl", 0.115),
        ("mean_margin", 66.9 / 24),
        ("median_margin", 1.25),
    ],
)
def test_averages_by_hand(table: dict[str, Any], key: str, mean: float) -> None:
    entry = table[key]
    assert entry["mean"] == pytest.approx(mean, abs=1e-6)
    assert (entry["of"], entry["n"]) == (24, 4)
    assert entry["ci_low"] <= entry["mean"] <= entry["ci_high"]


def test_draft_positions_by_hand(table: dict[str, Any]) -> None:
    keys = ("agreement", "acceptance", "reached_acceptance")
    found = [
        [(entry[key]["count"], entry[key]["of"]) for key in keys]
        for entry in table["by_draft_position"]
    ]
    assert found == [
        [(7, 9), (7, 9), (7, 9)],
        [(6, 8), (4, 8), (4, 6)],
        [(4, 7), (2, 7), (2, 3)],
    ]
    assert [entry["draft_position"] for entry in table["by_draft_position"]] == [0, 1, 2]


def test_first_mismatch_of_whole_rounds_by_hand(table: dict[str, Any]) -> None:
    found = [(e["index"], e["count"], e["of"]) for e in table["first_mismatch_in_round"]]
    assert found == [(0, 2, 7), (1, 2, 7), (2, 1, 7), (None, 2, 7)]


def test_margin_bins_by_hand(table: dict[str, Any]) -> None:
    found = [
        (e["low"], e["high"], e["share"]["count"], e["agreement"]["count"], e["agreement"]["of"])
        for e in table["by_margin"]
    ]
    assert found == [
        (0.0, 0.1, 2, 0, 2), (0.1, 0.25, 3, 0, 3), (0.25, 0.5, 2, 0, 2), (0.5, 1.0, 3, 3, 3),
        (1.0, 2.0, 3, 3, 3), (2.0, 4.0, 4, 4, 4), (4.0, 8.0, 3, 3, 3), (8.0, None, 4, 4, 4),
    ]  # fmt: skip


def test_categories_by_hand(table: dict[str, Any]) -> None:
    found = [
        (e["category"], e["agreement"]["n"], e["agreement"]["count"], e["agreement"]["of"])
        for e in table["by_category"]
    ]
    assert found == [("2", 2, 8, 11), ("3", 2, 9, 13)]


def test_heat_map_by_hand(table: dict[str, Any]) -> None:
    heat = table["heat"]
    positions = {
        (9, 9): 8, (9, 8): 3, (8, 8): 2, (4, 5): 1, (2, 3): 1, (6, 7): 1, (7, 8): 1, (8, 6): 1,
        (7, 6): 1, (5, 4): 1, (8, 9): 1, (2, 1): 1, (5, 5): 1, (6, 6): 1,
    }  # fmt: skip
    without = {(4, 5), (2, 3), (6, 7), (7, 6), (8, 9), (2, 1)}
    agreements = {cell: count for cell, count in positions.items() if cell not in without}
    agreements[8, 8] = 1
    for name, expected in (("positions", positions), ("agreements", agreements)):
        found = {
            (i, j): count
            for i, row in enumerate(heat[name])
            for j, count in enumerate(row)
            if count
        }
        assert found == expected, name
    assert heat["edges"] == pytest.approx([i / 10 for i in range(11)])


def test_a_fixed_prefix_by_hand() -> None:
    rounds = [(0, i, [(0.9, 0.9, i != 5, "a" if i != 5 else "r", 1.0)]) for i in range(8)]
    rounds += [(1, i, [(0.9, 0.9, True, "a", 1.0)]) for i in range(3)]
    trace = trace_of(rounds, FIXED_PREFIX)
    trace["output_position"] = trace["round"]
    found = tables_of(trace, FIXED_PREFIX)
    assert (found["positions"], found["agreements"]) == (11, 10)
    assert "rounds" not in found
    bins = {(e["low"], e["high"]): (e["count"], e["of"]) for e in found["first_mismatch_in_answer"]}
    assert bins.pop((4, 8)) == (1, 2)  # request 0, at its sixth token
    assert bins.pop((None, None)) == (1, 2)
    assert set(bins.values()) == {(0, 2)}


def test_where_all_agree_the_interval_is_wilsons() -> None:
    rounds = [(0, 0, [(0.9, 0.9, True, "a", 1.0)] * 3), (1, 0, [(0.9, 0.9, True, "a", 1.0)] * 3)]
    entry = tables_of(trace_of(rounds))["agreement_rate"]
    # z^2 / (n + z^2) below 1 with z = 1.959964 and n = 6
    assert entry["ci_low"] == pytest.approx(6 / (6 + 1.959964**2), abs=1e-6)
    assert entry["ci_high"] == 1.0


def test_an_empty_trace_has_no_rates() -> None:
    found = tables_of(trace_of(ROUNDS).iloc[:0])
    assert (found["positions"], found["requests_without_positions"]) == (0, 4)
    assert found["agreement_rate"]["mean"] is None
    assert found["by_draft_position"] == []
    assert found["rounds"] == {"all": 0, "whole": 0, "truncated": 0, "missing_positions": 0}


def test_a_row_of_an_unknown_request_is_refused() -> None:
    with pytest.raises(ValueError, match="not run"):
        tables_of(trace_of(ROUNDS), requests=[0, 1, EMPTY])


def test_the_studys_rates_follow_from_its_counts() -> None:
    figures = study.figures()
    assert figures["positions"] == 275_049
    assert figures["disagreements"] == 11_065
    assert f"{figures['agreement_rate']:.2%}" == "95.98%"
    assert f"{figures['disagreement_rate']:.2%}" == "4.02%"
    # The same by the code that counts a trace.
    rows = np.arange(study.POSITIONS)
    codes = codes_of(range(study.REQUESTS), rows % study.REQUESTS)
    clusters = Clusters(codes, study.REQUESTS, SAMPLING)
    match, every = rows < study.AGREEMENTS, np.ones(study.POSITIONS, bool)
    rates = clusters.rates({"same": (match, every), "other": (~match, every)})
    assert (rates["same"]["count"], rates["other"]["count"]) == (263_984, 11_065)
    assert f"{rates['same']['mean']:.2%}, {rates['other']['mean']:.2%}" == "95.98%, 4.02%"


def random_rounds(seed: int) -> Any:
    """Rounds as a real run has them: accepted up to a refusal, the last ones cut short."""
    rng = random.Random(seed)
    rounds = []
    for request in range(30):
        count = rng.randrange(0, 9)
        for number in range(count):
            length = rng.randrange(1, GAMMA + 1) if number == count - 1 else GAMMA
            refused, positions = False, []
            for _ in range(length):
                match = rng.random() < 0.8
                status = "d" if refused else "a" if match else "r"
                refused |= not match
                pair = (rng.choice([0.8, rng.random()]), rng.choice([0.8, rng.random()]))
                positions.append((*pair, match, status, rng.expovariate(0.5)))
            rounds.append((request, number, positions))
    return rounds


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threshold", [0.8, 0.55])
def test_every_figure_is_recomputed_by_plain_code(
    tmp_path: Path, seed: int, threshold: float
) -> None:
    trace = trace_of(random_rounds(seed), threshold=threshold)
    path = tmp_path / "trace.parquet"
    write_parquet(trace, path)
    requests = list(range(30))
    found = tables_of(trace, requests=requests, categories={}, threshold=threshold)
    rows = plain_tables.read_rows(path, ONLINE)
    plain_tables.assert_equal(found, plain_tables.counted(rows, GAMMA, threshold), online=True)
    rounds = found["rounds"]
    assert found["positions"] == rounds["all"] * GAMMA - rounds["missing_positions"]
    statuses = [found[key] for key in ("accepted", "rejected", "discarded")]
    assert sum(statuses) == found["positions"]
    # Single precision decides a tie: no row with a probability of 0.8 is above it.
    assert not any(row["both_high"] for row in rows if plain_tables.single(threshold) in
                   (row["draft_top1_prob"], row["target_top1_prob"]))  # fmt: skip

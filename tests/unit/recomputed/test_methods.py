"""Figures of each method: of its requests and rounds, and against the baseline."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.recomputed.arithmetic import (
    Records,
    decode_rate,
    encloses_student,
    geometric,
    ok,
    quantile,
    round_seconds,
    whole_rate,
)


def own_figures(trials: list[dict[str, Any]]) -> dict[str, Any]:
    tpot, ttft, service, prefill, gaps, rounds = [], [], [], [], [], []
    sums = dict.fromkeys(("drafted", "reached", "accepted", "committed", "count", "uncut"), 0)
    positions: dict[int, int] = defaultdict(int)
    phases = dict.fromkeys(("draft", "verify", "other"), 0.0)
    decoded = 0
    fractions = []
    for record in trials:
        rounds += round_seconds(record)
        for name in phases:
            phases[name] += sum(record["rounds"][f"{name}_s"])
        for request in record["requests"]:
            times = []
            for end, count in zip(request["round_end_s"], request["round_tokens"], strict=True):
                times += [end] * count
            gaps += [b - a for a, b in pairwise(times)]
            if len(times) > 1:
                tpot.append((times[-1] - times[0]) / (len(times) - 1))
            ttft.append(request["ttft_s"])
            service.append(request["ttft_s"] - request["queue_s"])
            prefill.append(request["prefill_s"])
            decoded += len(times) - 1
        columns = record["sequence_rounds"]
        for drafted, reached, accepted, committed in zip(
            columns["drafted"], columns["reached"], columns["accepted"], columns["committed"],
            strict=True,
        ):  # fmt: skip
            sums["drafted"] += drafted
            sums["reached"] += reached
            sums["accepted"] += accepted
            sums["committed"] += committed
            sums["count"] += 1
            if committed == accepted + 1:
                sums["uncut"] += 1
                for i in range(accepted):
                    positions[i] += 1
        if record["cell"]["drafter"]["kind"] == "none":
            ideal = record["proof"]["bytes_per_token"] / record["bandwidth"]["read_bytes_s"]
            fractions.append(ideal * len(round_seconds(record)) / sum(round_seconds(record)))
    gamma = trials[0]["cell"]["shape"].get("gamma", 0)
    return {
        "mean_tpot_ms": 1e3 * sum(tpot) / len(tpot),
        "mean_ttft_ms": 1e3 * sum(ttft) / len(ttft),
        "service_ttft_ms": 1e3 * sum(service) / len(service),
        "mean_prefill_s": sum(prefill) / len(prefill),
        "p99_itl_ms": 1e3 * quantile(gaps, 0.99),
        "p99_round_ms": 1e3 * quantile(rounds, 0.99),
        "acceptance_length": sums["committed"] / sums["count"],
        "acceptance_rate": sums["accepted"] / sums["drafted"] if sums["drafted"] else None,
        "reached_acceptance_rate": sums["accepted"] / sums["reached"] if sums["reached"] else None,
        "per_position": [positions[i] / sums["uncut"] for i in range(gamma)],
        "phases_ms": {name: 1e3 * value / decoded for name, value in phases.items()},
        "roofline_fraction": sum(fractions) / len(fractions) if fractions else None,
    }


def test_own_figures_of_every_method(summary: dict[str, Any], records: Records) -> None:
    checked = 0
    for row in summary["methods"]:
        if not ok(row):
            continue
        want = own_figures(records[row["group"], row["method_id"], row["role"]])
        for name, value in want.items():
            if name == "per_position":
                assert row["per_position_acceptance_rates"] == pytest.approx(value)
            elif name == "phases_ms":
                assert row[name] == pytest.approx(value)
            elif value is None:
                assert row[name] is None
                assert row["intervals"][name] is None
            else:
                assert row["intervals"][name]["mean"] == pytest.approx(value), name
                if name == "mean_prefill_s":
                    assert row[name]["mean"] == pytest.approx(value)
                elif name != "service_ttft_ms":
                    assert row[name] == pytest.approx(value), name
        assert row["blocks"] == 7
        checked += 1
    assert checked == 26 + 12 + 12 - 1


def test_a_chains_tau_is_one_plus_its_positions_where_nothing_is_cut(
    summary: dict[str, Any], records: Records
) -> None:
    for row in summary["methods"]:
        if not ok(row) or row["drafter"]["kind"] == "none":
            continue
        committed = rounds = 0
        for record in records[row["group"], row["method_id"], row["role"]]:
            columns = record["sequence_rounds"]
            for accepted, kept in zip(columns["accepted"], columns["committed"], strict=True):
                if kept == accepted + 1:
                    committed, rounds = committed + kept, rounds + 1
        assert 1 + sum(row["per_position_acceptance_rates"]) == pytest.approx(committed / rounds)


def test_throughputs_speedups_and_their_blocks(summary: dict[str, Any], records: Records) -> None:
    for row in summary["methods"]:
        if not ok(row):
            continue
        trials = records[row["group"], row["method_id"], row["role"]]
        base = records[row["group"], "fp16", "baseline"]
        for name, ratio_name, rate in (
            ("output_throughput", "speedup", decode_rate),
            ("end_to_end_throughput", "end_to_end_speedup", whole_rate),
        ):
            rates = [rate(record) for record in trials]
            ratios = [rate(a) / rate(b) for a, b in zip(trials, base, strict=True)]
            assert row[name]["mean"] == pytest.approx(geometric(rates))
            assert row[ratio_name]["mean"] == pytest.approx(geometric(ratios))
            assert row[ratio_name]["n"] == row[name]["n"] == 7
            encloses_student(row[name], rates)
            if row["role"] != "baseline":
                encloses_student(row[ratio_name], ratios)
        blocks = row["by_block"]
        assert blocks["output_throughput"] == pytest.approx([decode_rate(r) for r in trials])
        assert blocks["speedup"] == pytest.approx(
            [decode_rate(a) / decode_rate(b) for a, b in zip(trials, base, strict=True)]
        )
        assert blocks["block"] == [record["block"] for record in trials]
        assert row["outliers"] == far_blocks(blocks["block"], blocks["speedup"])


def far_blocks(blocks: list[str], ratios: list[float]) -> list[str]:
    logs = [math.log(r) for r in ratios]
    middle = quantile(logs, 0.5)
    deviation = 1.4826 * quantile([abs(x - middle) for x in logs], 0.5)
    return [
        b for b, x in zip(blocks, logs, strict=True)
        if deviation > 0 and abs(x - middle) > 3.5 * deviation
    ]  # fmt: skip


def test_speedup_over_the_own_target(summary: dict[str, Any], records: Records) -> None:
    for row in summary["methods"]:
        if not ok(row) or row["drafter"]["kind"] == "none":
            assert row["versus_target"] is None
            continue
        role = "baseline" if row["precision"] == "fp16" else "method"
        target = records[row["group"], row["precision"], role]
        trials = records[row["group"], row["method_id"], "method"]
        ratios = [decode_rate(a) / decode_rate(b) for a, b in zip(trials, target, strict=True)]
        assert row["versus_target"]["mean"] == pytest.approx(geometric(ratios))
        encloses_student(row["versus_target"], ratios)


def test_losslessness(summary: dict[str, Any], records: Records) -> None:
    for row in summary["methods"]:
        if not ok(row):
            continue
        if row["drafter"]["kind"] == "none":
            assert row["lossless"] is None
            continue
        compared = sum(
            record["losslessness"]["tokens_compared"]
            for record in records[row["group"], row["method_id"], "method"]
        )
        assert row["losslessness"]["tokens_compared"] == compared > 0
        assert row["lossless"] is True


def test_quality(summary: dict[str, Any], records: Records) -> None:
    for row in summary["methods"]:
        if row["precision"] == "fp16":
            assert row["quality"] is None
            assert row["quality_gate"]["passed"] is True
            continue
        total = dict.fromkeys(("positions", "agree", "kl_sum", "nll_sum", "ref_nll_sum"), 0.0)
        for record in records[row["group"], row["precision"], "method"]:
            for sequence in record["quality"]["sequences"]:
                for name in total:
                    total[name] += sequence[name]
        found, n = row["quality"], total["positions"]
        plain = row["drafter"]["kind"] == "none"
        assert found["inherited_from"] == (None if plain else row["precision"])
        assert found["agreement_rate"]["mean"] == pytest.approx(total["agree"] / n)
        assert found["kl"]["mean"] == pytest.approx(total["kl_sum"] / n)
        assert found["perplexity"]["mean"] == pytest.approx(math.exp(total["nll_sum"] / n))
        assert found["ref_perplexity"]["mean"] == pytest.approx(math.exp(total["ref_nll_sum"] / n))
        ratio = math.exp((total["nll_sum"] - total["ref_nll_sum"]) / n)
        assert found["perplexity_ratio"]["mean"] == pytest.approx(ratio)
        passed = (
            found["perplexity_ratio"]["ci_high"] <= 1.05 and found["kl"]["ci_high"] <= 0.05
            and found["agreement_rate"]["ci_low"] >= 0.95
        )  # fmt: skip
        assert row["quality_gate"]["passed"] is passed
        assert (row["status"] == "rejected_by_quality") is (ok(row) and not passed)

"""Costs, latency targets, the arms that are picked, and the verdict."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.unit.recomputed.arithmetic import (
    T95,
    Records,
    check_money,
    decode_rate,
    geometric,
    money,
    ok,
    whole_rate,
)


def test_costs_of_every_method(
    summary: dict[str, Any], records: Records, config: dict[str, Any]
) -> None:
    for row in summary["methods"]:
        if not ok(row):
            assert row["cost"] is None
            continue
        rate = geometric(
            [whole_rate(r) for r in records[row["group"], row["method_id"], row["role"]]]
        )
        base = geometric([whole_rate(r) for r in records[row["group"], "fp16", "baseline"]])
        check_money(row["cost"], money(config["cost"], row["arm"], rate, base))
        assert row["cost"]["projected"] is True


def test_latency_targets(summary: dict[str, Any], records: Records, config: dict[str, Any]) -> None:
    slo = config["cost"]["slo"]
    for row in summary["methods"]:
        if not ok(row):
            continue
        met = total = 0
        for record in records[row["group"], row["method_id"], row["role"]]:
            for request in record["requests"]:
                times = request["round_end_s"]
                tpot = (times[-1] - times[0]) / max(1, request["output_tokens"] - 1)
                wait = request["ttft_s"] - request["queue_s"]
                met += 1e3 * wait <= slo["ttft_ms"] and 1e3 * tpot <= slo["tpot_ms"]
                total += 1
        assert row["slo"]["attainment"]["mean"] == pytest.approx(met / total)
        assert row["slo"]["n"] == total
        assert row["slo"]["passed"] is (met / total >= slo["attainment"])


def held_out(
    records: Records, group: str, picks: list[str], rate: Any
) -> tuple[float, list[list[float]]]:
    """(cross-fitted ratio, ratios of each held-out half): picks[0] is judged on odd blocks."""
    halves = []
    for pick, first in zip(picks, (1, 0), strict=True):
        trials = records[group, pick, "method"][first::2]
        base = records[group, "fp16", "baseline"][first::2]
        halves.append([rate(a) / rate(b) for a, b in zip(trials, base, strict=True)])
    return math.sqrt(geometric(halves[0]) * geometric(halves[1])), halves


def test_arms_are_picked_on_one_half_and_judged_on_the_other(
    summary: dict[str, Any], records: Records, config: dict[str, Any]
) -> None:
    assert len(summary["arms"]) == 9
    for entry in summary["arms"]:
        group = entry["group"]
        candidates = [
            row["method_id"] for row in summary["methods"]
            if row["group"] == group and row["arm"] == entry["arm"] and row["status"] == "ok"
            and row["quality_gate"]["passed"] and row["slo"]["passed"]
        ]  # fmt: skip
        base = records[group, "fp16", "baseline"]
        usual = geometric([whole_rate(r) for r in base])
        for pick, first in zip(entry["picks"], (0, 1), strict=True):
            worth = {}
            for name in candidates:
                trials = records[group, name, "method"]
                gain = geometric([whole_rate(a) / whole_rate(b) for a, b in
                                  zip(trials[first::2], base[first::2], strict=True)])  # fmt: skip
                value = money(config["cost"], entry["arm"], usual * gain, usual)["net_value"]
                worth[name] = (value, gain)
            assert pick == max(worth, key=lambda name: worth[name])
        assert entry["method_id"] in entry["picks"]
        decode, halves = held_out(records, group, entry["picks"], decode_rate)
        whole, _ = held_out(records, group, entry["picks"], whole_rate)
        assert entry["speedup"]["mean"] == pytest.approx(decode)
        assert entry["end_to_end_speedup"]["mean"] == pytest.approx(whole)
        # The half-width is the mean of the halves' own, each at least Student's t.
        widths = []
        for half in halves:
            logs = [math.log(x) for x in half]
            mean = sum(logs) / len(logs)
            spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
            widths.append(T95[len(logs) - 1] * spread / math.sqrt(len(logs)))
        reached = math.log(entry["speedup"]["ci_high"] / entry["speedup"]["mean"])
        assert reached >= sum(widths) / 2 - 1e-9
        check_money(entry["cost"], money(config["cost"], entry["arm"], usual * whole, usual))


def test_verdict_and_sensitivity(
    summary: dict[str, Any], records: Records, config: dict[str, Any]
) -> None:
    verdict, cost = summary["verdict"], config["cost"]
    group = verdict["group"]
    assert group == "smollm2-135m.prod.cpu.b1.natural"
    assert verdict["decision"] == "pilot"
    assert verdict["cost"]["net_value"]["ci_low"] > 0
    base = geometric([whole_rate(r) for r in records[group, "fp16", "baseline"]])
    speedup = verdict["end_to_end_speedup"]
    check_money(verdict["cost"], money(cost, verdict["arm"], base * speedup["mean"], base))
    keys = {"price": "device_price_per_hour", "demand": "demand_tokens_per_month",
            "utilization": "utilization"}  # fmt: skip
    for row in summary["sensitivity"]:
        for place, end in enumerate(("low", "high")):
            changed, gain = dict(cost), speedup["mean"]
            if row["factor"] == "speedup":
                gain = speedup["ci_low" if end == "low" else "ci_high"]
                assert row[end]["value"] == pytest.approx(gain)
            else:
                value = cost[keys[row["factor"]]] * cost["sensitivity"][row["factor"]][place]
                changed[keys[row["factor"]]] = value
                assert row[end]["value"] == pytest.approx(value)
            want = money(changed, verdict["arm"], base * gain, base)["net_value"]
            assert row[end]["net_value"] == pytest.approx(want)
    assert {row["factor"] for row in summary["sensitivity"]} == {*keys, "speedup"}

"""Every figure of summary.json, computed a second time from records/ with loops alone.

Nothing of the analysis is imported but its entry. Points are compared exactly; the ends of
intervals rest on draws, so they are held against what they must enclose: the point, and Student's t
on the block log ratios.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.analysis import analyse
from tests.fakes.records import FakeWorld, write_results

# Students t, two-sided 95 %, by degrees of freedom.
T95 = {1: 12.7062047, 2: 4.30265273, 3: 3.18244631, 4: 2.77644511, 5: 2.57058184, 6: 2.44691185,
       7: 2.36462425}  # fmt: skip
FAILED = "w4a16+ngram.g5"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = FakeWorld(blocks=7, failed=(FAILED,))
    folder = write_results(tmp_path_factory.mktemp("results"), world)
    analyse(folder)
    return folder


@pytest.fixture(scope="module")
def summary(results: Path) -> dict[str, Any]:
    return dict(json.loads((results / "summary.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def config(results: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((results / "config.yaml").read_text(encoding="utf-8")))


Records = dict[tuple[str, str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def records(results: Path) -> Records:
    """Records by (group, method id, role), in the order of the blocks."""
    found: Records = defaultdict(list)
    for path in sorted((results / "records").glob("*/*/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        cell = record["cell"]
        found[record["group"], cell["method_id"], cell["role"]].append(record)
    return found


def round_seconds(record: dict[str, Any]) -> list[float]:
    rounds = record["rounds"]
    return [a + b + c for a, b, c in zip(rounds["draft_s"], rounds["verify_s"], rounds["other_s"],
                                         strict=True)]  # fmt: skip


def decode_rate(record: dict[str, Any]) -> float:
    tokens = sum(request["output_tokens"] - 1 for request in record["requests"])
    return float(tokens / sum(round_seconds(record)))


def whole_rate(record: dict[str, Any]) -> float:
    tokens = sum(request["output_tokens"] for request in record["requests"])
    prefill = sum(request["prefill_s"] for request in record["requests"])
    return float(tokens / (sum(round_seconds(record)) + prefill))


def geometric(values: list[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


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


def ok(row: dict[str, Any]) -> bool:
    return bool(row["status"] != "failed")


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


def encloses_student(interval: dict[str, Any], values: list[float]) -> None:
    """The reported interval is no narrower than Student's t on the logarithms."""
    logs = [math.log(v) for v in values]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
    half = T95[len(logs) - 1] * spread / math.sqrt(len(logs))
    assert math.log(interval["ci_low"]) <= mean - half + 1e-9
    assert math.log(interval["ci_high"]) >= mean + half - 1e-9


def far_blocks(blocks: list[str], ratios: list[float]) -> list[str]:
    logs = [math.log(r) for r in ratios]
    middle = quantile(logs, 0.5)
    deviation = 1.4826 * quantile([abs(x - middle) for x in logs], 0.5)
    return [
        b for b, x in zip(blocks, logs, strict=True)
        if deviation > 0 and abs(x - middle) > 3.5 * deviation
    ]  # fmt: skip


def test_decisions_follow_from_the_intervals(summary: dict[str, Any]) -> None:
    for row in summary["methods"]:
        if row["role"] == "baseline":
            assert row["decision"] == "baseline"
        elif not ok(row):
            assert row["decision"] == "undecided"
        else:
            assert row["decision"] == word(row["speedup"])
        if row["versus_target"]:
            assert row["versus_target_decision"] == word(row["versus_target"])


def word(interval: dict[str, Any]) -> str:
    if interval["ci_low"] > 1.02:
        return "faster"
    if interval["ci_high"] < 1 / 1.02:
        return "slower"
    inside = interval["ci_low"] >= 1 / 1.02 and interval["ci_high"] <= 1.02
    return "equal" if inside else "undecided"


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


def test_interactions(summary: dict[str, Any], records: Records) -> None:
    known = 0
    for row in summary["interaction"]:
        if row["reason"] is not None:
            assert row["mean"] is None
            missing = row["combined"] is None or row["speculation"] is None
            assert missing or row["combined"] == FAILED
            continue
        logs = []
        parts = [(row["combined"], "method"), (row["quantization"], "method"),
                 (row["speculation"], "method"), ("fp16", "baseline")]  # fmt: skip
        for block in range(7):
            c, q, s, b = (decode_rate(records[row["group"], *part][block]) for part in parts)
            logs.append((c / b) / ((q / b) * (s / b)))
        assert row["mean"] == pytest.approx(geometric(logs))
        encloses_student(row, logs)
        words = {"faster": "help", "slower": "eat", "equal": "multiply", "undecided": "undecided"}
        assert row["decision"] == words[word(row)]
        known += 1
    assert known == 12 + 4 + 4 - 1  # w4a16 with three drafters, w4a8 with one; one failed


def test_noise_floor(summary: dict[str, Any], records: Records) -> None:
    everything = []
    for group, found in summary["noise_floor"]["groups"].items():
        pairs = zip(records[group, "fp16", "noise"], records[group, "fp16", "baseline"],
                    strict=True)  # fmt: skip
        ratios = [decode_rate(a) / decode_rate(b) for a, b in pairs]
        assert found["mean"] == pytest.approx(geometric(ratios))
        encloses_student(found, ratios)
        everything += ratios
    overall = summary["noise_floor"]["overall"]
    assert overall["mean"] == pytest.approx(geometric(everything))
    assert overall["n"] == len(everything) == 21


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


def money(cost: dict[str, Any], arm: str, rate: float, base: float) -> dict[str, float]:
    month = 730 * 3600
    devices = math.ceil(cost["demand_tokens_per_month"] / (rate * cost["utilization"] * month))
    before = math.ceil(cost["demand_tokens_per_month"] / (base * cost["utilization"] * month))
    hourly = cost["device_price_per_hour"]
    engineering = cost["engineering_rate_per_day"] * cost["engineering_days"].get(arm, 0)
    saving = (before - devices) * hourly * 730
    return {
        "per_million_tokens": hourly / 3600 / (rate * cost["utilization"]) * 1e6,
        "devices": devices,
        "monthly_cost": devices * hourly * 730,
        "monthly_saving": saving,
        "payback_months": engineering / saving if saving > 0 else math.inf,
        "net_value": saving * cost["horizon_months"] - engineering,
    }


def check_money(found: dict[str, Any], want: dict[str, float]) -> None:
    for name, value in want.items():
        interval = found[name]
        if math.isinf(value):
            assert interval["mean"] is None
            continue
        assert interval["mean"] == pytest.approx(value), name
        assert interval["ci_low"] <= value + 1e-9
        assert interval["ci_high"] is None or interval["ci_high"] >= value - 1e-9


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


def test_failures(summary: dict[str, Any]) -> None:
    assert {failure["method_id"] for failure in summary["failures"]} == {FAILED}
    assert len(summary["failures"]) == 7
    row = next(row for row in summary["methods"] if row["method_id"] == FAILED)
    assert (row["status"], row["speedup"], row["blocks"]) == ("failed", None, 0)
    assert row["error"]["type"] == "device"


def intervals(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if {"mean", "ci_low", "ci_high"} <= value.keys():
            yield path, value
        for key, inner in value.items():
            yield from intervals(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from intervals(inner, f"{path}[{index}]")


def test_every_interval_holds_its_mean_and_says_n_and_level(summary: dict[str, Any]) -> None:
    found = [pair for pair in intervals(summary) if pair[1]["mean"] is not None]
    assert len(found) > 500
    for path, interval in found:
        assert interval["level"] == 0.95, path
        assert interval["n"] >= 1, path
        assert interval["ci_low"] is None or interval["ci_low"] <= interval["mean"], path
        assert interval["ci_high"] is None or interval["ci_high"] >= interval["mean"], path


def test_plain_numbers_have_an_interval_beside_them(summary: dict[str, Any]) -> None:
    for row in filter(ok, summary["methods"]):
        for name in (
            "mean_tpot_ms", "mean_ttft_ms", "p99_itl_ms", "p99_round_ms", "acceptance_length",
            "acceptance_rate", "reached_acceptance_rate",
        ):  # fmt: skip
            if row[name] is not None:
                assert row["intervals"][name]["n"] > 1
                assert row["intervals"][name]["mean"] == row[name]


def test_the_same_records_give_the_same_summary(results: Path, summary: dict[str, Any]) -> None:
    again = json.loads(json.dumps(analyse(results)))
    for found in (again, summary):
        found.pop("created_at", None)
    assert again == summary

"""The decision, rule by rule: each test fails where its rule is dropped."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from tests.fakes.cells import GroupSpec
from tests.fakes.folder import SMALL, Folder
from tests.fakes.records import FakeWorld
from tests.unit.verdicts import keys, only, stretch, verdict


def test_adopt_where_all_is_known_and_it_pays(tmp_path: Path) -> None:
    found = verdict(Folder(), tmp_path)
    assert found["decision"] == "adopt"
    assert found["cost"]["net_value"]["ci_low"] > 0
    assert keys(found["reasons"])[:2] == ["net_value_positive", "speedup_decided"]
    assert found["arm"] == "combined"


def caveat_free(found: dict[str, Any]) -> set[str]:
    caveats = {"demand_assumed", "price_assumed", "prompts_assumed", "faults_untested",
               "dequantized_baseline"}  # fmt: skip
    return caveats & set(keys(found["reasons"]))


@pytest.mark.parametrize(
    ("part", "place", "value", "reason"),
    [
        ("config", ("cost", "assumed", "demand"), True, "demand_assumed"),
        ("config", ("cost", "assumed", "price"), True, "price_assumed"),
        ("environment", ("workload", "text_assumed"), True, "prompts_assumed"),
        ("environment", ("workload",), None, "prompts_assumed"),
        ("environment", ("faults_tested",), False, "faults_untested"),
        ("environment", ("faults_tested",), None, "faults_untested"),
        ("environment", ("model", "dequantized_baseline"), True, "dequantized_baseline"),
    ],
)
def test_pilot_where_something_is_assumed(
    part: str, place: tuple[str, ...], value: Any, reason: str, tmp_path: Path
) -> None:
    folder = Folder()
    target = getattr(folder, part)
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    found = verdict(folder, tmp_path)
    assert found["decision"] == "pilot"
    assert caveat_free(found) == {reason}


def test_assumed_pool_text_matters_to_fixed_contexts_alone(tmp_path: Path) -> None:
    folder = Folder(FakeWorld(groups=(SMALL, GroupSpec(1, 1024, (3,), 2))))
    folder.environment["workload"]["pool_text_assumed"] = True
    found = verdict(folder, tmp_path)
    assert [group["decision"] for group in found["by_group"]] == ["adopt", "pilot"]


def test_reject_where_nothing_can_pay(tmp_path: Path) -> None:
    folder = Folder()
    folder.config["cost"]["engineering_days"] = dict.fromkeys(
        ("quantization", "speculation", "combined"), 1e6
    )
    found = verdict(folder, tmp_path)
    assert found["decision"] == "reject"
    assert found["arm"] == "baseline"
    assert keys(found["reasons"])[0] == "net_value_negative"


def test_one_method_that_may_still_pay_prevents_a_rejection(tmp_path: Path) -> None:
    folder = Folder()
    days = folder.config["cost"]["engineering_days"]
    days |= {"combined": 1e6, "quantization": 1e6, "speculation": 31}
    found = verdict(folder, tmp_path)
    assert found["decision"] != "reject"


def test_reject_where_no_method_passes_the_quality_gate(tmp_path: Path) -> None:
    folder = Folder(record=only("w4a16", "w4a8", "w4a4"))
    folder.config["cost"]["quality"]["agreement_rate"] = 1.0
    found = verdict(folder, tmp_path)
    assert found["decision"] == "reject"
    assert keys(found["reasons"])[0] == "quality_failed_all"
    assert found["reasons"][1]["params"]["measure"] == "agreement_rate"


def test_a_method_outside_the_quality_tolerance_is_passed_over(tmp_path: Path) -> None:
    folder = Folder(record=only("w4a16", "w4a4"))
    folder.world.speed["w4a4"] = 0.2  # by far the fastest
    summary = analyse(folder.write(tmp_path))
    assert summary["verdict"]["method_id"] == "w4a16"
    rows = {row["method_id"]: row for row in summary["methods"]}
    assert rows["w4a4"]["status"] == "rejected_by_quality"
    assert rows["w4a4"]["decision"] == "faster"


def test_the_gate_uses_the_pessimistic_end(tmp_path: Path) -> None:
    folder = Folder(record=only("w4a8"))
    rate = analyse(folder.write(tmp_path))["methods"][-1]["quality"]["agreement_rate"]
    assert rate["ci_low"] < rate["mean"]
    folder.config["cost"]["quality"]["agreement_rate"] = (rate["ci_low"] + rate["mean"]) / 2
    assert verdict(folder, tmp_path)["decision"] == "reject"


def test_a_method_refused_when_it_was_recorded_stays_refused(tmp_path: Path) -> None:
    def refuse(record: dict[str, Any]) -> None:
        only("w4a16", "w4a8")(record)
        if record["cell"]["method_id"] == "w4a8":
            record["status"] = "rejected_by_quality"

    found = verdict(Folder(record=refuse), tmp_path)
    assert found["method_id"] == "w4a16"


def open_folder(tmp_path: Path) -> Folder:
    """A folder whose only method just breaks even."""
    folder = Folder(record=only("w4a16"))
    value = analyse(folder.write(tmp_path))["verdict"]["cost"]["net_value"]
    assert value["ci_low"] < value["mean"] < value["ci_high"]
    cost = folder.config["cost"]
    shift = (0.7 * value["mean"] + 0.3 * value["ci_low"]) / cost["engineering_rate_per_day"]
    cost["engineering_days"]["quantization"] += shift
    return folder


def test_undecided_where_the_net_value_may_be_zero_and_more_blocks_are_named(
    tmp_path: Path,
) -> None:
    found = verdict(open_folder(tmp_path), tmp_path)
    assert found["decision"] == "undecided"
    assert keys(found["reasons"])[0] == "net_value_open"
    plan = found["next_measurement"]
    assert plan["key"] == "more_blocks"
    assert plan["params"]["method"] == "w4a16"
    # Six blocks gave this half-width; the law of 1/sqrt(blocks) gives the number that decides.
    needed = 6 * (plan["params"]["half_width"] / plan["params"]["needed"]) ** 2
    assert plan["params"]["blocks"] == math.ceil(needed) - 6 > 0


def test_a_decided_arm_is_taken_where_the_best_one_is_open(tmp_path: Path) -> None:
    """The combined method is the best on average, and wavers too much to be sure of."""

    def waver(record: dict[str, Any]) -> None:
        only("w4a16", "w4a16+ngram.g3")(record)
        if record["cell"]["arm"] == "combined":
            stretch(record, 0.2 if int(record["block"]) % 4 < 2 else 1.2)

    summary = analyse(Folder(record=waver).write(tmp_path))
    arms = {entry["arm"]: entry for entry in summary["arms"]}
    values = {arm: arms[arm]["cost"]["net_value"] for arm in ("quantization", "combined")}
    assert values["combined"]["mean"] > values["quantization"]["mean"]
    assert values["combined"]["ci_low"] < 0 < values["quantization"]["ci_low"]
    assert summary["verdict"]["decision"] == "adopt"
    assert summary["verdict"]["method_id"] == "w4a16"


def test_undecided_where_the_speedup_is_inside_the_zone_however_large_the_demand(
    tmp_path: Path,
) -> None:
    folder = Folder(record=only("w4a16"))
    folder.world.speed["w4a16"] = 2.5 / 1.015  # the fake's w4a16 is 2.5 times as fast
    folder.world.trial_noise = folder.world.drift = 0.0
    folder.config["cost"] |= {"demand_tokens_per_month": 1e15, "horizon_months": 120}
    found = verdict(folder, tmp_path)
    assert found["cost"]["net_value"]["ci_low"] > 0
    assert found["end_to_end_speedup"]["ci_low"] > 1.0
    assert found["decision"] == "undecided"
    assert keys(found["reasons"]) == ["speedup_open"]


@pytest.mark.parametrize(
    ("axis", "value", "reason"), [("synthetic", True, "synthetic"),
                                  ("acceptance", "replay", "replayed")],
)  # fmt: skip
def test_synthetic_and_replayed_are_never_adopted(
    axis: str, value: Any, reason: str, tmp_path: Path
) -> None:
    def change(record: dict[str, Any]) -> None:
        record["cell"] = {**record["cell"], axis: value}

    found = verdict(Folder(record=change), tmp_path)
    assert found["decision"] == "undecided"
    assert reason in keys(found["reasons"])
    assert found["next_measurement"]["key"] == "measure_real_weights"


def test_a_replayed_method_gives_way_to_a_measured_one(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        if record["cell"]["drafter"]["kind"] != "none":
            record["cell"] = {**record["cell"], "acceptance": "replay"}

    found = verdict(Folder(record=change), tmp_path)
    assert (found["decision"], found["arm"]) == ("adopt", "quantization")


def test_undecided_where_no_method_meets_the_latency_targets(tmp_path: Path) -> None:
    folder = Folder()
    folder.config["cost"]["slo"]["ttft_ms"] = 1e-3
    found = verdict(folder, tmp_path)
    assert found["decision"] == "undecided"
    assert "slo_failed" in keys(found["reasons"])
    assert found["next_measurement"]["key"] == "meet_slo"


def test_undecided_where_quality_was_not_measured(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        only("w4a16", "w4a8")(record)
        record["quality"] = None

    found = verdict(Folder(record=change), tmp_path)
    assert found["decision"] == "undecided"
    assert keys(found["reasons"]) == ["quality_unmeasured"]
    assert found["next_measurement"]["key"] == "measure_quality"


def test_undecided_with_too_few_blocks(tmp_path: Path) -> None:
    folder = Folder(FakeWorld(groups=(SMALL,), blocks=5))
    summary = analyse(folder.write(tmp_path))
    found = summary["verdict"]
    assert (found["decision"], keys(found["reasons"])[0]) == ("undecided", "too_few_blocks")
    assert found["next_measurement"]["params"]["blocks"] == 1
    assert {row["decision"] for row in summary["methods"]} == {"undecided", "baseline"}


def test_one_block_gives_figures_without_ends_and_no_decision(tmp_path: Path) -> None:
    folder = Folder(FakeWorld(groups=(SMALL,), blocks=1))
    summary = analyse(folder.write(tmp_path))
    assert summary["verdict"]["decision"] == "undecided"
    assert summary["methods"][2]["speedup"]["ci_low"] is None
    assert summary["methods"][2]["speedup"]["mean"] > 1


def test_undecided_where_everything_failed(tmp_path: Path) -> None:
    def fail(record: dict[str, Any]) -> None:
        if record["cell"]["role"] == "method":
            record |= {"status": "failed", "requests": [], "rounds": {}, "sequence_rounds": {},
                       "error": {"type": "device", "message": "m", "stderr_tail": ""}}  # fmt: skip

    summary = analyse(Folder(record=fail).write(tmp_path))
    assert summary["verdict"]["decision"] == "undecided"
    assert summary["verdict"]["next_measurement"]["key"] == "repair_failures"
    assert {entry["reason"]["key"] for entry in summary["arms"]} == {"arm_failed"}


def test_a_method_that_failed_once_is_not_adopted(tmp_path: Path) -> None:
    def fail(record: dict[str, Any]) -> None:
        only("w4a16", "w4a8")(record)
        if record["cell"]["method_id"] == "w4a8" and record["block"] == "003":
            record |= {"status": "failed", "error": {"type": "device", "message": "m"}}

    summary = analyse(Folder(record=fail).write(tmp_path))
    assert summary["verdict"]["method_id"] == "w4a16"
    row = next(row for row in summary["methods"] if row["method_id"] == "w4a8")
    assert (row["status"], row["blocks"], row["speedup"]) == ("failed", 5, None)


def test_a_block_whose_baseline_failed_does_not_count(tmp_path: Path) -> None:
    def fail(record: dict[str, Any]) -> None:
        if record["cell"]["role"] == "baseline" and record["block"] == "003":
            record |= {"status": "failed", "error": {"type": "device", "message": "m"}}

    folder = Folder(FakeWorld(groups=(SMALL,), blocks=7), record=fail)
    summary = analyse(folder.write(tmp_path))
    assert summary["groups"][0]["blocks"] == 6
    assert summary["verdict"]["decision"] == "adopt"


def test_undecided_without_a_cost_block(tmp_path: Path) -> None:
    folder = Folder()
    folder.config["cost"] = None
    found = verdict(folder, tmp_path)
    assert (found["decision"], found["cost"]) == ("undecided", None)
    assert found["next_measurement"]["key"] == "set_cost"


def test_a_baseline_that_always_failed_leaves_nothing_to_compare(tmp_path: Path) -> None:
    def fail(record: dict[str, Any]) -> None:
        if record["cell"]["role"] == "baseline":
            record |= {"status": "failed", "error": {"type": "device", "message": "m"}}

    summary = analyse(Folder(record=fail).write(tmp_path))
    assert summary["verdict"]["decision"] == "undecided"
    assert keys(summary["verdict"]["reasons"]) == ["no_candidate"]
    assert all(row["speedup"] is None for row in summary["methods"])

"""The verdict, rule by rule: each test fails where its rule is dropped."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from harness.errors import ConfigError
from tests.fakes.folder import SMALL, Folder
from tests.fakes.records import FakeWorld, GroupSpec


def keys(findings: list[dict[str, Any]]) -> list[str]:
    return [finding["key"] for finding in findings]


def verdict(folder: Folder, path: Path) -> dict[str, Any]:
    found = dict(analyse(folder.write(path))["verdict"])
    assert found["decision"] in ("adopt", "pilot", "reject", "undecided")
    assert (found["next_measurement"] is not None) is (found["decision"] == "undecided")
    return found


def only(*names: str) -> Callable[[dict[str, Any]], None]:
    """Drops the records of all methods but the named ones and the baseline."""

    def change(record: dict[str, Any]) -> None:
        cell = record["cell"]
        record["drop"] = cell["role"] == "method" and cell["method_id"] not in names

    return change


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


LADDER = tuple(GroupSpec(batch, "natural", (3,), 8) for batch in (1, 4, 8))


def test_conditions_name_the_batch_up_to_which_it_holds(tmp_path: Path) -> None:
    """Combined wins at batch 1 and 4; at batch 8 its method is slow."""

    def slow(record: dict[str, Any]) -> None:
        only("w4a16", "w4a16+ngram.g3")(record)
        if record["cell"]["arm"] == "combined":
            stretch(record, 3.0 if record["cell"]["batch_size"] == 8 else 0.4)

    found = verdict(Folder(FakeWorld(groups=LADDER), record=slow), tmp_path)
    assert (found["decision"], found["arm"]) == ("adopt", "combined")
    assert keys(found["conditions"]) == ["batch_limit", "holds_at", "other_at", "workload_only"]
    limit, holds, other, _ = found["conditions"]
    assert limit["params"] == {"max_batch": 4}
    assert holds["params"]["batch"] == 4
    assert other["params"] | {"group": ""} == {
        "group": "", "batch": 8, "context": "natural", "arm": "quantization", "method": "w4a16",
    }  # fmt: skip


def stretch(record: dict[str, Any], factor: float) -> None:
    """Makes the rounds of a record slower by a factor."""
    rounds = record["rounds"]
    for name in ("draft_s", "verify_s", "other_s"):
        rounds[name] = [value * factor for value in rounds[name]]
    record["decode_s"] *= factor


def test_conditions_name_where_the_baseline_stays_and_what_is_open(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        only("w4a16")(record)
        if record["cell"]["role"] != "method":
            return
        if record["cell"]["batch_size"] == 4:
            stretch(record, 3.0)
        if record["cell"]["batch_size"] == 8:
            stretch(record, 0.2 if int(record["block"]) % 2 else 5.0)

    found = verdict(Folder(FakeWorld(groups=LADDER), record=change), tmp_path)
    assert found["decision"] == "adopt"
    assert keys(found["conditions"]) == [
        "batch_limit", "baseline_at", "undecided_at", "workload_only",
    ]  # fmt: skip
    assert found["conditions"][0]["params"] == {"max_batch": 1}


def test_the_operating_point_can_be_chosen(tmp_path: Path) -> None:
    folder = Folder(FakeWorld(groups=LADDER[:2]))
    folder.config["cost"]["operating_point"]["batch_size"] = 4
    assert verdict(folder, tmp_path)["group"].endswith("b4.natural")
    folder.config["cost"]["operating_point"]["batch_size"] = 64
    with pytest.raises(ConfigError, match=r"operating_point.*\(1, natural\), \(4, natural\)"):
        analyse(folder.write(tmp_path))


def test_a_combined_arm_slower_than_one_arm_is_said_in_words(tmp_path: Path) -> None:
    folder = Folder(record=only("w4a8", "w4a16", "w4a16+self-w4a4.g3", "fp16+self-w4a8.g3"))
    found = verdict(folder, tmp_path)
    assert found["arm"] == "quantization"
    words = {f["key"]: f for f in found["reasons"]}
    assert words["combined_slower"]["params"]["single"] == "w4a8"
    assert words["combined_slower"]["params"]["high"] < 1 / 1.02
    assert words["drafting_slower"]["params"]["method"] == "w4a16+self-w4a4.g3"
    assert f"{words['combined_slower']['params']['ratio']:.2f}" in words["combined_slower"]["text"]


def test_it_is_not_said_where_combined_is_faster(tmp_path: Path) -> None:
    folder = Folder(record=only("w4a8", "w4a8+ngram.g3", "fp16+ngram.g3"))
    assert not {"combined_slower", "drafting_slower"} & set(
        keys(verdict(folder, tmp_path)["reasons"])
    )


def test_mismatching_output_is_said(tmp_path: Path) -> None:
    def differ(record: dict[str, Any]) -> None:
        only("w4a8+ngram.g3")(record)
        if record["losslessness"]:
            record["losslessness"] |= {"mismatches": 2, "smallest_margin": 0.001}

    summary = analyse(Folder(record=differ).write(tmp_path))
    row = summary["methods"][-1]
    assert row["lossless"] is False
    assert row["losslessness"]["smallest_margin"] == 0.001
    finding = next(f for f in summary["verdict"]["reasons"] if f["key"] == "output_differs")
    assert finding["params"]["mismatches"] == 12


def test_speculation_with_a_quantized_drafter_is_labelled(tmp_path: Path) -> None:
    summary = analyse(Folder(record=only("fp16+self-w4a8.g3", "fp16+ngram.g3")).write(tmp_path))
    labels = {row["method_id"]: row["drafter_label"] for row in summary["methods"]}
    assert labels == {"fp16": None, "fp16+self-w4a8.g3": "quantized_drafter",
                      "fp16+ngram.g3": "pure"}  # fmt: skip
    assert summary["verdict"]["method_id"] == "fp16+self-w4a8.g3"
    assert "quantized_drafter" in keys(summary["verdict"]["reasons"])


def test_an_unsteady_machine_is_said(tmp_path: Path) -> None:
    def slow(record: dict[str, Any]) -> None:
        if record["cell"]["role"] == "noise":
            stretch(record, 1.2)

    summary = analyse(Folder(record=slow).write(tmp_path))
    assert summary["noise_floor"]["overall"]["decision"] == "slower"
    assert "noise_floor_open" in keys(summary["verdict"]["reasons"])


def test_a_baseline_that_is_cheaper_at_a_larger_batch_is_said(tmp_path: Path) -> None:
    groups = (SMALL, GroupSpec(32, "natural", (3,), 64))
    folder = Folder(FakeWorld(groups=groups, drift=0.0), record=only("w4a16"))
    assert "larger_batch_cheaper" in keys(verdict(folder, tmp_path)["reasons"])
    assert "larger_batch_cheaper" not in keys(verdict(Folder(), tmp_path / "one")["reasons"])


def test_a_baseline_that_always_failed_leaves_nothing_to_compare(tmp_path: Path) -> None:
    def fail(record: dict[str, Any]) -> None:
        if record["cell"]["role"] == "baseline":
            record |= {"status": "failed", "error": {"type": "device", "message": "m"}}

    summary = analyse(Folder(record=fail).write(tmp_path))
    assert summary["verdict"]["decision"] == "undecided"
    assert keys(summary["verdict"]["reasons"]) == ["no_candidate"]
    assert all(row["speedup"] is None for row in summary["methods"])

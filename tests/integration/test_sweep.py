"""Whole sweeps with a scripted worker: what is measured, recorded, and how they end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from harness.command import BAD_CONFIGURATION, OK
from harness.sweep import CELLS_FAILED, main
from tests.integration.folder import SweepFolder


def test_a_sweep_leaves_the_whole_results_folder_and_prints_the_verdict(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder.overrides()) == OK
    printed = capsys.readouterr().out
    for name in ("config.yaml", "environment.json", "plan.json", "summary.json", "report.html"):
        assert (folder.results / name).stat().st_size > 0
    assert "Verdict:" in printed
    assert "quantization" in printed
    assert str(folder.results / "report.html") in printed
    left = {path.name for path in folder.path.iterdir()}
    assert left == {"fake.sqm", "prompts.jsonl", "requests.jsonl", "results"}


def test_every_group_gets_its_least_blocks_even_without_any_budget(folder: SweepFolder) -> None:
    context = "sweep.also=[{batch_size: [4]},{context_length: [100]}]"
    assert main(folder.overrides(context)) == OK
    records = folder.records()
    blocks = Counter(name.rsplit("/", 2)[0] for name in {n.rsplit("/", 1)[0] for n in records})
    assert sorted(blocks.values()) == [6, 6, 6]
    for record in records.values():
        if record["cell"]["context_length"] == 100:
            assert {request["prompt_tokens"] for request in record["requests"]} == {100}


def test_a_block_holds_every_method_once_and_the_baseline_twice_on_the_same_prompts(
    folder: SweepFolder,
) -> None:
    main(folder.overrides())
    plan = json.loads((folder.results / "plan.json").read_text(encoding="utf-8"))
    (group,) = plan["groups"]
    expected = {cell["hash"] for cell in group["cells"]}
    orders = set()
    for block in range(6):
        records = [r for r in folder.records().values() if r["block"] == f"{block:03d}"]
        assert {record["cell"]["hash"] for record in records} == expected
        roles = Counter(record["cell"]["role"] for record in records)
        assert (roles["baseline"], roles["noise"]) == (1, 1)
        assert len({tuple(record["prompt_ids"]) for record in records}) == 1
        assert records[0]["prompt_ids"] == group["draws"][f"{block:03d}"]
        by_position = sorted(records, key=lambda record: record["position"])
        orders.add(tuple(record["cell"]["hash"] for record in by_position))
    assert len(orders) > 1, "blocks must not all run in one order"


def test_prefill_is_shared_inside_a_block_and_dropped_between_blocks(folder: SweepFolder) -> None:
    main(folder.overrides())
    runs = [request for request in folder.requests() if request["call"] == "run"]
    assert sum((run["cache"] or {}).get("clear", False) for run in runs) == 6
    for block in range(6):
        records = [r for r in folder.records().values() if r["block"] == f"{block:03d}"]
        for precision in ("fp16", "w4a8"):
            ours = [r for r in records if r["cell"]["precision"] == precision]
            first = min(ours, key=lambda record: record["position"])
            for record in ours:
                shared = {request["ttft_shared"] for request in record["requests"]}
                assert shared == {record is not first}


def test_each_method_is_warmed_on_prompts_outside_the_first_block(folder: SweepFolder) -> None:
    main(folder.overrides())
    runs = [request for request in folder.requests() if request["call"] == "run"]
    # Eight cells, of which baseline and noise share a method and its warm-up.
    assert len(runs) == 7 + 6 * 8


def test_losslessness_and_quality_are_recorded(folder: SweepFolder) -> None:
    assert main(folder.overrides(lossy=["w4a8+ngram"])) == OK
    for record in folder.records().values():
        cell, lossless = record["cell"], record["losslessness"]
        if cell["drafter"]["kind"] == "none":
            assert lossless is None
        elif cell["method_id"] == "w4a8+ngram-chain3":
            requests = len(record["requests"])
            assert lossless["mismatches"] == requests
            assert lossless["tokens_compared"] == 3 * requests
            assert lossless["smallest_margin"] == 0.25
        else:
            assert lossless["mismatches"] == 0
            assert lossless["tokens_compared"] == sum(
                request["output_tokens"] for request in record["requests"]
            )
        scored = cell["method_id"] in ("w4a8", "w4a4")
        assert (record["quality"] is not None) == scored
        if scored:
            assert record["quality"]["reference"] == "fp16"
            for request, sums in zip(
                record["requests"], record["quality"]["sequences"], strict=True
            ):
                texts = request["prompt_tokens"] + request["output_tokens"]
                assert sums["positions"] == texts - 1
                assert 0 < sums["agree"] <= sums["positions"]


def test_a_worker_that_dies_costs_its_own_cells_alone(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder.overrides(crash=["w4a8+ngram"])) == CELLS_FAILED
    records = folder.records().values()
    failed = [record for record in records if record["status"] == "failed"]
    assert {record["cell"]["method_id"] for record in failed} == {"w4a8+ngram-chain3"}
    assert len(failed) == 2, "a method that failed in two blocks is not tried again"
    assert "SIGSEGV" in failed[0]["error"]["message"]
    assert "It said: the fake worker is about to die." in failed[0]["error"]["message"]
    assert "about to die" in failed[0]["error"]["stderr_tail"]
    measured = Counter(r["cell"]["hash"] for r in records if r["status"] == "ok")
    assert len(measured) == 7
    assert set(measured.values()) == {6}
    assert "w4a8+ngram-chain3" in capsys.readouterr().out
    summary = json.loads((folder.results / "summary.json").read_text(encoding="utf-8"))
    assert summary["failures"]


def test_a_failure_of_the_device_costs_its_cell_and_leaves_the_worker_loaded(
    folder: SweepFolder,
) -> None:
    assert main(folder.overrides(refuse=["w4a4"])) == CELLS_FAILED
    assert Counter(r["call"] for r in folder.requests())["load"] == 1
    records = folder.records().values()
    errors = {(r["cell"]["method_id"], r["error"]["message"]) for r in records if r["error"]}
    assert errors == {("w4a4", "device: the fake worker refuses w4a4")}
    assert {r["error"]["type"] for r in records if r["error"]} == {"device"}
    measured = Counter(r["cell"]["hash"] for r in records if r["status"] == "ok")
    assert len(measured) == 7
    assert set(measured.values()) == {6}


def test_a_worker_that_hangs_is_ended(folder: SweepFolder) -> None:
    limits = ("schedule.trial_timeout_s=5", "schedule.max_failures=1")
    assert main(folder.overrides(*limits, hang=["w4a4"])) == CELLS_FAILED
    messages = [r["error"]["message"] for r in folder.records().values() if r["error"]]
    assert len(messages) == 1
    assert "did not answer" in messages[0]


def test_a_group_that_does_not_fit_into_memory_fails_and_the_others_are_measured(
    folder: SweepFolder,
) -> None:
    large = "sweep.also=[{batch_size: [16]}]"
    assert main(folder.overrides(large, most_memory=16 * 40)) == CELLS_FAILED
    records = folder.records().values()
    failed = [record for record in records if record["status"] == "failed"]
    assert {record["cell"]["batch_size"] for record in failed} == {16}
    assert {record["error"]["type"] for record in failed} == {"out_of_memory"}
    assert sum(record["cell"]["batch_size"] == 1 for record in records) == 6 * 8


def test_a_precision_that_does_not_fit_into_memory_fails_alone(folder: SweepFolder) -> None:
    assert main(folder.overrides(too_large=["w4a8"])) == CELLS_FAILED
    records = folder.records().values()
    failed = [record for record in records if record["status"] == "failed"]
    assert {record["error"]["message"] for record in failed} == {
        "out_of_memory: the weights of w4a8 do not fit"
    }
    assert {"w4a8"} < {record["cell"]["method_id"] for record in failed}
    assert all("w4a8" in record["cell"]["method_id"] for record in failed)
    measured = {r["cell"]["method_id"] for r in records if r["status"] == "ok"}
    assert {"fp16", "w4a4", "fp16+self-w4a4-chain3"} <= measured


def test_a_precision_that_the_worker_lacks_fails_by_name(folder: SweepFolder) -> None:
    assert main(folder.overrides(precisions=["fp16", "w4a8"])) == CELLS_FAILED
    failed = [r for r in folder.records().values() if r["status"] == "failed"]
    assert {r["error"]["type"] for r in failed} == {"unsupported"}
    assert {r["cell"]["method_id"] for r in failed} == {"w4a4", "fp16+self-w4a4-chain3"}


def test_a_context_length_that_no_prompt_fits_is_not_applicable_and_no_failure(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder.overrides("sweep.also=[{context_length: [4]}]")) == OK
    assert "c4 is not applicable" in capsys.readouterr().out
    plan = json.loads((folder.results / "plan.json").read_text(encoding="utf-8"))
    assert [group["applicable"] for group in plan["groups"]] == [True, False]


def test_without_a_budget_blocks_are_measured_until_the_intervals_are_narrow(
    folder: SweepFolder,
) -> None:
    assert main(folder.overrides("schedule.budget_s=null", "stats.target=0.25")) == OK
    blocks = {record["block"] for record in folder.records().values()}
    assert len(blocks) > 6
    (group,) = json.loads((folder.results / "summary.json").read_text(encoding="utf-8"))["groups"]
    assert group["widest_half_width"] <= 0.25


@pytest.mark.parametrize("seed", range(3))
def test_drift_and_heavy_tails_do_not_become_results(folder: SweepFolder, seed: int) -> None:
    """The machine gets 1 % slower with every trial, and one trial in ten is three times slower."""
    restless = {"drift": 0.01, "noise": 0.02, "heavy_tail": 0.1, "seed": seed}
    assert main(folder.overrides(**restless)) == OK
    summary = json.loads((folder.results / "summary.json").read_text(encoding="utf-8"))
    decisions = {row["role"]: row["decision"] for row in summary["methods"]}
    assert decisions["noise"] in ("equal", "undecided")
    speedups = {
        row["method_id"]: row["speedup"] for row in summary["methods"] if row["role"] == "method"
    }
    # What the fake's forwards take: 10 ms at fp16, 3.2 ms at w4a8.
    assert speedups["w4a8"]["ci_low"] < 10.0 / 3.2 < speedups["w4a8"]["ci_high"]


def test_the_same_seed_and_worker_give_the_same_records(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        folder = SweepFolder(tmp_path / name)
        main(folder.overrides())
        contents.append({
            key: (record["prompt_ids"], record["decode_s"], record["position"])
            for key, record in folder.records().items()
        })  # fmt: skip
    assert contents[0] == contents[1]


def test_the_exit_status_reaches_the_shell(folder: SweepFolder) -> None:
    for more, worker, expected in (
        ((), {}, OK),
        (("name=u",), {"refuse": ["w4a4"]}, CELLS_FAILED),
        (("workload=prd",), {}, BAD_CONFIGURATION),
    ):
        process = folder.start(*more, **worker)  # type: ignore[arg-type]
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == expected, stderr
        assert "Traceback" not in stderr

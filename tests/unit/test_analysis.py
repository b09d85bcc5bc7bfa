"""What the analysis reads, refuses and writes, and the looks between blocks."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse, main, progress
from harness.comparison import read_groups
from harness.derive import RecordError, read_trials
from harness.errors import ConfigError
from harness.findings import TEXTS, finding
from harness.stats import Settings
from tests.fakes.cells import PROD_GROUPS, GroupSpec
from tests.fakes.folder import SMALL, Folder
from tests.fakes.records import FakeWorld, write_results
from tests.unit.test_verdict import only


def test_progress_of_a_clear_group_and_of_an_open_one(tmp_path: Path) -> None:
    clear = Folder(FakeWorld(groups=(SMALL,), drift=0.0), record=only("w4a16", "w4a8"))
    found = progress(clear.write(tmp_path / "clear"))[SMALL.name]
    assert (found["decided"], found["undecided"]) == (True, [])
    assert 0 < found["widest_half_width"] < 0.1
    open_ = Folder(FakeWorld(groups=(SMALL,), trial_noise=0.5), record=only("w4a16", "w4a8"))
    found = progress(open_.write(tmp_path / "open"))[SMALL.name]
    assert found["decided"] is False
    assert set(found["undecided"]) == {"w4a16", "w4a8"}


def test_progress_decides_nothing_before_the_least_number_of_blocks(tmp_path: Path) -> None:
    few = Folder(FakeWorld(groups=(SMALL,), blocks=5, drift=0.0), record=only("w4a16"))
    found = progress(few.write(tmp_path))[SMALL.name]
    assert (found["decided"], found["undecided"]) == (False, ["w4a16"])


def test_progress_after_one_block_and_before_any(tmp_path: Path) -> None:
    one = Folder(FakeWorld(groups=(SMALL,), blocks=1)).write(tmp_path)
    assert math.isinf(progress(one)[SMALL.name]["widest_half_width"])
    shutil.rmtree(one / "records")
    assert progress(one) == {}


def test_looks_between_blocks_are_stricter_than_the_analysis(tmp_path: Path) -> None:
    """A comparison that is decided at 95 % and not at 99 % does not end the run."""
    folder = Folder(FakeWorld(groups=(SMALL,), drift=0.0), record=only("w4a16+ngram.g3", "w4a16"))
    path = folder.write(tmp_path)
    row = analyse(path)["methods"][-1]
    interval = row["speedup"]
    width = math.log(interval["ci_high"] / interval["mean"])
    # Put the zone's edge between the two levels' lower ends.
    edge = math.log(interval["mean"]) - 1.2 * width
    folder.config["stats"]["min_effect"] = math.expm1(edge)
    folder.write(tmp_path)
    assert analyse(path)["methods"][-1]["decision"] == "faster"
    assert "w4a16+ngram.g3" in progress(path)[SMALL.name]["undecided"]


def test_finished_blocks_are_parsed_once_so_that_looks_stay_short(tmp_path: Path) -> None:
    path = write_results(tmp_path, FakeWorld(groups=PROD_GROUPS[:1]))
    first = read_trials(path)
    assert all(a is b for a, b in zip(first, read_trials(path), strict=True))


def test_a_rewritten_record_is_read_anew(tmp_path: Path) -> None:
    path = Folder(record=only("w4a16")).write(tmp_path)
    before = read_trials(path)[0]
    file = next((path / "records").glob("*/000/*.json"))
    record = json.loads(file.read_text(encoding="utf-8"))
    record["interleaved"] = False
    time.sleep(0.01)
    file.write_text(json.dumps(record), encoding="utf-8")
    after = {t.key: t for t in read_trials(path) if t.block == "000"}
    assert any(not trial.interleaved for trial in after.values())
    assert before.interleaved is True


def test_a_folder_without_records_or_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a whole results folder"):
        analyse(tmp_path)
    path = Folder().write(tmp_path / "a")
    shutil.rmtree(path / "records")
    with pytest.raises(ConfigError, match="no finished block"):
        analyse(path)
    assert not (path / "summary.json").exists()


@pytest.mark.parametrize(
    ("block", "key", "value", "message"),
    [
        ("stats", "level", 2.0, r"stats\.level"),
        ("cost", "utilization", math.nan, r"cost\.utilization"),
    ],
)
def test_bad_settings_are_named(
    block: str, key: str, value: Any, message: str, tmp_path: Path
) -> None:
    folder = Folder()
    folder.config[block][key] = value
    with pytest.raises(ConfigError, match=message):
        analyse(folder.write(tmp_path))


def test_two_methods_of_one_name_are_refused(tmp_path: Path) -> None:
    def same(record: dict[str, Any]) -> None:
        if record["cell"]["method_id"] == "w4a8":
            record["cell"] = {**record["cell"], "method_id": "w4a16"}

    with pytest.raises(RecordError, match="must not share a name"):
        analyse(Folder(record=same).write(tmp_path))


def test_methods_on_different_prompts_are_refused(tmp_path: Path) -> None:
    def other(record: dict[str, Any]) -> None:
        if record["cell"]["method_id"] == "w4a8":
            record["prompt_ids"] = [f"x{name}" for name in record["prompt_ids"]]
            for request, name in zip(record["requests"], record["prompt_ids"], strict=True):
                request["id"] = name

    with pytest.raises(RecordError, match="different prompts"):
        analyse(Folder(record=other).write(tmp_path))


def test_a_group_without_a_baseline_is_refused(tmp_path: Path) -> None:
    def drop(record: dict[str, Any]) -> None:
        record["drop"] = record["cell"]["role"] == "baseline"

    with pytest.raises(RecordError, match="0 baselines"):
        analyse(Folder(record=drop).write(tmp_path))


def test_a_block_in_which_nothing_was_decoded_is_left_out_and_named(tmp_path: Path) -> None:
    def mute(record: dict[str, Any]) -> None:
        if record["block"] == "002" and record["cell"]["method_id"] == "w4a16":
            for request in record["requests"]:
                request |= {"output_tokens": 1, "round_tokens": [1],
                            "round_end_s": request["round_end_s"][:1]}  # fmt: skip
            record["rounds"] = {name: [] for name in record["rounds"]}
            record["sequence_rounds"] = {name: [] for name in record["sequence_rounds"]}
            record["decode_s"] = 0.0

    folder = Folder(FakeWorld(groups=(SMALL,), blocks=7), record=mute)
    group = analyse(folder.write(tmp_path))["groups"][0]
    assert (group["blocks"], group["silent_blocks"]) == (6, ["002"])


def test_groups_stand_with_natural_lengths_and_small_batches_first(tmp_path: Path) -> None:
    groups = (GroupSpec(1, 2048, (3,), 2), GroupSpec(4, "natural", (3,), 4), SMALL,
              GroupSpec(1, 1024, (3,), 2))  # fmt: skip
    path = Folder(FakeWorld(groups=groups, blocks=2), record=only("w4a16")).write(tmp_path)
    names = [group.name for group in read_groups(read_trials(path), Settings())]
    assert [name.split("cpu.")[1] for name in names] == [
        "b1.natural", "b4.natural", "b1.c1024", "b1.c2048",
    ]  # fmt: skip


def test_what_was_left_out_is_kept(tmp_path: Path) -> None:
    def leave(record: dict[str, Any]) -> None:
        record["left_out"] = {"count": 3, "reason": "longer than the context"}

    group = analyse(Folder(record=leave).write(tmp_path))["groups"][0]
    assert group["left_out"] == {"count": 3, "reason": "longer than the context"}


def test_a_prompt_drawn_twice_is_one_cluster(tmp_path: Path) -> None:
    path = Folder(FakeWorld(groups=(SMALL,), prompts=8)).write(tmp_path)  # 24 draws of 8 prompts
    rows = analyse(path)["methods"]
    row = next(r for r in rows if r["method_id"] == "w4a8")
    assert row["intervals"]["mean_tpot_ms"]["n"] == 8
    assert row["quality"]["agreement_rate"]["n"] == 8
    assert row["slo"]["n"] == 24


def test_an_agreement_of_one_still_has_a_lower_end(tmp_path: Path) -> None:
    def agree(record: dict[str, Any]) -> None:
        for sequence in (record["quality"] or {"sequences": []})["sequences"]:
            sequence["agree"] = sequence["positions"]

    rows = analyse(Folder(record=agree).write(tmp_path))["methods"]
    rate = next(r for r in rows if r["method_id"] == "w4a8")["quality"]["agreement_rate"]
    assert rate["mean"] == rate["ci_high"] == 1.0
    assert 0.99 < rate["ci_low"] < 1.0


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Folder(FakeWorld(groups=(SMALL,), blocks=6)).write(tmp_path / "ok")
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.startswith("adopt: ")
    assert main([str(tmp_path / "none")]) == 2
    assert "not a whole results folder" in capsys.readouterr().err


def test_a_finding_needs_all_its_parameters() -> None:
    assert finding("holds_at", group="g", batch=4, context="natural")["text"].startswith("It holds")
    with pytest.raises(KeyError):
        finding("holds_at", group="g")
    assert all(text.endswith(".") for text in TEXTS.values())


def test_quality_scored_in_one_group_serves_the_others(tmp_path: Path) -> None:
    """A precision is scored once; else other groups could recommend nothing quantized."""
    large = GroupSpec(4, "natural", (3,), 8)

    def score_in_the_first_group_alone(record: dict[str, Any]) -> None:
        if record["group"] == large.name:
            record["quality"] = None

    folder = Folder(
        FakeWorld(groups=(SMALL, large), drift=0.0), record=score_in_the_first_group_alone
    )
    rows = {
        (row["group"], row["method_id"]): row
        for row in analyse(folder.write(tmp_path))["methods"]
        if row["role"] != "noise"
    }
    for method in ("w4a8", "w4a16"):
        scored, other = rows[SMALL.name, method], rows[large.name, method]
        assert other["quality"] == scored["quality"]
        assert other["quality"]["measured_in"] == SMALL.name
        assert other["quality_gate"]["passed"] is scored["quality_gate"]["passed"] is True

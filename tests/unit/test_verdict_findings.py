"""What a verdict says beside its decision: where it holds, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from harness.errors import ConfigError
from tests.fakes.cells import GroupSpec
from tests.fakes.folder import SMALL, Folder
from tests.fakes.records import FakeWorld
from tests.unit.verdicts import keys, only, stretch, verdict

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

"""Accuracy in the analysis: out of records, into the summary and through the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from harness.errors import ConfigError
from harness.stats import wilson
from tests.fakes.folder import Folder
from tests.unit.test_report import page_of


def graded(wrong: dict[str, int], prompts: int = 24) -> Any:
    """A change of records: of `prompts` prompts, the first `wrong` of a precision fail."""

    def change(record: dict[str, Any]) -> None:
        miss = wrong.get(record["cell"]["precision"], 0)
        numbers = [int(name[1:]) for name in record["prompt_ids"]]
        record["task"] = {
            "metric": "gsm8k, flexible",
            "graded": [number < prompts for number in numbers],
            "right": [
                None if number >= prompts else number >= miss or (False if number else None)
                for number in numbers
            ],
        }

    return change


def rows_of(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["method_id"]: row for row in summary["methods"] if row["role"] != "noise"}


def test_accuracy_is_over_prompts_and_compared_in_pairs(tmp_path: Path) -> None:
    folder = Folder(record=graded({"fp16": 2, "w4a4": 8}))
    rows = rows_of(analyse(folder.write(tmp_path / "r")))
    baseline, low = rows["fp16"]["task"], rows["w4a4"]["task"]
    assert (baseline["accuracy"]["right"], baseline["accuracy"]["n"]) == (22, 24)
    assert (baseline["accuracy"]["ci_low"], baseline["accuracy"]["ci_high"]) == wilson(22, 24, 0.95)
    assert baseline["accuracy"]["no_number"] == 1
    assert baseline["difference"] is None
    assert (low["only_ours"], low["only_theirs"]) == (0, 6)
    assert low["p"] == pytest.approx(2 / 2**6)
    assert low["difference"]["mean"] == pytest.approx(-6 / 24)
    assert rows["w4a16"]["task"]["difference"]["mean"] == pytest.approx(2 / 24)


def test_the_gate_holds_the_pessimistic_end_against_the_loss_of_accuracy(tmp_path: Path) -> None:
    folder = Folder(record=graded({"w4a8": 1}))
    folder.config["cost"]["quality"] |= {"accuracy_loss": 0.05, "agreement_rate": 0.5, "kl": 9.0}
    summary = analyse(folder.write(tmp_path / "r"))
    row = rows_of(summary)["w4a8"]
    loss = -row["task"]["difference"]["ci_low"]
    assert -row["task"]["difference"]["mean"] < 0.05 < loss
    assert row["quality_gate"]["passed"] is False
    (reason,) = row["quality_gate"]["reasons"]
    assert reason["params"]["measure"] == "accuracy_loss"
    assert reason["params"]["value"] == pytest.approx(loss)
    folder.config["cost"]["quality"]["accuracy_loss"] = loss + 1e-9
    row = rows_of(analyse(folder.write(tmp_path / "r")))["w4a8"]
    assert row["quality_gate"]["passed"] is True


def test_ungraded_answers_have_no_accuracy(tmp_path: Path) -> None:
    rows = rows_of(analyse(Folder().write(tmp_path / "r")))
    assert all(row["task"] is None for row in rows.values())


def test_a_limit_that_is_no_share_is_refused(tmp_path: Path) -> None:
    folder = Folder()
    folder.config["cost"]["quality"]["accuracy_loss"] = 2
    with pytest.raises(ConfigError, match=r"accuracy_loss=2: .* at most 1"):
        analyse(folder.write(tmp_path / "r"))


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        ("en", ["McNemar’s p", "Flips near a tie", "hypervolume"]),
        ("ja", ["マクネマー検定", "僅差での入れ替わり", "ハイパーボリューム"]),
    ],
)
def test_the_report_shows_accuracy_flips_and_the_hypervolume(
    tmp_path: Path, lang: str, words: list[str]
) -> None:
    results = Folder(record=graded({"w4a4": 8})).write(tmp_path / "r")
    analyse(results)
    text = page_of(results, lang).text
    for word in words:
        assert word in text
    assert "66.7%" in text.replace(" %", "%")

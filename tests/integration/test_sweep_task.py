"""A sweep whose prompts have reference answers: graded in records, compared in the summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.command import BAD_CONFIGURATION, OK
from harness.sweep import main
from tests.integration.folder import SweepFolder


def write_problems(path: Path, *answers: str) -> None:
    rows = [{"question": f"What is {i} + 1?", "answer": answer} for i, answer in enumerate(answers)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (path / "gsm8k_test.jsonl").write_text(text, encoding="utf-8")


def overrides(folder: SweepFolder) -> list[str]:
    replaced = ("workload=smoke", "workload.path=prompts.jsonl")
    kept = [word for word in folder.overrides() if word not in replaced]
    return [*kept, "workload=gsm8k"]


def test_answers_are_graded_and_accuracy_reaches_summary_and_report(folder: SweepFolder) -> None:
    write_problems(folder.path, *(f"#### {i + 1}" for i in range(12)))
    assert main(overrides(folder)) == OK
    for record in folder.records().values():
        task = record["task"]
        assert len(task["right"]) == len(record["prompt_ids"])
        assert all(task["graded"])
    summary = json.loads((folder.results / "summary.json").read_text(encoding="utf-8"))
    rows = {row["method_id"]: row for row in summary["methods"] if row["role"] != "noise"}
    assert rows["fp16"]["task"]["difference"] is None
    for name in ("w4a8", "w4a4", "w4a8+ngram-chain3"):
        task = rows[name]["task"]
        assert task["accuracy"]["n"] == 12
        assert task["difference"]["n"] == 12
        assert 0 <= task["p"] <= 1
    assert "McNemar" in (folder.results / "report.html").read_text(encoding="utf-8")


def test_a_reference_without_a_number_stops_the_sweep(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problems(folder.path, "#### 1", "the answer is two")
    assert main(overrides(folder)) == BAD_CONFIGURATION
    printed = capsys.readouterr().err
    assert "gsm8k_test.jsonl" in printed
    assert "an answer without a final number" in printed

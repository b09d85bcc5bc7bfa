"""Token traces inside an ordinary sweep: with a scripted worker, and with the real one."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.command import BAD_CONFIGURATION, OK
from harness.sweep import main
from harness.trace.columns import COLUMNS
from tests.integration.folder import ROOT, SweepFolder

MODEL = ROOT / "models" / "smollm2-135m-instruct.sqm"
WORKER = Path(os.environ.get("SPECQUANT_WORKER", ROOT / "build/native/worker/specquant-worker"))
METHODS = "methods=[{precision: fp16},{precision: w4a16},{precision: w4a16, drafter: {kind: self, precision: w4a4}}]"  # noqa: E501


def overrides(folder: SweepFolder, *more: str) -> list[str]:
    """A sweep whose scripted worker writes token traces; prompts of even lengths."""
    lines = [
        {"id": f"p{i}", "token_ids": [(i + j) % 256 for j in range(4 + 2 * i)]} for i in range(30)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder.path / "prompts.jsonl").write_text(text, encoding="utf-8")
    worker = f"backends.native.command=[{sys.executable},-m,tests.fakes.trace_worker]"
    return [*folder.overrides(worker), METHODS, "sweep.precision=[fp16,w4a16]", *more]


def tokens(folder: SweepFolder) -> dict[tuple[str, str], list[str]]:
    """Hashes of the output tokens by block, method and role."""
    return {
        (r["block"], f"{r['cell']['method_id']}/{r['cell']['role']}"): [
            request["tokens_sha256"] for request in r["requests"]
        ]
        for r in folder.records().values()
    }


def traced(folder: SweepFolder) -> list[dict[str, Any]]:
    return [record for record in folder.records().values() if record["trace"]]


def test_a_sweep_keeps_every_drafted_position_of_its_drafting_methods(folder: SweepFolder) -> None:
    assert main(overrides(folder, "trace=tokens")) == OK
    records = traced(folder)
    assert {record["cell"]["drafter"]["kind"] for record in records} == {"self"}
    (cell_hash,) = {record["cell"]["hash"] for record in records}
    rows = pd.read_parquet(folder.results / "traces" / f"{cell_hash}.parquet")
    assert tuple(rows.columns) == ("block", *COLUMNS)
    assert set(rows["block"]) == {int(record["block"]) for record in records} == set(range(6))
    asked = {(int(record["block"]), int(name[1:])) for record in records
             for name in record["prompt_ids"]}  # fmt: skip
    assert set(zip(rows["block"], rows["request"], strict=True)) == asked
    # The scripted worker refuses every third token that it drafts.
    wrong = Counter(rows["match"])
    assert wrong[False] > 0
    assert all(rows["prompt_length"] == 4 + 2 * rows["request"])


def test_an_interrupted_traced_sweep_goes_on_and_another_level_is_kept_apart(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    main(overrides(folder, "trace=tokens", "stats.min_blocks=6"))
    before = {r["cell"]["hash"] for r in folder.records().values()}
    stamp = max(path.stat().st_mtime_ns for path in (folder.results / "records").glob("*/*/*"))
    assert main(overrides(folder, "trace=tokens")) == OK
    assert stamp == max(
        path.stat().st_mtime_ns for path in (folder.results / "records").glob("*/*/*")
    )
    capsys.readouterr()
    assert main(overrides(folder)) == OK
    assert "another trace level" in capsys.readouterr().out
    assert not before & {r["cell"]["hash"] for r in folder.records().values()}
    assert not traced(folder)


def test_a_damaged_part_is_named(folder: SweepFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(overrides(folder, "trace=tokens")) == OK
    part = folder.results / traced(folder)[0]["trace"]["part"]
    part.write_bytes(part.read_bytes()[:-1])
    assert main(overrides(folder, "trace=tokens")) == BAD_CONFIGURATION
    printed = capsys.readouterr().err
    assert str(part) in printed
    assert "to measure it again" in printed


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ("token", "there is no trace level 'token'"),
        ("tokens", "none of the backends native writes token traces"),
    ],
)
def test_a_level_that_nothing_writes_is_refused(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], level: str, message: str
) -> None:
    assert main(folder.overrides(f"trace={level}")) == BAD_CONFIGURATION
    assert message.lower() in capsys.readouterr().err.lower()


@pytest.mark.skipif(not WORKER.is_file(), reason="the native worker is not built; run make native")
@pytest.mark.skipif(not MODEL.is_file(), reason="the demo model is not packed")
def test_tracing_changes_no_token_of_the_real_worker(folder: SweepFolder) -> None:
    real = [
        "name=t", "workload=smoke", f"results_root={folder.path / 'results'}", METHODS,
        f"model.path={MODEL}", f"backends.native.command=[{WORKER}]", "sweep.draft_length=[3]",
        "sweep.also=[]", "sweep.precision=[fp16,w4a16]", "schedule.budget_s=0", "draw.prompts=2",
        "stats.min_blocks=2", "stats.bootstrap_draws=200", "workload.max_new_tokens=8",
        "curves.tokens=[1]", "curves.repeats=2",
    ]  # fmt: skip
    assert main(real) == OK
    plain = tokens(folder)
    assert main([*real, "trace=tokens"]) == OK
    assert tokens(folder) == plain
    drafted = sum(sum(record["sequence_rounds"]["drafted"]) for record in traced(folder))
    files = list((folder.results / "traces").glob("*.parquet"))
    assert sum(len(pd.read_parquet(path)) for path in files) == drafted > 0

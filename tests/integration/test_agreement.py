"""`python -m harness.trace` end to end: with a scripted worker, and with the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from backends.client import Worker
from backends.tokenizer import Tokenizer
from harness.trace.columns import COLUMNS, FIXED_PREFIX, ONLINE
from tests.fakes.model import write_model
from tests.integration.folder import ROOT
from tests.unit import plain_tables

MODEL = ROOT / "models" / "smollm2-135m-instruct.sqm"
WORKER = Path(os.environ.get("SPECQUANT_WORKER", ROOT / "build/native/worker/specquant-worker"))
GAMMA = 3


def write_problems(folder: Path, count: int) -> None:
    """Problems in GSM8K's form; every second question is one byte longer."""
    rows = [
        {"question": f"Tom has {i:02d} apples and buys {i + 2:02d} more{'?' * (1 + i % 2)}",
         "answer": f"{i} + {i + 2} = <<{i}+{i + 2}={2 * i + 2}>>{2 * i + 2}\n#### {2 * i + 2}"}
        for i in range(count)
    ]  # fmt: skip
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "gsm8k_test.jsonl").write_text(text, encoding="utf-8")


def trace(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "harness.trace", "+experiment=qspec_agreement",
        f"data.root={folder}", f"results_root={folder / 'results'}",
        "agreement.bootstrap_draws=200", *more,
    ]  # fmt: skip
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


class Scripted:
    """Runs with the scripted worker; `requests` tells what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results" / "qspec_agreement"
        self.log = folder / "requests.jsonl"
        write_model(folder / "fake.sqm")
        write_problems(folder, 10)

    def run(self, *more: str, **worker: Any) -> subprocess.CompletedProcess[str]:
        script = json.dumps({"log": str(self.log), **worker})
        command = f"[{sys.executable},-m,tests.fakes.trace_worker,'{script}']"
        return trace(
            self.folder, f"model.path={self.folder / 'fake.sqm'}",
            f"backends.native.command={command}",
            "agreement.max_new_tokens=20", "agreement.part=4", *more,
        )  # fmt: skip

    def runs(self) -> int:
        """How many `run` calls the workers were sent."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return sum(json.loads(line)["call"] == "run" for line in lines)

    def tables(self) -> dict[str, Any]:
        tables: dict[str, Any] = json.loads((self.results / "agreement.json").read_text())
        return tables


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path)


def check_against_trace(results: Path) -> dict[str, Any]:
    """Recompute every figure of agreement.json from the trace by plain code."""
    tables: dict[str, Any] = json.loads((results / "agreement.json").read_text())
    path = results / tables["trace"]
    assert tuple(pq.read_schema(path).names) == COLUMNS
    for mode, found in tables["modes"].items():
        rows = plain_tables.read_rows(path, mode)
        plain = plain_tables.counted(rows, tables["gamma"], tables["threshold"])
        plain_tables.assert_equal(found, plain, online=mode == ONLINE)
    online = tables["modes"].get(ONLINE)
    if online:
        rounds = online["rounds"]
        assert online["positions"] == rounds["all"] * GAMMA - rounds["missing_positions"]
        statuses = [online[key] for key in ("accepted", "rejected", "discarded")]
        assert sum(statuses) == online["positions"]
    return tables


def test_one_command_writes_trace_tables_and_report_and_resumes(scripted: Scripted) -> None:
    done = scripted.run("agreement.limit=6", "agreement.csv=true")
    assert done.returncode == 0, done.stderr
    tables = check_against_trace(scripted.results)
    assert set(tables["modes"]) == {ONLINE, FIXED_PREFIX}
    online = tables["modes"][ONLINE]
    assert (online["requests"], online["requests_without_positions"]) == (6, 3)
    assert 0 < online["agreement_rate"]["mean"] < 1
    page = (scripted.results / "report.html").read_text()
    assert "90.50" not in page
    assert "95.98%" in page
    assert list((scripted.results / "traces").glob("*.csv"))
    answers = json.loads((scripted.results / "answers.json").read_text())
    assert len({answer["prompt_sha256"] for answer in answers}) == 6
    assert scripted.runs() == 2

    again = scripted.run("agreement.limit=6", "agreement.threshold=0.88", "report.lang=ja")
    assert again.returncode == 0, again.stderr
    assert scripted.runs() == 2  # another threshold and language run nothing anew
    tables = check_against_trace(scripted.results)
    assert tables["threshold"] == 0.88
    assert 'lang="ja"' in (scripted.results / "report.html").read_text()

    more = scripted.run("agreement.limit=null")
    assert more.returncode == 0, more.stderr
    assert scripted.runs() == 3  # the four problems that were missing
    assert check_against_trace(scripted.results)["requests"] == 10

    rebuilt = subprocess.run(
        [sys.executable, "-m", "reports.build", str(scripted.results), "--lang", "en"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert 'lang="en"' in (scripted.results / "report.html").read_text()


def test_another_worker_moves_the_earlier_results_aside(scripted: Scripted) -> None:
    assert scripted.run("agreement.limit=4").returncode == 0
    done = scripted.run("agreement.limit=4", build="fake-2")
    assert "moved to" in done.stdout
    assert len(list(scripted.results.parent.glob("qspec_agreement.*"))) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agreement.target=w4a17", "agreement.target: there is no precision 'w4a17'"),
        ("agreement.prompt=five_shot", "agreement.prompt: there is no form of prompt"),
        ("agreement.modes=[offline]", "agreement.modes: there is no mode 'offline'"),
        ("agreement.gamma=0", "agreement.gamma=0"),
        ("agreement.threshold=1.5", "agreement.threshold=1.5: this must lie between 0 and 1"),
        ("agreement.max_new_tokens=600", "no prompt fits the context of 512 tokens"),
        ("agreement.prompt=study_8shot", "gsm8k_train.jsonl does not exist"),
        ("data.root=/nowhere", "gsm8k_test.jsonl does not exist"),
        ("agreement.limits=3", "agreement.limit"),
    ],
)
def test_bad_input_is_named(scripted: Scripted, override: str, message: str) -> None:
    more = [f"model.path={scripted.folder / 'fake.sqm'}", override]
    done = scripted.run(*more)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


def test_a_worker_without_traces_is_refused(scripted: Scripted) -> None:
    command = f"backends.native.command=[{sys.executable},-m,tests.fakes.worker]"
    done = scripted.run(command)
    assert done.returncode == 2
    assert "has no trace level tokens" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is not made; run make setup")
@pytest.mark.skipif(not WORKER.is_file(), reason="the native worker is not built; run make native")
def test_the_real_worker(tmp_path: Path) -> None:
    write_problems(tmp_path, 3)
    done = trace(
        tmp_path, f"model.path={MODEL}", f"backends.native.command=[{WORKER}]",
        "agreement.max_new_tokens=24", "agreement.batch_size=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = tmp_path / "results" / "qspec_agreement"
    tables = check_against_trace(results)
    rows = plain_tables.read_rows(results / tables["trace"], FIXED_PREFIX)
    answers = json.loads((results / "answers.json").read_text())
    assert len(rows) == sum(answer["output_tokens"] for answer in answers)
    # The answers are the target's own choices, so that score finds each as its top-1 token.
    assert all(row["token_id"] == row["target_top1"] for row in rows)


@pytest.mark.slow
@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is not made; run make setup")
@pytest.mark.skipif(not WORKER.is_file(), reason="the native worker is not built; run make native")
def test_tracing_changes_no_token(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_packed(MODEL)
    prompts = [tokenizer.apply_chat_template([{"role": "user", "content": text}])
               for text in ("Count to nine.", "Name three rivers.")]  # fmt: skip
    method = {
        "precision": "w4a16", "kv_precision": "kv16", "acceptance": {"kind": "greedy"},
        "drafter": {"kind": "self", "precision": "w4a4"}, "shape": {"kind": "chain", "gamma": 3},
    }  # fmt: skip
    with Worker([WORKER], name="native") as worker:
        worker.call(
            "load", model={"path": str(MODEL)}, precisions=["w4a16", "w4a4"], drafters=[],
            max_context=128, max_batch=2, seed=0, timeout_s=120,
        )  # fmt: skip
        tokens = {}
        for level in ("none", "rounds", "tokens"):
            answer = worker.call(
                "run", method=method, prompts=prompts, arrivals=None, batch_size=2,
                max_new_tokens=24, stop_ids=tokenizer.stop_ids, sampling=None,
                share_prefill=False, trace=level, timeout_s=120,
                **({"trace_path": str(tmp_path / "trace")} if level == "tokens" else {}),
            )  # fmt: skip
            tokens[level] = [request["tokens"] for request in answer["requests"]]
    assert tokens["none"] == tokens["rounds"] == tokens["tokens"]
    assert (tmp_path / "trace").stat().st_size > 0

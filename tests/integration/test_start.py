"""Workers that fail at their start: their cells fail by that reason, and the sweep goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.command import BAD_CONFIGURATION, OK
from harness.sweep import CELLS_FAILED, main
from tests.integration.folder import SweepFolder

METHODS = (
    "methods=[{precision: fp16},{precision: w4a8},"
    "{precision: w4a4, backend: other},{precision: w4a8, drafter: ngram, backend: other}]"
)


def refusing(reason: str) -> str:
    """The words of a worker that says what it misses and ends, as the native one does."""
    return f"sh, -c, 'echo \"{reason}\" >&2; exit 2'"


NO_GPU = refusing("No GPU can be used.")
OLD_DRIVER = "The NVIDIA driver serves CUDA 12.9, and this worker needs 13.0."
OTHER_GPU = "This build has kernels for sm_80, sm_89, sm_90, and the GPU NVIDIA B200 is sm_100."


def bad(way: str) -> str:
    """The words of a worker that fails in this way, as a list of Hydra holds them."""
    return f"{sys.executable}, -m, tests.fakes.bad_worker, {way}"


def other(command: str) -> tuple[str, str]:
    """Overrides that give half of the methods to a second worker with this command."""
    return METHODS, f"+backends.other={{command: [{command}], made_by: make other}}"


def failed(folder: SweepFolder) -> list[dict[str, Any]]:
    """The records of failed cells."""
    return [record for record in folder.records().values() if record["status"] == "failed"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (NO_GPU, "ended with exit status 2 instead of answering 'hello'. It said: No GPU can be"),
        (refusing(OLD_DRIVER), f"It said: {OLD_DRIVER}"),
        (refusing(OTHER_GPU), f"It said: {OTHER_GPU}"),
        (bad("exit"), "exit status 1 instead of answering 'hello'. It said: no such device. Build"),
        (bad("segv"), "SIGSEGV, an invalid memory access"),
        (bad("garbage"), "outside the protocol (b'loading model ... 100 %')"),
        (bad("list"), "outside the protocol (b'[1, 2]')"),
        (bad("error"), "no such thing"),
        (bad("half-hello"), "answered 'hello' without capabilities.calls, capabilities.precisions"),
        ("./nothing", "No such file or directory: './nothing'. Build it with `make other`."),
    ],
)
def test_a_worker_that_fails_at_its_start_costs_its_own_cells_alone(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], command: str, reason: str
) -> None:
    assert main(folder.overrides(*other(command))) == CELLS_FAILED
    records = folder.records().values()
    assert {r["cell"]["worker"] for r in failed(folder)} == {"other"}
    assert len(failed(folder)) == 2, "each cell fails once: the reason is known"
    for record in failed(folder):
        assert reason in record["error"]["message"]
    measured = [r["cell"]["method_id"] for r in records if r["status"] == "ok"]
    assert sorted(measured) == sorted(6 * ["fp16", "fp16", "w4a8"])
    printed = capsys.readouterr()
    assert "backends.other: " in printed.out
    assert "Its 2 cells are recorded as failed." in printed.out
    assert "Traceback" not in printed.err
    summary = json.loads((folder.results / "summary.json").read_text(encoding="utf-8"))
    assert len(summary["failures"]) == 2
    workers = json.loads((folder.results / "environment.json").read_text(encoding="utf-8"))
    assert reason in workers["workers"]["other"]["error"]
    assert (folder.results / "report.html").exists()


def test_a_worker_that_starts_only_the_second_time_is_measured_and_named(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = folder.path / "tried"
    script = f"test -e {mark} || {{ touch {mark}; kill -SEGV $$; }}; exec {sys.executable} -m tests.fakes.worker"  # noqa: E501
    assert main(folder.overrides(*other(f"sh, -c, '{script}'"))) == OK
    assert not failed(folder)
    printed = capsys.readouterr().out
    assert "SIGSEGV" in printed
    assert "It was started again and answered." in printed


def test_a_baseline_without_a_worker_leaves_the_other_cells_their_own_figures(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = "methods=[{precision: fp16},{precision: w4a8, backend: other}]"
    second = f"+backends.other={{command: [{sys.executable}, -m, tests.fakes.worker]}}"
    first = "backends.native.command=['false']"
    # Without a baseline nothing can be decided, so that no budget is spent on further blocks.
    assert main([*folder.overrides(methods, second), first, "schedule.budget_s=60"]) == CELLS_FAILED
    assert "The baseline is among them" in capsys.readouterr().out
    records = folder.records().values()
    assert sorted(r["cell"]["method_id"] for r in records) == ["fp16"] * 2 + ["w4a8@other"] * 6
    summary = json.loads((folder.results / "summary.json").read_text(encoding="utf-8"))
    assert summary["verdict"]["decision"] == "undecided"


def test_where_no_worker_starts_the_sweep_ends_before_anything_is_written(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [*folder.overrides(*other(NO_GPU)), f"backends.native.command=[{bad('segv')}]"]
    assert main(both) == BAD_CONFIGURATION
    message = capsys.readouterr().err
    assert "backends.native: The worker 'native' ended with SIGSEGV" in message
    assert "backends.other: The worker 'other' ended with exit status 2" in message
    assert not (folder.results / "plan.json").exists()


def test_where_every_load_fails_the_sweep_says_that_nothing_was_measured(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder.overrides(most_memory=1)) == CELLS_FAILED
    error = capsys.readouterr().err
    assert "Error: no cell could be measured." in error
    assert "out_of_memory: a batch of 1 does not fit" in error


def test_results_with_a_workers_figures_do_not_give_way_to_a_failed_start(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    working = f"{sys.executable}, -m, tests.fakes.worker"
    assert main(folder.overrides(*other(working))) == OK
    before = folder.finished()
    assert main(folder.overrides(*other(NO_GPU))) == BAD_CONFIGURATION
    message = capsys.readouterr().err
    assert "It said: No GPU can be used." in message
    assert "were measured with this worker" in message
    assert folder.finished() == before
    assert main(folder.overrides(*other(NO_GPU), "fresh=true")) == CELLS_FAILED


def test_a_sweep_without_a_worker_goes_on_without_it(folder: SweepFolder) -> None:
    assert main(folder.overrides(*other(NO_GPU))) == CELLS_FAILED
    before = folder.finished()
    assert main(folder.overrides(*other(NO_GPU))) == CELLS_FAILED
    assert folder.finished() == before
    assert Path(folder.results, "plan.json").exists()


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("device=cuda", ("backends.native: ", "'/nowhere/worker --device cuda'", "native-cuda")),
        ("backend=[vllm_fp16]", ("backends.vllm_fp16: ", "/nowhere/python", "make backend-vllm")),
    ],
)
def test_a_gpu_backend_that_is_not_installed_is_named_with_what_installs_it(
    folder: SweepFolder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    override: str,
    parts: tuple[str, ...],
) -> None:
    monkeypatch.setenv("SPECQUANT_WORKER", "/nowhere/worker")
    monkeypatch.setenv("SPECQUANT_VLLM_PYTHON", "/nowhere/python")
    words = [word for word in folder.overrides() if not word.startswith("backends.")]
    assert main([*words, override]) == BAD_CONFIGURATION
    message = capsys.readouterr().err
    for part in parts:
        assert part in message

"""Sweeps that were interrupted, and folders of another configuration."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import BAD_CONFIGURATION, INTERRUPTED, OK
from harness.sweep import main
from tests.fakes.model import write_model
from tests.integration.folder import SweepFolder

NAP = {"nap_s": 0.02}


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_at_any_moment_loses_nothing_that_was_finished(
    folder: SweepFolder, seed: int
) -> None:
    moment = random.Random(seed).uniform(0.1, 1.2)
    process = folder.start(**NAP)
    deadline = time.monotonic() + 120
    while not folder.finished() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(moment)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = folder.finished()
    assert before
    done = {name.rsplit("/", 1)[0] for name in before}
    folder.worker_log.unlink()
    assert main(folder.overrides(**NAP)) == OK
    after = folder.finished()
    assert {name: after[name] for name in before} == before
    blocks = {name.rsplit("/", 1)[0] for name in after}
    assert len(blocks) == 6
    assert not list((folder.results / "records").glob("*/*.partial"))
    runs = sum(request["call"] == "run" for request in folder.requests())
    assert runs == (7 if done != blocks else 0) + 8 * (6 - len(done))


def test_a_finished_sweep_measures_nothing_and_rebuilds_its_report(folder: SweepFolder) -> None:
    main(folder.overrides())
    before = folder.finished()
    folder.worker_log.unlink()
    (folder.results / "report.html").unlink()
    (folder.results / "summary.json").unlink()
    assert main(folder.overrides("cost.device_price_per_hour=0.5")) == OK
    assert folder.finished() == before
    assert {request["call"] for request in folder.requests()} <= {"hello", "close"}
    assert (folder.results / "report.html").exists()
    assert (folder.results / "summary.json").exists()


def test_a_half_written_block_is_dropped_and_measured_whole(folder: SweepFolder) -> None:
    main(folder.overrides())
    (group,) = (folder.results / "records").iterdir()
    kept = {name: value for name, value in folder.finished().items() if "/005/" not in name}
    (group / "005").rename(group / "005.partial")
    for path in list((group / "005.partial").iterdir())[:5]:
        path.unlink()
    assert main(folder.overrides()) == OK
    assert len(list((group / "005").iterdir())) == 8
    assert not (group / "005.partial").exists()
    after = folder.finished()
    assert {name: after[name] for name in kept} == kept


def other_prompts(folder: SweepFolder) -> list[str]:
    folder.write_prompts(seed=7)
    return folder.overrides()


def other_model(folder: SweepFolder) -> list[str]:
    write_model(folder.path / "fake.sqm", rope_theta=1.0)
    return folder.overrides()


CHANGES: dict[str, Callable[[SweepFolder], list[str]]] = {
    "another workload": other_prompts,
    "another model": other_model,
    "another build": lambda folder: folder.overrides(build="fake-2"),
    "other statistics": lambda folder: folder.overrides("stats.min_effect=0.05"),
    "another seed": lambda folder: folder.overrides("seed=5"),
    "other groups": lambda folder: folder.overrides("sweep.draft_length=[2]"),
    "(fresh=true)": lambda folder: folder.overrides("fresh=true"),
}


@pytest.mark.parametrize("reason", CHANGES)
def test_other_measurements_are_moved_aside_and_never_mixed(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    main(folder.overrides())
    before = {name: content for name, (_, content) in folder.finished().items()}
    capsys.readouterr()
    assert main(CHANGES[reason](folder)) == OK
    printed = capsys.readouterr().out
    assert "were moved to" in printed
    assert reason in printed
    (aside,) = (p for p in folder.results.parent.glob("t.*") if p.is_dir())
    kept = {
        str(path.relative_to(aside / "records")): path.read_bytes()
        for path in (aside / "records").glob("*/*/*.json")
    }
    assert kept == before
    if reason not in ("(fresh=true)", "other groups"):
        assert not set(folder.finished()) & set(before), "hashes must differ"


def test_a_folder_of_another_schema_is_refused_and_left_as_it_is(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    main(folder.overrides())
    path = folder.results / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**plan, "schema_version": 7}), encoding="utf-8")
    before = folder.finished()
    assert main(folder.overrides()) == BAD_CONFIGURATION
    message = capsys.readouterr().err
    assert "plan.json" in message
    assert "schema version 7" in message
    assert folder.finished() == before
    assert main(folder.overrides("fresh=true")) == OK


def test_records_without_a_plan_are_never_written_over(folder: SweepFolder) -> None:
    main(folder.overrides())
    (folder.results / "plan.json").unlink()
    before = folder.finished()
    assert main(folder.overrides()) == BAD_CONFIGURATION
    assert folder.finished() == before


def test_two_sweeps_cannot_write_to_one_folder(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    first = folder.start(nap_s=0.1)
    deadline = time.monotonic() + 120
    while not (folder.results / "plan.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        assert main(folder.overrides()) == BAD_CONFIGURATION
        assert "Another sweep is writing" in capsys.readouterr().err
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_finished_blocks(folder: SweepFolder, number: signal.Signals) -> None:
    # Long enough that the other blocks are not done before the signal comes, on a busy machine too.
    process = folder.start(nap_s=0.2)
    deadline = time.monotonic() + 120
    while not folder.finished() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == INTERRUPTED
    assert "same command" in stderr
    assert "Traceback" not in stderr
    before = folder.finished()
    assert before
    assert main(folder.overrides(nap_s=0.2)) == OK
    assert {name: folder.finished()[name] for name in before} == before


def test_the_harness_sleeps_while_a_worker_measures(folder: SweepFolder) -> None:
    process = folder.start(nap_s=0.3)
    deadline = time.monotonic() + 120
    while not (folder.results / "records").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    before = cpu_s(process.pid)
    time.sleep(3.0)
    spent = cpu_s(process.pid) - before
    process.kill()
    process.communicate()
    # About ten trials begin in this time; each costs the harness a few milliseconds.
    assert spent < 0.3


def cpu_s(pid: int) -> float:
    """Seconds of processor time of a process, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_merge_joins_what_two_hosts_measured(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.records import main as records

    main(folder.overrides())
    (group,) = (folder.results / "records").iterdir()
    other = folder.path / "other"
    shutil.copytree(folder.results, other)
    for block in ("003", "004", "005"):
        shutil.rmtree(group / block)
        assert (other / "records" / group.name / block).exists()
    for block in ("000", "001"):
        shutil.rmtree(other / "records" / group.name / block)
    out = folder.path / "merged"
    assert records(["merge", str(out), str(folder.results), str(other)]) == OK
    names = sorted(path.name for path in (out / "records" / group.name).iterdir())
    assert names == ["000", "001", "002", "003", "004", "005"]
    assert (out / "report.html").exists()

    (record,) = list((other / "records" / group.name / "002").glob("*.json"))[:1]
    record.write_text(record.read_text(encoding="utf-8") + " ", encoding="utf-8")
    twice = folder.path / "twice"
    assert records(["merge", str(twice), str(folder.results), str(other)]) == BAD_CONFIGURATION
    assert "two measurements of one block" in capsys.readouterr().err
    assert not twice.exists()

    main(folder.overrides("seed=9"))
    assert records(["merge", str(twice), str(folder.results), str(other)]) == BAD_CONFIGURATION
    assert "cannot be merged" in capsys.readouterr().err

"""What a Hydra command line returns and says when its task fails, ends or is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig

from harness.command import BAD_CONFIGURATION, INTERRUPTED, OK, run_command
from harness.errors import ConfigError
from reports.source import ReportError


@pytest.mark.parametrize("error", [ConfigError("Name a model."), ReportError("Name a folder.")])
def test_an_error_of_the_user_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def task(_: DictConfig) -> int:
        raise error

    assert run_command(task, [], kept="Finished blocks") == BAD_CONFIGURATION
    assert capsys.readouterr().err == f"Error: {error}\n"


def test_an_interruption_says_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def task(_: DictConfig) -> int:
        raise KeyboardInterrupt

    assert run_command(task, [], kept="Finished blocks") == INTERRUPTED
    assert "Finished blocks are kept" in capsys.readouterr().err


def test_the_highest_status_of_several_runs_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # --multirun leaves a file

    def task(config: DictConfig) -> int:
        return int(config.schedule.max_failures)

    assert run_command(task, ["schedule.max_failures=3"], kept="") == 3
    assert run_command(task, ["--multirun", "schedule.max_failures=1,5,4"], kept="") == 5
    assert run_command(task, ["--cfg", "job"], kept="") == OK

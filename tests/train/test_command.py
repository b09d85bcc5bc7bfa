"""The command line of backends.train."""

from __future__ import annotations

import pytest

from backends.train import __main__ as command
from tests.train.conftest import HAS_TORCH


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed here")
def test_without_pytorch_the_error_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["answers", "--data-root", ".", "--out", "x.npz"]) == 1
    assert "Run 'make backend-train'" in capsys.readouterr().err


@pytest.mark.skipif(
    not HAS_TORCH,
    reason="no PyTorch here; after make backend-train, use .venvs/train/bin/python",
)
def test_an_absent_target_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--target", "absent.sqm", "answers", "--data-root", ".", "--out", "x.npz"]
    assert command.main(arguments) == 1
    assert "absent.sqm" in capsys.readouterr().err


def test_help_says_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["drafters", "--help"])
    assert "model.sqm, head.sqm and model-head.sqm" in " ".join(capsys.readouterr().out.split())

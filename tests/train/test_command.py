"""The command line of backends.train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
def test_an_absent_target_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gsm8k_train.jsonl").write_text("")
    arguments = ["--target", "absent.sqm", "answers", "--data-root", str(tmp_path)]
    arguments += ["--out", "x.npz"]
    assert command.main(arguments) == 1
    assert "absent.sqm" in capsys.readouterr().err


def test_help_says_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["drafters", "--help"])
    assert "model.sqm, head.sqm and model-head.sqm" in " ".join(capsys.readouterr().out.split())


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed here (make backend-train)")
@pytest.mark.parametrize("named", ["dialogues", "data", "target"])
def test_bad_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    from backends.pack.hf_import import pack_checkpoint
    from tests.fakes.tiny_checkpoint import tiny

    target, dialogues = tmp_path / "two_layers.sqm", tmp_path / "d.npz"
    pack_checkpoint(tiny().write(tmp_path / "checkpoint"), target)
    np.savez(dialogues, **{"wrong" if named == "dialogues" else "ids": np.zeros(3)})
    if named != "data":
        for name in ("gsm8k_test.jsonl", "spec_bench.jsonl"):
            (tmp_path / name).write_text("")
    if named == "target":
        parts = {name: np.zeros(1, np.int32) for name in ("prompt_lengths", "answer_lengths")}
        np.savez(dialogues, ids=np.zeros(3), origins=np.array(["x"]), **parts)
    arguments = ["--target", str(target), "--device", "cpu", "drafters"]
    arguments += ["--data-root", str(tmp_path), "--dialogues", str(dialogues)]
    assert command.main([*arguments, "--out", str(tmp_path / "out")]) == 1
    expected = {
        "dialogues": "d.npz holds no dialogues",
        "data": "gsm8k_test.jsonl does not exist",
        "target": "it has 2 layers, and a draft model takes 5",
    }
    assert expected[named] in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

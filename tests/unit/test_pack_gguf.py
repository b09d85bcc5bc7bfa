"""GGUF files into packed files: exact values, and a clear refusal of everything else."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from backends.pack.errors import CheckpointError
from backends.pack.gguf_file import GgufFile
from backends.pack.gguf_import import pack_gguf
from backends.pack.packed import PackedFile
from tests.fakes.tiny_llama import HIDDEN, INNER, LAYERS, shapes, write_gguf


def packed_as_gguf(packed: PackedFile) -> dict[str, Any]:
    """Dequantized values of a packed file under GGUF's names, undoing the fused tensors."""
    values = {
        "token_embd.weight": packed.dequantize("head"),
        "output_norm.weight": packed.dequantize("final_norm"),
    }
    if not packed.metadata["tied_head"]:
        values["output.weight"] = values["token_embd.weight"]
        values["token_embd.weight"] = packed.dequantize("embed")
    for layer in range(LAYERS):
        stored, named = f"layers.{layer}.", f"blk.{layer}."
        qkv = np.split(packed.dequantize(stored + "qkv"), [64, 96])
        values |= dict(zip((f"{named}attn_{p}.weight" for p in "qkv"), qkv, strict=True))
        blocks = packed.dequantize(stored + "gate_up").reshape(-1, 2, 16, HIDDEN)
        values[named + "ffn_gate.weight"] = blocks[:, 0].reshape(INNER, HIDDEN)
        values[named + "ffn_up.weight"] = blocks[:, 1].reshape(INNER, HIDDEN)
        values[named + "attn_output.weight"] = packed.dequantize(stored + "o")
        values[named + "ffn_down.weight"] = packed.dequantize(stored + "down")
        values[named + "attn_norm.weight"] = packed.dequantize(stored + "attn_norm")
        values[named + "ffn_norm.weight"] = packed.dequantize(stored + "mlp_norm")
    return values


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "F16", "BF16"])
def test_packed_values_are_those_of_the_gguf_library(tmp_path: Path, kind: str, tied: bool) -> None:
    expected = write_gguf(tmp_path / "m.gguf", layers=kind, tied=tied)
    metadata = pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    packed = PackedFile(tmp_path / "m.sqm")
    packed.verify()
    found = packed_as_gguf(packed)
    assert found.keys() == expected.keys() == shapes(tied).keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert metadata["weight_format"] == kind.lower()
    assert packed.metadata["tied_head"] is tied


def test_f32_matrices_become_the_nearest_f16(tmp_path: Path) -> None:
    expected = write_gguf(tmp_path / "m.gguf", layers="F32", head="F32")
    metadata = pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    found = packed_as_gguf(PackedFile(tmp_path / "m.sqm"))
    for name, values in expected.items():
        rounded = values if values.ndim == 1 else values.astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(found[name], rounded, err_msg=name)
    assert metadata["weight_format"] == "f16"
    assert not metadata["dequantized_baseline"]


def test_scales_are_stored_as_they_were(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", layers="Q4_1")
    pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    down = PackedFile(tmp_path / "m.sqm").tensor("layers.1.down")
    (tensor,) = (
        t for t in GGUFReader(tmp_path / "m.gguf").tensors if t.name == "blk.1.ffn_down.weight"
    )
    blocks = tensor.data.reshape(HIDDEN, -1, 20)
    scales = np.ascontiguousarray(blocks[:, :, 0:4]).view(np.uint16)
    np.testing.assert_array_equal(down.s.view(np.uint16), scales[:, :, 0])  # type: ignore[union-attr]
    np.testing.assert_array_equal(down.m.view(np.uint16), scales[:, :, 1])  # type: ignore[union-attr]


def test_reader_agrees_with_the_gguf_library(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", metadata={"x.flag": True, "x.text": "é"})
    ours, theirs = GgufFile(tmp_path / "m.gguf"), GGUFReader(tmp_path / "m.gguf")
    fields = {
        key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")
    }
    assert ours.metadata == fields
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert found.data.tobytes() == tensor.data.tobytes()


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": (
        {"architecture": "gemma"},
        "'gemma'; supported are llama, qwen2, qwen3",
    ),
    "missing tensor": (
        {"leave_out": ("blk.1.ffn_up.weight",)},
        "'blk.1.ffn_up.weight': it is missing",
    ),
    "missing embedding": (
        {"leave_out": ("token_embd.weight",)},
        "'token_embd.weight': it is missing",
    ),
    "missing norm": ({"leave_out": ("output_norm.weight",)}, "'output_norm.weight': it is missing"),
    "missing dimension": (
        {"metadata": {"llama.feed_forward_length": None}},
        "'llama.feed_forward_length' is missing",
    ),
    "wrong shape": (
        {"replace": {"blk.0.attn_v.weight": np.zeros((64, 64), np.float32)}},
        r"'blk.0.attn_v.weight': its shape is \(64, 64\) where the model needs \(32, 64\)",
    ),
    "more heads than memory holds": (
        {"metadata": {"llama.attention.head_count": 2**31, "llama.attention.key_length": 16}},
        "'blk.0.attn_q.weight': its shape is",
    ),
    "wrong norm": (
        {"replace": {"blk.0.ffn_norm.weight": np.ones(32, np.float32)}},
        "'blk.0.ffn_norm.weight': its shape is",
    ),
    "unsupported type": (
        {"types": {"blk.1.attn_output.weight": "Q5_0"}},
        "'blk.1.attn_output.weight': type Q5_0 is unsupported; supported are",
    ),
    "types that do not fuse": (
        {"types": {"blk.0.attn_v.weight": "Q8_0"}},
        "'blk.0.attn_v.weight': it is Q8_0 beside 'blk.0.attn_q.weight' of type Q4_1",
    ),
    "NaN weights": (
        {
            "layers": "F16",
            "replace": {"blk.0.ffn_down.weight": np.full((64, 96), np.nan, np.float32)},
        },
        "'blk.0.ffn_down.weight': it holds NaN",
    ),
    "values beyond f16": (
        {"layers": "F32", "replace": {"blk.0.ffn_down.weight": np.full((64, 96), 1e6, np.float32)}},
        "'blk.0.ffn_down.weight': it holds NaN, infinity or values beyond f16",
    ),
    "NaN norm": (
        {"replace": {"output_norm.weight": np.full(64, np.nan, np.float32)}},
        "'output_norm.weight': it holds NaN",
    ),
    "rotary scaling": (
        {"metadata": {"llama.rope.scaling.type": "yarn"}},
        "rotary scaling 'yarn' is unsupported",
    ),
    "experts": ({"metadata": {"llama.expert_count": 8}}, "mixtures of experts"),
    "tokens that do not fit": (
        {"metadata": {"tokenizer.ggml.tokens": ["a", "b"]}},
        "'token_embd.weight': it has 304 rows for 2 tokens",
    ),
    "unknown pre-tokenizer": (
        {"metadata": {"tokenizer.ggml.pre": "mystery"}},
        "pre-tokenizer 'mystery' is unsupported",
    ),
    "merge of unknown tokens": (
        {"metadata": {"tokenizer.ggml.merges": ["nothing such"]}},
        "merges do not fit",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_checkpoint_is_refused_by_name(tmp_path: Path, case: str) -> None:
    options, message = BAD[case]
    path, out = tmp_path / "bad.gguf", tmp_path / "out.sqm"
    out.write_bytes(b"what was there before")
    write_gguf(path, **options)
    with pytest.raises(CheckpointError, match=message) as caught:
        pack_gguf(path, out)
    assert str(path) in str(caught.value)
    assert out.read_bytes() == b"what was there before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.gguf", "out.sqm"]


def test_extra_tensor_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", metadata={"llama.block_count": 1})
    with pytest.raises(CheckpointError, match=r"'blk.1.*': it is unsupported"):
        pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")


def patch(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(bytes(data))


def tensor_offset(path: Path, name: str) -> int:
    (tensor,) = (t for t in GGUFReader(path).tensors if t.name == name)
    return int(tensor.data_offset)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_scale_names_tensor_and_row(tmp_path: Path, kind: str, value: float) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, layers=kind)
    row_bytes = {"Q4_0": 3 * 18, "Q4_1": 3 * 20, "Q8_0": 3 * 34}[kind]
    at = tensor_offset(path, "blk.1.ffn_down.weight") + 5 * row_bytes
    patch(path, at, struct.pack("<e", value))
    with pytest.raises(CheckpointError, match=r"'blk.1.ffn_down.weight': row 5, group 0: a scale"):
        pack_gguf(path, tmp_path / "m.sqm")


def test_smallest_q8_code_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    expected = write_gguf(path, layers="Q8_0")["blk.0.attn_q.weight"]
    patch(path, tensor_offset(path, "blk.0.attn_q.weight") + 2, b"\x80")
    pack_gguf(path, tmp_path / "m.sqm")
    row = PackedFile(tmp_path / "m.sqm").dequantize("layers.0.qkv")[0]
    (scale,) = np.frombuffer(
        path.read_bytes(), "<f2", 1, tensor_offset(path, "blk.0.attn_q.weight")
    )
    assert row[0] == -128 * np.float32(scale)
    np.testing.assert_array_equal(row[1:], expected[0, 1:])


def test_group_that_does_not_divide_names_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    field = next(f for f in GGUFReader(path).tensors if f.name == "blk.0.ffn_down.weight").field
    at = field.offset + 8 + len("blk.0.ffn_down.weight") + 4
    patch(path, at, struct.pack("<Q", 90))
    with pytest.raises(
        CheckpointError, match=r"'blk.0.ffn_down.weight': its 90 columns do not div"
    ):
        pack_gguf(path, tmp_path / "m.sqm")


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none.gguf: it cannot be read \(No such file"):
        pack_gguf(tmp_path / "none.gguf", tmp_path / "m.sqm")
    for content in (b"", b"GGU", b"not a model at all", b"GGUF" + struct.pack("<I", 99)):
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"x\.gguf: "):
            pack_gguf(tmp_path / "x.gguf", tmp_path / "m.sqm")


def test_truncation_anywhere_is_an_error_and_in_data_names_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    whole = path.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in range(0, len(whole) - 64, 997):
        cut.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"cut\.gguf"):
            pack_gguf(cut, tmp_path / "m.sqm")
    cut.write_bytes(whole[: tensor_offset(path, "blk.1.attn_k.weight") + 10])
    with pytest.raises(CheckpointError, match=r"'blk.1.attn_k.weight': it ends .* truncated"):
        pack_gguf(cut, tmp_path / "m.sqm")
    assert not (tmp_path / "m.sqm").exists()


def test_damaged_counts_end_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path)
    for at in (8, 16):
        original = path.read_bytes()[at : at + 8]
        patch(path, at, struct.pack("<Q", 1 << 60))
        with pytest.raises(CheckpointError, match=r"m\.gguf: "):
            GgufFile(path)
        patch(path, at, original)
    GgufFile(path)


def test_metadata_of_the_result(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", metadata={"general.license": "apache-2.0"})
    written = pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm", name="mine")
    metadata: Mapping[str, Any] = PackedFile(tmp_path / "m.sqm").metadata
    assert metadata["name"] == "mine"
    assert metadata["source"]["licence"] == "apache-2.0"
    assert metadata["source"]["file"] == "m.gguf"
    assert metadata["content_hash"] == written["content_hash"]
    assert metadata["dequantized_baseline"] is True
    assert metadata["stop_ids"] == [0, 2]
    assert (metadata["bos_token"], metadata["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    again = pack_gguf(tmp_path / "m.gguf", tmp_path / "again.sqm", name="mine")
    assert again["content_hash"] == written["content_hash"]
    assert (tmp_path / "again.sqm").read_bytes() == (tmp_path / "m.sqm").read_bytes()

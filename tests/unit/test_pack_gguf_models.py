"""GGUF files of every architecture, and the types that are dequantized."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from backends.pack.errors import CheckpointError
from backends.pack.gguf_import import pack_gguf
from backends.pack.gguf_superblocks import dequantize_q4_k, dequantize_q6_k
from backends.pack.packed import PackedFile
from backends.pack.tiles import Floats
from tests.fakes.gguf_of_checkpoint import superblocks, write_gguf_of
from tests.fakes.tiny_checkpoint import HEAD_DIM, tiny
from tests.unit.test_pack_checkpoint import MODEL_TYPES, assert_equal, packed_as_checkpoint


@pytest.mark.parametrize(
    ("kind", "read"), [("Q4_K", dequantize_q4_k), ("Q6_K", dequantize_q6_k)], ids=["Q4_K", "Q6_K"]
)
def test_superblocks_are_dequantized_as_the_library_does(kind: str, read: object) -> None:
    assert callable(read)
    raw = superblocks(kind, 40, 512, np.random.default_rng(0))
    expected = dequantize(raw, GGMLQuantizationType[kind])
    found = read(raw.reshape(-1)).reshape(expected.shape)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_superblocks_become_the_nearest_f16_and_are_counted(tmp_path: Path, kind: str) -> None:
    expected = write_gguf_of(tiny(), tmp_path / "m.gguf", down=kind)
    metadata = pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    found = packed_as_checkpoint(PackedFile(tmp_path / "m.sqm"))
    changed = 0
    for name, values in expected.items():
        rounded = values if values.ndim == 1 else values.astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(found[name], rounded, err_msg=name)
        changed += int((rounded != values).sum())
    (note,) = metadata["source"]["notes"]
    assert note.startswith(f"{changed} of {2 * 128 * 256} {kind} weights were rounded")
    assert metadata["dequantized_baseline"]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_rows_biases_and_norms_of_every_architecture(
    tmp_path: Path, model_type: str, tied: bool
) -> None:
    expected = write_gguf_of(tiny(model_type, tied=tied), tmp_path / "m.gguf")
    metadata = pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    packed = PackedFile(tmp_path / "m.sqm")
    assert_equal(packed_as_checkpoint(packed), expected)
    assert metadata["tied_head"] is tied
    assert "notes" not in metadata["source"]
    assert not metadata["dequantized_baseline"]


def test_missing_bias_of_qwen2_is_named(tmp_path: Path) -> None:
    model = tiny("qwen2")
    del model.weights["model.layers.1.self_attn.k_proj.bias"]
    write_gguf_of(model, tmp_path / "m.gguf")
    with pytest.raises(CheckpointError, match=r"'blk.1.attn_k.bias': it is missing"):
        pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")


def llama3_factors(factor: float, low: float, high: float, original: int) -> Floats:
    """Divisors of the frequencies, written as transformers' documentation states the rule."""
    found = []
    for i in range(HEAD_DIM // 2):
        wavelength = 2 * math.pi * 5e5 ** (2 * i / HEAD_DIM)
        if wavelength < original / high:
            found.append(1.0)
        elif wavelength > original / low:
            found.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


def test_llama3_scaling_is_found_in_its_factors(tmp_path: Path) -> None:
    model = tiny(config={"rope_theta": 5e5})
    factors = llama3_factors(8.0, 1.0, 4.0, 8192)
    write_gguf_of(model, tmp_path / "m.gguf", tensors={"rope_freqs.weight": factors})
    metadata = pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    assert metadata["rope_scaling"] == {
        "type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position": 8192,
    }


def test_other_factors_are_refused(tmp_path: Path) -> None:
    model = tiny(config={"rope_theta": 5e5})
    factors = llama3_factors(8.0, 1.0, 8.0, 8192)
    write_gguf_of(model, tmp_path / "m.gguf", tensors={"rope_freqs.weight": factors})
    with pytest.raises(CheckpointError, match=r"'rope_freqs.weight': its factors are not those"):
        pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")


def test_linear_scaling_and_sliding_windows(tmp_path: Path) -> None:
    write_gguf_of(
        tiny("mistral"),
        tmp_path / "m.gguf",
        metadata={
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 4.0,
            "attention.sliding_window": 64,
        },
    )
    metadata = pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    assert metadata["rope_scaling"] == {"type": "linear", "factor": 4.0}
    assert metadata["max_position"] == 64
    assert "max_position is 64 instead of 512" in metadata["source"]["notes"][0]

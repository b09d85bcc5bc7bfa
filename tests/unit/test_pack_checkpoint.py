"""Hugging Face checkpoints into packed files: exact values by the formulas of each library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.pack.__main__ import main
from backends.pack.hf_import import pack_checkpoint
from backends.pack.packed import PackedFile
from backends.pack.tiles import Affine4, Floats
from tests.fakes.quantized_checkpoint import Format, quantized
from tests.fakes.tiny_checkpoint import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    Tiny,
    tiny,
    tokenizer_json,
)

MODEL_TYPES = ["llama", "mistral", "qwen2", "qwen3"]


def half_split(pairs: Floats) -> Floats:
    """Rows of heads in adjacent-pair order back into the checkpoint's."""
    heads = pairs.reshape(-1, HEAD_DIM // 2, 2, *pairs.shape[1:])
    return heads.swapaxes(1, 2).reshape(pairs.shape)


def packed_as_checkpoint(packed: PackedFile) -> dict[str, Floats]:
    """Dequantized values of a packed file under the checkpoint's names and in its order."""
    tied = packed.metadata["tied_head"]
    values = {
        "model.embed_tokens.weight": packed.dequantize("head" if tied else "embed"),
        "model.norm.weight": packed.dequantize("final_norm"),
    }
    if not tied:
        values["lm_head.weight"] = packed.dequantize("head")
    at = [HEADS * HEAD_DIM, (HEADS + KV_HEADS) * HEAD_DIM]
    for layer in range(LAYERS):
        stored, named = f"layers.{layer}.", f"model.layers.{layer}."
        for tensor, part in (("qkv", "weight"), ("qkv_bias", "bias")):
            if stored + tensor in packed.names:
                q, k, v = np.split(packed.dequantize(stored + tensor), at)
                for letter, rows in (("q", half_split(q)), ("k", half_split(k)), ("v", v)):
                    values[f"{named}self_attn.{letter}_proj.{part}"] = rows
        for letter in "qk":
            if f"{stored}{letter}_norm" in packed.names:
                norm = packed.dequantize(f"{stored}{letter}_norm")
                values[f"{named}self_attn.{letter}_norm.weight"] = half_split(norm)
        blocks = packed.dequantize(stored + "gate_up").reshape(-1, 2, 16, HIDDEN)
        values[named + "mlp.gate_proj.weight"] = blocks[:, 0].reshape(INNER, HIDDEN)
        values[named + "mlp.up_proj.weight"] = blocks[:, 1].reshape(INNER, HIDDEN)
        values[named + "mlp.down_proj.weight"] = packed.dequantize(stored + "down")
        values[named + "self_attn.o_proj.weight"] = packed.dequantize(stored + "o")
        values[named + "input_layernorm.weight"] = packed.dequantize(stored + "attn_norm")
        values[named + "post_attention_layernorm.weight"] = packed.dequantize(stored + "mlp_norm")
    return values


def packed(model: Tiny, folder: Path, shards: int = 1) -> PackedFile:
    """Write, pack and open a checkpoint."""
    pack_checkpoint(model.write(folder / "checkpoint", shards), folder / "m.sqm")
    file = PackedFile(folder / "m.sqm")
    file.verify()
    return file


def assert_equal(found: dict[str, Floats], expected: dict[str, Floats]) -> None:
    """Same names and bitwise the same values."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_sixteen_bit_weights_are_kept(
    tmp_path: Path, model_type: str, dtype: str, tied: bool
) -> None:
    model = tiny(model_type, dtype=dtype, tied=tied)
    file = packed(model, tmp_path, shards=3)
    assert_equal(packed_as_checkpoint(file), model.weights)
    assert file.metadata["weight_format"] == dtype
    assert file.metadata["tied_head"] is tied
    assert not file.metadata["dequantized_baseline"]
    assert "notes" not in file.metadata["source"]


def test_f32_weights_become_the_nearest_f16_and_are_counted(tmp_path: Path) -> None:
    model = tiny(dtype="f32")
    file = packed(model, tmp_path)
    found = packed_as_checkpoint(file)
    changed = 0
    for name, values in model.weights.items():
        rounded = values if values.ndim == 1 else values.astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(found[name], rounded, err_msg=name)
        changed += int((rounded != values).sum())
    (note,) = file.metadata["source"]["notes"]
    assert note.startswith(f"{changed} of ")
    assert "F32 weights were rounded to f16" in note


FORMATS = [
    *(
        Format("gptq", bits=bits, group=group, symmetric=symmetric, version=version)
        for bits, symmetric in ((4, True), (4, False), (8, True))
        for group in (32, 64, 128, -1)
        for version in (1, 2)
    ),
    *(Format("awq", group=group) for group in (32, 64, 128, -1)),
    *(
        Format("ct", group=group, symmetric=symmetric, scale_type=scale_type)
        for group in (32, 128, -1)
        for symmetric in (True, False)
        for scale_type in ("f16", "bf16")
    ),
]


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_codes_keep_their_exact_values(tmp_path: Path, form: Format) -> None:
    model = quantized(tiny(), form)
    file = packed(model, tmp_path)
    assert_equal(packed_as_checkpoint(file), model.weights)
    assert "notes" not in file.metadata["source"]
    assert file.metadata["weight_format"] == f"{form.library}_int{form.bits}"
    assert file.metadata["dequantized_baseline"]
    down = file.metadata["tensors"]["layers.0.down"]
    assert down["group"] == (128 if form.group == -1 else form.group)
    if form.bits == 8:
        assert down["kind"] == "affine8"
    elif form.symmetric:
        assert down["kind"] == "affine4"
    elif form.scale_type == "f16":
        assert down["kind"] == "affine4z"


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("library", ["gptq", "awq", "ct"])
def test_every_architecture_may_be_quantized(tmp_path: Path, library: str, model_type: str) -> None:
    model = quantized(tiny(model_type, tied=True), Format(library))
    assert_equal(packed_as_checkpoint(packed(model, tmp_path, shards=2)), model.weights)


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("library", ["gptq", "ct"])
def test_act_order_keeps_exact_values(
    tmp_path: Path, library: str, symmetric: bool, group: int
) -> None:
    model = quantized(tiny(), Format(library, group=group, symmetric=symmetric, act_order=True))
    file = packed(model, tmp_path)
    assert_equal(packed_as_checkpoint(file), model.weights)
    assert "notes" not in file.metadata["source"]
    assert file.metadata["tensors"]["layers.1.down"]["kind"].startswith("affine4")
    # One group of 128 columns is all of a narrow matrix, so that its order is trivial.
    assert ("layers.0.qkv_columns" in file.names) == (group == 32)
    assert "layers.0.down_columns" in file.names


@pytest.mark.parametrize("scale_type", ["f16", "bf16"])
@pytest.mark.parametrize("library", ["gptq", "ct"])
def test_groups_of_unequal_size_are_rounded_as_their_library_rounds_them(
    tmp_path: Path, library: str, scale_type: str
) -> None:
    form = Format(library, group=32, act_order=True, scale_type=scale_type, unequal=True)
    model = quantized(tiny(), form)
    file = packed(model, tmp_path)
    found = packed_as_checkpoint(file)
    for name, values in model.weights.items():
        if "_proj." in name and scale_type == "f16":
            values = values.astype(np.float16).astype(np.float32)
        elif "_proj." in name:
            # Nearest, ties to even, in integers: add half of the last place, then cut.
            bits = values.view(np.uint32)
            values = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    (note,) = file.metadata["source"]["notes"]
    assert note.startswith("8 matrices have codes in act-order with groups of unequal size")


def test_trivial_g_idx_keeps_four_bits(tmp_path: Path) -> None:
    model = quantized(tiny(), Format("gptq", symmetric=True))
    model.config["quantization_config"]["desc_act"] = True
    assert packed(model, tmp_path).metadata["tensors"]["layers.1.o"]["kind"] == "affine4"


def test_scales_of_f32_are_rounded_and_counted(tmp_path: Path) -> None:
    model = quantized(tiny(), Format("ct", symmetric=True, scale_type="f32"))
    file = packed(model, tmp_path)
    (note,) = file.metadata["source"]["notes"]
    lost, _, total = note.split(" ")[:3]
    assert 0 < int(lost) <= int(total)
    found = packed_as_checkpoint(file)
    name = "model.layers.0.mlp.down_proj.weight"
    np.testing.assert_allclose(found[name], model.weights[name], rtol=2**-11)
    assert (found[name] != model.weights[name]).any()


def test_unpacked_zero_points_of_older_versions(tmp_path: Path) -> None:
    model = quantized(tiny(), Format("ct"))
    for name in [name for name in model.tensors if name.endswith("zero_point")]:
        packed_zeros = model.tensors[name].view(np.uint32)
        zero = packed_zeros[:, None, :] >> (4 * np.arange(8, dtype=np.uint32))[None, :, None] & 15
        unsigned = zero.reshape(-1, packed_zeros.shape[1]).astype(np.int8)
        model.tensors[name] = unsigned - np.int8(8)
    assert_equal(packed_as_checkpoint(packed(model, tmp_path)), model.weights)


def test_asymmetric_8_bit_codes_become_16_bit_weights(tmp_path: Path) -> None:
    model = quantized(tiny(), Format("gptq", bits=8))
    file = packed(model, tmp_path)
    name = "model.layers.0.mlp.down_proj.weight"
    rounded = model.weights[name].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(packed_as_checkpoint(file)[name], rounded)
    assert "of 8 bits that no symmetric" in file.metadata["source"]["notes"][0]


def test_zero_points_that_wrap_round_are_counted(tmp_path: Path) -> None:
    model = quantized(tiny(), Format("gptq"))
    name = "model.layers.0.mlp.down_proj"
    zeros = model.tensors[f"{name}.qzeros"]
    zeros[1, 0] |= 15  # group 1, row 0
    file = packed(model, tmp_path)
    codes = file.tensor("layers.0.down")
    assert isinstance(codes, Affine4)
    assert codes.kind == "affine4z"
    assert codes.m[0, 1] == -16
    (note,) = file.metadata["source"]["notes"]
    assert note.startswith("1 zero points are stored as the largest code")


def test_old_gptq_folders_have_their_own_config_and_biases_of_zeros(tmp_path: Path) -> None:
    model = quantized(tiny(), Format("gptq", symmetric=True))
    config = model.config.pop("quantization_config")
    model.files["quantize_config.json"] = {
        key: config[key] for key in ("bits", "group_size", "sym", "desc_act")
    }
    zeros = np.zeros(HIDDEN, np.float16)
    model.tensors["model.layers.0.mlp.down_proj.bias"] = zeros
    assert_equal(packed_as_checkpoint(packed(model, tmp_path)), model.weights)


def test_rotary_settings_of_both_generations(tmp_path: Path) -> None:
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    }
    stored = {
        "type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position": 256,
    }
    old = tiny(config={"rope_scaling": llama3, "rope_theta": 5e5})
    new = tiny(config={"rope_parameters": {**llama3, "rope_theta": 5e5}, "rope_theta": None})
    linear = tiny(config={"rope_scaling": {"type": "linear", "factor": 2}})
    for number, (model, theta, scaling) in enumerate(
        [(old, 5e5, stored), (new, 5e5, stored), (linear, 1e4, {"type": "linear", "factor": 2.0})]
    ):
        metadata = packed(model, tmp_path / str(number)).metadata
        assert (metadata["rope_theta"], metadata["rope_scaling"]) == (theta, scaling)


def test_sliding_window_limits_the_context(tmp_path: Path) -> None:
    windowed = packed(tiny("mistral", config={"sliding_window": 64}), tmp_path / "a").metadata
    assert windowed["max_position"] == 64
    assert "max_position is 64 instead of 512" in windowed["source"]["notes"][0]
    # Qwen2 names a window that it does not use.
    unused = tiny("qwen2", config={"sliding_window": 64, "use_sliding_window": False})
    assert packed(unused, tmp_path / "b").metadata["max_position"] == 512


def test_tokenizer_template_and_stop_ids_come_along(tmp_path: Path) -> None:
    model = tiny()
    model.files = {
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {
            "bos_token": {"content": "<s>"},
            "eos_token": "</s>",
            "chat_template": [
                {"name": "tool_use", "template": "no"},
                {"name": "default", "template": "yes"},
            ],
        },
        "generation_config.json": {"eos_token_id": [1, 7]},
    }
    metadata = packed(model, tmp_path).metadata
    assert metadata["tokenizer"] == tokenizer_json()
    assert metadata["chat_template"] == "yes"
    assert (metadata["bos_token"], metadata["eos_token"]) == ("<s>", "</s>")
    assert metadata["stop_ids"] == [1, 7]


def test_one_file_of_a_folder_can_be_named(tmp_path: Path) -> None:
    model = tiny()
    folder = model.write(tmp_path / "checkpoint")
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    arguments = ["import", str(folder / "consolidated.safetensors"), "--output"]
    assert main([*arguments, str(tmp_path / "m.sqm"), "--name", "mine"]) == 0
    file = PackedFile(tmp_path / "m.sqm")
    assert_equal(packed_as_checkpoint(file), model.weights)
    assert file.metadata["name"] == "mine"
    assert file.metadata["source"]["file"] == "consolidated.safetensors"


def test_command_reports_errors_and_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(tmp_path / "none"), "--out", str(tmp_path / "m.sqm")]) == 1
    assert "there is no such file or folder" in capsys.readouterr().err
    form = Format("gptq", group=32, act_order=True, unequal=True)
    folder = quantized(tiny(), form).write(tmp_path / "checkpoint")
    assert main(["import", str(folder), "--out", str(tmp_path / "m.sqm")]) == 0
    shown = capsys.readouterr().out
    assert "gptq_int4" in shown
    assert "Note: 8 matrices have codes in act-order" in shown

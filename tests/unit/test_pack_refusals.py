"""Checkpoints that cannot be packed: an error that names the place, and no file left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.pack.errors import CheckpointError
from backends.pack.hf_import import pack_checkpoint
from tests.fakes.quantized_checkpoint import Format, quantized
from tests.fakes.tiny_checkpoint import INNER, Tiny, tiny, to_bf16, tokenizer_json


def _gptq(**changes: Any) -> Tiny:
    """A GPTQ checkpoint with other entries in its quantization_config."""
    model = quantized(tiny(), Format("gptq", symmetric=True))
    model.config["quantization_config"] |= changes
    return model


def _replaced(model: Tiny, name: str, value: Any) -> Tiny:
    """The checkpoint with one tensor of layer 1 changed by a function, or dropped (None)."""
    full = f"model.layers.1.{name}"
    if value is None:
        del model.tensors[full]
    else:
        model.tensors[full] = value(model.tensors[full])
    return model


def _scaled(array: Any, value: float) -> Any:
    changed = array.copy()
    changed[1, 2] = value
    return changed


def _compressed_with(**changes: Any) -> Tiny:
    model = quantized(tiny(), Format("ct", symmetric=True))
    model.config["quantization_config"] |= changes
    return model


GPTQ_DOWN = "mlp.down_proj."
BAD: dict[str, tuple[Tiny, str]] = {
    "another architecture": (
        tiny(config={"model_type": "gemma3"}),
        "config.json: its model_type is 'gemma3'; supported are llama",
    ),
    "no dimension": (tiny(config={"hidden_size": None}), "'hidden_size' is missing"),
    "activation": (tiny(config={"hidden_act": "gelu"}), "hidden_act 'gelu' is unsupported"),
    "rotary scaling": (
        tiny(config={"rope_scaling": {"type": "yarn", "factor": 2}}),
        "rotary scaling 'yarn' is unsupported",
    ),
    "partial rotary": (tiny(config={"partial_rotary_factor": 0.5}), "partial_rotary_factor 0.5"),
    "missing tensor": (
        _replaced(tiny(), "mlp.up_proj.weight", None),
        "'model.layers.1.mlp.up_proj.weight': it is missing",
    ),
    "wrong shape": (
        _replaced(tiny(), "mlp.up_proj.weight", lambda a: a[:, :64].copy()),
        r"up_proj.weight': its shape is \(256, 64\) where the model needs \(256, 128\)",
    ),
    "more heads than memory holds": (
        tiny(config={"num_attention_heads": 2**31, "head_dim": 32}),
        "q_proj.weight': its shape is",
    ),
    "NaN weights": (
        _replaced(tiny(), "mlp.up_proj.weight", lambda a: _scaled(a, np.nan)),
        r"up_proj.weight': it holds NaN or infinity \(first at \[1, 2\]\)",
    ),
    "weights beyond f16": (
        _replaced(tiny(dtype="f32"), "mlp.up_proj.weight", lambda a: _scaled(a, 1e6)),
        "up_proj.weight': it holds values beyond f16",
    ),
    "bias elsewhere": (
        Tiny(
            tiny().config,
            {**tiny().tensors, "model.layers.0.mlp.up_proj.bias": np.ones(INNER, np.float16)},
            {},
        ),
        "up_proj.bias': a bias is supported only for q, k and v",
    ),
    "unknown tensor": (
        Tiny(tiny().config, {**tiny().tensors, "model.vision": np.ones(3, np.float16)}, {}),
        "'model.vision': it is unsupported",
    ),
    "mixed types of fused matrices": (
        _replaced(tiny(), "self_attn.v_proj.weight", lambda a: to_bf16(a.astype(np.float32))),
        "v_proj are stored in different types",
    ),
    "unknown quantization": (
        _gptq(quant_method="bitsandbytes"),
        "config.json: its quantization method 'bitsandbytes' is unknown; supported are 'gptq'",
    ),
    "unknown GPTQ layout": (_gptq(checkpoint_format="marlin"), "checkpoint_format 'marlin'"),
    "3 bits": (_gptq(bits=3), "its codes have 3 bits; supported are 4 and 8"),
    "mixed by rule": (_gptq(dynamic={"+:.*": {"bits": 8}}), "mixed bit widths are unsupported"),
    "mixed widths": (
        _replaced(_gptq(), GPTQ_DOWN + "qweight", lambda a: np.repeat(a, 2, axis=0)),
        r"down_proj.qweight': its I32 shape \(64, 128\) is not the I32 shape \(32, 128\) of 4-bit "
        "codes for 256 x 128. Mixed bit widths",
    ),
    "odd group size": (_gptq(group_size=48), "its group size 48 is unsupported"),
    "group that does not divide": (
        _gptq(group_size=96),
        r"q_proj.qweight': its 128 columns do not divide into groups of 96 \(group_size\)",
    ),
    "NaN scale": (
        _replaced(_gptq(), GPTQ_DOWN + "scales", lambda a: _scaled(a, np.nan)),
        r"down_proj.scales': it holds NaN or infinity \(first at \[1, 2\]\)",
    ),
    "scale beyond f16": (
        _replaced(
            quantized(tiny(), Format("ct", scale_type="f32")),
            GPTQ_DOWN + "weight_scale",
            lambda a: _scaled(a, 1e6),
        ),
        "down_proj.weight_scale': row 1, group 2: a scale is too large for f16",
    ),
    "g_idx out of range": (
        _replaced(_gptq(), GPTQ_DOWN + "g_idx", lambda a: np.where(a == 3, 4, a).astype(np.int32)),
        "down_proj.g_idx': column 192 is in group 4, out of range: there are 4 groups",
    ),
    "missing zeros": (
        _replaced(_gptq(), GPTQ_DOWN + "qzeros", None),
        "down_proj.qzeros': it is missing",
    ),
    "AWQ version": (
        Tiny(
            {
                **tiny().config,
                "quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemv"},
            },
            tiny().tensors,
            {},
        ),
        "AWQ version 'gemv' is unsupported",
    ),
    "compressed-tensors format": (
        _compressed_with(format="float-quantized"),
        "its format 'float-quantized' is unsupported",
    ),
    "compressed-tensors rotations": (
        _compressed_with(transform_config={"config_groups": {"R1": {}}}),
        "its transform_config is unsupported",
    ),
    "no scheme": (
        _compressed_with(config_groups={"group_0": None}),
        "its group_0 says nothing about weights",
    ),
    "weights of floats": (
        _compressed_with(config_groups={"group_0": {"weights": {"type": "float"}}}),
        "group_0 has weights of type 'float' and strategy None",
    ),
    "two schemes": (
        _compressed_with(config_groups={"a": {}, "b": {}}),
        "mixed schemes are unsupported",
    ),
    "quantized activations": (
        _compressed_with(
            config_groups={"group_0": {"weights": {}, "input_activations": {"num_bits": 8}}}
        ),
        "group_0 quantizes activations",
    ),
    "tokenizer of another model": (
        Tiny(
            tiny().config,
            tiny().tensors,
            {},
            {"tokenizer.json": tokenizer_json().replace('"z":27', '"z":320')},
        ),
        "tokenizer.json: its token 'z' has the id 320, but the model's vocabulary has 320 tokens",
    ),
    "no tokenizer": (
        Tiny(tiny().config, tiny().tensors, {}, {"tokenizer.json": "{}"}),
        "tokenizer.json: it is no tokenizer",
    ),
    "stop id": (
        tiny(config={"eos_token_id": 320}),
        "config.json: its eos_token_id 320 is no token of a vocabulary of 320",
    ),
    "head that is not tied": (
        tiny(config={"tie_word_embeddings": True}),
        "'lm_head.weight': it differs from the embedding",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_packed_is_refused_by_name(tmp_path: Path, case: str) -> None:
    model, message = BAD[case]
    folder = model.write(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=message):
        pack_checkpoint(folder, tmp_path / "m.sqm")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_missing_shard_names_the_shard_and_a_tensor(tmp_path: Path) -> None:
    folder = tiny().write(tmp_path / "checkpoint", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"model-00002-of-00003.safetensors: tensor '.*': this shard is miss"
    ):
        pack_checkpoint(folder, tmp_path / "m.sqm")
    assert not (tmp_path / "m.sqm").exists()


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    folder = tiny().write(tmp_path / "checkpoint", shards=2)
    index = folder / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    table["weight_map"]["model.other.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(table))
    with pytest.raises(CheckpointError, match="it is not there, though"):
        pack_checkpoint(folder, tmp_path / "m.sqm")


@pytest.mark.parametrize("kept", [0, 4, 100, 20000])
def test_truncated_files_are_refused(tmp_path: Path, kept: int) -> None:
    folder = tiny().write(tmp_path / "checkpoint")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"model.safetensors: .*(truncated|no header)"):
        pack_checkpoint(folder, tmp_path / "m.sqm")

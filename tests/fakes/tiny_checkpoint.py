"""Small random checkpoints in Hugging Face's layout, written with numpy alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 128, 256, 2, 4, 2, 32, 320
LINEAR = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
DIMENSIONS = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class Bf16(np.ndarray[Any, np.dtype[np.uint16]]):
    """uint16 bits that are written as bf16."""


def to_bf16(values: Floats) -> Bf16:
    """The upper halves of f32 values whose lower halves are cut off."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(Bf16)


def value_of(array: Array) -> Floats:
    """A 16- or 32-bit array as f32."""
    if isinstance(array, Bf16):
        return (np.asarray(array).astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def write_safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write arrays with the `safetensors` layout; Bf16 as BF16."""
    names = {"float16": "F16", "float32": "F32", "int8": "I8", "int32": "I32", "int64": "I64"}
    header, data = {}, b""
    for name, array in tensors.items():
        dtype = "BF16" if isinstance(array, Bf16) else names[array.dtype.name]
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@dataclass
class Tiny:
    """A checkpoint to be written: `weights` are the values that an importer must find, f32."""

    config: dict[str, Any]
    tensors: dict[str, Array]
    weights: dict[str, Floats]
    files: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, shards: int = 1) -> Path:
        """Write the folder; `shards` > 1 with an index."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        for name, value in self.files.items():
            (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
        names = sorted(self.tensors)
        if shards == 1:
            write_safetensors(folder / "model.safetensors", self.tensors)
            return folder
        index = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            part = names[shard::shards]
            write_safetensors(folder / file, {name: self.tensors[name] for name in part})
            index |= dict.fromkeys(part, file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        return folder


def tokenizer_json() -> str:
    """A tokenizer of fewer tokens than the vocabulary has rows, as Qwen's."""
    vocabulary = {"<s>": 0, "</s>": 1} | {chr(ord("a") + i): 2 + i for i in range(26)}
    return str(Tokenizer(models.BPE(vocabulary, [])).to_str())


def tiny(
    model_type: str = "llama",
    *,
    dtype: str = "f16",
    tied: bool = False,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
) -> Tiny:
    """A model of random 16- or 32-bit weights, with the tensors of its architecture."""
    random = np.random.default_rng(seed)
    cast: dict[str, Callable[[Floats], Array]] = {
        "f16": lambda values: values.astype(np.float16),
        "bf16": to_bf16,
        "f32": lambda values: values,
    }

    def draw(*shape: int, around: float = 0.0) -> Array:
        # Larger than a trained model's, so that the next token depends on the text.
        spread = 0.1 if len(shape) == 1 else 2 / np.sqrt(shape[1])
        return cast[dtype]((around + spread * random.standard_normal(shape)).astype(np.float32))

    tensors = {
        "model.embed_tokens.weight": draw(VOCAB, HIDDEN),
        "model.norm.weight": draw(HIDDEN, around=1),
    }
    if not tied:
        tensors["lm_head.weight"] = draw(VOCAB, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for module, shape in LINEAR.items():
            tensors[f"{prefix}{module}.weight"] = draw(*shape)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{norm}.weight"] = draw(HIDDEN, around=1)
        if model_type == "qwen2":
            for part in "qkv":
                module = f"self_attn.{part}_proj"
                tensors[f"{prefix}{module}.bias"] = draw(LINEAR[module][0])
        if model_type == "qwen3":
            for part in "qk":
                tensors[f"{prefix}self_attn.{part}_norm.weight"] = draw(HEAD_DIM, around=1)
    table = {
        "model_type": model_type,
        "architectures": [
            {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[model_type]
            + "ForCausalLM"
        ],
        "torch_dtype": {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[dtype],
        **DIMENSIONS,
        "tie_word_embeddings": tied,
        "eos_token_id": 1,
        **(config or {}),
    }
    return Tiny(table, tensors, {name: value_of(array) for name, array in tensors.items()})

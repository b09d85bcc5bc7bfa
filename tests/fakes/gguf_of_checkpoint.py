"""A tiny Hugging Face checkpoint as the GGUF file that llama.cpp's converter would make of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from tests.fakes.tiny_checkpoint import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    Floats,
    Tiny,
)

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    """GGUF's name of a checkpoint's tensor."""
    module, _, part = name.rpartition(".")
    if module.startswith("model.layers."):
        layer, _, inner = module.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{_NAMES[inner]}.{part}"
    return f"{_NAMES[module]}.{part}"


def superblocks(
    kind: str, rows: int, cols: int, random: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Random bytes of a Q4_K or Q6_K matrix with scales as in a model; the library cannot quantize
    to these types."""
    size, scales = {"Q4_K": (144, (0, 2)), "Q6_K": (210, (208,))}[kind]
    raw = random.integers(0, 256, (rows * cols // 256, size), dtype=np.uint8)
    for at in scales:
        values = (1e-4 * random.standard_normal(len(raw))).astype(np.float16)
        raw[:, at : at + 2] = values.view(np.uint8).reshape(-1, 2)
    return raw.reshape(rows, -1)


def write_gguf_of(
    model: Tiny,
    path: Path,
    *,
    down: str = "F16",
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Floats] | None = None,
) -> dict[str, Floats]:
    """Write the file; return the values that an importer must find, by the checkpoint's names.

    `down` is the GGUF type of down_proj (Q4_K and Q6_K from random bytes), `tensors` are added.
    """
    architecture = {"mistral": "llama"}.get(model.config["model_type"], model.config["model_type"])
    writer = GGUFWriter(path, architecture)
    entries: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 512,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "rope.freq_base": float(model.config["rope_theta"]),
        "attention.layer_norm_rms_epsilon": 1e-5,
        **(metadata or {}),
    }
    for key, value in entries.items():
        full = f"{architecture}.{key}"
        if isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        else:
            writer.add_string(full, value)
    random = np.random.default_rng(2)
    expected = dict(model.weights)
    for name, values in model.weights.items():
        if "down_proj" in name and down != "F16":
            kind = GGMLQuantizationType[down]
            raw = superblocks(down, *values.shape, random)
            expected[name] = dequantize(raw, kind)
            writer.add_tensor(gguf_name(name), raw, raw_dtype=kind)
            continue
        stored = values
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            halves = values.reshape(-1, 2, HEAD_DIM // 2, HIDDEN)
            stored = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
        writer.add_tensor(
            gguf_name(name), stored if stored.ndim == 1 else stored.astype(np.float16)
        )
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected

"""A packed file's weights under the names and in the row order of transformers' models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from backends.pack.packed import PackedFile
from backends.pack.tiles import Floats, gate_up_order


def half_split(rows: Floats, heads: int) -> Floats:
    """Rows of q or k heads from adjacent-pair into half-split rotary order.

    Pair i is rows (2i, 2i + 1) of a head in the packed file, and rows (i, i + head_dim / 2) in
    transformers.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def model_type(metadata: Mapping[str, Any]) -> str:
    """transformers' name of the architecture, which the optional tensors tell apart.

    A synthetic shape lists no tensors and is a Llama.
    """
    tensors = metadata.get("tensors", ())
    if "layers.0.q_norm" in tensors:
        return "qwen3"
    return "qwen2" if "layers.0.qkv_bias" in tensors else "llama"


def rope_parameters(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """transformers' rotary settings for a packed file's metadata."""
    scaling = metadata.get("rope_scaling") or {"type": "default"}
    names = {"type": "rope_type", "original_max_position": "original_max_position_embeddings"}
    found = {names.get(key, key): value for key, value in scaling.items()}
    return {**found, "rope_theta": metadata["rope_theta"]}


def llama_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the configuration of `model_type` for a packed file's metadata."""
    return {
        "hidden_size": metadata["hidden_size"],
        "intermediate_size": metadata["intermediate_size"],
        "num_hidden_layers": metadata["num_layers"],
        "num_attention_heads": metadata["num_heads"],
        "num_key_value_heads": metadata["num_kv_heads"],
        "head_dim": metadata["head_dim"],
        "vocab_size": metadata["vocab_size"],
        "max_position_embeddings": metadata["max_position"],
        "rope_parameters": rope_parameters(metadata),
        "rms_norm_eps": metadata["rms_norm_eps"],
        "tie_word_embeddings": metadata["tied_head"],
        "attention_bias": False,
        "mlp_bias": False,
    }


def llama_state(packed: PackedFile) -> Iterator[tuple[str, Floats]]:
    """Yield (name, f32 values) of every parameter of transformers' causal model of `model_type`."""
    sizes = packed.metadata
    queries = sizes["num_heads"] * sizes["head_dim"]
    keys = sizes["num_kv_heads"] * sizes["head_dim"]
    inner = sizes["intermediate_size"]
    head = packed.dequantize("head")
    yield "lm_head.weight", head
    embedding = head if sizes["tied_head"] else packed.dequantize("embed")
    yield "model.embed_tokens.weight", embedding
    yield "model.norm.weight", packed.dequantize("final_norm")
    # Position in gate_up of each row of gate, then of each row of up.
    from_gate_up = np.argsort(gate_up_order(inner))
    for layer in range(sizes["num_layers"]):
        stored, named = f"layers.{layer}", f"model.layers.{layer}"
        q, k, v = np.split(packed.dequantize(f"{stored}.qkv"), [queries, queries + keys])
        yield f"{named}.self_attn.q_proj.weight", half_split(q, sizes["num_heads"])
        yield f"{named}.self_attn.k_proj.weight", half_split(k, sizes["num_kv_heads"])
        yield f"{named}.self_attn.v_proj.weight", v
        if f"{stored}.qkv_bias" in packed.names:
            bias = np.split(packed.dequantize(f"{stored}.qkv_bias"), [queries, queries + keys])
            yield f"{named}.self_attn.q_proj.bias", half_split(bias[0], sizes["num_heads"])
            yield f"{named}.self_attn.k_proj.bias", half_split(bias[1], sizes["num_kv_heads"])
            yield f"{named}.self_attn.v_proj.bias", bias[2]
        for part in "qk":
            if f"{stored}.{part}_norm" in packed.names:
                norm = packed.dequantize(f"{stored}.{part}_norm")
                yield f"{named}.self_attn.{part}_norm.weight", half_split(norm, 1)
        yield f"{named}.self_attn.o_proj.weight", packed.dequantize(f"{stored}.o")
        gate, up = np.split(packed.dequantize(f"{stored}.gate_up")[from_gate_up], 2)
        yield f"{named}.mlp.gate_proj.weight", gate
        yield f"{named}.mlp.up_proj.weight", up
        yield f"{named}.mlp.down_proj.weight", packed.dequantize(f"{stored}.down")
        yield f"{named}.input_layernorm.weight", packed.dequantize(f"{stored}.attn_norm")
        yield f"{named}.post_attention_layernorm.weight", packed.dequantize(f"{stored}.mlp_norm")

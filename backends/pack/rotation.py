"""Rotates a Llama's weights so that its activations have no outliers (QuaRot, arXiv 2404.00456).

The rotated model computes the same function. What it needs at run time is told by ONLINE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from backends.pack.hadamard import hadamard_matrix
from backends.pack.tiles import Floats

ONLINE = ["down"]
"""Matrices of a rotated model whose input goes through the Hadamard transform as it runs."""


def rotate(
    state: Mapping[str, Floats], sizes: Mapping[str, Any], seed: int = 0
) -> dict[str, Floats]:
    """The rotated weights of a Llama, under the names of transformers.

    state: every parameter, f32, head included; sizes: the packed file's metadata.
    - The residual stream becomes h·Q with Q = diag(random signs)·H. Norm weights are folded into
      the matrices that read it, and become ones; the head is then no longer the embedding.
    - Each head of v becomes H·v, and o takes it back.
    - The input of down becomes H·x online, and down takes it back.
    Raises ValueError where a width has no transform.
    """
    hidden, width = sizes["hidden_size"], sizes["head_dim"]
    signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), hidden)
    residual = signs[:, None] * hadamard_matrix(hidden).astype(np.float64)
    per_head = hadamard_matrix(width).astype(np.float64)
    inner = hadamard_matrix(sizes["intermediate_size"]).astype(np.float64)

    def reads(name: str, norm: str) -> Floats:
        """A matrix whose input is the normed residual stream."""
        return _f32((state[name] * state[norm].astype(np.float64)) @ residual)

    rotated = {
        "model.embed_tokens.weight": _f32(state["model.embed_tokens.weight"] @ residual),
        "lm_head.weight": reads("lm_head.weight", "model.norm.weight"),
        "model.norm.weight": np.ones(hidden, np.float32),
    }
    for layer in range(sizes["num_layers"]):
        at = f"model.layers.{layer}"
        for part in ("q_proj", "k_proj", "v_proj"):
            name = f"{at}.self_attn.{part}.weight"
            rotated[name] = reads(name, f"{at}.input_layernorm.weight")
        for part in ("gate_proj", "up_proj"):
            name = f"{at}.mlp.{part}.weight"
            rotated[name] = reads(name, f"{at}.post_attention_layernorm.weight")
        values = rotated[f"{at}.self_attn.v_proj.weight"].reshape(-1, width, hidden)
        rotated[f"{at}.self_attn.v_proj.weight"] = _f32(per_head @ values).reshape(-1, hidden)
        output = (residual.T @ state[f"{at}.self_attn.o_proj.weight"]).reshape(hidden, -1, width)
        rotated[f"{at}.self_attn.o_proj.weight"] = _f32(output @ per_head.T).reshape(hidden, -1)
        rotated[f"{at}.mlp.down_proj.weight"] = _f32(
            residual.T @ state[f"{at}.mlp.down_proj.weight"] @ inner.T
        )
        for norm in ("input_layernorm", "post_attention_layernorm"):
            rotated[f"{at}.{norm}.weight"] = np.ones(hidden, np.float32)
    return rotated


def _f32(values: Any) -> Floats:
    return np.ascontiguousarray(values, np.float32)

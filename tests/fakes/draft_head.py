"""Small random draft heads in the published layouts, for the target of tiny_checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fakes import tiny_checkpoint
from tests.fakes.tiny_checkpoint import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    VOCAB,
    Tiny,
    value_of,
)

DRAFT_VOCAB = 96
TAPS = (0, 1, LAYERS)
DIMENSIONS = {**tiny_checkpoint.DIMENSIONS, "model_type": "llama", "num_hidden_layers": 1}
LAYOUTS = ("eagle2", "eagle3", "speculators eagle", "speculators eagle3")


def draft_head(layout: str, *, seed: int = 5, fc_bias: bool = False, normed: bool = False) -> Tiny:
    """A head of one of LAYOUTS in 16-bit weights.

    `fc_bias` adds the bias of the fusion (EAGLE-1 and -2), `normed` sets norm_before_residual.
    """
    random = np.random.default_rng(seed)

    def draw(*shape: int, around: float = 0.0) -> Any:
        # Small enough that the 16 bits of keys and values stay small in what follows from them.
        spread = 0.1 if len(shape) == 1 else 0.7 / np.sqrt(shape[1])
        return (around + spread * random.standard_normal(shape)).astype(np.float16)

    eagle3 = layout.endswith("eagle3")
    layer = {
        "eagle2": "layers.0",
        "eagle3": "midlayer",
        "speculators eagle": "transformer",
        "speculators eagle3": "layers.0",
    }[layout]
    fusion = "fusion_fc" if layout == "speculators eagle" else "fc"
    width = HIDDEN * (2 if eagle3 else 1)
    tensors = {
        f"{layer}.self_attn.q_proj.weight": draw(HEADS * HEAD_DIM, width),
        f"{layer}.self_attn.k_proj.weight": draw(KV_HEADS * HEAD_DIM, width),
        f"{layer}.self_attn.v_proj.weight": draw(KV_HEADS * HEAD_DIM, width),
        f"{layer}.self_attn.o_proj.weight": draw(HIDDEN, HEADS * HEAD_DIM),
        f"{layer}.mlp.gate_proj.weight": draw(INNER, HIDDEN),
        f"{layer}.mlp.up_proj.weight": draw(INNER, HIDDEN),
        f"{layer}.mlp.down_proj.weight": draw(HIDDEN, INNER),
        f"{layer}.post_attention_layernorm.weight": draw(HIDDEN, around=1),
        f"{fusion}.weight": draw(HIDDEN, HIDDEN * (len(TAPS) if eagle3 else 2)),
    }
    if fc_bias:
        tensors[f"{fusion}.bias"] = draw(HIDDEN)
    if eagle3:
        tokens = np.sort(random.permutation(VOCAB)[:DRAFT_VOCAB])
        tensors |= {
            f"{layer}.input_layernorm.weight": draw(HIDDEN, around=1),
            f"{layer}.hidden_norm.weight": draw(HIDDEN, around=1),
            "norm.weight": draw(HIDDEN, around=1),
            "lm_head.weight": draw(DRAFT_VOCAB, HIDDEN),
            "d2t": tokens - np.arange(DRAFT_VOCAB),
            "t2d": np.isin(np.arange(VOCAB), tokens).astype(np.int8),
        }
    else:
        tensors["embed_tokens.weight"] = draw(VOCAB, HIDDEN)
    config: dict[str, Any] = dict(DIMENSIONS)
    if eagle3:
        config |= {"draft_vocab_size": DRAFT_VOCAB, "eagle_aux_hidden_state_layer_ids": [*TAPS]}
        if normed:
            config["norm_before_residual"] = True
    if layout.startswith("speculators"):
        config = {"transformer_layer_config": dict(DIMENSIONS)}
        config["speculators_model_type"] = "eagle3" if eagle3 else "eagle"
        if eagle3:
            config |= {
                "draft_vocab_size": DRAFT_VOCAB,
                "norm_before_residual": normed,
                "eagle_aux_hidden_state_layer_ids": [*TAPS],
            }
        else:
            config |= {"layernorms": False, "fusion_bias": fc_bias}
    return Tiny(config, tensors, {name: value_of(array) for name, array in tensors.items()})

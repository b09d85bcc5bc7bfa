"""Where training starts: weights of the target as far as they fit, or of an earlier training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from backends.pack.packed import PackedFile
from backends.pack.shapes import DRAFT_TOKENS
from backends.train.network import Llama, Sizes, Weights, packed_weights
from backends.train.students import HeadStudent, ModelStudent, Teaching, Vocabulary, trainable

_NOISE = 0.02
_LEAST_SCALE = 1e-3


def model_student(
    name: str, target: Llama, layers: Sequence[int], vocabulary: Vocabulary, dtype: torch.dtype
) -> ModelStudent:
    """A drafter of some of the target's layers, with its embedding and rows of its head."""
    weights = {
        "embed": target.embedding,
        "head": target.weights["head"][vocabulary.target_rows],
        "final_norm": target.weights["final_norm"],
    }
    for own, taken in enumerate(layers):
        prefix = f"layers.{taken}."
        weights |= {
            f"layers.{own}.{part.removeprefix(prefix)}": w
            for part, w in target.weights.items()
            if part.startswith(prefix)
        }
    sizes = dataclasses.replace(target.sizes, num_layers=len(layers))
    return ModelStudent(name, sizes, trainable(weights), vocabulary, dtype)


@dataclasses.dataclass(frozen=True)
class HeadShape:
    """What a head does not take over from its target."""

    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    taps: tuple[int, ...]


def head_student(
    name: str,
    target: Llama,
    shape: HeadShape,
    vocabulary: Vocabulary,
    teaching: Teaching,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> HeadStudent:
    """A head whose feature is at first the last tap, said with the target's own rows.

    `teaching` is a batch over which the scale of the taps' channels is measured.
    """
    sizes = dataclasses.replace(
        target.sizes,
        num_layers=1,
        intermediate_size=shape.intermediate_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
    )
    hidden, device = sizes.hidden_size, target.embedding.device
    scale = tap_scale(teaching, shape.taps)
    queries = sizes.num_heads * sizes.head_dim
    keys = sizes.num_kv_heads * sizes.head_dim

    def noise(rows: int, cols: int) -> torch.Tensor:
        return torch.randn(rows, cols, generator=generator, device=device) * _NOISE

    feature = noise(hidden, hidden * len(shape.taps)) * 0.1
    last = scale[-hidden:]
    feature[:, -hidden:] += torch.diag(last / last.mean())
    ones = torch.ones(hidden, device=device)
    weights: Weights = {
        "feature_fc": feature,
        "embed_norm": ones,
        "layers.0.attn_norm": ones,
        "layers.0.qkv": noise(queries + 2 * keys, 2 * hidden),
        "layers.0.o": noise(hidden, queries) * 0.1,
        "layers.0.mlp_norm": ones,
        "layers.0.gate_up": noise(2 * shape.intermediate_size, hidden),
        "layers.0.down": noise(hidden, shape.intermediate_size) * 0.1,
        "final_norm": target.weights["final_norm"],
        "head": target.weights["head"][vocabulary.target_rows],
    }
    return HeadStudent(
        name=name,
        sizes=sizes,
        parameters=trainable(weights),
        vocabulary=vocabulary,
        dtype=dtype,
        taps=shape.taps,
        tap_scale=scale,
        embedding=target.embedding.to(dtype),
    )


def trained_model(name: str, packed: PackedFile, device: str, dtype: torch.dtype) -> ModelStudent:
    """A draft model as an earlier training left it, 4-bit rounding included."""
    weights = packed_weights(packed, device, torch.float32)
    vocabulary = _vocabulary(packed, weights.pop(DRAFT_TOKENS))
    return ModelStudent(name, Sizes.of(packed.metadata), trainable(weights), vocabulary, dtype)


def trained_head(
    name: str, packed: PackedFile, target: Llama, teaching: Teaching, dtype: torch.dtype
) -> HeadStudent:
    """A head as an earlier training left it; its taps' scale is measured anew over `teaching`."""
    device = str(target.embedding.device)
    taps = tuple(packed.metadata["target"]["taps"])
    weights = packed_weights(packed, device, torch.float32)
    vocabulary = _vocabulary(packed, weights.pop(DRAFT_TOKENS))
    scale = tap_scale(teaching, taps)
    weights["feature_fc"] = weights["feature_fc"] * scale
    return HeadStudent(
        name=name,
        sizes=Sizes.of(packed.metadata),
        parameters=trainable(weights),
        vocabulary=vocabulary,
        dtype=dtype,
        taps=taps,
        tap_scale=scale,
        embedding=target.embedding.to(dtype),
    )


def _vocabulary(packed: PackedFile, tokens: torch.Tensor) -> Vocabulary:
    return Vocabulary.of(tokens.round().long(), packed.metadata["vocab_size"])


def tap_scale(teaching: Teaching, taps: Sequence[int]) -> torch.Tensor:
    """Root mean square of each channel of the taps over a batch's answers, [taps·H], f32."""
    first = teaching.batch.first
    found = []
    for tap in taps:
        states = teaching.taps[tap][:, first:][teaching.valid].float()
        found.append(states.square().mean(0).sqrt().clamp(min=_LEAST_SCALE))
    return torch.cat(found)

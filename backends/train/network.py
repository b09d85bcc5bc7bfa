"""The Llama network in PyTorch over a packed file's own names, row orders and tap numbers.

Weights are a mapping from the names of docs/packed-format.md to tensors [rows, cols] (or [rows]),
so that what is read, trained and written never changes its layout. B sequences of T tokens, H the
hidden size, D the width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional

from backends.pack.packed import PackedFile
from backends.pack.tiles import TILE_ROWS

Weights = Mapping[str, torch.Tensor]
HIDDEN_SCORE = -30000.0
"""Added to the score of a key that a query must not see; finite, so that padding stays finite."""


@dataclass(frozen=True)
class Sizes:
    """The dimensions of a network, under their names in the packed metadata."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    rope_theta: float
    rms_norm_eps: float

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Sizes:
        """The dimensions that a packed file's metadata states."""
        return cls(**{name: metadata[name] for name in cls.__dataclass_fields__})

    def metadata(self) -> dict[str, Any]:
        """The entries of the packed metadata."""
        return asdict(self)


def packed_weights(packed: PackedFile, device: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """All tensors of a packed file, dequantized, as `dtype`."""
    return {name: torch.tensor(packed.dequantize(name)).to(device, dtype) for name in packed.names}


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension."""
    return functional.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


def rotary(positions: torch.Tensor, head_dim: int, theta: float) -> torch.Tensor:
    """The rotations of positions [T] as complex numbers [T, head_dim / 2]."""
    powers = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = positions.to(torch.float32)[:, None] / theta**powers
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turn adjacent pairs of the last dimension. x [B, T, heads, D]; angles as `rotary` gives."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angles[:, None]).flatten(-2).to(x.dtype)


def gated_mlp(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """SwiGLU with gate's and up's rows in alternating blocks of 16."""
    both = functional.linear(x, gate_up)
    blocks = both.view(*x.shape[:-1], -1, 2, TILE_ROWS)
    inner = functional.silu(blocks[..., 0, :]) * blocks[..., 1, :]
    return functional.linear(inner.flatten(-2), down)


def causal_mask(padding: torch.Tensor, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Additive scores [B, length, length] for sequences with padding[b] unused tokens in front."""
    at = torch.arange(length, device=padding.device)
    # A padded place sees itself alone, so that it stays finite like any first token.
    seen = (at[None, None, :] <= at[None, :, None]) & (at[None, None, :] >= padding[:, None, None])
    seen |= at[None, None, :] == at[None, :, None]
    return torch.where(seen, 0.0, HIDDEN_SCORE).to(dtype)


class Cache:
    """Keys and values of every layer, [layers, B, kv heads, capacity, D], at first zero."""

    def __init__(self, sizes: Sizes, batch: int, capacity: int, like: torch.Tensor) -> None:
        shape = (sizes.num_layers, batch, sizes.num_kv_heads, capacity, sizes.head_dim)
        self.keys = like.new_zeros(shape)
        self.values = like.new_zeros(shape)


class Llama:
    """A decoder of RMSNorm, rotary grouped-query attention and SwiGLU (and its reduced head)."""

    def __init__(self, sizes: Sizes, weights: Weights) -> None:
        self.sizes = sizes
        self.weights = weights

    @property
    def embedding(self) -> torch.Tensor:
        """[vocab, H]: `embed`, or `head` where the two are tied."""
        return self.weights["embed"] if "embed" in self.weights else self.weights["head"]

    def states(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        taps: Sequence[int] = (),
        cache: Cache | None = None,
        positions: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Final normed states [B, T, H] and the taps, each [B, T, H], in the order asked for.

        ids [B, T] stand at `positions` [T], by default 0 ... T − 1. mask [B, T, K] is added to the
        scores: of the call's own keys where K = T, else of the whole cache. Tap t is the residual
        stream in front of layer t, num_layers the one behind the last, num_layers + 1 the final
        norm's output.
        """
        sizes, weights = self.sizes, self.weights
        length = ids.shape[1]
        group = sizes.num_heads // sizes.num_kv_heads
        if positions is None:
            positions = torch.arange(length, device=ids.device)
        angles = rotary(positions, sizes.head_dim, sizes.rope_theta)
        # The queries that share a key-value head stand below each other, as if they were tokens.
        grouped = mask[:, None, None].expand(-1, 1, group, -1, -1).flatten(2, 3)
        x = functional.embedding(ids, self.embedding)
        found: dict[int, torch.Tensor] = {}
        for layer in range(sizes.num_layers):
            if layer in taps:
                found[layer] = x
            named = f"layers.{layer}"
            normed = rms_norm(x, weights[f"{named}.attn_norm"], sizes.rms_norm_eps)
            q, k, v = self._heads(functional.linear(normed, weights[f"{named}.qkv"]), angles)
            if cache is not None:
                cache.keys[layer].index_copy_(2, positions, k)
                cache.values[layer].index_copy_(2, positions, v)
                if mask.shape[-1] != length:
                    k, v = cache.keys[layer], cache.values[layer]
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=grouped)
            mixed = mixed.unflatten(2, (group, length)).permute(0, 3, 1, 2, 4).flatten(2)
            x = x + functional.linear(mixed, weights[f"{named}.o"])
            normed = rms_norm(x, weights[f"{named}.mlp_norm"], sizes.rms_norm_eps)
            x = x + gated_mlp(normed, weights[f"{named}.gate_up"], weights[f"{named}.down"])
        final = rms_norm(x, weights["final_norm"], sizes.rms_norm_eps)
        found |= {sizes.num_layers: x, sizes.num_layers + 1: final}
        return final, [found[tap] for tap in taps]

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Scores of the head's rows for final normed states."""
        return functional.linear(states, self.weights["head"])

    def _heads(
        self, qkv: torch.Tensor, angles: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated q [B, kv heads, group·T, D], rotated k and v [B, kv heads, T, D]."""
        sizes = self.sizes
        heads = qkv.unflatten(-1, (-1, sizes.head_dim))
        turned, v = heads.split([sizes.num_heads + sizes.num_kv_heads, sizes.num_kv_heads], dim=2)
        q, k = rotate(turned, angles).split([sizes.num_heads, sizes.num_kv_heads], dim=2)
        grouped = q.unflatten(2, (sizes.num_kv_heads, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        return grouped, k.transpose(1, 2), v.transpose(1, 2)

"""A draft head of the EAGLE-3 type in PyTorch (docs/packed-format.md, "Draft heads").

A root is a place j of the text. The head takes the token at j + 1 and the target's features at j,
and foresees the token at j + 2; on its own features it goes on from there. Where it runs over all
roots of a text at once, step k of root j sees the keys of true features up to j and those that the
root's own steps 1 ... k made. B sequences, T places, R roots, N nodes of a root, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from backends.train.network import Sizes, Weights, gated_mlp, rms_norm, rotary, rotate


@dataclass(frozen=True)
class Keys:
    """Keys and values, each [..., kv heads, D]."""

    k: torch.Tensor
    v: torch.Tensor


@dataclass(frozen=True)
class Roots:
    """What every step of a text's roots sees: keys of true features, and the roots' own states."""

    keys: Keys
    mask: torch.Tensor
    states: torch.Tensor
    first: int


class Head:
    """One layer over a token's embedding and a feature, with a reduced vocabulary."""

    def __init__(self, sizes: Sizes, weights: Weights, embedding: torch.Tensor) -> None:
        self.sizes = sizes
        self.weights = weights
        self.embedding = embedding

    def begin(
        self, ids: torch.Tensor, taps: Sequence[torch.Tensor], mask: torch.Tensor, first: int
    ) -> Roots:
        """Step 0 of the roots first − 1 ... T − 2, on the target's features.

        ids [B, T]; taps each [B, T, H]; mask [B, T, T] is the target's. The states are
        [B, R, 1, H].
        """
        weights = self.weights
        features = torch.cat([tap[:, :-1] for tap in taps], -1).to(weights["feature_fc"].dtype)
        features = functional.linear(features, weights["feature_fc"])
        angles = self._angles(torch.arange(features.shape[1], device=ids.device))
        q, own = self._heads(ids[:, 1:, None], features[:, :, None], angles)
        roots = slice(first - 1, None)
        keys = Keys(own.k[:, :, 0], own.v[:, :, 0])
        seen = mask[:, first - 1 : -1, :-1]
        empty = Roots(keys, seen, features, first)
        states = self._layer(features[:, roots, None], self._attend(q[:, roots], empty, []))
        return Roots(keys, seen, states, first)

    def step(
        self, roots: Roots, tokens: torch.Tensor, states: torch.Tensor, path: Sequence[Keys]
    ) -> tuple[torch.Tensor, Keys]:
        """The states [B, R, N, H] behind `tokens` [B, R, N], and the keys of this step.

        `states` are those of the nodes' parents, `path` the keys of the steps between root and
        node, each [B, R, N, kv heads, D].
        """
        count = tokens.shape[1]
        begin = roots.first - 1 + len(path) + 1
        at = torch.arange(begin, begin + count, device=tokens.device)
        q, own = self._heads(tokens, states, self._angles(at))
        return self._layer(states, self._attend(q, roots, [*path, own])), own

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Scores of the reduced vocabulary's rows."""
        weights = self.weights
        normed = rms_norm(states, weights["final_norm"], self.sizes.rms_norm_eps)
        return functional.linear(normed, weights["head"])

    def _angles(self, positions: torch.Tensor) -> torch.Tensor:
        return rotary(positions, self.sizes.head_dim, self.sizes.rope_theta)

    def _heads(
        self, tokens: torch.Tensor, features: torch.Tensor, angles: torch.Tensor
    ) -> tuple[torch.Tensor, Keys]:
        """Rotated q [B, R, N, kv heads, group, D] and keys [B, R, N, kv heads, D]."""
        sizes, weights = self.sizes, self.weights
        embedded = functional.embedding(tokens, self.embedding).to(features.dtype)
        both = torch.cat(
            [
                rms_norm(embedded, weights["embed_norm"], sizes.rms_norm_eps),
                rms_norm(features, weights["layers.0.attn_norm"], sizes.rms_norm_eps),
            ],
            -1,
        )
        heads = functional.linear(both, weights["layers.0.qkv"]).unflatten(-1, (-1, sizes.head_dim))
        queries, both_kinds = sizes.num_heads, sizes.num_heads + sizes.num_kv_heads
        turned = rotate(heads[..., :both_kinds, :].flatten(2, 3), angles)
        turned = turned.unflatten(2, (tokens.shape[2], -1))
        q = turned[..., :queries, :].unflatten(-2, (sizes.num_kv_heads, -1))
        return q, Keys(turned[..., queries:, :], heads[..., both_kinds:, :])

    def _attend(self, q: torch.Tensor, roots: Roots, path: Sequence[Keys]) -> torch.Tensor:
        """Attention's output [B, R, N, heads·D]."""
        scale = self.sizes.head_dim**-0.5
        scores = [
            torch.einsum("brnhgd,bshd->brnhgs", q * scale, roots.keys.k)
            + roots.mask[:, :, None, None, None].to(q.dtype)
        ]
        scores += [
            torch.einsum("brnhgd,brnhd->brnhg", q * scale, keys.k)[..., None] for keys in path
        ]
        shares = torch.cat(scores, -1).softmax(-1, dtype=torch.float32).to(q.dtype)
        places = roots.keys.k.shape[1]
        mixed = torch.einsum("brnhgs,bshd->brnhgd", shares[..., :places], roots.keys.v)
        for index, keys in enumerate(path):
            mixed = mixed + shares[..., places + index, None] * keys.v[..., None, :]
        return mixed.flatten(-3)

    def _layer(self, features: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        weights = self.weights
        x = features + functional.linear(mixed, weights["layers.0.o"])
        normed = rms_norm(x, weights["layers.0.mlp_norm"], self.sizes.rms_norm_eps)
        return x + gated_mlp(normed, weights["layers.0.gate_up"], weights["layers.0.down"])

"""Draft heads as their authors' code computes them, in PyTorch and float64, under their own names.

Every module holds parameters named as in the checkpoints, so that load_state_dict(strict=True)
checks the names. Rotary embedding is half-split, as in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    """Causal grouped-query attention over a whole sequence."""

    def __init__(self, c: Mapping[str, Any], width: int) -> None:
        super().__init__()
        self.dim, self.theta = c["head_dim"], c["rope_theta"]
        queries = c["num_attention_heads"] * self.dim
        keys = c["num_key_value_heads"] * self.dim
        self.q_proj = nn.Linear(width, queries, bias=False)
        self.k_proj = nn.Linear(width, keys, bias=False)
        self.v_proj = nn.Linear(width, keys, bias=False)
        self.o_proj = nn.Linear(queries, c["hidden_size"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = len(x)
        q, k, v = (
            part(x).view(count, -1, self.dim).transpose(0, 1)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        half = torch.arange(0, self.dim, 2, dtype=x.dtype) / self.dim
        angles = torch.arange(count, dtype=x.dtype)[:, None] / self.theta**half
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

        def turn(y: torch.Tensor) -> torch.Tensor:
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat([-second, first], -1) * sin

        group = len(q) // len(k)
        k, v = (y.repeat_interleave(group, 0) for y in (turn(k), v))
        scores = turn(q) @ k.transpose(1, 2) / self.dim**0.5
        hidden = torch.ones(count, count, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        return self.o_proj(mixed.transpose(0, 1).reshape(count, -1))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, c: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A decoder layer; EAGLE-2's first has no norm in front, EAGLE-3's takes two inputs."""

    def __init__(self, c: Mapping[str, Any], eagle3: bool, plain: bool = False) -> None:
        super().__init__()
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.self_attn = Attention(c, 2 * hidden if eagle3 else hidden)
        self.mlp = Mlp(c)
        self.post_attention_layernorm = Norm(hidden, eps)
        if eagle3 or plain:
            self.input_layernorm = Norm(hidden, eps)
        if eagle3:
            self.hidden_norm = Norm(hidden, eps)

    def rest(self, stream: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        stream = stream + attended
        return stream + self.mlp(self.post_attention_layernorm(stream))


class Target(nn.Module):
    """A Llama under transformers' names."""

    def __init__(self, c: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        layers = range(c["num_hidden_layers"])
        self.model.layers = nn.ModuleList(Layer(c, eagle3=False, plain=True) for _ in layers)
        self.model.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)

    def states(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """In front of each layer, behind the last, and the final norm's output."""
        found = [self.model.embed_tokens(ids)]
        for layer in self.model.layers:
            stream = found[-1]
            found.append(layer.rest(stream, layer.self_attn(layer.input_layernorm(stream))))
        return [*found, self.model.norm(found[-1])]


class Eagle2(nn.Module):
    """EAGLE-1 and EAGLE-2; `names` are those of the fusion and of the layer."""

    def __init__(self, c: Mapping[str, Any], bias: bool, names: tuple[str, str]) -> None:
        super().__init__()
        hidden = c["hidden_size"]
        self.names = names
        self.embed_tokens = nn.Embedding(c["vocab_size"], hidden)
        setattr(self, names[0], nn.Linear(2 * hidden, hidden, bias=bias))
        layer = Layer(c, eagle3=False)
        setattr(self, names[1], nn.ModuleList([layer]) if names[1] == "layers" else layer)

    def features(self, states: list[torch.Tensor]) -> torch.Tensor:
        return states[-1]

    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        fusion, layer = (getattr(self, name) for name in self.names)
        layer = layer[0] if self.names[1] == "layers" else layer
        stream = fusion(torch.cat([self.embed_tokens(ids), features], -1))
        return layer.rest(stream, layer.self_attn(stream))

    def scores(self, target: Target, state: torch.Tensor) -> torch.Tensor:
        return target.lm_head(state)


class Eagle3(nn.Module):
    """EAGLE-3; the target's embedding, three of its states, and a vocabulary with its map."""

    def __init__(
        self, c: Mapping[str, Any], rows: int, taps: tuple[int, ...], layer: str, normed: bool
    ) -> None:
        super().__init__()
        hidden = c["hidden_size"]
        self.taps, self.layer, self.normed = taps, layer, normed
        self.fc = nn.Linear(len(taps) * hidden, hidden, bias=False)
        made = Layer(c, eagle3=True)
        setattr(self, layer, nn.ModuleList([made]) if layer == "layers" else made)
        self.norm = Norm(hidden, c["rms_norm_eps"])
        self.lm_head = nn.Linear(hidden, rows, bias=False)
        self.register_buffer("d2t", torch.zeros(rows, dtype=torch.long))
        self.register_buffer("t2d", torch.zeros(c["vocab_size"], dtype=torch.int8))
        self.embedding: Any = None

    def features(self, states: list[torch.Tensor]) -> torch.Tensor:
        return self.fc(torch.cat([states[tap] for tap in self.taps], -1))

    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        layer = getattr(self, self.layer)
        layer = layer[0] if self.layer == "layers" else layer
        normed = layer.hidden_norm(features)
        both = torch.cat([layer.input_layernorm(self.embedding(ids)), normed], -1)
        return layer.rest(normed if self.normed else features, layer.self_attn(both))

    def scores(self, target: Target, state: torch.Tensor) -> torch.Tensor:
        rows = self.lm_head(self.norm(state))
        whole = torch.full((target.lm_head.out_features,), -torch.inf, dtype=rows.dtype)
        whole[torch.arange(len(rows)) + self.d2t] = rows
        return whole


def draft(
    target: Target, head: Eagle2 | Eagle3, text: list[int], proposed: list[int]
) -> list[tuple[float, float]]:
    """Probability of each of the `proposed` tokens behind `text`, and of the likeliest one there.

    The target has read all of `text` but its last token; from there on the head takes its own
    states, along the tokens that were proposed.
    """
    features = head.features(target.states(torch.tensor(text[:-1])))
    ids, found = list(text[1:]), []
    for token in proposed:
        state = head(torch.tensor(ids), features)[-1]
        shares = head.scores(target, state).softmax(-1)
        found.append((float(shares[token]), float(shares.max())))
        ids.append(token)
        features = torch.cat([features, state[None]])
    return found

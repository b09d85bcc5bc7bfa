"""A target of a few kilobytes, and dialogues of it."""

from __future__ import annotations

import torch

from backends.train.dialogues import Dialogues
from backends.train.generate import generate
from backends.train.network import Llama, Sizes

VOCAB = 96
SIZES = Sizes(
    hidden_size=64,
    intermediate_size=128,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=VOCAB,
    max_position=256,
    rope_theta=10000.0,
    rms_norm_eps=1e-5,
)


def target() -> Llama:
    """Random weights, drawn with one seed; f32 on the CPU."""
    generator = torch.Generator().manual_seed(7)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    hidden, inner = SIZES.hidden_size, SIZES.intermediate_size
    weights = {"head": noise(VOCAB, hidden), "final_norm": 1 + 0.1 * noise(hidden)}
    for layer in range(SIZES.num_layers):
        weights |= {
            f"layers.{layer}.qkv": 0.2 * noise((4 + 2 * 2) * 16, hidden),
            f"layers.{layer}.o": 0.2 * noise(hidden, 4 * 16),
            f"layers.{layer}.gate_up": 0.2 * noise(2 * inner, hidden),
            f"layers.{layer}.down": 0.2 * noise(hidden, inner),
            f"layers.{layer}.attn_norm": 1 + 0.1 * noise(hidden),
            f"layers.{layer}.mlp_norm": 1 + 0.1 * noise(hidden),
        }
    return Llama(SIZES, weights)


def prompts(count: int) -> list[list[int]]:
    """Prompts of 3 to 12 tokens."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(3, 13, (count,), generator=generator).tolist()
    return [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in lengths]


def dialogues(model: Llama, count: int, tokens: int = 24) -> Dialogues:
    """Greedy answers to `count` prompts."""
    asked = prompts(count)
    answers = generate(model, asked, [0.0] * count, tokens, [0], places=10_000)
    return Dialogues.of(asked, answers, ["gsm8k" if n % 2 else "qa" for n in range(count)])

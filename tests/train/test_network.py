"""The network, its sampling and its batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from backends.pack.tiles import gate_up_order
from backends.train.dialogues import LONGEST_ANSWER, Dialogues, bucketed, to_batch
from backends.train.generate import generate
from backends.train.network import Llama, causal_mask
from tests.train.tiny import SIZES, VOCAB, dialogues, prompts


def plain_logits(model: Llama, ids: list[int]) -> np.ndarray:
    """One sequence through loops over heads and positions in float64: another way to the same."""
    w = {name: value.double().numpy() for name, value in model.weights.items()}
    s = model.sizes

    def norm(x, weight):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + s.rms_norm_eps) * weight

    def turn(head, at):
        out = np.empty_like(head)
        for pair in range(s.head_dim // 2):
            angle = at / s.rope_theta ** (2 * pair / s.head_dim)
            even, odd = head[2 * pair], head[2 * pair + 1]
            out[2 * pair] = even * math.cos(angle) - odd * math.sin(angle)
            out[2 * pair + 1] = even * math.sin(angle) + odd * math.cos(angle)
        return out

    x = w["head"][ids]
    back = np.argsort(gate_up_order(s.intermediate_size))
    for layer in range(s.num_layers):
        part = {name: w[f"layers.{layer}.{name}"] for name in ("qkv", "o", "gate_up", "down")}
        heads = norm(x, w[f"layers.{layer}.attn_norm"]) @ part["qkv"].T
        heads = heads.reshape(len(ids), -1, s.head_dim)
        mixed = np.zeros((len(ids), s.num_heads, s.head_dim))
        for head in range(s.num_heads):
            kv = head // (s.num_heads // s.num_kv_heads)
            for at in range(len(ids)):
                q = turn(heads[at, head], at)
                keys = [turn(heads[j, s.num_heads + kv], j) for j in range(at + 1)]
                scores = np.exp(np.array([q @ key for key in keys]) / math.sqrt(s.head_dim))
                values = heads[: at + 1, s.num_heads + s.num_kv_heads + kv]
                mixed[at, head] = scores @ values / scores.sum()
        x = x + mixed.reshape(len(ids), -1) @ part["o"].T
        both = norm(x, w[f"layers.{layer}.mlp_norm"]) @ part["gate_up"][back].T
        gate, up = np.split(both, 2, axis=1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ part["down"].T
    return norm(x, w["final_norm"]) @ w["head"].T


def test_logits_are_those_of_a_plain_implementation_whatever_the_padding(tiny: Llama) -> None:
    ids = prompts(1)[0]
    expected = plain_logits(tiny, ids)
    for padding in (0, 5):
        batch = torch.tensor([[1] * padding + ids])
        mask = causal_mask(torch.tensor([padding]), batch.shape[1], torch.float32)
        states, _ = tiny.states(batch, mask)
        found = tiny.logits(states)[0, padding:].numpy()
        np.testing.assert_allclose(found, expected, atol=2e-4, rtol=1e-4)


def test_taps_are_numbered_as_in_the_packed_format(tiny: Llama) -> None:
    ids = torch.tensor([prompts(1)[0]])
    mask = causal_mask(torch.tensor([0]), ids.shape[1], torch.float32)
    final, taps = tiny.states(ids, mask, [4, 0, 2])
    assert torch.equal(taps[0], final)
    assert torch.equal(taps[1], tiny.weights["head"][ids])
    shorter = Llama(replace(SIZES, num_layers=2), tiny.weights)
    assert torch.equal(taps[2], shorter.states(ids, mask, [2])[1][0])


def test_greedy_continuation_is_the_argmax_of_each_prefix_in_any_batch(tiny: Llama) -> None:
    asked = prompts(5)
    together = generate(tiny, asked, [0.0] * 5, 12, [0], places=10_000)
    for prompt, answer in zip(asked, together, strict=True):
        assert answer == generate(tiny, [prompt], [0.0], 12, [0], places=10_000)[0]
        logits = plain_logits(tiny, [*prompt, *answer])[len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == answer


def test_a_stop_token_ends_a_continuation_and_is_kept(tiny: Llama) -> None:
    asked = prompts(3)
    free = generate(tiny, asked, [0.0] * 3, 12, [VOCAB], places=10_000)
    stop = free[1][4]
    stopped = generate(tiny, asked, [0.0] * 3, 12, [stop], places=10_000)
    assert stopped[1] == free[1][: free[1].index(stop) + 1]


def test_sampling_follows_the_softmax(tiny: Llama) -> None:
    prompt, count = prompts(1)[0], 4000
    logits = torch.from_numpy(plain_logits(tiny, prompt)[-1]) / 2.0
    expected = (logits.softmax(-1) * count).numpy()
    torch.manual_seed(5)
    drawn = generate(tiny, [prompt] * count, [2.0] * count, 1, [VOCAB], places=10**6)
    found = np.bincount([answer[0] for answer in drawn], minlength=VOCAB)
    often = expected > 10
    chi_square = ((found - expected) ** 2 / expected)[often].sum()
    freedom = often.sum() - 1
    assert often.sum() > 5
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)


def test_dialogues_come_back_from_a_file(tiny: Llama, tmp_path) -> None:
    made = dialogues(tiny, 4)
    made.save(tmp_path / "d.npz")
    both = Dialogues.load(tmp_path / "d.npz") + made
    assert len(both) == 8
    assert both.prompt(5) == made.prompt(1) == prompts(4)[1]
    assert both.answer_counts(VOCAB).sum() == 2 * made.answer_lengths.sum()


def test_a_batch_lines_up_where_prompts_end(tiny: Llama) -> None:
    made = dialogues(tiny, 4)
    batch = to_batch(made, np.array([2, 0]), "cpu")
    for row, index in enumerate((2, 0)):
        start = int(batch.padding[row])
        assert batch.ids[row, start : batch.first].tolist() == made.prompt(index)
    assert batch.predicted().sum() == made.answer_lengths[[2, 0]].sum()


def test_buckets_give_few_shapes_and_each_dialogue_at_most_once(tiny: Llama) -> None:
    made = dialogues(tiny, 7)
    places = 3 * (64 + LONGEST_ANSWER)
    found = list(bucketed(made, places, np.random.default_rng(0)))
    assert [first for first, _ in found] == [64, 64]
    rows = np.concatenate([rows for _, rows in found])
    assert len(set(rows.tolist())) == 6
    assert to_batch(made, found[0][1], "cpu", 64).ids.shape == (3, 64 + LONGEST_ANSWER)

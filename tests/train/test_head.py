"""The head over all roots at once against one root after the other, and acceptance from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backends.train.acceptance import Tree, head_accepted, model_accepted, rounds
from backends.train.dialogues import to_batch
from backends.train.evaluate import repeats_itself
from backends.train.head import Head
from backends.train.network import gated_mlp, rms_norm, rotary, rotate
from backends.train.starts import HeadShape, head_student, model_student
from backends.train.students import HeadStudent, Teaching, Vocabulary, teach
from tests.train.tiny import VOCAB, dialogues

SHAPE = HeadShape(intermediate_size=64, num_heads=4, num_kv_heads=2, taps=(1, 3, 4))


@pytest.fixture
def taught(tiny) -> tuple[HeadStudent, Teaching]:
    batch = to_batch(dialogues(tiny, 5), np.arange(5), "cpu")
    teaching = teach(tiny, batch, SHAPE.taps)
    vocabulary = Vocabulary.of(torch.arange(0, VOCAB, 2), VOCAB)
    generator = torch.Generator().manual_seed(1)
    made = head_student("h", tiny, SHAPE, vocabulary, teaching, generator, torch.float32)
    with torch.no_grad():
        for name, w in made.parameters.items():
            if name.startswith("layers") and w.dim() == 2:
                w.mul_(8)
    return made, teaching


def one_root(head: Head, tokens: list[int], features: torch.Tensor, own: int) -> list[torch.Tensor]:
    """States of `own` steps behind the last of `features` [n, taps·H], token by token.

    tokens[i] follows place i; the first len(features) steps read true features.
    """
    w, s = head.weights, head.sizes
    keys, values, found = [], [], []
    for at, token in enumerate(tokens[: len(features) + own]):
        true = at < len(features)
        feature = w["feature_fc"] @ features[at] if true else found[-1]
        both = torch.cat(
            [
                rms_norm(head.embedding[token], w["embed_norm"], s.rms_norm_eps),
                rms_norm(feature, w["layers.0.attn_norm"], s.rms_norm_eps),
            ]
        )
        heads = (w["layers.0.qkv"] @ both).view(1, 1, -1, s.head_dim)
        angles = rotary(torch.tensor([at]), s.head_dim, s.rope_theta)
        turned = rotate(heads[:, :, : s.num_heads + s.num_kv_heads], angles)[0, 0]
        keys.append(turned[s.num_heads :])
        values.append(heads[0, 0, s.num_heads + s.num_kv_heads :])
        mixed = []
        for index in range(s.num_heads):
            kv = index // (s.num_heads // s.num_kv_heads)
            scores = torch.stack([turned[index] @ key[kv] for key in keys]) / s.head_dim**0.5
            shares = scores.softmax(0)
            mixed.append(sum(a * value[kv] for a, value in zip(shares, values, strict=True)))
        x = feature + w["layers.0.o"] @ torch.cat(mixed)
        normed = rms_norm(x, w["layers.0.mlp_norm"], s.rms_norm_eps)
        found.append(x + gated_mlp(normed, w["layers.0.gate_up"], w["layers.0.down"]))
    return found[len(features) - 1 :]


def test_all_roots_at_once_are_each_root_alone(taught) -> None:
    student, teaching = taught
    batch = teaching.batch
    with torch.no_grad():
        head = student.network()
        taps = student.scaled(teaching.taps)
        roots = head.begin(batch.ids, taps, teaching.mask, batch.first)
        states, path, steps = roots.states, [], [roots.states]
        for step in (1, 2):
            tokens = torch.nn.functional.pad(batch.ids[:, batch.first + step :], (0, step))
            states, keys = head.step(roots, tokens[..., None], states, path)
            path.append(keys)
            steps.append(states)
        row, root = 1, 6
        begin, place = int(batch.padding[row]), batch.first - 1 + root
        features = torch.cat(taps, -1)[row, begin : place + 1]
        alone = one_root(head, batch.ids[row, begin + 1 :].tolist(), features, own=2)
    for together, single in zip(steps, alone, strict=True):
        torch.testing.assert_close(together[row, root, 0], single, atol=1e-4, rtol=1e-4)


def grown_tree(student: HeadStudent, teaching: Teaching, row: int, root: int, tree: Tree) -> int:
    """Accepted tokens of one root's tree, by plain expansion of lists."""
    batch, head = teaching.batch, student.network()
    begin, place = int(batch.padding[row]), batch.first - 1 + root
    features = torch.cat(student.scaled(teaching.taps), -1)[row, begin : place + 1]
    told = batch.ids[row, begin + 1 : place + 2].tolist()
    frontier, everything = [(0.0, ())], []
    for _ in range(tree.depth):
        children = []
        for likelihood, path in frontier:
            state = one_root(head, [*told, *path], features, own=len(path))[-1]
            best, rows = head.logits(state).log_softmax(-1).topk(tree.top_k)
            children += [
                (likelihood + float(value), (*path, int(student.vocabulary.tokens[at])))
                for value, at in zip(best, rows, strict=True)
            ]
        everything += children
        frontier = sorted(children, reverse=True)[: tree.top_k]
    kept = {path for _, path in sorted(everything, reverse=True)[: tree.nodes]}
    length = int(batch.answers[row])
    right = tuple(batch.ids[row, place + 2 : batch.first + length].tolist())
    accepted = 0
    while right[: accepted + 1] in kept and accepted < len(right):
        accepted += 1
    return accepted


@pytest.mark.parametrize("tree", [Tree(3, 1, 3), Tree(3, 4, 9)])
def test_accepted_tokens_are_those_of_trees_grown_one_by_one(taught, tree: Tree) -> None:
    student, teaching = taught
    found = head_accepted(student, teaching, tree)
    with torch.no_grad():
        for row in (0, 3):
            for root in range(0, int(teaching.batch.answers[row]) - 1, 3):
                assert int(found[row, root]) == grown_tree(student, teaching, row, root, tree)
    if tree.top_k > 1:
        assert int(found.sum()) > 0


def test_a_model_that_is_the_target_is_always_right(tiny) -> None:
    batch = to_batch(dialogues(tiny, 5), np.arange(5), "cpu")
    teaching = teach(tiny, batch, ())
    vocabulary = Vocabulary.of(torch.arange(VOCAB), VOCAB)
    student = model_student("m", tiny, (0, 1, 2), vocabulary, torch.float32)
    student.network = lambda: tiny
    found = model_accepted(student, teaching, 4)
    for row, length in enumerate(batch.answers.tolist()):
        expected = [min(4, length - 1 - at) for at in range(length)]
        assert found[row, :length].tolist() == expected
    half = model_student("m", tiny, (0,), vocabulary, torch.float32)
    assert int(model_accepted(half, teaching, 4).sum()) < int(found.sum())


def test_rounds_walk_from_token_to_token() -> None:
    # Token 0 comes from the prompt; a round at 0 accepts 2 and adds one: token 3 is the newest.
    assert rounds([2, 0, 0, 1, 0, 0, 0]) == (6, 3)
    assert rounds([0]) == (0, 0)
    assert rounds([4, 0, 0]) == (2, 1)


def test_repeats_are_spans_that_stand_three_times() -> None:
    span = list(range(12))
    assert repeats_itself([*span, 50, *span, 51, *span])
    assert not repeats_itself([*span, 50, *span])
    assert not repeats_itself([])

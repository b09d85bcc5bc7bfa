"""Acceptance lengths: drafts are replayed along the target's own greedy answers.

At greedy acceptance the text is the target's whatever the drafter proposes, so that for every
place of an answer one can ask how many drafted tokens would be accepted there, and then walk the
rounds through. These figures are computed in PyTorch; docs/drafters.md has the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from backends.train.head import Head, Keys, Roots
from backends.train.students import HeadStudent, ModelStudent, Teaching


@dataclass(frozen=True)
class Tree:
    """Tokens drafted a round; with top_k 1 it is a chain of `nodes` = `depth` tokens."""

    depth: int
    top_k: int
    nodes: int


def rounds(accepted: Sequence[int]) -> tuple[int, int]:
    """Tokens committed and rounds made for one answer.

    accepted[i] drafted tokens are accepted in a round whose newest token is number i of the answer.
    The first token comes from the prompt's own pass and is not counted.
    """
    at, count = 0, 0
    while at < len(accepted) - 1:
        at += accepted[at] + 1
        count += 1
    return min(at, len(accepted) - 1), count


def model_accepted(student: ModelStudent, teaching: Teaching, gamma: int) -> torch.Tensor:
    """Accepted tokens [B, C] of a chain of gamma from each token of the answers.

    A draft is right as long as it follows the text, where drafting and reading are the same.
    """
    with torch.no_grad():
        batch, network = teaching.batch, student.network()
        final, _ = network.states(batch.ids, teaching.mask.to(student.dtype))
        rows = network.logits(final[:, batch.first - 1 : -1]).argmax(-1)
        match = (student.vocabulary.tokens[rows] == batch.ids[:, batch.first :]) & teaching.valid
        count = match.shape[1]
        run = torch.ones_like(match)
        accepted = torch.zeros(match.shape, dtype=torch.long, device=match.device)
        for step in range(gamma):
            ahead = torch.nn.functional.pad(match[:, 1 + step :], (0, min(count, 1 + step)))
            run = run & ahead[:, :count]
            accepted += run
        return accepted


def head_accepted(student: HeadStudent, teaching: Teaching, tree: Tree) -> torch.Tensor:
    """Accepted tokens [B, C] of a head's tree from each token of the answers.

    Each level expands the `top_k` likeliest nodes of the level before into `top_k` children;
    of all these the `nodes` likeliest are kept, likelihood being the product along the path.
    """
    with torch.no_grad():
        head, batch = student.network(), teaching.batch
        mask = teaching.mask.to(student.dtype)
        roots = head.begin(batch.ids, student.scaled(teaching.taps), mask, batch.first)
        return _Growth(student, head, roots, teaching, tree).accepted()


class _Growth:
    """The trees of all roots of a batch, grown level by level; B, R, K = top_k."""

    def __init__(
        self, student: HeadStudent, head: Head, roots: Roots, teaching: Teaching, tree: Tree
    ) -> None:
        self.student, self.head, self.roots, self.tree = student, head, roots, tree
        # The token that level d must hold to be right: root r is token r, level 1 token r + 1.
        ids = teaching.batch.ids[:, teaching.batch.first :]
        right = torch.where(teaching.valid, ids, -1)
        self.right = torch.nn.functional.pad(right, (0, tree.depth + 1), value=-1)
        self.count = roots.states.shape[1]
        self.likelihoods: list[torch.Tensor] = []
        self.on_path: list[torch.Tensor] = []

    def accepted(self) -> torch.Tensor:
        """[B, R]."""
        states, path = self.roots.states, list[Keys]()
        likelihood = torch.zeros(states.shape[:3], device=states.device)
        on_path = torch.ones(states.shape[:3], dtype=torch.bool, device=states.device)
        for level in range(1, self.tree.depth + 1):
            tokens, likelihood, parents, on_path = self._children(
                states, likelihood, on_path, level
            )
            if level < self.tree.depth:
                states = _pick(states, parents)
                path = [Keys(_pick(keys.k, parents), _pick(keys.v, parents)) for keys in path]
                states, own = self.head.step(self.roots, tokens, states, path)
                path.append(own)
        return self._kept_on_path()

    def _children(
        self,
        states: torch.Tensor,
        likelihood: torch.Tensor,
        on_path: torch.Tensor,
        level: int,
    ) -> tuple[torch.Tensor, ...]:
        """Tokens, log-likelihoods, parents and rightness [B, R, K] of the next frontier."""
        width = self.tree.top_k
        log_q = self.head.logits(states).float().log_softmax(-1)
        best, rows = log_q.topk(width)
        total = (likelihood[..., None] + best).flatten(2)
        tokens = self.student.vocabulary.tokens[rows]
        right = self.right[:, level : level + self.count, None, None]
        follows = (on_path[..., None] & (tokens == right)).flatten(2)
        self.likelihoods.append(total)
        self.on_path.append(follows)
        kept, chosen = total.topk(min(width, total.shape[-1]))
        return (
            tokens.flatten(2).gather(-1, chosen),
            kept,
            chosen // width,
            follows.gather(-1, chosen),
        )

    def _kept_on_path(self) -> torch.Tensor:
        everything = torch.cat(self.likelihoods, -1)
        nodes = min(self.tree.nodes, everything.shape[-1])
        least = everything.topk(nodes).values[..., -1:]
        return ((everything >= least) & torch.cat(self.on_path, -1)).sum(-1)


def _pick(values: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
    """Rows `parents` [B, R, K] of the third dimension of values [B, R, N, ...]."""
    index = parents.reshape(*parents.shape, *([1] * (values.dim() - 3)))
    return values.gather(2, index.expand(*parents.shape, *values.shape[3:]))

"""Many continuations at once, greedy or sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from backends.train.captured import captured
from backends.train.dialogues import PAD_ID
from backends.train.network import HIDDEN_SCORE, Cache, Llama, causal_mask

_LOOK_EVERY = 16
_ALIGNMENT = 16
"""Attention kernels want masks whose rows are a multiple of this."""


def generate(
    model: Llama,
    prompts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    max_new_tokens: int,
    stop_ids: Sequence[int],
    *,
    places: int,
    token_of_row: torch.Tensor | None = None,
) -> list[list[int]]:
    """One continuation of each prompt, a stop token at its end included.

    Temperature 0 takes the largest logit. A batch holds at most `places` tokens in its KV cache.
    `token_of_row` names the token of each row of a reduced head. Draws come from PyTorch's global
    generator: seed it.
    """
    order = np.argsort([len(prompt) for prompt in prompts], kind="stable")[::-1]
    answers: list[list[int]] = [[] for _ in prompts]
    begin = 0
    while begin < len(order):
        longest = len(prompts[order[begin]]) + max_new_tokens + _ALIGNMENT
        rows = order[begin : begin + max(1, places // longest)]
        writing = _Writing(model, [prompts[row] for row in rows], max_new_tokens, token_of_row)
        found = writing.answers([temperatures[row] for row in rows], stop_ids)
        for row, answer in zip(rows, found, strict=True):
            answers[row] = answer
        begin += len(rows)
    return answers


class _Writing:
    """One batch of continuations; every step works in place, so that it can be captured."""

    def __init__(
        self,
        model: Llama,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        token_of_row: torch.Tensor | None,
    ) -> None:
        self.model, self.token_of_row, self.steps = model, token_of_row, max_new_tokens
        like = model.embedding
        self.device = like.device
        self.longest = max(len(prompt) for prompt in prompts)
        self.padding = torch.tensor(
            [self.longest - len(prompt) for prompt in prompts], device=self.device
        )
        ids = np.full((len(prompts), self.longest), PAD_ID, np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, self.longest - len(prompt) :] = prompt
        self.ids = torch.from_numpy(ids).to(self.device)
        capacity = -(-(self.longest + max_new_tokens) // _ALIGNMENT) * _ALIGNMENT
        self.cache = Cache(model.sizes, len(prompts), capacity, like)
        at = torch.arange(capacity, device=self.device)
        seen = (at >= self.padding[:, None]) & (at < self.longest)
        self.mask = torch.where(seen, 0.0, HIDDEN_SCORE).to(like.dtype)[:, None]
        self.token = torch.zeros(len(prompts), dtype=torch.long, device=self.device)
        self.made = torch.zeros(1, dtype=torch.long, device=self.device)
        self.out = torch.zeros((len(prompts), max_new_tokens), dtype=torch.long, device=self.device)

    def answers(self, temperatures: Sequence[float], stop_ids: Sequence[int]) -> list[list[int]]:
        """The continuations, each up to its first stop token."""
        with torch.no_grad():
            temperature = torch.tensor(temperatures, device=self.device)[:, None]
            mask = causal_mask(self.padding, self.longest, self.mask.dtype)
            states, _ = self.model.states(self.ids, mask, cache=self.cache)
            del mask
            self._take(states, temperature)
            begun = [x.clone() for x in (self.token, self.made, self.mask)]
            step = captured(lambda: self._step(temperature), self.device)
            # Capturing runs the step: what it has moved is put back.
            for x, saved in zip((self.token, self.made, self.mask), begun, strict=True):
                x.copy_(saved)
            stops = torch.tensor(list(stop_ids), device=self.device)
            for done in range(1, self.steps):
                if done % _LOOK_EVERY == 0:
                    ended = torch.isin(self.out[:, :done], stops).any(1)
                    if bool(ended.all()):
                        break
                step()
        known = set(stop_ids)
        return [_until_stop(row, known) for row in self.out[:, : int(self.made)].tolist()]

    def _step(self, temperature: torch.Tensor) -> None:
        position = self.made + (self.longest - 1)
        self.mask.index_fill_(2, position, 0.0)
        states, _ = self.model.states(
            self.token[:, None], self.mask, cache=self.cache, positions=position
        )
        self._take(states, temperature)

    def _take(self, states: torch.Tensor, temperature: torch.Tensor) -> None:
        logits = self.model.logits(states[:, -1]).float()
        # The largest of logit / t + Gumbel noise is a draw from softmax(logit / t); 0 is greedy.
        noise = torch.empty_like(logits).exponential_().clamp_min_(1e-20).log_()
        rows = (logits - temperature * noise).argmax(-1)
        self.token.copy_(rows if self.token_of_row is None else self.token_of_row[rows])
        self.out.index_copy_(1, self.made, self.token[:, None])
        self.made.add_(1)


def _until_stop(row: Sequence[int], stops: set[int]) -> list[int]:
    end = next((at + 1 for at, token in enumerate(row) if token in stops), len(row))
    return list(row[:end])

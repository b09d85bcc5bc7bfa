"""What is trained: a drafter's parameters with the loss that makes it foresee its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch.nn import functional

from backends.train.dialogues import Batch
from backends.train.head import Head, Keys
from backends.train.network import Llama, Sizes, causal_mask
from backends.train.quantized import prepared

HEAD_STEPS = 5
_STEP_WEIGHT = 0.9
"""A later step counts less: it is reached less often."""


@dataclass(frozen=True)
class Teaching:
    """What the target says about a batch.

    taps: states [B, T, H] by tap. logits [B, C, rows] and best [B, C] (token ids) stand for the
    C = T − first columns: column c foresees place first + c. log_total [B, C] is the logarithm of
    the sum that turns a logit into a probability. valid [B, C]: the place belongs to the answer.
    """

    batch: Batch
    mask: torch.Tensor
    taps: Mapping[int, torch.Tensor]
    logits: torch.Tensor
    log_total: torch.Tensor
    best: torch.Tensor
    valid: torch.Tensor


def teach(
    target: Llama, batch: Batch, taps: Sequence[int], token_of_row: torch.Tensor | None = None
) -> Teaching:
    """Run the target over a batch. `token_of_row` names the tokens of a reduced head."""
    with torch.no_grad():
        length = batch.ids.shape[1]
        mask = causal_mask(batch.padding, length, target.embedding.dtype)
        final, states = target.states(batch.ids, mask, taps)
        logits = target.logits(final[:, batch.first - 1 : -1])
        best = logits.argmax(-1)
        return Teaching(
            batch=batch,
            mask=mask,
            taps=dict(zip(taps, states, strict=True)),
            logits=logits,
            log_total=logits.float().logsumexp(-1),
            best=best if token_of_row is None else token_of_row[best],
            valid=batch.predicted(),
        )


@dataclass(frozen=True)
class Vocabulary:
    """A drafter's reduced vocabulary.

    tokens [rows], rising; target_rows [rows]: where the target's logits hold them; row_of_token
    [vocab]: −1 for a token that the drafter cannot say.
    """

    tokens: torch.Tensor
    target_rows: torch.Tensor
    row_of_token: torch.Tensor

    @classmethod
    def of(
        cls, tokens: torch.Tensor, vocab_size: int, token_of_row: torch.Tensor | None = None
    ) -> Vocabulary:
        """The vocabulary `tokens`, which the target's head (itself reduced or not) must hold."""
        tokens = tokens.sort().values
        row_of_token = torch.full((vocab_size,), -1, device=tokens.device)
        row_of_token[tokens] = torch.arange(len(tokens), device=tokens.device)
        rows = tokens if token_of_row is None else torch.searchsorted(token_of_row, tokens)
        return cls(tokens, rows, row_of_token)

    def loss(
        self, logits: torch.Tensor, teaching: Teaching, shift: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and agreement (both means over valid places) of a drafter's logits [B, C', rows].

        Column c foresees the target's column c + shift. Half of the loss is the cross-entropy to
        the target's probabilities of the vocabulary's tokens, half to the target's first choice.
        """
        columns = slice(shift, shift + logits.shape[1])
        valid = teaching.valid[:, columns]
        logits = logits[:, : valid.shape[1]].float()
        log_q = logits.log_softmax(-1)
        p = (
            teaching.logits[:, columns][..., self.target_rows].float()
            - teaching.log_total[:, columns, None]
        ).exp()
        best = self.row_of_token[teaching.best[:, columns]]
        soft = -(p * log_q).sum(-1)
        hard = -log_q.gather(-1, best.clamp(min=0)[..., None])[..., 0] * (best >= 0)
        count = valid.sum().clamp(min=1)
        loss = ((soft + hard) * valid).sum() / (2 * count)
        agreement = ((logits.argmax(-1) == best) & valid).sum() / count
        return loss, agreement


class Student(Protocol):
    """A drafter in training; `parameters` are named as in the packed file."""

    name: str
    parameters: dict[str, torch.Tensor]
    taps: tuple[int, ...]

    def loss(
        self, teaching: Teaching, quantize: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The loss to lower, and the agreement with the target by step.

        `quantize` is 1 where matrices are seen in 4 bits, else 0.
        """
        ...


@dataclass(eq=False)
class ModelStudent:
    """A small decoder with the target's tokenizer."""

    name: str
    sizes: Sizes
    parameters: dict[str, torch.Tensor]
    vocabulary: Vocabulary
    dtype: torch.dtype
    taps: tuple[int, ...] = field(default=(), init=False)

    def network(self, quantize: torch.Tensor | float = 1.0) -> Llama:
        """The network with the present weights."""
        return Llama(self.sizes, prepared(self.parameters, self.dtype, quantize))

    def loss(
        self, teaching: Teaching, quantize: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """See Student."""
        network = self.network(quantize)
        first = teaching.batch.first
        final, _ = network.states(teaching.batch.ids, teaching.mask.to(self.dtype))
        logits = network.logits(final[:, first - 1 : -1])
        loss, agreement = self.vocabulary.loss(logits, teaching, 0)
        return loss, [agreement]


@dataclass(eq=False, kw_only=True)
class HeadStudent:
    """An EAGLE-3 head, taught on its own features over HEAD_STEPS steps."""

    name: str
    sizes: Sizes
    parameters: dict[str, torch.Tensor]
    vocabulary: Vocabulary
    dtype: torch.dtype
    taps: tuple[int, ...]
    tap_scale: torch.Tensor
    embedding: torch.Tensor

    def network(self, quantize: torch.Tensor | float = 1.0) -> Head:
        """The head with the present weights; it takes features divided by `tap_scale`."""
        weights = prepared(self.parameters, self.dtype, quantize)
        return Head(self.sizes, weights, self.embedding)

    def scaled(self, taps: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
        """The target's states as `network` takes them.

        The streams' channels differ by two orders of magnitude. The export moves the scale into
        `feature_fc`.
        """
        scales = self.tap_scale.chunk(len(self.taps))
        return [
            (taps[tap].float() / scale).to(self.dtype)
            for tap, scale in zip(self.taps, scales, strict=True)
        ]

    def loss(
        self, teaching: Teaching, quantize: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """See Student."""
        head, batch = self.network(quantize), teaching.batch
        mask = teaching.mask.to(self.dtype)
        roots = head.begin(batch.ids, self.scaled(teaching.taps), mask, batch.first)
        states, path = roots.states, list[Keys]()
        total, weight, agreements = torch.zeros((), device=states.device), 1.0, []
        for step in range(HEAD_STEPS):
            if step:
                tokens = functional.pad(batch.ids[:, batch.first + step :], (0, step))
                states, keys = head.step(roots, tokens[..., None], states, path)
                path.append(keys)
            logits = head.logits(states[:, : states.shape[1] - 1 - step, 0])
            loss, agreement = self.vocabulary.loss(logits, teaching, 1 + step)
            total = total + weight * loss
            weight *= _STEP_WEIGHT
            agreements.append(agreement)
        return total, agreements


def trainable(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """f32 copies that collect gradients."""
    return {name: w.detach().float().clone().requires_grad_() for name, w in weights.items()}

"""The training loop: one target teaches several drafters on the same batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from backends.train.captured import captured
from backends.train.dialogues import Batch, Dialogues, Rows, bucketed, to_batch
from backends.train.network import Llama
from backends.train.optimizer import Optimizer, Rates
from backends.train.students import Student, teach

_WARMUP = 0.03
_QUANTIZED_FROM = 0.6
"""From this share of the steps on the weights are seen in 4 bits."""
_LAST_SHARE = 0.02
_REPORT_EVERY = 100


@dataclass(frozen=True)
class Plan:
    """steps of at most `places` tokens each, drawn with `seed`."""

    steps: int
    places: int
    seed: int


class _Class:
    """A target with its students; has one captured step for each shape of batch."""

    def __init__(
        self,
        target: Llama,
        students: Sequence[tuple[Student, Rates]],
        token_of_row: torch.Tensor | None,
    ) -> None:
        self._target = target
        self._students = [student for student, _ in students]
        self._optimizers = [Optimizer(student.parameters, rates) for student, rates in students]
        self._taps = sorted({tap for student in self._students for tap in student.taps})
        self._token_of_row = token_of_row
        self._device = target.embedding.device
        self._quantize = torch.zeros((), device=self._device)
        self._pool = torch.cuda.graph_pool_handle() if self._device.type == "cuda" else None
        self._steps: dict[tuple[int, ...], tuple[Batch, Callable[[], None]]] = {}
        self.results = {student.name: torch.zeros(0) for student in self._students}

    def step(self, batch: Batch, share: float, quantize: bool) -> None:
        """Learn from one batch at `share` of the learning rates."""
        for optimizer in self._optimizers:
            optimizer.share.fill_(share)
        self._quantize.fill_(float(quantize))
        shape = (batch.first, *batch.ids.shape)
        if shape not in self._steps:
            own = batch.clone()
            run = captured(lambda: self._learn(own), self._device, self._pool)
            self._steps[shape] = (own, run)
        own, run = self._steps[shape]
        own.copy_(batch)
        run()

    def _learn(self, batch: Batch) -> None:
        teaching = teach(self._target, batch, self._taps, self._token_of_row)
        for student, optimizer in zip(self._students, self._optimizers, strict=True):
            loss, agreements = student.loss(teaching, self._quantize)
            loss.backward()
            optimizer.step()
            found = torch.stack([loss.detach(), *agreements])
            if not len(self.results[student.name]):
                self.results[student.name] = torch.zeros_like(found)
            self.results[student.name].copy_(found)


def train(
    target: Llama,
    dialogues: Dialogues,
    students: Sequence[tuple[Student, Rates]],
    plan: Plan,
    *,
    token_of_row: torch.Tensor | None = None,
) -> None:
    """Train all students for `plan.steps` steps, changing their parameters."""
    lessons = _Class(target, students, token_of_row)
    device = str(target.embedding.device)
    begun = time.monotonic()
    for step, (first, rows) in zip(range(plan.steps), _endless(dialogues, plan), strict=False):
        batch = to_batch(dialogues, rows, device, first)
        quantize = step >= _QUANTIZED_FROM * plan.steps
        lessons.step(batch, rate_share(step, plan.steps), quantize)
        if (step + 1) % _REPORT_EVERY == 0 or step + 1 == plan.steps:
            for name, found in lessons.results.items():
                loss, *agreements = found.tolist()
                print(
                    f"step {step + 1} of {plan.steps}, {time.monotonic() - begun:.1f} s: {name} "
                    f"loss {loss:.3f}, agreement {' '.join(f'{a:.3f}' for a in agreements)}",
                    flush=True,
                )


def rate_share(step: int, steps: int) -> float:
    """The share of its rate that a step takes: linear warm-up, then a cosine."""
    warm = max(1, round(steps * _WARMUP))
    if step < warm:
        return (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    return _LAST_SHARE + (1 - _LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def _endless(dialogues: Dialogues, plan: Plan) -> Iterator[tuple[int, Rows]]:
    generator = np.random.default_rng(plan.seed)
    while True:
        made = list(bucketed(dialogues, plan.places, generator))
        if not made:
            raise ValueError(
                f"{len(dialogues)} dialogues fill no batch of {plan.places} tokens. Write more "
                "answers or take fewer tokens a step."
            )
        yield from made

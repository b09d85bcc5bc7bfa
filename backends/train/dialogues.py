"""Token sequences of a prompt and its answer, and batches of them for training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

Ids = npt.NDArray[np.uint16]
Rows = npt.NDArray[np.int64]
LONGEST_ANSWER = 128
BUCKETS = (64, 80, 96, 128, 192, 384, 1024)
"""Lengths to which prompts are padded."""
PAD_ID = 1
"""Stands in unused places: any real token does, since nothing sees them."""


@dataclass(frozen=True)
class Dialogues:
    """Prompts with answers: all ids in one row, two lengths each, and the name of their origin."""

    ids: Ids
    prompt_lengths: npt.NDArray[np.int32]
    answer_lengths: npt.NDArray[np.int32]
    origins: npt.NDArray[np.str_]

    @classmethod
    def of(
        cls,
        prompts: Sequence[Sequence[int]],
        answers: Sequence[Sequence[int]],
        origins: Sequence[str],
    ) -> Dialogues:
        """One dialogue for each prompt, answer and origin. Ids must be below 65,536."""
        rows = [part for pair in zip(prompts, answers, strict=True) for part in pair]
        return cls(
            np.array([token for row in rows for token in row], np.uint16),
            np.array([len(prompt) for prompt in prompts], np.int32),
            np.array([len(answer) for answer in answers], np.int32),
            np.array(origins, np.str_),
        )

    @classmethod
    def load(cls, path: str | Path) -> Dialogues:
        """Read what `save` wrote."""
        with np.load(path) as file:
            return cls(*(file[name] for name in cls.__dataclass_fields__))

    def save(self, path: str | Path) -> None:
        """Write a compressed npz file."""
        np.savez_compressed(
            path,
            ids=self.ids,
            prompt_lengths=self.prompt_lengths,
            answer_lengths=self.answer_lengths,
            origins=self.origins,
        )

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    def __add__(self, other: Dialogues) -> Dialogues:
        return Dialogues(
            *(
                np.concatenate([getattr(self, name), getattr(other, name)])
                for name in self.__dataclass_fields__
            )
        )

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each dialogue begins in `ids`."""
        lengths = self.prompt_lengths.astype(np.int64) + self.answer_lengths
        return np.concatenate([[0], np.cumsum(lengths)])[:-1]

    def prompt(self, index: int) -> list[int]:
        """Ids of one prompt."""
        start = int(self.starts[index])
        return [int(token) for token in self.ids[start : start + self.prompt_lengths[index]]]

    def answer_counts(self, vocab_size: int) -> npt.NDArray[np.int64]:
        """How often each token stands in an answer."""
        places = np.repeat(self.starts + self.prompt_lengths, self.answer_lengths)
        within = np.concatenate([np.arange(length) for length in self.answer_lengths])
        return np.bincount(self.ids[places + within], minlength=vocab_size)


@dataclass(frozen=True)
class Batch:
    """Dialogues side by side: prompts end, and answers begin, in column `first`.

    ids [B, T]; padding [B] unused places in front; answers [B] lengths.
    """

    ids: torch.Tensor
    padding: torch.Tensor
    answers: torch.Tensor
    first: int

    def clone(self) -> Batch:
        """A copy with memory of its own."""
        return Batch(self.ids.clone(), self.padding.clone(), self.answers.clone(), self.first)

    def copy_(self, other: Batch) -> None:
        """Take over the content of a batch of the same shape."""
        self.ids.copy_(other.ids)
        self.padding.copy_(other.padding)
        self.answers.copy_(other.answers)

    def predicted(self) -> torch.Tensor:
        """[B, T − first]: which columns from `first` on hold a token of the answer."""
        at = torch.arange(self.ids.shape[1] - self.first, device=self.ids.device)
        return at < self.answers[:, None]


def to_batch(dialogues: Dialogues, rows: Rows, device: str, first: int | None = None) -> Batch:
    """The dialogues `rows` as one batch, answers in columns first ... first + LONGEST_ANSWER.

    Without `first`, both lengths are as short as the rows allow.
    """
    starts = dialogues.starts[rows]
    prompts, answers = dialogues.prompt_lengths[rows], dialogues.answer_lengths[rows]
    length = int(answers.max()) if first is None else LONGEST_ANSWER
    first = first or int(prompts.max())
    ids = np.full((len(rows), first + length), PAD_ID, np.int64)
    for row, (start, prompt, answer) in enumerate(zip(starts, prompts, answers, strict=True)):
        ids[row, first - prompt : first + answer] = dialogues.ids[start : start + prompt + answer]
    return Batch(
        torch.from_numpy(ids).to(device),
        torch.from_numpy(first - prompts.astype(np.int64)).to(device),
        torch.from_numpy(answers.astype(np.int64)).to(device),
        first,
    )


def bucketed(
    dialogues: Dialogues, places: int, generator: np.random.Generator
) -> Iterator[tuple[int, Rows]]:
    """(first, rows) of the batches of one pass: few shapes, each of `places` tokens at most.

    Prompts of like length stand together; order and neighbours are drawn from `generator`. The
    rows that fill no batch, and prompts longer than the last bucket, wait for another pass or
    are left out.
    """
    made: list[tuple[int, Rows]] = []
    least = 0
    for first in BUCKETS:
        fits = (dialogues.prompt_lengths > least) & (dialogues.prompt_lengths <= first)
        rows = generator.permutation(np.flatnonzero(fits))
        size = max(1, places // (first + LONGEST_ANSWER))
        made += [
            (first, rows[begin : begin + size]) for begin in range(0, len(rows) - size + 1, size)
        ]
        least = first
    for index in generator.permutation(len(made)):
        yield made[index]

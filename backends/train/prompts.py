"""Prompts that the target writes itself, in the kinds that drafters are measured on.

No prompt of a test set is read. The only foreign text is the questions of GSM8K's train file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backends.tokenizer import Tokenizer
from backends.train import openings
from backends.train.generate import generate
from backends.train.network import Llama

_MARK = "MARK"
_DOCUMENT_START = 0
_DOCUMENT_TOKENS = 448
_TURN_TOKENS = 96
_LONGEST_CONTENT = 3600
"""Characters of a document in a prompt."""


@dataclass(frozen=True)
class Counts:
    """How many prompts of each origin; the defaults are those of the shipped drafters."""

    free: int = 16000
    opened: int = 16000
    question: int = 5000
    arithmetic: int = 10000
    summary: int = 3000
    passage: int = 3000
    translation: int = 4000
    code: int = 8000
    train: int = 7473

    def scaled(self, factor: float) -> Counts:
        """All counts times `factor`, at least 1."""
        return Counts(**{name: max(1, round(n * factor)) for name, n in vars(self).items()})

    def only(self, origins: Sequence[str]) -> Counts:
        """The counts of these origins, and 0 of the others."""
        return Counts(**{name: n if name in origins else 0 for name, n in vars(self).items()})


@dataclass
class PromptWriter:
    """Draws prompts from a target. `random` decides what PyTorch's generator does not."""

    model: Llama
    tokenizer: Tokenizer
    random: random.Random
    places: int
    _around: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        text = self.tokenizer.render_chat([{"role": "user", "content": _MARK}])
        before, after = text.split(_MARK)
        self._around = before, after

    def chat(self, content: str) -> list[int]:
        """Token ids of one user turn, as the chat template writes them."""
        before, after = self._around
        return self.tokenizer.encode(before + content + after, add_bos=False)

    def contents(self, counts: Counts, train_file: Path) -> dict[str, list[str]]:
        """User turns by origin; a turn that is cut off or empty is dropped."""
        questions = _gsm8k_questions(train_file)[: counts.train]
        starts = [_first_words(q, self.random.randint(4, 9)) for q in questions]
        documents = self._documents(counts.summary + counts.passage)
        return {
            "train": questions,
            "free": self._turns([""] * counts.free),
            "opened": self._turns(self._draw(openings.REQUESTS, counts.opened)),
            "question": self._turns(self._draw(openings.QUESTIONS, counts.question)),
            "arithmetic": self._turns(self._draw(starts, counts.arithmetic)),
            "summary": [f"Summarize: {text}" for text in documents[: counts.summary]],
            "passage": self._asked_about(documents[counts.summary :]),
            "translation": [
                f"Translate German to English: {text}" for text in self._german(counts.translation)
            ],
            "code": self._turns(self._draw(openings.CODE, counts.code)),
        }

    def _draw(self, texts: Sequence[str], count: int) -> list[str]:
        return [self.random.choice(texts) for _ in range(count)]

    def _write(self, texts: Sequence[str], tokens: int, stops: Sequence[int]) -> list[str]:
        # A space at the end would be a token of its own, after which no word begins with one.
        prompts = [self.tokenizer.encode(text.rstrip(" "), add_bos=False) for text in texts]
        written = generate(
            self.model, prompts, [1.0] * len(prompts), tokens, stops, places=self.places
        )
        return [self.tokenizer.decode(ids) for ids in written]

    def _turns(self, starts: Sequence[str]) -> list[str]:
        before, after = self._around
        end = self.tokenizer.eos_token or after.strip().split("\n")[0]
        found = self._write(
            [before + start for start in starts], _TURN_TOKENS, self.tokenizer.stop_ids
        )
        return [
            start.rstrip(" ") + text.removesuffix(end)
            for start, text in zip(starts, found, strict=True)
            if text.endswith(end) and len(start + text) > len(end) + 4
        ]

    def _documents(self, count: int) -> list[str]:
        start = self.tokenizer.decode([_DOCUMENT_START])
        begun = self._draw(openings.DOCUMENTS, count)
        # Only the document separator ends a document.
        found = self._write([start + text for text in begun], _DOCUMENT_TOKENS, [_DOCUMENT_START])
        whole = [
            text.rstrip(" ") + rest.removesuffix(start)
            for text, rest in zip(begun, found, strict=True)
        ]
        return [text.strip()[: self.random.randint(600, _LONGEST_CONTENT)] for text in whole]

    def _asked_about(self, documents: Sequence[str]) -> list[str]:
        before, _ = self._around
        asked = self._draw(openings.QUESTIONS, len(documents))
        starts = [f"{text}\n{question}" for text, question in zip(documents, asked, strict=True)]
        found = self._write([before + start for start in starts], 24, self.tokenizer.stop_ids)
        return [
            start.rstrip(" ") + text.split("?")[0] + "?"
            for start, text in zip(starts, found, strict=True)
        ]

    def _german(self, count: int) -> list[str]:
        start = self.tokenizer.decode([_DOCUMENT_START])
        begun = self._draw(openings.GERMAN, count)
        found = self._write([start + text for text in begun], 48, self.tokenizer.stop_ids)
        return [
            _first_sentence(text.rstrip(" ") + rest.removesuffix(start))
            for text, rest in zip(begun, found, strict=True)
        ]


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].split("\n")[0]


def _gsm8k_questions(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        return [str(json.loads(line)["question"]) for line in lines]


def _first_words(text: str, count: int) -> str:
    return " ".join(text.split(" ")[:count])

"""Text for a trace that has none: demo prompts behind prose, cut to the trace's lengths."""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from harness.workload.prompt import Message, Tokenizer, as_dicts

# One Japanese character, one word with the space behind it, or white space.
_PIECE = re.compile(r"[\u3000-\u9fff\uff00-\uffef]|[^\s\u3000-\u9fff\uff00-\uffef]+\s*|\s+")
_ATTEMPTS = 8


@dataclass(frozen=True)
class Tail:
    """A demo prompt that may end an assumed one; ``length`` in tokens with the chat template."""

    text: str
    category: str
    length: int


class AssumedText:
    """Writes prompts of given lengths in the tokens of one model."""

    def __init__(
        self, tokenizer: Tokenizer, passages: Sequence[str], prompts: Sequence[tuple[str, str]],
        seed: int,
    ) -> None:  # fmt: skip
        """Args: ``prompts`` are pairs of a category and a text."""
        self._tokenizer = tokenizer
        self._random = random.Random(seed)
        self._tails = sorted(
            (Tail(text, category, self._length(text)) for category, text in prompts),
            key=lambda tail: tail.length,
        )
        self._pieces = _PIECE.findall("\n\n".join(passages) + "\n\n")
        # Tokens of a piece alone: near enough to choose a cut, which is then measured.
        costs = {piece: len(tokenizer.encode(piece)) for piece in set(self._pieces)}
        self._reach = [0, *accumulate(costs[piece] for piece in self._pieces)]

    def write(self, tokens: int) -> tuple[str, str, int]:
        """A prompt as near to ``tokens`` tokens (chat template included) as words allow.

        It is longer than asked only where the chat template and one word are.

        Returns:
            Category, text and its length in tokens.
        """
        fitting = bisect_right(self._tails, tokens, key=lambda tail: tail.length)
        start = self._random.randrange(len(self._pieces))
        if fitting:
            tail = self._tails[self._random.randrange(fitting)]
        else:
            tail = Tail(self._pieces[start], "prose", self._length(self._pieces[start]))
        best, length = tail.text, tail.length
        budget, cut_before = tokens - length, -1
        for _ in range(_ATTEMPTS):
            prose, cost = self._cut(start, budget)
            if cost in (0, cut_before):
                break
            text = f"{prose.rstrip()}\n\n{tail.text}"
            reached = self._length(text)
            if length < reached <= tokens:
                best, length = text, reached
            budget, cut_before = cost + tokens - reached, cost
        return tail.category, best, length

    def _length(self, text: str) -> int:
        messages = as_dicts([Message("user", text)])
        return len(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True))

    def _cut(self, start: int, tokens: int) -> tuple[str, int]:
        """Prose of at most about ``tokens`` tokens from a piece on, and its tokens as estimated.

        Behind the last piece comes the first one again.
        """
        if tokens <= 0:
            return "", 0
        laps, end = divmod(self._reach[start] + tokens, self._reach[-1])
        stop = bisect_right(self._reach, end) - 1
        pieces = self._pieces * (laps + 1)
        cost = laps * self._reach[-1] + self._reach[stop] - self._reach[start]
        return "".join(pieces[start : stop + laps * len(self._pieces)]), cost

"""Fixed context lengths: real text from the workload's pool before each prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from harness.workload.errors import Problems
from harness.workload.prompt import Prompt, Tokenizer
from harness.workload.request_file import json_lines, read_bytes

POOL_KEYS = ("id", "language", "text")


@dataclass(frozen=True)
class Pool:
    """Tokenized prose that fills contexts; ``separator`` stands between it and the prompt."""

    token_ids: tuple[int, ...]
    separator: tuple[int, ...]

    def fill(self, prompt: Prompt, length: int, start: int) -> Prompt:
        """The prompt with pool text before it, ``length`` tokens in all.

        Args:
            prompt: at most ``length`` tokens long.
            length: tokens that the result has, exactly.
            start: index in the pool where its text starts; a pool that is too short repeats.

        Raises:
            ValueError: the prompt is longer than ``length``.
        """
        missing = length - len(prompt.token_ids)
        if missing < 0:
            raise ValueError(f"prompt {prompt.id!r} is longer than {length} tokens")
        separator = self.separator if missing > len(self.separator) else ()
        size = len(self.token_ids)
        body = tuple(self.token_ids[(start + k) % size] for k in range(missing - len(separator)))
        head, rest = prompt.token_ids[: prompt.fill_at], prompt.token_ids[prompt.fill_at :]
        return replace(prompt, token_ids=head + body + separator + rest)


def read_passages(path: Path, shown: str) -> list[str]:
    """The texts of a pool file: JSON lines with ``text`` and optional ``id`` and ``language``.

    Raises:
        WorkloadError: the file is missing or empty, or has problems (all named with their lines).
    """
    problems = Problems(shown)
    passages = []
    for line, row in json_lines(read_bytes(path, shown), problems):
        text = row.get("text")
        unknown = sorted(set(row) - set(POOL_KEYS))
        if unknown:
            problems.add(
                line,
                f"has the unknown key {unknown[0]!r}. A line of a pool has text and "
                "may have id and language.",
            )
        if not isinstance(text, str) or not text.strip():
            problems.add(line, "must have a text that is not empty.")
            continue
        passages.append(text.strip())
    if not passages and not len(problems):
        problems.add(None, "is empty. A pool needs at least one line with text.")
    problems.raise_if_any()
    return passages


def tokenize_pool(passages: list[str], tokenizer: Tokenizer) -> Pool:
    """Joins passages with an empty line between them, the last before the first included."""
    separator = tokenizer.encode("\n\n")
    token_ids: list[int] = []
    for passage in passages:
        token_ids += [*tokenizer.encode(passage), *separator]
    return Pool(tuple(token_ids), tuple(separator))

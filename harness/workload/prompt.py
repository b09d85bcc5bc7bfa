"""What a workload is made of: requests as written in a file, prompts as a worker gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Tokenizer(Protocol):
    """What a workload needs of a model's tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, with no special token added."""
        ...

    def apply_chat_template(
        self, messages: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of a conversation, ending where the assistant's answer starts."""
        ...


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True)
class Request:
    """One line of a workload file, checked but not tokenized.

    Exactly one of ``text``, ``messages`` and ``token_ids`` is set. ``line`` counts from 1.
    ``max_new_tokens`` is None where the workload's default applies. ``arrival_s`` are seconds
    from the start of the traffic. ``answer`` is the reference that answers are graded by.
    """

    id: str
    line: int
    text: str | None = None
    messages: tuple[Message, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    max_new_tokens: int | None = None
    arrival_s: float | None = None
    category: str = "all"
    language: str | None = None
    text_assumed: bool = False
    answer: str | None = None


@dataclass(frozen=True)
class Prompt:
    """One prompt as a worker gets it.

    ``fill_at`` is the index in ``token_ids`` where pool text goes for a fixed context length:
    the start of the first user turn's content, so that what the chat template puts first (a
    start token, a system turn) stays first. It is 0 for raw text and token ids. ``answer`` is
    the reference that the model's answer is graded by, None where there is none.
    """

    id: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    arrival_s: float | None = None
    category: str = "all"
    fill_at: int = 0
    answer: str | None = None


def as_dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The form in which chat templates take messages."""
    return [{"role": message.role, "content": message.content} for message in messages]

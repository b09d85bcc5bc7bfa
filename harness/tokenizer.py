"""A packed model's tokenizer as workloads use it: no special token unless a template writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from backends.tokenizer import Tokenizer as PackedTokenizer


class Tokenizer:
    """Text and conversations to token ids.

    `metadata` is the packed file's. It is looked into when text comes, so that a workload of token
    ids needs no tokenizer. Methods raise TokenizerError, a ValueError, where there is none.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    @cached_property
    def _packed(self) -> PackedTokenizer:
        return PackedTokenizer(self._metadata)

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, with no special token added."""
        return self._packed.encode(text, add_bos=False)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of token ids."""
        return self._packed.decode(ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self, messages: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of a conversation, ending where the assistant's answer starts."""
        return self._packed.apply_chat_template(messages, add_generation_prompt)

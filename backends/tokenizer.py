"""Text to token ids and back, with the tokenizer and chat template of a packed file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from backends.pack.packed import PackedFile


class TokenizerError(ValueError):
    """Text or messages that cannot be turned into tokens. The message says why."""


class Tokenizer:
    """The tokenizer of a packed model.

    `stop_ids` end an answer; `bos_token` and `eos_token` are texts or None.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """Take the entries of a packed file's metadata. Raises TokenizerError where it has none."""
        text = metadata.get("tokenizer")
        if text is None:
            raise TokenizerError(
                f"The model {metadata.get('name')!r} has no tokenizer. Give prompts as token_ids."
            )
        self._tokenizer = tokenizers.Tokenizer.from_str(text)
        self._template = metadata.get("chat_template")
        self.bos_token: str | None = metadata.get("bos_token")
        self.eos_token: str | None = metadata.get("eos_token")
        self.stop_ids: list[int] = list(metadata.get("stop_ids") or [])

    @classmethod
    def from_packed(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of the packed file `path`."""
        return cls(PackedFile(path).metadata)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special ones included."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str, *, add_bos: bool = True) -> list[int]:
        """Token ids of `text`. Special tokens written in it become their ids.

        Characters that the vocabulary cannot spell (rare control characters) are dropped.

        `add_bos` puts the beginning-of-text token first where the model was trained with one.
        """
        return self._tokenizer.encode(text, add_special_tokens=add_bos).ids

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of a conversation, by default up to where the assistant's answer begins.

        The template writes all special tokens itself, so that none is added a second time. Raises
        as `render_chat` does.
        """
        return self.encode(self.render_chat(messages, add_generation_prompt), add_bos=False)

    def render_chat(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The chat template's text for `messages`, each with `role` and `content`.

        Raises TokenizerError where the model has no template, a message lacks a key, or the
        template refuses the messages.
        """
        if self._template is None:
            raise TokenizerError("This model has no chat template. Give plain prompts.")
        for index, message in enumerate(messages):
            for key in ("role", "content"):
                if not isinstance(message.get(key), str):
                    raise TokenizerError(f"Message {index} has no text under {key!r}.")
        # A template is code from a foreign file: the sandbox keeps it from everything but text.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        try:
            return environment.from_string(self._template).render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                bos_token=self.bos_token or "",
                eos_token=self.eos_token or "",
            )
        except TemplateError as error:
            raise TokenizerError(f"The chat template refused the messages: {error}.") from error

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of `ids`; bytes that are no whole character become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)


def _refuse(message: str) -> None:
    raise TemplateError(message)

"""The tokenizer in a packed model file, with the model's chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as FastTokenizer

from harness.errors import ConfigError


class Tokenizer:
    """Text and conversations to token ids, as the model was trained to read them.

    `metadata` is the packed file's: `tokenizer` (the text of a tokenizer.json), `chat_template`
    (Jinja or null), `bos_token` and `eos_token`.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        text = metadata.get("tokenizer")
        if not text:
            raise ConfigError(
                f"The model {metadata.get('name')} holds no tokenizer; pack it again with one."
            )
        self._tokenizer = FastTokenizer.from_str(text)
        # Templates come from model files, so they run without access to anything but their input.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        template = metadata.get("chat_template")
        self._template = environment.from_string(template) if template else None
        self._special = {key: metadata.get(key) or "" for key in ("bos_token", "eos_token")}

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, with no special token added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def apply_chat_template(
        self, messages: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of a conversation, ending where the assistant's answer starts.

        The template writes the start token where the model wants one, so none is added. Raises
        ValueError where the model has no template or the template refuses the conversation.
        """
        if self._template is None:
            raise ValueError(
                "the model has no chat template; set workload.prompt_is=raw and give texts"
            )
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=add_generation_prompt, **self._special
            )
        except TemplateError as error:
            raise ValueError(f"the model's chat template refuses it: {error}") from error
        return self.encode(text)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)

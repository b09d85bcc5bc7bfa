"""The tokenizer beside a Hugging Face checkpoint, with its chat template and stop tokens."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from backends.pack.checkpoint import Checkpoint
from backends.pack.errors import CheckpointError


def tokenizer_metadata(checkpoint: Checkpoint, vocab_size: int) -> dict[str, Any]:
    """The packed file's entries `tokenizer, chat_template, bos_token, eos_token, stop_ids`.

    `tokenizer` is null without tokenizer.json: such a model takes token ids. Raises CheckpointError
    where the tokenizer is damaged, has ids beyond the vocabulary or lacks a token that is named.
    """
    settings = checkpoint.optional_json("tokenizer_config.json") or {}
    text = checkpoint.optional_text("tokenizer.json")
    if text is not None:
        _check(checkpoint, text, vocab_size)
    return {
        "tokenizer": text,
        "chat_template": _chat_template(checkpoint, settings),
        "bos_token": _token(settings, "bos_token"),
        "eos_token": _token(settings, "eos_token"),
        "stop_ids": _stop_ids(checkpoint, vocab_size),
    }


def _check(checkpoint: Checkpoint, text: str, vocab_size: int) -> None:
    path = checkpoint.folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises nothing narrower
        raise CheckpointError(path, f"it is no tokenizer ({error}).") from error
    token, largest = max(
        tokenizer.get_vocab(with_added_tokens=True).items(),
        key=lambda item: item[1],
        default=("", -1),
    )
    if largest >= vocab_size:
        raise CheckpointError(
            path,
            f"its token {token!r} has the id {largest}, but the model's vocabulary has "
            f"{vocab_size} tokens: the tokenizer belongs to another model.",
        )


def _chat_template(checkpoint: Checkpoint, settings: dict[str, Any]) -> str | None:
    """The template of its own file, else the one in tokenizer_config.json ('default' of many)."""
    own = checkpoint.optional_text("chat_template.jinja")
    if own is not None:
        return own
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _token(settings: dict[str, Any], name: str) -> str | None:
    """A token's text; it may stand there with its properties."""
    value = settings.get(name)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _stop_ids(checkpoint: Checkpoint, vocab_size: int) -> list[int]:
    """`eos_token_id` of generation_config.json and config.json, one id or a list each."""
    found: set[int] = set()
    generation = checkpoint.optional_json("generation_config.json") or {}
    for file, table in (("generation_config.json", generation), ("config.json", checkpoint.config)):
        value = table.get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if token is None:
                continue
            if type(token) is not int or not 0 <= token < vocab_size:
                raise CheckpointError(
                    checkpoint.folder / file,
                    f"its eos_token_id {token!r} is no token of a vocabulary of {vocab_size}.",
                )
            found.add(token)
    return sorted(found)

"""Turns checked requests into prompts of token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.workload.errors import Problems
from harness.workload.prompt import Message, Prompt, Request, Tokenizer, as_dicts
from harness.workload.settings import Settings

# Two contents without a common first character: what two conversations that differ in nothing
# else have in common is what the template puts before the first user turn's content.
_PROBES = ("Alpha", "Zulu")


def tokenize(
    requests: Sequence[Request],
    settings: Settings,
    tokenizer: Tokenizer,
    model_info: Mapping[str, Any],
) -> list[Prompt]:
    """Tokenizes a workload's requests for a model.

    Args:
        requests: of one file.
        settings: the workload's.
        tokenizer: the model's.
        model_info: ``max_position`` and ``vocab_size`` of the model.

    Raises:
        WorkloadError: a token id outside the vocabulary, a prompt of no tokens, one that does not
            fit the model's context together with its output, or a conversation that the model's
            chat template refuses; all of them, with file and line.
    """
    problems = Problems(settings.path)
    heads = _TemplateHeads(tokenizer)
    prompts = []
    for request in requests:
        try:
            token_ids, fill_at = _token_ids(request, settings, tokenizer, heads)
        except (ValueError, KeyError, TypeError) as error:
            problems.add(request.line, f"the prompt {request.id!r} cannot be tokenized: {error}")
            continue
        prompt = Prompt(
            id=request.id,
            token_ids=token_ids,
            max_new_tokens=request.max_new_tokens or settings.max_new_tokens,
            arrival_s=request.arrival_s,
            category=request.category,
            fill_at=fill_at,
            answer=request.answer,
        )
        text = _refusal(prompt, int(model_info["vocab_size"]), int(model_info["max_position"]))
        if text:
            problems.add(request.line, text)
        prompts.append(prompt)
    problems.raise_if_any()
    return prompts


def _token_ids(
    request: Request, settings: Settings, tokenizer: Tokenizer, heads: _TemplateHeads
) -> tuple[tuple[int, ...], int]:
    """Token ids, and the index where pool text goes."""
    if request.token_ids is not None:
        return request.token_ids, 0
    messages = request.messages
    if messages is None:
        assert request.text is not None
        if settings.prompt_is == "raw":
            return tuple(tokenizer.encode(request.text)), 0
        messages = (Message("user", request.text),)
    ids = tuple(tokenizer.apply_chat_template(as_dicts(messages), add_generation_prompt=True))
    return ids, _common_length(ids, heads.before_content(messages))


def _refusal(prompt: Prompt, vocab_size: int, max_position: int) -> str | None:
    """Why the model cannot take a prompt, or None."""
    length = len(prompt.token_ids)
    if not length:
        return f"the prompt {prompt.id!r} has no tokens."
    outside = next((i for i, t in enumerate(prompt.token_ids) if not 0 <= t < vocab_size), None)
    if outside is not None:
        return (
            f"token_ids[{outside}] of {prompt.id!r} is {prompt.token_ids[outside]}, outside "
            f"the model's vocabulary of {vocab_size} tokens (0 to {vocab_size - 1})."
        )
    if length + prompt.max_new_tokens > max_position:
        return (
            f"the prompt {prompt.id!r} has {length} tokens and asks for "
            f"{prompt.max_new_tokens} new ones, {length + prompt.max_new_tokens} in all; the "
            f"model's context is {max_position}. Shorten it or lower max_new_tokens."
        )
    return None


class _TemplateHeads:
    """Token ids that a chat template puts before the first user turn's content, cached."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[tuple[Message, ...], tuple[int, ...]] = {}

    def before_content(self, messages: Sequence[Message]) -> tuple[int, ...]:
        first = next(i for i, message in enumerate(messages) if message.role == "user")
        before = tuple(messages[:first])
        if before not in self._known:
            probes = [
                self._tokenizer.apply_chat_template(
                    as_dicts((*before, Message("user", probe))), add_generation_prompt=True
                )
                for probe in _PROBES
            ]
            self._known[before] = tuple(probes[0][: _common_length(*probes)])
        return self._known[before]


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))

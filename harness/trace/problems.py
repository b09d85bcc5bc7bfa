"""The problems of a run as prompts of token ids, and those that the model cannot take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from backends.tokenizer import Tokenizer, TokenizerError
from harness import gsm8k, gsm8k_prompts
from harness.errors import ConfigError
from harness.gsm8k import Problem
from harness.model_file import ModelFile
from harness.trace.settings import Settings


@dataclass(frozen=True)
class Task:
    """One problem to be answered; `text_sha256` is over the prompt before any chat template."""

    problem: Problem
    tokens: tuple[int, ...]
    text_sha256: str


@dataclass(frozen=True)
class Tasks:
    """What is run, what does not fit the model's context (ids), and what makes two runs alike.

    `content_hash` covers the form, every problem of the file and the limits of an answer, and not
    how many problems are run: a run of more goes on with the answers of a run of fewer.
    """

    tasks: tuple[Task, ...]
    left_out: tuple[str, ...]
    content_hash: str


def read(settings: Settings, model: ModelFile, tokenizer: Tokenizer) -> Tasks:
    """Read the data set and make the prompts. Raises ConfigError."""
    form = settings.form
    test = gsm8k.read("test", settings.data_root)
    train = gsm8k.read("train", settings.data_root) if form.examples else []
    chosen = test if settings.limit is None else test[: settings.limit]
    room = model.max_position - settings.max_new_tokens - settings.gamma
    tasks, left_out = [], []
    for problem in chosen:
        text = gsm8k_prompts.text_of(form, problem, train)
        tokens = _tokens(settings, text, tokenizer)
        if len(tokens) > room:
            left_out.append(problem.id)
        else:
            tasks.append(Task(problem, tokens, gsm8k_prompts.sha256(text)))
    if not tasks:
        raise ConfigError(
            f"agreement.prompt={form.name}: no prompt fits the context of {model.max_position} "
            f"tokens together with {settings.max_new_tokens} new ones. Lower "
            "agreement.max_new_tokens or choose a shorter form."
        )
    return Tasks(tuple(tasks), tuple(left_out), _hash(settings, test, train))


def _tokens(settings: Settings, text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    form = settings.form
    try:
        tokens = gsm8k_prompts.token_ids(form, text, tokenizer)
    except TokenizerError as error:
        raise ConfigError(f"agreement.prompt={form.name}: {error}") from error
    if tokenizer.bos_token is not None:
        bos = tokenizer.encode(tokenizer.bos_token, add_bos=False)
        if len(bos) == 1 and tokens[:2] == bos * 2:
            raise ConfigError(
                f"agreement.prompt={form.name}: the prompt begins with the token "
                f"{tokenizer.bos_token!r} twice. The chat template and the tokenizer of this model "
                "both add it; pack it again with only one of them doing so."
            )
    return tuple(tokens)


def _hash(settings: Settings, test: Sequence[Problem], train: Sequence[Problem]) -> str:
    form = settings.form
    content = {
        "form": [form.name, form.chat, form.examples, form.shown_as, form.stops],
        "max_new_tokens": settings.max_new_tokens,
        "test": [[p.question, p.answer] for p in test],
        "prompt": gsm8k_prompts.sha256(gsm8k_prompts.text_of(form, test[0], train)),
    }
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()

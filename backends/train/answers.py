"""The target's answers to its prompts: what drafters learn to foresee."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from backends.train.dialogues import LONGEST_ANSWER, Dialogues
from backends.train.generate import generate
from backends.train.prompts import PromptWriter

_SAMPLED_SHARE = 0.25
_SAMPLED_AT = (0.5, 0.7, 1.0)
_TRAIN_TEMPERATURES = (0.0, 0.4, 0.7, 1.0)
"""A question of GSM8K's train file is answered once at each."""


def write_answers(
    writer: PromptWriter, contents: Mapping[str, Sequence[str]], longest_prompt: int
) -> Dialogues:
    """One dialogue a prompt (four for train questions), most answers greedy, the others sampled.

    Prompts of more than `longest_prompt` tokens are dropped.
    """
    prompts: list[list[int]] = []
    temperatures: list[float] = []
    origins: list[str] = []
    for origin, texts in contents.items():
        for text in texts:
            ids = writer.chat(text)
            if len(ids) > longest_prompt:
                continue
            chosen = _TRAIN_TEMPERATURES if origin == "train" else (_temperature(writer.random),)
            prompts += [ids] * len(chosen)
            temperatures += chosen
            origins += [origin] * len(chosen)
    answers = generate(
        writer.model,
        prompts,
        temperatures,
        LONGEST_ANSWER,
        writer.tokenizer.stop_ids,
        places=writer.places,
    )
    return Dialogues.of(prompts, answers, origins)


def _temperature(draw: random.Random) -> float:
    return draw.choice(_SAMPLED_AT) if draw.random() < _SAMPLED_SHARE else 0.0

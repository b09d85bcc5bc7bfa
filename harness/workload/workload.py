"""A workload: the prompts of a run, what they were made from, and the draws of its trials."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from harness.workload.context import Pool, read_passages, tokenize_pool
from harness.workload.datasets import read_dataset, with_data
from harness.workload.draw import Draw, DrawSequence, GroupDraw, LeftOut
from harness.workload.errors import WorkloadError
from harness.workload.prompt import Prompt, Request, Tokenizer
from harness.workload.settings import (
    CONF_PREFIX,
    ContextLength,
    Settings,
    read_settings,
)
from harness.workload.tokenization import tokenize

NAMED_IDS = 5


class Workload:
    """Prompts for one model.

    Attributes:
        name: the workload's name.
        prompts: all of them, in the file's order.
        stop_ids: token ids that end a request.
        source: for records: path, count, text_assumed, categories and what else says where the
            prompts come from.
        content_hash: sha256 over everything that decides which tokens a worker gets.
    """

    def __init__(
        self,
        settings: Settings,
        prompts: Sequence[Prompt],
        pool: Pool | None,
        stop_ids: tuple[int, ...],
        max_position: int,
        source: dict[str, Any],
    ) -> None:
        self.name = settings.name
        self.prompts = tuple(prompts)
        self.stop_ids = stop_ids
        self.source = source
        self._pool = pool
        self._max_position = max_position
        self._sequences: dict[tuple[int, tuple[GroupDraw, ...]], DrawSequence] = {}
        self.content_hash = self._hash()

    def draw(
        self,
        block: int,
        count: int,
        context_length: ContextLength,
        seed: int,
        group_index: int = 0,
        groups: int | Sequence[GroupDraw] = 1,
    ) -> Draw:
        """The prompts of one block of one group.

        Args:
            block: counted from 0.
            count: prompts wanted; a workload that has fewer gives those that it has, each once.
            context_length: ``natural``, or the tokens that every prompt is filled up to.
            seed: of the run.
            group_index: the group's place among ``groups``.
            groups: what every group of the run takes, in order. With it all groups share one
                sequence, so that all prompts are used once all groups together took that many.
                A number stands for that many groups like this one.

        Returns:
            A function of the arguments alone, whatever was drawn before.

        Raises:
            ValueError: an argument out of range, or a group that differs from its entry in groups.
            WorkloadError: a fixed context length, and the workload has no pool.
        """
        this = GroupDraw(count, context_length)
        spec = (this,) * groups if isinstance(groups, int) else tuple(GroupDraw(*g) for g in groups)
        if block < 0 or count < 1 or not 0 <= group_index < len(spec):
            raise ValueError(
                f"no draw for block {block}, count {count}, group {group_index} of {len(spec)}"
            )
        if spec[group_index] != this:
            raise ValueError(f"group {group_index} draws {spec[group_index]}, not {this}")
        if (seed, spec) not in self._sequences:
            fits = [[self._misfit(p, g.context_length) is None for p in self.prompts] for g in spec]
            self._sequences[seed, spec] = DrawSequence(self.prompts, spec, fits, seed)
        indices = self._sequences[seed, spec].indices(group_index, block)
        left_out = self._left_out(context_length)
        if context_length == "natural":
            return Draw(tuple(self.prompts[i] for i in indices), left_out)
        return self._fixed(indices, context_length, left_out)

    def _fixed(self, indices: Sequence[int], length: int, left_out: LeftOut) -> Draw:
        pool = self._pool
        if pool is None:
            raise WorkloadError(
                f"The context length {length} needs text to fill up prompts with, and the workload "
                f"{self.name} has none. Give workload.pool_path=FILE."
            )
        size = len(pool.token_ids)
        prompts = tuple(
            # Each prompt starts elsewhere in the pool, so that no two share a long prefix.
            pool.fill(self.prompts[i], length, start=i * size // len(self.prompts))
            for i in indices
        )
        repeats = any(length - len(self.prompts[i].token_ids) > size for i in indices)
        return Draw(prompts, left_out, pool_repeats=repeats)

    def _misfit(self, prompt: Prompt, context_length: ContextLength) -> str | None:
        """Why a group of this context length cannot take a prompt, or None."""
        if context_length == "natural":
            return None
        if len(prompt.token_ids) > context_length:
            return f"longer than {context_length} tokens"
        if context_length + prompt.max_new_tokens > self._max_position:
            return (
                f"{context_length} tokens and the new ones pass the model's context of "
                f"{self._max_position}"
            )
        return None

    def _left_out(self, context_length: ContextLength) -> LeftOut:
        by_reason: dict[str, list[str]] = {}
        for prompt in self.prompts:
            reason = self._misfit(prompt, context_length)
            if reason:
                by_reason.setdefault(reason, []).append(prompt.id)
        if not by_reason:
            return {"count": 0, "reason": None}
        texts = [f"{reason}: {_named(ids)}" for reason, ids in by_reason.items()]
        return {"count": sum(map(len, by_reason.values())), "reason": "; ".join(texts)}

    def _hash(self) -> str:
        content = {
            "prompts": [
                [p.id, p.token_ids, p.max_new_tokens, p.arrival_s, p.category, p.fill_at]
                for p in self.prompts
            ],
            "pool": [self._pool.token_ids, self._pool.separator] if self._pool else None,
            "stop_ids": self.stop_ids,
        }
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def load(
    config: Mapping[str, Any], tokenizer: Tokenizer, model_info: Mapping[str, Any]
) -> Workload:
    """Loads a workload for a model.

    Args:
        config: the `workload` group of the configuration (docs/workloads.md has its keys).
        tokenizer: the model's.
        model_info: ``max_position``, ``vocab_size`` and, where the model has any, ``stop_ids``.

    Raises:
        WorkloadError: a setting or a file cannot be used. All problems of a file are in one
            message, each with its line.
    """
    settings = with_data(read_settings(config))
    requests = read_dataset(settings)
    prompts = tokenize(requests, settings, tokenizer, model_info)
    pool = None
    if settings.pool_path is not None:
        passages = read_passages(settings.resolve(settings.pool_path), settings.pool_path)
        pool = tokenize_pool(passages, tokenizer)
    model_stops = model_info.get("stop_ids") or () if settings.stop_at_model else ()
    stop_ids = tuple(dict.fromkeys([*(int(token) for token in model_stops), *settings.stop_ids]))
    vocab_size = int(model_info["vocab_size"])
    if any(token >= vocab_size for token in settings.stop_ids):
        raise WorkloadError(f"workload.stop.ids has a token outside the {vocab_size} of the model.")
    return Workload(
        settings,
        prompts,
        pool,
        stop_ids,
        int(model_info["max_position"]),
        _source(settings, requests, prompts),
    )


def _source(
    settings: Settings, requests: Sequence[Request], prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """Where the prompts come from."""
    lengths = sorted(len(prompt.token_ids) for prompt in prompts)
    marked = settings.is_demo or any(request.text_assumed for request in requests)
    if marked and settings.text_assumed is False:
        raise WorkloadError(
            f"workload.text_assumed=false contradicts {settings.path}, whose text is assumed: it "
            "comes with this project or its lines say text_assumed. Use your own prompts."
        )
    assumed = marked or settings.text_assumed is True
    pool_path = settings.pool_path
    return {
        "path": settings.path,
        "format": settings.format,
        "count": len(prompts),
        "text_assumed": assumed,
        "pool_path": pool_path,
        "pool_text_assumed": assumed or (pool_path or "").startswith(CONF_PREFIX),
        "categories": dict(sorted(Counter(prompt.category for prompt in prompts).items())),
        "languages": dict(sorted(Counter(r.language or "unknown" for r in requests).items())),
        "prompt_tokens": {"min": lengths[0], "median": median(lengths), "max": lengths[-1]},
        "instead_of": settings.instead_of,
        "fitted": None if settings.fitted is None else dict(settings.fitted),
    }


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED_IDS} more" if len(ids) > NAMED_IDS else ""
    return ", ".join(ids[:NAMED_IDS]) + more

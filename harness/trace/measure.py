"""Runs the problems: the target answers them, and both precisions are compared on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from backends.tokenizer import Tokenizer
from harness import gsm8k_answers, gsm8k_prompts
from harness.trace.columns import (
    FIXED_PREFIX,
    ONLINE,
    fixed_prefix_rows,
    online_rows,
    without_rounds_after,
)
from harness.trace.problems import Task
from harness.trace.settings import Settings
from harness.trace.store import TraceStore
from harness.trial import tokens_sha256
from harness.workers import LoadedWorker

Watch = Callable[[int], None]
"""Told how many more problems are done."""


@dataclass(frozen=True)
class Measurement:
    """A loaded worker, and where its traces go."""

    settings: Settings
    loaded: LoadedWorker
    tokenizer: Tokenizer
    store: TraceStore

    def run(self, tasks: Sequence[Task], watch: Watch) -> None:
        """Answer `tasks` part by part. Raises WorkerFailure; finished parts are kept."""
        for begin in range(0, len(tasks), self.settings.part):
            part = tasks[begin : begin + self.settings.part]
            self._part(part)
            watch(len(part))

    def _part(self, tasks: Sequence[Task]) -> None:
        settings = self.settings
        requests = [task.problem.index for task in tasks]
        scratch = self.store.scratch()
        answer = self._decode(tasks, str(scratch))
        outputs = [request["tokens"] for request in answer["requests"]]
        stops = settings.form.stops
        lengths = [gsm8k_prompts.answer_length(tokens, stops, self.tokenizer) for tokens in outputs]
        tables: list[pd.DataFrame] = []
        if ONLINE in settings.modes:
            rows = online_rows(scratch, requests, self.tokenizer.decode, settings.threshold)
            ends = dict(zip(requests, lengths, strict=True))
            tables.append(without_rounds_after(rows, ends))
            scratch.unlink()
        if FIXED_PREFIX in settings.modes:
            kept = [tokens[:length] for tokens, length in zip(outputs, lengths, strict=True)]
            tables += self._fixed_prefix(tasks, kept)
        entries = [
            self._entry(task, request, length)
            for task, request, length in zip(tasks, answer["requests"], lengths, strict=True)
        ]
        self.store.add(pd.concat(tables, ignore_index=True), entries)

    def _decode(self, tasks: Sequence[Task], path: str) -> dict[str, Any]:
        settings = self.settings
        traced = ONLINE in settings.modes
        return self.loaded.worker.call(
            "run",
            timeout_s=settings.timeout_s,
            method=settings.method(),
            prompts=[list(task.tokens) for task in tasks],
            arrivals=None,
            batch_size=settings.batch_size,
            max_new_tokens=settings.max_new_tokens,
            stop_ids=self.tokenizer.stop_ids,
            sampling=None,
            share_prefill=False,
            trace="tokens" if traced else "rounds",
            **({"trace_path": path} if traced else {}),
        )

    def _fixed_prefix(
        self, tasks: Sequence[Task], answers: Sequence[Sequence[int]]
    ) -> Iterator[pd.DataFrame]:
        """Teacher-force the draft's precision over prompts and answers."""
        texts = [[*task.tokens, *answer] for task, answer in zip(tasks, answers, strict=True)]
        columns = self._score(texts, self.settings.draft, self.settings.target)
        for task, answer, text, scores in zip(tasks, answers, texts, columns, strict=True):
            begin = len(task.tokens)
            yield fixed_prefix_rows(
                task.problem.index,
                begin,
                answer,
                scores,
                self._target_top1(text, begin, scores),
                self.tokenizer.decode,
                self.settings.threshold,
            )

    def _target_top1(
        self, text: list[int], begin: int, scores: Mapping[str, Any]
    ) -> Sequence[float]:
        """Log-probability of the target's top-1 token at each position of a text.

        A greedy answer consists of the target's top-1 tokens, so that it is the given token's. Only
        where an engine's score parts from its own decoding is the target asked once more.
        """
        if list(scores["ref_top1"][begin - 1 :]) == text[begin:]:
            own: Sequence[float] = scores["ref_logprob"]
            return own
        again: Sequence[float] = self._score([text], self.settings.target, None)[0]["top1_logprob"]
        return again

    def _score(
        self, texts: list[list[int]], precision: str, reference: str | None
    ) -> list[dict[str, Any]]:
        answer = self.loaded.worker.call(
            "score",
            timeout_s=self.settings.timeout_s,
            sequences=texts,
            precision=precision,
            reference=reference,
        )
        columns: list[dict[str, Any]] = answer["sequences"]
        return columns

    def _entry(self, task: Task, request: Mapping[str, Any], length: int) -> dict[str, Any]:
        """What is kept of an answer beside its trace."""
        problem, form = task.problem, self.settings.form
        tokens = request["tokens"]
        text = gsm8k_prompts.answer_text(tokens, form.stops, self.tokenizer)
        graded = gsm8k_answers.grade(text, problem.answer, form.shown_as)
        stopped = length < len(tokens)
        return {
            "request": problem.index,
            "id": problem.id,
            "category": f"{problem.steps}" if problem.steps else None,
            "prompt_sha256": task.text_sha256,
            "prompt_tokens_sha256": tokens_sha256(task.tokens),
            "prompt_tokens": len(task.tokens),
            "output_tokens": length,
            "tokens_sha256": tokens_sha256(tokens[:length]),
            "finish": "stop_text" if stopped else request["finish"],
            "text": text,
            "strict": graded.strict,
            "flexible": graded.flexible,
        }

"""Decoding a `run` with an engine that schedules its own batch, one step at a time.

The engine is given as many prompts as the run has slots. A step that gives a sequence its first
token is that sequence's prefill; a step that extends any sequence is a round. vLLM does not tell
drafting and verifying apart, so that a round's time stands whole under `verify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backends.decoding import RunLedger
from backends.protocol import RunAnswer, RunRequest


@dataclass(frozen=True)
class Start:
    """A request that is to start: its number in the run, prompt, and the most tokens wanted."""

    index: int
    prompt: Sequence[int]
    most: int


@dataclass(frozen=True)
class Step:
    """What a step gave: new tokens by request, and the drafted tokens of the whole batch."""

    tokens: dict[int, list[int]]
    drafted: int


class Stepping(Protocol):
    """An engine with requests in flight."""

    def add(self, starts: Sequence[Start], stop_ids: Sequence[int]) -> None:
        """Put requests into the engine's queue; what starts together is prefilled together."""

    def step(self) -> Step:
        """Compute one step; requests end by themselves."""


def decode_stepping(request: RunRequest, engine: Stepping) -> RunAnswer:
    """Serve a greedy `run` with `engine`.

    Accepted tokens are a sequence's new tokens but the last. Drafted tokens are known for the whole
    batch: each sequence counts its accepted ones and an equal share of the rest, so that sums are
    exact and a sequence's own number, at batch sizes above 1, is not.
    """
    run = RunLedger(request)
    active: set[int] = set()
    depth = int(request["method"]["shape"].get("gamma", 0))
    while run.waiting() or active:
        starts: list[Start] = []
        while len(active) < request["batch_size"] and run.may_start(wait=not active):
            index = run.start()
            starts.append(Start(index, request["prompts"][index], request["max_new_tokens"][index]))
            active.add(index)
        if starts:
            engine.add(starts, request["stop_ids"])
        started = run.now()
        step = engine.step()
        ended = run.now()
        going_on = {i: tokens for i, tokens in step.tokens.items() if run.results[i]["tokens"]}
        for index, tokens in step.tokens.items():
            if index not in going_on:
                run.first_token(index, tokens[0])
                if tokens[1:] and not run.results[index]["finish"]:
                    going_on[index] = tokens[1:]
        if going_on:
            drafted = _spread(
                step.drafted, [len(tokens) - 1 for tokens in going_on.values()], depth
            )
            for (index, tokens), count in zip(going_on.items(), drafted):  # noqa: B905
                run.commit(index, tokens, drafted=count, ended=ended)
            run.finish_round(started, started, ended, len(going_on) + step.drafted, len(going_on))
        active = {index for index in active if not run.results[index]["finish"]}
    return run.answer()


def _spread(drafted: int, accepted: Sequence[int], depth: int) -> list[int]:
    """Drafted tokens of each sequence: at least its accepted ones, at most `depth`."""
    counts = list(accepted)
    rest = max(0, drafted - sum(counts))
    while rest > 0 and min(counts) < depth:
        least = counts.index(min(counts))
        counts[least] += 1
        rest -= 1
    return counts

"""Loaded workers for benchmarks, and the two rates that are asked of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends import registry
from backends.client import Worker
from harness.curve_figures import median_interval

LEVEL = 0.95
PROMPT_TOKENS = 32
TIMEOUT_S = 600.0
NONE: Mapping[str, Any] = {"kind": "none"}
"""The drafter and the shape of plain decoding."""
_SEED = 0


@dataclass(frozen=True)
class Engine:
    """A worker's command line, environment and the precision that is asked of it."""

    name: str
    precision: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_backend(cls, name: str, precision: str) -> Engine:
        """The engine as conf/backend/<name>.yaml starts it."""
        backend = registry.backend(name)
        return cls(name, precision, backend.command, backend.env)


@dataclass(frozen=True)
class Loaded:
    """An engine with its model in memory."""

    engine: Engine
    worker: Worker
    hello: Mapping[str, Any]
    vocabulary: int

    def decode_rate(self, batch: int, new_tokens: int) -> float:
        """Tokens a second of `batch` parallel sequences, prefill and first tokens left out."""
        answer = self._run(self._prompts(batch, PROMPT_TOKENS), new_tokens)
        tokens = sum(request["output_tokens"] - 1 for request in answer["requests"])
        return float(tokens / answer["decode_s"])

    def prefill_rate(self, tokens: int) -> float:
        """Prompt tokens a second of one prompt of `tokens`."""
        answer = self._run(self._prompts(1, tokens), 1)
        return float(tokens / answer["requests"][0]["prefill_s"])

    def _prompts(self, count: int, tokens: int) -> list[list[int]]:
        draw = random.Random(_SEED)
        return [[draw.randrange(self.vocabulary) for _ in range(tokens)] for _ in range(count)]

    def _run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        return greedy_run(
            self.worker, prompts, self.engine.precision,
            batch_size=len(prompts), new_tokens=new_tokens, stop_ids=(), timeout_s=TIMEOUT_S,
        )  # fmt: skip


def greedy_run(
    worker: Worker,
    prompts: Sequence[Sequence[int]],
    precision: str,
    *,
    batch_size: int,
    new_tokens: int,
    stop_ids: Sequence[int],
    drafter: Mapping[str, Any] = NONE,
    shape: Mapping[str, Any] = NONE,
    share_prefill: bool = False,
    trace: str = "none",
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """The answer to a `run` of a loaded worker: all prompts at once, greedy, at most `new_tokens`
    tokens each. Raises WorkerFailure."""
    return worker.call(
        "run",
        timeout_s=timeout_s,
        method={
            "precision": precision,
            "kv_precision": "kv16",
            "drafter": dict(drafter),
            "shape": dict(shape),
            "acceptance": {"kind": "greedy"},
        },
        prompts=[list(prompt) for prompt in prompts],
        arrivals=None,
        batch_size=batch_size,
        max_new_tokens=new_tokens,
        stop_ids=list(stop_ids),
        sampling=None,
        share_prefill=share_prefill,
        trace=trace,
    )


@contextmanager
def loaded(engine: Engine, model: Path, *, max_context: int, max_batch: int) -> Iterator[Loaded]:
    """Start and load an engine; end it afterwards. Raises WorkerFailure."""
    command = list(engine.command)
    with Worker(command, name=engine.name, env=engine.env, cwd=registry.ROOT) as worker:
        hello = worker.call("hello", timeout_s=TIMEOUT_S)
        answer = worker.call(
            "load",
            timeout_s=TIMEOUT_S,
            model={"path": str(model.absolute())},
            precisions=[engine.precision],
            drafters=[],
            max_context=max_context,
            max_batch=max_batch,
            seed=_SEED,
        )
        yield Loaded(engine, worker, hello, int(answer["model"]["vocab_size"]))


def described(engine: Loaded) -> dict[str, Any]:
    """What a result says of an engine: backend, version, precision and device."""
    return {
        "name": engine.engine.name,
        "backend": engine.hello["backend"],
        "version": engine.hello["version"],
        "precision": engine.engine.precision,
        "device": engine.hello["device"],
        "env": dict(engine.engine.env),
    }


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Median of `values` with its distribution-free interval, and the values."""
    return {**median_interval(values, LEVEL), "values": [round(value, 4) for value in values]}


def ratios(above: Sequence[float], below: Sequence[float]) -> dict[str, Any]:
    """The interval of the ratio of two series that were measured in turns."""
    return interval([a / b for a, b in zip(above, below, strict=True)])


def in_words(found: Mapping[str, Any], digits: int = 2) -> str:
    """`mean [low, high]`; an end that is not known, as after a single block, reads `?`."""
    mean, low, high = (
        "?" if found[key] is None else f"{found[key]:.{digits}f}"
        for key in ("mean", "ci_low", "ci_high")
    )
    return f"{mean} [{low}, {high}]"

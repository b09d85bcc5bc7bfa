"""The time of one forward by its number of rows, T(n): the basis of the cost model.

Measured once before the blocks, and written to curves.json (docs/records.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

from backends.client import WorkerFailure
from harness import curve_settings
from harness.bench import Bench
from harness.curve_settings import CurveSettings
from harness.errors import ConfigError
from harness.plan import SCHEMA_VERSION, Group
from harness.results import read_json, write_json
from harness.vocabulary import NATURAL
from harness.workers import LoadSpec

FORWARD_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Question:
    """One call of `forward`. Two groups may ask the same."""

    worker: str
    precision: str
    context: int
    batch: int
    tokens: tuple[int, ...]

    def fields(self) -> dict[str, Any]:
        """The fields that name the curve, in the request and in curves.json."""
        return {
            "model": "target",
            "precision": self.precision,
            "mask": "chain",
            "context": self.context,
            "batch": self.batch,
        }


def measure(bench: Bench, groups: Sequence[Group]) -> None:
    """Measure the curves of `groups`, where the results folder has none by these settings yet.

    A worker that does not serve `forward`, or fails at it, leaves its curves out: the sweep's own
    figures do not depend on them. Raises ConfigError for a context that the model has no room for.
    """
    settings = curve_settings.read(bench.settings.config["curves"])
    path = bench.folder.path / "curves.json"
    if path.exists() and read_json(path).get("settings") == settings.as_json():
        return
    asked = dict.fromkeys(
        question for group in groups for question in _questions(bench, group, settings)
    )
    for question in asked:
        _check_room(question, bench.model.max_position)
    curves = [
        curve
        for question in asked
        if (curve := _curve(bench, groups, question, settings.repeats)) is not None
    ]
    write_json(
        path,
        {"schema_version": SCHEMA_VERSION, "settings": settings.as_json(), "curves": curves},
    )


def _questions(bench: Bench, group: Group, settings: CurveSettings) -> Iterator[Question]:
    """One for each worker, precision and context of a group, at its batch size."""
    for worker in group.backends:
        if "forward" not in bench.hellos[worker]["capabilities"]["calls"]:
            continue
        verified = {c.method.drafted + 1 for c in group.cells if c.method.backend == worker}
        tokens = settings.tokens or tuple(sorted({1} | verified))
        for precision in sorted(bench.load_spec(group, worker).precisions):
            for context in settings.contexts or (_typical_context(bench, group),):
                yield Question(worker, precision, context, group.batch_size, tokens)


def _check_room(question: Question, max_position: int) -> None:
    longest = question.context + question.tokens[-1]
    if longest > max_position:
        raise ConfigError(
            f"curves.contexts: {question.context} tokens and {question.tokens[-1]} rows make "
            f"{longest} positions, and the model has {max_position}. Choose a shorter context."
        )


def _curve(
    bench: Bench, groups: Sequence[Group], question: Question, repeats: int
) -> dict[str, Any] | None:
    """The curve as curves.json holds it, None where the worker fails."""
    try:
        worker = bench.pool.ready(question.worker, _room(bench, groups, question)).worker
        answer = worker.call(
            "forward",
            timeout_s=FORWARD_TIMEOUT_S,
            tokens=list(question.tokens),
            repeats=repeats,
            **question.fields(),
        )
    except WorkerFailure:
        return None
    kept = {key: answer[key] for key in ("times", "bandwidth_bytes_s", "bytes_per_token")}
    return {"worker": question.worker, **question.fields(), **kept}


def _room(bench: Bench, groups: Sequence[Group], question: Question) -> LoadSpec:
    """What the worker must hold: enough for the curve and for the group that asks."""
    group = next(
        g for g in groups
        if g.batch_size == question.batch and question.worker in g.backends
        and question.precision in g.precisions(question.worker)
    )  # fmt: skip
    spec = bench.load_spec(group, question.worker)
    longest = question.context + question.tokens[-1]
    return replace(spec, max_context=max(spec.max_context, longest))


def _typical_context(bench: Bench, group: Group) -> int:
    """The median prompt, half of its output decoded."""
    prompts = bench.workload.prompts
    new_tokens = median_low([prompt.max_new_tokens for prompt in prompts])
    if group.context_length == NATURAL:
        return median_low([len(prompt.token_ids) for prompt in prompts]) + new_tokens // 2
    return group.context_length + new_tokens // 2

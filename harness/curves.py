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
from harness.drafters import TARGET
from harness.errors import ConfigError
from harness.forwards import forwards
from harness.plan import SCHEMA_VERSION, Group
from harness.results import read_json, write_json
from harness.vocabulary import NATURAL
from harness.workers import LoadSpec

FORWARD_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Question:
    """One call of `forward`. Two groups may ask the same."""

    worker: str
    model: str
    precision: str
    mask: str
    context: int
    batch: int
    tokens: tuple[int, ...]

    def fields(self) -> dict[str, Any]:
        """The fields that name the curve, in the request and in curves.json."""
        return {
            "model": self.model,
            "precision": self.precision,
            "mask": self.mask,
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
    asked: dict[Question, Group] = {}
    for group in groups:
        for question in _questions(bench, group, settings):
            asked.setdefault(question, group)
    for question in asked:
        _check_room(question, bench.model.max_position)
    curves = [
        curve
        for question, group in asked.items()
        if (curve := _curve(bench, group, question, settings.repeats)) is not None
    ]
    write_json(
        path,
        {"schema_version": SCHEMA_VERSION, "settings": settings.as_json(), "curves": curves},
    )


def _questions(bench: Bench, group: Group, settings: CurveSettings) -> Iterator[Question]:
    """One for each worker, model, precision, mask and context of a group, at its batch size."""
    for worker in group.backends:
        if worker in bench.unstarted:
            continue
        able = bench.hellos[worker]["capabilities"]
        if "forward" not in able["calls"]:
            continue
        rows = _rows(bench, group, worker)
        for (model, precision, mask), own in sorted(rows.items()):
            # A listed number of rows is what the target is asked for; drafters draft as they do.
            listed = settings.tokens if model == TARGET else None
            tokens = listed or tuple(sorted({1} | own))
            for context in settings.contexts or (_typical_context(bench, group),):
                yield Question(worker, model, precision, mask, context, group.batch_size, tokens)


def _rows(bench: Bench, group: Group, worker: str) -> dict[tuple[str, str, str], set[int]]:
    """Rows of the forwards that a worker's methods take, by model, precision and mask."""
    able = bench.hellos[worker]["capabilities"]
    target = bench.load_spec(group, worker).precisions
    # One number of rows for all precisions of the target, so that their curves can be compared.
    found: dict[tuple[str, str, str], set[int]] = {}
    for cell in group.cells:
        method = cell.method
        if method.backend != worker:
            continue
        for forward in forwards(method.precision, method.drafter, method.shape):
            if forward.mask != "chain" and forward.mask not in able["shapes"]:
                continue
            if forward.model == TARGET:
                for precision in target:
                    key = (TARGET, precision, forward.mask)
                    found.setdefault(key, set()).add(forward.rows)
            else:
                key = (forward.model, forward.precision, forward.mask)
                found.setdefault(key, set()).add(forward.rows)
    return found


def _check_room(question: Question, max_position: int) -> None:
    longest = question.context + question.tokens[-1]
    if longest > max_position:
        raise ConfigError(
            f"curves.contexts: {question.context} tokens and {question.tokens[-1]} rows make "
            f"{longest} positions, and the model has {max_position}. Choose a shorter context."
        )


def _curve(bench: Bench, group: Group, question: Question, repeats: int) -> dict[str, Any] | None:
    """The curve as curves.json holds it, None where the worker fails."""
    try:
        worker = bench.pool.ready(question.worker, _room(bench, group, question)).worker
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


def _room(bench: Bench, group: Group, question: Question) -> LoadSpec:
    """What the worker must hold: enough for the curve and for the group that asks."""
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

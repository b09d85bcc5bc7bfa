"""An agreement run from configuration to report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import yaml
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from backends.client import WorkerFailure
from backends.tokenizer import Tokenizer, TokenizerError
from harness import environment, gsm8k_answers, model_file
from harness.errors import ConfigError
from harness.model_file import ModelFile
from harness.plan import SCHEMA_VERSION, digest
from harness.results import ResultsFolder, write_json, write_text
from harness.start import explain
from harness.trace import problems, study
from harness.trace.measure import Measurement
from harness.trace.problems import Tasks
from harness.trace.settings import Settings
from harness.trace.store import TraceStore
from harness.trace.tables import mode_tables
from harness.workers import LoadSpec, WorkerPool
from reports.agreement import build as build_report

TABLES = "agreement.json"


def run(settings: Settings, console: Console) -> None:
    """Run what is missing, and write tables and report. Raises ConfigError and WorkerFailure."""
    started = time.monotonic()
    model = model_file.read(settings.model_path, made_by=settings.model_made_by)
    try:
        tokenizer = Tokenizer(model.metadata)
    except TokenizerError as error:
        raise ConfigError(f"{model.path}: {error}") from error
    tasks = problems.read(settings, model, tokenizer)
    folder = ResultsFolder(settings.results)
    folder.check_writable()
    with folder.lock(), WorkerPool({settings.backend.name: settings.backend}) as pool:
        hello = _hello(settings, pool)
        identity = _identity(settings, model, tasks, hello)
        cell_hash = digest({"method": settings.method(), "identity": identity})
        for note in _settle(folder, settings, cell_hash):
            _say(console, note)
        _describe(folder, settings, model, tasks, hello, identity, cell_hash)
        store = TraceStore(folder.path, cell_hash)
        done = {entry["request"] for entry in store.answers()}
        missing = [task for task in tasks.tasks if task.problem.index not in done]
        if len(missing) < len(tasks.tasks):
            _say(console, f"{len(tasks.tasks) - len(missing)} problems are done already.")
        if missing:
            loaded = pool.ready(settings.backend.name, _load_spec(settings, tasks, model))
            measurement = Measurement(settings, loaded, tokenizer, store)
            with _progress(console) as progress:
                bar = progress.add_task("problems", total=len(missing))
                measurement.run(missing, lambda count: progress.advance(bar, count))
    chosen = {task.problem.index for task in tasks.tasks}
    answers = [entry for entry in store.answers() if entry["request"] in chosen]
    trace = store.merge(chosen, settings.threshold, settings.csv)
    tables = tabulate(settings, trace, answers, tasks, model, hello)
    write_json(folder.path / "answers.json", answers)
    write_json(folder.path / TABLES, {**tables, "trace": str(store.trace.relative_to(folder.path))})
    page = build_report(folder.path, settings.lang)
    _close(console, tables)
    _say(
        console, f"Trace: {store.trace}\nReport: {page} (after {time.monotonic() - started:.0f} s)"
    )


def tabulate(
    settings: Settings,
    trace: pd.DataFrame,
    answers: Sequence[Mapping[str, Any]],
    tasks: Tasks,
    model: ModelFile,
    hello: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of agreement.json, from trace and answers."""
    requests = [int(entry["request"]) for entry in answers]
    categories = {r: str(a["category"]) for r, a in zip(requests, answers, strict=True)
                  if a["category"] is not None}  # fmt: skip
    level = settings.sampling.level
    return {
        "schema_version": SCHEMA_VERSION,
        "name": settings.results.name,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model.name,
        "weight_format": model.metadata.get("weight_format"),
        "backend": settings.backend.name,
        "device": hello["device"].get("name"),
        "target": settings.target,
        "draft": settings.draft,
        "gamma": settings.gamma,
        "prompt": settings.form.name,
        "max_new_tokens": settings.max_new_tokens,
        "batch_size": settings.batch_size,
        "threshold": settings.threshold,
        "level": level,
        "requests": len(answers),
        "left_out": {"count": len(tasks.left_out), "ids": list(tasks.left_out)},
        "answers_cut": sum(entry["finish"] == "length" for entry in answers),
        "accuracy": {
            key: gsm8k_answers.accuracy([entry[key] for entry in answers], level)
            for key in ("strict", "flexible")
        },
        "modes": {
            mode: mode_tables(
                trace,
                mode=mode,
                requests=requests,
                categories=categories,
                gamma=settings.gamma,
                threshold=settings.threshold,
                sampling=settings.sampling,
            )
            for mode in settings.modes
        },
        "study": study.figures(),
    }


def _hello(settings: Settings, pool: WorkerPool) -> Mapping[str, Any]:
    """Start the worker and see that it can do what is asked. Raises ConfigError."""
    backend = settings.backend
    try:
        hello = pool.hello(backend.name)
    except WorkerFailure as failure:
        raise ConfigError(f"backends.{backend.name}: {explain(backend, failure)}") from failure
    able = hello["capabilities"]
    method = settings.method()
    for what, needed, known in (
        ("precision", {settings.target, settings.draft}, able["precisions"]),
        ("drafter", {method["drafter"]["kind"]}, able["drafters"]),
        ("call", {"score"} if "fixed_prefix" in settings.modes else set(), able["calls"]),
        ("trace level", {"tokens"} if "online" in settings.modes else set(), able["trace"]),
    ):
        missing = sorted(needed - set(known))
        if missing:
            raise ConfigError(
                f"The backend {backend.name} has no {what} {', '.join(missing)}; it has "
                f"{', '.join(known)}."
            )
    if settings.batch_size > able["max_batch"]:
        raise ConfigError(
            f"agreement.batch_size={settings.batch_size}: the backend {backend.name} decodes at "
            f"most {able['max_batch']} sequences at once."
        )
    return hello


def _identity(
    settings: Settings, model: ModelFile, tasks: Tasks, hello: Mapping[str, Any]
) -> dict[str, Any]:
    """What the trace depends on. The threshold and the statistics are applied to it later."""
    return {
        "model": model.content_hash,
        "workload": tasks.content_hash,
        "build": f"{hello.get('version')} {hello.get('build')}",
        "device": hello["device"],
        "draft": settings.draft,
        "modes": list(settings.modes),
        "batch_size": settings.batch_size,
        "seed": settings.seed,
    }


def _settle(folder: ResultsFolder, settings: Settings, cell_hash: str) -> list[str]:
    """Go on in the folder, or move aside what cannot be mixed with this run; say which."""
    if settings.fresh and any(folder.path.iterdir()):
        return [f"The earlier results were moved to {folder.move_aside()} (fresh=true)."]
    earlier = folder.plan()
    if earlier is None or earlier.get("fingerprint") == cell_hash:
        return []
    return [
        f"The earlier results were moved to {folder.move_aside()}: they are of another model, "
        "method, data set, worker or device."
    ]


def _describe(
    folder: ResultsFolder,
    settings: Settings,
    model: ModelFile,
    tasks: Tasks,
    hello: Mapping[str, Any],
    identity: Mapping[str, Any],
    cell_hash: str,
) -> None:
    """Write config.yaml, environment.json and plan.json."""
    text = yaml.safe_dump(dict(settings.config), sort_keys=False, allow_unicode=True)
    write_text(folder.path / "config.yaml", text)
    write_json(
        folder.path / "environment.json",
        environment.collect(
            workers={settings.backend.name: hello},
            first_backend=settings.backend.name,
            model=model.summary(),
            workload={"name": "gsm8k", "content_hash": tasks.content_hash, "format": "gsm8k",
                      "prompt": settings.form.name, "count": len(tasks.tasks)},
        ),
    )  # fmt: skip
    write_json(
        folder.path / "plan.json",
        {
            "schema_version": SCHEMA_VERSION,
            "name": settings.results.name,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "fingerprint": cell_hash,
            "identity": dict(identity),
            "method": settings.method(),
            "problems": [task.problem.id for task in tasks.tasks],
            "left_out": list(tasks.left_out),
        },
    )


def _load_spec(settings: Settings, tasks: Tasks, model: ModelFile) -> LoadSpec:
    longest = max(len(task.tokens) for task in tasks.tasks)
    return LoadSpec(
        model=model.request(),
        precisions=frozenset({settings.target, settings.draft}),
        max_context=min(longest + settings.max_new_tokens + settings.gamma, model.max_position),
        max_batch=settings.batch_size,
        seed=settings.seed,
    )


def _progress(console: Console) -> Progress:
    return Progress(
        *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip


def _close(console: Console, tables: Mapping[str, Any]) -> None:
    """The headline of each mode in a line."""
    for mode, found in tables["modes"].items():
        rate = found["agreement_rate"]
        if rate["mean"] is None:
            _say(console, f"{mode}: no position was compared.")
            continue
        ends = [
            "unknown" if rate[key] is None else f"{rate[key]:.2%}" for key in ("ci_low", "ci_high")
        ]
        _say(
            console,
            f"{mode}: {found['agreements']:,} of {found['positions']:,} positions agree, "
            f"{rate['mean']:.2%} ({ends[0]} to {ends[1]}, {rate['n']} requests).",
        )


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)

"""Starts the workers of a sweep, and says in words why one could not be started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.client import (
    WorkerDied,
    WorkerError,
    WorkerFailure,
    WorkerNotStarted,
    WorkerTimedOut,
)
from harness.config import BackendSettings
from harness.errors import ConfigError
from harness.workers import WorkerPool

USAGE_ERROR = 2
"""Exit status of a worker that was built and says what it misses: a driver, a GPU, an option."""


@dataclass(frozen=True)
class Started:
    """What became of a sweep's workers.

    `hellos` holds the answers of those that started, `failures` why the others did not, both by
    backend; `notes` are sentences about starts that needed a second attempt.
    """

    hellos: Mapping[str, Mapping[str, Any]]
    failures: Mapping[str, WorkerFailure]
    notes: tuple[str, ...]


def start_workers(pool: WorkerPool, backends: Mapping[str, BackendSettings]) -> Started:
    """Start every worker. One that cannot be started costs its own cells, not the sweep.

    Raises ConfigError where not a single one starts, since no cell could be measured then.
    """
    hellos: dict[str, Mapping[str, Any]] = {}
    failures: dict[str, WorkerFailure] = {}
    notes: list[str] = []
    for name, settings in backends.items():
        try:
            hellos[name] = _hello(pool, name, notes)
        except WorkerFailure as failure:
            failures[name] = _told(settings, failure)
    if not hellos:
        raise ConfigError("\n".join(f"backends.{name}: {f}" for name, f in failures.items()))
    return Started(hellos, failures, tuple(notes))


def explain(settings: BackendSettings, failure: WorkerFailure) -> str:
    """Why a worker did not start, and the command that builds it where that helps."""
    command = built_by(settings, failure)
    return str(failure) + (f" Build it with `{command}`." if command else "")


def built_by(settings: BackendSettings, failure: WorkerFailure) -> str:
    """The command that builds the worker, "" where it is not that which it misses."""
    returncode = failure.returncode if isinstance(failure, WorkerDied) else None
    built = isinstance(failure, WorkerError) or returncode == USAGE_ERROR
    return "" if built else settings.made_by or ""


def _hello(pool: WorkerPool, name: str, notes: list[str]) -> Mapping[str, Any]:
    """A worker that died is given a second chance; one that was silent has had its time."""
    try:
        return pool.hello(name)
    except WorkerTimedOut:
        raise
    except WorkerDied as failure:
        hello = pool.hello(name)
        notes.append(f"backends.{name}: {failure} It was started again and answered.")
        return hello


def _told(settings: BackendSettings, failure: WorkerFailure) -> WorkerFailure:
    """The failure as the records of its cells are to tell it."""
    if isinstance(failure, WorkerDied):
        return WorkerDied(explain(settings, failure), failure.returncode, failure.stderr_tail)
    if isinstance(failure, WorkerNotStarted):
        return WorkerNotStarted(explain(settings, failure))
    return failure

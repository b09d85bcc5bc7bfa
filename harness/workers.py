"""The loaded workers of a sweep, one process for each backend.

All of them stay loaded; exactly one is asked at a time, the others sleep on their stdin. A worker
that died is started and loaded again when it is next needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.client import Worker, WorkerDied, WorkerError, WorkerFailure, WorkerGarbled
from backends.protocol import PROTOCOL_VERSION
from harness.config import BackendSettings
from harness.drafter_files import DrafterFile

LOAD_TIMEOUT_S = 900.0
HELLO_TIMEOUT_S = 120.0
_BANDWIDTH_CONTEXT = 16
_CAPABILITIES = ("calls", "precisions", "drafters", "shapes", "acceptance")


@dataclass(frozen=True)
class LoadedDrafter:
    """A drafter with weights of its own: its file's part of a `load` request, and precisions."""

    file: DrafterFile
    precisions: frozenset[str]

    def request(self) -> dict[str, Any]:
        """The entry of `drafters` in a `load` request."""
        return {**self.file.request(), "precisions": sorted(self.precisions)}


@dataclass(frozen=True)
class LoadSpec:
    """What a worker is to hold: enough for every trial it will be asked to run.

    `drafters` holds those with weights of their own in the order of their ids, which are unique.
    """

    model: Mapping[str, Any] = field(hash=False)
    precisions: frozenset[str]
    max_context: int
    max_batch: int
    seed: int
    drafters: tuple[LoadedDrafter, ...] = ()

    def covers(self, other: LoadSpec) -> bool:
        """True where a worker that holds this can also serve `other`."""
        return (
            self.model == other.model
            and self.seed == other.seed
            and self.precisions >= other.precisions
            and self.max_context >= other.max_context
            and self.max_batch >= other.max_batch
            and all(self._holds(drafter) for drafter in other.drafters)
        )

    def _holds(self, wanted: LoadedDrafter) -> bool:
        return any(
            own.file == wanted.file and own.precisions >= wanted.precisions for own in self.drafters
        )

    def request(self) -> dict[str, Any]:
        """The fields of the `load` request."""
        return {
            "model": dict(self.model),
            "precisions": sorted(self.precisions),
            "drafters": [drafter.request() for drafter in self.drafters],
            "max_context": self.max_context,
            "max_batch": self.max_batch,
            "seed": self.seed,
        }


def union(specs: Iterable[LoadSpec]) -> LoadSpec:
    """The least spec that covers all of `specs`, which share model and seed."""
    first, *rest = specs
    return LoadSpec(
        model=first.model,
        precisions=first.precisions.union(*(spec.precisions for spec in rest)),
        max_context=max([first.max_context, *(spec.max_context for spec in rest)]),
        max_batch=max([first.max_batch, *(spec.max_batch for spec in rest)]),
        seed=first.seed,
        drafters=_joined(drafter for spec in (first, *rest) for drafter in spec.drafters),
    )


def _joined(drafters: Iterable[LoadedDrafter]) -> tuple[LoadedDrafter, ...]:
    """Each drafter once, with all of its precisions."""
    found: dict[str, LoadedDrafter] = {}
    for drafter in drafters:
        name = drafter.file.settings.id
        known = found.get(name, drafter)
        found[name] = LoadedDrafter(drafter.file, known.precisions | drafter.precisions)
    return tuple(found[name] for name in sorted(found))


@dataclass
class LoadedWorker:
    """A worker with its model in memory, and what is known of this process.

    `answer` is its answer to `load`. `read_bytes_s` is the bandwidth that it measured after
    loading, None where the backend does not. `warmed` names the cells that this process has already
    run, so that none is timed cold. `stale_prefill` says that shared prefill of an earlier block
    may still be held, and is to be dropped by the next trial.
    """

    worker: Worker
    hello: Mapping[str, Any]
    spec: LoadSpec
    answer: Mapping[str, Any]
    read_bytes_s: float | None
    warmed: set[str] = field(default_factory=set)
    stale_prefill: bool = True

    def serves(self, call: str) -> bool:
        """True where the backend lists `call` among its capabilities."""
        return call in self.hello["capabilities"].get("calls", ())


class WorkerPool:
    """Starts, loads and restarts workers. Use it as a context manager.

    `plan_loads` tells what all groups of the sweep need. That is tried first, so that a worker
    loads once; where memory does not allow it, groups are loaded one by one.
    """

    def __init__(self, backends: Mapping[str, BackendSettings]) -> None:
        self._backends = backends
        self._started: dict[str, tuple[Worker, Mapping[str, Any]]] = {}
        self._loaded: dict[str, LoadedWorker] = {}
        self._whole: dict[str, LoadSpec] = {}
        self._refused: dict[tuple[str, LoadSpec], WorkerFailure] = {}

    def hello(self, backend: str) -> Mapping[str, Any]:
        """Start the backend's worker where it is not running, and return its `hello`.

        Raises WorkerFailure, also for a worker of another protocol.
        """
        running = self._started.get(backend)
        if running and running[0].alive:
            return running[1]
        self._loaded.pop(backend, None)
        settings = self._backends[backend]
        worker = Worker(settings.command, name=backend, env=settings.env)
        try:
            hello = worker.call("hello", timeout_s=HELLO_TIMEOUT_S)
            wrong = _outside_protocol(hello)
            if wrong:
                message = f"The worker {backend!r} {wrong}"
                raise WorkerGarbled(message, None, worker.stderr_tail)
        except BaseException:
            worker.kill()
            raise
        self._started[backend] = (worker, hello)
        return hello

    def plan_loads(self, backend: str, specs: Iterable[LoadSpec]) -> None:
        """Say what all groups of the sweep will need, so that it is loaded at once."""
        self._whole[backend] = union(specs)

    def ready(self, backend: str, spec: LoadSpec) -> LoadedWorker:
        """A living worker that can serve `spec`, loaded where that is still to be done.

        Raises WorkerFailure; after an `out_of_memory` the worker may still serve a smaller spec.
        """
        loaded = self._loaded.get(backend)
        if loaded and loaded.worker.alive and loaded.spec.covers(spec):
            return loaded
        whole = self._whole.get(backend)
        if whole is not None and whole.covers(spec) and whole != spec:
            try:
                return self._load(backend, whole)
            except WorkerDied:
                # The system's way to say that memory is short; a group alone may fit.
                pass
            except WorkerError as error:
                if error.type != "out_of_memory":
                    raise
            del self._whole[backend]
        return self._load(backend, spec)

    def begin_block(self) -> None:
        """Mark the prefill that workers share as that of an earlier block."""
        for loaded in self._loaded.values():
            loaded.stale_prefill = True

    def _load(self, backend: str, spec: LoadSpec) -> LoadedWorker:
        refused = self._refused.get((backend, spec))
        if refused:
            # Every cell of a group would ask again for what was refused, at minutes a time.
            raise refused
        self._loaded.pop(backend, None)
        hello = self.hello(backend)
        worker = self._started[backend][0]
        try:
            answer = worker.call("load", timeout_s=LOAD_TIMEOUT_S, **spec.request())
        except WorkerFailure as failure:
            self._refused[backend, spec] = failure
            raise
        loaded = LoadedWorker(worker, hello, spec, answer, _bandwidth(worker, hello, spec))
        self._loaded[backend] = loaded
        return loaded

    def close(self) -> None:
        """End all workers."""
        for worker, _ in self._started.values():
            worker.close()
        self._started.clear()
        self._loaded.clear()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _outside_protocol(hello: Mapping[str, Any]) -> str | None:
    """What is wrong with an answer to `hello`, as the rest of a sentence; None for nothing."""
    if hello.get("protocol") != PROTOCOL_VERSION:
        return (
            f"speaks protocol {hello.get('protocol')}, and this program speaks "
            f"{PROTOCOL_VERSION}. Build the worker again."
        )
    device, able = hello.get("device"), hello.get("capabilities")
    device = device if isinstance(device, dict) else {}
    able = able if isinstance(able, dict) else {}
    kinds = {**dict.fromkeys(_CAPABILITIES, list), "max_batch": int}
    missing = [
        f"capabilities.{key}" for key, kind in kinds.items() if not isinstance(able.get(key), kind)
    ]
    if not isinstance(device.get("kind"), str):
        missing.append("device.kind")
    if missing:
        return f"answered 'hello' without {', '.join(missing)} (docs/protocol.md)."
    return None


def _bandwidth(worker: Worker, hello: Mapping[str, Any], spec: LoadSpec) -> float | None:
    """Read bandwidth in bytes a second that the worker measures now, None where it does not."""
    if "forward" not in hello["capabilities"].get("calls", ()):
        return None
    try:
        answer = worker.call(
            "forward",
            timeout_s=LOAD_TIMEOUT_S,
            model="target",
            precision=min(spec.precisions),
            tokens=[1],
            mask="chain",
            context=min(_BANDWIDTH_CONTEXT, spec.max_context - 1),
            batch=1,
            repeats=1,
        )
    except WorkerError:
        return None
    bandwidth = answer.get("bandwidth_bytes_s")
    return float(bandwidth) if bandwidth else None

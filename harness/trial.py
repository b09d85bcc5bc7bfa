"""One trial: a cell's method over a block's prompts, and the record of it."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backends.client import WorkerDied, WorkerError, WorkerFailure
from harness import clocks
from harness.plan import SCHEMA_VERSION, Cell, Group, Identity
from harness.results import block_name
from harness.workers import LoadedWorker
from harness.workload import Draw, Prompt

REPEATED_SPAN, REPEATED_TIMES = 12, 3
"""A request that repeats a span of so many tokens so often went round in circles: its acceptance
says little about other text."""


@dataclass(frozen=True)
class Setting:
    """What all trials of a block share.

    `traced_backends` are those whose drafting methods write token traces, into folders of
    `results`.
    """

    group: Group
    block: int
    draw: Draw
    stop_ids: tuple[int, ...]
    identity: Identity
    model: Mapping[str, Any]
    model_name: str
    synthetic_model: bool
    synthetic_drafters: frozenset[str]
    workload_name: str
    timeout_s: float
    results: Path
    traced_backends: frozenset[str]
    seed: int

    @property
    def outcome_seed(self) -> int:
        """Seed of sampled and replayed outcomes: another one in each block and sweep."""
        text = f"{self.seed}/{self.group.name}/{self.block}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


@dataclass
class Trial:
    """A trial's record and, where it succeeded, the tokens of each request."""

    cell: Cell
    record: dict[str, Any]
    tokens: list[list[int]] | None

    @property
    def ok(self) -> bool:
        """True where the trial was measured."""
        return self.tokens is not None


def warm_up(
    loaded: LoadedWorker, cell: Cell, prompts: Sequence[Prompt], setting: Setting, new_tokens: int
) -> None:
    """Run the cell's method on other prompts and drop the answer. Raises WorkerFailure.

    A cell is warmed once for each worker process: pages are mapped, threads awake, code paths taken
    for the first time.
    """
    key = f"{setting.group.name}/{cell.method.method_id}"
    if key in loaded.warmed:
        return
    loaded.worker.call(
        "run",
        timeout_s=setting.timeout_s,
        **_request(cell, prompts, [min(new_tokens, p.max_new_tokens) for p in prompts], setting),
        share_prefill=False,
    )
    loaded.warmed.add(key)


def run(loaded: LoadedWorker, cell: Cell, position: int, setting: Setting) -> Trial:
    """Time the cell over the block's draw. Raises WorkerFailure."""
    prompts = setting.draw.prompts
    request = _request(cell, prompts, [prompt.max_new_tokens for prompt in prompts], setting)
    if loaded.stale_prefill:
        # Prefill is shared inside a block alone; what an earlier block left is dropped first.
        request["prefill_cache"] = {"clear": True}
    record = _frame(cell, position, setting, loaded)
    part = _trace_part(cell, setting)
    if part is not None:
        path = (setting.results / part).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        request |= {"trace": "tokens", "trace_path": str(path)}
        record["trace"] = {"part": str(part)}
    record["clocks"]["before"] = clocks.read()
    answer = loaded.worker.call("run", timeout_s=setting.timeout_s, share_prefill=True, **request)
    record["clocks"]["after"] = clocks.read()
    loaded.stale_prefill = False
    tokens = [request["tokens"] for request in answer["requests"]]
    if len(tokens) != len(prompts):
        raise WorkerError(
            "internal", f"the worker answered {len(tokens)} requests for {len(prompts)} prompts"
        )
    record["requests"] = [
        _without_tokens(prompt, request)
        for prompt, request in zip(prompts, answer["requests"], strict=True)
    ]
    for key in ("rounds", "sequence_rounds", "wall_s", "decode_s"):
        record[key] = answer[key]
    for key in ("levels", "shape_choice"):
        if answer.get(key) is not None:
            record[key] = answer[key]
    record["memory"] = {**loaded.answer["memory"], **answer["memory"]}
    return Trial(cell, record, tokens)


def failed(
    cell: Cell,
    position: int,
    setting: Setting,
    failure: WorkerFailure,
    loaded: LoadedWorker | None = None,
) -> Trial:
    """The record of a cell that could not be measured, with the worker's last words."""
    record = _frame(cell, position, setting, loaded)
    record["status"] = "failed"
    record["error"] = {
        "type": _error_type(failure),
        "message": str(failure),
        "stderr_tail": failure.stderr_tail if isinstance(failure, WorkerDied) else "",
    }
    return Trial(cell, record, None)


def cell_json(cell: Cell, setting: Setting, loaded: LoadedWorker | None) -> dict[str, Any]:
    """The `cell` object of a record (docs/records.md)."""
    method = cell.method
    answer: Mapping[str, Any] = loaded.answer if loaded else {}
    device = setting.identity.devices.get(method.backend) or {}
    return {
        "hash": cell.hash(setting.identity),
        "method_id": method.method_id,
        "name": method.name,
        "arm": method.arm,
        "quantized_drafter": method.quantized_drafter,
        "model": setting.model_name,
        "workload": setting.workload_name,
        # Two workers of one backend may hold the model in different weight formats.
        "backend": loaded.hello["backend"] if loaded else method.backend,
        "worker": method.backend,
        "device": device.get("name"),
        "weight_format": answer.get("model", {}).get("weight_format")
        or setting.model.get("weight_format"),
        "precision": method.precision,
        "compute_dtype": answer.get("compute_dtype", {}).get(method.precision),
        "kv_precision": method.kv_precision,
        "drafter": dict(method.drafter),
        "shape": dict(method.shape),
        "acceptance": method.acceptance.kind,
        "acceptance_settings": method.acceptance.settings(),
        "synthetic": setting.synthetic_model
        or not setting.synthetic_drafters.isdisjoint(method.drafter_precisions()),
        "batch_size": cell.batch_size,
        "context_length": cell.context_length,
        "role": cell.role,
    }


def _frame(
    cell: Cell, position: int, setting: Setting, loaded: LoadedWorker | None
) -> dict[str, Any]:
    """A record with everything but the measurement."""
    proof = loaded.answer.get("proof", {}).get(cell.method.precision) if loaded else None
    return {
        "schema_version": SCHEMA_VERSION,
        "cell": cell_json(cell, setting, loaded),
        "group": setting.group.name,
        "block": block_name(setting.block),
        "status": "ok",
        "error": None,
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "position": position,
        "interleaved": True,
        "prompt_ids": [prompt.id for prompt in setting.draw.prompts],
        "left_out": dict(setting.draw.left_out),
        "requests": [],
        "rounds": {},
        "sequence_rounds": {},
        "wall_s": None,
        "decode_s": None,
        "memory": loaded.answer.get("memory") if loaded else None,
        "proof": proof,
        "losslessness": None,
        "quality": None,
        "task": None,
        "trace": None,
        "bandwidth": {"read_bytes_s": loaded.read_bytes_s if loaded else None},
        "clocks": {"before": None, "after": None},
    }


def _trace_part(cell: Cell, setting: Setting) -> Path | None:
    """Where the worker writes the trial's token trace, below `results`; None for no trace.

    A method without a drafter has no drafted position to trace.
    """
    if cell.method.plain or cell.method.backend not in setting.traced_backends:
        return None
    name = f"{block_name(setting.block)}.trace"
    return Path("traces") / cell.hash(setting.identity) / name


def _request(
    cell: Cell, prompts: Sequence[Prompt], new_tokens: list[int], setting: Setting
) -> dict[str, Any]:
    return {
        "method": cell.method.request(setting.outcome_seed),
        "prompts": [list(prompt.token_ids) for prompt in prompts],
        "arrivals": None,
        "batch_size": cell.batch_size,
        "max_new_tokens": new_tokens,
        "stop_ids": list(setting.stop_ids),
        "sampling": cell.method.acceptance.sampling(setting.outcome_seed),
        "trace": "rounds",
    }


def _without_tokens(prompt: Prompt, request: Mapping[str, Any]) -> dict[str, Any]:
    """A request's entry in a record: token ids give way to their hash, as answers are private."""
    kept = {key: value for key, value in request.items() if key != "tokens"}
    return {
        "id": prompt.id,
        "category": prompt.category,
        "tokens_sha256": tokens_sha256(request["tokens"]),
        "repeats": repeats_itself(request["tokens"]),
        **kept,
    }


def repeats_itself(tokens: Sequence[int]) -> bool:
    """True where a span of REPEATED_SPAN tokens stands REPEATED_TIMES times (they may overlap)."""
    seen: Counter[tuple[int, ...]] = Counter(
        tuple(tokens[start : start + REPEATED_SPAN])
        for start in range(len(tokens) - REPEATED_SPAN + 1)
    )
    return max(seen.values(), default=0) >= REPEATED_TIMES


def tokens_sha256(tokens: Sequence[int]) -> str:
    """sha256 of token ids as little-endian 32-bit integers."""
    return hashlib.sha256(struct.pack(f"<{len(tokens)}i", *tokens)).hexdigest()


def _error_type(failure: WorkerFailure) -> str:
    return failure.type if isinstance(failure, WorkerError) else "worker"

"""Makes a sweep ready: workers, plan and results folder, checked before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import yaml

from harness import environment, plan
from harness.bench import Bench, max_context, traces_tokens
from harness.config import Settings
from harness.drafter_files import read_drafters
from harness.errors import ConfigError
from harness.model_file import ModelFile
from harness.plan import SCHEMA_VERSION, Group, Identity
from harness.results import ResultsFolder, block_name, write_json, write_text
from harness.start import start_workers
from harness.trial import cell_json
from harness.workers import WorkerPool
from harness.workload import Workload

NOT_STARTED = "not started"
"""Stands for the build of a worker that did not start, in what may continue what."""


def prepare(
    settings: Settings, model: ModelFile, workload: Workload, pool: WorkerPool
) -> tuple[Bench, list[str]]:
    """Start the workers, make the plan, and bring the results folder into order.

    Returns the bench and sentences that say what did not start and what was found or moved. Nothing
    is loaded yet. Raises ConfigError.
    """
    started = start_workers(pool, settings.backends)
    hellos = started.hellos
    first = next(iter(hellos.values()))
    whole = plan.build(
        settings, model=model.name, workload=workload.name, device=str(first["device"]["kind"])
    )
    plan.check_memory(
        whole,
        {
            g.name: model.kv_bytes(g.batch_size, max_context(workload, g, model.max_position))
            for g in whole.groups
        },
        environment.memory_bytes(),
    )
    drafters = read_drafters(
        settings.drafters, (c.method for g in whole.groups for c in g.cells), model
    )
    identity = Identity(
        model=model.content_hash,
        workload=workload.content_hash,
        builds=dict.fromkeys(started.failures, NOT_STARTED)
        | {name: f"{h.get('version')} {h.get('build')}" for name, h in hellos.items()},
        devices={name: h["device"] for name, h in hellos.items()},
        statistics=settings.config["stats"],
        seed=settings.seed,
        trace=settings.trace,
        drafters={name: drafter.content_hash for name, drafter in drafters.items()},
    )
    _check_trace(settings, hellos)
    folder = ResultsFolder(settings.results)
    bench = Bench(
        settings, model, drafters, workload, whole, identity, folder, pool, hellos, started.failures
    )
    for backend in hellos:
        groups = [g for g in whole.groups if backend in g.backends and bench.applicable(g)]
        if groups:
            pool.plan_loads(backend, [bench.load_spec(group, backend) for group in groups])
    notes = [*started.notes, *_lost_cells(bench), *_settle(bench)]
    _describe(bench)
    return bench, notes


def _lost_cells(bench: Bench) -> list[str]:
    """A sentence for each worker that did not start: why, and what that costs."""
    cells = [cell for group in bench.plan.groups for cell in group.cells]
    sentences = []
    for backend, failure in bench.unstarted.items():
        lost = [cell for cell in cells if cell.method.backend == backend]
        sentence = f"backends.{backend}: {failure} Its {len(lost)} cells are recorded as failed."
        if any(cell.role == "baseline" for cell in lost):
            sentence += " The baseline is among them, so that the others have no speedup."
        sentences.append(sentence)
    return sentences


def _check_trace(settings: Settings, hellos: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse token traces where no backend writes them."""
    able = [name for name, hello in hellos.items() if traces_tokens(hello)]
    if settings.trace == "tokens" and not able:
        raise ConfigError(
            f"trace=tokens: none of the backends {', '.join(hellos)} writes token traces. Leave "
            "trace=rounds, or add backend native."
        )


def _settle(bench: Bench) -> list[str]:
    """Resume, or move aside what an earlier sweep left; say which."""
    folder = bench.folder
    folder.check_writable()
    if bench.settings.fresh:
        if any(folder.path.iterdir()):
            return [f"The earlier results were moved to {folder.move_aside()} (fresh=true)."]
        return []
    earlier = folder.plan()
    if earlier is None:
        return []
    if earlier.get("fingerprint") != bench.fingerprint:
        _refuse_to_move_for_a_failed_start(bench, earlier)
        reasons = _differences(earlier, bench)
        return [
            f"The earlier results were moved to {folder.move_aside()}, because they cannot be "
            f"mixed with this sweep's: {reasons}."
        ]
    notes = []
    dropped = folder.drop_partial_blocks()
    if dropped:
        notes.append(f"Dropped {len(dropped)} half-measured block; it is measured again.")
    done = sum(len(folder.finished_blocks(group.name)) for group in bench.plan.groups)
    if done:
        notes.append(f"Going on in {folder.path}: {done} blocks are there already.")
    return notes


def _refuse_to_move_for_a_failed_start(bench: Bench, earlier: Mapping[str, Any]) -> None:
    """Results that hold a worker's figures do not give way to some without them."""
    builds = (earlier.get("identity") or {}).get("builds", {})
    for backend, failure in bench.unstarted.items():
        if builds.get(backend, NOT_STARTED) != NOT_STARTED:
            raise ConfigError(
                f"backends.{backend}: {failure} The results in {bench.folder.path} were measured "
                "with this worker and cannot go on without it. Mend it, or give fresh=true to move "
                "them aside."
            )


def _differences(earlier: Mapping[str, Any], bench: Bench) -> str:
    """What changed since the earlier sweep, in words."""
    words = {
        "model": "another model",
        "workload": "another workload or other prompts",
        "builds": "another build of the worker",
        "devices": "another device",
        "statistics": "other statistics settings",
        "seed": "another seed",
        "trace": "another trace level",
        "drafters": "other drafters",
    }
    before = earlier.get("identity") or {}
    now = bench.identity.as_json()
    changed = [text for key, text in words.items() if before.get(key) != now[key]]
    return ", ".join(changed) or "other groups, methods or draws"


def _describe(bench: Bench) -> None:
    """Write config.yaml, environment.json and plan.json."""
    path = bench.folder.path
    config = yaml.safe_dump(dict(bench.settings.config), sort_keys=False, allow_unicode=True)
    write_text(path / "config.yaml", config)
    write_json(
        path / "environment.json",
        environment.collect(
            workers=bench.hellos,
            unstarted={name: str(failure) for name, failure in bench.unstarted.items()},
            first_backend=next(iter(bench.hellos)),
            model=bench.model.summary(),
            drafters={name: file.summary() for name, file in bench.drafters.items()},
            workload={
                "name": bench.workload.name,
                "content_hash": bench.workload.content_hash,
                **bench.workload.source,
            },
        ),
    )
    write_json(path / "plan.json", _plan_json(bench))


def _plan_json(bench: Bench) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": bench.settings.name,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": bench.fingerprint,
        "identity": bench.identity.as_json(),
        "prompts": len(bench.workload.prompts),
        "prompts_left_for_later_blocks": unused_prompts(bench),
        "groups": [_group_json(bench, group) for group in bench.plan.groups],
    }


def _group_json(bench: Bench, group: Group) -> dict[str, Any]:
    blocks = range(bench.settings.schedule.min_blocks)
    setting = bench.setting(group, 0)
    return {
        "name": group.name,
        "batch_size": group.batch_size,
        "context_length": group.context_length,
        "applicable": setting.draw.applicable,
        "left_out": dict(setting.draw.left_out),
        "draw": group.draw_count,
        "draws": {
            block_name(block): [prompt.id for prompt in bench.draw(group, block).prompts]
            for block in blocks
        },
        "cells": [cell_json(cell, setting, None) for cell in group.cells],
    }


def unused_prompts(bench: Bench) -> int:
    """Prompts that the first `min_blocks` blocks of all groups do not use."""
    used: set[str] = set()
    for group in bench.plan.groups:
        for block in range(bench.settings.schedule.min_blocks):
            used |= {prompt.id for prompt in bench.draw(group, block).prompts}
    return len(bench.workload.prompts) - len(used)

"""A sweep made ready: model, workload, plan, workers and results folder, all checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import yaml

from backends.client import WorkerDied, WorkerFailure
from backends.tokenizer import TokenizerError
from harness import environment, plan
from harness.config import Settings
from harness.drafter_files import DrafterFile, read_drafters
from harness.errors import ConfigError
from harness.model_file import ModelFile
from harness.plan import SCHEMA_VERSION, Group, Identity, Plan
from harness.results import ResultsFolder, block_name, write_json, write_text
from harness.tokenizer import Tokenizer
from harness.trial import Setting, cell_json
from harness.vocabulary import NATURAL
from harness.workers import LoadedDrafter, LoadSpec, WorkerPool
from harness.workload import Draw, Workload
from harness.workload import load as load_workload


@dataclass(frozen=True)
class Bench:
    """Everything that measuring a group needs. Groups are independent of each other."""

    settings: Settings
    model: ModelFile
    drafters: Mapping[str, DrafterFile]
    workload: Workload
    plan: Plan
    identity: Identity
    folder: ResultsFolder
    pool: WorkerPool
    hellos: Mapping[str, Mapping[str, Any]]

    @property
    def fingerprint(self) -> str:
        """Equal where this sweep may continue an earlier one."""
        return self.plan.fingerprint(self.identity)

    @cached_property
    def quality_group(self) -> str:
        """Name of the group in which precisions are scored: once a model is enough."""
        for group in self.plan.groups:
            if group.batch_size == 1 and group.context_length == NATURAL:
                return group.name
        return self.plan.groups[0].name

    def text(self, tokens: Sequence[int]) -> str:
        """An answer's text, without special tokens."""
        return self._tokenizer.decode(tokens, skip_special_tokens=True)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self.model.metadata)

    def draw(self, group: Group, block: int) -> Draw:
        """The prompts of a block, the same whenever it is run."""
        return self.workload.draw(
            block,
            group.draw_count,
            group.context_length,
            self.settings.seed,
            group_index=group.index,
            groups=[other.draw for other in self.plan.groups],
        )

    def applicable(self, group: Group) -> bool:
        """False where no prompt of the workload fits the group's context length."""
        return self.draw(group, 0).applicable

    def setting(self, group: Group, block: int) -> Setting:
        """What all trials of a block share."""
        return Setting(
            group=group,
            block=block,
            draw=self.draw(group, block),
            stop_ids=self.workload.stop_ids,
            identity=self.identity,
            model=self.model.metadata,
            model_name=self.model.name,
            synthetic_model=self.model.synthetic is not None,
            synthetic_drafters=frozenset(
                name for name, drafter in self.drafters.items() if drafter.metadata is None
            ),
            seed=self.settings.seed,
            workload_name=self.workload.name,
            timeout_s=self.settings.schedule.trial_timeout_s,
            results=self.folder.path,
            traced_backends=frozenset(
                name
                for name, hello in self.hellos.items()
                if self.settings.trace == "tokens" and _traces_tokens(hello)
            ),
        )

    def load_spec(self, group: Group, backend: str) -> LoadSpec:
        """What the worker of `backend` must hold for `group`."""
        known = self.hellos[backend]["capabilities"]["precisions"]
        return LoadSpec(
            model=self.model.request(),
            precisions=frozenset(group.precisions(backend)) & frozenset(known),
            max_context=max_context(self.workload, group, self.model.max_position),
            max_batch=group.batch_size,
            seed=self.settings.seed,
            drafters=tuple(
                LoadedDrafter(self.drafters[name], frozenset(precisions))
                for name, precisions in sorted(group.drafter_precisions(backend).items())
            ),
        )


def max_context(workload: Workload, group: Group, max_position: int) -> int:
    """Tokens that a sequence of the group holds at most: prompt, output and drafted ones."""
    longest = max(
        (len(p.token_ids) if group.context_length == NATURAL else int(group.context_length))
        + p.max_new_tokens
        for p in workload.prompts
    )
    return min(longest + group.most_pending + 1, max_position)


def read_workload(settings: Settings, model: ModelFile) -> Workload:
    """Load the workload for a model. Raises ConfigError."""
    try:
        return load_workload(settings.config["workload"], Tokenizer(model.metadata), model.metadata)
    except TokenizerError as error:
        raise ConfigError(f"{model.path}: {error}") from error


def prepare(
    settings: Settings, model: ModelFile, workload: Workload, pool: WorkerPool
) -> tuple[Bench, list[str]]:
    """Start the workers, make the plan, and bring the results folder into order.

    Returns the bench and sentences that say what was found or moved. Nothing is loaded yet. Raises
    ConfigError.
    """
    hellos = {name: _hello(settings, pool, name) for name in settings.backends}
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
        builds={name: f"{h.get('version')} {h.get('build')}" for name, h in hellos.items()},
        devices={name: h["device"] for name, h in hellos.items()},
        statistics=settings.config["stats"],
        seed=settings.seed,
        trace=settings.trace,
        drafters={name: drafter.content_hash for name, drafter in drafters.items()},
    )
    _check_trace(settings, hellos)
    folder = ResultsFolder(settings.results)
    bench = Bench(settings, model, drafters, workload, whole, identity, folder, pool, hellos)
    for backend in hellos:
        groups = [g for g in whole.groups if backend in g.backends and bench.applicable(g)]
        if groups:
            pool.plan_loads(backend, [bench.load_spec(group, backend) for group in groups])
    notes = _settle(bench)
    _describe(bench)
    return bench, notes


def _hello(settings: Settings, pool: WorkerPool, backend: str) -> Mapping[str, Any]:
    try:
        return pool.hello(backend)
    except WorkerFailure as failure:
        made_by = settings.backends[backend].made_by
        mend = f" Build it with `{made_by}`." if made_by else ""
        if isinstance(failure, WorkerDied):
            # A worker that ends with 2 was built and says what it misses: a driver, a GPU.
            said = failure.stderr_tail.strip().rpartition("\n")[2]
            mend = (f" It said: {said}" if said else "") + (mend if failure.returncode != 2 else "")
        raise ConfigError(f"backends.{backend}: {failure}{mend}") from failure


def _check_trace(settings: Settings, hellos: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse token traces where no backend writes them."""
    able = [name for name, hello in hellos.items() if _traces_tokens(hello)]
    if settings.trace == "tokens" and not able:
        raise ConfigError(
            f"trace=tokens: none of the backends {', '.join(hellos)} writes token traces. Leave "
            "trace=rounds, or add backend native."
        )


def _traces_tokens(hello: Mapping[str, Any]) -> bool:
    return "tokens" in hello["capabilities"].get("trace", ())


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

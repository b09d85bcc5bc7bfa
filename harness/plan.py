"""The plan: groups, their cells, and what must be equal for two results to be mixed.

A group holds all methods of one batch size and context length. Its baseline stands in it twice, the
second time as `noise`: the difference of the two is what the machine adds by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.config import Axes, Settings
from harness.errors import ConfigError
from harness.methods import Method, expand
from harness.vocabulary import NATURAL
from harness.workload import GroupDraw
from harness.workload.settings import ContextLength

SCHEMA_VERSION = 1
HASH_DIGITS = 16


@dataclass(frozen=True)
class Identity:
    """What the numbers depend on besides a cell's axes.

    Results of another identity are never mixed: they describe another model, other prompts, another
    engine, another machine, statistics by other rules, or a method slowed down by tracing.
    `drafters` holds the content hash of each drafter with weights of its own, by id.
    """

    model: str
    workload: str
    builds: Mapping[str, str]
    devices: Mapping[str, Any]
    statistics: Mapping[str, Any]
    seed: int
    trace: str = "rounds"
    drafters: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The identity as `plan.json` keeps it."""
        return {
            "model": self.model,
            "workload": self.workload,
            "builds": dict(self.builds),
            "devices": dict(self.devices),
            "statistics": dict(self.statistics),
            "seed": self.seed,
            "trace": self.trace,
            "drafters": dict(self.drafters),
        }

    def of_method(self, method: Method) -> dict[str, Any]:
        """The part of the identity that a method's figures depend on."""
        used = {name: self.drafters.get(name) for name in sorted(method.drafter_precisions())}
        return {**self.as_json(), "drafters": used}


@dataclass(frozen=True)
class Cell:
    """A method in a group. `role` is method, baseline or noise."""

    method: Method
    batch_size: int
    context_length: ContextLength
    role: str

    def axes(self) -> dict[str, Any]:
        """The axes that name the cell, as its hash covers them."""
        method = self.method
        return {
            "method": method.request(),
            "acceptance": method.acceptance.settings(),
            "backend": method.backend,
            "batch_size": self.batch_size,
            "context_length": self.context_length,
            "role": self.role,
        }

    def hash(self, identity: Identity) -> str:
        """Name of the cell's record files: equal only where the figures may be mixed."""
        return digest({"axes": self.axes(), "identity": identity.of_method(self.method)})


@dataclass(frozen=True)
class Group:
    """All methods of one model, workload, device, batch size and context length.

    `draw_count` is the number of prompts in each trial. `index` is the group's place in the plan.
    """

    name: str
    index: int
    batch_size: int
    context_length: ContextLength
    draw_count: int
    cells: tuple[Cell, ...]

    @property
    def baseline(self) -> Cell:
        """The cell that the others are compared with."""
        return next(cell for cell in self.cells if cell.role == "baseline")

    @cached_property
    def backends(self) -> tuple[str, ...]:
        """Backends that the group's methods run on, in the order of the methods."""
        return tuple(dict.fromkeys(cell.method.backend for cell in self.cells))

    def precisions(self, backend: str) -> tuple[str, ...]:
        """Precisions of the target that `backend` computes with in this group."""
        used: set[str] = set()
        for cell in self.cells:
            if cell.method.backend == backend:
                used |= cell.method.precisions()
        return tuple(sorted(used))

    def drafter_precisions(self, backend: str) -> dict[str, set[str]]:
        """Precisions of each drafter with weights of its own on `backend`, by id."""
        used: dict[str, set[str]] = {}
        for cell in self.cells:
            if cell.method.backend == backend:
                for drafter, precisions in cell.method.drafter_precisions().items():
                    used.setdefault(drafter, set()).update(precisions)
        return used

    @property
    def draw(self) -> GroupDraw:
        """What each block of the group takes from the workload."""
        return GroupDraw(self.draw_count, self.context_length)

    @property
    def most_pending(self) -> int:
        """Most tokens beyond the committed ones that a round of any method puts into a cache."""
        return max(cell.method.pending for cell in self.cells)


@dataclass(frozen=True)
class Plan:
    """The groups of a sweep, in the order in which they take turns."""

    groups: tuple[Group, ...]

    def fingerprint(self, identity: Identity) -> str:
        """Equal for two sweeps exactly where one may continue the other."""
        hashes = {group.name: [c.hash(identity) for c in group.cells] for group in self.groups}
        draws = {group.name: group.draw_count for group in self.groups}
        return digest({"cells": hashes, "draws": draws})

    def size(self) -> str:
        """Groups and cells in words."""
        groups, cells = len(self.groups), sum(len(group.cells) for group in self.groups)
        return f"{groups} {'group' if groups == 1 else 'groups'}, {cells} cells"


def build(settings: Settings, *, model: str, workload: str, device: str) -> Plan:
    """Expand the sweep into groups and cells.

    `model`, `workload` and `device` are the names that group folders carry. A group that two
    products of the sweep name holds the methods of both. Raises ConfigError.
    """
    products: dict[tuple[int, ContextLength], list[Axes]] = {}
    for axes in settings.axes:
        for batch_size in axes.batch_size:
            for context_length in axes.context_length:
                products.setdefault((batch_size, context_length), []).append(axes)
    groups = []
    for index, ((batch_size, context_length), sources) in enumerate(products.items()):
        cells = _cells(settings, sources, batch_size, context_length)
        context = context_length if context_length == NATURAL else f"c{context_length}"
        parts = (slug(model), slug(workload), slug(device), f"b{batch_size}", str(context))
        groups.append(
            Group(
                name=".".join(parts),
                index=index,
                batch_size=batch_size,
                context_length=context_length,
                draw_count=settings.draw.count(batch_size, context_length),
                cells=cells,
            )
        )
    return Plan(tuple(groups))


def _cells(
    settings: Settings, sources: list[Axes], batch_size: int, context_length: ContextLength
) -> tuple[Cell, ...]:
    methods: dict[str, Method] = {}
    for axes in sources:
        for method in expand(
            settings.methods,
            draft_lengths=axes.draft_length,
            precisions=axes.precision,
            baseline=settings.baseline,
            backends=list(settings.backends),
            acceptance=settings.acceptance,
            profiles=settings.profiles,
        ):
            methods.setdefault(method.method_id, method)
    cells = []
    for method in methods.values():
        roles = ["baseline" if method.is_baseline else "method"]
        if method.is_baseline and settings.noise_pair:
            roles.append("noise")
        cells += [Cell(method, batch_size, context_length, role) for role in roles]
    return tuple(cells)


def check_memory(plan: Plan, kv_bytes: Mapping[str, int], memory_bytes: int) -> None:
    """Refuse a group whose KV cache alone (`kv_bytes` by group) is larger than the memory."""
    for group in plan.groups:
        if kv_bytes[group.name] > memory_bytes:
            raise ConfigError(
                f"sweep.batch_size={group.batch_size}: the KV cache alone takes "
                f"{kv_bytes[group.name] / 2**30:.1f} GiB at context length {group.context_length}, "
                f"and the machine has {memory_bytes / 2**30:.1f} GiB. Choose a smaller batch."
            )


def slug(text: str) -> str:
    """`text` as a part of a folder name: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def digest(value: Any) -> str:
    """Short sha256 of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]

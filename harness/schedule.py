"""Which block is measured next, and when no more are.

Groups take turns, so that drift of the machine falls on all of them alike. Every group gets its
least number of blocks first; after that, blocks go to groups whose comparisons are still undecided,
as long as the time lasts. A finished block is never run again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from harness import curves
from harness.bench import Bench
from harness.block import GroupRunner
from harness.plan import SCHEMA_VERSION, Cell, Group
from harness.results import block_name, read_json, write_json
from harness.trial import Trial

Decisions = Callable[[Path], Mapping[str, Mapping[str, Any]]]
"""`harness.analysis.progress`: for each group whether its comparisons are decided."""


class Watcher(Protocol):
    """Is told how far the sweep has come."""

    def block_begins(self, group: Group, block: int, cells: int, left_s: float | None) -> None:
        """A block of so many cells begins; `left_s` seconds are left, None where unknown."""

    def cell_begins(self, cell: Cell) -> None:
        """A cell is about to be measured."""

    def block_ended(self, group: Group, block: int, trials: Sequence[Trial], took_s: float) -> None:
        """A block is whole."""


@dataclass
class Spent:
    """Seconds that this results folder has cost so far, over all sweeps that worked on it."""

    path: Path
    earlier_s: float = 0.0
    blocks: dict[str, dict[str, float]] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, results: Path, started: float) -> Spent:
        """Go on from `schedule.json`, where there is one."""
        path = results / "schedule.json"
        if not path.exists():
            return cls(path, started=started)
        earlier = read_json(path)
        return cls(path, float(earlier["spent_s"]), dict(earlier["blocks"]), started)

    @property
    def total_s(self) -> float:
        """Seconds spent, those of earlier sweeps included."""
        return self.earlier_s + time.monotonic() - self.started

    def add(self, group: str, block: int, took_s: float) -> None:
        """Note a finished block."""
        self.blocks.setdefault(group, {})[block_name(block)] = took_s
        write_json(
            self.path,
            {"schema_version": SCHEMA_VERSION, "spent_s": self.total_s, "blocks": self.blocks},
        )

    def block_s(self, group: str) -> float | None:
        """Seconds that a block of the group takes, None where none was timed."""
        times = self.blocks.get(group)
        return fmean(times.values()) if times else None


class Schedule:
    """Measures groups of a sweep until they are decided or the budget is spent.

    `groups` may be any part of the plan's: a host that is given one group needs no other.
    `started` is the `time.monotonic()` from which the budget counts.
    """

    def __init__(
        self,
        bench: Bench,
        groups: Sequence[Group],
        decisions: Decisions,
        watcher: Watcher,
        started: float,
    ) -> None:
        self._bench = bench
        self._settings = bench.settings.schedule
        self._runners = [GroupRunner(bench, group) for group in groups if bench.applicable(group)]
        self._decisions = decisions
        self._watcher = watcher
        self._spent = Spent.read(bench.folder.path, started)
        self._done = {
            runner.group.name: set(bench.folder.finished_blocks(runner.group.name))
            for runner in self._runners
        }

    def run(self) -> None:
        """Measure. Blocks that are whole already are left as they are."""
        curves.measure(self._bench, [runner.group for runner in self._runners])
        for block in range(self._settings.min_blocks):
            for runner in self._runners:
                if block not in self._done[runner.group.name]:
                    self._block(runner, block)
        while (undecided := self._next()) is not None:
            self._block(undecided, max(self._done[undecided.group.name], default=-1) + 1)

    def _next(self) -> GroupRunner | None:
        """The undecided group with the fewest blocks whose next block fits into the budget."""
        left_s = self._budget_left_s()
        fitting = [
            runner
            for runner in self._runners
            if runner.comparable() and (self._spent.block_s(runner.group.name) or 0.0) <= left_s
        ]
        if left_s <= 0 or not fitting:
            return None
        found = self._decisions(self._bench.folder.path)
        unsettled = [r for r in fitting if not self._settled(found.get(r.group.name, {}))]
        return min(unsettled, key=lambda r: len(self._done[r.group.name]), default=None)

    def _settled(self, found: Mapping[str, Any]) -> bool:
        """True where more blocks of a group would answer nothing that was asked."""
        if self._settings.budget_s is None:
            return bool(found.get("widest_half_width", math.inf) <= self._settings.target)
        return bool(found.get("decided", False))

    def _budget_left_s(self) -> float:
        budget_s = self._settings.budget_s
        return math.inf if budget_s is None else budget_s - self._spent.total_s

    def _block(self, runner: GroupRunner, block: int) -> None:
        group = runner.group
        cells = runner.live_cells()
        if not cells:
            return
        self._watcher.block_begins(group, block, len(cells), self._left_s())
        began = time.monotonic()
        trials = runner.run(block, self._watcher.cell_begins)
        took_s = time.monotonic() - began
        self._done[group.name].add(block)
        self._spent.add(group.name, block, took_s)
        self._watcher.block_ended(group, block, trials, took_s)

    def _left_s(self) -> float | None:
        """Seconds until the sweep ends: its budget, or what its least blocks still take."""
        known = [t for t in (self._spent.block_s(r.group.name) for r in self._runners) if t]
        if not known:
            return None
        least = 0.0
        for runner in self._runners:
            missing = sum(
                block not in self._done[runner.group.name]
                for block in range(self._settings.min_blocks)
            )
            least += missing * (self._spent.block_s(runner.group.name) or fmean(known))
        left_s = self._budget_left_s()
        return max(least, left_s) if math.isfinite(left_s) else None

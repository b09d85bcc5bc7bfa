"""One block of a group: every live method once, in random order, over the same prompts.

A failure costs its own cell. The worker is started and loaded again for the next one, and the block
goes on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from backends.client import WorkerError, WorkerFailure
from harness import checks, trial
from harness.bench import Bench
from harness.plan import Cell, Group
from harness.trial import Setting, Trial
from harness.workers import LoadedWorker
from harness.workload import Prompt

WARM_UP_TOKENS = 8
SCORE_TIMEOUT_S = 600.0
Watch = Callable[[Cell], None]
"""Told of each cell before it is measured."""


class GroupRunner:
    """Runs the blocks of one group. It needs nothing of other groups."""

    def __init__(self, bench: Bench, group: Group) -> None:
        self.bench = bench
        self.group = group
        self._failures = self._earlier_failures()
        self._warmed_up = False

    def live_cells(self) -> list[Cell]:
        """Cells that have not failed too often to be tried again.

        One without a worker fails once: the reason is known before the first block.
        """
        most, unstarted = self.bench.settings.schedule.max_failures, self.bench.unstarted
        return [
            cell
            for cell in self.group.cells
            if self._failures[_key(cell)] < (1 if cell.method.backend in unstarted else most)
        ]

    def comparable(self) -> bool:
        """False where the baseline is not tried again, and further blocks would decide nothing."""
        return self.group.baseline in self.live_cells()

    def run(self, block: int, watch: Watch) -> list[Trial]:
        """Measure a block and write its records. Returns its trials in the order they were run."""
        setting = self.bench.setting(self.group, block)
        writer = self.bench.folder.begin_block(self.group.name, block)
        order = self.live_cells()
        seed = f"{self.bench.settings.seed}/{self.group.name}/{block}"
        random.Random(seed).shuffle(order)
        self.bench.pool.begin_block()
        if not self._warmed_up:
            self._warm_up(order, setting)
        trials = []
        for position, cell in enumerate(order):
            watch(cell)
            trials.append(self._trial(cell, position, setting))
        for finished in trials:
            self._failures[_key(finished.cell)] += not finished.ok
        self._check(trials, setting)
        for finished in trials:
            writer.write(finished.record)
        writer.finish()
        return trials

    def _earlier_failures(self) -> Counter[tuple[str, str]]:
        """Failures in the blocks that an earlier sweep finished."""
        failures: Counter[tuple[str, str]] = Counter()
        folder = self.bench.folder
        for block in folder.finished_blocks(self.group.name):
            for record in folder.block_records(self.group.name, block):
                if record["status"] == "failed":
                    failures[record["cell"]["method_id"], record["cell"]["role"]] += 1
        return failures

    def _warm_up(self, cells: Sequence[Cell], setting: Setting) -> None:
        """Warm every method before the first timed trial; failures show up in the trial itself."""
        self._warmed_up = True
        for cell in cells:
            try:
                self._warm_worker(cell, setting)
            except WorkerFailure:
                continue

    def _warm_worker(self, cell: Cell, setting: Setting) -> LoadedWorker:
        """A loaded worker that has run this cell's method already."""
        self._refuse_unsupported(cell)
        loaded = self._ready(cell)
        prompts = self._other_prompts(setting, loaded.spec.max_context)
        trial.warm_up(loaded, cell, prompts, setting, WARM_UP_TOKENS)
        return loaded

    def _ready(self, cell: Cell) -> LoadedWorker:
        """A worker with what the group's methods need; with what this one needs where memory does
        not hold all."""
        backend = cell.method.backend
        try:
            return self.bench.pool.ready(backend, self.bench.load_spec(self.group, backend))
        except WorkerError as error:
            if error.type != "out_of_memory":
                raise
        alone = replace(self.group, cells=(cell,))
        return self.bench.pool.ready(backend, self.bench.load_spec(alone, backend))

    def _refuse_unsupported(self, cell: Cell) -> None:
        """Raise the error that the worker gave at its start, or would give after loading."""
        if cell.method.backend in self.bench.unstarted:
            raise self.bench.unstarted[cell.method.backend]
        able = self.bench.hellos[cell.method.backend]["capabilities"]
        method = cell.method
        drafters, shapes = method.kinds()
        for what, needed, known in (
            ("precision", method.precisions(), able["precisions"]),
            ("drafter", drafters, able["drafters"]),
            ("shape", shapes, able["shapes"]),
            ("acceptance", {method.acceptance.kind}, able["acceptance"]),
        ):
            missing = sorted(needed - set(known))
            if missing:
                raise WorkerError(
                    "unsupported",
                    f"the backend {method.backend} has no {what} {', '.join(missing)}; "
                    f"it has {', '.join(known)}",
                )
        if cell.batch_size > able["max_batch"]:
            raise WorkerError(
                "unsupported",
                f"the backend {method.backend} decodes at most {able['max_batch']} sequences "
                f"at once, not {cell.batch_size}",
            )

    def _other_prompts(self, setting: Setting, max_context: int) -> list[Prompt]:
        """The shortest prompts that the block does not use, one a slot."""
        used = {prompt.id for prompt in setting.draw.prompts}
        room = max_context - WARM_UP_TOKENS - self.group.most_pending - 1
        fitting = [p for p in self.bench.workload.prompts if len(p.token_ids) <= room]
        others = [prompt for prompt in fitting if prompt.id not in used] or fitting
        others.sort(key=lambda prompt: (len(prompt.token_ids), prompt.id))
        return others[: self.group.batch_size] or list(setting.draw.prompts[:1])

    def _trial(self, cell: Cell, position: int, setting: Setting) -> Trial:
        loaded = None
        try:
            loaded = self._warm_worker(cell, setting)
            return trial.run(loaded, cell, position, setting)
        except WorkerFailure as failure:
            return trial.failed(cell, position, setting, failure, loaded)

    def _check(self, trials: Sequence[Trial], setting: Setting) -> None:
        """Add grades, losslessness and quality; a failure here is told and costs no cell."""
        prompts = setting.draw.prompts
        for answered in trials:
            if answered.ok:
                answered.record["task"] = checks.task(answered, prompts, self.bench.text)
        for backend in self.group.backends:
            ours = [t for t in trials if t.ok and t.cell.method.backend == backend]
            if not ours or "score" not in self.bench.hellos[backend]["capabilities"]["calls"]:
                continue
            try:
                for checked, result in checks.losslessness(ours, prompts, self._score(backend)):
                    checked.record["losslessness"] = result
                # Random weights have no quality to lose.
                wanted = self.bench.settings.score_quality and self.bench.model.synthetic is None
                if wanted and self.group.name == self.bench.quality_group:
                    self._score_quality(ours, prompts, backend)
            except WorkerFailure as failure:
                for checked in ours:
                    checked.record["check_error"] = str(failure)

    def _score_quality(
        self, trials: Sequence[Trial], prompts: Sequence[Prompt], backend: str
    ) -> None:
        """Scores go to one record a precision: the plain method's where it ran."""
        baseline = next((t for t in trials if t.cell.role == "baseline"), None)
        if baseline is None:
            return
        holders: dict[str, Trial] = {}
        for candidate in sorted(trials, key=lambda t: not t.cell.method.plain):
            holders.setdefault(candidate.cell.method.precision, candidate)
        scores = checks.quality(sorted(holders), baseline, prompts, self._score(backend))
        for precision, quality in scores.items():
            holders[precision].record["quality"] = quality

    def _score(self, backend: str) -> checks.Score:
        def score(
            sequences: Sequence[Sequence[int]], precision: str, reference: str
        ) -> list[dict[str, Any]]:
            loaded = self.bench.pool.ready(backend, self.bench.load_spec(self.group, backend))
            answer = loaded.worker.call(
                "score",
                timeout_s=SCORE_TIMEOUT_S,
                sequences=[list(sequence) for sequence in sequences],
                precision=precision,
                reference=reference,
            )
            columns: list[dict[str, Any]] = answer["sequences"]
            return columns

        return score


def _key(cell: Cell) -> tuple[str, str]:
    return (cell.method.method_id, cell.role)

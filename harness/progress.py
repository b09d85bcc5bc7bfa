"""Shows how far a sweep has come: a bar on a terminal, plain lines elsewhere.

The bar is drawn when a cell begins and at no other time: a clock that redraws itself would take
processor time from the measurement.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from harness.plan import Cell, Group
from harness.trial import Trial


class ProgressDisplay:
    """Follows a schedule. `least_trials` is the number of trials that will run in any case."""

    def __init__(self, console: Console, least_trials: int) -> None:
        self._console = console
        self._total = least_trials
        self._done = 0
        self._block_cells = 0
        self._cells_begun = 0
        self._block = ""
        self._left = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._bar = Progress(
                BarColumn(12),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.description}", markup=False),
                console=console,
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=least_trials)

    def __enter__(self) -> ProgressDisplay:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def block_begins(self, group: Group, block: int, cells: int, left_s: float | None) -> None:
        """Remember the block and the seconds left."""
        self._block = f"block {block} of {group.name}"
        self._left = "" if left_s is None else f"about {duration(left_s)} left"
        self._block_cells = cells
        self._cells_begun = 0
        self._total = max(self._total, self._done + cells)
        if not self._bar:
            left = f"; {self._left}" if self._left else ""
            self._print(f"{group.name} block {block}: measuring {cells} cells{left}.")

    def cell_begins(self, cell: Cell) -> None:
        """Show the present cell."""
        again = " (A/A)" if cell.role == "noise" else ""
        left = f"{self._left}: " if self._left else ""
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=self._done + self._cells_begun,
                total=self._total,
                description=f"{left}{cell.method.method_id}{again}, {self._block}",
                refresh=True,
            )
        self._cells_begun += 1

    def block_ended(self, group: Group, block: int, trials: Sequence[Trial], took_s: float) -> None:
        """Report failures, and on plain output the block."""
        self._done += len(trials)
        for trial in trials:
            if not trial.ok:
                error = trial.record["error"]
                again = " (A/A)" if trial.cell.role == "noise" else ""
                self._print(
                    f"{group.name} block {block}: {trial.cell.method.method_id}{again} failed: "
                    f"{error['message']}"
                )
        if not self._bar:
            took = duration(took_s)
            self._print(f"{group.name} block {block}: {len(trials)} cells in {took}.")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds in words: `41 s`, `6 min 30 s`."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return (
        f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    )

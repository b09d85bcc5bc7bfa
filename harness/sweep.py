"""`python -m harness.sweep`: measure a workload, analyse it, and write the report.

A Hydra application. Exit status: 0 every cell was measured; 1 some cells failed, and the others
are reported; 2 the configuration, a file or a folder is wrong or no worker starts, and nothing was
changed; 130 interrupted.
The same command again goes on where an interrupted one stopped.
"""

from __future__ import annotations

import sys
import time

from rich.console import Console

from harness import (
    analysis,
    closing,
    closing_curves,
    config,
    curve_settings,
    dry_run,
    environment,
    model_file,
    roi,
)
from harness.bench import Bench, read_workload
from harness.command import OK, run_command
from harness.config import Settings
from harness.prepare import prepare
from harness.progress import ProgressDisplay, duration
from harness.results import ResultsFolder
from harness.schedule import Schedule
from harness.tokenizer import Tokenizer
from harness.trace import sweep as sweep_traces
from harness.workers import WorkerPool
from reports import build as report

PLAIN_WIDTH = 140
CELLS_FAILED = 1


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    started = time.monotonic()
    # Without a terminal there is no width to keep to, and tables are easier read unbroken.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    return run_command(
        lambda cfg: sweep(config.read(cfg), console, started), argv, kept="Finished blocks"
    )


def sweep(settings: Settings, console: Console, started: float) -> int:
    """Measure, analyse and report one configuration. `started` is when its budget began to run.

    Raises ConfigError before anything is timed.
    """
    roi.validate_cost(settings.config["cost"])
    curves = curve_settings.read(settings.config["curves"])
    if settings.dry_run:
        dry_run.show(settings, console)
        return OK
    model = model_file.open_model(settings.config["model"])
    workload = read_workload(settings, model)
    folder = ResultsFolder(settings.results)
    folder.check_writable()
    with folder.lock():
        with WorkerPool(settings.backends) as pool:
            bench, notes = prepare(settings, model, workload, pool)
            for note in notes:
                _say(console, note)
            _introduce(bench, console)
            _measure(bench, console, started)
            _join_traces(bench, console)
        summary = analysis.analyse(folder.path)
        page = report.build(folder.path, str(settings.config["report"]["lang"]))
    closing.show(summary, console)
    if curves.show:
        closing_curves.show(summary, console)
    _say(console, f"\nReport: {page} (after {duration(time.monotonic() - started)})")
    failures = summary["failures"]
    if failures and not any(method["blocks"] for method in summary["methods"]):
        reason = failures[0]["error"]["message"]
        print(f"Error: no cell could be measured. The first failed so: {reason}", file=sys.stderr)
    return CELLS_FAILED if failures else OK


def _measure(bench: Bench, console: Console, started: float) -> None:
    least = _missing_trials(bench)
    with ProgressDisplay(console, least) as display:
        Schedule(bench, bench.plan.groups, analysis.progress, display, started).run()


def _join_traces(bench: Bench, console: Console) -> None:
    """Make the tables of token traces, where the sweep asked for them."""
    if bench.settings.trace != "tokens":
        return
    folder = bench.folder
    tokenizer = Tokenizer(bench.model.metadata)
    written = sweep_traces.join(
        folder.path,
        (
            record
            for group in bench.plan.groups
            for block in folder.finished_blocks(group.name)
            for record in folder.block_records(group.name, block)
        ),
        {prompt.id: number for number, prompt in enumerate(bench.workload.prompts)},
        tokenizer.decode if bench.model.metadata.get("tokenizer") else lambda _: "",
    )
    _say(console, f"Token traces of {len(written)} methods: {folder.path / 'traces'}")


def _missing_trials(bench: Bench) -> int:
    """Trials that the least number of blocks still needs."""
    missing = 0
    for group in bench.plan.groups:
        if bench.applicable(group):
            done = len(bench.folder.finished_blocks(group.name))
            blocks = max(0, bench.settings.schedule.min_blocks - done)
            missing += blocks * len(group.cells)
    return missing


def _introduce(bench: Bench, console: Console) -> None:
    """Say what is measured on what."""
    device = next(iter(bench.hellos.values()))["device"]
    _say(
        console,
        f"{bench.model.name}, workload {bench.workload.name} "
        f"({len(bench.workload.prompts)} prompts), on {device.get('name')} "
        f"({environment.usable_cores()} cores): {bench.plan.size()}.",
    )
    instead_of = bench.workload.source.get("instead_of")
    if instead_of:
        _say(console, f"The workload {bench.workload.name} stands in for {instead_of}.")
    for group in bench.plan.groups:
        draw = bench.draw(group, 0)
        if not draw.applicable:
            _say(console, f"{group.name} is not applicable: {draw.left_out['reason']}.")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())

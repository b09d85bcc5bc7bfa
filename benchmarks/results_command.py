"""The command line of a benchmark that reads a sweep's results and makes figures of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures_file import write_figures
from harness.errors import ConfigError

Entries = Sequence[Mapping[str, Any]]


def run_on_results(
    program: str,
    doc: str | None,
    compare: Callable[[Path], Entries],
    show: Callable[[Entries], None],
    arguments: Sequence[str] | None,
) -> int:
    """`python -m benchmarks.PROGRAM RESULTS [--out FILE]`: store and show what `compare` finds.

    `doc` is the program's docstring. Returns the exit status: 2 for a ConfigError, which is told.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{program}", description=str(doc).partition("\n")[0]
    )
    parser.add_argument("results", type=Path, help="results folder of a sweep")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    given = parser.parse_args(arguments)
    try:
        entries = compare(given.results)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    write_figures(given.out, entries)
    show(entries)
    return 0

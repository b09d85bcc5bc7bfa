"""`python -m harness.trace`: token traces, agreement tables and their report.

A Hydra application (conf/trace.yaml). Exit status: 0 done; 1 the worker failed, and finished
problems are kept; 2 the configuration, a file or a folder is wrong; 130 interrupted. The same
command again goes on where the last one stopped.
"""

from __future__ import annotations

import sys

from omegaconf import DictConfig
from rich.console import Console

from backends.client import WorkerFailure
from harness.command import OK, run_command
from harness.trace import settings
from harness.trace.application import run

WORKER_FAILED = 1
KEPT = "Finished problems"


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    console = Console(highlight=False)

    def task(cfg: DictConfig) -> int:
        try:
            run(settings.read(cfg), console)
        except WorkerFailure as failure:
            print(
                f"Error: {failure} {KEPT} are kept; the same command goes on from there.",
                file=sys.stderr,
            )
            return WORKER_FAILED
        return OK

    return run_command(task, argv, config_name="trace", kept=KEPT)


if __name__ == "__main__":
    sys.exit(main())

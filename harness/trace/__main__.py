"""`python -m harness.trace`: token traces, agreement tables and their report.

A Hydra application (conf/trace.yaml). Exit status: 0 done; 1 the worker failed, and finished
problems are kept; 2 the configuration, a file or a folder is wrong; 130 interrupted. The same
command again goes on where the last one stopped.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from omegaconf import DictConfig
from rich.console import Console

from backends.client import WorkerFailure
from harness.compose import run_application
from harness.errors import ConfigError
from harness.trace import settings
from harness.trace.application import run

OK, WORKER_FAILED, BAD_CONFIGURATION, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    console = Console(highlight=False)

    def task(cfg: DictConfig) -> None:
        run(settings.read(cfg), console)

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run_application(task, sys.argv[1:] if argv is None else argv, config_name="trace")
    except ConfigError as error:
        print(f"Error: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    except WorkerFailure as failure:
        print(
            f"Error: {failure} Finished problems are kept; the same command goes on from there.",
            file=sys.stderr,
        )
        return WORKER_FAILED
    except BrokenPipeError:
        # Whoever read the output has gone (`... --help | head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except KeyboardInterrupt:
        print(
            "Interrupted. Finished problems are kept; the same command goes on from there.",
            file=sys.stderr,
        )
        return INTERRUPTED
    return OK


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

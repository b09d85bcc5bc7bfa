"""The frame of a Hydra command line: exit status, interruption, and errors in one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from omegaconf import DictConfig

from harness.compose import run_application
from harness.errors import ConfigError
from reports.source import ReportError

OK, BAD_CONFIGURATION, INTERRUPTED, UNREAD = 0, 2, 130, 141


def run_command(
    task: Callable[[DictConfig], int],
    argv: Sequence[str] | None,
    *,
    config_name: str = "config",
    kept: str,
) -> int:
    """Compose a configuration, call `task` with it, and return the exit status.

    That is the highest status that `task` returned (`--multirun` calls it several times); 2 for a
    ConfigError or ReportError, 130 after an interruption, 141 where nobody reads the output.
    `argv` is the command line without the program's name, None for this process's own; `kept`
    names what an interruption leaves ("Finished blocks").
    """
    statuses: list[int] = []

    def counted(cfg: DictConfig) -> None:
        statuses.append(task(cfg))

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run_application(counted, list(sys.argv[1:] if argv is None else argv), config_name)
    except (ConfigError, ReportError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    except BrokenPipeError:
        # Whoever read the output has gone (`... --help | head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except KeyboardInterrupt:
        print(
            f"Interrupted. {kept} are kept; the same command goes on from there.",
            file=sys.stderr,
        )
        return INTERRUPTED
    return max(statuses, default=OK)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

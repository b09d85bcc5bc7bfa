"""Errors of workload files: every problem of a file is collected and named by its place."""

from __future__ import annotations

from harness.errors import ConfigError

SHOWN = 20


class WorkloadError(ConfigError):
    """A workload's configuration or file cannot be used; the message says where and why."""


class Problems:
    """Collects the problems of one file so that a user can repair them all in one go."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: list[tuple[int, str]] = []

    def add(self, line: int | None, text: str) -> None:
        """Notes a problem at a line (counted from 1), or of the whole file where it is None."""
        self._found.append((line or 0, text))

    def __len__(self) -> int:
        return len(self._found)

    def raise_if_any(self) -> None:
        """Raises one WorkloadError that lists the problems in the order of their lines.

        At most ``SHOWN`` are listed; the message says how many more there are.
        """
        if not self._found:
            return
        ordered = sorted(self._found, key=lambda found: found[0])
        lines = [
            f"{self._file}:{at}: {text}" if at else f"{self._file}: {text}"
            for at, text in ordered[:SHOWN]
        ]
        if len(ordered) > SHOWN:
            lines.append(f"... and {len(ordered) - SHOWN} more problems in {self._file}.")
        if len(lines) > 1:
            lines.insert(0, f"{self._file} has {len(ordered)} problems:")
        raise WorkloadError("\n".join(lines))

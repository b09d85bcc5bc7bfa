"""The files of an agreement run. A part, a few problems' trace and answers, is written whole.

traces/<cell hash>/<first problem>.parquet and .json   parts, from which a run goes on
traces/<cell hash>.parquet                             all of them, made at the end
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import ConfigError
from harness.results import read_json, write_json
from harness.trace.columns import COLUMNS, both_above


class TraceStore:
    """Parts and the whole trace of one cell."""

    def __init__(self, results: Path, cell_hash: str) -> None:
        self.trace = results / "traces" / f"{cell_hash}.parquet"
        self._parts = self.trace.with_suffix("")

    def scratch(self) -> Path:
        """Where the worker writes the token trace of the part at work."""
        self._parts.mkdir(parents=True, exist_ok=True)
        return (self._parts / "part.trace").absolute()

    def add(self, rows: pd.DataFrame, answers: list[dict[str, Any]]) -> None:
        """Keep a finished part; `answers` has an entry a problem, with its `request`."""
        self._parts.mkdir(parents=True, exist_ok=True)
        name = f"{answers[0]['request']:05d}"
        write_parquet(rows, self._parts / f"{name}.parquet")
        # The answers come last: a part counts where they are there.
        write_json(self._parts / f"{name}.json", answers)

    def answers(self) -> list[dict[str, Any]]:
        """The entries of all finished parts, by request."""
        found = [entry for path in self._finished() for entry in read_json(path)]
        return sorted(found, key=lambda entry: int(entry["request"]))

    def merge(self, requests: Iterable[int], threshold: float, csv: bool) -> pd.DataFrame:
        """Write the whole trace of `requests` as Parquet, and as CSV where asked; return it.

        `both_high` is set by `threshold`, whatever it was when a part was run.
        """
        parts = [read_parquet(path.with_suffix(".parquet")) for path in self._finished()]
        whole = pd.concat(parts, ignore_index=True)
        whole = whole[whole["request"].isin(list(requests))].reset_index(drop=True)
        whole["both_high"] = both_above(whole, threshold)
        write_parquet(whole, self.trace)
        if csv:
            path = self.trace.with_suffix(".csv")
            whole.to_csv(path.with_name(path.name + ".new"), index=False)
            path.with_name(path.name + ".new").replace(path)
        return whole

    def _finished(self) -> list[Path]:
        return sorted(self._parts.glob("[0-9]*.json"))


def write_parquet(rows: pd.DataFrame, path: Path) -> None:
    """Write a table so that a reader sees all of it or none of it."""
    temporary = path.with_name(path.name + ".new")
    rows.to_parquet(temporary, index=False)
    temporary.replace(path)


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a trace. Raises ConfigError that names the file where it is no trace."""
    try:
        rows = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a trace: {error}.") from error
    missing = [column for column in COLUMNS if column not in rows]
    if missing:
        raise ConfigError(f"{path} is no token trace: it has no column {missing[0]!r}.")
    return rows

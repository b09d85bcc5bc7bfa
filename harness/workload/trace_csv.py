"""Reads a trace of a serving system: arrival times and lengths, without text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.workload.errors import Problems
from harness.workload.request_file import read_bytes

TIME, CONTEXT, GENERATED = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
COLUMNS = (TIME, CONTEXT, GENERATED)


@dataclass(frozen=True)
class TraceRow:
    """One request of a trace: seconds of the trace's own clock, and lengths in tokens."""

    time_s: float
    prompt_tokens: int
    output_tokens: int


def read_trace(path: Path) -> list[TraceRow]:
    """Reads a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens.

    Times are ISO 8601 or numbers of seconds; other columns are ignored.

    Raises:
        WorkloadError: the file is missing, empty or has problems; all are named with their lines.
    """
    shown = str(path)
    problems = Problems(shown)
    data = read_bytes(path, shown)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add(line, f"is not UTF-8 at byte {error.start} of the file.")
        problems.raise_if_any()
        raise
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        problems.add(1, f"has no column {', '.join(missing)}. A trace has a first line with the "
                        f"names {', '.join(COLUMNS)}.")  # fmt: skip
        problems.raise_if_any()
    rows = list(_rows(reader, problems))
    if not rows and not len(problems):
        problems.add(None, "has no requests.")
    problems.raise_if_any()
    return rows


def _rows(reader: csv.DictReader[str], problems: Problems) -> Iterator[TraceRow]:
    try:
        for row in reader:
            line = reader.line_num
            time_s = _seconds(row[TIME])
            prompt, output = _count(row[CONTEXT]), _count(row[GENERATED])
            if time_s is None:
                problems.add(line, f"{TIME} must be an ISO 8601 time or seconds, "
                                   f"not {row[TIME]!r}.")  # fmt: skip
            for name, value in ((CONTEXT, prompt), (GENERATED, output)):
                if value is None:
                    problems.add(line, f"{name} must be an integer of 1 or more, "
                                       f"not {row[name]!r}.")  # fmt: skip
            if time_s is not None and prompt is not None and output is not None:
                yield TraceRow(time_s, prompt, output)
    except csv.Error as error:
        problems.add(reader.line_num, f"is not valid CSV: {error}.")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError:
            return None
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return value if abs(value) < 1e18 else None


def _count(text: str | None) -> int | None:
    try:
        value = int(text or "")
    except ValueError:
        return None
    return value if 1 <= value < 1 << 31 else None

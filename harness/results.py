"""A results folder: what is in it, what was finished, and when it is moved aside.

Files are written whole or not at all. A block's records are written into `<block>.partial`, and the
folder is renamed when the block is whole; what a crash leaves half-written is dropped by the next
sweep and measured again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.plan import SCHEMA_VERSION

PARTIAL = ".partial"
_PROBE = ".write-test"


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none of it, even after a power cut."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; NaN and infinity are refused with ValueError."""
    write_text(path, json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises ConfigError that names it where it is unreadable."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error


class ResultsFolder:
    """The folder of one sweep (docs/records.md)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = path / "records"

    def check_writable(self) -> None:
        """Raise ConfigError where the folder cannot be made or written to."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / _PROBE
            probe.write_text("", encoding="utf-8")
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"The results folder {self.path} cannot be written to ({error.strerror}). "
                "Choose another one with `results_root=FOLDER`."
            ) from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other sweeps out of the folder. Raises ConfigError where one is at work there.

        The lock goes with the process, however it ends.
        """
        with self.path.with_name(f".{self.path.name}.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"Another sweep is writing to {self.path}. Wait for it, or use another folder "
                    "with `name=NAME`."
                ) from None
            yield

    def plan(self) -> dict[str, Any] | None:
        """The plan of the earlier sweep in this folder, None without one.

        Raises ConfigError where another version of the schema wrote it.
        """
        path = self.path / "plan.json"
        if not path.exists():
            if any(self.records.glob("*/*/*.json")):
                raise ConfigError(
                    f"{self.path} holds records without a plan.json. Move the folder away, or use "
                    "another one with `name=NAME`."
                )
            return None
        plan = read_json(path)
        version = plan.get("schema_version") if isinstance(plan, dict) else None
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"{path} was written with schema version {version}, and this program reads "
                f"{SCHEMA_VERSION}. Move the folder away, use another one with `name=NAME`, or set "
                "`fresh=true` to have it moved aside."
            )
        assert isinstance(plan, dict)
        return plan

    def move_aside(self) -> Path:
        """Rename the folder to `<name>.<time>` beside it and return the new path."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
        target = self.path.with_name(f"{self.path.name}.{stamp}")
        number = 2
        while target.exists():
            target = self.path.with_name(f"{self.path.name}.{stamp}-{number}")
            number += 1
        self.path.rename(target)
        self.path.mkdir()
        return target

    def drop_partial_blocks(self) -> list[Path]:
        """Remove blocks that were interrupted half-way; return what was removed."""
        dropped = sorted(self.records.glob(f"*/*{PARTIAL}"))
        for folder in dropped:
            shutil.rmtree(folder)
        return dropped

    def finished_blocks(self, group: str) -> list[int]:
        """Numbers of the whole blocks of a group, rising."""
        folders = (self.records / group).glob("[0-9]*")
        return sorted(int(folder.name) for folder in folders if folder.name.isdigit())

    def block_records(self, group: str, block: int) -> list[dict[str, Any]]:
        """The records of a whole block."""
        folder = self.records / group / block_name(block)
        return [read_json(path) for path in sorted(folder.glob("*.json"))]

    def begin_block(self, group: str, block: int) -> BlockWriter:
        """Start a block's folder; what is left of an earlier attempt is dropped."""
        return BlockWriter(self.records / group / block_name(block))


class BlockWriter:
    """Collects the records of one block; nothing counts before `finish`."""

    def __init__(self, folder: Path) -> None:
        self._final = folder
        self._partial = folder.with_name(folder.name + PARTIAL)
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)

    def write(self, record: dict[str, Any]) -> None:
        """Write a record; writing it again replaces it."""
        write_json(self._partial / f"{record['cell']['hash']}.json", record)

    def finish(self) -> None:
        """Give the block its final name: from now on it is measured and never run again."""
        self._partial.rename(self._final)


def block_name(block: int) -> str:
    """Folder name of a block."""
    return f"{block:03d}"

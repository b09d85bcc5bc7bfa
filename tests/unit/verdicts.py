"""Invented records for the tests of the verdict, and what they read of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.analysis import analyse
from tests.fakes.folder import Folder


def keys(findings: list[dict[str, Any]]) -> list[str]:
    return [finding["key"] for finding in findings]


def verdict(folder: Folder, path: Path) -> dict[str, Any]:
    found = dict(analyse(folder.write(path))["verdict"])
    assert found["decision"] in ("adopt", "pilot", "reject", "undecided")
    assert (found["next_measurement"] is not None) is (found["decision"] == "undecided")
    return found


def only(*names: str) -> Callable[[dict[str, Any]], None]:
    """Drops the records of all methods but the named ones and the baseline."""

    def change(record: dict[str, Any]) -> None:
        cell = record["cell"]
        record["drop"] = cell["role"] == "method" and cell["method_id"] not in names

    return change


def stretch(record: dict[str, Any], factor: float) -> None:
    """Makes the rounds of a record slower by a factor."""
    rounds = record["rounds"]
    for name in ("draft_s", "verify_s", "other_s"):
        rounds[name] = [value * factor for value in rounds[name]]
    record["decode_s"] *= factor

"""The results folder: whole files, whole blocks, locks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.results import ResultsFolder, read_json, write_json


def record(name: str) -> dict[str, object]:
    return {"cell": {"hash": name}, "value": name}


def test_a_block_counts_only_when_it_is_finished(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    writer = folder.begin_block("g", 3)
    writer.write(record("a"))
    assert folder.finished_blocks("g") == []
    writer.finish()
    assert folder.finished_blocks("g") == [3]
    assert folder.block_records("g", 3) == [record("a")]


def test_what_was_left_of_a_block_never_enters_the_next_attempt(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.begin_block("g", 0).write(record("old"))
    writer = folder.begin_block("g", 0)
    writer.write(record("new"))
    writer.finish()
    assert folder.block_records("g", 0) == [record("new")]
    folder.begin_block("g", 1)
    folder.begin_block("h", 0)
    assert len(folder.drop_partial_blocks()) == 2
    assert folder.finished_blocks("g") == [0]
    assert folder.finished_blocks("h") == []


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": math.nan})
    assert read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{half", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"plan\.json cannot be read"):
        ResultsFolder(tmp_path).plan()


def test_two_folders_moved_in_one_second_stay_apart(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path / "prod")
    moved = set()
    for _ in range(3):
        folder.path.mkdir(exist_ok=True)
        (folder.path / "x").write_text("x", encoding="utf-8")
        moved.add(folder.move_aside())
    assert len(moved) == 3
    assert all((path / "x").exists() for path in moved)
    assert list(folder.path.iterdir()) == []


def test_the_lock_keeps_a_second_sweep_out_and_ends_with_the_first(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path / "prod")
    with (
        folder.lock(),
        pytest.raises(ConfigError, match="Another sweep"),
        ResultsFolder(folder.path).lock(),
    ):
        pass
    with folder.lock():
        pass

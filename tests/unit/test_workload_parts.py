"""A workload of several data sets, and what stands in where they are not there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.workload import Workload, WorkloadError, load
from tests.fakes.character_tokenizer import MODEL, CharacterTokenizer

BENCH = [("code", "a"), ("code", "b"), ("chat", "c"), ("code", "d"), ("chat", "e")]
PARTS = [
    {"format": "spec_bench", "path": "s.jsonl", "first_of_category": 2},
    {"format": "gsm8k", "path": "g.jsonl", "first": 3, "category": "maths"},
]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def workload(folder: Path, **changes: Any) -> Workload:
    config = {"name": "both", "format": "parts", "parts": PARTS, "root": str(folder), **changes}
    return load(config, CharacterTokenizer(), MODEL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_lines(tmp_path / "s.jsonl", [{"category": c, "turns": [text]} for c, text in BENCH])
    questions = [{"question": f"{n}?", "answer": f"so it is #### {n}"} for n in range(5)]
    write_lines(tmp_path / "g.jsonl", questions)
    write_lines(tmp_path / "other.jsonl", [{"prompt": "x"}])
    return tmp_path


def test_the_first_of_each_category_and_the_first_of_all(folder: Path) -> None:
    found = workload(folder)
    assert [prompt.id for prompt in found.prompts] == [
        "spec-bench-1", "spec-bench-2", "spec-bench-3", "spec-bench-5",
        "gsm8k-1", "gsm8k-2", "gsm8k-3",
    ]  # fmt: skip
    assert Counter(p.category for p in found.prompts) == {"code": 2, "chat": 2, "maths": 3}
    assert all(prompt.answer is None for prompt in found.prompts)
    assert found.source["path"] == "s.jsonl + g.jsonl"
    assert found.source["instead_of"] is None


def test_other_prompts_stand_in_and_say_for_what(folder: Path) -> None:
    otherwise = {"name": "other", "path": "other.jsonl"}
    assert workload(folder, otherwise=otherwise).name == "both"
    (folder / "g.jsonl").unlink()
    found = workload(folder, otherwise=otherwise)
    assert (found.name, len(found.prompts)) == ("other", 1)
    assert found.source["instead_of"].startswith(
        f"both, because the folder {folder} holds no g.jsonl."
    )
    with pytest.raises(WorkloadError, match=r"g\.jsonl in it; it is the test file"):
        workload(folder)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"parts": None}, r"format=parts, which needs it"),
        ({"format": "gsm8k", "path": "g.jsonl"}, r"format=parts, which needs it"),
        ({"parts": [{"format": "gsm8k"}]}, r"path is not set"),
        ({"parts": ["s.jsonl"]}, r"parts\[0\] must have a format"),
        ({"parts": [{**PARTS[0], "first": 0}]}, r"parts\[0\]\.first must be"),
        ({"parts": [{**PARTS[0], "frist": 1}]}, r"unknown key 'frist'.*first"),
        ({"parts": [{**PARTS[0], "format": "requests"}]}, r"'requests' is unknown"),
        ({"otherwise": {"path": "x"}}, r"workload\.name is not set"),
    ],
)
def test_wrong_parts_are_named(folder: Path, changes: dict[str, Any], part: str) -> None:
    with pytest.raises(WorkloadError, match=part):
        workload(folder, **changes)

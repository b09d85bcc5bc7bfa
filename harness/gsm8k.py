"""GSM8K: grade-school maths problems with worked answers (Cobbe et al. 2021, arXiv 2110.14168).

Read from local JSON-lines files, or from the Hugging Face hub where the package `datasets` is
installed and the files are not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.gsm8k_answers import reference_number

FILES = {"test": "gsm8k_test.jsonl", "train": "gsm8k_train.jsonl"}
HUB_NAME = "openai/gsm8k"
FIELDS = ("question", "answer")
CALCULATION = "<<"
"""Opens each calculation in a reference answer, as in `48/2 = <<48/2=24>>24`."""


@dataclass(frozen=True)
class Problem:
    """A problem; `index` counts the rows of its split from 0."""

    index: int
    question: str
    answer: str

    @property
    def id(self) -> str:
        """Name in records: the row, counted from 1 as an editor shows it."""
        return f"gsm8k-{self.index + 1}"

    @property
    def steps(self) -> int:
        """Calculations in the reference answer: how long the problem is."""
        return self.answer.count(CALCULATION)


def read(split: str, root: Path) -> list[Problem]:
    """The problems of `split` (test or train), in the file's order.

    The file in `root` is used where it is there, the hub otherwise. Raises ConfigError that names
    the file: where neither is there, or a row has no question or no final number.
    """
    path = root / FILES[split]
    if path.is_file():
        return _checked(_lines(path), str(path))
    return _checked(_hub_rows(split, path), f"{HUB_NAME}, split {split}")


def _lines(path: Path) -> Iterable[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: this is no JSON ({error}).") from error


def _hub_rows(split: str, path: Path) -> Iterable[Any]:
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ConfigError(
            f"The file {path} does not exist, and the package `datasets`, which would fetch "
            f"{HUB_NAME}, is not installed. Give data.root=FOLDER with {path.name} in it "
            "(openai/grade-school-math), or run `pip install datasets`."
        ) from None
    try:
        rows: Sequence[Any] = datasets.load_dataset(HUB_NAME, "main", split=split)
    except Exception as error:  # the package raises what its many layers raise
        raise ConfigError(
            f"The file {path} does not exist, and {HUB_NAME} could not be fetched: {error}. Give "
            f"data.root=FOLDER with {path.name} in it (openai/grade-school-math)."
        ) from error
    return rows


def _checked(rows: Iterable[Any], source: str) -> list[Problem]:
    problems = []
    for index, row in enumerate(rows):
        place = f"{source}, line {index + 1}"
        values = [row.get(key) if isinstance(row, Mapping) else None for key in FIELDS]
        if not all(isinstance(value, str) and value.strip() for value in values):
            raise ConfigError(f"{place}: a problem needs a text under `question` and `answer`.")
        problem = Problem(index, str(values[0]), str(values[1]))
        if reference_number(problem.answer) is None:
            raise ConfigError(f"{place}: the answer has no final number after `####`.")
        problems.append(problem)
    if not problems:
        raise ConfigError(f"{source} holds no problems.")
    return problems

"""Public data sets that lie in the folder `data.root`: GSM8K and Spec-Bench."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.gsm8k_answers import reference_number
from harness.workload.errors import Problems, WorkloadError
from harness.workload.prompt import Message, Request
from harness.workload.request_file import json_lines, read_bytes, read_requests
from harness.workload.settings import Part, Settings

SOURCES = {
    "gsm8k": "the test file of openai/grade-school-math, renamed",
    "spec_bench": "question.jsonl of hemingkx/Spec-Bench, renamed",
}


def read_dataset(settings: Settings) -> list[Request]:
    """The requests of a workload in any of the known formats.

    Raises:
        WorkloadError: the file is absent (the message names it and where it comes from) or
            has problems.
    """
    if settings.format == "parts":
        return [request for part in settings.parts for request in _part(part, settings)]
    if settings.format == "requests":
        return read_requests(settings.resolve(settings.path), settings.path)
    return _read(settings.format, settings.path, settings)


def with_data(settings: Settings) -> Settings:
    """The settings, or those of `otherwise` where a part's data set is not there."""
    missing = [part.path for part in settings.parts if not settings.resolve(part.path).is_file()]
    if not missing or settings.otherwise is None:
        return settings
    folder = settings.resolve(".")
    return replace(
        settings,
        name=settings.otherwise["name"],
        format="requests",
        path=settings.otherwise["path"],
        parts=(),
        instead_of=f"{settings.name}, because the folder {folder} holds no "
        f"{' and no '.join(missing)}. Give data.root=FOLDER with these files to measure it",
    )


def _read(form: str, shown: str, settings: Settings) -> list[Request]:
    path = settings.resolve(shown)
    if not path.is_file():
        raise WorkloadError(
            f"The workload {settings.name} needs the file {path}, which does not exist. Give "
            f"data.root=FOLDER with {shown} in it; it is {SOURCES[form]}."
        )
    return _gsm8k(path) if form == "gsm8k" else _spec_bench(path)


def _part(part: Part, settings: Settings) -> list[Request]:
    """The requests of a part, without answers to grade: a part's outputs may be cut short."""
    seen: Counter[str] = Counter()
    kept = []
    for request in _read(part.format, part.path, settings):
        seen[request.category] += 1
        if part.first_of_category and seen[request.category] > part.first_of_category:
            continue
        kept.append(replace(request, answer=None, category=part.category or request.category))
    return kept[: part.first]


def _gsm8k(path: Path) -> list[Request]:
    """Each question is one user turn; its answer, where the row has one, grades the model's."""
    problems = Problems(str(path))
    requests = []
    for line, row in json_lines(read_bytes(path, str(path)), problems):
        question = row.get("question")
        if not isinstance(question, str) or not question.strip():
            problems.add(line, "has no question.")
            continue
        answer = row.get("answer")
        if answer is not None and (not isinstance(answer, str) or not reference_number(answer)):
            problems.add(line, "has an answer without a final number after ####.")
            continue
        turn = _user_turn(f"gsm8k-{line}", line, question, "arithmetic")
        requests.append(replace(turn, answer=answer))
    return _checked(requests, problems)


def _spec_bench(path: Path) -> list[Request]:
    """The first turn of each question: a second turn would need the first one's answer."""
    problems = Problems(str(path))
    requests = []
    for line, row in json_lines(read_bytes(path, str(path)), problems):
        turns: Any = row.get("turns")
        if (
            not isinstance(turns, list)
            or not turns
            or not isinstance(turns[0], str)
            or not turns[0].strip()
        ):
            problems.add(line, "has no turns.")
            continue
        category = str(row.get("category") or "all")
        requests.append(_user_turn(f"spec-bench-{line}", line, turns[0], category))
    return _checked(requests, problems)


def _user_turn(name: str, line: int, text: str, category: str) -> Request:
    return Request(id=name, line=line, messages=(Message("user", text),), category=category)


def _checked(requests: list[Request], problems: Problems) -> list[Request]:
    if not requests and not len(problems):
        problems.add(None, "is empty.")
    problems.raise_if_any()
    return requests

"""Reads and checks a workload file: JSON lines, one request a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import near
from harness.workload.errors import Problems, WorkloadError
from harness.workload.prompt import Message, Request

TEXT_KEYS = ("prompt", "messages", "token_ids")
KEYS = (*TEXT_KEYS, "id", "max_new_tokens", "arrival_s", "category", "language", "text_assumed")
ROLES = ("system", "user", "assistant", "tool")


def read_bytes(path: Path, shown: str) -> bytes:
    """The file's bytes; WorkloadError where it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise WorkloadError(
            f"The file {shown} does not exist. Give the path of a JSON-lines file."
        ) from None
    except OSError as error:
        raise WorkloadError(f"The file {shown} cannot be read: {error.strerror}.") from None


def json_lines(data: bytes, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) for each line that holds one; the others become problems.

    Blank lines are skipped, and a byte order mark at the start is dropped.
    """
    offset = 0
    for number, raw in enumerate(data.split(b"\n"), start=1):
        start, offset = offset, offset + len(raw) + 1
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw.strip():
            continue
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            problems.add(
                number,
                f"is not UTF-8 at byte {start + error.start} of the file "
                f"(0x{raw[error.start]:02x}). Save the file as UTF-8.",
            )
            continue
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            problems.add(number, f"is not valid JSON at column {error.colno}: {error.msg}.")
            continue
        except (ValueError, RecursionError) as error:
            problems.add(number, f"is not valid JSON: {error}.")
            continue
        if not isinstance(value, dict):
            problems.add(number, f"holds {_kind(value)}; each line must hold one JSON object.")
            continue
        yield number, value


def read_requests(path: Path, shown: str) -> list[Request]:
    """Reads a workload file.

    Args:
        path: the file.
        shown: the file's name in messages.

    Raises:
        WorkloadError: the file is missing, empty or has problems; all are named with their lines.
    """
    data = read_bytes(path, shown)
    problems = Problems(shown)
    requests: list[Request] = []
    first_line: dict[str, int] = {}
    for line, row in json_lines(data, problems):
        request = _RowReader(line, row, problems).request()
        if request is None:
            continue
        if request.id in first_line:
            problems.add(
                line,
                f"repeats the id {request.id!r} of line {first_line[request.id]}. "
                "Ids must be unique.",
            )
            continue
        first_line[request.id] = line
        requests.append(request)
    if not requests and not len(problems):
        problems.add(None, "is empty. It needs at least one line with a prompt.")
    problems.raise_if_any()
    return requests


class _RowReader:
    """Checks one line's object, noting every problem that it has."""

    def __init__(self, line: int, row: dict[str, Any], problems: Problems) -> None:
        self._line = line
        self._row = row
        self._problems = problems
        self._failed = False

    def request(self) -> Request | None:
        """The request, or None where the line has problems."""
        row = self._row
        for key in row:
            if key not in KEYS:
                self._problem(f"has the unknown key {key!r}. {near(key, KEYS)}")
        given = [key for key in TEXT_KEYS if key in row]
        if len(given) != 1:
            what = "none of them" if not given else " and ".join(given)
            self._problem(f"must have exactly one of {', '.join(TEXT_KEYS)}; it has {what}.")
        request = Request(
            id=self._name("id", f"line-{self._line}"),
            line=self._line,
            text=self._prompt() if "prompt" in row else None,
            messages=self._messages() if "messages" in row else None,
            token_ids=self._token_ids() if "token_ids" in row else None,
            max_new_tokens=self._max_new_tokens(),
            arrival_s=self._arrival(),
            category=self._name("category", "all"),
            language=self._name("language", "") or None,
            text_assumed=self._flag("text_assumed"),
        )
        return None if self._failed else request

    def _problem(self, text: str) -> None:
        self._failed = True
        self._problems.add(self._line, text)

    def _name(self, key: str, default: str) -> str:
        value = self._row.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip():
            self._problem(f"{key} must be a text that is not empty, not {_kind(value)}.")
            return default
        return self._text(key, value)

    def _text(self, key: str, value: str) -> str:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            self._problem(f"{key} holds half of a surrogate pair, which is no character.")
        return value

    def _prompt(self) -> str | None:
        value = self._row["prompt"]
        if not isinstance(value, str):
            self._problem(f"prompt must be a text, not {_kind(value)}.")
            return None
        if not value.strip():
            self._problem("prompt is empty.")
        return self._text("prompt", value)

    def _messages(self) -> tuple[Message, ...] | None:
        value = self._row["messages"]
        if not isinstance(value, list) or not value:
            self._problem(
                "messages must be a list of at least one "
                '{"role": ..., "content": ...}, not ' + _kind(value) + "."
            )
            return None
        messages = [self._message(index, item) for index, item in enumerate(value)]
        if self._failed or None in messages:
            return None
        found = tuple(message for message in messages if message is not None)
        if not any(message.role == "user" for message in found):
            self._problem("messages has no user turn.")
        elif found[-1].role not in ("user", "tool"):
            self._problem(
                "the last of messages must be a user or tool turn, not "
                f"{found[-1].role!r}: the model answers it."
            )
        return found

    def _message(self, index: int, item: object) -> Message | None:
        at = f"messages[{index}]"
        if not isinstance(item, dict):
            self._problem(f"{at} must be an object with role and content, not {_kind(item)}.")
            return None
        for key in item:
            if key not in ("role", "content"):
                self._problem(f"{at} has the unknown key {key!r}. {near(key, ('role', 'content'))}")
        role, content = item.get("role"), item.get("content")
        if not isinstance(role, str) or role not in ROLES:
            self._problem(f"{at} has the unknown role {role!r}. {near(str(role), ROLES)}")
            return None
        if not isinstance(content, str):
            self._problem(f"{at}.content must be a text, not {_kind(content)}.")
            return None
        if not content.strip():
            self._problem(f"{at}.content is empty.")
        return Message(role, self._text(f"{at}.content", content))

    def _token_ids(self) -> tuple[int, ...] | None:
        value = self._row["token_ids"]
        if not isinstance(value, list):
            self._problem(f"token_ids must be a list of integers, not {_kind(value)}.")
            return None
        if not value:
            self._problem("token_ids is empty.")
        for index, item in enumerate(value):
            if type(item) is not int:
                self._problem(f"token_ids[{index}] must be an integer, not {_kind(item)}.")
                return None
        return tuple(value)

    def _max_new_tokens(self) -> int | None:
        value = self._row.get("max_new_tokens")
        if value is None:
            return None
        if type(value) is not int:
            self._problem(f"max_new_tokens must be an integer, not {_kind(value)}.")
            return None
        if value <= 0:
            self._problem(f"max_new_tokens must be at least 1, not {value}.")
        return value

    def _arrival(self) -> float | None:
        value = self._row.get("arrival_s")
        if value is None:
            return None
        if type(value) not in (int, float):
            self._problem(f"arrival_s must be a number of seconds, not {_kind(value)}.")
            return None
        # An integer beyond the range of a float would raise on conversion.
        if not -1e18 < value < 1e18 or math.isnan(value) or value < 0:
            self._problem(f"arrival_s must be 0 or more seconds, and finite, not {value}.")
            return None
        return float(value)

    def _flag(self, key: str) -> bool:
        value = self._row.get(key, False)
        if not isinstance(value, bool):
            self._problem(f"{key} must be true or false, not {_kind(value)}.")
            return False
        return value


def _kind(value: object) -> str:
    """A JSON value's kind in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value!r}" if abs(value) < 1e18 else "a very large number"
    if isinstance(value, str):
        return f"the text {value[:30]!r}"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return "an object"

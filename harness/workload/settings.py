"""The `workload` group of the configuration, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from harness.errors import near
from harness.workload.errors import WorkloadError

ContextLength = int | Literal["natural"]

CONF_PREFIX = "conf:"
MISSING = "???"  # how Hydra writes a value that the user must give
CONF_FOLDER = Path(__file__).resolve().parents[2] / "conf"
FORMATS = ("requests", "gsm8k", "spec_bench", "parts")
DATASETS = ("gsm8k", "spec_bench")
PROMPT_FORMS = ("user_turn", "raw")
MAX_OUTPUT = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # it names folders


@dataclass(frozen=True)
class Part:
    """A data set of a workload of several: its first requests, or the first of each category.

    ``category`` takes the place of the data set's own.
    """

    format: str
    path: str
    first: int | None = None
    first_of_category: int | None = None
    category: str | None = None


@dataclass(frozen=True)
class Settings:
    """A workload's settings. Paths are as written; ``resolve`` turns them into files.

    ``parts`` are for the format ``parts`` alone. ``otherwise`` is measured where a data set is
    not there; ``instead_of`` then says what it stands for.
    """

    name: str
    path: str
    format: str = "requests"
    root: str | None = None
    pool_path: str | None = None
    prompt_is: str = "user_turn"
    max_new_tokens: int = 64
    text_assumed: bool | None = None
    stop_at_model: bool = True
    stop_ids: tuple[int, ...] = ()
    fitted: Mapping[str, Any] | None = None
    parts: tuple[Part, ...] = ()
    otherwise: Mapping[str, str] | None = None
    instead_of: str | None = None

    @property
    def is_demo(self) -> bool:
        """True for prompts that come with the project: nobody's own traffic."""
        return self.path.startswith(CONF_PREFIX)

    def resolve(self, path: str) -> Path:
        """The file that a path of the configuration means.

        ``conf:x`` is a file of the project's own configuration folder; any other relative path
        starts from ``root``, or from the current folder where that is null.
        """
        if path.startswith(CONF_PREFIX):
            return CONF_FOLDER / path.removeprefix(CONF_PREFIX)
        return Path(self.root or "") / path


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Checks the `workload` group.

    Raises:
        WorkloadError: an unknown key (with the near names), a wrong type, or a value out of range.
    """
    known = (
        "name",
        "path",
        "format",
        "root",
        "pool_path",
        "prompt_is",
        "max_new_tokens",
        "text_assumed",
        "stop",
        "fitted",
        "parts",
        "otherwise",
    )
    _check_keys(config, known, "workload")
    stop = _group(config, "stop", ("model", "ids"))
    name = _text(config, "name")
    if not NAME.fullmatch(name):
        raise WorkloadError(
            f"workload.name={name!r} cannot name a results folder. Use up to 64 letters, digits, "
            "dots, dashes and underscores, a letter or digit first."
        )
    fitted = config.get("fitted")
    if fitted is not None and not isinstance(fitted, Mapping):
        raise WorkloadError(f"workload.fitted must be a mapping or null, not {fitted!r}.")
    parts = _parts(config)
    otherwise = _group(config, "otherwise", ("name", "path"))
    return Settings(
        name=name,
        path=" + ".join(part.path for part in parts) if parts else _text(config, "path"),
        parts=parts,
        otherwise={key: _text(otherwise, key) for key in ("name", "path")} if otherwise else None,
        format=_choice(config, "format", FORMATS),
        root=_text(config, "root") if config.get("root") is not None else None,
        pool_path=_text(config, "pool_path") if config.get("pool_path") is not None else None,
        prompt_is=_choice(config, "prompt_is", PROMPT_FORMS),
        max_new_tokens=_count(config, "max_new_tokens", "workload.max_new_tokens", 64, MAX_OUTPUT),
        text_assumed=_assumed(config.get("text_assumed", "auto")),
        stop_at_model=_flag(stop, "model", "workload.stop.model", True),
        stop_ids=_ids(stop.get("ids")),
        fitted=fitted,
    )


def _parts(config: Mapping[str, Any]) -> tuple[Part, ...]:
    given = config.get("parts") or []
    if bool(given) != (config.get("format") == "parts"):
        raise WorkloadError("workload.parts is for workload.format=parts, which needs it.")
    parts = []
    for number, entry in enumerate(given):
        where = f"workload.parts[{number}]"
        if not isinstance(entry, Mapping):
            raise WorkloadError(f"{where} must have a format and a path, but it is {entry!r}.")
        _check_keys(entry, tuple(field.name for field in fields(Part)), where)
        counts = {
            key: _count(entry, key, f"{where}.{key}", 1, MAX_OUTPUT)
            for key in ("first", "first_of_category")
            if entry.get(key) is not None
        }
        category = entry.get("category")
        form = _choice(entry, "format", DATASETS)
        parts.append(
            Part(form, _text(entry, "path"), category=category and str(category), **counts)
        )
    return tuple(parts)


def _check_keys(config: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in config:
        if str(key) not in known:
            raise WorkloadError(f"{where} has the unknown key {key!r}. {near(str(key), known)}")


def _group(config: Mapping[str, Any], key: str, known: Sequence[str]) -> Mapping[str, Any]:
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise WorkloadError(
            f"workload.{key} must have the keys {', '.join(known)}, but it is {value!r}."
        )
    _check_keys(value, known, f"workload.{key}")
    return value


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if value in (None, MISSING):
        raise WorkloadError(f"workload.{key} is not set. Give workload.{key}=...")
    if not isinstance(value, str) or not value.strip():
        raise WorkloadError(f"workload.{key} must be a text that is not empty, not {value!r}.")
    return value


def _choice(config: Mapping[str, Any], key: str, known: Sequence[str]) -> str:
    value = config.get(key, known[0])
    if value not in known:
        raise WorkloadError(f"workload.{key}={value!r} is unknown. {near(str(value), known)}")
    return str(value)


def _count(config: Mapping[str, Any], key: str, shown: str, default: int, most: int) -> int:
    value = config.get(key, default)
    if type(value) is not int or not 1 <= value <= most:
        raise WorkloadError(f"{shown} must be an integer from 1 to {most}, not {value!r}.")
    return value


def _flag(config: Mapping[str, Any], key: str, shown: str, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise WorkloadError(f"{shown} must be true or false, not {value!r}.")
    return value


def _assumed(value: object) -> bool | None:
    if value == "auto":
        return None
    if isinstance(value, bool):
        return value
    raise WorkloadError(f"workload.text_assumed must be auto, true or false, not {value!r}.")


def _ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or any(type(item) is not int or item < 0 for item in value)
    ):
        raise WorkloadError(f"workload.stop.ids must be a list of token ids, not {value!r}.")
    return tuple(value)

"""What a report is made from: summary.json, environment.json and config.yaml of a results folder.

The report reads analysis alone, never records, so that it can be rebuilt on another machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SCHEMA_VERSION = 1


class ReportError(Exception):
    """A report cannot be made; the message says why and what to do."""


@dataclass(frozen=True)
class Interval:
    """A mean with its interval; the ends are None where the analysis gave none."""

    mean: float
    ci_low: float | None
    ci_high: float | None
    n: int | None = None
    level: float | None = None

    @property
    def bounded(self) -> bool:
        return self.ci_low is not None and self.ci_high is not None


@dataclass(frozen=True)
class Results:
    """The three files of a results folder, parsed."""

    folder: Path
    summary: dict[str, Any]
    environment: dict[str, Any]
    config: dict[str, Any]
    config_text: str


def as_number(value: Any) -> float | None:
    """A float, infinities included; None for null, NaN, text and booleans."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if math.isnan(value) else float(value)


def as_interval(value: Any) -> Interval | None:
    """Reads `{mean, ci_low, ci_high, n, level}` or a bare number; None where there is no mean."""
    if isinstance(value, Interval):
        return value
    if not isinstance(value, Mapping):
        number = as_number(value)
        return None if number is None else Interval(number, None, None)
    mean = as_number(value.get("mean"))
    if mean is None:
        return None
    n = as_number(value.get("n"))
    return Interval(
        mean,
        as_number(value.get("ci_low")),
        as_number(value.get("ci_high")),
        None if n is None else int(n),
        as_number(value.get("level")),
    )


def load(folder: Path) -> Results:
    """Reads a results folder. Raises ReportError that names the file and what to do about it."""
    if not folder.is_dir():
        raise ReportError(
            f"There is no results folder {folder}. Run `make bench WORKLOAD=prod` first, or name a "
            "folder under results/."
        )
    summary_path = folder / "summary.json"
    if not summary_path.is_file():
        raise ReportError(
            f"{folder} holds no summary.json. Make it from the records with "
            f"`python -m harness.analysis {folder}`, or run the benchmark to its end."
        )
    summary = read_json(summary_path)
    version = summary.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ReportError(
            f"{summary_path} has schema_version {version!r}; this report reads version "
            f"{SCHEMA_VERSION}. Make the summary anew with `python -m harness.analysis {folder}`, "
            "or use the version of SpecQuant Bench that wrote it."
        )
    if not isinstance(summary.get("methods"), list):
        raise ReportError(f"{summary_path} has no list `methods`. Make the summary anew.")
    environment_path = folder / "environment.json"
    environment = read_json(environment_path) if environment_path.is_file() else {}
    config_path = folder / "config.yaml"
    config_text = _read_text(config_path) if config_path.is_file() else ""
    try:
        config = yaml.safe_load(config_text) or {}
    except yaml.YAMLError as error:
        raise ReportError(f"{config_path} is not valid YAML: {error}") from error
    if not isinstance(config, dict):
        raise ReportError(f"{config_path} must hold a mapping, not a {type(config).__name__}.")
    return Results(folder, summary, environment, config, config_text)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} is not UTF-8 text (byte {error.start}).") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises ReportError that names the file."""
    try:
        content = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise ReportError(
            f"{path} is not valid JSON (line {error.lineno}, column {error.colno}: {error.msg})."
        ) from error
    if not isinstance(content, dict):
        raise ReportError(f"{path} must hold a JSON object, not a {type(content).__name__}.")
    return content

"""The composed configuration, checked and given types.

Everything that can be refused before a worker is started is refused here, with a ConfigError that
names the key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness import stats
from harness.drafter_files import DrafterSettings, read_drafter_settings
from harness.drafters import check_precision
from harness.errors import ConfigError, unknown
from harness.model_file import model_path
from harness.shapes import check_drafted
from harness.vocabulary import ABSURD_BATCH, NATURAL, TRACES
from harness.workload.settings import ContextLength

AXES = ("batch_size", "context_length", "precision", "draft_length")
EXECUTORS = ("local",)
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Axes:
    """One product of the sweep: its groups are batch_size x context_length."""

    batch_size: tuple[int, ...]
    context_length: tuple[ContextLength, ...]
    precision: tuple[str, ...]
    draft_length: tuple[int, ...]


@dataclass(frozen=True)
class DrawSettings:
    """How many prompts a trial decodes (conf/config.yaml, `draw`)."""

    prompts: int
    per_slot: int
    long_context: int
    long_prompts: int

    def count(self, batch_size: int, context_length: ContextLength) -> int:
        """Prompts of a trial, never fewer than it has slots."""
        if context_length != NATURAL and context_length >= self.long_context:
            return max(self.long_prompts, batch_size)
        return max(self.prompts, self.per_slot * batch_size)


@dataclass(frozen=True)
class ScheduleSettings:
    """When blocks are run and when no more are (seconds).

    Without a budget a sweep runs until every comparison is as narrow as `target` (half-width, log
    scale).
    """

    budget_s: float | None
    target: float
    min_blocks: int
    max_failures: int
    trial_timeout_s: float


@dataclass(frozen=True)
class BackendSettings:
    """A worker's command, the environment laid over the harness's, and what builds the worker."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    made_by: str | None


@dataclass(frozen=True)
class Settings:
    """All that the harness needs. `config` is the whole configuration with its values resolved."""

    name: str
    results: Path
    data_root: Path
    model_path: Path
    drafters: Mapping[str, DrafterSettings]
    baseline: str
    acceptance: Any
    profiles: Mapping[str, Any]
    axes: tuple[Axes, ...]
    methods: tuple[Mapping[str, Any], ...]
    backends: Mapping[str, BackendSettings]
    draw: DrawSettings
    schedule: ScheduleSettings
    seed: int
    trace: str
    fresh: bool
    dry_run: bool
    score_quality: bool
    noise_pair: bool
    config: Mapping[str, Any]


def read(cfg: DictConfig) -> Settings:
    """Check a composed configuration. Raises ConfigError."""
    config = resolved(cfg)
    if "agreement" in config:
        raise ConfigError(
            "agreement: this experiment is no sweep. Run it with `python -m harness.trace "
            f"+experiment={config['name']}`."
        )
    executor = config["schedule"]["executor"]
    if executor not in EXECUTORS:
        raise unknown("executor", str(executor), EXECUTORS, "schedule.executor")
    data_root = Path(str(config["data"]["root"])).expanduser()
    name = str(config["name"])
    if not name or name in (".", "..") or "/" in name:
        raise ConfigError(f"name={name!r}: this cannot name a folder under `results_root`.")
    try:
        stats.Settings.read(config["stats"])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"stats: {error}") from error
    if config["trace"] not in TRACES:
        raise unknown("trace level", str(config["trace"]), TRACES, "trace")
    entries = config["methods"]
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise ConfigError("methods: a sweep needs a list of at least one method.")
    return Settings(
        name=name,
        results=Path(str(config["results_root"])).expanduser() / name,
        data_root=data_root,
        model_path=model_path(config["model"]),
        drafters=read_drafter_settings(config["model"].get("drafters")),
        baseline=check_precision(config["baseline"], "baseline"),
        acceptance=config["acceptance"],
        profiles=config.get("profiles") or {},
        axes=_products(config["sweep"]),
        methods=tuple(entries),
        backends=read_backends(config.get("backends") or {}),
        draw=DrawSettings(
            **{
                key: whole(config["draw"][key], f"draw.{key}", 1)
                for key in ("prompts", "per_slot", "long_context", "long_prompts")
            }
        ),
        schedule=_schedule(config),
        seed=whole(config["seed"], "seed", 0),
        trace=str(config["trace"]),
        fresh=flag(config["fresh"], "fresh"),
        dry_run=flag(config["dry_run"], "dry_run"),
        score_quality=flag(config["score_quality"], "score_quality"),
        noise_pair=flag(config["noise_pair"], "noise_pair"),
        config=config,
    )


def resolved(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain values.

    Raises ConfigError for a value that is missing or refers to nothing.
    """
    # Other values refer to what stands under the device's name.
    if "device" in cfg and cfg["device"] not in DEVICES:
        raise unknown("device", str(cfg["device"]), DEVICES, "device")
    try:
        missing = sorted(OmegaConf.missing_keys(cfg))
    except OmegaConfBaseException as error:
        raise ConfigError(f"The configuration is incomplete: {_first_line(error)}") from error
    if missing:
        raise ConfigError(f"{missing[0]} has no value. Give it one with `{missing[0]}=VALUE`.")
    try:
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"The configuration is incomplete: {_first_line(error)}") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _products(sweep: Mapping[str, Any]) -> tuple[Axes, ...]:
    for key in sweep:
        if key not in (*AXES, "also"):
            raise unknown("axis", str(key), AXES, "sweep")
    base = {key: sweep[key] for key in AXES}
    products = [_axes(base, "sweep")]
    for number, extra in enumerate(sweep.get("also") or []):
        place = f"sweep.also[{number}]"
        if not isinstance(extra, Mapping):
            raise ConfigError(f"{place}: an entry names axes, for example {{batch_size: [4]}}.")
        for key in extra:
            if key not in AXES:
                raise unknown("axis", str(key), AXES, place)
        products.append(_axes({**base, **extra}, place))
    return tuple(products)


def _axes(given: Mapping[str, Any], place: str) -> Axes:
    return Axes(
        batch_size=tuple(
            _batch(value, f"{place}.batch_size") for value in _list(given, "batch_size", place)
        ),
        context_length=tuple(
            _context(value, f"{place}.context_length")
            for value in _list(given, "context_length", place)
        ),
        precision=tuple(
            check_precision(value, f"{place}.precision")
            for value in _list(given, "precision", place)
        ),
        draft_length=tuple(
            check_drafted(value, f"{place}.draft_length")
            for value in _list(given, "draft_length", place)
        ),
    )


def _list(given: Mapping[str, Any], key: str, place: str) -> list[Any]:
    value = given[key]
    values = list(value) if isinstance(value, list) else [value]
    if not values:
        raise ConfigError(f"{place}.{key}: the list is empty; an axis needs at least one value.")
    if len(set(map(str, values))) < len(values):
        raise ConfigError(f"{place}.{key}={values}: a value stands there twice.")
    return values


def _batch(value: Any, place: str) -> int:
    batch = whole(value, place, 1)
    if batch > ABSURD_BATCH:
        raise ConfigError(f"{place}={batch}: a batch has at most {ABSURD_BATCH} sequences.")
    return batch


def _context(value: Any, place: str) -> ContextLength:
    if value == NATURAL:
        return NATURAL
    if isinstance(value, str):
        raise ConfigError(f"{place}={value}: write `{NATURAL}` or a number of tokens.")
    return whole(value, place, 2)


def whole(value: Any, place: str, lowest: int) -> int:
    """`value` where it is a whole number of `lowest` or more. Raises ConfigError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise ConfigError(f"{place}={value}: this must be a whole number of {lowest} or more.")
    return value


def nonnegative(value: Any, place: str) -> float:
    """A finite number of 0 or more."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value < 0
    ):
        raise ConfigError(f"{place}={value}: this must be a number of 0 or more.")
    return float(value)


def flag(value: Any, place: str) -> bool:
    """`value` where it is true or false. Raises ConfigError."""
    if not isinstance(value, bool):
        raise ConfigError(f"{place}={value}: this is either true or false.")
    return value


def _schedule(config: Mapping[str, Any]) -> ScheduleSettings:
    schedule = config["schedule"]
    budget = schedule["budget_s"]
    return ScheduleSettings(
        budget_s=None if budget is None else nonnegative(budget, "schedule.budget_s"),
        target=nonnegative(config["stats"]["target"], "stats.target"),
        min_blocks=whole(config["stats"]["min_blocks"], "stats.min_blocks", 1),
        max_failures=whole(schedule["max_failures"], "schedule.max_failures", 1),
        trial_timeout_s=nonnegative(schedule["trial_timeout_s"], "schedule.trial_timeout_s"),
    )


def read_backends(given: Mapping[str, Any]) -> dict[str, BackendSettings]:
    """The `backends` of a configuration, the first being the default. Raises ConfigError."""
    if not given:
        raise ConfigError("backend: at least one backend is needed, for example backend=[native].")
    backends = {}
    for name, entry in given.items():
        command = entry.get("command")
        if not command or isinstance(command, str):
            raise ConfigError(f"backends.{name}.command: this must be a list of words.")
        env = {str(key): str(value) for key, value in (entry.get("env") or {}).items()}
        backends[str(name)] = BackendSettings(
            str(name), tuple(map(str, command)), env, entry.get("made_by")
        )
    return backends


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]

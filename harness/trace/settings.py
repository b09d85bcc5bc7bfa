"""The configuration of an agreement run (conf/trace.yaml), checked and given types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness import config
from harness.config import BackendSettings
from harness.drafters import check_precision
from harness.errors import ConfigError, unknown
from harness.gsm8k_prompts import Form, form_of
from harness.shapes import check_drafted
from harness.trace.columns import MODES
from harness.trace.intervals import Sampling
from harness.vocabulary import ABSURD_BATCH


@dataclass(frozen=True)
class Settings:
    """All that a run needs. `limit` None stands for every problem; `config` is kept as it came."""

    results: Path
    data_root: Path
    model_path: Path
    model_made_by: str | None
    backend: BackendSettings
    target: str
    draft: str
    gamma: int
    modes: tuple[str, ...]
    form: Form
    limit: int | None
    max_new_tokens: int
    batch_size: int
    threshold: float
    csv: bool
    part: int
    timeout_s: float
    sampling: Sampling
    seed: int
    fresh: bool
    lang: str
    config: Mapping[str, Any]

    def method(self) -> dict[str, Any]:
        """The `method` of a worker's `run` request: plain where no drafting is looked at."""
        drafting = MODES[0] in self.modes
        return {
            "precision": self.target,
            "kv_precision": "kv16",
            "drafter": {"kind": "self", "precision": self.draft} if drafting else {"kind": "none"},
            "shape": {"kind": "chain", "gamma": self.gamma} if drafting else {"kind": "none"},
            "acceptance": {"kind": "greedy"},
        }


def read(cfg: DictConfig) -> Settings:
    """Check a composed configuration. Raises ConfigError that names the key."""
    whole = config.resolved(cfg)
    block = whole["agreement"]
    backends = config.read_backends(whole.get("backends") or {})
    name = str(whole["name"])
    if not name or name in (".", "..") or "/" in name:
        raise ConfigError(f"name={name!r}: this cannot name a folder under `results_root`.")
    if not whole["model"].get("path"):
        raise ConfigError("model.path: no packed model file is named.")
    root = Path(str(whole["data"]["root"])).expanduser()
    limit = block["limit"]
    batch_size = config.whole(block["batch_size"], "agreement.batch_size", 1)
    if batch_size > ABSURD_BATCH:
        raise ConfigError(
            f"agreement.batch_size={batch_size}: a batch has at most {ABSURD_BATCH} sequences."
        )
    return Settings(
        results=Path(str(whole["results_root"])).expanduser() / name,
        data_root=root,
        model_path=Path(str(whole["model"]["path"])).expanduser(),
        model_made_by=whole["model"].get("made_by"),
        backend=next(iter(backends.values())),
        target=check_precision(block["target"], "agreement.target"),
        draft=check_precision(block["draft"], "agreement.draft"),
        gamma=check_drafted(block["gamma"], "agreement.gamma"),
        modes=_modes(block["modes"]),
        form=form_of(str(block["prompt"]), "agreement.prompt"),
        limit=None if limit is None else config.whole(limit, "agreement.limit", 1),
        max_new_tokens=config.whole(block["max_new_tokens"], "agreement.max_new_tokens", 1),
        batch_size=batch_size,
        threshold=_between(block["threshold"], "agreement.threshold", 0.0, 1.0),
        csv=config.flag(block["csv"], "agreement.csv"),
        part=config.whole(block["part"], "agreement.part", 1),
        timeout_s=config.nonnegative(block["timeout_s"], "agreement.timeout_s"),
        sampling=Sampling(
            level=_between(block["level"], "agreement.level", 0.5, 1.0),
            draws=config.whole(block["bootstrap_draws"], "agreement.bootstrap_draws", 200),
            seed=config.whole(whole["seed"], "seed", 0),
        ),
        seed=config.whole(whole["seed"], "seed", 0),
        fresh=config.flag(whole["fresh"], "fresh"),
        lang=str(whole["report"]["lang"]),
        config=whole,
    )


def _modes(given: Any) -> tuple[str, ...]:
    modes = [given] if isinstance(given, str) else list(given or [])
    for mode in modes:
        if mode not in MODES:
            raise unknown("mode", str(mode), MODES, "agreement.modes")
    if not modes:
        raise ConfigError(f"agreement.modes: name at least one of {', '.join(MODES)}.")
    return tuple(mode for mode in MODES if mode in modes)


def _between(value: Any, place: str, low: float, high: float) -> float:
    number = config.nonnegative(value, place)
    if not low < number < high:
        raise ConfigError(f"{place}={value}: this must lie between {low:g} and {high:g}.")
    return number

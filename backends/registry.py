"""Backends by name: each file of conf/backend/ says how its worker is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from backends.client import Worker, WorkerNotStarted
from backends.validation import near

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "conf" / "backend"


class UnknownBackend(Exception):  # noqa: N818 - the name says it all
    """No backend has this name. The message gives the near ones."""


@dataclass(frozen=True)
class Backend:
    """How a worker is started: `command` relative to the repository's root, `env` on top of the
    environment, `made_by` the command that installs it."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    made_by: str | None

    @property
    def program(self) -> Path:
        """The program that `command` starts."""
        return ROOT / self.command[0]

    def start(self, *, log_path: str | Path | None = None) -> Worker:
        """Start a worker. Raises WorkerNotStarted, naming `made_by` if the program is missing."""
        if not self.program.exists():
            mend = f" Make it with '{self.made_by}'." if self.made_by else ""
            raise WorkerNotStarted(f"{self.name}: {self.program} is missing.{mend}")
        command = [str(self.program), *self.command[1:]]
        return Worker(command, name=self.name, env=self.env, cwd=ROOT, log_path=log_path)


def names() -> list[str]:
    """The known backends."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def backend(name: str, device: str = "cpu") -> Backend:
    """The backend called `name`, on the `device` `cpu` or `cuda`. Raises UnknownBackend."""
    if name not in names():
        raise UnknownBackend(f"Backend {name!r} is unknown. {near(name, names())}")
    # The files refer to the sweep's `device` and to their own place in its configuration.
    whole = OmegaConf.create(
        {"device": device, "backends": {name: OmegaConf.load(FOLDER / f"{name}.yaml")}}
    )
    entry = OmegaConf.to_container(whole.backends[name], resolve=True)
    assert isinstance(entry, dict)
    return Backend(
        name=name,
        command=tuple(str(word) for word in entry["command"]),
        env={str(key): str(value) for key, value in (entry.get("env") or {}).items()},
        made_by=entry.get("made_by"),
    )

"""`python -m harness.doctor`: is everything there that `make bench` needs?

Prints a line for each check and, where something is missing, the command that mends it. The exit
status is 1 where a sweep of the default configuration could not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from hydra import compose, initialize_config_module

from backends.client import WorkerFailure
from harness import clocks, config, environment, model_file
from harness.compose import explain
from harness.config import Settings
from harness.errors import ConfigError
from harness.start import built_by
from harness.workers import WorkerPool

COMPILERS = ("g++", "clang++", "c++")
BUILD_TOOLS = ("cmake", "ninja")
LEAST_MEMORY_BYTES = 2 * 2**30
LEAST_DISK_BYTES = 1 * 2**30
BUSY_SHARE = 0.25
"""Above this share of busy cores a measurement competes with something else."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """One check. `needed` findings that are not `good` keep a sweep from running."""

    what: str
    good: bool
    detail: str
    mend: str = ""
    needed: bool = True


def examine(settings: Settings) -> Iterator[Finding]:
    """Check the machine and the installation for one configuration."""
    yield from _workers(settings)
    yield _compiler()
    yield _model(settings)
    yield _readable("data.root", settings.data_root)
    yield _writable("results_root", settings.results.parent)
    yield _memory()
    yield _disk(settings.results.parent)
    yield _cores()
    yield _governor()
    yield _browser()


def _workers(settings: Settings) -> Iterator[Finding]:
    with WorkerPool(settings.backends) as pool:
        for backend in settings.backends.values():
            what = f"worker {backend.name}"
            try:
                hello = pool.hello(backend.name)
            except WorkerFailure as failure:
                yield Finding(what, False, str(failure), built_by(backend, failure))
            else:
                on = hello["device"].get("name")
                yield Finding(what, True, f"version {hello.get('version')} on {on}")


def _compiler() -> Finding:
    """Needed only to build the worker, so a machine with a built worker can do without."""
    found = [tool for tool in COMPILERS if shutil.which(tool)]
    missing = [tool for tool in BUILD_TOOLS if not shutil.which(tool)]
    if found and not missing:
        return Finding("compiler", True, f"{found[0]}, {' and '.join(BUILD_TOOLS)}", needed=False)
    lacking = ", ".join(([] if found else ["a C++ compiler"]) + missing)
    mend = "apt-get install g++ cmake ninja-build"
    return Finding("compiler", False, f"{lacking} is missing", mend, needed=False)


def _model(settings: Settings) -> Finding:
    made_by = settings.config["model"].get("made_by")
    try:
        model = model_file.open_model(settings.config["model"])
    except ConfigError as error:
        return Finding("model", False, str(error), made_by or "")
    return Finding("model", True, f"{model.name} in {model.path}")


def _readable(what: str, path: Path) -> Finding:
    good = path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    detail = f"{path.resolve()} can{'' if good else 'not'} be read"
    return Finding(what, good, detail, f"set {what}=FOLDER")


def _writable(what: str, path: Path) -> Finding:
    """The folder may still be to be made; what can be tried is its nearest one that exists."""
    try:
        with tempfile.TemporaryFile(dir=_existing(path)):
            pass
    except OSError as error:
        detail = f"{path.resolve()} cannot be written to: {error.strerror}"
        return Finding(what, False, detail, f"set {what}=FOLDER")
    return Finding(what, True, f"{path.resolve()} can be written to")


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _memory() -> Finding:
    free = min(psutil.virtual_memory().available, environment.memory_bytes())
    detail = f"{free / 2**30:.1f} GiB free"
    return Finding("memory", free >= LEAST_MEMORY_BYTES, detail, "end other programs")


def _disk(path: Path) -> Finding:
    free = shutil.disk_usage(_existing(path)).free
    detail = f"{free / 2**30:.1f} GiB free for results"
    return Finding("disk", free >= LEAST_DISK_BYTES, detail, "set results_root=FOLDER")


def _cores() -> Finding:
    busy = psutil.cpu_percent(interval=1.0) / 100
    cores = environment.usable_cores()
    mend = "end other programs; what else runs here widens every interval"
    detail = f"{cores} cores, {busy:.0%} busy"
    return Finding("cores", busy <= BUSY_SHARE, detail, mend, needed=False)


def _governor() -> Finding:
    governor = clocks.governor()
    good = governor in (None, "performance")
    detail = f"clock governor: {governor or 'not told by the system'}"
    return Finding("clock", good, detail, "cpupower frequency-set -g performance", needed=False)


def _browser() -> Finding:
    found = next((name for name in BROWSERS if shutil.which(name)), None)
    detail = found or "no Chromium (used only by tests of the report)"
    return Finding("browser", bool(found), detail, "apt-get install chromium", needed=False)


def show(findings: Iterator[Finding], line: Callable[[str], None]) -> bool:
    """Print findings; True where a sweep can run."""
    able = True
    for finding in findings:
        mark = "ok  " if finding.good else ("MISSING" if finding.needed else "note")
        text = f"{mark:<8}{finding.what}: {finding.detail}"
        if not finding.good and finding.mend:
            text += f"  -> {finding.mend}"
        line(text)
        able &= finding.good or not finding.needed
    return able


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.doctor",
        description="Check whether this machine can run `make bench`, and say what is missing. "
        "Writes nothing.",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="overrides of the configuration, as for harness.sweep",
    )
    given = parser.parse_args(argv)
    try:
        with initialize_config_module("conf", version_base="1.3"):
            settings = config.read(compose("config", overrides=given.overrides))
    except Exception as error:
        print(f"Error: {error if isinstance(error, ConfigError) else explain(error)}")
        return 2
    able = show(examine(settings), print)
    print("A sweep can run." if able else "A sweep cannot run yet.")
    return 0 if able else 1


if __name__ == "__main__":
    sys.exit(main())

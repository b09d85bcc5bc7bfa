"""The fingerprint of host, engine, model and workload that stands in environment.json."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from harness import clocks
from harness.plan import SCHEMA_VERSION

PACKAGES = ("hydra-core", "numpy", "scipy", "pandas", "seaborn", "tokenizers", "safetensors")
_CGROUP_MEMORY = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_CGROUP_CPU = Path("/sys/fs/cgroup/cpu.max")


def collect(
    *,
    workers: Mapping[str, Mapping[str, Any]],
    first_backend: str,
    model: Mapping[str, Any],
    workload: Mapping[str, Any],
    drafters: Mapping[str, Any] | None = None,
    unstarted: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Everything that a reader needs to judge or repeat the measurement.

    `workers` holds each backend's answer to `hello`, `unstarted` why others gave none; the device
    of `first_backend` is the sweep's.
    `faults_tested` is false: a sweep does not try how the engine behaves under faults.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": host(),
        "device": workers[first_backend].get("device"),
        "workers": {
            name: {key: hello.get(key) for key in ("backend", "version", "build", "device")}
            for name, hello in workers.items()
        }
        | {name: {"error": reason} for name, reason in (unstarted or {}).items()},
        "versions": versions(),
        "revision": revision(),
        "model": dict(model),
        "drafters": dict(drafters or {}),
        "workload": dict(workload),
        "clocks": {**clocks.read(), "governor": clocks.governor(), "boost": clocks.boost()},
        "faults_tested": False,
    }


def host() -> dict[str, Any]:
    """The machine, or what the container lets one see of it."""
    return {
        "name": socket.gethostname(),
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "cpu_quota": _cpu_quota(),
        "isa": _isa(),
        "memory_bytes": memory_bytes(),
        "virtual": _flags_hold("hypervisor"),
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def memory_bytes() -> int:
    """Memory that this process may use: the machine's, or its container's limit."""
    total = int(psutil.virtual_memory().total)
    for path in _CGROUP_MEMORY:
        try:
            return min(total, int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return total


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def cpu_name() -> str | None:
    """The processor's own name, where the system tells."""
    match = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match.group(1) if match else platform.processor() or None


def versions() -> dict[str, str | None]:
    """Versions of Python, this project and the packages that touch the figures."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in ("specquant-bench", *PACKAGES):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def revision() -> str | None:
    """The git revision of this code, with `+changes` where files differ from it."""
    folder = Path(__file__).resolve().parent.parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changed else commit


def _git(folder: Path, *words: str) -> str:
    answer = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10
    )
    return answer.stdout.strip()


def _cpu_quota() -> float | None:
    """Processors' worth of time that the container allows, None without a limit."""
    try:
        quota, period = _CGROUP_CPU.read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _isa() -> list[str]:
    names = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_int8")
    return [name for name in names if _flags_hold(name)]


def _flags_hold(name: str) -> bool:
    match = re.search(r"^flags\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return bool(match) and name in (match.group(1).split() if match else [])


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

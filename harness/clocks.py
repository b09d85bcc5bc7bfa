"""Clock speeds and load of the machine, read before and after each trial.

Every source may be missing in a container; what the system does not tell is null, never a guess.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_CPU = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_MHZ = re.compile(r"^cpu MHz\s*:\s*([\d.]+)", re.MULTILINE)


def read() -> dict[str, Any]:
    """`mhz` per core (or null), `load` of the last minute, `steal_s` (or null).

    `steal_s` counts the seconds, summed over cores since the start of the machine, in which a
    hypervisor gave this machine's processors to others.
    """
    return {"mhz": _mhz(), "load": round(os.getloadavg()[0], 2), "steal_s": _steal_s()}


def governor() -> str | None:
    """The frequency governor of the first core, where the system tells."""
    return _text(_CPU / "cpu0/cpufreq/scaling_governor")


def boost() -> bool | None:
    """Whether the processor may run above its base clock, where the system tells."""
    boost = _text(_CPU / "cpufreq/boost")
    if boost is not None:
        return boost == "1"
    no_turbo = _text(_CPU / "intel_pstate/no_turbo")
    return None if no_turbo is None else no_turbo == "0"


def _mhz() -> list[float] | None:
    scaled = [_text(path) for path in sorted(_CPU.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))]
    if scaled and all(value and value.isdigit() for value in scaled):
        return [int(value or 0) / 1000 for value in scaled]
    found = _MHZ.findall(_text(_CPUINFO) or "")
    return [float(value) for value in found] or None


def _steal_s() -> float | None:
    fields = (_text(_STAT) or "").split("\n", 1)[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None
    return int(fields[8]) / float(os.sysconf("SC_CLK_TCK"))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None

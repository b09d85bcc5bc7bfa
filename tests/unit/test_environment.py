"""The fingerprint of the machine, also where the system tells little."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness import clocks, environment

HELLO = {
    "backend": "native", "version": "1", "build": "b", "protocol": 1,
    "device": {"kind": "cpu", "name": "c"}, "capabilities": {},
}  # fmt: skip


def test_the_environment_is_json_and_holds_what_a_reader_needs() -> None:
    found = environment.collect(
        workers={"native": HELLO, "other": {**HELLO, "device": {"name": "d"}}},
        first_backend="native", model={"name": "m"}, workload={"name": "w"},
    )  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["device"] == {"kind": "cpu", "name": "c"}
    assert found["workers"]["native"] == {
        "backend": "native", "version": "1", "build": "b", "device": {"kind": "cpu", "name": "c"},
    }  # fmt: skip
    assert found["faults_tested"] is False
    assert found["host"]["cores"] == len(os.sched_getaffinity(0))
    assert 0 < found["host"]["memory_bytes"] < 1 << 50
    assert found["versions"]["hydra-core"] == "1.3.8"


def test_a_containers_limits_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, quota = tmp_path / "memory.max", tmp_path / "cpu.max"
    monkeypatch.setattr(environment, "_CGROUP_MEMORY", (tmp_path / "none", limit))
    monkeypatch.setattr(environment, "_CGROUP_CPU", quota)
    limit.write_text("1048576\n", encoding="ascii")
    assert environment.memory_bytes() == 1048576
    whole = environment.psutil.virtual_memory().total
    limit.write_text("max\n", encoding="ascii")
    assert environment.memory_bytes() == whole
    for text, expected in (("150000 100000", 1.5), ("max 100000", None)):
        quota.write_text(text, encoding="ascii")
        assert environment.host()["cpu_quota"] == expected


def test_clocks_are_null_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_CPU", "_CPUINFO", "_STAT"):
        monkeypatch.setattr(clocks, name, tmp_path / "none")
    found = clocks.read()
    assert (found["mhz"], found["steal_s"]) == (None, None)
    assert found["load"] >= 0
    assert clocks.governor() is None
    assert clocks.boost() is None


def test_clocks_come_from_the_governor_first_and_else_from_cpuinfo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo, stat = tmp_path / "cpuinfo", tmp_path / "stat"
    cpuinfo.write_text("cpu MHz\t\t: 2596.142\n\ncpu MHz\t\t: 3000.5\n", encoding="utf-8")
    ticks = os.sysconf("SC_CLK_TCK")
    stat.write_text(f"cpu  1 2 3 4 5 6 7 {3 * ticks} 0 0\ncpu0 1\n", encoding="utf-8")
    monkeypatch.setattr(clocks, "_CPUINFO", cpuinfo)
    monkeypatch.setattr(clocks, "_STAT", stat)
    monkeypatch.setattr(clocks, "_CPU", tmp_path)
    assert clocks.read()["mhz"] == [2596.142, 3000.5]
    assert clocks.read()["steal_s"] == 3.0
    for core, khz in enumerate((3700000, 3650000)):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n", encoding="utf-8")
        (folder / "scaling_governor").write_text("performance\n", encoding="utf-8")
    assert clocks.read()["mhz"] == [3700.0, 3650.0]
    assert clocks.governor() == "performance"
    (tmp_path / "intel_pstate").mkdir()
    (tmp_path / "intel_pstate" / "no_turbo").write_text("1\n", encoding="utf-8")
    assert clocks.boost() is False

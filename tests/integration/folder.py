"""A folder with a model of no weights, a small workload and a scripted worker to sweep with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fakes.model import write_model

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "sweep.precision=[fp16,w4a8,w4a4]",
    "sweep.draft_length=[3]",
    "sweep.also=[]",
    "schedule.budget_s=0",
    "stats.bootstrap_draws=200",
)
"""A sweep of a second: one group of seven methods, and no more than its least blocks."""


class SweepFolder:
    """Runs sweeps whose files are all under `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = path / "results" / "t"
        self.worker_log = path / "requests.jsonl"
        write_model(path / "fake.sqm")
        self.write_prompts()

    def write_prompts(self, count: int = 30, seed: int = 0) -> None:
        """Write `count` prompts; another `seed` gives other prompts."""
        lines = [
            {"id": f"p{i}", "token_ids": [(seed + i + j) % 256 for j in range(5 + i)],
             "category": "ab"[i % 2]}
            for i in range(count)
        ]  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.path / "prompts.jsonl").write_text(text, encoding="utf-8")

    def overrides(self, *more: str, **worker: Any) -> list[str]:
        """Command-line words; `worker` are settings of the scripted worker."""
        script = json.dumps({"log": str(self.worker_log), **worker}).replace("'", "")
        return [
            "name=t", "workload=smoke", f"results_root={self.path / 'results'}",
            f"data.root={self.path}", f"model.path={self.path / 'fake.sqm'}",
            "workload.path=prompts.jsonl", "workload.max_new_tokens=8",
            f"backends.native.command=[{sys.executable},-m,tests.fakes.worker,'{script}']",
            *SMALL, *more,
        ]  # fmt: skip

    def command(self, *more: str, **worker: Any) -> list[str]:
        """The same as a command to be started."""
        return [sys.executable, "-m", "harness.sweep", *self.overrides(*more, **worker)]

    def start(self, *more: str, **worker: Any) -> subprocess.Popen[str]:
        """Start a sweep as a process of its own, as a terminal would: SIGINT interrupts it.

        A shell has its background jobs ignore SIGINT, tests among them, and children inherit that.
        """
        return subprocess.Popen(
            self.command(*more, **worker), cwd=ROOT, env={**os.environ, "COLUMNS": "200"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def records(self) -> dict[str, dict[str, Any]]:
        """Records by path below `records/`."""
        base = self.results / "records"
        return {
            str(path.relative_to(base)): json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(base.glob("*/*/*.json"))
        }

    def finished(self) -> dict[str, tuple[int, bytes]]:
        """Modification time and content of each record of a finished block."""
        base = self.results / "records"
        return {
            str(path.relative_to(base)): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(base.glob("*/[0-9][0-9][0-9]/*.json"))
        }

    def requests(self) -> list[dict[str, Any]]:
        """What the worker was asked, in order."""
        if not self.worker_log.exists():
            return []
        lines = self.worker_log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

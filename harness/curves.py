"""The time of one forward by its number of rows, T(n): the basis of the cost model.

Measured once for each group, after loading, and written to curves.json (docs/records.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Any

from backends.client import WorkerFailure
from harness.bench import Bench
from harness.plan import SCHEMA_VERSION, Group
from harness.results import write_json
from harness.vocabulary import NATURAL

REPEATS = 5
FORWARD_TIMEOUT_S = 300.0


def measure(bench: Bench, groups: Sequence[Group]) -> None:
    """Measure the curves of `groups`, where the results folder has none yet.

    A worker that does not serve `forward`, or fails at it, leaves its curves out: the sweep's own
    figures do not depend on them.
    """
    path = bench.folder.path / "curves.json"
    if path.exists():
        return
    curves = [
        curve
        for group in groups
        for backend in group.backends
        if "forward" in bench.hellos[backend]["capabilities"]["calls"]
        for curve in _curves(bench, group, backend)
    ]
    write_json(path, {"schema_version": SCHEMA_VERSION, "curves": curves})


def _curves(bench: Bench, group: Group, backend: str) -> list[dict[str, Any]]:
    """One curve a precision, at the group's batch size and a typical context."""
    spec = bench.load_spec(group, backend)
    rows = {1} | {c.method.drafted + 1 for c in group.cells if c.method.backend == backend}
    context = _typical_context(bench, group)
    curves = []
    for precision in sorted(spec.precisions):
        question = {
            "model": "target",
            "precision": precision,
            "mask": "chain",
            "context": context,
            "batch": group.batch_size,
        }
        try:
            answer = bench.pool.ready(backend, spec).worker.call(
                "forward",
                timeout_s=FORWARD_TIMEOUT_S,
                tokens=sorted(rows),
                repeats=REPEATS,
                **question,
            )
        except WorkerFailure:
            continue
        kept = {key: answer[key] for key in ("times", "bandwidth_bytes_s", "bytes_per_token")}
        curves.append({"worker": backend, **question, **kept})
    return curves


def _typical_context(bench: Bench, group: Group) -> int:
    """The median prompt, half of its output decoded."""
    prompts = bench.workload.prompts
    new_tokens = median_low([prompt.max_new_tokens for prompt in prompts])
    if group.context_length == NATURAL:
        return median_low([len(prompt.token_ids) for prompt in prompts]) + new_tokens // 2
    return group.context_length + new_tokens // 2

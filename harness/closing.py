"""What a sweep prints at its end: the verdict, the three-way table, what failed.

Everything comes from summary.json; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def show(summary: Mapping[str, Any], console: Console) -> None:
    """Print a summary for a reader at a terminal."""
    verdict = summary["verdict"]
    chosen = f": {verdict['method_id']}" if verdict.get("method_id") else ""
    arm = f" ({verdict['arm']})" if verdict.get("arm") else ""
    _line(console, f"\nVerdict: {verdict['decision']}{chosen}{arm}")
    for title, key in (("because", "reasons"), ("on condition that", "conditions")):
        for finding in verdict[key]:
            _line(console, f"  {title}: {_text(finding)}")
    if verdict.get("next_measurement"):
        _line(console, f"  next: {_text(verdict['next_measurement'])}")
    for group in summary["groups"]:
        console.print(_three_way(summary, group))
    for (group_name, message), failed in _by_reason(summary["failures"]).items():
        methods, blocks = (
            ", ".join(dict.fromkeys(str(failure[key]) for failure in failed))
            for key in ("method_id", "block")
        )
        _line(console, f"Failed: {methods} in {group_name} block {blocks}: {message}")


def _by_reason(
    failures: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Failures by group and message: what fails a worker fails all of its methods alike."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for failure in failures:
        found.setdefault((failure["group"], failure["error"]["message"]), []).append(failure)
    return found


def _three_way(summary: Mapping[str, Any], group: Mapping[str, Any]) -> Table:
    """One row an arm: the method that stands for it, its rate and its speedups with intervals.

    An arm's method was picked among many, so its speedups are those estimated on blocks that did
    not pick it. An interval that holds 1 says that the arm may not be faster at all.
    """
    table = Table(
        title=f"{group['name']}, {group['blocks']} blocks",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("arm", "method"):
        table.add_column(column)
    for column in ("tok/s", "decode speedup", "end to end"):
        table.add_column(column, justify="right", no_wrap=True)
    methods = {
        method["method_id"]: method
        for method in summary["methods"]
        if method["group"] == group["name"] and method["role"] != "noise"
    }
    baseline = methods.get(group["baseline"])
    if baseline:
        rate = _interval(baseline["output_throughput"], 0)
        table.add_row("baseline", baseline["name"], rate, "1", "1")
    for arm in summary["arms"]:
        method = methods.get(arm["method_id"] or "")
        if arm["group"] == group["name"] and method:
            table.add_row(
                arm["arm"],
                method["name"],
                _interval(method["output_throughput"], 0),
                _interval(arm["speedup"], 2),
                _interval(arm["end_to_end_speedup"], 2),
            )
    return table


def _interval(value: Mapping[str, Any] | None, digits: int) -> str:
    if value is None or value["mean"] is None:
        return "-"
    low, high = (
        "?" if value[key] is None else f"{value[key]:.{digits}f}" for key in ("ci_low", "ci_high")
    )
    return f"{value['mean']:.{digits}f} [{low}, {high}]"


def _text(finding: Any) -> str:
    return str(finding["text"] if isinstance(finding, Mapping) else finding)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

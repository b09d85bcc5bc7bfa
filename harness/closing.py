"""What a sweep prints at its end: the verdict, the three-way table, what failed.

Everything comes from summary.json; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

ARMS = ("baseline", "quantization", "speculation", "combined")


def show(summary: Mapping[str, Any], console: Console) -> None:
    """Print a summary for a reader at a terminal."""
    verdict = summary["verdict"]
    chosen = f": {verdict['method_id']}" if verdict.get("method_id") else ""
    arm = f" ({verdict['arm']})" if verdict.get("arm") else ""
    _line(console, f"\nVerdict: {verdict['decision']}{chosen}{arm}")
    for title, key in (("because", "reasons"), ("on condition that", "conditions")):
        for finding in verdict.get(key) or []:
            _line(console, f"  {title}: {_text(finding)}")
    if verdict.get("next_measurement"):
        _line(console, f"  next: {_text(verdict['next_measurement'])}")
    for group in summary["groups"]:
        console.print(_three_way(summary, group))
    failures = summary.get("failures") or []
    for failure in failures:
        _line(
            console,
            f"Failed: {failure['method_id']} in {failure['group']} block {failure['block']}: "
            f"{failure['error']['message']}",
        )


def _three_way(summary: Mapping[str, Any], group: Mapping[str, Any]) -> Table:
    """One row an arm: the method that stands for it, its rate and its speedup with intervals."""
    table = Table(
        title=f"{group['name']}, {group['blocks']} blocks",
        title_justify="left",
        box=box.SIMPLE,
    )
    for column in ("arm", "method", "tok/s", "speedup", "decision"):
        table.add_column(column, justify="right" if column in ("tok/s", "speedup") else "left")
    methods = {
        method["method_id"]: method
        for method in summary["methods"]
        if method["group"] == group["name"] and method.get("role") != "noise"
    }
    picked = {arm["arm"]: arm for arm in summary.get("arms", ()) if arm["group"] == group["name"]}
    for arm in ARMS:
        method_id = group["baseline"] if arm == "baseline" else picked.get(arm, {}).get("method_id")
        method = methods.get(method_id or "")
        if method is None:
            continue
        # The speedup of a pick comes from blocks that did not pick it.
        speedup = picked.get(arm, {}).get("speedup") or method.get("speedup")
        table.add_row(
            arm,
            method["name"],
            _interval(method.get("output_throughput"), 1),
            "1" if arm == "baseline" else _interval(speedup, 3),
            str(method.get("decision") or method["status"]),
        )
    return table


def _interval(value: Mapping[str, Any] | None, digits: int) -> str:
    if not value or value.get("mean") is None:
        return "-"
    low, high = (
        "?" if value[key] is None else f"{value[key]:.{digits}f}" for key in ("ci_low", "ci_high")
    )
    return f"{value['mean']:.{digits}f} [{low}, {high}]"


def _text(finding: Any) -> str:
    return str(finding["text"] if isinstance(finding, Mapping) else finding)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

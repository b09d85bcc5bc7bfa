"""The forward curves at the end of a sweep that was asked to show them (`curves.show`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

_MS, _GB = 1e3, 1e-9


def show(summary: Mapping[str, Any], console: Console) -> None:
    """Print a table for each batch size and context: a row for each worker, precision and n."""
    places = dict.fromkeys((curve["batch"], curve["context"]) for curve in summary["curves"])
    for batch, context in places:
        console.print(_table(summary["curves"], batch, context))


def _table(curves: Any, batch: int, context: int) -> Table:
    table = Table(
        title=f"T(n): one forward of n rows, batch {batch}, {context} tokens in the cache",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("worker", "precision"):
        table.add_column(column)
    for column in ("n", "ms", "T(n)/T(1)", "GB/s", "of the roofline"):
        table.add_column(column, justify="right", no_wrap=True)
    for curve in curves:
        if (curve["batch"], curve["context"]) != (batch, context):
            continue
        for place, point in enumerate(curve["points"]):
            names = (curve["worker"], curve["precision"]) if place == 0 else ("", "")
            table.add_row(
                *names,
                str(point["tokens"]),
                _interval(point["seconds"], _MS, 2),
                _interval(point["ratio"], 1, 2),
                f"{point['bytes_s']['mean'] * _GB:.1f}",
                _interval(point["roofline_fraction"], 1, 2),
            )
        table.add_section()
    return table


def _interval(value: Mapping[str, Any] | None, factor: float, digits: int) -> str:
    if value is None:
        return "-"
    mean, low, high = (f"{value[k] * factor:.{digits}f}" for k in ("mean", "ci_low", "ci_high"))
    return f"{mean} [{low}, {high}]"

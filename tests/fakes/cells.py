"""Invented groups, and the cells that are measured in each, in the form of docs/records.md."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

MODEL = "smollm2-135m"
WORKLOAD = "prod"
PRECISIONS = ("fp16", "w4a16", "w4a8", "w4a4")
SPECULATION = (
    ("fp16", "self-w4a8"), ("fp16", "self-w4a4"), ("fp16", "ngram"),
    ("w4a16", "self-w4a4"), ("w4a16", "self-w4a8"), ("w4a16", "ngram"),
    ("w4a8", "ngram"),
)  # fmt: skip
COMPUTE = {"fp16": "f32", "w4a16": "bf16", "w4a8": "int8", "w4a4": "int8"}


@dataclass(frozen=True)
class GroupSpec:
    """One group: batch size, context, draft lengths tried and prompts a trial."""

    batch_size: int
    context_length: str | int
    gammas: tuple[int, ...]
    draw: int

    @property
    def name(self) -> str:
        context = self.context_length
        suffix = context if isinstance(context, str) else f"c{context}"
        return f"{MODEL}.{WORKLOAD}.cpu.b{self.batch_size}.{suffix}"


PROD_GROUPS = (
    GroupSpec(1, "natural", (2, 3, 5), 4),
    GroupSpec(4, "natural", (3,), 8),
    GroupSpec(1, 1024, (3,), 2),
)


def method_id(precision: str, drafter: str = "none", gamma: int = 0) -> str:
    """Name of a method, e.g. `w4a16+self-w4a4.g3`."""
    return precision if drafter == "none" else f"{precision}+{drafter}.g{gamma}"


def methods(group: GroupSpec) -> list[dict[str, Any]]:
    """The cells of a group, baseline first, then its A/A twin (role `noise`)."""
    rows = [cell(group, precision, "none", 0) for precision in PRECISIONS]
    rows.insert(1, cell(group, "fp16", "none", 0, role="noise"))
    rows += [cell(group, p, d, gamma) for p, d in SPECULATION for gamma in group.gammas]
    return rows


def cell(
    group: GroupSpec, precision: str, drafter: str, gamma: int, role: str = ""
) -> dict[str, Any]:
    """The `cell` object of a record."""
    quantized = precision != "fp16"
    if drafter == "none":
        arm = "quantization" if quantized else "baseline"
        drafter_axis: dict[str, Any] = {"kind": "none"}
        shape: dict[str, Any] = {"kind": "none"}
    else:
        arm = "combined" if quantized else "speculation"
        kind, _, draft_precision = drafter.partition("-")
        drafter_axis = {"kind": kind}
        if kind == "self":
            drafter_axis["precision"] = draft_precision
        else:
            drafter_axis |= {"max_ngram": 3, "min_ngram": 1}
        shape = {"kind": "chain", "gamma": gamma}
    name = method_id(precision, drafter, gamma)
    role = role or ("baseline" if arm == "baseline" else "method")
    return {
        "hash": hashlib.sha256(f"{group.name}/{name}/{role}".encode()).hexdigest()[:16],
        "method_id": name,
        "name": name.replace("+", " with ").replace(".g", ", draft length "),
        "arm": arm,
        "model": MODEL,
        "workload": WORKLOAD,
        "backend": "native",
        "worker": "native",
        "device": "fake-cpu",
        "weight_format": "q4_1" if quantized else "f16",
        "precision": precision,
        "compute_dtype": COMPUTE[precision],
        "kv_precision": "kv16",
        "drafter": drafter_axis,
        "shape": shape,
        "acceptance": "greedy",
        "synthetic": False,
        "batch_size": group.batch_size,
        "context_length": group.context_length,
        "role": role,
    }

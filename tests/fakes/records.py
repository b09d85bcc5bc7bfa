"""Writes a whole results folder of invented records, in the form of docs/records.md.

The times come from a small simulation of the decode loop (slots refilled from the queue, rounds of
draft and verify, greedy acceptance with a chance of its own for each prompt), so that every derived
figure has something to be derived from. Nothing here was measured: `environment.json` says so under
`fake`, and the device is called `fake-cpu`.

    python -m tests.fakes.records OUT [--blocks 6] [--seed 0] [--failed METHOD_ID]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MODEL = "smollm2-135m"
WORKLOAD = "prod"
PRECISIONS = ("fp16", "w4a16", "w4a8", "w4a4")
SPECULATION = (
    ("fp16", "self-w4a8"), ("fp16", "self-w4a4"), ("fp16", "ngram"),
    ("w4a16", "self-w4a4"), ("w4a16", "self-w4a8"), ("w4a16", "ngram"),
    ("w4a8", "ngram"),
)  # fmt: skip
# Seconds of one forward of a row, and the share that each further row adds.
STEP_S = {"fp16": 0.0100, "w4a16": 0.0040, "w4a8": 0.0032, "w4a4": 0.0032}
ROW_SHARE = {"fp16": 0.06, "w4a16": 0.18, "w4a8": 0.06, "w4a4": 0.06}
BYTES = {"fp16": 269_000_000, "w4a16": 96_000_000, "w4a8": 96_000_000, "w4a4": 96_000_000}
COMPUTE = {"fp16": "f32", "w4a16": "bf16", "w4a8": "int8", "w4a4": "int8"}
ACCEPTANCE = {"self-w4a8": 0.95, "self-w4a4": 0.84, "ngram": 0.45}
AGREEMENT = {"w4a16": 0.995, "w4a8": 0.981, "w4a4": 0.84}
NLL_RATIO = {"w4a16": 1.0, "w4a8": 1.003, "w4a4": 1.14}
BANDWIDTH = 50e9


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


@dataclass
class FakeWorld:
    """What the simulation assumes. `speed` multiplies a method's time (1.0 when absent)."""

    groups: tuple[GroupSpec, ...] = PROD_GROUPS
    blocks: int = 6
    seed: int = 0
    trial_noise: float = 0.01
    drift: float = 0.03
    failed: tuple[str, ...] = ()
    speed: dict[str, float] = field(default_factory=dict)
    prompts: int = 64


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


@dataclass
class _Sequence:
    index: int
    left: int
    chance: float


class _Trial:
    """One `run` call: prefill into free slots, then rounds of the whole batch."""

    def __init__(self, rng: random.Random, cell_: dict[str, Any], slow: float, batch: int) -> None:
        self.rng, self.cell, self.slow, self.batch = rng, cell_, slow, batch
        self.now = 0.0
        self.requests: list[dict[str, Any]] = []
        self.rounds: dict[str, list[Any]] = {
            k: [] for k in ("start_s", "draft_s", "verify_s", "other_s", "rows", "sequences")
        }
        self.sequence_rounds: dict[str, list[int]] = {
            k: [] for k in ("request", "round", "drafted", "reached", "accepted", "committed")
        }
        drafter = cell_["drafter"]
        self.kind = drafter["kind"]
        self.draft_precision = drafter.get("precision", "")
        self.gamma = cell_["shape"].get("gamma", 0)

    def prefill(self, prompt: dict[str, Any], shared: bool) -> _Sequence:
        """Starts a request; its first token comes from the prefill."""
        queue = self.now
        cost = 0.0006 * prompt["tokens"] * (1.0 + 0.02 * abs(self.rng.gauss(0, 1)))
        self.now += 0.0002 if shared else cost
        output = prompt["output"]
        self.requests.append({
            "id": prompt["id"], "prompt_tokens": prompt["tokens"], "output_tokens": output,
            "tokens_sha256": _output_hash(prompt, self.cell["precision"]),
            "queue_s": queue, "prefill_s": cost, "ttft_shared": shared,
            "ttft_s": queue + cost + 1e-5,
            "round_end_s": [self.now], "round_tokens": [1],
            "finish": prompt["finish"],
        })  # fmt: skip
        label = self.kind if self.kind != "self" else f"self-{self.draft_precision}"
        chance = ACCEPTANCE.get(label, 0.0)
        spread = 0.25 if self.kind == "ngram" else 0.03
        return _Sequence(
            len(self.requests) - 1, output - 1, _clip(chance + spread * prompt["ease"])
        )

    def round(self, active: list[_Sequence]) -> None:
        """One round: every active sequence drafts, is verified and commits at least a token."""
        number = len(self.rounds["start_s"])
        noise = self.slow * math.exp(self.rng.gauss(0, 0.01))
        drafted = [self._drafted() for _ in active]
        rows = sum(drafted) + len(active)
        deepest = max(drafted)
        draft = 0.0
        if self.kind == "self":
            draft = deepest * _forward_s(self.draft_precision, len(active)) * noise
        elif self.kind == "ngram":
            draft = 2e-5 * len(active)
        verify = _forward_s(self.cell["precision"], rows) * noise
        other = 3e-5 * len(active)
        for key, value in (
            ("start_s", self.now), ("draft_s", draft), ("verify_s", verify),
            ("other_s", other), ("rows", rows), ("sequences", len(active)),
        ):  # fmt: skip
            self.rounds[key].append(value)
        self.now += draft + verify + other
        for sequence, count in zip(active, drafted, strict=True):
            self._commit(sequence, number, count)

    def _drafted(self) -> int:
        if self.kind == "ngram":  # a look-up finds something in seven rounds of ten
            return self.gamma if self.rng.random() < 0.7 else 0
        return int(self.gamma)

    def _commit(self, sequence: _Sequence, number: int, drafted: int) -> None:
        accepted = 0
        while accepted < drafted and self.rng.random() < sequence.chance:
            accepted += 1
        reached = min(drafted, accepted + 1)
        committed = min(accepted + 1, sequence.left)
        accepted = min(accepted, committed)  # tokens after the end are dropped
        sequence.left -= committed
        for key, value in (
            ("request", sequence.index), ("round", number), ("drafted", drafted),
            ("reached", reached), ("accepted", accepted), ("committed", committed),
        ):  # fmt: skip
            self.sequence_rounds[key].append(value)
        request = self.requests[sequence.index]
        request["round_end_s"].append(self.now)
        request["round_tokens"].append(committed)

    def run(self, prompts: list[dict[str, Any]], shared: bool) -> None:
        """Decodes all prompts with `batch` slots."""
        queue, active = list(prompts), list[_Sequence]()
        while queue or active:
            while queue and len(active) < self.batch:
                active.append(self.prefill(queue.pop(0), shared))
            active = [s for s in active if s.left > 0]
            if active:
                self.round(active)
                active = [s for s in active if s.left > 0]


def _clip(value: float) -> float:
    return min(0.995, max(0.02, value))


def _forward_s(precision: str, rows: int) -> float:
    return STEP_S[precision] * (1.0 + ROW_SHARE[precision] * (rows - 1))


def _output_hash(prompt: dict[str, Any], precision: str) -> str:
    return hashlib.sha256(f"{prompt['id']}/{precision}".encode()).hexdigest()


def prompt_pool(world: FakeWorld, group: GroupSpec) -> list[dict[str, Any]]:
    """Invented prompts: id, length, output length, how easy they are to draft for (z-score)."""
    rng = random.Random("pool")  # another seed is another run of the same workload
    pool = []
    for index in range(world.prompts):
        length = int(math.exp(rng.gauss(4.3, 0.6))) + 8
        output = rng.choice([24, 40, 64, 64, 64])
        pool.append({
            "id": f"p{index:03d}",
            "tokens": length if group.context_length == "natural" else int(group.context_length),
            "output": output,
            "finish": "length" if output == 64 else "stop",
            "ease": rng.gauss(0, 1),
        })  # fmt: skip
    return pool


def quality(precision: str, prompts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Scores of a plain quantized method; the same prompt always scores the same."""
    if precision == "fp16":
        return None
    sequences = []
    for prompt in prompts:
        rng = random.Random(f"{precision}/{prompt['id']}")
        positions = prompt["output"]
        miss = 1.0 - AGREEMENT[precision]
        agree = sum(rng.random() > miss for _ in range(positions))
        ref_nll = positions * abs(rng.gauss(1.2, 0.2))
        shift = positions * math.log(NLL_RATIO[precision])
        sequences.append({
            "id": prompt["id"], "positions": positions, "agree": agree,
            "near_tie_flips": (positions - agree) // 2,
            "kl_sum": positions * miss * 0.4 * abs(rng.gauss(1, 0.2)),
            "nll_sum": ref_nll + shift * (1 + 0.3 * rng.gauss(0, 1)), "ref_nll_sum": ref_nll,
        })  # fmt: skip
    return {"precision": precision, "reference": "fp16", "sequences": sequences}


def _memory_and_proof(cell_: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    precision = cell_["precision"]
    memory = {
        "weight_bytes": {"affine4": 66_000_000, "affine8": 30_000_000}
        if precision != "fp16"
        else {"f16": 269_000_000},
        "kv_bytes": 23_592_960 * cell_["batch_size"],
        "peak_bytes": 420_000_000,
    }
    proof = {"kernels": [f"fake_{precision}_avx512"], "bytes_per_token": BYTES[precision]}
    return memory, proof


def make_record(
    world: FakeWorld, group: GroupSpec, cell_: dict[str, Any], block: int, position: int,
    drawn: list[dict[str, Any]], drift: float,
) -> dict[str, Any]:  # fmt: skip
    """One record of a trial. `drift` is the block's slowness, shared by its trials."""
    rng = random.Random(f"{world.seed}/{group.name}/{block}/{cell_['hash']}")
    slow = math.exp(drift + rng.gauss(0, world.trial_noise))
    slow *= world.speed.get(cell_["method_id"], 1.0)
    memory, proof = _memory_and_proof(cell_)
    record: dict[str, Any] = {
        "schema_version": 1, "cell": cell_, "group": group.name, "block": f"{block:03d}",
        "status": "ok", "error": None,
        "started_at": f"2026-01-01T00:{block:02d}:{position:02d}+00:00", "position": position,
        "interleaved": True, "prompt_ids": [p["id"] for p in drawn],
        "left_out": {"count": 0, "reason": "longer than the context"},
        "requests": [], "rounds": {}, "sequence_rounds": {}, "wall_s": 0.0, "decode_s": 0.0,
        "memory": memory, "proof": proof, "losslessness": None, "quality": None,
        "bandwidth": {"read_bytes_s": BANDWIDTH},
        "clocks": {"before": {"mhz": [3700, 3700], "load": 1.0},
                   "after": {"mhz": [3690, 3695], "load": 1.1}},
    }  # fmt: skip
    if cell_["method_id"] in world.failed:
        record["status"] = "failed"
        record["error"] = {"type": "device", "message": "The fake worker died of SIGSEGV.",
                           "stderr_tail": "Segmentation fault"}  # fmt: skip
        return record
    trial = _Trial(rng, cell_, slow, group.batch_size)
    trial.run(drawn, shared=position > 0)
    record |= {
        "requests": trial.requests, "rounds": trial.rounds,
        "sequence_rounds": trial.sequence_rounds, "wall_s": trial.now,
        "decode_s": sum(sum(trial.rounds[k]) for k in ("draft_s", "verify_s", "other_s")),
    }  # fmt: skip
    if cell_["drafter"]["kind"] == "none":
        record["quality"] = quality(cell_["precision"], drawn)
    else:
        record["losslessness"] = {
            "reference_method_id": cell_["precision"],
            "tokens_compared": sum(r["output_tokens"] for r in trial.requests),
            "mismatches": 0, "smallest_margin": None,
        }  # fmt: skip
    return record


def block_records(world: FakeWorld, group: GroupSpec) -> Iterator[list[dict[str, Any]]]:
    """The records of each block of a group, in the order in which they were run."""
    rng = random.Random(f"{world.seed}/{group.name}/order")
    pool, cells, walk = prompt_pool(world, group), methods(group), 0.0
    for block in range(world.blocks):
        walk += rng.gauss(0, world.drift)
        drawn = [pool[(block * group.draw + i) % len(pool)] for i in range(group.draw)]
        order = list(cells)
        rng.shuffle(order)
        yield [
            make_record(world, group, c, block, position, drawn, walk)
            for position, c in enumerate(order)
        ]


def config(world: FakeWorld) -> dict[str, Any]:
    """The composed configuration, with the repository's own defaults of `stats` and `cost`."""
    conf = Path(__file__).parents[2] / "conf"
    settings: dict[str, Any] = {
        "workload": {"name": WORKLOAD, "assumed": True},
        "model": {"name": MODEL},
        "sweep": {"batch_size": [1, 4], "context_length": ["natural", 1024]},
        "seed": world.seed,
    }
    for key in ("stats", "cost"):
        path = conf / key / "default.yaml"
        settings[key] = yaml.safe_load(path.read_text("utf-8")) if path.exists() else {}
    return settings


def environment() -> dict[str, Any]:
    """An invented host; `fake` says so."""
    return {
        "schema_version": 1, "fake": True,
        "host": {"name": "fake", "cores": 2, "memory_bytes": 8 << 30},
        "device": {"kind": "cpu", "name": "fake-cpu", "isa": "avx512", "threads": 2},
        "versions": {"python": "3.11", "harness": "0.1.0"},
        "revision": "0" * 40,
        "model": {"name": MODEL, "dequantized_baseline": True, "weight_format": "q4_1"},
        "faults_tested": False,
    }  # fmt: skip


def write_results(out: Path, world: FakeWorld | None = None) -> Path:
    """Writes config.yaml, environment.json, plan.json and records/ under `out`; returns `out`."""
    world = world or FakeWorld()
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.yaml").write_text(yaml.safe_dump(config(world), sort_keys=False), "utf-8")
    (out / "environment.json").write_text(json.dumps(environment(), indent=1), "utf-8")
    plan = {
        "schema_version": 1,
        "groups": [
            {"name": g.name, "batch_size": g.batch_size, "context_length": g.context_length,
             "cells": methods(g), "draw": g.draw}
            for g in world.groups
        ],
    }  # fmt: skip
    (out / "plan.json").write_text(json.dumps(plan, indent=1), "utf-8")
    for group in world.groups:
        for number, records in enumerate(block_records(world, group)):
            folder = out / "records" / group.name / f"{number:03d}"
            folder.mkdir(parents=True, exist_ok=True)
            for record in records:
                path = folder / f"{record['cell']['hash']}.json"
                path.write_text(json.dumps(record), "utf-8")
    return out


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(description="Writes a results folder of invented records.")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--blocks", type=int, default=6, help="blocks in each group")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failed", action="append", default=[], help="method id that fails")
    args = parser.parse_args()
    world = FakeWorld(blocks=args.blocks, seed=args.seed, failed=tuple(args.failed))
    print(f"Wrote invented records to {write_results(args.out, world)}.")


if __name__ == "__main__":
    main()

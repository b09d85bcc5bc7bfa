"""Writes a whole results folder of invented records, in the form of docs/records.md.

The times come from a small simulation of the decode loop (simulated_trial.py), so that every
derived figure has something to be derived from. Nothing here was measured: `environment.json` says
so under `fake`, and the device is called `fake-cpu`.

    python -m tests.fakes.records OUT [--blocks 6] [--seed 0] [--failed METHOD_ID]
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.cells import MODEL, PROD_GROUPS, WORKLOAD, GroupSpec, methods
from tests.fakes.simulated_trial import Trial
from tests.fakes.speeds import BYTES

AGREEMENT = {"w4a16": 0.995, "w4a8": 0.981, "w4a4": 0.84}
NLL_RATIO = {"w4a16": 1.0, "w4a8": 1.003, "w4a4": 1.14}
BANDWIDTH = 50e9


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
    trial = Trial(rng, cell_, slow, group.batch_size)
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

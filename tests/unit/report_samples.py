"""A whole summary.json made by hand in the form of docs/records.md, for the report's tests.

The figures are invented; they only have to be of the right kind and to differ from each other.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

GROUPS = (("demo.prod.cpu.b1.natural", 1, "natural"), ("demo.prod.cpu.b4.natural", 4, "natural"))
SPEED = {"fp16": 1.0, "w4a16": 2.1, "w4a8": 2.9, "w4a4": 2.85}
QUALITY = {"w4a16": (0.995, 1.0), "w4a8": (0.981, 1.004), "w4a4": (0.84, 1.18)}
DRAFTS = (
    ("fp16", "self", "w4a8"), ("fp16", "self", "w4a4"), ("fp16", "ngram", None),
    ("w4a16", "self", "w4a4"), ("w4a16", "self", "w4a8"), ("w4a16", "ngram", None),
    ("w4a8", "ngram", None),
)  # fmt: skip
RATE = {"w4a8": 0.95, "w4a4": 0.84, None: 0.45}


def interval(mean: float, half: float = 0.03, n: int = 8) -> dict[str, Any]:
    """mean with ends `half` (a share of the mean) away."""
    ends = sorted((mean * (1 - half), mean * (1 + half)))
    return {"mean": mean, "ci_low": ends[0], "ci_high": ends[1], "n": n, "level": 0.95}


def finding(key: str, text: str, **params: Any) -> dict[str, Any]:
    return {"key": key, "params": params, "text": text}


def cost_of(speedup: float, days: float) -> dict[str, Any]:
    """Cost keys of a method at 0.08 an hour, 95 tokens a second for the baseline."""
    per_million = 0.08 / 3600 / (95 * speedup * 0.5) * 1e6
    saving = (0.08 / 3600 / (95 * 0.5) * 1e6 - per_million) * 1e4
    return {
        "per_million_tokens": interval(per_million),
        "devices": interval(80 / speedup),
        "monthly_cost": interval(per_million * 1e4),
        "monthly_saving": interval(saving),
        "engineering": days * 800,
        "payback_months": interval(days * 800 / saving) if saving > 0 else dict.fromkeys(
            ("mean", "ci_low", "ci_high", "n", "level")),
        "net_value": interval(saving * 24 - days * 800),
    }  # fmt: skip


def method(
    group: tuple[str, int, Any],
    precision: str,
    kind: str = "none",
    low: str | None = None,
    gamma: int = 0,
    role: str | None = None,
) -> dict[str, Any]:
    """One entry of `methods`."""
    name, batch, context = group
    plain = kind == "none"
    base = precision == "fp16"
    arm = ("baseline" if base else "quantization") if plain else (
        "speculation" if base else "combined")  # fmt: skip
    drafter: dict[str, Any] = {"kind": kind} | ({"precision": low} if low else {})
    label = f"self({low})" if low else kind
    rates = [RATE[low] ** (i + 1) for i in range(gamma)]
    tau = 1 + sum(rates)
    draft_cost = 0.0 if low is None else 1 / SPEED[low]
    round_cost = (1 + 0.08 * gamma) / SPEED[precision] + gamma * draft_cost
    speed = SPEED[precision] if plain else tau / round_cost
    step = 1000 / 95 / speed
    agreement, ratio = QUALITY.get(precision, (1.0, 1.0))
    tail = f"+{kind}{f'-{low}' if low else ''}-chain{gamma}"
    identifier = precision if plain else precision + tail
    low_bound, high_bound = speed * 0.97, speed * 1.03
    return {
        "method_id": identifier,
        "name": precision if plain else f"{precision} + {label}, γ={gamma}",
        "arm": arm, "group": name, "role": role or ("baseline" if plain and base else "method"),
        "model": "demo", "workload": "prod", "backend": "native", "device": "Test CPU",
        "weight_format": "f16" if base else "q4_1", "precision": precision,
        "compute_dtype": "f32", "kv_precision": "kv16", "drafter": drafter,
        "shape": {"kind": "none"} if plain else {"kind": "chain", "gamma": gamma},
        "acceptance": "greedy", "synthetic": False, "batch_size": batch,
        "context_length": context, "blocks": 8, "status": "ok",
        "output_throughput": interval(95 * speed), "speedup": interval(speed),
        "end_to_end_throughput": interval(80 * speed),
        "end_to_end_speedup": interval(speed * 0.9),
        "mean_tpot_ms": step, "mean_ttft_ms": 61.5, "p99_itl_ms": step * 1.9,
        "p99_round_ms": step * tau * 1.4, "intervals": {"mean_tpot_ms": interval(step)},
        "acceptance_length": tau, "acceptance_rate": None if plain else (tau - 1) / gamma,
        "reached_acceptance_rate": None if plain else RATE[low],
        "per_position_acceptance_rates": None if plain else rates,
        "weight_bytes": 269e6 if base else 96e6, "roofline_fraction": 0.62 if plain else None,
        "phases_ms": {
            "draft": 0.0 if plain else step * 0.3, "verify": step * 0.65, "other": step * 0.05},
        "drafter_label": None if plain else ("quantized_drafter" if low else "pure"),
        "quality": None if base else {
            "precision": precision, "reference": "fp16", "inherited_from": None,
            "agreement_rate": interval(agreement, 0.004), "kl": interval(1 - agreement),
            "perplexity_ratio": interval(ratio, 0.002)},
        "quality_gate": {"passed": agreement > 0.95, "reasons": []},
        "slo": {"passed": True, "attainment": 1.0},
        "lossless": None if plain else True, "interleaved": True,
        "cost": cost_of(speed, 5 if plain else 15),
        "decision": "baseline" if plain and base else (
            "faster" if low_bound > 1.02 else "slower" if high_bound < 0.98 else "undecided"),
    }  # fmt: skip


def summary() -> dict[str, Any]:
    """A pilot for w4a16 with a w4a4 draft, as a group of methods at two batch sizes."""
    methods, arms, interaction = [], [], []
    for group in GROUPS:
        rows = [method(group, p) for p in SPEED]
        rows.insert(1, method(group, "fp16", role="noise"))
        for precision, kind, low in DRAFTS:
            rows += [method(group, precision, kind, low, g)
                     for g in ((2, 3, 5) if group[1] == 1 else (3,))]  # fmt: skip
        methods += rows
        for arm in ("quantization", "speculation", "combined"):
            found = [m for m in rows if m["arm"] == arm and m["quality_gate"]["passed"]]
            best = max(found, key=lambda m: m["speedup"]["mean"])
            arms.append(
                {"group": group[0], "arm": arm, "method_id": best["method_id"],
                 "picks": [best["method_id"]] * 2, "selected_on": "alternate blocks",
                 "speedup": interval(best["speedup"]["mean"] * 0.99, 0.05),
                 "end_to_end_speedup": interval(best["speedup"]["mean"] * 0.9, 0.05),
                 "cost": best["cost"], "reason": None}
            )  # fmt: skip
        for m in rows:
            if m["arm"] == "combined":
                tail = m["method_id"].partition("+")[2]
                spec = next((o for o in rows if o["method_id"] == f"fp16+{tail}"), None)
                entry = {"group": group[0], "backend": "native", "precision": m["precision"],
                         "drafter": m["drafter"], "shape": m["shape"],
                         "combined": m["method_id"], "quantization": m["precision"],
                         "speculation": spec["method_id"] if spec else None}  # fmt: skip
                if spec:
                    product = SPEED[m["precision"]] * spec["speedup"]["mean"]
                    ratio = m["speedup"]["mean"] / product
                    entry |= interval(ratio) | {"reason": None}
                    entry["decision"] = "eat" if ratio * 1.03 < 1 / 1.02 else "undecided"
                interaction.append(entry)
    best_id = next(a["method_id"] for a in arms if a["arm"] == "combined")
    best = next(m for m in methods if m["method_id"] == best_id)
    return {
        "schema_version": 1, "name": "prod", "created_at": "2026-11-29T14:58:00+00:00",
        "workload": {"name": "prod"},
        "groups": [
            {"name": name, "model": "demo", "workload": "prod", "device": "Test CPU",
             "batch_size": batch, "context_length": context, "blocks": 8, "baseline": "fp16",
             "decided": True, "widest_half_width": 0.03, "undecided": [],
             "left_out": {"count": 0, "reason": None}, "outliers": []}
            for name, batch, context in GROUPS
        ],
        "methods": methods, "arms": arms, "interaction": interaction,
        "cost": {
            "currency": "USD", "device_price_per_hour": 0.08, "utilization": 0.5,
            "demand_tokens_per_month": 1e10, "horizon_months": 24,
            "engineering_rate_per_day": 800, "engineering_days": {"quantization": 5},
            "quality": {"perplexity_ratio": 1.05}, "slo": {"ttft_ms": 5000},
            "assumed": {"demand": True, "price": True}, "projected": True,
        },
        "sensitivity": [
            {"factor": "price", "used": 0.08, "low": {"value": 0.04, "net_value": -1200.0},
             "high": {"value": 0.16, "net_value": 41000.0}},
            {"factor": "speedup", "used": 3.7, "low": {"value": 3.5, "net_value": 70000.0},
             "high": {"value": 3.9, "net_value": 74000.0}},
        ],
        "noise_floor": {
            "overall": interval(1.001, 0.008),
            "groups": {name: interval(1.001, 0.008) for name, _, _ in GROUPS}},
        "failures": [],
        "verdict": {
            "decision": "pilot", "arm": "combined", "method_id": best_id, "group": GROUPS[0][0],
            "reasons": [finding("no_such_key", "The net value is above zero.")],
            "conditions": [finding("no_such_condition", "Batch up to 4.")],
            "next_measurement": None, "cost": best["cost"],
            "speedup": interval(best["speedup"]["mean"], 0.05),
            "end_to_end_speedup": interval(best["speedup"]["mean"] * 0.9, 0.05),
            "by_group": [
                {"group": name, "decision": "pilot", "arm": "combined", "method_id": best_id}
                for name, _, _ in GROUPS
            ],
        },
    }  # fmt: skip


def write(folder: Path, content: dict[str, Any] | None = None, **environment: Any) -> Path:
    """Writes a results folder with the summary, an environment and a configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    content = summary() if content is None else copy.deepcopy(content)
    (folder / "summary.json").write_text(json.dumps(content), "utf-8")
    facts = {
        "schema_version": 1, "host": {"cpu": "Test CPU", "cores": 2},
        "model": {"name": "demo", "dequantized_baseline": True},
    } | environment  # fmt: skip
    (folder / "environment.json").write_text(json.dumps(facts), "utf-8")
    (folder / "config.yaml").write_text(
        "stats: {level: 0.95, min_effect: 0.02}\nreport: {lang: en}\n", "utf-8"
    )
    return folder

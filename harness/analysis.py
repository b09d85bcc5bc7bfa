"""Turns a results folder's records into summary.json (docs/records.md, docs/statistics.md).

python -m harness.analysis RESULTS
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from harness.auto_rows import auto_rows
from harness.candidates import Candidate, arm_candidates, method_costs
from harness.comparison import Group, read_groups
from harness.cost import CostModel, read_cost
from harness.costmodel import predict, read_curves
from harness.curve_figures import curve_rows
from harness.derive import SCHEMA_VERSION, read_trials
from harness.errors import ConfigError
from harness.findings import Finding, finding
from harness.front import group_front
from harness.hierarchy_rows import hierarchy_rows
from harness.interaction import interactions
from harness.method_rows import method_rows
from harness.noise import noise_floor
from harness.prompt_effects import prompt_effects
from harness.recommendation import recommend
from harness.results import write_json
from harness.selection import SELECTED_ON
from harness.stats import Settings, decide
from harness.tree_rows import tree_rows
from harness.verdict import Evidence, GroupVerdict, decide_group


@dataclass(frozen=True)
class Inputs:
    """What the analysis reads besides records."""

    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    settings: Settings
    cost: CostModel | None


def analyse(results_dir: Path | str) -> dict[str, Any]:
    """Analyses a results folder, writes its summary.json whole or not at all, and returns it.

    Raises ConfigError naming the file or key that is missing or cannot be used.
    """
    results = Path(results_dir)
    inputs = _read_inputs(results)
    trials = read_trials(results)
    if not trials:
        raise ConfigError(f"{results} holds no finished block. Run the sweep again to measure one.")
    groups = read_groups(trials, inputs.settings)
    curves = read_curves(results)
    curve_figures = curve_rows(results, inputs.settings.level)
    trees: list[dict[str, Any]] = []
    hierarchy: list[dict[str, Any]] = []
    chosen: list[dict[str, Any]] = []
    decided: list[tuple[Evidence, GroupVerdict]] = []
    interaction: list[dict[str, Any]] = []
    repeats: dict[str, dict[str, Any]] = {}
    for group in groups:
        evidence = _evidence(group, groups, inputs)
        repeats[group.name], effects = prompt_effects(group)
        for key, found in effects.items():
            evidence.rows[key] |= found
        for row in evidence.rows.values():
            others = list(evidence.rows.values())
            row["prediction"] = predict(row, others, evidence.rows[group.baseline], curves)
        decided.append((evidence, decide_group(evidence)))
        interaction += interactions(group)
        trees += tree_rows(group, evidence.rows, curve_figures)
        hierarchy += hierarchy_rows(group, evidence.rows, curves)
        names = {key: str(row["name"]) for key, row in evidence.rows.items()}
        chosen += auto_rows(group, names)
    verdict, rows = recommend(decided, inputs.cost)
    summary = {
        "schema_version": SCHEMA_VERSION,
        "name": str(inputs.config.get("name", results.name)),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "workload": dict(inputs.environment.get("workload") or {})
        | {"name": groups[0].cell(groups[0].baseline)["workload"]},
        "stats": vars(inputs.settings),
        "groups": [
            {**_group_entry(evidence, inputs), "repeats": repeats[evidence.group.name]}
            for evidence, _ in decided
        ],
        "methods": [row for evidence, _ in decided for row in evidence.rows.values()],
        "arms": [entry for evidence, _ in decided for entry in _arm_entries(evidence)],
        "interaction": interaction,
        "verdict": verdict,
        "sensitivity": rows,
        "cost": {**inputs.config["cost"], "projected": True} if inputs.cost else None,
        "noise_floor": noise_floor(groups),
        "trees": trees,
        "hierarchy": hierarchy,
        "auto": chosen,
        "curves": curve_figures,
        "failures": [
            {"group": t.group, "method_id": t.cell["method_id"], "name": t.cell["name"],
             "block": t.block, "error": t.error}
            for t in trials if not t.ok
        ],
    }  # fmt: skip
    write_json(results / "summary.json", summary)
    return summary


def progress(results_dir: Path | str) -> dict[str, dict[str, Any]]:
    """For each group with finished blocks: `decided`, `widest_half_width`, `undecided`.

    `decided` is true where every comparison is decided at `stats.stop_level`: looks between blocks
    are made at a stricter level than the final analysis, so that stopping early adds next to no
    false decisions (Haybittle and Peto). `undecided` names the methods that are not. The half-width
    is on the log scale, at `stats.level`; infinite before the second block.
    """
    results = Path(results_dir)
    settings = _read_inputs(results).settings
    return {
        group.name: group_progress(group) for group in read_groups(read_trials(results), settings)
    }


def group_progress(group: Group) -> dict[str, Any]:
    """One group's entry of `progress`."""
    settings = group.settings
    contrasts = [group.versus_baseline(key) for key in group.methods]
    looks = group.family(contrasts, level=settings.stop_level)
    enough = len(group.blocks) >= settings.min_blocks
    undecided = [
        key[0]
        for key, look in zip(group.methods, looks, strict=True)
        if not enough or decide(look.ci_low, look.ci_high, settings.zone) == "undecided"
    ]
    widths = [(i.ci_high - i.ci_low) / 2 for i in group.family(contrasts)]
    return {
        "decided": enough and not undecided,
        "widest_half_width": max(widths, default=0.0),
        "undecided": undecided,
    }


def _read_inputs(results: Path) -> Inputs:
    try:
        config = yaml.safe_load((results / "config.yaml").read_text(encoding="utf-8")) or {}
        environment = json.loads((results / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{results} is not a whole results folder: {error}.") from None
    if not isinstance(config, dict) or not isinstance(environment, dict):
        raise ConfigError(f"{results}: config.yaml and environment.json must each hold a mapping.")
    try:
        settings = Settings.read(config.get("stats") or {})
    except ValueError as error:
        raise ConfigError(f"{results / 'config.yaml'}: {error}") from None
    block = config.get("cost")
    return Inputs(config, environment, settings, read_cost(block) if block else None)


def _evidence(group: Group, groups: Sequence[Group], inputs: Inputs) -> Evidence:
    rows = method_rows(group, inputs.cost, [other for other in groups if other is not group])
    if inputs.cost is not None:
        for key, cost in method_costs(group, inputs.cost).items():
            rows[key]["cost"] = cost
    arms = arm_candidates(group, rows, inputs.cost)
    for candidate in arms.values():
        if candidate is not None:
            rows[candidate.winner.key]["selected_on"] = SELECTED_ON
    return Evidence(group, rows, arms, inputs.cost, tuple(_caveats(group, inputs)))


def _caveats(group: Group, inputs: Inputs) -> list[Finding]:
    """What makes an adoption a pilot. What is not known counts as assumed."""
    environment, model = inputs.environment, inputs.cost
    workload = environment.get("workload") or {}
    fixed = group.cell(group.baseline)["context_length"] != "natural"
    assumed_text = workload.get("text_assumed", True) is not False or (
        fixed and workload.get("pool_text_assumed", True) is not False
    )
    tests = {
        "demand_assumed": model is not None and model.assumed["demand"],
        "price_assumed": model is not None and model.assumed["price"],
        "prompts_assumed": assumed_text,
        "faults_untested": environment.get("faults_tested") is not True,
        "dequantized_baseline": bool(
            (environment.get("model") or {}).get("dequantized_baseline", False)
        ),
    }
    return [finding(key) for key, holds in tests.items() if holds]


def _group_entry(evidence: Evidence, inputs: Inputs) -> dict[str, Any]:
    group = evidence.group
    cell = group.cell(group.baseline)
    state = group_progress(group)
    width = state["widest_half_width"]
    left_out = [t.left_out for trials in group.trials.values() for t in trials.values()]
    return {
        "name": group.name,
        **{axis: cell[axis] for axis in ("model", "workload", "device", "batch_size",
                                         "context_length")},
        "blocks": len(group.blocks),
        "silent_blocks": group.silent_blocks,
        "baseline": group.baseline[0],
        **state,
        "widest_half_width": width if np.isfinite(width) else None,
        "left_out": max(left_out, key=lambda entry: int(entry["count"])),
        "front": group_front(
            list(evidence.rows.values()),
            str(cell["precision"]),
            inputs.cost.quality["perplexity_ratio"] if inputs.cost else None,
        ),
    }  # fmt: skip


def _arm_entries(evidence: Evidence) -> list[dict[str, Any]]:
    return [
        {
            "group": evidence.group.name,
            "arm": arm,
            "method_id": candidate and candidate.method_id,
            "picks": [key[0] for key in candidate.winner.picks] if candidate else [],
            "selected_on": SELECTED_ON if candidate else None,
            "speedup": candidate and candidate.winner.speedup.exp().to_json(),
            "end_to_end_speedup": candidate and candidate.winner.end_to_end_speedup.exp().to_json(),
            "cost": candidate and candidate.cost,
            "reason": _arm_reason(evidence, arm, candidate),
        }
        for arm, candidate in evidence.arms.items()
    ]


def _arm_reason(evidence: Evidence, arm: str, candidate: Candidate | None) -> Finding | None:
    """Why an arm has no candidate, or one that may not be adopted."""
    rows = {key: row for key, row in evidence.rows.items() if row["arm"] == arm}
    if not rows:
        return finding("arm_not_measured")
    if not any(key in evidence.group.keys for key in rows):
        return finding("arm_failed")
    if candidate is None:
        return finding("too_few_blocks", blocks=len(evidence.group.blocks),
                       min_blocks=evidence.group.settings.min_blocks)  # fmt: skip
    if evidence.rows[candidate.winner.key]["quality_gate"]["passed"] is False:
        return finding("arm_rejected")
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: writes summary.json and prints the decision."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.analysis",
        description="Analyses the records of a results folder and writes its summary.json.",
    )
    parser.add_argument("results", type=Path, help="results folder, for example results/prod")
    try:
        given = parser.parse_args(arguments)
        summary = analyse(given.results)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    verdict = summary["verdict"]
    print(f"{verdict['decision']}: {verdict['method_id']} in {verdict['group']}")
    for reason in verdict["reasons"] + verdict["conditions"]:
        print(f"- {reason['text']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the prompts do to a method's figures: by category, and without requests that go in circles.

A request that repeats itself is easy to draft for, so its acceptance says little about other text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.by_category import by_category
from harness.comparison import Group, Key
from harness.figures import own_figures
from harness.method_rows import comparisons
from harness.subset import repeating_prompts, without

COMPARED = ("output_throughput", "end_to_end_throughput", "speedup", "end_to_end_speedup",
            "decision", "versus_target", "versus_target_decision")  # fmt: skip
OWN = ("acceptance_length", "acceptance_rate", "reached_acceptance_rate",
       "per_position_acceptance_rates", "inner_acceptance_length")  # fmt: skip


def prompt_effects(group: Group) -> tuple[dict[str, Any], dict[Key, dict[str, Any]]]:
    """(the group's `repeats`, `by_category` and `without_repeats` of each of its cells)."""
    trials = [t for key in group.keys for b, t in group.trials[key].items() if b in group.blocks]
    repeating = repeating_prompts(trials)
    rest = without(group, repeating) if repeating else None
    left = _left(rest) if rest else {}
    rows = {
        key: {
            "by_category": by_category(group, key, repeating),
            "without_repeats": left.get(key),
            "repeating_requests": _repeating(group, key),
        }
        for key in group.trials
    }
    names = {name for trial in trials for name in trial.prompt_ids}
    return {"prompts": len(repeating), "of": len(names)}, rows


def _repeating(group: Group, key: Key) -> dict[str, int]:
    """Requests of a cell whose output repeats itself, of all that it answered."""
    trials = [trial for trial in group.trials[key].values() if trial.ok]
    return {
        "requests": int(sum(trial.repeats.sum() for trial in trials)),
        "of": sum(len(trial.prompt_ids) for trial in trials),
    }


def _left(rest: Group) -> dict[Key, Mapping[str, Any]]:
    """The figures of a group that has lost its repeating prompts, by cell."""
    compared = comparisons(rest)
    found: dict[Key, Mapping[str, Any]] = {}
    for key in rest.keys:
        trials = [rest.trials[key][block] for block in rest.blocks]
        own = own_figures(rest, key, trials)
        found[key] = {
            "requests": sum(len(trial.prompt_ids) for trial in trials),
            **{name: compared[key].get(name) for name in COMPARED},
            **{name: own["intervals"][name] for name in OWN},
        }
    return found

"""How often the statistics are wrong where nothing differs, and how often they see what does.

All under drift that a block's trials share and tails far heavier than a normal law's.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.analysis import group_progress
from harness.comparison import Group
from harness.selection import pick_winner
from harness.stats import Settings, decide
from tests.fakes.trials import (
    Drift,
    Noise,
    linear_drift,
    random_walk,
    spike_noise,
    student_noise,
    trials,
)

SEEDS = 200
METHODS = 24
SETTINGS = Settings(bootstrap_draws=400)
WORLDS: dict[str, tuple[Noise, Drift]] = {
    "t3, calm, random walk": (student_noise(0.01), random_walk(0.05)),
    "t3, loud, linear drift": (student_noise(0.05), linear_drift(0.3)),
    "t3, very loud, random walk": (student_noise(0.15), random_walk(0.1)),
    "spikes, linear drift": (spike_noise(0.02), linear_drift(0.3)),
    "many high spikes, random walk": (spike_noise(0.05, 0.15, 1.0), random_walk(0.1)),
}


def a_group(
    seed: int, world: tuple[Noise, Drift], blocks: int, effects: list[float], spread: float = 0.0
) -> Group:
    noise, drift = world
    made = trials(np.random.default_rng(seed), blocks, noise, drift, effects, spread=spread)
    return Group("g", made, replace(SETTINGS, seed=seed))


def false_decision(group: Group) -> bool:
    """True where any method is called faster or slower, or any arm's winner would be adopted."""
    zone = group.settings.zone
    intervals = group.family([group.versus_baseline(key) for key in group.methods])
    if any(decide(i.ci_low, i.ci_high, zone) in ("faster", "slower") for i in intervals):
        return True
    families = [group.methods] + [
        [key for key in group.methods if group.cell(key)["arm"] == arm]
        for arm in ("quantization", "speculation", "combined")
    ]
    winners = [pick_winner(group, keys) for keys in families]
    return any(winner and winner.end_to_end_speedup.ci_low > zone for winner in winners)


def test_false_decisions_over_all_worlds() -> None:
    worlds = list(WORLDS.values())
    wrong = sum(
        false_decision(a_group(seed, worlds[seed % 5], 6 + seed % 7, [0.0] * METHODS))
        for seed in range(SEEDS)
    )
    assert wrong <= 0.05 * SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_false_decisions_of_each_world_with_the_fewest_blocks(world: str) -> None:
    wrong = sum(
        false_decision(a_group(seed, WORLDS[world], 6, [0.0] * METHODS)) for seed in range(SEEDS)
    )
    assert wrong <= 0.05 * SEEDS


@pytest.mark.slow
def test_stopping_as_soon_as_all_is_decided_adds_few_false_decisions() -> None:
    """The sweep looks after every block from the sixth on, and ends at the twelfth.

    A single method, for nothing stops a run earlier than one comparison that happens to be decided.
    """
    wrong = 0
    for seed in range(SEEDS):
        noise, drift = student_noise(0.04), random_walk(0.1)
        made = trials(np.random.default_rng(seed), 12, noise, drift, [0.0])
        for blocks in range(6, 13):
            seen = [trial for trial in made if int(trial.block) < blocks]
            group = Group("g", seen, replace(SETTINGS, seed=seed))
            if blocks == 12 or group_progress(group)["decided"]:
                wrong += false_decision(group)
                break
    assert wrong <= 0.05 * SEEDS


def test_a_difference_inside_the_zone_is_never_an_effect() -> None:
    world = (student_noise(0.003), random_walk(0.05))
    wrong = 0
    for seed in range(40):
        group = a_group(seed, world, 12, [math.log(1.015)] * 8)
        wrong += false_decision(group)
    assert wrong <= 2


def test_a_tenth_is_found_at_realistic_noise() -> None:
    """10 % faster, 1 % noise a trial, 3 % spread over prompts, 24 methods, 8 blocks."""
    world = (spike_noise(0.01, 0.0), random_walk(0.05))
    effects = [0.0] * (METHODS - 1) + [math.log(1.1)]
    found = 0
    for seed in range(40):
        group = a_group(seed, world, 8, effects, spread=0.03)
        key = (f"m{METHODS - 1}", "method")
        intervals = group.family([group.versus_baseline(k) for k in group.methods])
        interval = intervals[group.methods.index(key)]
        winner = pick_winner(group, group.methods)
        assert winner is not None
        faster = decide(interval.ci_low, interval.ci_high, group.settings.zone) == "faster"
        found += faster and winner.key == key
    assert found >= 0.8 * 40


def test_the_cross_fitted_effect_of_the_best_of_many_equals_is_not_inflated() -> None:
    world = (spike_noise(0.05, 0.0), random_walk(0.05))
    picked, naive = [], []
    for seed in range(100):
        group = a_group(seed, world, 6, [0.0] * METHODS)
        winner = pick_winner(group, group.methods)
        assert winner is not None
        picked.append(winner.speedup.mean)
        intervals = group.family([group.versus_baseline(key) for key in group.methods])
        naive.append(max(interval.mean for interval in intervals))
    assert abs(float(np.mean(picked))) < 0.012  # three standard errors of this mean
    assert float(np.mean(naive)) > 0.03  # what the best of many would have claimed


def test_the_cross_fitted_interval_holds_the_truth() -> None:
    """Equal methods with a common true effect: every pick has it, and the interval holds it."""
    world = (student_noise(0.03), linear_drift(0.3))
    truth, held = math.log(1.3), 0
    for seed in range(100):
        winner = pick_winner(group := a_group(seed, world, 6, [truth] * 8), group.methods)
        assert winner is not None
        held += winner.speedup.ci_low <= truth <= winner.speedup.ci_high
    assert held >= 95

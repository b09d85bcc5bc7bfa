"""What a method's own requests say: latency, acceptance, share of the roofline.

Figures are pooled over blocks. Their intervals resample prompts: a prompt that was drawn in several
blocks is one cluster, for its repeats are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.comparison import Group, Key
from harness.derive import Trial
from harness.stats import FloatArray, Interval, quantile_interval, ratio_intervals

MS = 1e3
# name -> (numerator, denominator, unit); each a sum over the requests of a prompt
_Sums = Callable[[Trial], FloatArray]
RATIOS: dict[str, tuple[_Sums, _Sums, float]] = {
    "mean_tpot_ms": (lambda t: np.nan_to_num(t.tpot_s), lambda t: 1.0 - np.isnan(t.tpot_s), MS),
    "mean_ttft_ms": (lambda t: t.ttft_s, lambda t: np.ones(len(t.ttft_s)), MS),
    "service_ttft_ms": (lambda t: t.service_ttft_s, lambda t: np.ones(len(t.ttft_s)), MS),
    "mean_prefill_s": (lambda t: t.prefill_s, lambda t: np.ones(len(t.ttft_s)), 1.0),
    "acceptance_length": (lambda t: t.committed, lambda t: t.sequence_rounds, 1.0),
    "acceptance_rate": (lambda t: t.accepted, lambda t: t.drafted, 1.0),
    "reached_acceptance_rate": (lambda t: t.accepted, lambda t: t.reached, 1.0),
    # of the rounds inside a cascade
    "inner_acceptance_length": (
        lambda t: _or_zeros(t.inner_committed, t), lambda t: _or_zeros(t.inner_rounds, t), 1.0
    ),
    "inner_rounds": (lambda t: _or_zeros(t.inner_rounds, t), lambda t: t.sequence_rounds, 1.0),
}  # fmt: skip
QUANTILES = {"p99_itl_ms": "itl_s", "p99_round_ms": "round_s"}
PLAIN_NUMBERS = (
    "mean_tpot_ms", "mean_ttft_ms", "p99_itl_ms", "p99_round_ms", "acceptance_length",
    "acceptance_rate", "reached_acceptance_rate",
)  # fmt: skip


def own_figures(group: Group, key: Key, trials: list[Trial]) -> dict[str, Any]:
    """Latency, acceptance and roofline of a method, null without trials."""
    intervals: dict[str, Any] = dict.fromkeys((*RATIOS, *QUANTILES, "roofline_fraction"))
    rates: list[Interval] = []
    phases: dict[str, Interval] | None = None
    if trials:
        intervals, rates = _intervals(group, key, trials)
        phases = _phases(group, key, trials)
    plain = {name: found and found.mean for name, found in intervals.items()}
    return {
        **{name: plain[name] for name in PLAIN_NUMBERS},
        "per_position_acceptance_rates": [rate.mean for rate in rates] if trials else None,
        "roofline_fraction": plain["roofline_fraction"],
        "mean_prefill_s": intervals["mean_prefill_s"] and intervals["mean_prefill_s"].to_json(),
        "phases_ms": phases and {name: found.mean for name, found in phases.items()},
        "drafted_shares": _shares([trial.drafted_counts for trial in trials]),
        "inner_drafted_shares": _shares([trial.inner_drafted_counts for trial in trials]),
        "intervals": {
            **{name: found and found.to_json() for name, found in intervals.items()},
            "per_position_acceptance_rates": [rate.to_json() for rate in rates],
            "phases_ms": phases and {name: found.to_json() for name, found in phases.items()},
        },
    }


def _or_zeros(values: FloatArray, trial: Trial) -> FloatArray:
    """`values` by request, zeros where the method has none."""
    return values if len(values) else np.zeros(len(trial.prompt_ids))


def _shares(counts: list[FloatArray]) -> dict[str, float] | None:
    """Share of the rounds that drafted n tokens, by n; None where no rounds are known."""
    known = [count for count in counts if len(count)]
    total = np.sum(known, axis=0) if known else np.zeros(1)
    if not total.sum():
        return None
    return {str(n): float(count / total.sum()) for n, count in enumerate(total) if count}


def _phases(group: Group, key: Key, trials: list[Trial]) -> dict[str, Interval] | None:
    """Milliseconds for each decoded token by phase; blocks are resampled."""
    tokens = np.array([trial.decode_tokens.sum() for trial in trials])
    if not tokens.sum():
        return None
    found = ratio_intervals(
        np.array([trial.phase_s for trial in trials]), np.repeat(tokens[:, None], 3, axis=1),
        group.settings.level, group.settings.bootstrap_draws, group.rng(f"phases {key}"),
    )  # fmt: skip
    return {
        name: interval.scaled(MS).clipped(0.0, math.inf)
        for name, interval in zip(("draft", "verify", "other"), found, strict=True)
    }


def _intervals(
    group: Group, key: Key, trials: list[Trial]
) -> tuple[dict[str, Interval | None], list[Interval]]:
    """Intervals by name (None where the denominator is 0), and those of each draft position."""
    settings, rng = group.settings, group.rng(f"figures {key}")
    columns = len(RATIOS)
    positions = trials[0].position_accepts.shape[1]
    top = np.vstack([
        np.column_stack([numerator(t) for numerator, _, _ in RATIOS.values()]
                        + [t.position_accepts])
        for t in trials
    ])  # fmt: skip
    below = np.vstack([
        np.column_stack([denominator(t) for _, denominator, _ in RATIOS.values()]
                        + [t.uncut_rounds] * positions)
        for t in trials
    ])  # fmt: skip
    # A prompt that was drawn in several blocks is one cluster.
    ids = [identity for trial in trials for identity in trial.prompt_ids]
    _, owner = np.unique(ids, return_inverse=True)
    top, below = _sum_by(owner, top), _sum_by(owner, below)
    known = below.sum(axis=0) > 0
    made = iter(
        ratio_intervals(
            top[:, known], below[:, known], settings.level, settings.bootstrap_draws, rng
        )
    )
    found = [next(made) if there else None for there in known]
    units = [unit for *_, unit in RATIOS.values()]
    named: dict[str, Interval | None] = {
        name: interval and interval.scaled(unit).clipped(0.0, math.inf)
        for name, interval, unit in zip(RATIOS, found, units, strict=False)
    }
    for name in ("acceptance_rate", "reached_acceptance_rate"):
        interval = named[name]
        named[name] = interval and interval.clipped(0.0, 1.0)
    for name, attribute in QUANTILES.items():
        values = np.concatenate([getattr(trial, attribute) for trial in trials])
        named[name] = (
            quantile_interval(values, 0.99, settings.level).scaled(MS) if len(values) else None
        )
    named["roofline_fraction"] = _roofline(group, trials)
    return named, [rate.clipped(0.0, 1.0) for rate in found[columns:] if rate]


def _sum_by(owner: Any, values: FloatArray) -> FloatArray:
    total = np.zeros((int(owner.max()) + 1, values.shape[1]))
    np.add.at(total, owner, values)
    return total


def _roofline(group: Group, trials: list[Trial]) -> Interval | None:
    fractions = [f for t in trials if (f := t.roofline_fraction) is not None]
    if len(fractions) < len(trials):
        return None
    values = np.array(fractions)[:, None]
    level, draws = group.settings.level, group.settings.bootstrap_draws
    found = ratio_intervals(values, np.ones_like(values), level, draws, group.rng("roofline"))
    return found[0].clipped(0.0, math.inf)

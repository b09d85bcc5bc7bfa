"""A method's acceptance and gain for each category of prompts.

A category has few prompts in a block, so its figures are pooled over blocks and their intervals
resample prompts: a prompt that was drawn in several blocks is one cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats as distributions

from harness.comparison import Group, Key
from harness.derive import Trial
from harness.quality import plain_target
from harness.stats import FloatArray, Interval, ratio_intervals, resampling_weights
from harness.subset import only

NO_PROMPTS: frozenset[str] = frozenset()


def by_category(group: Group, key: Key, repeating: frozenset[str]) -> list[dict[str, Any]]:
    """The `by_category` of a method: rows by category, with and without `repeating` prompts.

    Empty for a method that is not complete, and where there is one category alone.
    """
    if key not in group.keys:
        return []
    names = sorted({c for t in group.trials[key].values() for c in t.categories})
    if len(names) < 2:
        return []
    rows = []
    for name in names:
        whole = _figures(group, key, name, NO_PROMPTS)
        rest = _figures(group, key, name, repeating) if repeating else whole
        rows.append({"category": name, **(whole or {}), "without_repeats": rest})
    return rows


def ratio_by_category(group: Group, key: Key, other: Key) -> dict[str, Any]:
    """The decode throughput of one method over another's, by category, each with its interval."""
    found: dict[str, Any] = {}
    for name in sorted({c for trial in group.trials[key].values() for c in trial.categories}):
        own = _of(group, key, name, NO_PROMPTS)
        theirs = _of(group, other, name, NO_PROMPTS)
        ids = [prompt for trial in own for prompt in trial.prompt_ids]
        columns = [
            [getattr(trial, field) for trial in trials]
            for trials in (own, theirs)
            for field in ("decode_tokens", "decode_s")
        ]
        settings, rng = group.settings, group.rng(f"category {name} {key} {other}")
        ratio = throughput_ratio(
            _by_prompt(ids, columns), settings.level, settings.bootstrap_draws, rng
        )
        found[name] = ratio and ratio.to_json()
    return found


def _figures(
    group: Group, key: Key, category: str, left_out: frozenset[str]
) -> dict[str, Any] | None:
    """Figures of a category's prompts, None where all of them are left out."""
    trials = _of(group, key, category, left_out)
    ids = [name for trial in trials for name in trial.prompt_ids]
    if not ids:
        return None
    sums = _by_prompt(ids, [
        [t.committed for t in trials], [t.sequence_rounds for t in trials],
        [t.decode_tokens for t in trials], [t.decode_s for t in trials],
    ])  # fmt: skip
    settings, rng = group.settings, group.rng(f"category {category} {key}")
    length = None
    if sums[:, 1].sum():
        length = ratio_intervals(
            sums[:, :1], sums[:, 1:2], settings.level, settings.bootstrap_draws, rng
        )[0]
    found: dict[str, Any] = {
        "requests": len(ids),
        "prompts": len(sums),
        "acceptance_length": length and length.to_json(),
    }
    for name, other in (("speedup", group.baseline), ("versus_target", plain_target(group, key))):
        found[name] = None
        if other is None or other == key or other not in group.keys:
            continue
        theirs = _of(group, other, category, left_out)
        base = _by_prompt(ids, [[t.decode_tokens for t in theirs], [t.decode_s for t in theirs]])
        ratio = throughput_ratio(
            np.column_stack([sums[:, 2:], base]), settings.level, settings.bootstrap_draws, rng
        )
        found[name] = ratio and ratio.to_json()
    return found


def _of(group: Group, key: Key, category: str, left_out: frozenset[str]) -> list[Trial]:
    found = []
    for block in group.blocks:
        trial = group.trials[key][block]
        wanted = [
            own == category and name not in left_out
            for own, name in zip(trial.categories, trial.prompt_ids, strict=False)
        ]
        if any(wanted):
            found.append(only(trial, np.array(wanted, dtype=bool)))
    return found


def _by_prompt(ids: Sequence[str], columns: Sequence[Sequence[FloatArray]]) -> FloatArray:
    """Sums by prompt: (prompts, columns)."""
    names, owner = np.unique(ids, return_inverse=True)
    total = np.zeros((len(names), len(columns)))
    np.add.at(total, owner, np.column_stack([np.concatenate(parts) for parts in columns]))
    return total


def throughput_ratio(
    sums: FloatArray, level: float, draws: int, rng: np.random.Generator
) -> Interval | None:
    """The interval of (sum of tokens / sum of seconds) of a method over that of another.

    `sums` (n, 4) holds, by prompt, tokens and seconds of the one and of the other. The wider, on
    the log scale, of the percentile bootstrap over prompts and of Student's t on the linearised
    log ratio. None where one of the sums is 0, unbounded for a single prompt.
    """
    count, total = len(sums), sums.sum(axis=0)
    if (total <= 0).any():
        return None
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    log_ratio = float(np.log(total) @ signs)
    if count < 2:
        return Interval(log_ratio, -math.inf, math.inf, count, level).exp()
    influence = (sums / total) @ signs
    error = math.sqrt(count / (count - 1) * float((influence**2).sum()))
    half = float(distributions.t.ppf(0.5 + level / 2, count - 1)) * error
    resampled = resampling_weights(count, draws, rng) @ sums
    usable = resampled[(resampled > 0).all(axis=1)]
    low, high = np.quantile(np.log(usable) @ signs, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(
        log_ratio, min(float(low), log_ratio - half), max(float(high), log_ratio + half), count,
        level,
    ).exp()  # fmt: skip

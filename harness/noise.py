"""The noise floor: what two runs of the same baseline differ by, in every block of every group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.comparison import Group
from harness.stats import Interval, Settings, decide, simultaneous_half_widths


def noise_floor(groups: Sequence[Group]) -> dict[str, Any]:
    """The A/A pair's ratio in each group and over all blocks, null where none was measured."""
    found: dict[str, Any] = {}
    values, draws, blocks = [], [], []
    for group in groups:
        found[group.name] = None
        if group.noise is None:
            continue
        contrast = group.versus_baseline(group.noise)
        found[group.name] = _with_word(group.single(contrast), group.settings)
        matrix = group.weights([contrast])
        values.append(group.decode.values @ matrix)
        draws.append(group.decode.draws @ matrix)
        blocks.append(len(group.blocks))
    overall = None
    if values:
        settings = groups[0].settings
        pooled = np.concatenate(values)
        weighted = np.average(draws, axis=0, weights=blocks)
        width = simultaneous_half_widths(
            pooled, weighted, settings.level, np.random.default_rng(settings.seed)
        )
        interval = Interval.around(
            float(pooled.mean()), float(width[0]), len(pooled), settings.level
        )
        overall = _with_word(interval, settings)
    return {"overall": overall, "groups": found}


def _with_word(log_ratio: Interval, settings: Settings) -> dict[str, Any]:
    word = decide(log_ratio.ci_low, log_ratio.ci_high, settings.zone)
    return {**log_ratio.exp().to_json(), "decision": word}

"""Part of a trial's requests, for figures of a category or without requests that go in circles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.comparison import Group
from harness.derive import Trial

BY_REQUEST = (
    "output_tokens", "decode_s", "prefill_s", "ttft_s", "service_ttft_s", "tpot_s", "drafted",
    "reached", "accepted", "committed", "sequence_rounds", "uncut_rounds", "position_accepts",
    "repeats", "inner_rounds", "inner_committed",
)  # fmt: skip


def only(trial: Trial, keep: NDArray[np.bool_]) -> Trial:
    """The trial with those requests alone for which `keep` (P,) is true.

    What a trial has for no single request (gaps between tokens, rounds, phases) stays as it is.
    """
    arrays = {
        name: values[keep]
        for name in BY_REQUEST
        if len(values := getattr(trial, name)) == len(keep)
    }
    kept = [place for place, wanted in enumerate(keep) if wanted]
    return replace(
        trial,
        prompt_ids=tuple(trial.prompt_ids[place] for place in kept),
        categories=tuple(trial.categories[place] for place in kept) if trial.categories else (),
        **arrays,
    )


def repeating_prompts(trials: Iterable[Trial]) -> frozenset[str]:
    """Prompts that some method's output went round in circles on.

    They are taken out for all methods alike, so that every method is left with the same prompts.
    """
    return frozenset(
        name
        for trial in trials
        for name, repeats in zip(trial.prompt_ids, trial.repeats, strict=False)
        if repeats
    )


def without(group: Group, prompts: frozenset[str]) -> Group | None:
    """The group without these prompts; None where too little is left to compare anything."""
    trials = [trial for found in group.trials.values() for trial in found.values()]
    kept = [
        smaller
        for trial in trials
        if (smaller := only(trial, _outside(trial.prompt_ids, prompts))).prompt_ids
    ]
    if not any(trial.cell["role"] == "baseline" and trial.ok for trial in kept):
        return None
    found = Group(group.name, kept, group.settings)
    return found if len(found.blocks) > 1 else None


def _outside(prompt_ids: Sequence[str], prompts: frozenset[str]) -> NDArray[np.bool_]:
    return np.array([name not in prompts for name in prompt_ids], dtype=bool)

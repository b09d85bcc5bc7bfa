"""A group's comparisons: contrasts between the methods' log throughputs, block by block.

Every comparison of the project is a contrast, a weighted sum of columns: a speedup is method minus
baseline, an interaction combined minus quantization minus speculation plus baseline. So one
function gives intervals for all of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.derive import RecordError, Trial
from harness.stats import (
    BlockSample,
    FloatArray,
    Interval,
    Settings,
    simultaneous_half_widths,
    two_level_bootstrap,
)

Key = tuple[str, str]  # (method id, role)
Contrast = Mapping[Key, float]


@dataclass(frozen=True)
class Rates:
    """Log throughputs of K methods: `values` (B, K) of the blocks, `draws` (S, K) of their mean."""

    values: FloatArray
    draws: FloatArray


class Group:
    """The trials of a group, arranged for comparison.

    A block counts where the baseline was measured in it and every trial decoded something. A method
    takes part where it was measured in every such block; `keys` lists those, the baseline first. A
    method that failed somewhere keeps its trials, and no comparison is made with it: blocks that it
    survived need not be like the others.
    """

    def __init__(self, name: str, trials: Sequence[Trial], settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.trials: dict[Key, dict[str, Trial]] = {}
        for trial in trials:
            blocks = self.trials.setdefault(trial.key, {})
            if trial.block in blocks:
                raise RecordError(
                    f"Group {name}, block {trial.block}: two records of {trial.key[0]} "
                    f"({trial.key[1]}). Two methods must not share a name."
                )
            blocks[trial.block] = trial
        self.trials = dict(sorted(self.trials.items(), key=lambda item: _place(item[1])))
        baselines = [key for key in self.trials if key[1] == "baseline"]
        if len(baselines) != 1:
            raise RecordError(f"Group {name} has {len(baselines)} baselines instead of one.")
        self.baseline = baselines[0]
        measured = self.trials[self.baseline]
        # Where all requests of a trial ended with their first token there is no decode throughput.
        self.silent_blocks = sorted({t.block for t in trials if t.ok and not t.decode_tokens.sum()})
        self.blocks = [
            block for block in sorted({trial.block for trial in trials})
            if _ok(measured.get(block)) and block not in self.silent_blocks
        ]  # fmt: skip
        complete = [key for key in self.trials if self.complete(key)]
        self.keys = sorted(complete, key=lambda key: key != self.baseline)
        self._drawn: dict[str, tuple[Rates, Rates]] = {}
        self._check_prompts()

    def complete(self, key: Key) -> bool:
        """True where the cell was measured in every block that counts, and never failed.

        A failure of the baseline costs it the block alone, for nothing is compared without it.
        """
        trials = self.trials[key]
        return (
            bool(self.blocks)
            and all(_ok(trials.get(block)) for block in self.blocks)
            and (key == self.baseline or all(trial.ok for trial in trials.values()))
        )

    def cell(self, key: Key) -> Mapping[str, Any]:
        """The axes of a cell."""
        return next(iter(self.trials[key].values())).cell

    @property
    def methods(self) -> list[Key]:
        """The compared methods: complete, without the baseline and its A/A twin."""
        return [key for key in self.keys if key[1] == "method"]

    @property
    def noise(self) -> Key | None:
        """The baseline's A/A twin, where it is complete."""
        return next((key for key in self.keys if key[1] == "noise"), None)

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator that depends on the seed, the group and what it is for, on nothing else."""
        return np.random.default_rng(
            [self.settings.seed, zlib.crc32(self.name.encode()), zlib.crc32(purpose.encode())]
        )

    def _check_prompts(self) -> None:
        for block in self.blocks:
            drawn = {self.trials[key][block].prompt_ids for key in self.keys}
            if len(drawn) > 1:
                raise RecordError(
                    f"Group {self.name}, block {block}: the methods ran on different prompts."
                )

    @cached_property
    def samples(self) -> list[BlockSample]:
        """For each block, decode columns and then end-to-end columns of `keys`: (P, 2K)."""
        found = []
        for block in self.blocks:
            trials = [self.trials[key][block] for key in self.keys]
            amount = [t.decode_tokens for t in trials] + [t.output_tokens for t in trials]
            seconds = [t.decode_s for t in trials] + [t.end_to_end_s for t in trials]
            found.append(BlockSample(np.array(amount).T, np.array(seconds).T))
        return found

    def rates_of(self, blocks: Sequence[int], purpose: str) -> tuple[Rates, Rates]:
        """(decode, end to end) of some of the blocks, by their places in `blocks`."""
        if purpose not in self._drawn:
            self._drawn[purpose] = self._draw_rates(blocks, purpose)
        return self._drawn[purpose]

    def _draw_rates(self, blocks: Sequence[int], purpose: str) -> tuple[Rates, Rates]:
        chosen = [self.samples[i] for i in blocks]
        values = np.array([sample.log_rates() for sample in chosen])
        draws = two_level_bootstrap(
            chosen, self.settings.bootstrap_draws, self.rng(f"bootstrap {purpose}")
        )
        half = len(self.keys)
        return (
            Rates(values[:, :half], draws[:, :half]),
            Rates(values[:, half:], draws[:, half:]),
        )

    @property
    def decode(self) -> Rates:
        """Decode throughput: tokens after the first over decode seconds."""
        return self.rates_of(range(len(self.blocks)), "all blocks")[0]

    @property
    def end_to_end(self) -> Rates:
        """All output tokens over decode and prefill seconds."""
        return self.rates_of(range(len(self.blocks)), "all blocks")[1]

    def weights(self, contrasts: Sequence[Contrast]) -> FloatArray:
        """Contrasts as a matrix (K, C) over `keys`."""
        place = {key: index for index, key in enumerate(self.keys)}
        matrix = np.zeros((len(self.keys), len(contrasts)))
        for column, contrast in enumerate(contrasts):
            for key, weight in contrast.items():
                matrix[place[key], column] += weight
        return matrix

    def family(
        self, contrasts: Sequence[Contrast], rates: Rates | None = None, level: float | None = None
    ) -> list[Interval]:
        """Simultaneous intervals, on the log scale, of a family of contrasts."""
        if not contrasts:
            return []
        rates = rates or self.decode
        level = level or self.settings.level
        matrix = self.weights(contrasts)
        values = rates.values @ matrix
        widths = simultaneous_half_widths(
            values, rates.draws @ matrix, level, self.rng("critical value")
        )
        means = values.mean(axis=0)
        return [
            Interval.around(float(mean), float(width), len(values), level)
            for mean, width in zip(means, widths, strict=True)
        ]

    def single(self, contrast: Contrast, rates: Rates | None = None) -> Interval:
        """The interval of one contrast that was not chosen among others."""
        return self.family([contrast], rates)[0]

    def versus_baseline(self, key: Key) -> Contrast:
        """The contrast whose exponential is a method's speedup; empty for the baseline itself."""
        return {} if key == self.baseline else {key: 1.0, self.baseline: -1.0}


_ROLES = ("baseline", "noise", "method")
_ARMS = ("baseline", "quantization", "speculation", "combined")


def _place(trials: Mapping[str, Trial]) -> tuple[int, int, str]:
    """Place of a cell in its group: by role, then arm, then name."""
    cell = next(iter(trials.values())).cell
    return _ROLES.index(cell["role"]), _ARMS.index(cell["arm"]), str(cell["method_id"])


def _ok(trial: Trial | None) -> bool:
    return trial is not None and trial.ok


def read_groups(trials: Sequence[Trial], settings: Settings) -> list[Group]:
    """Groups in a fixed order: natural context first, then by context, batch size and name."""
    by_name: dict[str, list[Trial]] = {}
    for trial in trials:
        by_name.setdefault(trial.group, []).append(trial)
    groups = [Group(name, found, settings) for name, found in by_name.items()]
    return sorted(groups, key=order)


def order(group: Group) -> tuple[int, int, str]:
    """Sort key of a group: natural lengths stand before any fixed context length."""
    cell = group.cell(group.baseline)
    context = cell["context_length"]
    return (-1 if context == "natural" else int(context), int(cell["batch_size"]), group.name)

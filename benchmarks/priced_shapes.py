"""`auto` over the fixed shapes and over plain decoding, at equal prices of equal rounds.

python -m benchmarks.priced_shapes RESULTS [--out FILE]

Where memory changes its speed from one second to the next, the seconds of a cell tell when it ran
more than what was chosen. Here each round costs what such a round costs in the median of the run:

- verifying (`verify_s + other_s`): median over all rounds of the group with the same worker,
  precision and number of rows, of all methods, the A/A twin's among them;
- drafting (`draft_s`): median over the method's own rounds with that number of rows.

A method's priced rate in a block is its committed tokens over the sum of the prices of its rounds.
A ratio is exp(mean over blocks of log(rate of auto / rate of the other)), with Student's interval
at 95 % on the logarithms: one for each comparison, not simultaneous. What `auto` gains or loses by
following the machine's state is not in these ratios, nor is any time outside rounds.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines import in_words
from benchmarks.results_command import Entries, run_on_results
from harness.derive import finished_records, read_record
from harness.errors import ConfigError
from harness.stats import Interval, critical_value, standard_errors

LEVEL = 0.95
Key = tuple[str, str]  # group, method id


@dataclass(frozen=True)
class Decoded:
    """One trial: its tokens in all, and of each round (rows, drafting seconds, other seconds)."""

    cell: Mapping[str, Any]
    group: str
    block: str
    tokens: int
    rounds: list[tuple[int, float, float]]

    def kinds(self, rows: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What rounds share whose drafter, and what those whose target, does the same work."""
        target = ("verify", self.group, self.cell["worker"], self.cell["precision"], rows)
        return ("draft", self.group, self.cell["method_id"], rows), target


def compare(results: Path) -> list[dict[str, Any]]:
    """For each method of shape `auto` its ratios. Raises ConfigError."""
    trials = list(_read(results))
    rates: dict[Key, dict[str, float]] = defaultdict(dict)
    cells: dict[Key, Mapping[str, Any]] = {}
    for trial, seconds in zip(trials, _priced_seconds(trials), strict=True):
        if trial.cell["role"] != "noise":
            key = trial.group, str(trial.cell["method_id"])
            cells[key] = trial.cell
            rates[key][trial.block] = trial.tokens / seconds
    entries = [
        _entry(key, cells, rates) for key, cell in sorted(cells.items())
        if cell["shape"]["kind"] == "auto"
    ]  # fmt: skip
    if not entries:
        raise ConfigError(f"{results} holds no method of shape `auto`; name a run that has one.")
    return entries


def _entry(key: Key, cells: Mapping[Key, Any], rates: Mapping[Key, Any]) -> dict[str, Any]:
    """One `auto` over the methods of its worker and precision with its drafter, or none."""
    auto, fixed, plain = cells[key], {}, None
    for other, cell in sorted(cells.items()):
        same = all(auto[k] == cell[k] for k in ("worker", "precision", "batch_size"))
        shared = rates[key].keys() & rates[other].keys()
        if other == key or other[0] != key[0] or not same or not shared:
            continue
        if cell["drafter"]["kind"] == "none":
            plain = _ratio(rates[key], rates[other])
        elif cell["drafter"] == auto["drafter"]:
            fixed[cell["name"]] = _ratio(rates[key], rates[other])
    best = min(fixed, key=lambda name: fixed[name]["mean"], default=None)
    return {"group": key[0], "name": auto["name"], "over_fixed": fixed,
            "best_fixed": best, "over_plain": plain}  # fmt: skip


def _read(results: Path) -> Iterator[Decoded]:
    paths = finished_records(results)
    if not paths:
        raise ConfigError(f"{results} holds no records; name the results folder of a sweep.")
    for path in paths:
        record = read_record(path)
        try:
            if record["status"] == "failed":
                continue
            found = record["rounds"]
            columns = (found[key] for key in ("rows", "draft_s", "verify_s", "other_s"))
            rounds = [(n, draft, v + o) for n, draft, v, o in zip(*columns, strict=True)]
            tokens = sum(record["sequence_rounds"]["committed"])
            yield Decoded(record["cell"], record["group"], record["block"], tokens, rounds)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is not a record of a trial: {type(error).__name__} {error}. "
                "Remove its block's folder to measure it again."
            ) from error


def _priced_seconds(trials: Sequence[Decoded]) -> list[float]:
    """What the rounds of each trial cost at the run's median prices."""
    seen: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for trial in trials:
        for rows, *seconds in trial.rounds:
            for kind, spent_s in zip(trial.kinds(rows), seconds, strict=True):
                seen[kind].append(spent_s)
    price = {kind: statistics.median(seconds) for kind, seconds in seen.items()}
    return [sum(price[kind] for n, *_ in t.rounds for kind in t.kinds(n)) for t in trials]


def _ratio(auto: Mapping[str, float], other: Mapping[str, float]) -> dict[str, Any]:
    """Paired by the blocks that both have; with a single block the ends are not known."""
    logs = np.array([[math.log(auto[b] / other[b])] for b in sorted(auto.keys() & other.keys())])
    mean, half = float(logs.mean()), math.inf
    if len(logs) > 1:
        # One column: Student's t, for which nothing is drawn.
        factor = critical_value(logs, LEVEL, np.random.default_rng(0))
        half = factor * float(standard_errors(logs)[0])
    return Interval.around(mean, half, len(logs), LEVEL).exp().to_json()


def show(entries: Entries) -> None:
    """The figures as a table."""
    print("| auto | over | ratio at equal prices |\n| --- | --- | --- |")
    for entry in entries:
        over = {**entry["over_fixed"], "plain decoding": entry["over_plain"]}
        for name, ratio in over.items():
            if ratio is not None:
                print(f"| {entry['name']} | {name} | {in_words(ratio, 3)} |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    return run_on_results("priced_shapes", __doc__, compare, show, arguments)


if __name__ == "__main__":
    sys.exit(main())

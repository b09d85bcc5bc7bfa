"""Compares two results folders method by method: SAME, FASTER, SLOWER or AMBIGUOUS.

    python -m harness.compare A B

B is judged against A, on decode throughput. Exit status: 0 no method is slower, 1 at least one is,
2 the two cannot be compared (the reason's code is printed) or cannot be read.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from harness.comparison import Group, Key, read_groups
from harness.derive import read_trials
from harness.errors import ConfigError
from harness.stats import (
    BlockSample,
    Interval,
    Settings,
    decide,
    simultaneous_half_widths,
    two_level_bootstrap,
)

WORDS = {"equal": "SAME", "faster": "FASTER", "slower": "SLOWER", "undecided": "AMBIGUOUS"}


@dataclass(frozen=True)
class Change:
    """A method of both folders; `ratio` is the throughput of B over that of A."""

    group: str
    method_id: str
    ratio: Interval
    word: str


def compare(first: Path, second: Path, settings: Settings) -> list[Change]:
    """The methods that both folders measured in groups of the same name.

    Blocks of one name are a pair: where they drew the same prompts, what the prompts do cancels.
    The changes of a group are a family of simultaneous intervals, and the groups share the level
    among them (Sidak 1967). A speed that the machine gained or lost between the runs is part of
    every change. Raises ConfigError where nothing is common.
    """
    groups = {group.name: group for group in _groups(first, settings)}
    pairs = [(groups[b.name], b) for b in _groups(second, settings) if b.name in groups]
    changes = []
    for a, b in pairs:
        changes += _changes(a, b, settings, settings.level ** (1.0 / len(pairs)))
    if not changes:
        raise ConfigError(f"{first} and {second} have no measured method in common.")
    return changes


def _groups(results: Path, settings: Settings) -> list[Group]:
    trials = read_trials(results)
    if not trials:
        raise ConfigError(f"{results} holds no finished block.")
    return read_groups(trials, settings)


def _changes(a: Group, b: Group, settings: Settings, level: float) -> list[Change]:
    keys = [key for key in a.keys if key in b.keys and key[1] != "noise"]
    blocks = [block for block in a.blocks if block in b.blocks]
    if not keys or not blocks:
        return []
    samples = [_sample(a, b, keys, block) for block in blocks]
    half = len(keys)
    values = np.array([sample.log_rates() for sample in samples])
    draws = two_level_bootstrap(samples, settings.bootstrap_draws, a.rng("compare"))
    values, draws = values[:, half:] - values[:, :half], draws[:, half:] - draws[:, :half]
    widths = simultaneous_half_widths(values, draws, level, a.rng("compare, critical value"))
    changes = []
    for key, mean, width in zip(keys, values.mean(axis=0), widths, strict=True):
        if math.isinf(width):
            raise ConfigError(f"{a.name} has a single common block; a comparison needs two.")
        ratio = Interval.around(float(mean), float(width), len(blocks), settings.level)
        word = WORDS[decide(ratio.ci_low, ratio.ci_high, settings.zone)]
        enough = len(blocks) >= settings.min_blocks
        changes.append(Change(a.name, key[0], ratio.exp(), word if enough else "AMBIGUOUS"))
    return changes


def _sample(a: Group, b: Group, keys: Sequence[Key], block: str) -> BlockSample:
    """Columns of A, then of B; one row a prompt where both drew the same, else their sums."""
    trials = [group.trials[key][block] for group in (a, b) for key in keys]
    amount = [trial.decode_tokens for trial in trials]
    seconds = [trial.decode_s for trial in trials]
    if len({trial.prompt_ids for trial in trials}) > 1:
        amount, seconds = ([column.sum(keepdims=True) for column in c] for c in (amount, seconds))
    return BlockSample(np.array(amount).T, np.array(seconds).T)


def differences(first: Path, second: Path) -> list[tuple[str, str]]:
    """(code, sentence) for each reason why the two folders do not measure the same thing."""
    a, b = (_identity(path) for path in (first, second))
    reasons = []
    for code, what in (("device_differs", "device"), ("model_differs", "model"),
                       ("workload_differs", "workload")):  # fmt: skip
        if a[what] != b[what]:
            reasons.append((code, f"{what}: {a[what]} in {first}, {b[what]} in {second}."))
    drawn = [_prompts(path) for path in (first, second)]
    if any(drawn[0][block] != drawn[1][block] for block in drawn[0].keys() & drawn[1].keys()):
        reasons.append(("prompts_differ", "blocks of the same name drew different prompts."))
    return reasons


def _prompts(results: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(t.group, t.block): t.prompt_ids for t in read_trials(results)}


def _identity(results: Path) -> dict[str, str]:
    """What must be equal, of environment.json: the content where a hash tells it, else names."""
    environment = _read(results / "environment.json")
    return {
        what: json.dumps(_essence(environment.get(what)), sort_keys=True)
        for what in ("device", "model", "workload")
    }


def _essence(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    if entry.get("content_hash"):
        return entry["content_hash"]
    return {key: entry[key] for key in ("kind", "name", "isa", "threads") if key in entry}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a mapping.")
    return content


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.compare",
        description="Compares the methods of two results folders: is B faster or slower than A? "
        "Writes nothing. Exit status 1 where a method of B is slower, 2 where the folders cannot "
        "be compared.",
    )
    parser.add_argument("a", type=Path, metavar="A", help="results folder to compare with")
    parser.add_argument("b", type=Path, metavar="B", help="results folder to judge")
    parser.add_argument(
        "--min-effect",
        type=float,
        default=Settings.min_effect,
        help="share below which a change counts as none (default: %(default)s)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="compare although device, model, workload or prompts differ",
    )
    given = parser.parse_args(arguments)
    try:
        settings = Settings.read({"min_effect": given.min_effect})
        reasons = differences(given.a, given.b)
        for code, sentence in reasons:
            print(f"{code}: {sentence}", file=sys.stderr)
        if reasons and not given.force:
            print("Use --force to compare them all the same.", file=sys.stderr)
            return 2
        changes = compare(given.a, given.b, settings)
    except (ConfigError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for group in dict.fromkeys(change.group for change in changes):
        Console().print(_table(group, [c for c in changes if c.group == group]))
    return 1 if any(change.word == "SLOWER" for change in changes) else 0


def _table(group: str, changes: Sequence[Change]) -> Table:
    table = Table("method", "B / A", "interval", "blocks", "result", title=group)
    for change in changes:
        ratio = change.ratio
        table.add_row(
            change.method_id,
            f"{ratio.mean:.3f}",
            f"{ratio.ci_low:.3f} to {ratio.ci_high:.3f}",
            str(ratio.n),
            change.word,
        )
    return table


if __name__ == "__main__":
    sys.exit(main())

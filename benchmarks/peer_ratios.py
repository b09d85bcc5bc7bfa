"""Native engine over a peer in the records of `+experiment=cpu_peers` or `gpu_peers`.

python -m benchmarks.peer_ratios RESULTS [--out FILE]

Each pair reads the same 4-bit weights, or 16-bit ones made from them; on a GPU, synthetic weights
of the same shape. The ratios of throughput are paired by block and their intervals simultaneous, as
for every comparison (docs/statistics.md). GB/s are the weights' bytes, once a forward, of plain
methods.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.engines import in_words
from benchmarks.results_command import Entries, run_on_results
from harness.comparison import Group, Key, read_groups
from harness.derive import read_trials
from harness.errors import ConfigError
from harness.stats import Interval, Settings

PAIRS = (
    ("fp16", "none", "llama_cpp_f16"),
    ("w4a8", "none", "llama_cpp_q4_0"),
    ("w4a16", "none", "llama_cpp_q4_1"),
    ("w4a8", "none", "llama_cpp_q4_1"),
    ("w4a8", "ngram", "llama_cpp_q4_0"),
    ("fp16", "none", "vllm_fp16"),
    ("w4a16", "none", "vllm_w4a16"),
    ("w4a16", "none", "vllm_w4a16_marlin"),
    ("w4a8", "none", "vllm_w4a16"),
    ("w4a4", "none", "vllm_w4a16"),
)
"""Native precision, drafter of both, and the peer's worker."""


def compare(results: Path) -> list[dict[str, Any]]:
    """For each group and pair the two throughputs and their ratio. Raises ConfigError."""
    try:
        config = yaml.safe_load((results / "config.yaml").read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{results} is no results folder: {error.strerror}.") from error
    groups = read_groups(read_trials(results), Settings.read(config["stats"]))
    return [entry for group in groups for entry in _entries(group)]


def _entries(group: Group) -> list[dict[str, Any]]:
    pairs = [
        (native, peer)
        for precision, drafter, worker in PAIRS
        if (native := _key(group, "native", drafter, precision))
        and (peer := _key(group, worker, drafter))
    ]
    rates = group.family([{key: 1.0} for pair in pairs for key in pair])
    ratios = group.family([{native: 1.0, peer: -1.0} for native, peer in pairs])
    return [
        {
            "group": group.name,
            "native": group.cell(native)["name"],
            "peer": group.cell(peer)["name"],
            "native_tokens_s": rates[2 * place].exp().to_json(),
            "peer_tokens_s": rates[2 * place + 1].exp().to_json(),
            "ratio": ratios[place].exp().to_json(),
            "native_bytes_s": _bytes_s(group, native, rates[2 * place]),
            "peer_bytes_s": _bytes_s(group, peer, rates[2 * place + 1]),
            "read_bytes_s": _read_bytes_s(group, native),
        }
        for place, (native, peer) in enumerate(pairs)
    ]


def _bytes_s(group: Group, key: Key, rate: Interval) -> float | None:
    """Weight bytes a second, read once a forward of the whole batch; None with a drafter."""
    cell = group.cell(key)
    trial = next(iter(group.trials[key].values()))
    if cell["drafter"]["kind"] != "none" or trial.bytes_per_token is None:
        return None
    return float(rate.exp().to_json()["mean"]) / int(cell["batch_size"]) * trial.bytes_per_token


def _read_bytes_s(group: Group, key: Key) -> float | None:
    """The read bandwidth that the worker measured when it loaded."""
    return next(iter(group.trials[key].values())).bandwidth


def _key(group: Group, worker: str, drafter: str, precision: str | None = None) -> Key | None:
    """The cell of a worker with this drafter; its A/A twin is another cell."""
    for key in group.keys:
        cell = group.cell(key)
        if (
            (cell["worker"], cell["drafter"]["kind"]) == (worker, drafter)
            and precision in (None, cell["precision"])
            and cell["role"] != "noise"
        ):
            return key
    return None


def _gigabytes(entry: Mapping[str, Any], side: str) -> str:
    """GB/s, and their share of the native engine's read bandwidth where that is known."""
    bytes_s, read = entry[f"{side}_bytes_s"], entry["read_bytes_s"]
    if bytes_s is None:
        return "-"
    return f"{bytes_s / 1e9:.0f}" + (f" ({bytes_s / read:.2f})" if read else "")


def show(entries: Entries) -> None:
    """The figures as a table."""
    print("| group | native | tok/s | GB/s | peer | tok/s | GB/s | ratio |\n|" + " --- |" * 8)
    for entry in entries:
        columns = [
            f"{entry[side]} | {in_words(entry[f'{side}_tokens_s'], 0)} | {_gigabytes(entry, side)}"
            for side in ("native", "peer")
        ]
        print(f"| {entry['group']} | {' | '.join(columns)} | {in_words(entry['ratio'])} |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    return run_on_results("peer_ratios", __doc__, compare, show, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Searches llama.cpp's documented settings for the fastest.

python -m benchmarks.llama_cpp_search [--weight-format q4_0] [--rounds 3] [--out FILE]

Threads, flash attention, repacking, one or separate KV buffers, and how OpenMP's threads wait. In
every round each setting is measured once, in random order, in a process of its own: a worker whose
threads spin while they wait would slow the others down.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends import registry
from backends.llama_cpp_formats import PRECISION_OF
from benchmarks.engines import Engine, described, in_words, interval, loaded, ratios
from benchmarks.figures_file import write_figures

WAITING: dict[str, dict[str, str]] = {
    "default": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "active": {"OMP_WAIT_POLICY": "active"},
    "spin 10k": {"GOMP_SPINCOUNT": "10000"},
}
FLAGS: tuple[tuple[str, ...], ...] = (
    (),
    ("--no-flash-attention",),
    ("--no-repack",),
    ("--no-flash-attention", "--no-repack"),
    ("--unified-cache",),
)
BATCHES = {1: 48, 8: 16}
"""Parallel sequences, and the tokens that each decodes."""
MAX_CONTEXT = 256
REFERENCE = "2 threads, default"


def settings() -> dict[str, Engine]:
    """Every combination that can differ, by its description; llama.cpp's defaults are `default`."""
    found = {}
    for threads in (1, 2):
        # One thread waits for nobody.
        for waiting, env in WAITING.items() if threads > 1 else [("default", {})]:
            for flags in FLAGS:
                name = ", ".join([f"{threads} thread{'s' * (threads > 1)}", waiting, *flags])
                found[name] = Engine(name, "", ("--threads", str(threads), *flags), env)
    return found


def measure(weight_format: str, rounds: int, model: Path) -> dict[str, Any]:
    """Tokens a second of each setting in each round."""
    base = registry.backend(f"llama_cpp_{weight_format}").command
    base = (*base[: base.index("--weight-format")], "--weight-format", weight_format)
    rates: dict[str, dict[int, list[float]]] = {}
    about: dict[str, Any] = {}
    order = random.Random(0)
    for _ in range(rounds):
        for name, found in order.sample(list(settings().items()), len(settings())):
            engine = Engine(name, PRECISION_OF[weight_format], (*base, *found.command), found.env)
            with loaded(engine, model, max_context=MAX_CONTEXT, max_batch=max(BATCHES)) as worker:
                about = about or described(worker)
                for batch, tokens in BATCHES.items():
                    worker.decode_rate(batch, tokens // 4)
                    rate = worker.decode_rate(batch, tokens)
                    rates.setdefault(name, {}).setdefault(batch, []).append(rate)
    return {
        "weight_format": weight_format,
        "rounds": rounds,
        "version": about["version"],
        "system_info": about["device"]["system_info"],
        "cpu": about["device"]["name"],
        "reference": REFERENCE,
        "settings": {
            name: {
                str(batch): {
                    "tokens_s": interval(values),
                    "ratio": ratios(values, rates[REFERENCE][batch]),
                }
                for batch, values in found.items()
            }
            for name, found in rates.items()
        },
    }


def show(result: Mapping[str, Any]) -> None:
    """Print the settings as a Markdown table, the fastest at batch 1 first."""
    found = result["settings"]
    head = [f"tok/s, batch {b} | to the default" for b in BATCHES]
    print(f"| settings | {' | '.join(head)} |\n|{' --- |' * (1 + 2 * len(BATCHES))}")
    for name in sorted(found, key=lambda n: -found[n]["1"]["tokens_s"]["mean"]):
        by_batch = [found[name][str(batch)] for batch in BATCHES]
        cells = [f"{in_words(f['tokens_s'], 0)} | {in_words(f['ratio'])}" for f in by_batch]
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.llama_cpp_search", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--weight-format", choices=sorted(PRECISION_OF), default="q4_0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, default=Path("models/smollm2-135m-instruct.sqm"))
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    given = parser.parse_args()
    result = measure(given.weight_format, given.rounds, given.model)
    write_figures(given.out, result)
    show(result)


if __name__ == "__main__":
    main()

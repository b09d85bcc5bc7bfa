"""Native engine against llama.cpp: prefill, parallel sequences, and beside a busy machine.

python -m benchmarks.cpu_peers [--rounds 12] [--out FILE]

Both engines are loaded; in every round they take turns, in alternating order, on the same ids.
Ratios are formed inside a round. `+experiment=cpu_peers` has the rates of real prompts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.engines import Engine, Loaded, described, in_words, interval, loaded, ratios
from benchmarks.figures_file import write_figures

PREFILL_TOKENS = 512
SEQUENCES = 8
SEQUENCE_TOKENS = 32
ALONE_TOKENS = 48
MAX_CONTEXT = 640
SETTLE_S = 0.3
"""Time for busy processes to be spread over the cores."""

_BUSY_LOOP = "while True: pass"


def measure(native: Loaded, peer: Loaded, rounds: int) -> dict[str, Any]:
    """The three comparisons; rates in tokens a second."""
    return {
        "prefill": _compared(native, peer, rounds, lambda e: e.prefill_rate(PREFILL_TOKENS)),
        "parallel": _compared(
            native, peer, rounds, lambda e: e.decode_rate(SEQUENCES, SEQUENCE_TOKENS)
        ),
        "busy": _kept(native, peer, rounds),
    }


def _compared(
    native: Loaded, peer: Loaded, rounds: int, rate: Callable[[Loaded], float]
) -> dict[str, Any]:
    """Rates of both engines in turns, after one of each that is dropped."""
    rates = _in_turns((native, peer), rounds, rate)
    return {
        "native": interval(rates[native.engine.name]),
        "peer": interval(rates[peer.engine.name]),
        "ratio": ratios(rates[native.engine.name], rates[peer.engine.name]),
    }


def _in_turns(
    engines: Sequence[Loaded], rounds: int, rate: Callable[[Loaded], float]
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {engine.engine.name: [] for engine in engines}
    for engine in engines:
        rate(engine)
    for number in range(rounds):
        for engine in engines if number % 2 == 0 else reversed(engines):
            rates[engine.engine.name].append(rate(engine))
    return rates


def _kept(native: Loaded, peer: Loaded, rounds: int) -> dict[str, Any]:
    """The share of its throughput that each engine keeps beside one busy loop a core."""
    engines = (native, peer)
    alone: dict[str, list[float]] = {engine.engine.name: [] for engine in engines}
    beside: dict[str, list[float]] = {engine.engine.name: [] for engine in engines}
    for number in range(rounds):
        order = engines if number % 2 == 0 else engines[::-1]
        for engine in order:
            alone[engine.engine.name].append(engine.decode_rate(1, ALONE_TOKENS))
        with busy_cores():
            for engine in order:
                beside[engine.engine.name].append(engine.decode_rate(1, ALONE_TOKENS))
    kept = {
        name: [busy / free for busy, free in zip(beside[name], alone[name], strict=True)]
        for name in alone
    }
    return {
        "native": interval(kept[native.engine.name]),
        "peer": interval(kept[peer.engine.name]),
        "ratio": ratios(kept[native.engine.name], kept[peer.engine.name]),
        "tokens_s": {
            engine: {"alone": interval(alone[name]), "beside": interval(beside[name])}
            for engine, name in (("native", native.engine.name), ("peer", peer.engine.name))
        },
    }


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process for each core that this one may use, each in an endless loop."""
    command = [sys.executable, "-c", _BUSY_LOOP]
    loops = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def show(result: Mapping[str, Any]) -> None:
    """Print the figures as a Markdown table."""
    names = {
        "prefill": (f"prefill of {PREFILL_TOKENS} tokens, tok/s", 0),
        "parallel": (f"{SEQUENCES} parallel sequences, tok/s", 0),
        "busy": ("share of throughput kept beside busy cores", 2),
    }
    native, peer = result["engines"]["native"], result["engines"]["peer"]
    print(f"| | {native['name']} | {peer['name']} | ratio |\n| --- | --- | --- | --- |")
    for key, (name, digits) in names.items():
        found = result[key]
        print(
            f"| {name} | {in_words(found['native'], digits)} | {in_words(found['peer'], digits)} "
            f"| {in_words(found['ratio'])} |"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu_peers", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--model", type=Path, default=Path("models/smollm2-135m-instruct.sqm"))
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    given = parser.parse_args()
    engines = (
        Engine.of_backend("native", "w4a8"),
        Engine.of_backend("llama_cpp_q4_0", "w4a8"),
    )
    room = {"max_context": MAX_CONTEXT, "max_batch": SEQUENCES}
    with (
        loaded(engines[0], given.model, **room) as native,
        loaded(engines[1], given.model, **room) as peer,
    ):
        result = {
            "rounds": given.rounds,
            "engines": {"native": described(native), "peer": described(peer)},
            **measure(native, peer, given.rounds),
        }
    write_figures(given.out, result)
    show(result)


if __name__ == "__main__":
    main()

"""Greedy answers of the CUDA engine against the CPU engine's, on one packed model.

python -m benchmarks.device_agreement [--prompts 48] [--tokens 64] [--near 0.25] [--out FILE]

Both engines answer the requests of `workload=prod`. Where their tokens first differ, each engine
is asked by how much it prefers its own token to the other's: the difference of the two
log-probabilities, in nats. A difference at which neither preference exceeds `--near` is a near tie.
What follows a difference is another text, and is not compared. As a yardstick, the CPU's answers at
each precision are compared with its own at w4a16 in the same way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from backends.client import Worker, WorkerDied, WorkerFailure
from backends.pack.errors import CheckpointError
from backends.tokenizer import Tokenizer, TokenizerError
from benchmarks.engines import TIMEOUT_S, greedy_run
from benchmarks.figures_file import write_figures
from harness.workload.errors import WorkloadError
from harness.workload.request_file import read_requests

PRECISIONS = ("fp16", "w4a16", "w4a8", "w4a4")
YARDSTICK = "w4a16"
REQUESTS = Path("conf/workload/data/prod.jsonl")
DEVICES = ("cpu", "cuda")
_BATCH = 8


@dataclass(frozen=True)
class Difference:
    """The first token of an answer in which the engines differ, and their preferences in nats."""

    request: int
    position: int
    cpu_token: int
    cuda_token: int
    cpu_prefers_by: float
    cuda_prefers_by: float

    def near_tie(self, limit: float) -> bool:
        """True where neither engine prefers its own token by more than `limit`."""
        return max(self.cpu_prefers_by, self.cuda_prefers_by) <= limit


@dataclass(frozen=True)
class Agreement:
    """Of one precision: the CPU's answers, tokens of them that were compared, and the differences
    that ended a comparison."""

    precision: str
    answers: tuple[tuple[int, ...], ...]
    compared: int
    differences: tuple[Difference, ...]

    @property
    def requests(self) -> int:
        """Number of answers."""
        return len(self.answers)

    def to_json(self, limit: float, yardstick: Agreement) -> dict[str, Any]:
        """The counts and every difference; `yardstick` is another precision's agreement."""
        ties = sum(difference.near_tie(limit) for difference in self.differences)
        return {
            "precision": self.precision,
            "requests": self.requests,
            "same_answers": self.requests - len(self.differences),
            "tokens_compared": self.compared,
            "near_ties": ties,
            "other_differences": len(self.differences) - ties,
            f"cpu_against_{yardstick.precision}": parted(self.answers, yardstick.answers),
            "differences": [asdict(difference) for difference in self.differences],
        }


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Where two answers first differ: an index, None where they are the same tokens.

    An answer that ends before the other differs in its stop token. Raises ValueError where it has
    none and is the other's beginning.
    """
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return place
    if len(ours) != len(theirs):
        raise ValueError("one answer is the beginning of the other, without a stop token.")
    return None


def parted(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> dict[str, int]:
    """How many answers differ, and the tokens that were compared up to the first differences."""
    places = [first_difference(one, other) for one, other in zip(ours, theirs, strict=True)]
    compared = (
        len(one) if place is None else place + 1 for one, place in zip(ours, places, strict=True)
    )
    return {
        "differences": sum(place is not None for place in places),
        "tokens_compared": sum(compared),
    }


class Engine(Protocol):
    """What is asked of a device."""

    def answers(
        self, prompts: Sequence[Sequence[int]], precision: str, tokens: int, stop_ids: Sequence[int]
    ) -> list[list[int]]:
        """Greedy answers of at most `tokens` tokens."""

    def preference(self, text: Sequence[int], other: int, precision: str) -> float:
        """By how many nats the engine prefers its own next token after `text` to `other`."""


class LoadedEngine:
    """A loaded worker on one device."""

    def __init__(self, worker: Worker, model: Path, max_context: int) -> None:
        self.worker = worker
        self.device = worker.call("hello", timeout_s=TIMEOUT_S)["device"]
        self.proof = worker.call(
            "load",
            timeout_s=TIMEOUT_S,
            model={"path": str(model.absolute())},
            precisions=list(PRECISIONS),
            drafters=[],
            max_context=max_context,
            max_batch=_BATCH,
            seed=0,
        )["proof"]

    def answers(
        self, prompts: Sequence[Sequence[int]], precision: str, tokens: int, stop_ids: Sequence[int]
    ) -> list[list[int]]:
        """See Engine."""
        answer = greedy_run(
            self.worker, prompts, precision,
            batch_size=_BATCH, new_tokens=tokens, stop_ids=stop_ids, timeout_s=TIMEOUT_S,
        )  # fmt: skip
        return [request["tokens"] for request in answer["requests"]]

    def preference(self, text: Sequence[int], other: int, precision: str) -> float:
        """See Engine."""
        scored = self.worker.call(
            "score",
            timeout_s=TIMEOUT_S,
            sequences=[[*text, other]],
            precision=precision,
            reference=None,
        )["sequences"][0]
        return float(scored["top1_logprob"][-1]) - float(scored["logprob"][-1])


def compare(
    engines: Mapping[str, Engine],
    prompts: Sequence[Sequence[int]],
    precision: str,
    tokens: int,
    stop_ids: Sequence[int],
) -> Agreement:
    """Ask both engines at once, and each about every difference."""
    with ThreadPoolExecutor(len(engines)) as pool:
        asked = {
            name: pool.submit(engine.answers, prompts, precision, tokens, stop_ids)
            for name, engine in engines.items()
        }
        answers = {name: future.result() for name, future in asked.items()}
    differences = []
    for index, (cpu, cuda) in enumerate(zip(answers["cpu"], answers["cuda"], strict=True)):
        place = first_difference(cpu, cuda)
        if place is None:
            continue
        text = [*prompts[index], *cpu[:place]]
        differences.append(
            Difference(
                index,
                place,
                cpu[place],
                cuda[place],
                engines["cpu"].preference(text, cuda[place], precision),
                engines["cuda"].preference(text, cpu[place], precision),
            )
        )
    return Agreement(
        precision,
        tuple(map(tuple, answers["cpu"])),
        parted(answers["cpu"], answers["cuda"])["tokens_compared"],
        tuple(differences),
    )


@contextmanager
def both_engines(worker: Path, model: Path, max_context: int) -> Iterator[dict[str, LoadedEngine]]:
    """The worker on the CPU and on the GPU, loaded. Raises WorkerFailure."""
    with (
        Worker([worker, "--device", "cpu"], name="cpu") as cpu,
        Worker([worker, "--device", "cuda"], name="cuda") as cuda,
    ):
        pair = zip(DEVICES, (cpu, cuda), strict=True)
        yield {name: LoadedEngine(running, model, max_context) for name, running in pair}


def show(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the counts as a Markdown table."""
    print(
        "| precision | answers | the same | tokens compared | near ties | other differences "
        "| largest preference, nats | differences per 100 tokens "
        f"| CPU against its {YARDSTICK}: per 100 tokens |\n|" + " --- |" * 9
    )
    for found in results:
        preferences = [
            max(difference["cpu_prefers_by"], difference["cuda_prefers_by"])
            for difference in found["differences"]
        ]
        largest = f"{max(preferences):.3f}" if preferences else "-"
        yardstick = found[f"cpu_against_{YARDSTICK}"]
        shares = (
            100 * len(preferences) / found["tokens_compared"],
            100 * yardstick["differences"] / yardstick["tokens_compared"],
        )
        print(
            f"| {found['precision']} | {found['requests']} | {found['same_answers']} "
            f"| {found['tokens_compared']} | {found['near_ties']} | {found['other_differences']} "
            f"| {largest} | {' | '.join(f'{share:.1f}' for share in shares)} |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.device_agreement", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument(
        "--worker", type=Path, default=Path("build/native-cuda/worker/specquant-worker")
    )
    parser.add_argument("--model", type=Path, default=Path("models/smollm2-135m-instruct.sqm"))
    parser.add_argument("--prompts", type=int, default=48, help="the first so many requests")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of an answer, at most")
    parser.add_argument("--near", type=float, default=0.25, help="limit of a near tie, nats")
    parser.add_argument("--out", type=Path, help="JSON file for the counts and differences")
    given = parser.parse_args(arguments)
    try:
        tokenizer = Tokenizer.from_packed(given.model)
        requests = [r for r in read_requests(REQUESTS, str(REQUESTS)) if r.messages]
        prompts = [
            tokenizer.apply_chat_template(
                [{"role": message.role, "content": message.content} for message in r.messages or ()]
            )
            for r in requests[: given.prompts]
        ]
        room = max(map(len, prompts)) + given.tokens + 1
        with both_engines(given.worker, given.model, room) as engines:
            found = {
                precision: compare(engines, prompts, precision, given.tokens, tokenizer.stop_ids)
                for precision in PRECISIONS
            }
            described = {
                name: {"device": engine.device, "proof": engine.proof}
                for name, engine in engines.items()
            }
    except (WorkerFailure, CheckpointError, TokenizerError, WorkloadError) as error:
        print(f"device_agreement: {error}", file=sys.stderr)
        if isinstance(error, WorkerDied):
            print(error.stderr_tail, end="", file=sys.stderr)
        return 2
    results = [agreement.to_json(given.near, found[YARDSTICK]) for agreement in found.values()]
    stored = {"near_nats": given.near, "engines": described, "precisions": results}
    write_figures(given.out, stored)
    show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Greedy speculation beside plain decoding on real prompts: equal tokens, and acceptance lengths.

python -m benchmarks.greedy_drafts equality FOLDER [--prompts 16] [--tokens 48]
python -m benchmarks.greedy_drafts acceptance FOLDER [--precision fp16] [--out FILE]

FOLDER holds gsm8k_test.jsonl and spec_bench.jsonl. Nothing is timed. `equality` ends with status 1
where any token differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.client import Worker
from backends.tokenizer import Tokenizer
from benchmarks.engines import NONE, greedy_run
from benchmarks.figures_file import write_figures
from harness.trial import repeats_itself

_ROOT = Path(__file__).resolve().parents[1]
WORKER = _ROOT / "build/native/worker/specquant-worker"
MODEL = _ROOT / "models/smollm2-135m-instruct.sqm"
DRAFTERS = _ROOT / "backends/drafters/smollm2-135m"
GSM8K = "gsm8k"
GSM8K_PROBLEMS = 40
SPEC_BENCH_EACH = 10
MAX_NEW_TOKENS = 128
MAX_CONTEXT = 2048
BATCH_SIZES = (1, 2, 4, 8)

Object = dict[str, Any]
MODEL_DRAFTER: Object = {"kind": "model", "id": "model", "precision": "w4a8"}
HEAD: Object = {"kind": "head", "id": "head", "precision": "w4a8"}
NGRAM: Object = {"kind": "ngram", "max_ngram": 3, "min_ngram": 1}


def chain(gamma: int) -> Object:
    """A chain's shape."""
    return {"kind": "chain", "gamma": gamma}


def tree(depth: int, top_k: int, nodes: int) -> Object:
    """A tree's shape."""
    return {"kind": "tree", "depth": depth, "top_k": top_k, "nodes": nodes}


CASCADE: Object = {
    "kind": "cascade",
    "id": "model",
    "precision": "w4a8",
    "inner": {"kind": "head", "id": "model-head", "precision": "w4a8"},
    "inner_shape": tree(3, 4, 12),
}
SELF = {"fp16": "w4a8", "w4a16": "w4a4", "w4a8": "w4a4"}
AUTO: Object = {"kind": "auto", "candidates": [chain(1), chain(3), tree(2, 2, 3), tree(4, 4, 15)]}
MEASURED = (
    ("model, chain of 4", MODEL_DRAFTER, chain(4)),
    ("head, chain of 4", HEAD, chain(4)),
    ("head, tree of 24", HEAD, tree(6, 8, 24)),
)


def ways(precision: str) -> Iterator[tuple[str, Object, Object]]:
    """Name, drafter and shape of what is compared with plain decoding of `precision`."""
    for gamma in (1, 4):
        yield f"model, chain of {gamma}", MODEL_DRAFTER, chain(gamma)
        yield f"head, chain of {gamma}", HEAD, chain(gamma)
    yield "model, tree of 7", MODEL_DRAFTER, tree(3, 3, 7)
    yield "head, tree of 3", HEAD, tree(2, 2, 3)
    yield "head, tree of 24", HEAD, tree(6, 8, 24)
    yield "n-gram, chain of 4", NGRAM, chain(4)
    yield "self, chain of 3", {"kind": "self", "precision": SELF[precision]}, chain(3)
    yield "cascade, chain of 5", CASCADE, chain(5)
    yield "head, shapes chosen while it runs", HEAD, AUTO


@dataclass(frozen=True)
class Prompts:
    """Token ids and category of each prompt, one user turn of the chat template."""

    ids: list[list[int]]
    categories: list[str]
    stop_ids: list[int]

    @classmethod
    def read(cls, folder: Path, problems: int, each: int) -> Prompts:
        """The first problems of GSM8K test and the first prompts of each Spec-Bench category."""
        texts: list[tuple[str, str]] = []
        with _lines(folder / "gsm8k_test.jsonl") as lines:
            for line, _ in zip(lines, range(problems), strict=False):
                texts.append((GSM8K, json.loads(line)["question"]))
        taken: Counter[str] = Counter()
        with _lines(folder / "spec_bench.jsonl") as lines:
            for line in lines:
                row = json.loads(line)
                taken[row["category"]] += 1
                if taken[row["category"]] <= each:
                    texts.append((row["category"], row["turns"][0]))
        tokenizer = Tokenizer.from_packed(MODEL)
        ids = [tokenizer.apply_chat_template([{"role": "user", "content": t}]) for _, t in texts]
        return cls(ids, [category for category, _ in texts], list(tokenizer.stop_ids))


def _lines(path: Path) -> Any:
    if not path.is_file():
        raise SystemExit(f"error: {path} does not exist. Name the folder that holds it.")
    return path.open(encoding="utf-8")


class Engine:
    """A worker that holds the demo model and its drafters."""

    def __init__(self, precisions: Sequence[str]) -> None:
        self.worker = Worker([WORKER], name="native")
        files = {name: str(DRAFTERS / f"{name}.sqm") for name in ("model", "head", "model-head")}
        targets = {"head": "target", "model-head": "model"}
        drafters = [
            {"id": name, "path": path, "precisions": ["w4a8"]}
            | ({"target": targets[name]} if name in targets else {})
            for name, path in files.items()
        ]
        self.worker.call(
            "load",
            model={"path": str(MODEL)},
            precisions=sorted({*precisions, *(SELF[p] for p in precisions)}),
            drafters=drafters,
            max_context=MAX_CONTEXT,
            max_batch=max(BATCH_SIZES),
            seed=1,
        )

    def requests(
        self,
        prompts: Prompts,
        precision: str,
        drafter: Mapping[str, Any],
        shape: Mapping[str, Any],
        *,
        batch_size: int,
        tokens: int,
    ) -> list[Object]:
        """What a run says of each prompt."""
        answer = greedy_run(
            self.worker, prompts.ids, precision,
            drafter=drafter, shape=shape, batch_size=batch_size, new_tokens=tokens,
            stop_ids=prompts.stop_ids, share_prefill=True, trace="rounds",
        )  # fmt: skip
        found: list[Object] = answer["requests"]
        return found


def equality(folder: Path, count: int, tokens: int) -> bool:
    """Print compared tokens and mismatches by way, precision and batch size; True if all equal."""
    prompts = Prompts.read(folder, count // 4, SPEC_BENCH_EACH)
    step = max(1, (len(prompts.ids) - count // 4) // (count - count // 4))
    kept = [*range(count // 4), *range(count // 4, len(prompts.ids), step)][:count]
    prompts = Prompts(
        [prompts.ids[i] for i in kept], [prompts.categories[i] for i in kept], prompts.stop_ids
    )
    engine = Engine(list(SELF))
    batches = "".join(f" {size} |" for size in BATCH_SIZES)
    print(f"| precision | drafter and shape, tokens (mismatches) at batch |{batches}")
    print("| --- " * (2 + len(BATCH_SIZES)) + "|")
    compared = wrong = 0
    for precision in SELF:
        plain = engine.requests(prompts, precision, NONE, NONE, batch_size=1, tokens=tokens)
        expected = [request["tokens"] for request in plain]
        for name, drafter, shape in ways(precision):
            cells = []
            for size in BATCH_SIZES:
                found = engine.requests(
                    prompts, precision, drafter, shape, batch_size=size, tokens=tokens
                )
                checked, differ = _compare(expected, [request["tokens"] for request in found])
                compared, wrong = compared + checked, wrong + differ
                cells.append(f"{checked} ({differ})")
            print(f"| {precision} | {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n{compared} tokens compared, {wrong} differ.")
    return wrong == 0


def _compare(expected: Sequence[list[int]], found: Sequence[list[int]]) -> tuple[int, int]:
    """Tokens compared, and those that differ, are missing or stand beyond the end."""
    compared = differ = 0
    for left, right in zip(expected, found, strict=True):
        compared += max(len(left), len(right))
        differ += sum(a != b for a, b in zip(left, right, strict=False))
        differ += abs(len(left) - len(right))
    return compared, differ


def acceptance(folder: Path, precision: str) -> Object:
    """Acceptance lengths by category, of all requests and of those that do not repeat a span."""
    prompts = Prompts.read(folder, GSM8K_PROBLEMS, SPEC_BENCH_EACH)
    engine = Engine([precision])
    found: Object = {"precision": precision, "prompts": len(prompts.ids), "lengths": {}}
    for name, drafter, shape in MEASURED:
        requests = engine.requests(
            prompts, precision, drafter, shape, batch_size=1, tokens=MAX_NEW_TOKENS
        )
        found["lengths"][name] = {
            "all": _lengths(requests, prompts.categories, repeating=True),
            "without_repeats": _lengths(requests, prompts.categories, repeating=False),
        }
    return found


def _lengths(requests: Sequence[Object], categories: Sequence[str], *, repeating: bool) -> Object:
    """Tokens over rounds by category; the first token comes from the prompt's own pass."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for request, category in zip(requests, categories, strict=True):
        if not repeating and repeats_itself(request["tokens"]):
            continue
        sums[category][0] += sum(request["round_tokens"][1:])
        sums[category][1] += len(request["round_tokens"]) - 1
    lengths = {category: tokens / max(1, rounds) for category, (tokens, rounds) in sums.items()}
    others = [length for category, length in lengths.items() if category != GSM8K]
    return {"by_category": lengths, "spec_bench_mean": sum(others) / len(others)}


def _show(found: Object) -> None:
    names = list(found["lengths"])
    print(f"| | {' | '.join(names)} |\n{'| --- ' * (1 + len(names))}|")
    for part, label in (("all", ""), ("without_repeats", ", without repeats")):
        columns = [found["lengths"][name][part] for name in names]
        print(_row(f"mean over Spec-Bench's categories{label}", columns, "spec_bench_mean"))
        for category in columns[0]["by_category"] if part == "all" else (GSM8K,):
            print(_row(category + label, [c["by_category"] for c in columns], category))


def _row(label: str, columns: Sequence[Object], key: str) -> str:
    return f"| {label} | {' | '.join(f'{column[key]:.2f}' for column in columns)} |"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.greedy_drafts", description=str(__doc__).partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    equal = commands.add_parser("equality", help="compare every drafter at batch 1, 2, 4 and 8")
    equal.add_argument("--prompts", type=int, default=16, help="default: %(default)s")
    equal.add_argument("--tokens", type=int, default=48, help="of an answer; default: %(default)s")
    lengths = commands.add_parser("acceptance", help="acceptance lengths over the prompt set")
    lengths.add_argument("--precision", default="fp16", choices=list(SELF))
    lengths.add_argument("--out", type=Path, help="JSON file for the figures")
    for command in (equal, lengths):
        command.add_argument("folder", type=Path, help="holds both data sets")
    given = parser.parse_args()
    if given.command == "equality":
        return 0 if equality(given.folder, given.prompts, given.tokens) else 1
    found = acceptance(given.folder, given.precision)
    _show(found)
    write_figures(given.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

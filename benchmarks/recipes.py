"""Which weights and which activations give the best 4-bit drafts, at what perplexity and speed?

    python -m benchmarks.recipes RESULTS --model shipped=models/a.sqm --model rotated=b.sqm \
        --precision w4a4 w4a4_g16 w4a8 --out results/recipes [--markdown]

RESULTS is a finished agreement run (python -m harness.trace): its answers are the fixed prefixes.
Each model is scored at each precision and at w4a16. Agreement compares a precision with w4a16 of
the *same* model on the answers; perplexity is that of problems with their reference solutions, in
the chat template, and its ratio is to w4a16 of the *first* model. `--speed` also times a forward of
one and of four rows, which wants a quiet machine. A record a model and precision is written into
OUT, from which an interrupted study goes on; OUT/recipes.json holds the table.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from backends import registry
from backends.client import Worker, WorkerFailure
from benchmarks.recipe_texts import Text, read_texts
from harness import model_file
from harness.curve_figures import median_interval
from harness.errors import ConfigError
from harness.model_file import ModelFile
from harness.plan import digest
from harness.results import read_json, write_json
from harness.stats import FloatArray, ratio_intervals

REFERENCE = "w4a16"
LEVEL = 0.95
DRAWS = 2000
PART = 8
"""Texts of one `score` call."""
TIMEOUT_S = 1800.0
ROWS = (1, 4)
"""Rows of a forward that is timed: a step of a draft, and the verification of three drafts."""


class Study:
    """The records of a study: made where they are missing, read where they are there."""

    def __init__(self, out: Path, texts: Sequence[Text], speed: bool) -> None:
        self.out, self.texts, self.speed = out, texts, speed
        out.mkdir(parents=True, exist_ok=True)

    def record(self, label: str, model: ModelFile, precision: str) -> dict[str, Any]:
        """The record of a model at a precision. Raises WorkerFailure and ConfigError."""
        path = self.out / f"{label}.{precision}.json"
        wanted = digest({
            "model": model.content_hash, "precision": precision,
            "texts": [[text.prompt, text.answer, text.solution] for text in self.texts],
        })  # fmt: skip
        found: dict[str, Any] = read_json(path) if path.is_file() else {}
        if found.get("identity") != wanted:
            found = {}
        if not found or (self.speed and found["forward"] is None):
            with _worker(model, precision) as worker:
                found = found or self._scored(worker, label, model, precision, wanted)
                if self.speed:
                    found["forward"] = _forward(worker, precision)
            write_json(path, found)
        return found

    def _scored(
        self, worker: Worker, label: str, model: ModelFile, precision: str, identity: str
    ) -> dict[str, Any]:
        hello = worker.call("hello", timeout_s=TIMEOUT_S)
        entries = []
        for begin in range(0, len(self.texts), PART):
            part = self.texts[begin : begin + PART]
            answers = _score(worker, [(*t.prompt, *t.answer) for t in part], precision)
            solved = [text.solution for text in part if text.solution]
            solutions = iter(_score(worker, solved, precision) if solved else [])
            for text, answer in zip(part, answers, strict=True):
                logprobs = next(solutions)["logprob"] if text.solution else []
                entries.append({
                    "problem": text.problem,
                    "top1": answer["top1"][len(text.prompt) - 1 :],
                    "nll_sum": -math.fsum(logprobs),
                    "positions": len(logprobs),
                })  # fmt: skip
        return {
            "schema_version": 1, "identity": identity, "label": label, "model": model.summary(),
            "precision": precision, "device": hello["device"],
            "build": f"{hello.get('version')} {hello.get('build')}", "texts": entries,
            "forward": None,
        }  # fmt: skip


@contextmanager
def _worker(model: ModelFile, precision: str) -> Iterator[Worker]:
    backend = registry.backend("native")
    with Worker(list(backend.command), name="native", env=backend.env) as worker:
        worker.call(
            "load", timeout_s=TIMEOUT_S, model={"path": str(model.path)}, precisions=[precision],
            drafters=[], max_context=min(2048, model.max_position), max_batch=1, seed=0,
        )  # fmt: skip
        yield worker


def _score(
    worker: Worker, sequences: Sequence[Sequence[int]], precision: str
) -> list[dict[str, Any]]:
    answer = worker.call(
        "score", timeout_s=TIMEOUT_S, sequences=[list(s) for s in sequences], precision=precision,
        reference=None,
    )  # fmt: skip
    columns: list[dict[str, Any]] = answer["sequences"]
    return columns


def _forward(worker: Worker, precision: str) -> dict[str, Any]:
    return worker.call(
        "forward", timeout_s=TIMEOUT_S, model="target", precision=precision, tokens=list(ROWS),
        mask="chain", context=128, batch=1, repeats=30,
    )  # fmt: skip


def row(record: dict[str, Any], reference: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """A line of the table: intervals over problems (harness/stats.py, `ratio_intervals`).

    record: a model at a precision; reference: the same model at w4a16; first: the first model at
    w4a16, which the perplexity ratio is to. `by_problem` holds what the figures are made of.
    """
    mine, target, base = (entry["texts"] for entry in (record, reference, first))
    agree = [
        sum(a == b for a, b in zip(one["top1"], other["top1"], strict=True))
        for one, other in zip(mine, target, strict=True)
    ]
    answered = [len(entry["top1"]) for entry in mine]
    rng = np.random.default_rng(0)
    (rate,) = ratio_intervals(_column(agree), _column(answered), LEVEL, DRAWS, rng)
    solved = [place for place, entry in enumerate(mine) if entry["positions"]]
    positions = np.array([[float(mine[place]["positions"])] * 2 for place in solved])
    nll = [[mine[place]["nll_sum"], base[place]["nll_sum"]] for place in solved]
    logs = np.array([[ours, ours - theirs] for ours, theirs in nll])
    perplexity, ratio = ratio_intervals(logs, positions, LEVEL, DRAWS, rng)
    times = (record["forward"] or {}).get("times")
    return {
        "weights": record["label"],
        "precision": record["precision"],
        "recipe": (record["model"].get("source") or {}).get("recipe"),
        "problems": len(mine),
        "positions": sum(answered),
        "agreement": rate.clipped(0.0, 1.0).to_json(),
        "perplexity": perplexity.exp().to_json(),
        "perplexity_ratio": ratio.exp().to_json(),
        "forward_ms": {
            str(n): median_interval([1e3 * second for second in times[str(n)]], LEVEL) for n in ROWS
        }
        if times
        else None,
        "by_problem": {
            "problem": [entry["problem"] for entry in mine],
            "agree": agree,
            "positions": answered,
            "nll_sum": [entry["nll_sum"] for entry in mine],
            "solution_positions": [entry["positions"] for entry in mine],
        },
    }


def _column(values: Sequence[float]) -> FloatArray:
    return np.array(values, float).reshape(-1, 1)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table as docs/recipes.md shows it."""
    lines = [
        "| weights | precision | agreement | perplexity | ratio | 1 row, ms | 4 rows, ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in rows:
        rate, ppl, ratio = (entry[k] for k in ("agreement", "perplexity", "perplexity_ratio"))
        times = entry["forward_ms"] or {}
        ms = [f"{times[str(n)]['mean']:.2f}" if times else "–" for n in ROWS]
        lines.append(
            f"| {entry['weights']} | {entry['precision']} | {rate['mean']:.2%} "
            f"({rate['ci_low']:.2%} to {rate['ci_high']:.2%}) | {ppl['mean']:.3f} | "
            f"{ratio['mean']:.3f} ({ratio['ci_low']:.3f} to {ratio['ci_high']:.3f}) | "
            f"{ms[0]} | {ms[1]} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recipes", description=__doc__.splitlines()[0]
    )
    parser.add_argument("results", type=Path, help="folder of a finished agreement run")
    parser.add_argument(
        "--model", action="append", required=True, metavar="LABEL=PATH",
        help="a packed model and its name in the table; perplexity is set against the first",
    )  # fmt: skip
    parser.add_argument("--precision", nargs="+", default=["w4a4", "w4a8"])
    parser.add_argument("--limit", type=int, default=200, help="problems; default: %(default)s")
    parser.add_argument(
        "--solutions", type=int, default=50, help="of them, those that perplexity is taken over; "
        "default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--data-root", type=Path, help="folder of gsm8k_test.jsonl; as in the run")
    parser.add_argument("--out", type=Path, default=Path("results/recipes"))
    parser.add_argument("--speed", action="store_true", help="time forwards as well")
    given = parser.parse_args(arguments)
    try:
        rows = _run(given)
    except (ConfigError, WorkerFailure) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    write_json(given.out / "recipes.json", {"schema_version": 1, "rows": rows})
    print(markdown(rows))
    return 0


def _run(given: argparse.Namespace) -> list[dict[str, Any]]:
    models = {}
    for text in given.model:
        label, _, path = text.partition("=")
        if not label or not path or os.sep in label:
            raise ConfigError(f"--model {text}: write LABEL=PATH, for example shipped=a.sqm.")
        models[label] = model_file.read(Path(path))
    texts = read_texts(given.results, given.limit, given.solutions, given.data_root)
    study = Study(given.out, texts, given.speed)
    precisions = [REFERENCE, *(p for p in given.precision if p != REFERENCE)]
    rows = []
    first: dict[str, Any] = {}
    for label, model in models.items():
        reference = study.record(label, model, REFERENCE)
        first = first or reference
        rows += [
            row(study.record(label, model, precision), reference, first) for precision in precisions
        ]
    return rows


if __name__ == "__main__":
    sys.exit(main())

"""A loaded worker, and the requests that the suite sends it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.client import Worker, WorkerError

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Served:
    """A worker with `hello`, the `load` request and its answer."""

    worker: Worker
    hello: dict[str, Any]
    request: dict[str, Any]
    answer: dict[str, Any]

    @staticmethod
    def load(worker: Worker, model: Path, max_context: int, max_batch: int) -> Served:
        """Greet the worker and load `model` in all the precisions that it serves for this file."""
        hello = worker.call("hello", timeout_s=TIMEOUT_S)
        capabilities = hello["capabilities"]
        request: dict[str, Any] = {
            "model": {"path": str(model)},
            "precisions": [],
            "drafters": [],
            "max_context": max_context,
            "max_batch": min(max_batch, capabilities["max_batch"]),
            "seed": 0,
        }
        for precision in capabilities["precisions"]:
            try:
                worker.call("load", timeout_s=TIMEOUT_S, **{**request, "precisions": [precision]})
            except WorkerError as error:
                # A file of 4-bit weights, say, has no 8-bit ones.
                if error.type != "unsupported":
                    raise
            else:
                request["precisions"].append(precision)
        return Served(worker, hello, request, worker.call("load", timeout_s=TIMEOUT_S, **request))

    def call(self, call: str, **fields: Any) -> dict[str, Any]:
        """Send a request with a time limit."""
        return self.worker.call(call, timeout_s=TIMEOUT_S, **fields)

    def serves(self, kind: str, name: str) -> bool:
        """True where `capabilities[kind]` lists `name`."""
        return name in self.hello["capabilities"].get(kind, ())

    @property
    def precisions(self) -> list[str]:
        """The loaded precisions."""
        return list(self.request["precisions"])

    @property
    def max_batch(self) -> int:
        """The loaded number of slots."""
        return int(self.request["max_batch"])

    def prompts(self, count: int, seed: int = 0) -> list[list[int]]:
        """Prompts of 1 to 20 token ids; the second half of each repeats, for n-gram drafters."""
        draw = random.Random(seed)
        vocabulary = self.answer["model"]["vocab_size"]
        halves = [
            [draw.randrange(vocabulary) for _ in range(draw.randint(1, 10))] for _ in range(count)
        ]
        return [half + half for half in halves]

    def run(self, **fields: Any) -> dict[str, Any]:
        """A `run` with plain decoding at the first precision unless `fields` say otherwise."""
        request = {
            "method": plain(self.precisions[0]),
            "prompts": self.prompts(3),
            "arrivals": None,
            "batch_size": 1,
            "max_new_tokens": 12,
            "stop_ids": [],
            "sampling": None,
            "share_prefill": False,
            "trace": "none",
        }
        return self.call("run", **{**request, **fields})

    def speculative_methods(self, precision: str) -> list[dict[str, Any]]:
        """Methods of every drafter without own weights and every shape that the worker serves."""
        drafters: list[dict[str, Any]] = []
        if self.serves("drafters", "self"):
            drafters += [{"kind": "self", "precision": draft} for draft in self.precisions]
        if self.serves("drafters", "ngram"):
            drafters.append({"kind": "ngram", "max_ngram": 3, "min_ngram": 1})
        shapes: list[dict[str, Any]] = []
        if self.serves("shapes", "chain"):
            shapes += [{"kind": "chain", "gamma": gamma} for gamma in (1, 3, 5)]
        if self.serves("shapes", "tree"):
            shapes.append({"kind": "tree", "depth": 3, "top_k": 2, "nodes": 8})
        return [
            {**plain(precision), "drafter": drafter, "shape": shape}
            for drafter in drafters
            for shape in shapes
            if not (drafter["kind"] == "ngram" and shape["kind"] == "tree")
        ]


def plain(precision: str) -> dict[str, Any]:
    """Decoding without a drafter."""
    return {
        "precision": precision,
        "kv_precision": "kv16",
        "drafter": {"kind": "none"},
        "shape": {"kind": "none"},
        "acceptance": {"kind": "greedy"},
    }


def tokens(answer: dict[str, Any]) -> list[list[int]]:
    """The output tokens of each request."""
    return [request["tokens"] for request in answer["requests"]]

"""A worker that decodes nothing: it speaks the protocol and invents tokens and times (decoding.py).

Settings make it drift, crash, refuse or lie:

    python -m tests.fakes.worker '{"crash": ["w4a4"], "nap_s": 0.01}'
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.fakes.decoding import DRAFTER_STEP_S, VOCABULARY, Decoding
from tests.fakes.speeds import BYTES, STEP_S, forward_s


@dataclass
class Settings:
    """What the fake does. Methods are named as in `label`, e.g. `fp16` or `w4a16+self-w4a4`."""

    build: str = "fake-1"
    seed: int = 0
    precisions: list[str] = field(default_factory=lambda: list(STEP_S))
    noise: float = 0.01  # standard deviation of a trial's slowness, log scale
    heavy_tail: float = 0.0  # chance that a trial is three times slower
    drift: float = 0.0  # slowness gained with every trial, log scale
    nap_s: float = 0.0  # real seconds that each run takes
    crash: list[str] = field(default_factory=list)  # methods that die of SIGSEGV
    refuse: list[str] = field(default_factory=list)  # methods answered with an error
    lossy: list[str] = field(default_factory=list)  # methods whose third token is wrong
    hang: list[str] = field(default_factory=list)  # methods that never answer
    most_memory: int = 0  # largest max_batch x max_context, 0 for any
    too_large: list[str] = field(default_factory=list)  # precisions that memory does not hold
    log: str = ""  # file that gets a line for every request


class RefusalError(Exception):
    """Becomes an error answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def label(method: dict[str, Any]) -> str:
    """Readable name of a method, without its shape."""
    drafter = method["drafter"]
    if drafter["kind"] == "none":
        return str(method["precision"])
    name = "-".join([drafter["kind"], *([drafter["precision"]] if "precision" in drafter else [])])
    return f"{method['precision']}+{name}"


def named_drafters(drafter: dict[str, Any] | None) -> list[str]:
    """Ids of the drafter and of those inside it."""
    if not drafter:
        return []
    own = [drafter["id"]] if "id" in drafter else []
    return own + named_drafters(drafter.get("inner"))


class FakeWorker:
    """Answers requests one by one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.trials = 0
        self.held: set[tuple[str, str]] = set()
        self.loaded: dict[str, Any] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request, without its id."""
        answer: dict[str, Any] = getattr(self, f"on_{request['call']}")(request)
        return answer

    def on_hello(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocol": 1, "backend": "native", "version": "0", "build": self.settings.build,
            "device": {"kind": "cpu", "name": "fake-cpu", "isa": "none", "threads": 1},
            "capabilities": {
                "calls": ["hello", "load", "run", "forward", "score", "close"],
                "precisions": self.settings.precisions,
                "drafters": ["none", "self", "model", "head", "ngram", "cascade"],
                "shapes": ["none", "chain", "tree", "auto"],
                "acceptance": ["greedy", "sampling", "replay"], "max_batch": 64,
                "trace": ["none", "rounds"],
            },
        }  # fmt: skip

    def on_load(self, request: dict[str, Any]) -> dict[str, Any]:
        most = self.settings.most_memory
        if most and request["max_batch"] * request["max_context"] > most:
            raise RefusalError("out_of_memory", f"a batch of {request['max_batch']} does not fit")
        for precision in self.settings.too_large:
            if precision in request["precisions"]:
                raise RefusalError("out_of_memory", f"the weights of {precision} do not fit")
        self.loaded = request
        self.held.clear()
        return {
            "memory": {"weight_bytes": {"affine4": 66_000_000}, "kv_bytes": 1, "peak_bytes": 2},
            "proof": {
                p: {"kernels": [f"fake_{p}"], "bytes_per_token": BYTES[p]}
                for p in request["precisions"]
            },
            "compute_dtype": dict.fromkeys(request["precisions"], "f32"),
            "model": {"name": "fake", "vocab_size": VOCABULARY, "max_position": 512,
                      "content_hash": "fake"},
        }  # fmt: skip

    def on_run(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.loaded is None:
            raise RefusalError("bad_request", "load first")
        name = label(request["method"])
        ids = {drafter["id"] for drafter in self.loaded["drafters"]}
        if not set(named_drafters(request["method"]["drafter"])) <= ids:
            raise RefusalError("bad_request", f"a drafter of {name} was not loaded")
        if name in self.settings.crash:
            print("the fake worker is about to die", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if name in self.settings.hang:
            time.sleep(3600)
        if name in self.settings.refuse:
            raise RefusalError("device", f"the fake worker refuses {name}")
        if (request.get("prefill_cache") or {}).get("clear"):
            self.held.clear()
        time.sleep(self.settings.nap_s)
        self.trials += 1
        rng = random.Random(f"{self.settings.seed}/{self.trials}/{name}")
        slow = 1.0 + self.settings.drift * self.trials
        slow *= 2.718281828 ** rng.gauss(0, self.settings.noise)
        if rng.random() < self.settings.heavy_tail:
            slow *= 3.0
        return Decoding(request, rng, slow, self.held, name in self.settings.lossy).answer()

    def on_forward(self, request: dict[str, Any]) -> dict[str, Any]:
        precision = request["precision"]
        own = request["model"] != "target"
        scale = DRAFTER_STEP_S / STEP_S[precision] if own else 1.0
        times = {
            str(n): [scale * forward_s(precision, n)] * request["repeats"]
            for n in request["tokens"]
        }
        return {"times": times, "bandwidth_bytes_s": 50e9, "bytes_per_token": BYTES[precision]}

    def on_score(self, request: dict[str, Any]) -> dict[str, Any]:
        share = {"w4a4": 4, "w4a8": 50}.get(request["precision"], 1_000_000)
        columns = []
        for sequence in request["sequences"]:
            count = len(sequence) - 1
            reference = [token % VOCABULARY for token in sequence[1:]]
            columns.append({
                "top1": [t + 1 if i % share == share - 1 else t for i, t in enumerate(reference)],
                "top1_logprob": [-0.5] * count,
                "logprob": [-1.0 - 1.0 / share] * count,
                "ref_top1": reference, "ref_logprob": [-1.0] * count,
                "margin": [0.25] * count, "kl": [0.1 / share] * count,
            })  # fmt: skip
        return {"sequences": columns}

    def on_close(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"closed": True}


def main() -> None:
    """Serve stdin until it ends."""
    given = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    known = {entry.name for entry in fields(Settings)}
    assert set(given) <= known, f"unknown settings {set(given) - known}"
    serve(FakeWorker(Settings(**given)))


def serve(worker: FakeWorker) -> None:
    """Answer the lines of stdin until it ends or `close` comes."""
    for line in sys.stdin:
        request = json.loads(line)
        if worker.settings.log:
            with Path(worker.settings.log).open("a", encoding="utf-8") as log:
                kept = ("call", "method", "drafters", "sampling", "model", "mask", "tokens")
                entry = {"pid": os.getpid(), **{k: request.get(k) for k in kept}}
                log.write(json.dumps(entry | {"cache": request.get("prefill_cache")}) + "\n")
        try:
            answer = worker.answer(request)
        except RefusalError as refusal:
            answer = {"error": {"type": refusal.kind, "message": str(refusal)}}
        print(json.dumps({"id": request["id"], **answer}), flush=True)
        if request["call"] == "close":
            return


if __name__ == "__main__":
    main()

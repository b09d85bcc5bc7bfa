"""A worker that decodes nothing: it speaks the protocol and invents tokens and times.

Tokens are a function of prompt and target precision alone, so speculation is lossless; times come
from a seeded simulation, so two runs with equal settings give equal figures. Settings make it
drift, crash, refuse or lie:

    python -m tests.fakes.worker '{"crash": ["w4a4"], "nap_s": 0.01}'
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

STEP_S = {"fp16": 0.0100, "w4a16": 0.0040, "w4a8": 0.0032, "w4a4": 0.0032}
ROW_SHARE = {"fp16": 0.06, "w4a16": 0.18, "w4a8": 0.06, "w4a4": 0.06}
BYTES = {"fp16": 269_000_000, "w4a16": 96_000_000, "w4a8": 96_000_000, "w4a4": 96_000_000}
ACCEPTANCE = {"w4a8": 0.95, "w4a4": 0.84, "ngram": 0.45, "model": 0.62, "head": 0.68}
DRAFTER_STEP_S = 0.0006  # one forward of a drafter with weights of its own
NGRAM_SILENCE = 0.3  # share of rounds in which prompt lookup finds nothing
VOCABULARY = 256


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
        return Decoding(self, request, rng, slow).answer()

    def on_forward(self, request: dict[str, Any]) -> dict[str, Any]:
        precision = request["precision"]
        step = STEP_S[precision] if request["model"] == "target" else DRAFTER_STEP_S
        times = {
            str(n): [step * (1 + ROW_SHARE[precision] * (n - 1))] * request["repeats"]
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


class Decoding:
    """One `run`: slots refilled from the queue, rounds of draft and verify."""

    def __init__(
        self, worker: FakeWorker, request: dict[str, Any], rng: random.Random, slow: float
    ) -> None:
        self.worker, self.request, self.rng, self.slow = worker, request, rng, slow
        self.method = request["method"]
        shape = self.method["shape"]
        self.shape = shape["candidates"][0] if shape["kind"] == "auto" else shape
        self.now = 0.0
        self.results: dict[int, dict[str, Any]] = {}
        self.rounds: dict[str, list[Any]] = {
            k: [] for k in ("start_s", "draft_s", "verify_s", "other_s", "rows", "sequences")
        }
        self.sequence_rounds: dict[str, list[int]] = {
            k: [] for k in ("request", "round", "drafted", "reached", "accepted", "committed")
        }
        self.levels: dict[str, list[int]] = {
            k: [] for k in ("request", "drafted", "reached", "accepted", "committed")
        }

    def answer(self) -> dict[str, Any]:
        limits = self.request["max_new_tokens"]
        waiting = list(range(len(self.request["prompts"])))
        if isinstance(limits, int):
            limits = [limits] * len(waiting)
        active: list[int] = []
        while waiting or active:
            while waiting and len(active) < self.request["batch_size"]:
                index = waiting.pop(0)
                self._prefill(index, limits[index])
                active.append(index)
            active = [i for i in active if self.results[i]["left"]]
            if active:
                self._round(active)
        requests = [self.results[index] for index in range(len(self.results))]
        for result in requests:
            del result["left"]
        seconds = sum(sum(self.rounds[key]) for key in ("draft_s", "verify_s", "other_s"))
        answer: dict[str, Any] = {
            "requests": requests, "rounds": self.rounds, "sequence_rounds": self.sequence_rounds,
            "wall_s": self.now, "decode_s": seconds, "memory": {"peak_bytes": 100},
        }  # fmt: skip
        if self.method["drafter"]["kind"] == "cascade":
            answer["levels"] = self.levels
        if self.method["shape"]["kind"] == "auto":
            switches = [{"round": 3, "from": 0, "to": -1, "predicted_speedup": 0.98}]
            answer["shape_choice"] = {
                "predicted_speedup": 1.25, "measured_speedup": 1.2, "switches": switches,
            }  # fmt: skip
        return answer

    def _prefill(self, index: int, limit: int) -> None:
        prompt = self.request["prompts"][index]
        key = (self.method["precision"], json.dumps(prompt))
        shared = bool(self.request.get("share_prefill")) and key in self.worker.held
        if self.request.get("share_prefill"):
            self.worker.held.add(key)
        prefill = 0.0006 * len(prompt) * self.slow
        queue = self.now
        self.now += 0.0001 if shared else prefill
        tokens = self._tokens(prompt, limit)
        self.results[index] = {
            "prompt_tokens": len(prompt), "output_tokens": limit, "tokens": tokens,
            "queue_s": queue, "prefill_s": prefill, "ttft_shared": shared,
            "ttft_s": queue + prefill, "round_end_s": [self.now], "round_tokens": [1],
            "finish": "length", "left": limit - 1,
        }  # fmt: skip

    def _tokens(self, prompt: list[int], limit: int) -> list[int]:
        seed = hashlib.sha256(f"{self.method['precision']}/{prompt}".encode()).hexdigest()
        rng = random.Random(seed)
        tokens = [rng.randrange(VOCABULARY) for _ in range(limit)]
        if label(self.method) in self.worker.settings.lossy and limit > 2:
            tokens[2] = (tokens[2] + 1) % VOCABULARY
        return tokens

    def _round(self, active: list[int]) -> None:
        number = len(self.rounds["start_s"])
        drafts = [self._draft(index) for index in active]
        rows = sum(drafted + 1 for drafted, _, _ in drafts)
        precision = self.method["precision"]
        verify = STEP_S[precision] * (1 + ROW_SHARE[precision] * (rows - 1)) * self.slow
        draft = max(seconds for *_, seconds in drafts) * self.slow
        for key, value in (
            ("start_s", self.now), ("draft_s", draft), ("verify_s", verify), ("other_s", 0.00003),
            ("rows", rows), ("sequences", len(active)),
        ):  # fmt: skip
            self.rounds[key].append(value)
        self.now += draft + verify + 0.00003
        for index, (drafted, path, _) in zip(active, drafts, strict=True):
            accepted = self._accepted(path, self._chance(self.method["drafter"]), "accepted")
            result = self.results[index]
            committed = min(accepted + 1, result["left"])
            result["left"] -= committed
            result["round_end_s"].append(self.now)
            result["round_tokens"].append(committed)
            for key, count in (
                ("request", index), ("round", number), ("drafted", drafted),
                ("reached", min(path, accepted + 1)), ("accepted", min(accepted, committed)),
                ("committed", committed),
            ):  # fmt: skip
                self.sequence_rounds[key].append(count)

    def _draft(self, index: int) -> tuple[int, int, float]:
        """(tokens drafted, longest path, seconds) of a sequence's round."""
        drafter = self.method["drafter"]
        if drafter["kind"] == "cascade":
            return self._cascade(index, drafter)
        steps = self.shape.get("gamma", self.shape.get("depth", 0))
        if drafter["kind"] == "ngram" and self.rng.random() < NGRAM_SILENCE:
            return 0, 0, 0.00002
        return self.shape.get("nodes", steps), steps, steps * self._step(drafter)

    def _cascade(self, index: int, drafter: dict[str, Any]) -> tuple[int, int, float]:
        """Rounds of the model in the middle until `gamma` tokens are pending."""
        shape = drafter["inner_shape"]
        steps = shape.get("gamma", shape.get("depth", 0))
        pending, seconds = 0, 0.0
        while pending < self.shape["gamma"]:
            accepted = self._accepted(steps, self._chance(drafter["inner"]), "inner")
            pending += accepted + 1
            seconds += steps * self._step(drafter["inner"]) + DRAFTER_STEP_S
            for key, count in (
                ("request", index), ("drafted", shape.get("nodes", steps)),
                ("reached", min(steps, accepted + 1)), ("accepted", accepted),
                ("committed", accepted + 1),
            ):  # fmt: skip
                self.levels[key].append(count)
        return pending, pending, seconds

    def _step(self, drafter: dict[str, Any]) -> float:
        if drafter["kind"] == "self":
            return STEP_S[drafter["precision"]]
        return 0.00002 if drafter["kind"] == "ngram" else DRAFTER_STEP_S

    def _chance(self, drafter: dict[str, Any]) -> float:
        kind = drafter["kind"]
        if kind == "cascade":
            return ACCEPTANCE["model"]
        key = drafter.get("precision", kind) if kind == "self" else kind
        return ACCEPTANCE.get(key, 0.0)

    def _accepted(self, path: int, chance: float, level: str) -> int:
        rule = self.method["acceptance"]
        if rule["kind"] == "replay":
            shares = rule["profile"][level]
            return min(path, self.rng.choices(range(len(shares)), shares)[0])
        accepted = 0
        while accepted < path and self.rng.random() < chance:
            accepted += 1
        return accepted


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

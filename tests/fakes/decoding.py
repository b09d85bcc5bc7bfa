"""Invented tokens and times of a `run`.

Tokens are a function of prompt and target precision alone, so speculation is lossless; times come
from a seeded simulation, so two runs with equal settings give equal figures.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from tests.fakes.speeds import STEP_S, forward_s

ACCEPTANCE = {"w4a8": 0.95, "w4a4": 0.84, "ngram": 0.45, "model": 0.62, "head": 0.68}
DRAFTER_STEP_S = 0.0006  # one forward of a drafter with weights of its own
NGRAM_SILENCE = 0.3  # share of rounds in which prompt lookup finds nothing
VOCABULARY = 256


class Decoding:
    """One `run`: slots refilled from the queue, rounds of draft and verify.

    `slow` is a factor of all times, `held` what prefills the worker keeps, and a `lossy` run has a
    wrong third token.
    """

    def __init__(
        self,
        request: dict[str, Any],
        rng: random.Random,
        slow: float,
        held: set[tuple[str, str]],
        lossy: bool,
    ) -> None:
        self.request, self.rng, self.slow, self.held, self.lossy = request, rng, slow, held, lossy
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
        shared = bool(self.request.get("share_prefill")) and key in self.held
        if self.request.get("share_prefill"):
            self.held.add(key)
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
        if self.lossy and limit > 2:
            tokens[2] = (tokens[2] + 1) % VOCABULARY
        return tokens

    def _round(self, active: list[int]) -> None:
        number = len(self.rounds["start_s"])
        drafts = [self._draft(index) for index in active]
        rows = sum(drafted + 1 for drafted, _, _ in drafts)
        precision = self.method["precision"]
        verify = forward_s(precision, rows) * self.slow
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

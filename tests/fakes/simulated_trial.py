"""A small simulation of the decode loop: slots refilled from the queue, rounds of draft and verify,
greedy acceptance with a chance of its own for each prompt."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from typing import Any

from tests.fakes.speeds import forward_s

ACCEPTANCE = {"self-w4a8": 0.95, "self-w4a4": 0.84, "ngram": 0.45}


@dataclass
class Sequence:
    index: int
    left: int
    chance: float


class Trial:
    """One `run` call: prefill into free slots, then rounds of the whole batch."""

    def __init__(self, rng: random.Random, cell_: dict[str, Any], slow: float, batch: int) -> None:
        self.rng, self.cell, self.slow, self.batch = rng, cell_, slow, batch
        self.now = 0.0
        self.requests: list[dict[str, Any]] = []
        self.rounds: dict[str, list[Any]] = {
            k: [] for k in ("start_s", "draft_s", "verify_s", "other_s", "rows", "sequences")
        }
        self.sequence_rounds: dict[str, list[int]] = {
            k: [] for k in ("request", "round", "drafted", "reached", "accepted", "committed")
        }
        drafter = cell_["drafter"]
        self.kind = drafter["kind"]
        self.draft_precision = drafter.get("precision", "")
        self.gamma = cell_["shape"].get("gamma", 0)

    def prefill(self, prompt: dict[str, Any], shared: bool) -> Sequence:
        """Starts a request; its first token comes from the prefill."""
        queue = self.now
        cost = 0.0006 * prompt["tokens"] * (1.0 + 0.02 * abs(self.rng.gauss(0, 1)))
        self.now += 0.0002 if shared else cost
        output = prompt["output"]
        self.requests.append({
            "id": prompt["id"], "prompt_tokens": prompt["tokens"], "output_tokens": output,
            "tokens_sha256": _output_hash(prompt, self.cell["precision"]),
            "queue_s": queue, "prefill_s": cost, "ttft_shared": shared,
            "ttft_s": queue + cost + 1e-5,
            "round_end_s": [self.now], "round_tokens": [1],
            "finish": prompt["finish"],
        })  # fmt: skip
        label = self.kind if self.kind != "self" else f"self-{self.draft_precision}"
        chance = ACCEPTANCE.get(label, 0.0)
        spread = 0.25 if self.kind == "ngram" else 0.03
        return Sequence(len(self.requests) - 1, output - 1, _clip(chance + spread * prompt["ease"]))

    def round(self, active: list[Sequence]) -> None:
        """One round: every active sequence drafts, is verified and commits at least a token."""
        number = len(self.rounds["start_s"])
        noise = self.slow * math.exp(self.rng.gauss(0, 0.01))
        drafted = [self._drafted() for _ in active]
        rows = sum(drafted) + len(active)
        deepest = max(drafted)
        draft = 0.0
        if self.kind == "self":
            draft = deepest * forward_s(self.draft_precision, len(active)) * noise
        elif self.kind == "ngram":
            draft = 2e-5 * len(active)
        verify = forward_s(self.cell["precision"], rows) * noise
        other = 3e-5 * len(active)
        for key, value in (
            ("start_s", self.now), ("draft_s", draft), ("verify_s", verify),
            ("other_s", other), ("rows", rows), ("sequences", len(active)),
        ):  # fmt: skip
            self.rounds[key].append(value)
        self.now += draft + verify + other
        for sequence, count in zip(active, drafted, strict=True):
            self._commit(sequence, number, count)

    def _drafted(self) -> int:
        if self.kind == "ngram":  # a look-up finds something in seven rounds of ten
            return self.gamma if self.rng.random() < 0.7 else 0
        return int(self.gamma)

    def _commit(self, sequence: Sequence, number: int, drafted: int) -> None:
        accepted = 0
        while accepted < drafted and self.rng.random() < sequence.chance:
            accepted += 1
        reached = min(drafted, accepted + 1)
        committed = min(accepted + 1, sequence.left)
        accepted = min(accepted, committed)  # tokens after the end are dropped
        sequence.left -= committed
        for key, value in (
            ("request", sequence.index), ("round", number), ("drafted", drafted),
            ("reached", reached), ("accepted", accepted), ("committed", committed),
        ):  # fmt: skip
            self.sequence_rounds[key].append(value)
        request = self.requests[sequence.index]
        request["round_end_s"].append(self.now)
        request["round_tokens"].append(committed)

    def run(self, prompts: list[dict[str, Any]], shared: bool) -> None:
        """Decodes all prompts with `batch` slots."""
        queue, active = list(prompts), list[Sequence]()
        while queue or active:
            while queue and len(active) < self.batch:
                active.append(self.prefill(queue.pop(0), shared))
            active = [s for s in active if s.left > 0]
            if active:
                self.round(active)
                active = [s for s in active if s.left > 0]


def _clip(value: float) -> float:
    return min(0.995, max(0.02, value))


def _output_hash(prompt: dict[str, Any], precision: str) -> str:
    return hashlib.sha256(f"{prompt['id']}/{precision}".encode()).hexdigest()

"""Greedy decoding in batch slots, for workers whose engine offers a prefill and a step.

Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from backends.protocol import RequestResult, Rounds, RunAnswer, RunRequest, SequenceRounds
from backends.worker import peak_bytes


class Stepper(Protocol):
    """A model with one KV cache for each slot."""

    def prefill(self, slot: int, prompt: Sequence[int]) -> int:
        """Replace the slot's cache by the prompt's; return the next token."""

    def step(self, slots: Sequence[int], rows: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """Append the tokens of each slot's row to its cache; return the next token after each."""

    def truncate(self, slot: int, length: int) -> None:
        """Forget what the slot's cache holds beyond its first `length` tokens."""


class Propose(Protocol):
    """A drafter that needs no forward of its own."""

    def __call__(self, tokens: Sequence[int], most: int) -> Sequence[int]:
        """At most `most` tokens that may follow `tokens` (prompt and output)."""


def decode(request: RunRequest, model: Stepper, propose: Propose | None = None) -> RunAnswer:
    """Serve a greedy `run`: free slots take the next prompts in order.

    A round is one `step` of all active slots, each with its last token and what `propose` drafts
    for it (nothing, in plain decoding). Drafted tokens are accepted while they equal the model's
    own choice; the first refused one is replaced by it.
    """
    run = RunLedger(request)
    slots: dict[int, int] = {}
    while run.waiting() or slots:
        for slot in range(request["batch_size"]):
            if slot not in slots and run.may_start(wait=not slots):
                index = run.start()
                run.first_token(index, model.prefill(slot, request["prompts"][index]))
                if not run.results[index]["finish"]:
                    slots[slot] = index
        if not slots:
            continue
        active = sorted(slots)
        started = run.now()
        drafts = [list(propose(*run.history(slots[s]))) if propose else [] for s in active]
        drafted = run.now()
        rows = [
            [run.results[slots[slot]]["tokens"][-1], *draft]
            for slot, draft in zip(active, drafts)  # noqa: B905
        ]
        chosen = model.step(active, rows)
        verified = run.now()
        for slot, draft, tokens in zip(active, drafts, chosen):  # noqa: B905
            accepted = 0
            while accepted < len(draft) and draft[accepted] == tokens[accepted]:
                accepted += 1
            if draft:
                model.truncate(slot, run.length(slots[slot]) + accepted)
            run.commit(slots[slot], tokens[: accepted + 1], drafted=len(draft), ended=verified)
        run.finish_round(started, drafted, verified, sum(map(len, rows)), len(active))
        slots = {slot: index for slot, index in slots.items() if not run.results[index]["finish"]}
    return run.answer()


class RunLedger:
    """The answer of a `run` as it grows: slots, prompts and times, whatever engine decodes."""

    def __init__(self, request: RunRequest) -> None:
        self._origin = time.monotonic()
        self._request = request
        self._next = 0
        self._started: dict[int, float] = {}
        self.results: list[RequestResult] = [
            {
                "prompt_tokens": len(prompt),
                "output_tokens": 0,
                "tokens": [],
                "queue_s": 0.0,
                "prefill_s": 0.0,
                "ttft_shared": False,
                "ttft_s": 0.0,
                "round_end_s": [],
                "round_tokens": [],
                "finish": "",
            }
            for prompt in request["prompts"]
        ]
        self._rounds: Rounds = {
            "start_s": [],
            "draft_s": [],
            "verify_s": [],
            "other_s": [],
            "rows": [],
            "sequences": [],
        }
        self._sequence_rounds: SequenceRounds = {
            "request": [],
            "round": [],
            "drafted": [],
            "reached": [],
            "accepted": [],
            "committed": [],
        }

    def now(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._origin

    def waiting(self) -> bool:
        """True while a prompt has not started."""
        return self._next < len(self.results)

    def _arrival(self, index: int) -> float:
        arrivals = self._request["arrivals"]
        return 0.0 if arrivals is None else arrivals[index]

    def may_start(self, wait: bool) -> bool:
        """True where the next prompt is there; with `wait` sleep until it is."""
        if not self.waiting():
            return False
        missing = self._arrival(self._next) - self.now()
        if missing > 0 and wait:
            time.sleep(missing)
        return missing <= 0 or wait

    def start(self) -> int:
        """Take the next prompt; its prefill begins now."""
        index = self._next
        self._next += 1
        self._started[index] = self.now()
        self.results[index]["queue_s"] = max(0.0, self._started[index] - self._arrival(index))
        return index

    def first_token(self, index: int, token: int) -> None:
        """The prompt's prefill has ended with its first token."""
        ended = self.now()
        result = self.results[index]
        result["prefill_s"] = ended - self._started.pop(index)
        result["ttft_s"] = result["queue_s"] + result["prefill_s"]
        self._commit(index, [token], ended)

    def length(self, index: int) -> int:
        """Tokens of the prompt and the output so far."""
        return len(self._request["prompts"][index]) + len(self.results[index]["tokens"])

    def history(self, index: int) -> tuple[list[int], int]:
        """The tokens so far, and how many may be drafted after them."""
        method, output = self._request["method"], self.results[index]["tokens"]
        remaining = self._request["max_new_tokens"][index] - len(output)
        most = min(method["shape"].get("gamma", 0), remaining - 1)
        return [*self._request["prompts"][index], *output], most

    def commit(self, index: int, tokens: Sequence[int], *, drafted: int, ended: float) -> None:
        """A sequence's round has ended with `tokens`: accepted drafts and the model's own last.

        What follows a stop token is dropped and counts neither as accepted nor as committed.
        """
        accepted = len(tokens) - 1
        kept = self._commit(index, tokens, ended)
        columns = self._sequence_rounds
        columns["request"].append(index)
        columns["round"].append(len(self._rounds["start_s"]))
        columns["drafted"].append(drafted)
        columns["reached"].append(min(accepted + 1, drafted))
        columns["accepted"].append(min(accepted, kept))
        columns["committed"].append(kept)

    def finish_round(
        self, started: float, drafted: float, verified: float, rows: int, sequences: int
    ) -> None:
        """A round of the whole batch has ended; its phases ended at the times given."""
        rounds = self._rounds
        rounds["start_s"].append(started)
        rounds["draft_s"].append(drafted - started)
        rounds["verify_s"].append(verified - drafted)
        rounds["other_s"].append(self.now() - verified)
        rounds["rows"].append(rows)
        rounds["sequences"].append(sequences)

    def _commit(self, index: int, tokens: Sequence[int], ended: float) -> int:
        """Add `tokens` up to the first stop token; return how many were added."""
        result = self.results[index]
        kept = 0
        for token in tokens:
            result["tokens"].append(token)
            kept += 1
            if token in self._request["stop_ids"]:
                result["finish"] = "stop"
                break
        result["output_tokens"] += kept
        result["round_end_s"].append(ended)
        result["round_tokens"].append(kept)
        if not result["finish"] and (
            result["output_tokens"] == self._request["max_new_tokens"][index]
        ):
            result["finish"] = "length"
        return kept

    def answer(self) -> RunAnswer:
        """The finished answer."""
        return {
            "requests": self.results,
            "rounds": self._rounds,
            "sequence_rounds": self._sequence_rounds,
            "wall_s": self.now(),
            "decode_s": sum(
                sum(self._rounds[phase]) for phase in ("draft_s", "verify_s", "other_s")
            ),
            "memory": {"peak_bytes": peak_bytes()},
        }

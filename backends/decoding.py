"""Plain decoding in batch slots, for workers whose engine offers a prefill and a step.

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

    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> Sequence[int]:
        """Append one token to the cache of each slot; return the next token of each."""


def decode_plain(request: RunRequest, model: Stepper) -> RunAnswer:
    """Serve a `run` without drafter: free slots take the next prompts in order.

    A round is one `step` of all active slots. Its whole duration counts as `verify_s`.
    """
    run = _Run(request)
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
        last = [run.results[slots[slot]]["tokens"][-1] for slot in active]
        started = run.now()
        tokens = model.step(active, last)
        run.finish_round(started, [slots[slot] for slot in active], tokens)
        slots = {slot: index for slot, index in slots.items() if not run.results[index]["finish"]}
    return run.answer()


class _Run:
    """The answer of a `run` as it grows."""

    def __init__(self, request: RunRequest) -> None:
        self._origin = time.monotonic()
        self._request = request
        self._next = 0
        self._prefill_started = 0.0
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
        self._prefill_started = self.now()
        self.results[index]["queue_s"] = max(0.0, self._prefill_started - self._arrival(index))
        return index

    def first_token(self, index: int, token: int) -> None:
        """The prefill begun last has ended with its first token."""
        ended = self.now()
        result = self.results[index]
        result["prefill_s"] = ended - self._prefill_started
        result["ttft_s"] = result["queue_s"] + result["prefill_s"]
        self._commit(index, token, ended)

    def finish_round(self, started: float, indices: Sequence[int], tokens: Sequence[int]) -> None:
        """A round has ended with one token for each of `indices`."""
        ended = self.now()
        rounds, columns = self._rounds, self._sequence_rounds
        for index, token in zip(indices, tokens):  # noqa: B905
            self._commit(index, token, ended)
            columns["request"].append(index)
            columns["round"].append(len(rounds["start_s"]))
            columns["drafted"].append(0)
            columns["reached"].append(0)
            columns["accepted"].append(0)
            columns["committed"].append(1)
        rounds["start_s"].append(started)
        rounds["draft_s"].append(0.0)
        rounds["verify_s"].append(ended - started)
        rounds["other_s"].append(0.0)
        rounds["rows"].append(len(indices))
        rounds["sequences"].append(len(indices))

    def _commit(self, index: int, token: int, ended: float) -> None:
        result = self.results[index]
        result["tokens"].append(token)
        result["output_tokens"] += 1
        result["round_end_s"].append(ended)
        result["round_tokens"].append(1)
        if token in self._request["stop_ids"]:
            result["finish"] = "stop"
        elif result["output_tokens"] == self._request["max_new_tokens"][index]:
            result["finish"] = "length"

    def answer(self) -> RunAnswer:
        """The finished answer."""
        return {
            "requests": self.results,
            "rounds": self._rounds,
            "sequence_rounds": self._sequence_rounds,
            "wall_s": self.now(),
            "decode_s": sum(self._rounds["verify_s"]),
            "memory": {"peak_bytes": peak_bytes()},
        }

"""The decode loop of workers written in Python, over a model that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from backends.decoding import decode
from backends.protocol import RunRequest


class Counting:
    """The next token is the last plus one, whatever came before; caches are kept for the checks."""

    def __init__(self) -> None:
        self.caches: dict[int, list[int]] = {}
        self.steps: list[int] = []

    def prefill(self, slot: int, prompt: Sequence[int]) -> int:
        self.caches[slot] = list(prompt)
        return prompt[-1] + 1

    def step(self, slots: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
        self.steps.append(len(slots))
        for slot, row in zip(slots, rows, strict=True):
            self.caches[slot] += row
        return [[token + 1 for token in row] for row in rows]

    def truncate(self, slot: int, length: int) -> None:
        del self.caches[slot][length:]


def request(prompts: list[list[int]], limits: list[int], **other: Any) -> RunRequest:
    found: Any = {
        "method": {"precision": "fp16", "shape": {"kind": "none"}, "drafter": {"kind": "none"}},
        "prompts": prompts, "arrivals": None, "batch_size": 1, "max_new_tokens": limits,
        "stop_ids": [], **other,
    }  # fmt: skip
    return found  # type: ignore[no-any-return]


def test_free_slots_take_the_next_prompt() -> None:
    model = Counting()
    answer = decode(request([[10], [20], [30]], [4, 2, 3], batch_size=2), model)
    assert [r["tokens"] for r in answer["requests"]] == [[11, 12, 13, 14], [21, 22], [31, 32, 33]]
    assert [r["finish"] for r in answer["requests"]] == ["length"] * 3
    assert model.steps == [2, 2, 2]
    assert answer["rounds"]["sequences"] == model.steps


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_drafts_are_accepted_up_to_the_first_wrong_one(right: int) -> None:
    model = Counting()
    shape = {"kind": "chain", "gamma": 3}

    def propose(tokens: Sequence[int], most: int) -> list[int]:
        good = [tokens[-1] + 1 + i for i in range(3)]
        return [token if i < right else 0 for i, token in enumerate(good)][:most]

    method = {"precision": "fp16", "shape": shape, "drafter": {"kind": "ngram"}}
    answer = decode(request([[10, 20]], [9], method=method), model, propose)
    (result,) = answer["requests"]
    assert result["tokens"] == list(range(21, 30))
    columns = answer["sequence_rounds"]
    assert columns["accepted"][0] == right
    assert columns["committed"][0] == right + 1
    assert columns["reached"][0] == min(right + 1, 3)
    assert sum(columns["committed"]) == 8
    # What a refused draft left in the cache is gone; the last token is not in it yet.
    assert model.caches[0] == [10, *range(20, 29)]


def test_what_follows_a_stop_token_is_dropped() -> None:
    shape = {"kind": "chain", "gamma": 3}
    method = {"precision": "fp16", "shape": shape, "drafter": {"kind": "ngram"}}
    answer = decode(
        request([[10]], [9], method=method, stop_ids=[13]),
        Counting(),
        lambda tokens, most: [tokens[-1] + 1 + i for i in range(3)][:most],
    )
    (result,) = answer["requests"]
    assert (result["tokens"], result["finish"]) == ([11, 12, 13], "stop")
    assert answer["sequence_rounds"]["committed"] == [2]
    assert answer["sequence_rounds"]["accepted"] == [2]

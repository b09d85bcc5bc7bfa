"""Decoding: counts add up, times rise, slots are refilled, stop tokens stop."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backends.protocol import TRACE_STATUS, read_trace
from tests.conformance.served import Served, plain, tokens

ROUNDING_S = 1e-6


def check_bookkeeping(answer: dict[str, Any], prompts: list[list[int]], batch_size: int) -> None:
    """Everything that the answer says about one run agrees with the rest of it."""
    requests, rounds, columns = answer["requests"], answer["rounds"], answer["sequence_rounds"]
    assert len(requests) == len(prompts)
    count = len(rounds["start_s"])
    assert {len(column) for column in rounds.values()} == {count}
    assert {len(column) for column in columns.values()} == {len(columns["request"])}
    committed: Counter[int] = Counter()
    for index, number in zip(columns["request"], columns["committed"], strict=True):
        committed[index] += number
    for index, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
        assert request["prompt_tokens"] == len(prompt)
        assert request["output_tokens"] == len(request["tokens"]) >= 1
        assert sum(request["round_tokens"]) == request["output_tokens"]
        assert len(request["round_tokens"]) == len(request["round_end_s"])
        assert request["round_tokens"][0] == 1
        assert 1 + committed[index] == request["output_tokens"]
        assert request["finish"] in ("stop", "length")
        assert request["queue_s"] >= 0
        assert request["prefill_s"] > 0
        assert request["ttft_s"] >= request["queue_s"] + request["prefill_s"] - ROUNDING_S
        assert request["round_end_s"] == sorted(request["round_end_s"])
        assert request["round_end_s"][-1] <= answer["wall_s"] + ROUNDING_S
    durations = [
        sum(parts)
        for parts in zip(rounds["draft_s"], rounds["verify_s"], rounds["other_s"], strict=True)
    ]
    assert all(part >= 0 for key in ("draft_s", "verify_s", "other_s") for part in rounds[key])
    assert all(duration > 0 for duration in durations)
    assert answer["decode_s"] == pytest.approx(sum(durations), rel=1e-6, abs=1e-9)
    assert answer["decode_s"] <= answer["wall_s"] + ROUNDING_S
    for index in range(1, count):
        ended = rounds["start_s"][index - 1] + durations[index - 1]
        assert rounds["start_s"][index] >= ended - ROUNDING_S
    sequences = Counter(columns["round"])
    assert [sequences[index] for index in range(count)] == rounds["sequences"]
    assert all(1 <= active <= batch_size for active in rounds["sequences"])
    assert all(
        rows >= active for rows, active in zip(rounds["rows"], rounds["sequences"], strict=True)
    )
    for drafted, reached, accepted in zip(
        columns["drafted"], columns["reached"], columns["accepted"], strict=True
    ):
        assert 0 <= accepted <= reached <= drafted
    assert answer["memory"]["peak_bytes"] > 0


def test_plain_decoding_in_every_precision(served: Served) -> None:
    prompts = served.prompts(3)
    for precision in served.precisions:
        answer = served.run(method=plain(precision), prompts=prompts)
        check_bookkeeping(answer, prompts, batch_size=1)
        assert {request["output_tokens"] for request in answer["requests"]} == {12}
        assert {request["finish"] for request in answer["requests"]} == {"length"}
        assert set(answer["sequence_rounds"]["drafted"]) == {0}
        assert set(answer["sequence_rounds"]["committed"]) == {1}
        assert tokens(served.run(method=plain(precision), prompts=prompts)) == tokens(answer)


def test_slots_are_refilled(served: Served) -> None:
    prompts = served.prompts(7, seed=1)
    limits = [1, 9, 2, 5, 1, 12, 3]
    alone = served.run(prompts=prompts, max_new_tokens=limits)
    together = served.run(prompts=prompts, max_new_tokens=limits, batch_size=served.max_batch)
    for answer, batch_size in ((alone, 1), (together, served.max_batch)):
        check_bookkeeping(answer, prompts, batch_size)
        assert [request["output_tokens"] for request in answer["requests"]] == limits
    assert max(together["rounds"]["sequences"]) == served.max_batch
    assert tokens(together) == tokens(alone)


def test_stop_tokens_end_a_request(served: Served) -> None:
    prompts = served.prompts(3, seed=2)
    free = served.run(prompts=prompts)
    stop = free["requests"][0]["tokens"][4]
    methods = [plain(served.precisions[0]), *served.speculative_methods(served.precisions[0])]
    for method in methods:
        answer = served.run(method=method, prompts=prompts, stop_ids=[stop], batch_size=1)
        check_bookkeeping(answer, prompts, 1)
        for whole, request in zip(tokens(free), answer["requests"], strict=True):
            cut = whole.index(stop) + 1 if stop in whole else len(whole)
            assert request["tokens"] == whole[:cut]
            assert request["finish"] == ("stop" if stop in whole else "length")


def test_the_first_token_can_stop(served: Served) -> None:
    prompts = served.prompts(1, seed=3)
    first = tokens(served.run(prompts=prompts))[0][0]
    answer = served.run(prompts=prompts, stop_ids=[first])
    check_bookkeeping(answer, prompts, 1)
    assert answer["requests"][0]["tokens"] == [first]
    assert answer["requests"][0]["finish"] == "stop"
    assert answer["rounds"]["start_s"] == []


def test_arrivals_are_waited_for(served: Served) -> None:
    prompts = served.prompts(3, seed=4)
    arrivals = [0.0, 0.0, 0.25]
    answer = served.run(prompts=prompts, arrivals=arrivals, batch_size=served.max_batch)
    check_bookkeeping(answer, prompts, served.max_batch)
    for request, arrival in zip(answer["requests"], arrivals, strict=True):
        assert request["round_end_s"][0] >= arrival + request["prefill_s"] - ROUNDING_S
    assert answer["wall_s"] >= 0.25
    assert tokens(answer) == tokens(served.run(prompts=prompts))


def test_shared_prefill_changes_no_token(served: Served) -> None:
    prompts = served.prompts(2, seed=5)
    expected = tokens(served.run(prompts=prompts))
    clear = {"clear": True}
    first = served.run(prompts=prompts, share_prefill=True, prefill_cache=clear)
    second = served.run(prompts=prompts, share_prefill=True)
    assert tokens(first) == tokens(second) == expected
    assert not any(request["ttft_shared"] for request in first["requests"])
    for before, after in zip(first["requests"], second["requests"], strict=True):
        # A restored prefill is reported with the time it took when it was computed.
        if after["ttft_shared"]:
            assert after["prefill_s"] == pytest.approx(before["prefill_s"], abs=ROUNDING_S)
    again = served.run(prompts=prompts, share_prefill=True, prefill_cache=clear)
    assert not any(request["ttft_shared"] for request in again["requests"])


def test_greedy_speculation_gives_the_tokens_of_plain_decoding(served: Served) -> None:
    prompts = served.prompts(5, seed=6)
    checked = 0
    for precision in served.precisions:
        expected = tokens(served.run(method=plain(precision), prompts=prompts, max_new_tokens=24))
        for method in served.speculative_methods(precision):
            for batch_size in {1, served.max_batch}:
                answer = served.run(
                    method=method, prompts=prompts, max_new_tokens=24, batch_size=batch_size
                )
                check_bookkeeping(answer, prompts, batch_size)
                assert tokens(answer) == expected, method
                check_rounds(answer, method["shape"])
                checked += 1
    if not checked:
        pytest.skip("the worker serves no drafter without weights of its own")


def check_rounds(answer: dict[str, Any], shape: dict[str, Any]) -> None:
    """Drafted and committed tokens of each round fit the shape."""
    columns = answer["sequence_rounds"]
    last = {index: position for position, index in enumerate(columns["request"])}
    limit = shape["gamma"] if shape["kind"] == "chain" else shape["nodes"]
    for position, index in enumerate(columns["request"]):
        drafted, accepted = columns["drafted"][position], columns["accepted"][position]
        committed = columns["committed"][position]
        assert drafted <= limit
        if position == last[index]:
            assert accepted <= committed <= accepted + 1
        else:
            assert committed == accepted + 1
        if shape["kind"] == "chain":
            cut = position == last[index]
            assert columns["reached"][position] >= min(drafted, accepted + (0 if cut else 1))


def test_a_draft_at_the_targets_precision_is_always_accepted(served: Served) -> None:
    if not (served.serves("drafters", "self") and served.serves("shapes", "chain")):
        pytest.skip("the worker serves no self drafter with a chain")
    for precision in served.precisions:
        drafter = {"kind": "self", "precision": precision}
        method = {**plain(precision), "drafter": drafter, "shape": {"kind": "chain", "gamma": 3}}
        columns = served.run(method=method, max_new_tokens=13)["sequence_rounds"]
        assert set(columns["committed"]) == {4}
        assert columns["accepted"] == columns["drafted"] == columns["reached"]


def test_token_traces_agree_with_the_rounds(served: Served, tmp_path: Path) -> None:
    if not served.serves("trace", "tokens"):
        pytest.skip("the worker writes no token traces")
    prompts = served.prompts(3, seed=7)
    for number, method in enumerate(served.speculative_methods(served.precisions[0])):
        path = tmp_path / f"{number}.trace"
        answer = served.run(method=method, prompts=prompts, trace="tokens", trace_path=str(path))
        rows = list(read_trace(path))
        columns = answer["sequence_rounds"]
        assert len(rows) == sum(columns["drafted"])
        accepted = [row for row in rows if TRACE_STATUS[row.status] == "accepted"]
        assert len(accepted) == sum(columns["accepted"])
        assert sum(row.reached for row in rows) == sum(columns["reached"])
        for row in rows:
            assert row.prompt_length == len(prompts[row.request])
            assert 0 <= row.target_prob <= row.target_top1_prob * (1 + 1e-5) <= 1 + 1e-4
        for row in accepted:
            assert row.token_id == row.target_top1
            assert answer["requests"][row.request]["tokens"][row.output_position] == row.token_id

"""Bad requests are answered by the right type, and leave the worker as it was."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backends.client import Worker, WorkerError
from backends.protocol import ERROR_TYPES, MAX_LINE_BYTES
from tests.conformance.conftest import MAX_CONTEXT, ROOT
from tests.conformance.served import TIMEOUT_S, Served, plain, tokens


def refused(served: Served, call: str, **fields: Any) -> str:
    """The type of the error that a request is answered with."""
    send = served.run if call == "run" else partial(served.call, call)
    with pytest.raises(WorkerError) as caught:
        send(**fields)
    assert caught.value.type in ERROR_TYPES
    assert len(caught.value.message) > 10
    return caught.value.type


BAD_RUNS: dict[str, dict[str, Any]] = {
    "no prompts": {"prompts": []},
    "an empty prompt": {"prompts": [[1], []]},
    "a token beyond the vocabulary": {"prompts": [[1, 1 << 30]]},
    "a negative token": {"prompts": [[-1]]},
    "a token that is no integer": {"prompts": [["a"]]},
    "a prompt beyond the context": {"prompts": [[1] * (MAX_CONTEXT + 1)]},
    "an output beyond the context": {"max_new_tokens": MAX_CONTEXT},
    "no output": {"max_new_tokens": 0},
    "a limit too few": {"max_new_tokens": [1]},
    "no slot": {"batch_size": 0},
    "too many slots": {"batch_size": 1 << 20},
    "unknown precision": {"method": plain("fp61")},
    "no method": {"method": None},
    "unknown drafter": {"method": {**plain("fp16"), "drafter": {"kind": "oracle"}}},
    "shape without drafter": {"method": {**plain("fp16"), "shape": {"kind": "chain", "gamma": 2}}},
    "an arrival too few": {"arrivals": [0.0]},
    "a negative arrival": {"arrivals": [0.0, 0.0, -1.0]},
    "unknown trace level": {"trace": "everything"},
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_bad_runs(served: Served, case: str) -> None:
    if "fp16" not in served.precisions and "drafter" in case:
        pytest.skip("the case is written for fp16")
    assert refused(served, "run", **BAD_RUNS[case]) in ("bad_request", "unsupported")


@pytest.mark.parametrize("gamma", [0, -1, 64, 1 << 40, 1.5, "3"])
def test_absurd_draft_lengths(served: Served, gamma: Any) -> None:
    drafter = {"kind": "ngram", "max_ngram": 3, "min_ngram": 1}
    shape = {"kind": "chain", "gamma": gamma}
    method = {**plain(served.precisions[0]), "drafter": drafter, "shape": shape}
    assert refused(served, "run", method=method) in ("bad_request", "unsupported")


def test_calls_that_do_not_exist(served: Served) -> None:
    assert refused(served, "dance") == "bad_request"


def test_bad_scores_and_forwards(served: Served) -> None:
    precision = served.precisions[0]
    for fields in (
        {"sequences": [[1]], "precision": precision},
        {"sequences": [[1, 1 << 30]], "precision": precision},
        {"sequences": [[1, 2]], "precision": "fp61"},
        {"sequences": [[1, 2]], "precision": precision, "reference": "fp61"},
        {"sequences": [[1] * (MAX_CONTEXT + 1)], "precision": precision},
    ):
        assert refused(served, "score", **fields) in ("bad_request", "unsupported")
    for fields in (
        {"tokens": [0]},
        {"tokens": []},
        {"tokens": [1], "context": MAX_CONTEXT},
        {"tokens": [1], "context": -1},
        {"tokens": [1], "batch": 0},
        {"tokens": [1], "mask": "circle"},
    ):
        request = {"precision": precision, "context": 1, "batch": 1, "repeats": 1, **fields}
        assert refused(served, "forward", **request) in ("bad_request", "unsupported")


def test_bad_models_leave_the_loaded_one(served: Served) -> None:
    before = tokens(served.run())
    assert refused(served, "load", **{**served.request, "model": {"path": "/no/such"}}) == "model"
    assert refused(served, "load", **{**served.request, "model": {}}) == "bad_request"
    assert refused(served, "load", **{**served.request, "precisions": ["fp61"]}) == "bad_request"
    assert refused(served, "load", **{**served.request, "max_context": 0}) == "bad_request"
    assert refused(served, "load", **{**served.request, "max_batch": 0}) == "bad_request"
    assert tokens(served.run()) == before


def test_damaged_models_are_refused(served: Served, tmp_path: Path) -> None:
    if served.answer["model"]["content_hash"] is None:
        pytest.skip("the worker does not read packed files")
    whole = Path(served.request["model"]["path"]).read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "cut.sqm"
        path.write_bytes(whole[:size])
        assert (
            refused(served, "load", **{**served.request, "model": {"path": str(path)}}) == "model"
        )
    path.write_bytes(b"this is no model at all, whatever its name says")
    assert refused(served, "load", **{**served.request, "model": {"path": str(path)}}) == "model"


def test_nothing_but_load_before_load(command: list[str]) -> None:
    with Worker(command, cwd=ROOT) as worker:
        for call in ("run", "score", "forward"):
            with pytest.raises(WorkerError):
                worker.call(call, timeout_s=TIMEOUT_S)
        assert worker.call("hello", timeout_s=TIMEOUT_S)["protocol"] == 1
        assert worker.close() == 0


def raw_answers(command: list[str], data: bytes) -> list[Any]:
    """What the worker answers to raw input that then ends."""
    result = subprocess.run(command, input=data, cwd=ROOT, capture_output=True, timeout=TIMEOUT_S)
    assert result.returncode == 0, result.stderr[-2000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_lines_that_are_no_requests(command: list[str]) -> None:
    bad = [b"not json", b"\xff\xfe\x00", b"[1, 2]", b'{"id": "x"}', b"[" * 5000, b'{"id": 1,']
    answers = raw_answers(command, b"\n".join([*bad, b'{"id": 7, "call": "hello"}', b""]))
    assert [answer["id"] for answer in answers] == [None] * len(bad) + [7]
    assert {answer["error"]["type"] for answer in answers[:-1]} == {"bad_request"}
    assert answers[-1]["protocol"] == 1


def test_a_line_of_100_megabytes(command: list[str]) -> None:
    long = b'{"id": 1, "call": "hello", "x": "' + b"a" * (MAX_LINE_BYTES + 1000) + b'"}\n'
    answers = raw_answers(command, long + b'{"id": 2, "call": "hello"}\n')
    assert answers[0]["error"]["type"] == "bad_request"
    assert answers[1]["id"] == 2


def test_the_end_of_stdin_ends_the_worker(command: list[str]) -> None:
    assert raw_answers(command, b"") == []
    assert len(raw_answers(command, b'{"id": 1, "call": "hello"}\n{"id": 2, "ca')) <= 2


def test_close_is_answered(command: list[str]) -> None:
    answers = raw_answers(command, b'{"id": 9, "call": "close"}\n{"id": 10, "call": "hello"}\n')
    assert answers == [{"id": 9, "closed": True}]

"""The server loop and the checks of requests that Python workers share."""

from __future__ import annotations

import ast
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.client import Worker, WorkerError
from backends.protocol import (
    ERROR_TYPES,
    MAX_LINE_BYTES,
    TRACE_STRUCT,
    RequestError,
    TraceRow,
    read_trace,
)
from backends.validation import Loaded, validate_forward, validate_load, validate_run

ROOT = Path(__file__).resolve().parents[2]
OLD_PYTHON_FILES = ("__init__", "protocol", "validation", "worker", "decoding")

ENGINE = """
import os
from backends.worker import Engine, serve
from backends.protocol import RequestError

class Fake(Engine):
    backend = "fake"
    version = "1"
    def device(self):
        print("a library speaks")
        os.write(1, b"even from C\\n")
        return {"kind": "cpu", "name": "fake", "stdin": os.read(0, 9).decode()}
    def capabilities(self):
        return {"precisions": ["fp16"], "drafters": ["none"], "shapes": ["none"],
                "acceptance": ["greedy"], "max_batch": 4, "trace": ["none"]}
    def load(self, request):
        path = request["model"].get("path")
        if path == "refuse":
            raise RequestError("model", "refuse: it is truncated.")
        if path == "memory":
            raise MemoryError
        if path == "bug":
            raise ZeroDivisionError("oops")
        if path == "nan":
            return {"model": {"vocab_size": float("nan")}}
        return {"model": {"vocab_size": 100}}
    def score(self, request):
        return {"sequences": [len(s) for s in request["sequences"]]}

serve(Fake())
"""
LOAD = {"precisions": ["fp16"], "drafters": [], "max_context": 64, "max_batch": 2, "seed": 0}


@pytest.fixture
def worker() -> Any:
    with Worker([sys.executable, "-c", ENGINE], cwd=ROOT) as started:
        yield started


def test_hello_lists_what_the_engine_implements(worker: Worker) -> None:
    hello = worker.call("hello", timeout_s=20)
    assert hello["protocol"] == 1
    assert hello["backend"] == "fake"
    assert hello["capabilities"]["calls"] == ["hello", "load", "score", "close"]


def test_what_libraries_print_and_read_stays_off_the_protocol(worker: Worker) -> None:
    assert worker.call("hello", timeout_s=20)["device"]["stdin"] == ""
    assert worker.call("hello", timeout_s=20)["protocol"] == 1
    worker.close()
    assert worker.stderr_tail.count("a library speaks") == 2
    assert worker.stderr_tail.count("even from C") == 2


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("refuse", "model", "it is truncated"),
        ("memory", "out_of_memory", "memory is exhausted"),
        ("bug", "internal", "ZeroDivisionError: oops"),
        ("nan", "internal", "NaN or infinity"),
    ],
)
def test_what_an_engine_raises_becomes_an_error(
    worker: Worker, path: str, kind: str, message: str
) -> None:
    with pytest.raises(WorkerError, match=message) as caught:
        worker.call("load", timeout_s=20, model={"path": path}, **LOAD)
    assert caught.value.type == kind
    worker.call("load", timeout_s=20, model={"path": "good"}, **LOAD)
    score = worker.call("score", timeout_s=20, sequences=[[1, 2]], precision="fp16")
    assert score == {"sequences": [2]}


def test_calls_that_cannot_be_served(worker: Worker) -> None:
    for call, kind, message in (
        ("scroe", "bad_request", "'scroe' is unknown. Did you mean 'score'?"),
        ("run", "unsupported", "'run' is not served"),
        ("score", "bad_request", "'load' a model before 'score'"),
    ):
        with pytest.raises(WorkerError) as caught:
            worker.call(call, timeout_s=20)
        assert caught.value.type == kind
        assert message in caught.value.message


def exchange(*lines: bytes) -> list[Any]:
    """What a worker answers to raw lines, until its stdin ends."""
    result = subprocess.run(
        [sys.executable, "-c", ENGINE],
        input=b"".join(lines),
        cwd=ROOT,
        capture_output=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_lines_that_are_no_requests() -> None:
    lines = (
        b"not json",
        b"\xff\xfe",
        b"[1]",
        b'{"call": "hello"}',
        b'{"id": "1", "call": "hello"}',
        b'{"id": true, "call": "hello"}',
        b'{"id": 1, "call": "hello", "x": NaN}',
        b"[" * 100_000,
    )
    answers = exchange(*(line + b"\n" for line in lines), b"\n", b'{"id": 8, "call": "hello"}')
    assert [answer["id"] for answer in answers] == [None] * len(lines) + [8]
    assert all(answer["error"]["type"] == "bad_request" for answer in answers[:-1])
    assert answers[-1]["protocol"] == 1


def test_a_line_without_measure_is_skipped() -> None:
    long = b'{"id": 1, "x": "' + b"a" * MAX_LINE_BYTES + b'"}\n'
    answers = exchange(long, b'{"id": 2, "call": "close"}\n', b'{"id": 3, "call": "hello"}\n')
    assert answers[0]["id"] is None
    assert "exceeds" in answers[0]["error"]["message"]
    assert answers[1:] == [{"id": 2, "closed": True}]


CAPABILITIES = {
    "precisions": ["fp16", "w4a16"],
    "drafters": ["none", "self", "ngram", "model"],
    "shapes": ["none", "chain", "tree"],
    "acceptance": ["greedy", "sampling"],
    "max_batch": 4,
    "trace": ["none", "tokens"],
}
LOADED = Loaded(("fp16", "w4a16"), ("tiny",), max_context=32, max_batch=4, vocab_size=100)
PLAIN = {"precision": "fp16", "drafter": {"kind": "none"}, "shape": {"kind": "none"}}
RUN: dict[str, Any] = {"method": PLAIN, "prompts": [[1, 2]], "batch_size": 1, "max_new_tokens": 4}


def with_method(**parts: Any) -> dict[str, Any]:
    return {"method": {**PLAIN, **parts}}


def test_a_run_gets_its_defaults() -> None:
    run = validate_run({**RUN, "prompts": [[1], [2, 3]]}, CAPABILITIES, LOADED)
    assert run["max_new_tokens"] == [4, 4]
    assert run["stop_ids"] == []
    assert run["method"]["acceptance"] == {"kind": "greedy"}
    drafter = {"kind": "ngram"}
    method = with_method(drafter=drafter, shape={"kind": "chain", "gamma": 2})
    checked = validate_run({**RUN, **method}, CAPABILITIES, LOADED)["method"]
    assert checked["drafter"] == {"kind": "ngram", "max_ngram": 3, "min_ngram": 1}


CHAIN = {"kind": "chain", "gamma": 3}
SELF = {"kind": "self", "precision": "w4a16"}


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"prompts": []}, "bad_request", "'prompts' is empty"),
        ({"prompts": [[1], []]}, "bad_request", r"'prompts\[1\]' is not a list of 1 or more"),
        ({"prompts": [[1, 100]]}, "bad_request", "holds 100, which is no token id below 100"),
        ({"prompts": [[1, -1]]}, "bad_request", "holds -1"),
        ({"prompts": [[1, 2.0]]}, "bad_request", "holds 2.0"),
        ({"prompts": [[True]]}, "bad_request", "holds True"),
        ({"prompts": "x"}, "bad_request", "'prompts' is not a list"),
        ({"batch_size": 0}, "bad_request", "'batch_size' is 0; it must be an integer from 1 to 4"),
        ({"batch_size": 5}, "bad_request", "'batch_size' is 5"),
        ({"max_new_tokens": 0}, "bad_request", "of prompt 0 is 0"),
        ({"max_new_tokens": [1, 2]}, "bad_request", "2 entries for 1 prompts"),
        ({"max_new_tokens": 31}, "bad_request", r"prompt 0 needs 2 \+ 31 \+ 0 tokens"),
        ({"stop_ids": ["x"]}, "bad_request", "'stop_ids' holds 'x'"),
        ({"arrivals": [-1]}, "bad_request", "'arrivals'"),
        ({"arrivals": [0, 1]}, "bad_request", "'arrivals'"),
        ({"trace": "tokens"}, "bad_request", "'trace_path'"),
        ({"trace": "rounds"}, "unsupported", "trace level 'rounds'"),
        ({"sampling": {}}, "bad_request", "'sampling' is needed for"),
        ({"method": None}, "bad_request", "'method' is not an object"),
        (with_method(precision="fp61"), "bad_request", "'fp61' is unknown. Did you mean 'fp16'"),
        (with_method(precision="w4a4"), "bad_request", "'w4a4' was not loaded"),
        (with_method(kv_precision="kv8"), "unsupported", "'kv8'"),
        (with_method(drafter=SELF), "bad_request", "a drafter needs a shape"),
        (with_method(shape=CHAIN), "bad_request", "a shape needs a drafter"),
        (with_method(drafter={"kind": "head"}, shape=CHAIN), "unsupported", "'head'"),
        (
            with_method(drafter={"kind": "model", "id": "x"}, shape=CHAIN),
            "bad_request",
            "drafter 'x' was not loaded",
        ),
        (
            with_method(drafter=SELF, shape={"kind": "chain", "gamma": 0}),
            "bad_request",
            "'gamma' is 0; it must be an integer from 1 to 63",
        ),
        (
            with_method(drafter=SELF, shape={"kind": "chain", "gamma": 64}),
            "bad_request",
            "'gamma' is 64",
        ),
        (
            {**with_method(drafter=SELF, shape=CHAIN), "max_new_tokens": 28},
            "bad_request",
            r"2 \+ 28 \+ 3 tokens",
        ),
    ],
)
def test_bad_runs_are_refused(change: dict[str, Any], kind: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        validate_run({**RUN, **change}, CAPABILITIES, LOADED)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"model": {}}, "bad_request"),
        ({"model": {"path": "x", "synthetic": {}}}, "bad_request"),
        ({"model": {"path": 3}}, "bad_request"),
        ({"precisions": []}, "bad_request"),
        ({"precisions": ["int4"]}, "bad_request"),
        ({"precisions": ["w4a4"]}, "unsupported"),
        ({"max_batch": 5}, "bad_request"),
        ({"max_context": 0}, "bad_request"),
        ({"drafters": [{"id": "x"}]}, "bad_request"),
    ],
)
def test_bad_loads_are_refused(change: dict[str, Any], kind: str) -> None:
    with pytest.raises(RequestError) as caught:
        validate_load({"model": {"path": "x"}, **LOAD, **change}, CAPABILITIES)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "change", [{"tokens": []}, {"tokens": [0]}, {"tokens": [33]}, {"context": 32}, {"mask": "x"}]
)
def test_bad_forwards_are_refused(change: dict[str, Any]) -> None:
    request = {"precision": "fp16", "tokens": [1], "context": 4, **change}
    with pytest.raises(RequestError) as caught:
        validate_forward(request, CAPABILITIES, LOADED)
    assert caught.value.kind == "bad_request"


def test_unknown_error_types_are_a_mistake() -> None:
    assert RequestError("model", "x").kind in ERROR_TYPES
    with pytest.raises(ValueError, match="unknown error type"):
        RequestError("modle", "x")


FLOAT = st.floats(width=32, allow_nan=False)
TOKEN = st.integers(-1, 2**31 - 1)
COUNT = st.integers(0, 2**32 - 1)
ROWS = st.builds(
    TraceRow,
    *(COUNT, COUNT, st.integers(0, 2**16 - 1), st.integers(0, 2), COUNT),
    *(TOKEN, TOKEN, TOKEN),
    *(FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT),
    *(COUNT, st.integers(0, 1)),
)


@given(st.lists(ROWS, max_size=5))
def test_trace_rows_come_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[TraceRow]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "rows"
    path.write_bytes(b"".join(row.pack() for row in rows))
    assert list(read_trace(path)) == rows


def test_a_trace_row_lies_as_documented(tmp_path: Path) -> None:
    assert TRACE_STRUCT.size == 64
    raw = struct.pack("<IIHHI", 1, 2, 3, 1, 4) + struct.pack("<iii", 5, 6, -1)
    raw += struct.pack("<ffffff", 0.5, 0.25, 0.125, 1.0, 2.0, 0.0) + struct.pack("<III", 7, 1, 0)
    (tmp_path / "t").write_bytes(raw)
    (row,) = read_trace(tmp_path / "t")
    assert row == TraceRow(1, 2, 3, 1, 4, 5, 6, -1, 0.5, 0.25, 0.125, 1.0, 2.0, 0.0, 7, 1)
    assert row.reached


def test_damaged_traces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(bytes(63))
    with pytest.raises(ValueError, match=r"63 bytes are no whole number of 64-byte trace rows"):
        list(read_trace(tmp_path / "t"))
    (tmp_path / "t").write_bytes(bytes(10) + b"\x09" + bytes(53))
    with pytest.raises(ValueError, match="row 0 has the unknown status 9"):
        list(read_trace(tmp_path / "t"))


@pytest.mark.parametrize("name", OLD_PYTHON_FILES)
def test_worker_side_runs_on_old_interpreters(name: str) -> None:
    source = (ROOT / "backends" / f"{name}.py").read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            top, _, rest = module.partition(".")
            known = top in sys.stdlib_module_names or (top, rest) in {
                ("backends", other) for other in OLD_PYTHON_FILES
            }
            assert known, f"{name}.py imports {module}"

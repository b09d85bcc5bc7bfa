"""The server loop that Python workers share."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.client import Worker, WorkerError
from backends.protocol import ERROR_TYPES, MAX_LINE_BYTES, RequestError

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


def test_unknown_error_types_are_a_mistake() -> None:
    assert RequestError("model", "x").kind in ERROR_TYPES
    with pytest.raises(ValueError, match="unknown error type"):
        RequestError("modle", "x")


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

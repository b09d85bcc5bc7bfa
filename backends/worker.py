"""The server loop of a worker written in Python: subclass Engine and call `serve`.

Standard library and Python 3.8 syntax only. The loop answers bad input as the protocol says
(docs/protocol.md) and keeps stdout for answers alone.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from backends.protocol import (
    CALLS,
    MAX_LINE_BYTES,
    PROTOCOL_VERSION,
    ForwardRequest,
    LoadRequest,
    RequestError,
    RunRequest,
    ScoreRequest,
)
from backends.validation import (
    Loaded,
    near,
    validate_forward,
    validate_load,
    validate_run,
    validate_score,
)


class Engine:
    """What a backend implements. Requests arrive validated, answers are the protocol's objects.

    Raise RequestError to refuse a request; the engine must then be as it was before. Every other
    exception is answered as `internal`, MemoryError as `out_of_memory`.
    """

    backend = ""
    version = ""

    def device(self) -> dict[str, Any]:
        """`{kind, name, ...}` of the device that computes."""
        raise NotImplementedError

    def capabilities(self) -> dict[str, Any]:
        """`precisions, drafters, shapes, acceptance, max_batch, trace`."""
        raise NotImplementedError

    def load(self, request: LoadRequest) -> dict[str, Any]:
        """Load the model, replacing the last; answer `memory, proof, compute_dtype, model`."""
        raise NotImplementedError

    def run(self, request: RunRequest) -> Mapping[str, Any]:
        """Decode the prompts; backends/decoding.py has the loop for plain decoding."""
        raise NotImplementedError

    def forward(self, request: ForwardRequest) -> dict[str, Any]:
        """Time forwards and answer `times, bandwidth_bytes_s, bytes_per_token`."""
        raise NotImplementedError

    def score(self, request: ScoreRequest) -> dict[str, Any]:
        """Score sequences and answer `sequences`."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the process's end does not."""


def peak_bytes() -> int:
    """The largest resident size that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_name() -> str:
    """The processor's name as Linux tells it, "unknown" where it does not."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def serve(engine: Engine) -> NoReturn:
    """Answer requests until `close` or the end of stdin, then exit with 0."""
    requests, answers = _take_standard_streams()
    session = _Session(engine)
    while True:
        line = requests.readline(MAX_LINE_BYTES + 1)
        if not line:
            break
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            _skip_line(requests)
            answer = _error(None, "bad_request", f"the line exceeds {MAX_LINE_BYTES} bytes.")
        elif not line.strip():
            continue
        else:
            answer = session.answer(line)
        _write(answers, answer)
        if session.closed:
            break
    engine.close()
    answers.flush()
    # Threads of libraries must not keep an ended worker alive.
    sys.stderr.flush()
    os._exit(0)


def _take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Keep the protocol's two streams and give libraries others.

    Whatever a library prints, even from C, goes to stderr; whatever it reads is empty.
    """
    sys.stdout.flush()
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _skip_line(stream: BinaryIO) -> None:
    while True:
        part = stream.readline(1 << 20)
        if not part or part.endswith(b"\n"):
            return


def _write(stream: BinaryIO, answer: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(answer, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_error(answer["id"], "internal", "the answer holds NaN or infinity."))
    stream.write(text.encode() + b"\n")
    stream.flush()


def _error(request_id: int | None, kind: str, message: str) -> dict[str, Any]:
    return {"id": request_id, "error": {"type": kind, "message": message}}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


class _Session:
    """Dispatches single requests and remembers what was loaded."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.loaded: Loaded | None = None
        self.closed = False

    def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to one line."""
        try:
            request = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            return _error(None, "bad_request", f"the line is no JSON: {error}.")
        if not isinstance(request, dict):
            return _error(None, "bad_request", "the line is no JSON object.")
        request_id = request.get("id")
        if not isinstance(request_id, int) or isinstance(request_id, bool):
            return _error(None, "bad_request", f"'id' is {request_id!r}; it must be an integer.")
        try:
            return {"id": request_id, **self._dispatch(request)}
        except RequestError as error:
            return _error(request_id, error.kind, error.message)
        except MemoryError as error:
            return _error(request_id, "out_of_memory", str(error) or "memory is exhausted.")
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return _error(request_id, "internal", f"{type(error).__name__}: {error}")

    def _dispatch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        call = request.get("call")
        if call not in CALLS:
            raise RequestError("bad_request", f"call {call!r} is unknown. {near(call, CALLS)}")
        served = self._calls()
        if call not in served:
            raise RequestError("unsupported", f"call {call!r} is not served by this backend.")
        capabilities = {"calls": served, **self.engine.capabilities()}
        if call == "hello":
            return {
                "protocol": PROTOCOL_VERSION,
                "backend": self.engine.backend,
                "version": self.engine.version,
                "build": None,
                "device": self.engine.device(),
                "capabilities": capabilities,
            }
        if call == "close":
            self.closed = True
            return {"closed": True}
        if call == "load":
            return self._load(validate_load(request, capabilities))
        if self.loaded is None:
            raise RequestError("bad_request", f"'load' a model before {call!r}.")
        if call == "run":
            return self.engine.run(validate_run(request, capabilities, self.loaded))
        if call == "forward":
            return self.engine.forward(validate_forward(request, capabilities, self.loaded))
        return self.engine.score(validate_score(request, self.loaded))

    def _calls(self) -> list[str]:
        """The calls that the engine implements."""
        optional = ("run", "forward", "score")
        missing = {
            name for name in optional if getattr(type(self.engine), name) is getattr(Engine, name)
        }
        return [call for call in CALLS if call not in missing]

    def _load(self, request: LoadRequest) -> Mapping[str, Any]:
        answer = self.engine.load(request)
        self.loaded = Loaded(
            precisions=tuple(request["precisions"]),
            drafter_ids=tuple(drafter["id"] for drafter in request["drafters"]),
            max_context=request["max_context"],
            max_batch=request["max_batch"],
            vocab_size=answer["model"]["vocab_size"],
        )
        return answer

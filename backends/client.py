"""The harness's side of the worker protocol: start a worker, call it, end it.

Every way in which a worker can fail becomes an error that says what happened in words. After
`WorkerError` the worker is as it was; after every other error its process is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.stderr_drain import StderrDrain

MAX_ANSWER_BYTES = 512 * 1024 * 1024
EXIT_GRACE_S = 5.0
_CHUNK = 1 << 20


class WorkerFailure(Exception):  # noqa: N818 - each subclass says what failed
    """Base of all that can go wrong with a worker."""


class WorkerNotStarted(WorkerFailure):
    """The process could not be started at all."""


class WorkerError(WorkerFailure):
    """The worker refused a request and stays usable. `type` is one of protocol.ERROR_TYPES."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class WorkerDied(WorkerFailure):
    """The process is gone. `stderr_tail` holds the last of what it wrote to stderr."""

    def __init__(self, message: str, returncode: int | None, stderr_tail: str) -> None:
        super().__init__(message)
        self.message = message
        self.returncode = returncode
        self.stderr_tail = stderr_tail


class WorkerTimedOut(WorkerDied):
    """The worker did not answer in time and was killed."""


class WorkerGarbled(WorkerDied):
    """The worker answered something outside the protocol and was killed."""


def describe_exit(returncode: int) -> str:
    """Say in words how a process ended. `returncode` is subprocess's: negative for a signal."""
    number = -returncode if returncode < 0 else returncode - 128 if 128 < returncode <= 192 else 0
    if number == 0:
        return f"exit status {returncode}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = {
        "SIGKILL": ", perhaps killed for memory",
        "SIGSEGV": ", an invalid memory access",
        "SIGILL": ", an instruction that this processor does not have",
        "SIGABRT": ", it gave up by itself",
    }.get(name, "")
    if returncode < 0:
        return f"{name}{hint}"
    return f"exit status {returncode} (a shell's word for {name}{hint})"


class Worker:
    """A running worker process with at most one request in flight.

    Not thread-safe. Use it as a context manager, or call `close` or `kill`, so that no process is
    left behind. While a call waits, the harness sleeps: it takes no time from the measurement.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        name: str = "worker",
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        log_path: str | Path | None = None,
    ) -> None:
        """Start `command`. `env` is laid over this process's environment.

        `log_path` receives the worker's stderr, up to 64 MiB. Raises WorkerNotStarted where the
        program is missing or not executable.
        """
        self.name = name
        self._next_id = 1
        self._received = bytearray()
        argv = [os.fspath(part) for part in command]
        log = None
        try:
            if log_path is not None:
                Path(log_path).parent.mkdir(parents=True, exist_ok=True)
                log = Path(log_path).open("ab")  # noqa: SIM115 - the drain closes it
            # A session of its own, so that `kill` reaches what the worker itself started and a
            # Ctrl-C at the terminal lets the harness finish its record first.
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        except OSError as error:
            if log is not None:
                log.close()
            raise WorkerNotStarted(
                f"The worker {name!r} could not be started with {' '.join(argv)!r}: {error}."
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        self._ended = False
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._stderr = StderrDrain(self._process.stderr.fileno(), log)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    @property
    def stderr_tail(self) -> str:
        """The last 16 KiB that the worker wrote to stderr."""
        return self._stderr.tail()

    def call(self, call: str, *, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send one request and return its answer without `id`.

        `fields` are the request's keys (docs/protocol.md). Raises WorkerError for an error answer,
        WorkerTimedOut after `timeout_s` seconds without one, WorkerGarbled for anything that is no
        answer, WorkerDied where the process ended, ValueError for a NaN or infinity in `fields`.
        """
        request_id = self._next_id
        self._next_id += 1
        request = {"id": request_id, "call": call, **fields}
        line = json.dumps(request, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            raw = self._exchange(line, deadline)
        except TimeoutError:
            self.kill()
            raise WorkerTimedOut(
                f"The worker {self.name!r} did not answer {call!r} within {timeout_s:g} s "
                f"and was killed.{self._stderr.last_words()}",
                self._process.returncode,
                self.stderr_tail,
            ) from None
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._died(call) from None
        except OverflowError as error:
            raise self._garbled(call, str(error)) from None
        except BaseException:
            # An interrupt in the middle leaves an answer under way that nobody waits for.
            self.kill()
            raise
        return self._parse(call, request_id, raw)

    def _exchange(self, line: bytes, deadline: float | None) -> bytes:
        """Write `line` and read one line, both at once, so that neither side blocks the other."""
        if self._ended:
            raise EOFError
        pending = memoryview(line)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._stdin, selectors.EVENT_WRITE)
            while True:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise TimeoutError
                for key, _ in selector.select(remaining):
                    if key.fd == self._stdin:
                        pending = pending[os.write(self._stdin, pending[:_CHUNK]) :]
                        if not pending:
                            selector.unregister(self._stdin)
                        continue
                    chunk = os.read(self._stdout, _CHUNK)
                    if not chunk:
                        raise EOFError
                    end = chunk.find(b"\n")
                    if end < 0:
                        self._received += chunk
                        if len(self._received) > MAX_ANSWER_BYTES:
                            raise OverflowError("an answer without an end")
                        continue
                    answer = bytes(self._received) + chunk[:end]
                    self._received = bytearray()
                    if len(chunk) > end + 1:
                        raise OverflowError("more than one line for one request")
                    return answer

    def _parse(self, call: str, request_id: int, raw: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(raw)
        except ValueError:
            raise self._garbled(call, f"{raw[:200]!r}") from None
        if not isinstance(answer, dict):
            raise self._garbled(call, f"{raw[:200]!r}")
        error = answer.get("error")
        # An error without an id answers a line that the worker could not read as a request.
        if answer.get("id") != request_id and not (error and answer.get("id") is None):
            raise self._garbled(call, f"id {answer.get('id')!r} for request {request_id}")
        if error is not None:
            if not isinstance(error, dict):
                raise self._garbled(call, f"{raw[:200]!r}")
            raise WorkerError(str(error.get("type")), str(error.get("message")))
        del answer["id"]
        return answer

    def _died(self, call: str) -> WorkerDied:
        try:
            # A process that closed its stdout and lives on cannot answer any more.
            returncode = self._process.wait(EXIT_GRACE_S)
            how = f"ended with {describe_exit(returncode)}"
        except subprocess.TimeoutExpired:
            how = "closed its stdout and was killed"
        self.kill()
        return WorkerDied(
            f"The worker {self.name!r} {how} instead of answering {call!r}."
            f"{self._stderr.last_words()}",
            self._process.returncode,
            self.stderr_tail,
        )

    def _garbled(self, call: str, what: str) -> WorkerGarbled:
        self.kill()
        return WorkerGarbled(
            f"The worker {self.name!r} answered {call!r} with something outside the protocol "
            f"({what}) and was killed.{self._stderr.last_words()}",
            self._process.returncode,
            self.stderr_tail,
        )

    def close(self, timeout_s: float = EXIT_GRACE_S) -> int:
        """Ask the worker to end, kill it after `timeout_s`, and return its exit status."""
        if self.alive:
            with contextlib.suppress(WorkerFailure):
                self.call("close", timeout_s=timeout_s)
        if self._process.stdin is not None and not self._ended:
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """End the process and all that it started at once, and give back its resources."""
        if self._ended:
            return  # its number may belong to another process by now
        self._ended = True
        # The group may outlive its leader, so it is signalled even where the leader is gone.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stderr.finish(EXIT_GRACE_S)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            self.close()
        else:
            self.kill()

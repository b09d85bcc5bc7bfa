"""The client survives everything that a worker can do, and says what it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends import client
from backends.client import (
    Worker,
    WorkerDied,
    WorkerError,
    WorkerFailure,
    WorkerGarbled,
    WorkerNotStarted,
    WorkerTimedOut,
    describe_exit,
)

FAKE = Path(__file__).resolve().parents[1] / "fakes" / "bad_worker.py"
Start = Callable[..., Worker]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a fake worker by its way of failing; none is left behind."""
    monkeypatch.setattr(client, "EXIT_GRACE_S", 1.0)
    started: list[Worker] = []

    def begin(way: str, **options: object) -> Worker:
        worker = Worker([sys.executable, FAKE, way], name=way, **options)  # type: ignore[arg-type]
        started.append(worker)
        return worker

    yield begin
    for worker in started:
        worker.kill()
        assert gone(worker.pid)


def gone(pid: int) -> bool:
    """True where no process, not even a zombie, has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_answers_environment_and_folder(start: Start, tmp_path: Path) -> None:
    worker = start("echo", env={"FAKE": "yes"}, cwd=tmp_path)
    answer = worker.call("run", timeout_s=20, prompts=[[1, 2]], text="é")
    assert answer == {
        "request": {"id": 1, "call": "run", "prompts": [[1, 2]], "text": "é"},
        "env": "yes",
        "cwd": str(tmp_path),
    }
    assert worker.call("run", timeout_s=20)["request"]["id"] == 2
    assert worker.close() == 0


def test_requests_and_answers_larger_than_any_pipe(start: Start) -> None:
    worker = start("echo")
    tokens = list(range(1_000_000))
    assert worker.call("run", timeout_s=60, tokens=tokens)["request"]["tokens"] == tokens


def test_nan_is_not_sent(start: Start) -> None:
    worker = start("echo")
    with pytest.raises(ValueError, match="JSON"):
        worker.call("run", temperature=float("nan"))
    assert worker.call("run", timeout_s=20)["request"]["call"] == "run"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("segv", "ended with SIGSEGV"),
        ("kill", "ended with SIGKILL, perhaps killed for memory"),
        ("exit", "ended with exit status 1"),
        ("half-line", "ended with exit status 3"),
        ("closes-stdout", "closed its stdout and was killed"),
    ],
)
def test_a_dead_worker_is_described(start: Start, way: str, words: str) -> None:
    worker = start(way)
    with pytest.raises(WorkerDied, match=words) as caught:
        worker.call("hello", timeout_s=20)
    assert f"worker {way!r}" in str(caught.value)
    assert "instead of answering 'hello'" in str(caught.value)
    assert gone(worker.pid)
    with pytest.raises(WorkerDied):
        worker.call("hello", timeout_s=20)


def test_last_words_are_kept(start: Start) -> None:
    with pytest.raises(WorkerDied) as caught:
        start("segv").call("hello", timeout_s=20)
    assert caught.value.stderr_tail == "about to fail\n"
    assert caught.value.returncode == -11
    with pytest.raises(WorkerDied) as caught:
        start("exit").call("hello", timeout_s=20)
    assert caught.value.stderr_tail == "no such device\n"
    assert str(caught.value).endswith(" instead of answering 'hello'. It said: no such device.")


@pytest.mark.parametrize("way", ["hang", "deaf"])
def test_a_hanging_worker_is_killed(start: Start, way: str) -> None:
    worker = start(way)
    # More than a pipe holds: a worker that never reads must not block the writing either.
    with pytest.raises(WorkerTimedOut, match=r"did not answer 'run' within 0\.3 s and was killed"):
        worker.call("run", timeout_s=0.3, tokens=[7] * 500_000)
    assert gone(worker.pid)


def test_a_flood_on_stderr_blocks_nothing(start: Start, tmp_path: Path) -> None:
    worker = start("flood", log_path=tmp_path / "logs" / "worker.log")
    assert worker.call("hello", timeout_s=20) == {"ok": True}
    worker.close()
    assert worker.stderr_tail.endswith("x\nlast words\n")
    assert len(worker.stderr_tail) <= 16 * 1024
    assert (tmp_path / "logs" / "worker.log").stat().st_size == 2_000_012


@pytest.mark.parametrize("way", ["garbage", "list", "wrong-id", "two-lines"])
def test_garbage_ends_the_worker(start: Start, way: str) -> None:
    worker = start(way)
    with pytest.raises(WorkerGarbled, match="outside the protocol"):
        worker.call("hello", timeout_s=20)
    assert gone(worker.pid)


@pytest.mark.parametrize(
    ("way", "message"), [("error", "no such thing"), ("null-id-error", "unreadable")]
)
def test_an_error_answer_leaves_the_worker_usable(start: Start, way: str, message: str) -> None:
    worker = start(way)
    for _ in range(2):
        with pytest.raises(WorkerError, match=message) as caught:
            worker.call("run", timeout_s=20)
        assert (caught.value.type, caught.value.message) == ("bad_request", message)
    assert worker.close() == 0


def test_close_ends_a_stubborn_worker(start: Start) -> None:
    worker = start("stubborn")
    assert worker.call("hello", timeout_s=20) == {"ok": True}
    assert worker.close(timeout_s=0.3) == -9
    assert gone(worker.pid)
    worker.close()
    worker.kill()


def test_children_of_a_worker_end_with_it(start: Start) -> None:
    worker = start("child")
    child = worker.call("hello", timeout_s=20)["child"]
    worker.kill()
    for _ in range(100):
        # The orphan belongs to another parent now, which reaps it in its own time.
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {child} is still there")


def test_leaving_the_block_by_an_error_kills(start: Start) -> None:
    with pytest.raises(RuntimeError), start("hang") as worker:
        raise RuntimeError
    assert gone(worker.pid)


@pytest.mark.parametrize("program", ["/no/such/program", "/etc/hostname"])
def test_a_program_that_cannot_be_started(program: str) -> None:
    with pytest.raises(WorkerNotStarted, match=f"'w' could not be started with '{program} x'"):
        Worker([program, "x"], name="w")
    assert issubclass(WorkerNotStarted, WorkerFailure)


def test_no_descriptors_are_left(start: Start) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for way in ("echo", "segv", "hang"):
        worker = start(way)
        try:
            worker.call("hello", timeout_s=0.5 if way == "hang" else 20)
        except WorkerDied:
            pass
        else:
            worker.close()
    assert count() == before


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "exit status 0"),
        (7, "exit status 7"),
        (-4, "SIGILL, an instruction that this processor does not have"),
        (137, "exit status 137 (a shell's word for SIGKILL, perhaps killed for memory)"),
        (-64, "SIGRTMAX"),
        (255, "exit status 255"),
    ],
)
def test_exits_in_words(returncode: int, words: str) -> None:
    assert describe_exit(returncode) == words


def test_worker_is_no_zombie_after_its_own_end(start: Start) -> None:
    worker = start("exit")
    with pytest.raises(WorkerDied):
        worker.call("hello", timeout_s=20)
    listed = subprocess.run(["ps", "-o", "pid=", "-p", str(worker.pid)], capture_output=True)
    assert not listed.stdout.strip()

"""A worker's stderr, read for as long as it is open."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import IO

TAIL_BYTES = 16 * 1024
LOG_BYTES = 64 * 1024 * 1024


class StderrDrain:
    """Read a worker's stderr for as long as it is open, so that a full pipe never blocks it."""

    def __init__(self, fd: int, log: IO[bytes] | None) -> None:
        # A descriptor of its own: the thread may outlive the process object.
        self._fd = os.dup(fd)
        self._log = log
        self._logged = 0
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True, name="worker-stderr")
        self._thread.start()

    def _drain(self) -> None:
        try:
            while chunk := os.read(self._fd, 65536):
                self._keep(chunk)
        finally:
            os.close(self._fd)
            if self._log is not None:
                self._log.close()

    def _keep(self, chunk: bytes) -> None:
        with self._lock:
            self._chunks.append(chunk)
            self._held += len(chunk)
            while self._held - len(self._chunks[0]) >= TAIL_BYTES:
                self._held -= len(self._chunks.popleft())
        if self._log is not None and self._logged < LOG_BYTES:
            self._log.write(chunk[: LOG_BYTES - self._logged])
            self._log.flush()
            self._logged += len(chunk)

    def tail(self) -> str:
        """The last of the text; undecodable bytes are replaced."""
        with self._lock:
            data = b"".join(self._chunks)
        return data[-TAIL_BYTES:].decode("utf-8", "replace")

    def last_words(self) -> str:
        """The last line as a sentence to append, with a space in front; "" where there is none."""
        lines = self.tail().strip().splitlines()
        if not lines:
            return ""
        stop = "" if lines[-1].endswith(".") else "."
        return f" It said: {lines[-1]}{stop}"

    def finish(self, timeout_s: float) -> None:
        """Wait until the last words of an ended process are read."""
        self._thread.join(timeout_s)

"""The scripted worker with token traces: `python -m tests.fakes.trace_worker '{...}'`.

Settings are those of tests.fakes.worker. Every third drafted token of a request is one that the
target would not choose. A request whose prompt has an odd number of tokens ends after its first
token and has no round.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from backends.protocol import TRACE_REACHED, TraceRow
from tests.fakes.decoding import VOCABULARY
from tests.fakes.worker import FakeWorker, Settings, serve

ACCEPTED, REJECTED, DISCARDED = range(3)


class TraceWorker(FakeWorker):
    """Writes a trace file where asked for one."""

    def on_hello(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().on_hello(request)
        answer["capabilities"]["trace"].append("tokens")
        return answer

    def on_run(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().on_run(request)
        for prompt, result in zip(request["prompts"], answer["requests"], strict=True):
            if len(prompt) % 2:
                result["tokens"] = result["tokens"][:1]
                result["output_tokens"] = 1
        if request["trace"] == "tokens":
            rows = list(self._rows(request, answer))
            Path(request["trace_path"]).write_bytes(b"".join(row.pack() for row in rows))
        return answer

    def _rows(self, request: dict[str, Any], answer: dict[str, Any]) -> list[TraceRow]:
        rows = []
        gamma = request["method"]["shape"]["gamma"]
        for number, (prompt, result) in enumerate(
            zip(request["prompts"], answer["requests"], strict=True)
        ):
            tokens, at, count = result["tokens"], 1, 0
            while at < len(tokens):
                refused = False
                accepted = 0
                for place in range(min(gamma, len(tokens) - at - 1)):
                    target = tokens[at + place]
                    drafted = (target + 1) % VOCABULARY if len(rows) % 3 == 2 else target
                    reached = not refused
                    same = drafted == target
                    status = DISCARDED if refused else ACCEPTED if same else REJECTED
                    accepted += status == ACCEPTED
                    refused |= not same
                    rows.append(TraceRow(
                        number, count, place, status, at + place, drafted, drafted, target,
                        0.9, 0.9 if same else 0.05, 0.9, 0.85, 1.5, 0.01, len(prompt),
                        TRACE_REACHED if reached else 0,
                    ))  # fmt: skip
                at += accepted + 1
                count += 1
        return rows


if __name__ == "__main__":
    serve(TraceWorker(Settings(**json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}"))))

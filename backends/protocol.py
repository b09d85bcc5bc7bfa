"""Messages of the worker protocol, version 1 (docs/protocol.md).

Standard library and Python 3.8 syntax only: a worker may run in an interpreter much older than
the harness's. Seconds are floats of one monotonic clock, counted from the start of a call; sizes
are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 64 * 1024 * 1024
ERROR_TYPES = ("bad_request", "unsupported", "model", "out_of_memory", "device", "internal")
CALLS = ("hello", "load", "run", "forward", "score", "close")
TRACE_LEVELS = ("none", "rounds", "tokens")
MAX_DRAFTED = 63
"""Tokens that one round may draft: a round then has at most 64 rows."""


class RequestError(Exception):
    """A request that a worker refuses; the worker stays as it was.

    `kind` is one of ERROR_TYPES, `message` says what is wrong and what would be right.
    """

    def __init__(self, kind: str, message: str) -> None:
        if kind not in ERROR_TYPES:
            raise ValueError(
                "unknown error type {!r}; known: {}".format(kind, ", ".join(ERROR_TYPES))
            )
        super().__init__(message)
        self.kind = kind
        self.message = message


class Drafter(TypedDict, total=False):
    """What proposes tokens. `kind` decides which of the other keys are there."""

    kind: str
    id: str
    precision: str
    max_ngram: int
    min_ngram: int
    inner: Drafter | None
    inner_shape: Shape


class Shape(TypedDict, total=False):
    """`none`, `chain` with `gamma`, `tree` with `depth`, `top_k` and `nodes`, or `auto`."""

    kind: str
    gamma: int
    depth: int
    top_k: int
    nodes: int
    candidates: list[Shape]


class Acceptance(TypedDict, total=False):
    """`greedy`, `sampling` or `replay`."""

    kind: str


class Method(TypedDict):
    """One way to decode: the precision of the target, a drafter, a shape, an acceptance rule."""

    precision: str
    kv_precision: str
    drafter: Drafter
    shape: Shape
    acceptance: Acceptance


class Sampling(TypedDict):
    """Temperature above 0, nucleus share in (0, 1], seed of the generator."""

    temperature: float
    top_p: float
    seed: int


class DrafterFile(TypedDict, total=False):
    """A drafter with weights of its own, named by `id` in methods: `path` or `synthetic` is there.

    `target` is there for a draft head alone: the model whose hidden states it reads.
    """

    id: str
    path: str
    synthetic: dict[str, Any]
    precisions: list[str]
    target: str


class LoadRequest(TypedDict):
    """`model` is `{"path": ...}` or `{"synthetic": {...}}`; `max_context` counts tokens."""

    model: dict[str, Any]
    precisions: list[str]
    drafters: list[DrafterFile]
    max_context: int
    max_batch: int
    seed: int


class RunRequest(TypedDict):
    """Prompts to decode; `max_new_tokens` has one entry a prompt after validation."""

    method: Method
    prompts: list[list[int]]
    arrivals: list[float] | None
    batch_size: int
    max_new_tokens: list[int]
    stop_ids: list[int]
    sampling: Sampling | None
    share_prefill: bool
    prefill_cache: dict[str, Any] | None
    trace: str
    trace_path: str | None


class ForwardRequest(TypedDict):
    """Time forwards of `tokens` rows a sequence after `context` cached tokens."""

    model: str
    precision: str
    tokens: list[int]
    mask: str
    context: int
    batch: int
    repeats: int


class ScoreRequest(TypedDict):
    """Score given sequences at `precision`, compared with `reference` where it is not null."""

    sequences: list[list[int]]
    precision: str
    reference: str | None


class RequestResult(TypedDict):
    """What became of one prompt of a `run`."""

    prompt_tokens: int
    output_tokens: int
    tokens: list[int]
    queue_s: float
    prefill_s: float
    ttft_shared: bool
    ttft_s: float
    round_end_s: list[float]
    round_tokens: list[int]
    finish: str


class Rounds(TypedDict):
    """Columns, one entry a round of the whole batch."""

    start_s: list[float]
    draft_s: list[float]
    verify_s: list[float]
    other_s: list[float]
    rows: list[int]
    sequences: list[int]


class SequenceRounds(TypedDict):
    """Columns, one entry a sequence and round."""

    request: list[int]
    round: list[int]
    drafted: list[int]
    reached: list[int]
    accepted: list[int]
    committed: list[int]


class RunAnswer(TypedDict):
    """The answer to `run`; `levels` and `shape_choice` (docs/protocol.md) are not for all."""

    requests: list[RequestResult]
    rounds: Rounds
    sequence_rounds: SequenceRounds
    wall_s: float
    decode_s: float
    memory: dict[str, int]


class ScoredSequence(TypedDict, total=False):
    """Columns; entry i speaks of the prediction made after token i, for token i + 1."""

    top1: list[int]
    top1_logprob: list[float]
    logprob: list[float]
    ref_top1: list[int]
    ref_logprob: list[float]
    margin: list[float]
    kl: list[float]


TRACE_STRUCT = struct.Struct("<IIHHIiiiffffffIII")
TRACE_STATUS = ("accepted", "rejected", "discarded")
TRACE_REACHED = 1


class TraceRow(NamedTuple):
    """One drafted token of a token trace (docs/protocol.md)."""

    request: int
    round: int
    draft_position: int
    status: int
    output_position: int
    token_id: int
    draft_top1: int
    target_top1: int
    draft_prob: float
    target_prob: float
    draft_top1_prob: float
    target_top1_prob: float
    margin: float
    kl: float
    prompt_length: int
    flags: int

    def pack(self) -> bytes:
        """The row as 64 bytes."""
        return TRACE_STRUCT.pack(*self, 0)

    @property
    def reached(self) -> bool:
        """True where the acceptance rule looked at this token."""
        return bool(self.flags & TRACE_REACHED)


def read_trace(path: str | Path) -> Iterator[TraceRow]:
    """Yield the rows of a token trace file.

    Raises ValueError where the file's size is no multiple of a row (the writer was cut off) or a
    row has an unknown status; both name the file.
    """
    data = Path(path).read_bytes()
    if len(data) % TRACE_STRUCT.size:
        raise ValueError(
            f"{path}: {len(data)} bytes are no whole number of {TRACE_STRUCT.size}-byte "
            "trace rows; the file was cut off."
        )
    for index, fields in enumerate(TRACE_STRUCT.iter_unpack(data)):
        row = TraceRow(*fields[:-1])
        if row.status >= len(TRACE_STATUS):
            raise ValueError(f"{path}: row {index} has the unknown status {row.status}.")
        yield row

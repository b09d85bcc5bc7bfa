"""The figures of one trial, out of its record, by the definitions of docs/records.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import ConfigError
from harness.shapes import longest_path
from harness.stats import FloatArray
from harness.vocabulary import MAX_DRAFTED

SCHEMA_VERSION = 1
PHASES = ("draft_s", "verify_s", "other_s")


def _no_values() -> FloatArray:
    return np.zeros(0)


class RecordError(ConfigError):
    """A record contradicts docs/records.md; the message names the file and what is wrong."""


@dataclass(frozen=True)
class Trial:
    """A cell in a block. Arrays of P entries follow the block's `prompt_ids`.

    `decode_s` shares each round's duration equally among the sequences active in it.
    `position_accepts[p, i]` counts the uncut rounds of request p that accepted more than i tokens.
    `repeats` is 1 for a request that went round in circles. `drafted_counts[n]` counts the rounds
    of a sequence that drafted n tokens; the `inner_` figures are those of the rounds in a cascade.
    A failed trial keeps its cell and error alone; its arrays are empty.
    """

    cell: Mapping[str, Any]
    group: str
    block: str
    status: str
    error: Mapping[str, Any] | None
    prompt_ids: tuple[str, ...]
    interleaved: bool
    left_out: Mapping[str, Any]
    losslessness: Mapping[str, Any] | None = None
    quality: Mapping[str, Any] | None = None
    task: Mapping[str, Any] | None = None
    shape_choice: Mapping[str, Any] | None = None
    categories: tuple[str, ...] = ()
    bytes_per_token: float | None = None
    bandwidth: float | None = None
    output_tokens: FloatArray = field(default_factory=_no_values)
    decode_s: FloatArray = field(default_factory=_no_values)
    prefill_s: FloatArray = field(default_factory=_no_values)
    ttft_s: FloatArray = field(default_factory=_no_values)
    service_ttft_s: FloatArray = field(default_factory=_no_values)
    tpot_s: FloatArray = field(default_factory=_no_values)
    itl_s: FloatArray = field(default_factory=_no_values)
    round_s: FloatArray = field(default_factory=_no_values)
    phase_s: FloatArray = field(default_factory=_no_values)
    drafted: FloatArray = field(default_factory=_no_values)
    reached: FloatArray = field(default_factory=_no_values)
    accepted: FloatArray = field(default_factory=_no_values)
    committed: FloatArray = field(default_factory=_no_values)
    sequence_rounds: FloatArray = field(default_factory=_no_values)
    uncut_rounds: FloatArray = field(default_factory=_no_values)
    position_accepts: FloatArray = field(default_factory=_no_values)
    repeats: FloatArray = field(default_factory=_no_values)
    drafted_counts: FloatArray = field(default_factory=_no_values)
    inner_rounds: FloatArray = field(default_factory=_no_values)
    inner_committed: FloatArray = field(default_factory=_no_values)
    inner_drafted_counts: FloatArray = field(default_factory=_no_values)

    @property
    def key(self) -> tuple[str, str]:
        """(method id, role): what tells a cell from the others of its group."""
        return str(self.cell["method_id"]), str(self.cell["role"])

    @property
    def ok(self) -> bool:
        """True where the trial was measured (and perhaps refused for its quality)."""
        return self.status != "failed"

    @property
    def decode_tokens(self) -> FloatArray:
        """Tokens after the first of each request: (P,)."""
        return self.output_tokens - 1

    @property
    def end_to_end_s(self) -> FloatArray:
        """Decode and prefill seconds of each request: (P,)."""
        return self.decode_s + self.prefill_s

    @property
    def roofline_fraction(self) -> float | None:
        """Share of the roofline of a plain method; None with a drafter or without bandwidth."""
        plain = self.cell["drafter"]["kind"] == "none"
        if not plain or not self.bandwidth or not self.bytes_per_token:
            return None
        ideal = len(self.round_s) * self.bytes_per_token / self.bandwidth
        return ideal / float(self.round_s.sum())


def read_trials(results: Path) -> list[Trial]:
    """All finished trials of a results folder, by group, block and cell.

    Raises RecordError naming the file that is unreadable, of another schema version, or
    contradictory. Blocks that were interrupted (`*.partial`) are not read.
    """
    return list(_trials(results))


def _trials(results: Path) -> Iterator[Trial]:
    for path in finished_records(results):
        yield _read_trial(path, path.stat().st_mtime_ns)


def finished_records(results: Path) -> list[Path]:
    """The records of finished blocks, by group, block and cell."""
    return sorted(p for p in (results / "records").glob("*/*/*.json") if p.parent.name.isdigit())


def read_record(path: Path) -> dict[str, Any]:
    """A record as it was written. Raises RecordError where it is unreadable or of another schema
    version."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}. Remove its block's folder to rerun it."
        raise RecordError(message) from None
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{path} has schema_version {version!r}; this analysis reads {SCHEMA_VERSION}. "
            "Use the version of the program that wrote it, or measure anew with `fresh=true`."
        )
    return dict(record)


@lru_cache(maxsize=16384)
def _read_trial(path: Path, _modified_ns: int) -> Trial:
    # A finished block never changes, so that a look between blocks parses the new records alone.
    record = read_record(path)
    try:
        return derive(record)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise RecordError(f"{path} is not a record: {type(error).__name__} {error}.") from None


def derive(record: Mapping[str, Any]) -> Trial:
    """The figures of a record. Raises RecordError where its parts contradict each other."""
    trial = Trial(
        cell=record["cell"],
        group=str(record["group"]),
        block=str(record["block"]),
        status=str(record["status"]),
        error=record["error"],
        prompt_ids=tuple(map(str, record["prompt_ids"])),
        interleaved=bool(record["interleaved"]),
        left_out=record["left_out"] or {"count": 0, "reason": ""},
    )
    if not trial.ok:
        return trial
    requests = record["requests"]
    if tuple(str(request["id"]) for request in requests) != trial.prompt_ids:
        raise RecordError("`requests` do not follow `prompt_ids`.")
    if not requests:
        raise RecordError("it is `ok` and holds no request.")
    durations = np.array([_column(record["rounds"], key) for key in PHASES])
    found: dict[str, Any] = {
        **_request_figures(requests),
        **_sequence_figures(record, durations.sum(axis=0), len(requests), trial.cell),
        **_inner_figures(record.get("levels"), len(requests)),
        "round_s": durations.sum(axis=0),
        "phase_s": durations.sum(axis=1),
    }
    _check(found, float(record["decode_s"]))
    bandwidth = (record.get("bandwidth") or {}).get("read_bytes_s")
    return Trial(
        **{name: getattr(trial, name) for name in _IDENTITY},
        losslessness=record["losslessness"],
        quality=record["quality"],
        task=record.get("task"),
        shape_choice=record.get("shape_choice"),
        categories=tuple(str(request.get("category", "all")) for request in requests),
        bytes_per_token=(record.get("proof") or {}).get("bytes_per_token"),
        bandwidth=None if bandwidth is None else float(bandwidth),
        **found,
    )


_IDENTITY = ("cell", "group", "block", "status", "error", "prompt_ids", "interleaved", "left_out")


def _request_figures(requests: list[Mapping[str, Any]]) -> dict[str, FloatArray]:
    """Columns of the requests, TPOT (NaN with a single token) and all gaps between tokens."""
    tpot, gaps = [], []
    for number, request in enumerate(requests):
        ends = np.asarray(request["round_end_s"], dtype=float)
        counts = np.asarray(request["round_tokens"], dtype=int)
        tokens = int(request["output_tokens"])
        if int(counts.sum()) != tokens or len(ends) != len(counts):
            raise RecordError(f"requests[{number}]: `round_tokens` do not add up to its tokens.")
        tpot.append((ends[-1] - ends[0]) / (tokens - 1) if tokens > 1 else math.nan)
        gaps.append(np.diff(np.repeat(ends, counts)))
    column = {
        key: np.array([float(request[key]) for request in requests])
        for key in ("output_tokens", "prefill_s", "ttft_s", "queue_s")
    }
    return {
        "output_tokens": column["output_tokens"],
        "repeats": np.array([float(request.get("repeats", False)) for request in requests]),
        "prefill_s": column["prefill_s"],
        "ttft_s": column["ttft_s"],
        "service_ttft_s": column["ttft_s"] - column["queue_s"],
        "tpot_s": np.array(tpot),
        "itl_s": np.concatenate(gaps),
    }


def _sequence_figures(
    record: Mapping[str, Any], round_s: FloatArray, requests: int, cell: Mapping[str, Any]
) -> dict[str, FloatArray]:
    """Sums over the sequence rounds of each request: (requests,), or (requests, positions)."""
    columns = record["sequence_rounds"]
    request = np.asarray(columns["request"], dtype=int)
    number = np.asarray(columns["round"], dtype=int)
    active = np.asarray(_column(record["rounds"], "sequences"), dtype=int)
    counted = np.bincount(number, minlength=len(active))
    if len(counted) != len(active) or (counted != active).any():
        raise RecordError("`rounds.sequences` does not agree with `sequence_rounds`.")
    accepted = _column(columns, "accepted")
    committed = _column(columns, "committed")

    def total(weights: FloatArray) -> FloatArray:
        return np.bincount(request, weights=weights, minlength=requests).astype(float)

    uncut = committed >= accepted + 1
    positions = longest_path(cell["shape"])
    if cell["drafter"]["kind"] == "cascade":
        # The last inner round may bring more than was missing.
        positions += longest_path(cell["drafter"]["inner_shape"])
    accepts = [total((uncut & (accepted > i)).astype(float)) for i in range(positions)]
    return {
        "decode_s": total((round_s / np.maximum(active, 1))[number]),
        "drafted": total(_column(columns, "drafted")),
        "drafted_counts": _counts(columns),
        "reached": total(_column(columns, "reached")),
        "accepted": total(accepted),
        "committed": total(committed),
        "sequence_rounds": total(np.ones(len(request))),
        "uncut_rounds": total(uncut.astype(float)),
        "position_accepts": np.array(accepts).T.reshape(requests, positions),
    }


def _inner_figures(levels: Mapping[str, Any] | None, requests: int) -> dict[str, FloatArray]:
    """Sums over the rounds inside a cascade, by request; nothing for other drafters."""
    if levels is None:
        return {}
    request = np.asarray(levels["request"], dtype=int)
    committed = _column(levels, "committed")
    sums = np.bincount(request, weights=committed, minlength=requests)
    return {
        "inner_rounds": np.bincount(request, minlength=requests).astype(float),
        "inner_committed": sums.astype(float),
        "inner_drafted_counts": _counts(levels),
    }


def _counts(columns: Mapping[str, Any]) -> FloatArray:
    """How many rounds drafted 0, 1, 2 ... tokens: (MAX_DRAFTED + 1,)."""
    drafted = np.asarray(columns["drafted"], dtype=int)
    return np.bincount(drafted, minlength=MAX_DRAFTED + 1).astype(float)


def _column(table: Mapping[str, Any], key: str) -> FloatArray:
    return np.asarray(table[key], dtype=float)


def _check(found: Mapping[str, FloatArray], decode_s: float) -> None:
    """Refuses what cannot have been measured."""
    for key, values in found.items():
        bad = values < 0 if key == "tpot_s" else ~(values >= 0) | np.isinf(values)
        if bad.any():
            raise RecordError(f"{key} holds a negative, infinite or missing value.")
    if (found["committed"] != found["output_tokens"] - 1).any():
        raise RecordError("committed tokens do not add up to the requests' output tokens.")
    if not math.isclose(float(found["decode_s"].sum()), decode_s, rel_tol=0.01, abs_tol=1e-6):
        raise RecordError(f"`decode_s` is {decode_s}, and its rounds last "
                          f"{found['decode_s'].sum()}.")  # fmt: skip

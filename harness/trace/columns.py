"""The token trace as a table: one row for each compared position, in either mode.

`online` rows come from a worker's token trace of a real draft-and-verify run, `fixed_prefix` rows
from `score` over the target's own answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from backends.protocol import TRACE_REACHED, TRACE_STATUS, TRACE_STRUCT

ONLINE, FIXED_PREFIX = "online", "fixed_prefix"
MODES = (ONLINE, FIXED_PREFIX)
COLUMNS = (
    "request", "round", "draft_position", "output_position", "prompt_length", "token_id",
    "token_text", "draft_prob", "target_prob", "draft_top1", "draft_top1_prob", "target_top1",
    "target_top1_prob", "match", "both_high", "status", "reached", "mode", "margin", "kl",
)  # fmt: skip
_FILE_ROW = np.dtype(
    [
        ("request", "<u4"), ("round", "<u4"), ("draft_position", "<u2"), ("status", "<u2"),
        ("output_position", "<u4"), ("token_id", "<i4"), ("draft_top1", "<i4"),
        ("target_top1", "<i4"), ("draft_prob", "<f4"), ("target_prob", "<f4"),
        ("draft_top1_prob", "<f4"), ("target_top1_prob", "<f4"), ("margin", "<f4"), ("kl", "<f4"),
        ("prompt_length", "<u4"), ("flags", "<u4"), ("reserved", "<u4"),
    ]
)  # fmt: skip
assert _FILE_ROW.itemsize == TRACE_STRUCT.size
_WHOLE = ("request", "round", "draft_position", "output_position", "prompt_length", "token_id",
          "draft_top1", "target_top1")  # fmt: skip
_SINGLE = ("draft_prob", "target_prob", "draft_top1_prob", "target_top1_prob", "margin", "kl")
Decode = Callable[[Sequence[int]], str]


def online_rows(
    path: Path, requests: Sequence[int], decode: Decode, threshold: float
) -> pd.DataFrame:
    """The rows of a worker's token trace file (docs/protocol.md).

    `requests` gives each request of the run the number that it keeps in the table; `decode` turns
    token ids into text. Raises ValueError that names the file where it is cut off or holds a
    request or status that cannot be.
    """
    data = path.read_bytes()
    if len(data) % _FILE_ROW.itemsize:
        raise ValueError(
            f"{path}: {len(data)} bytes are no whole number of {_FILE_ROW.itemsize}-byte trace "
            "rows; the file was cut off."
        )
    rows = np.frombuffer(data, _FILE_ROW)
    for key, limit in (("request", len(requests)), ("status", len(TRACE_STATUS))):
        wrong = np.flatnonzero(rows[key] >= limit)
        if len(wrong):
            raise ValueError(f"{path}: row {wrong[0]} has the unknown {key} {rows[key][wrong[0]]}.")
    columns: dict[str, Any] = {key: rows[key] for key in (*_WHOLE, *_SINGLE)}
    columns["request"] = np.asarray(requests, np.int64)[rows["request"]]
    columns["status"] = np.asarray(TRACE_STATUS, object)[rows["status"]]
    columns["reached"] = (rows["flags"] & TRACE_REACHED) != 0
    columns["mode"] = ONLINE
    return _table(columns, decode, threshold)


def fixed_prefix_rows(
    request: int,
    prompt_length: int,
    answer: Sequence[int],
    scores: Mapping[str, Sequence[Any]],
    target_top1_logprob: Sequence[float],
    decode: Decode,
    threshold: float,
) -> pd.DataFrame:
    """One row for each token of an answer that the target gave.

    `scores` are the columns of `score` over prompt and answer, at the draft's precision with the
    target's as reference; entry i speaks of token i + 1. `target_top1_logprob` runs beside them.
    The given token plays the drafted one's part; nothing is discarded, and a row is accepted where
    both top-1 tokens are equal.
    """
    span = slice(prompt_length - 1, prompt_length - 1 + len(answer))
    draft_top1 = np.asarray(scores["top1"][span], np.int64)
    target_top1 = np.asarray(scores["ref_top1"][span], np.int64)
    positions = np.arange(len(answer))
    columns: dict[str, Any] = {
        "request": np.full(len(answer), request),
        "round": positions,
        "draft_position": np.zeros(len(answer), np.int64),
        "output_position": positions,
        "prompt_length": np.full(len(answer), prompt_length),
        "token_id": np.asarray(answer, np.int64),
        "draft_top1": draft_top1,
        "target_top1": target_top1,
        "draft_prob": np.exp(scores["logprob"][span]),
        "target_prob": np.exp(scores["ref_logprob"][span]),
        "draft_top1_prob": np.exp(scores["top1_logprob"][span]),
        "target_top1_prob": np.exp(target_top1_logprob[span]),
        "margin": scores["margin"][span],
        "kl": scores["kl"][span],
        "status": np.where(draft_top1 == target_top1, *TRACE_STATUS[:2]).astype(object),
        "reached": np.ones(len(answer), bool),
        "mode": FIXED_PREFIX,
    }
    return _table(columns, decode, threshold)


def _table(columns: Mapping[str, Any], decode: Decode, threshold: float) -> pd.DataFrame:
    """All columns, in their order and with their types."""
    table = pd.DataFrame(dict(columns))
    texts = {int(token): decode([int(token)]) for token in table["token_id"].unique()}
    table["token_text"] = table["token_id"].map(texts).astype(object)
    table["match"] = table["draft_top1"] == table["target_top1"]
    for key in _WHOLE:
        table[key] = table[key].astype(np.int32)
    for key in _SINGLE:
        table[key] = table[key].astype(np.float32)
    table["both_high"] = both_above(table, threshold)
    return table[list(COLUMNS)]


def both_above(table: pd.DataFrame, threshold: float) -> pd.Series[bool]:
    """Where both precisions' top-1 probabilities are above `threshold`."""
    draft, target = (above(table[f"{side}_top1_prob"], threshold) for side in ("draft", "target"))
    return draft & target


def above(probability: pd.Series[float], threshold: float) -> pd.Series[bool]:
    """Strictly above, compared in the single precision that the column has.

    In double precision a probability of exactly 0.8 would count as above 0.8, since the nearest
    single-precision number lies a little higher.
    """
    return probability > np.float32(threshold)


def without_rounds_after(rows: pd.DataFrame, lengths: Mapping[int, int]) -> pd.DataFrame:
    """Drop rounds that begin after an answer's end (`lengths`, tokens by request).

    An engine that looks for stop texts after each round would not have run them; a round that the
    end falls into stays whole.
    """
    first = rows.groupby(["request", "round"])["output_position"].transform("min")
    return rows[first < rows["request"].map(lengths)]

"""Derived figures of a record small enough to be worked out by hand (docs/records.md)."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.derive import RecordError, derive, read_trials

CELL = {
    "method_id": "w4a16+self-w4a4.g2", "role": "method", "arm": "combined",
    "drafter": {"kind": "self", "precision": "w4a4"}, "shape": {"kind": "chain", "gamma": 2},
}  # fmt: skip


def request(name: str, ends: list[float], tokens: list[int], prefill: float, queue: float) -> Any:
    return {
        "id": name, "prompt_tokens": 7, "output_tokens": sum(tokens), "tokens_sha256": "x",
        "queue_s": queue, "prefill_s": prefill, "ttft_shared": False,
        "ttft_s": queue + prefill + 0.01, "round_end_s": ends, "round_tokens": tokens,
        "finish": "length",
    }  # fmt: skip


def record() -> dict[str, Any]:
    """Four requests in two slots. B ends with its first token; C and D are cut in their last round.

    Round 0 (60 ms): A commits 3, C 1. Round 1 (80 ms): C 1 of an accepted draft (cut), D 2.
    Round 2 (50 ms): D alone, 2 of two accepted drafts (cut).
    """
    return {
        "schema_version": 1, "cell": CELL, "group": "g", "block": "000", "status": "ok",
        "error": None, "started_at": "2026-01-01T00:00:00+00:00", "position": 0,
        "interleaved": True, "prompt_ids": ["A", "B", "C", "D"],
        "left_out": {"count": 0, "reason": ""},
        "requests": [
            request("A", [0.10, 0.31], [1, 3], 0.10, 0.0),
            request("B", [0.15], [1], 0.05, 0.10),
            request("C", [0.25, 0.31, 0.49], [1, 1, 1], 0.10, 0.15),
            request("D", [0.41, 0.49, 0.54], [1, 2, 2], 0.10, 0.31),
        ],
        "rounds": {
            "start_s": [0.25, 0.41, 0.49], "draft_s": [0.02, 0.03, 0.02],
            "verify_s": [0.03, 0.04, 0.02], "other_s": [0.01, 0.01, 0.01],
            "rows": [6, 6, 3], "sequences": [2, 2, 1],
        },
        "sequence_rounds": {
            "request": [0, 2, 2, 3, 3], "round": [0, 0, 1, 1, 2], "drafted": [2, 2, 2, 2, 2],
            "reached": [2, 1, 2, 2, 2], "accepted": [2, 0, 1, 1, 2], "committed": [3, 1, 1, 2, 2],
        },
        "wall_s": 0.54, "decode_s": 0.19, "memory": {}, "losslessness": None, "quality": None,
        "proof": {"kernels": [], "bytes_per_token": 1000}, "bandwidth": {"read_bytes_s": 50000.0},
        "clocks": {},
    }  # fmt: skip


def test_round_time_is_shared_by_the_active_sequences() -> None:
    trial = derive(record())
    assert trial.decode_s == pytest.approx([0.03, 0.0, 0.07, 0.09])
    assert trial.decode_tokens.tolist() == [3, 0, 2, 4]
    throughput = trial.decode_tokens.sum() / trial.decode_s.sum()
    assert throughput == pytest.approx(9 / 0.19)


def test_end_to_end_counts_prefill_and_first_tokens() -> None:
    trial = derive(record())
    assert trial.output_tokens.sum() / trial.end_to_end_s.sum() == pytest.approx(13 / 0.54)


def test_tpot_is_taken_over_the_tokens_after_the_first() -> None:
    tpot = derive(record()).tpot_s
    assert tpot[[0, 2, 3]] == pytest.approx([0.07, 0.12, 0.0325])
    assert math.isnan(tpot[1])


def test_gaps_are_taken_per_token_and_may_be_zero() -> None:
    gaps = derive(record()).itl_s
    assert gaps == pytest.approx([0.21, 0.0, 0.0, 0.06, 0.18, 0.08, 0.0, 0.05, 0.0])


def test_ttft_with_and_without_waiting_for_a_slot() -> None:
    trial = derive(record())
    assert trial.ttft_s == pytest.approx([0.11, 0.16, 0.26, 0.42])
    assert trial.service_ttft_s == pytest.approx([0.11, 0.06, 0.11, 0.11])


def test_acceptance_leaves_cut_rounds_out_of_the_positions_alone() -> None:
    trial = derive(record())
    assert trial.committed.sum() / trial.sequence_rounds.sum() == pytest.approx(9 / 5)
    assert trial.accepted.sum() / trial.drafted.sum() == pytest.approx(0.6)
    assert trial.accepted.sum() / trial.reached.sum() == pytest.approx(6 / 9)
    assert trial.uncut_rounds.sum() == 3
    assert trial.position_accepts.sum(axis=0).tolist() == [2, 1]


def test_phases_add_up_to_the_rounds() -> None:
    trial = derive(record())
    assert trial.phase_s == pytest.approx([0.07, 0.09, 0.03])
    assert trial.round_s == pytest.approx([0.06, 0.08, 0.05])


def test_roofline_is_for_plain_methods_alone() -> None:
    assert derive(record()).roofline_fraction is None
    plain = record()
    plain["cell"] = {**CELL, "drafter": {"kind": "none"}, "shape": {"kind": "none"}}
    # Three forwards read 1000 bytes each at 50,000 bytes a second: 60 ms of 190.
    assert derive(plain).roofline_fraction == pytest.approx(0.06 / 0.19)
    plain["bandwidth"] = None
    assert derive(plain).roofline_fraction is None


def test_a_failed_record_keeps_its_error() -> None:
    failed = {**record(), "status": "failed", "error": {"type": "device", "message": "m"},
              "requests": [], "rounds": {}, "sequence_rounds": {}}  # fmt: skip
    trial = derive(failed)
    assert not trial.ok
    assert trial.error == {"type": "device", "message": "m"}


def broken(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found: Any = copy.deepcopy(record())
    target = found
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return dict(found)


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("prompt_ids",), ["A", "B", "D", "C"], "prompt_ids"),
        (("requests", 0, "round_tokens"), [1, 2], "requests\\[0\\]"),
        (("rounds", "sequences"), [2, 1, 1], "sequences"),
        (("sequence_rounds", "committed"), [3, 1, 1, 2, 1], "committed"),
        (("requests", 2, "prefill_s"), -0.1, "prefill_s"),
        (("requests", 2, "prefill_s"), math.nan, "prefill_s"),
        (("rounds", "verify_s"), [0.03, math.inf, 0.02], "infinite"),
        (("decode_s",), 0.3, "decode_s"),
    ],
)
def test_a_contradiction_is_refused_by_name(path: tuple[Any, ...], value: Any, word: str) -> None:
    with pytest.raises(RecordError, match=word):
        derive(broken(path, value))


def write(folder: Path, content: str, block: str = "000") -> Path:
    path = folder / "records" / "g" / block / "abc.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_unreadable_records_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "{")
    with pytest.raises(RecordError, match=str(path)):
        read_trials(tmp_path)
    write(tmp_path, json.dumps({**record(), "schema_version": 2}))
    with pytest.raises(RecordError, match="schema_version 2"):
        read_trials(tmp_path)
    incomplete = record()
    del incomplete["rounds"]
    write(tmp_path, json.dumps(incomplete))
    with pytest.raises(RecordError, match=r"abc\.json is not a record: KeyError 'rounds'"):
        read_trials(tmp_path)


def test_interrupted_blocks_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, json.dumps(record()))
    write(tmp_path, "{", block="001.partial")
    assert len(read_trials(tmp_path)) == 1
    assert np.isfinite(read_trials(tmp_path)[0].itl_s).all()

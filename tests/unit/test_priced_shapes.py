"""Shapes compared at equal prices, on invented records whose prices are worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.priced_shapes import compare, main

Rounds = list[tuple[int, float, float, float, int]]
"""Of each round: rows, drafting, verifying and other seconds, committed tokens."""


def write(results: Path, block: str, name: str, shape: str, rounds: Rounds) -> Path:
    drafter = {"kind": "none"} if shape == "none" else {"kind": "head", "id": "head"}
    rows, draft_s, verify_s, other_s, committed = (list(column) for column in zip(*rounds))  # noqa: B905
    record: dict[str, Any] = {
        "schema_version": 1, "status": "ok", "group": "g", "block": block,
        "cell": {
            "method_id": name, "name": name, "role": "method", "worker": "native",
            "precision": "fp16", "batch_size": 1, "drafter": drafter, "shape": {"kind": shape},
        },
        "rounds": {"rows": rows, "draft_s": draft_s, "verify_s": verify_s, "other_s": other_s},
        "sequence_rounds": {"committed": committed},
    }  # fmt: skip
    path = results / "records" / "g" / block / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Prices: one row 3 s, four rows 4 s and drafting 1 s; a spell slows single rounds."""
    for block in ("000", "001"):
        write(tmp_path, block, "plain", "none", [(1, 0.0, 2.0, 1.0, 1)] * 2)
        write(tmp_path, block, "chain", "chain", [(4, 1.0, 3.0, 1.0, 2)] * 2)
    write(tmp_path, "000", "auto", "auto", [(4, 1.0, 3.0, 1.0, 3), (1, 0.0, 2.0, 1.0, 1)])
    write(tmp_path, "001", "auto", "auto", [(4, 1.0, 3.0, 1.0, 2), (1, 0.0, 20.0, 1.0, 1)])
    return tmp_path


def test_rounds_cost_their_median_however_slow_the_one_was(results: Path) -> None:
    # Rates: plain 2 / 6, chain 4 / 10, auto 4 / 8 in block 000 and 3 / 8 in block 001.
    (entry,) = compare(results)
    assert (entry["name"], entry["best_fixed"]) == ("auto", "chain")
    over_chain = entry["over_fixed"]["chain"]
    assert over_chain["mean"] == pytest.approx((1.25 * 0.9375) ** 0.5)
    assert entry["over_plain"]["mean"] == pytest.approx((1.5 * 1.125) ** 0.5)
    # t(1) at 97.5 % is 12.7062; two logarithms that differ by d have a standard error of d / 2.
    ends = over_chain["ci_high"] / over_chain["ci_low"]
    assert ends == pytest.approx((1.25 / 0.9375) ** 12.7062, rel=1e-4)


def test_the_command_stores_the_figures(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "priced.json"
    assert main([str(results), "--out", str(out)]) == 0
    assert "| auto | chain | 1.083 [" in capsys.readouterr().out
    assert json.loads(out.read_text(encoding="utf-8")) == compare(results)


def test_a_folder_without_records_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nothing")]) == 2
    assert "nothing holds no records" in capsys.readouterr().err


def test_a_record_without_rows_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(results, "001", "chain", "chain", [(4, 1.0, 3.0, 1.0, 2)])
    path.write_text(path.read_text().replace('"rows"', '"lines"'), encoding="utf-8")
    assert main([str(results)]) == 2
    assert f"{path} is not a record of a trial: KeyError 'rows'" in capsys.readouterr().err

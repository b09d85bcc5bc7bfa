"""The recipe study: its table from records, with figures computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import recipes
from benchmarks.recipe_texts import Text, _check, read_texts
from harness import model_file
from harness.errors import ConfigError
from tests.fakes.model import write_model


def record(label: str, precision: str, top1: list[list[int]], nll: list[float]) -> dict[str, Any]:
    """A record of two problems; the second has no solution where `nll` is short."""
    return {
        "label": label, "precision": precision, "model": {"source": {"recipe": "rtn"}},
        "forward": None,
        "texts": [
            {"problem": i, "top1": ids, "nll_sum": nll[i] if i < len(nll) else 0.0,
             "positions": 4 if i < len(nll) else 0}
            for i, ids in enumerate(top1)
        ],
    }  # fmt: skip


def test_a_row_compares_with_the_same_model_and_sets_perplexity_against_the_first() -> None:
    first = record("shipped", "w4a16", [[9, 9, 9, 9], [9, 9]], [4.0, 6.0])
    reference = record("rotated", "w4a16", [[1, 2, 3, 4], [5, 6]], [5.0, 7.0])
    mine = record("rotated", "w4a4", [[1, 2, 0, 4], [5, 0]], [6.0, 10.0])
    found = recipes.row(mine, reference, first)
    assert found["agreement"]["mean"] == pytest.approx(4 / 6)
    assert found["positions"] == 6
    assert found["perplexity"]["mean"] == pytest.approx(math.exp(16 / 8))
    assert found["perplexity_ratio"]["mean"] == pytest.approx(math.exp((2 + 4) / 8))
    assert (found["problems"], found["recipe"], found["forward_ms"]) == (2, "rtn", None)


def test_problems_without_a_solution_do_not_count_for_perplexity() -> None:
    first = record("a", "w4a16", [[1], [2]], [4.0])
    found = recipes.row(record("a", "w4a4", [[1], [2]], [8.0]), first, first)
    assert found["perplexity"]["mean"] == pytest.approx(math.exp(2.0))
    assert found["agreement"]["mean"] == 1.0


def test_forward_times_are_medians_in_milliseconds_and_the_table_shows_them() -> None:
    first = record("a", "w4a16", [[1, 2], [3]], [4.0, 4.0])
    first["forward"] = {"times": {"1": [0.003, 0.001, 0.002], "4": [0.005] * 3}}
    found = recipes.row(first, first, first)
    assert found["forward_ms"]["1"]["mean"] == pytest.approx(2.0)
    (line,) = recipes.markdown([found]).splitlines()[2:]
    assert line.startswith("| a | w4a16 | 100.00% ")
    assert line.endswith("| 2.00 | 5.00 |")


class FakeWorker:
    """Scores every token id as its own prediction, and counts what it is asked."""

    def __init__(self) -> None:
        self.scored = 0

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def call(self, name: str, **request: Any) -> dict[str, Any]:
        if name == "hello":
            return {"device": {"name": "fake"}, "version": "0", "build": "b"}
        if name == "forward":
            return {"times": {"1": [0.001], "4": [0.002]}}
        self.scored += len(request["sequences"])
        return {
            "sequences": [
                {"top1": list(s[1:]), "logprob": [-0.5] * (len(s) - 1)}
                for s in request["sequences"]
            ]
        }


def test_records_are_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker()
    monkeypatch.setattr(recipes, "_worker", lambda *_: worker)
    write_model(tmp_path / "m.sqm")
    model = model_file.read(tmp_path / "m.sqm")
    texts = [Text(0, (1, 2), (3, 4, 5), (1, 2, 3)), Text(1, (1,), (7,), ())]
    study = recipes.Study(tmp_path / "out", texts, speed=False)
    found = study.record("a", model, "w4a4")
    assert worker.scored == 3
    assert [entry["top1"] for entry in found["texts"]] == [[3, 4, 5], [7]]
    assert [entry["nll_sum"] for entry in found["texts"]] == [1.0, 0.0]
    assert study.record("a", model, "w4a4") == found
    assert worker.scored == 3
    timed = recipes.Study(tmp_path / "out", texts, speed=True).record("a", model, "w4a4")
    assert timed["forward"]["times"]["4"] == [0.002]
    assert worker.scored == 3
    recipes.Study(tmp_path / "out", texts[:1], speed=False).record("a", model, "w4a4")
    assert worker.scored == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "a.sqm"], "write LABEL=PATH"),
        (["--model", "a=nowhere.sqm"], "nowhere.sqm"),
    ],
)
def test_bad_arguments_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert recipes.main([str(tmp_path), *arguments, "--out", str(tmp_path / "o")]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_no_agreement_run_is_named(tmp_path: Path) -> None:

    with pytest.raises(ConfigError, match=r"no finished agreement run.*harness\.trace"):
        read_texts(tmp_path, 1, 1, None)


def test_a_damaged_answer_is_named(tmp_path: Path) -> None:

    (tmp_path / "answers.json").write_text(json.dumps([]), encoding="utf-8")
    with pytest.raises(ConfigError, match="the prompt of problem 4 is not the one"):
        _check(tmp_path, 3, (1, 2), {"prompt_tokens_sha256": "x", "tokens_sha256": "y"}, [1])


REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cpu" / "recipes.json"


def test_the_page_shows_the_figures_that_the_study_measured() -> None:
    tables = json.loads(REFERENCE.read_text(encoding="utf-8"))
    page = (REFERENCE.parents[2] / "recipes.md").read_text(encoding="utf-8")
    for rows in (tables["all"], tables["longer"]):
        assert recipes.markdown(rows) in page
        for row in rows:
            made_of = row["by_problem"]
            agreed, positions = sum(made_of["agree"]), sum(made_of["positions"])
            assert row["agreement"]["mean"] == pytest.approx(agreed / positions)
            per_position = sum(made_of["nll_sum"]) / sum(made_of["solution_positions"])
            assert row["perplexity"]["mean"] == pytest.approx(math.exp(per_position))
            assert len(set(made_of["problem"])) == row["problems"]

"""Projections of a cascade's gain from measured times, by numbers that can be checked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.cascade_projection import draw, main, project


def interval(mean: float) -> dict[str, Any]:
    return {"mean": mean, "ci_low": mean - 0.1, "ci_high": mean + 0.1, "n": 6, "level": 0.95}


def entry(**model: Any) -> dict[str, Any]:
    """A round of 24 ms; a token takes 10 ms in plain decoding and 8 ms with the tree."""
    return {
        "precision": "w4a16", "cascade": "c", "plain": "p", "tree": "t", "replayed": True,
        "over_plain": interval(2.4), "over_tree": interval(1.9),
        "acceptance_length": interval(6.0), "inner_acceptance_length": interval(2.0),
        "study": {"over_plain": 2.78, "over_tree": 1.31},
        "model": {
            "plain_s": 0.010, "draft_s": 0.014, "verify_s": 0.010, "tree_s": 0.008, "most": 10,
            **model,
        },
    }  # fmt: skip


def test_a_ratio_grows_with_the_tokens_of_a_round() -> None:
    found = project(entry())
    assert found is not None
    assert found["round_s"] == pytest.approx(0.024)
    plain, tree = found["ratios"]["over_plain"], found["ratios"]["over_tree"]
    assert dict(map(tuple, plain["points"]))[6.0] == pytest.approx(60 / 24)
    assert dict(map(tuple, tree["points"]))[6.0] == pytest.approx(48 / 24)
    assert [plain["points"][0][0], plain["points"][-1][0]] == [1.0, 10.0]
    assert plain["reached_at"] == pytest.approx(2.78 * 2.4)
    assert tree["reached_at"] == pytest.approx(1.31 * 3.0)
    assert found["projection"] is True


def test_what_no_round_can_bring_is_not_reached() -> None:
    found = project(entry(draft_s=0.030))
    assert found is not None
    plain = found["ratios"]["over_plain"]
    assert plain["needed"] == pytest.approx(2.78 * 4.0)
    assert plain["reached_at"] is None
    assert "more than a round can bring (10)" in draw(found)


def test_without_a_tree_or_curves_less_is_said() -> None:
    found = project({**entry(tree_s=None), "over_tree": None})
    assert found is not None
    assert list(found["ratios"]) == ["over_plain"]
    assert project({**entry(), "model": None}) is None


def test_the_figure_is_a_file_of_its_own_and_says_that_it_projects() -> None:
    found = project(entry())
    assert found is not None
    text = draw(found)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(root.itertext())
    assert "Projected from measured times" in words
    assert words.count("(projection)") == 2
    assert "measured, replayed: 2.40 over plain decoding" in words
    assert "measured: 2.40 over plain decoding" in draw({**found, "replayed": False})


def test_data_and_figure_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"hierarchy": [entry()]}))
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "cascade-w4a16.json").read_text())
    assert found["ratios"]["over_tree"]["reached_at"] == pytest.approx(3.93)
    assert (tmp_path / "out" / "cascade-w4a16.svg").read_text().startswith("<svg xmlns")
    assert "2.78 over plain decoding at 6.67 tokens a round" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "part"),
    [("{", "is no summary"), ('{"hierarchy": []}', "no cascade with forward curves")],
)
def test_other_folders_are_refused(
    tmp_path: Path, content: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "summary.json").write_text(content)
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert part in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

"""Greedy answers of two engines: where they part, and whether that was a near tie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.device_agreement import compare, first_difference, main, parted, show

PROMPTS = [[1, 2], [3], [4, 5, 6]]


class Answering:
    """An engine with given answers, which prefers its own token by given nats."""

    def __init__(self, answers: list[list[int]], preferences: dict[int, float]) -> None:
        self._answers = answers
        self._preferences = preferences
        self.asked: list[tuple[list[int], int]] = []

    def answers(
        self, prompts: Sequence[Sequence[int]], precision: str, tokens: int, stop_ids: Sequence[int]
    ) -> list[list[int]]:
        """See Engine."""
        assert (len(prompts), precision, tokens, list(stop_ids)) == (3, "w4a16", 4, [0])
        return self._answers

    def preference(self, text: Sequence[int], other: int, precision: str) -> float:
        """See Engine."""
        assert precision == "w4a16"
        self.asked.append((list(text), other))
        return self._preferences[other]


def test_first_difference() -> None:
    assert first_difference([7, 8, 9], [7, 8, 9]) is None
    assert first_difference([7, 8, 9], [7, 5, 9]) == 1
    assert first_difference([7, 0], [7, 8, 9]) == 1
    with pytest.raises(ValueError, match="beginning of the other"):
        first_difference([7, 8], [7, 8, 9])


def test_answers_are_compared_up_to_their_first_difference() -> None:
    cpu = Answering([[7, 8, 9, 9], [5, 0], [1, 1, 1, 1]], {6: 0.01, 2: 0.02})
    cuda = Answering([[7, 8, 9, 9], [6, 6, 6, 6], [1, 1, 2, 1]], {5: 0.03, 1: 0.4})
    found = compare({"cpu": cpu, "cuda": cuda}, PROMPTS, "w4a16", 4, [0])
    assert found.compared == 4 + 1 + 3
    assert cpu.asked == [([3], 6), ([4, 5, 6, 1, 1], 2)]
    assert cuda.asked == [([3], 5), ([4, 5, 6, 1, 1], 1)]
    assert [d.near_tie(0.05) for d in found.differences] == [True, False]
    counts = found.to_json(0.05, found)
    assert counts["same_answers"] == 1
    assert (counts["near_ties"], counts["other_differences"]) == (1, 1)
    assert counts["cpu_against_w4a16"] == {"differences": 0, "tokens_compared": 4 + 2 + 4}
    assert found.to_json(0.4, found)["near_ties"] == 2


def test_parted_answers_are_counted_with_what_was_compared() -> None:
    found = parted([[7, 8, 9], [5, 0], [1, 1]], [[7, 8, 9], [5, 3, 3], [2, 1]])
    assert found == {"differences": 2, "tokens_compared": 3 + 2 + 1}


def test_the_table_shows_the_largest_preference(capsys: pytest.CaptureFixture[str]) -> None:
    same = Answering([[1], [2], [4]], {})
    other = Answering([[1], [2], [4]], {3: 0.25})
    ours = Answering([[1], [2], [3]], {4: 0.125})
    alike = compare({"cpu": same, "cuda": same}, PROMPTS, "w4a16", 4, [0])
    unlike = compare({"cpu": ours, "cuda": other}, PROMPTS, "w4a16", 4, [0])
    show([alike.to_json(0.05, alike), unlike.to_json(0.05, alike)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| w4a16 | 3 | 3 | 3 | 0 | 0 | - | 0.0 | 0.0 |"
    assert lines[3] == "| w4a16 | 3 | 2 | 3 | 0 | 1 | 0.250 | 33.3 | 33.3 |"


def test_a_missing_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(tmp_path / "none.sqm")]) == 2
    assert "none.sqm" in capsys.readouterr().err

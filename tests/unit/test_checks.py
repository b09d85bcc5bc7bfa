"""What is compared at a block's end: tokens and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import checks
from harness.methods import expand
from harness.plan import Cell
from harness.trial import Trial
from harness.workload import Prompt

TOKENS = st.lists(st.integers(0, 3), max_size=8)
METHODS = {
    method.method_id: method
    for method in expand(
        [{"precision": "fp16"}, {"precision": "w4a8"},
         {"precision": "fp16", "drafter": "ngram"}, {"precision": "w4a8", "drafter": "ngram"}],
        draft_lengths=[3], precisions=["fp16", "w4a8"], baseline="fp16", backends=["native"],
    )
}  # fmt: skip
PROMPTS = [Prompt("a", (1, 2, 3), 8), Prompt("b", (4, 5), 8)]


def trial(method_id: str, tokens: list[list[int]] | None) -> Trial:
    method = METHODS[method_id]
    role = "baseline" if method.is_baseline else "method"
    return Trial(Cell(method, 1, "natural", role), {}, tokens)


class Scorer:
    """Answers with a margin that names the last position, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[list[int]], str, str]] = []

    def __call__(
        self, sequences: Sequence[Sequence[int]], precision: str, reference: str
    ) -> list[dict[str, Any]]:
        self.asked.append(([list(s) for s in sequences], precision, reference))
        return [
            {
                "margin": [float(i) for i in range(len(sequence) - 1)],
                "top1": list(sequence[1:]), "ref_top1": [*sequence[1:-1], -1],
                "kl": [0.5] * (len(sequence) - 1), "logprob": [-2.0] * (len(sequence) - 1),
                "ref_logprob": [-1.0] * (len(sequence) - 1),
            }
            for sequence in sequences
        ]  # fmt: skip


@given(ours=TOKENS, theirs=TOKENS)
def test_the_common_prefix_ends_at_the_first_difference(ours: list[int], theirs: list[int]) -> None:
    compared, same = checks.common_prefix(ours, theirs)
    assert same == (ours == theirs)
    assert checks.common_prefix(theirs, ours) == (compared, same)
    if same:
        assert compared == len(ours)
    else:
        assert ours[: compared - 1] == theirs[: compared - 1]
        assert ours[:compared] != theirs[:compared]


def test_equal_tokens_need_no_score() -> None:
    score = Scorer()
    ((found, result),) = checks.losslessness(
        [trial("fp16", [[7, 8], [9]]), trial("fp16+ngram-chain3", [[7, 8], [9]])], PROMPTS, score
    )
    assert found.cell.method.method_id == "fp16+ngram-chain3"
    assert result == {
        "reference_method_id": "fp16", "tokens_compared": 3, "mismatches": 0,
        "smallest_margin": None,
    }  # fmt: skip
    assert not score.asked


def test_a_fork_is_scored_on_the_plain_text_up_to_it() -> None:
    score = Scorer()
    plain = trial("w4a8", [[7, 8, 9], [6, 6, 6]])
    ((_, result),) = checks.losslessness(
        [plain, trial("fp16", [[0], [0]]), trial("w4a8+ngram-chain3", [[7, 1, 1], [6, 6, 5]])],
        PROMPTS, score,
    )  # fmt: skip
    assert (result["reference_method_id"], result["mismatches"]) == ("w4a8", 2)
    assert result["tokens_compared"] == 2 + 3
    assert score.asked == [([[1, 2, 3, 7, 8], [4, 5, 6, 6, 6]], "w4a8", "w4a8")]
    # The prediction of the fifth token is made after the fourth, entry 3.
    assert result["smallest_margin"] == 3.0


@pytest.mark.parametrize(("ours", "scored"), [([7], [[1, 2, 3, 7, 8]]), ([7, 8, 9, 9], None)])
def test_an_output_of_another_length_is_a_mismatch(
    ours: list[int], scored: list[list[int]] | None
) -> None:
    score = Scorer()
    ((_, result),) = checks.losslessness(
        [trial("fp16", [[7, 8, 9]]), trial("fp16+ngram-chain3", [ours])], PROMPTS[:1], score
    )
    assert result["mismatches"] == 1
    assert [asked[0] for asked in score.asked] == ([scored] if scored else [])


def test_without_plain_output_nothing_is_claimed() -> None:
    ((_, result),) = checks.losslessness(
        [trial("w4a8+ngram-chain3", [[1]]), trial("w4a8", None)], PROMPTS[:1], Scorer()
    )
    assert result["reference_method_id"] is None
    assert result["tokens_compared"] == 0


def test_quality_is_summed_over_prompt_and_answer() -> None:
    score = Scorer()
    found = checks.quality(["fp16", "w4a8"], trial("fp16", [[7, 8], [9]]), PROMPTS, score)
    assert set(found) == {"w4a8"}
    assert score.asked == [([[1, 2, 3, 7, 8], [4, 5, 9]], "w4a8", "fp16")]
    assert found["w4a8"]["sequences"] == [
        {
            "id": "a",
            "positions": 4,
            "agree": 3,
            "near_tie_flips": 0,
            "kl_sum": 2.0,
            "nll_sum": 8.0,
            "ref_nll_sum": 4.0,
        },
        {
            "id": "b",
            "positions": 2,
            "agree": 1,
            "near_tie_flips": 0,
            "kl_sum": 1.0,
            "nll_sum": 4.0,
            "ref_nll_sum": 2.0,
        },
    ]


def test_a_flip_is_near_a_tie_up_to_half_a_logit() -> None:
    columns = {
        "top1": [5, 6, 7, 8], "ref_top1": [5, 0, 0, 0], "margin": [0.1, 0.5, 0.500001, 0.2],
        "kl": [0.0] * 4, "logprob": [-1.0] * 4, "ref_logprob": [-1.0] * 4,
    }  # fmt: skip
    plain = trial("fp16", [[7, 8]])
    found = checks.quality(["w4a8"], plain, PROMPTS[:1], lambda *_: [columns])
    (sequence,) = found["w4a8"]["sequences"]
    assert (sequence["agree"], sequence["near_tie_flips"]) == (1, 2)


def test_answers_are_graded_where_there_is_a_reference() -> None:
    prompts = [
        Prompt("a", (1,), 8, answer="#### 7"), Prompt("b", (2,), 8),
        Prompt("c", (3,), 8, answer="so\n#### 1,000"), Prompt("d", (4,), 8, answer="#### 5"),
    ]  # fmt: skip
    texts = {7: "It is 7.", 8: "9", 9: "$1,000", 6: "none"}
    graded = checks.task(
        trial("fp16", [[7], [8], [9], [6]]), prompts, lambda ids: " ".join(texts[i] for i in ids)
    )
    assert graded == {
        "metric": "gsm8k, flexible",
        "graded": [True, False, True, True], "right": [True, None, True, None],
    }  # fmt: skip
    assert checks.task(trial("fp16", [[7], [8]]), PROMPTS, str) is None

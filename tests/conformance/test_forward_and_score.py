"""The forward curve and teacher-forced scores."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.served import Served, plain, tokens

# Logits this far apart keep their order when a row is computed alone or among others; an engine
# that promises the same bits either way needs none of it. bf16 has 8 bits for a logit.
CLEAR_MARGIN = {"bf16": 0.1}
USUAL_MARGIN = 0.01


def test_forward(served: Served) -> None:
    if not served.serves("calls", "forward"):
        pytest.skip("the worker does not serve 'forward'")
    for precision in served.precisions:
        answer = served.call(
            "forward",
            model="target",
            precision=precision,
            tokens=[1, 2, 7],
            mask="chain",
            context=33,
            batch=2,
            repeats=3,
        )
        assert answer["times"].keys() == {"1", "2", "7"}
        for seconds in answer["times"].values():
            assert len(seconds) == 3
            assert all(0 < second < 60 for second in seconds)
        assert answer["bandwidth_bytes_s"] > 1e8
        assert answer["bytes_per_token"] == served.answer["proof"][precision]["bytes_per_token"]


def test_forward_leaves_decoding_as_it_was(served: Served) -> None:
    if not served.serves("calls", "forward"):
        pytest.skip("the worker does not serve 'forward'")
    before = tokens(served.run())
    served.call("forward", precision=served.precisions[0], tokens=[3], context=5, repeats=1)
    assert tokens(served.run()) == before


def score(served: Served, sequences: list[list[int]], precision: str, reference: Any) -> Any:
    answer = served.call("score", sequences=sequences, precision=precision, reference=reference)
    return answer["sequences"]


@pytest.fixture(autouse=True)
def _serves_score(served: Served, request: pytest.FixtureRequest) -> None:
    if "score" in request.node.name and not served.serves("calls", "score"):
        pytest.skip("the worker does not serve 'score'")


def test_score_columns(served: Served) -> None:
    sequences = [[1, 2], *served.prompts(3, seed=11)]
    for precision in served.precisions:
        scored = score(served, sequences, precision, None)
        assert len(scored) == len(sequences)
        for columns, sequence in zip(scored, sequences, strict=True):
            assert columns.keys() == {"top1", "top1_logprob", "logprob"}
            assert {len(column) for column in columns.values()} == {len(sequence) - 1}
            given = sequence[1:]
            for top, best, token, logprob in zip(
                columns["top1"], columns["top1_logprob"], given, columns["logprob"], strict=True
            ):
                assert logprob <= best + 1e-6
                assert best <= 1e-6
                if top == token:
                    assert logprob == pytest.approx(best, abs=1e-5)


def test_score_against_itself_is_no_distance(served: Served) -> None:
    sequences = served.prompts(3, seed=12)
    for precision in served.precisions:
        for columns in score(served, sequences, precision, precision):
            assert columns["top1"] == columns["ref_top1"]
            assert columns["ref_logprob"] == pytest.approx(columns["logprob"], abs=1e-6)
            assert columns["kl"] == pytest.approx([0.0] * len(columns["kl"]), abs=1e-6)
            assert all(margin >= 0 for margin in columns["margin"])


def test_score_against_another_precision(served: Served) -> None:
    sequences = served.prompts(3, seed=13)
    reference = served.precisions[0]
    alone = score(served, sequences, reference, None)
    for precision in served.precisions[1:]:
        own = score(served, sequences, precision, None)
        for columns, mine, theirs in zip(
            score(served, sequences, precision, reference), own, alone, strict=True
        ):
            assert columns["top1"] == mine["top1"]
            assert columns["logprob"] == pytest.approx(mine["logprob"], abs=1e-5)
            assert columns["ref_top1"] == theirs["top1"]
            assert columns["ref_logprob"] == pytest.approx(theirs["logprob"], abs=1e-5)
            assert all(kl >= -1e-6 for kl in columns["kl"])
            assert sum(columns["kl"]) > 0


def test_score_predicts_what_decoding_chose(served: Served) -> None:
    prompts = served.prompts(4, seed=14)
    for precision in served.precisions:
        outputs = tokens(served.run(method=plain(precision), prompts=prompts))
        texts = [prompt + output for prompt, output in zip(prompts, outputs, strict=True)]
        compared = 0
        for prompt, output, columns in zip(
            prompts, outputs, score(served, texts, precision, precision), strict=True
        ):
            start = len(prompt) - 1
            clear = CLEAR_MARGIN.get(precision, USUAL_MARGIN)
            for offset, token in enumerate(output):
                if columns["margin"][start + offset] > clear:
                    assert columns["top1"][start + offset] == token
                    compared += 1
        assert compared > 20

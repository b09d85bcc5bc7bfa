"""What is checked at the end of a block: is greedy speculation lossless, and what is the quality?

Both compare tokens or scores of one block, so nothing here is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness import gsm8k_answers
from harness.plan import Cell
from harness.trial import Trial
from harness.workload import Prompt

NEAR_TIE = 0.5
"""Logits: the best token is then at most 1.65 times as probable as the second (e^0.5)."""

Score = Callable[[Sequence[Sequence[int]], str, str], list[dict[str, Any]]]
"""`score(sequences, precision, reference)`: the columns of docs/protocol.md for each sequence."""


def losslessness(
    trials: Sequence[Trial], prompts: Sequence[Prompt], score: Score
) -> list[tuple[Trial, dict[str, Any]]]:
    """Compare greedy speculative tokens with the plain output of the same precision and backend.

    Returns a pair for each speculative trial that ran: the trial and its `losslessness`. Tokens are
    compared up to the first difference of a request, since what follows has another prefix; each
    such request counts as one mismatch. At a fork `score` tells how close the two best tokens were.
    """
    plain = {
        _target(trial.cell): trial
        for trial in trials
        if trial.ok and trial.cell.method.plain and _greedy(trial.cell)
    }
    found = []
    for trial in trials:
        method = trial.cell.method
        if not trial.ok or method.plain or not _greedy(trial.cell):
            continue
        reference = plain.get(_target(trial.cell))
        result: dict[str, Any] = {
            "reference_method_id": reference.cell.method.method_id if reference else None,
            "tokens_compared": 0,
            "mismatches": 0,
            "smallest_margin": None,
        }
        if reference is not None:
            _compare(result, trial, reference, prompts, score)
        found.append((trial, result))
    return found


def _greedy(cell: Cell) -> bool:
    return cell.method.acceptance.kind == "greedy"


def _target(cell: Cell) -> tuple[str, str, str]:
    return (cell.method.backend, cell.method.precision, cell.method.kv_precision)


def _compare(
    result: dict[str, Any],
    trial: Trial,
    reference: Trial,
    prompts: Sequence[Prompt],
    score: Score,
) -> None:
    forked: list[list[int]] = []
    assert trial.tokens is not None
    assert reference.tokens is not None
    for prompt, ours, theirs in zip(prompts, trial.tokens, reference.tokens, strict=True):
        compared, same = common_prefix(ours, theirs)
        result["tokens_compared"] += compared
        if not same:
            result["mismatches"] += 1
            if compared <= len(theirs):
                forked.append([*prompt.token_ids, *theirs[:compared]])
    if forked:
        precision = trial.cell.method.precision
        margins = [columns["margin"][-1] for columns in score(forked, precision, precision)]
        result["smallest_margin"] = min(margins)


def common_prefix(ours: Sequence[int], theirs: Sequence[int]) -> tuple[int, bool]:
    """How many tokens were compared, the first different one included, and whether none differs.

    Where one list ends early, the missing token is the difference.
    """
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine != other:
            return index + 1, False
    shorter = min(len(ours), len(theirs))
    return (shorter, True) if len(ours) == len(theirs) else (shorter + 1, False)


def quality(
    precisions: Sequence[str],
    baseline: Trial,
    prompts: Sequence[Prompt],
    score: Score,
) -> dict[str, dict[str, Any]]:
    """Score each precision against the baseline's over the block's prompts and its own answers.

    Returns, by precision, the `quality` of docs/records.md: sums over the positions of each
    sequence, in nats. `agree` counts positions where both have the same best token, and
    `near_tie_flips` those where they differ and the reference hardly preferred its own: its two
    best logits lie at most NEAR_TIE apart.
    """
    assert baseline.tokens is not None
    reference = baseline.cell.method.precision
    texts = [
        [*prompt.token_ids, *answer]
        for prompt, answer in zip(prompts, baseline.tokens, strict=True)
    ]
    return {
        precision: {
            "precision": precision,
            "reference": reference,
            "sequences": [
                _sums(prompt.id, columns)
                for prompt, columns in zip(prompts, score(texts, precision, reference), strict=True)
            ],
        }
        for precision in precisions
        if precision != reference
    }


def _sums(prompt_id: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    differs = [
        mine != other for mine, other in zip(columns["top1"], columns["ref_top1"], strict=True)
    ]
    close = [margin <= NEAR_TIE for margin in columns["margin"]]
    return {
        "id": prompt_id,
        "positions": len(differs),
        "agree": differs.count(False),
        "near_tie_flips": sum(
            flipped and near for flipped, near in zip(differs, close, strict=True)
        ),
        "kl_sum": sum(columns["kl"]),
        "nll_sum": -sum(columns["logprob"]),
        "ref_nll_sum": -sum(columns["ref_logprob"]),
    }


def task(
    trial: Trial, prompts: Sequence[Prompt], decode: Callable[[Sequence[int]], str]
) -> dict[str, Any] | None:
    """Grade the answers to prompts that have a reference; None where none has.

    `right` follows the prompts: the last number of the answer is the reference's (true), another
    (false), or there is no number or no reference (null); `graded` tells which have a reference.
    """
    assert trial.tokens is not None
    if not any(prompt.answer for prompt in prompts):
        return None
    right = [
        gsm8k_answers.grade(decode(tokens), prompt.answer, "hash").flexible
        if prompt.answer
        else None
        for prompt, tokens in zip(prompts, trial.tokens, strict=True)
    ]
    return {
        "metric": "gsm8k, flexible",
        "graded": [bool(prompt.answer) for prompt in prompts],
        "right": right,
    }

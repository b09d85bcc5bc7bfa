"""Task accuracy of a method's answers, and its comparison with the baseline's answers."""

from __future__ import annotations

from typing import Any

from harness.comparison import Group, Key
from harness.derive import RecordError
from harness.gsm8k_answers import accuracy, mcnemar, paired_difference

Outcomes = dict[str, bool | None]


def task_accuracy(group: Group, key: Key) -> dict[str, Any] | None:
    """The `task` object of a method, None where no answer was graded.

    `accuracy` has Wilson's interval over prompts. Against the baseline, over the prompts that both
    answered: `difference` with Newcombe's interval for pairs, and McNemar's exact test
    (`only_ours`, `only_theirs`, `p`); all null for the baseline itself. A prompt that was drawn in
    several blocks counts once, by its first answer: greedy answers repeat.
    """
    ours = _outcomes(group, key)
    if not ours:
        return None
    level = group.settings.level
    found: dict[str, Any] = {
        "metric": _metric(group, key),
        "accuracy": accuracy(list(ours.values()), level),
        "difference": None, "only_ours": None, "only_theirs": None, "p": None,
    }  # fmt: skip
    theirs = _outcomes(group, group.baseline)
    shared = [name for name in ours if name in theirs]
    if key != group.baseline and shared:
        pairs = [ours[name] for name in shared], [theirs[name] for name in shared]
        test = mcnemar(*pairs)
        found |= {name: test[name] for name in ("only_ours", "only_theirs", "p")}
        found["difference"] = paired_difference(*pairs, level)
    return found


def _outcomes(group: Group, key: Key) -> Outcomes:
    """By prompt, whether its answer was right; None where it held no number."""
    found: Outcomes = {}
    for _, trial in sorted(group.trials[key].items()):
        if not trial.ok or not trial.task:
            continue
        graded, right = trial.task["graded"], trial.task["right"]
        if not len(graded) == len(right) == len(trial.prompt_ids):
            raise RecordError(f"`task` of block {trial.block} does not follow `prompt_ids`.")
        for name, has_reference, outcome in zip(trial.prompt_ids, graded, right, strict=True):
            if has_reference:
                found.setdefault(name, outcome)
    return found


def _metric(group: Group, key: Key) -> str:
    return next(str(t.task["metric"]) for t in group.trials[key].values() if t.ok and t.task)

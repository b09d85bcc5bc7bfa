"""Acceptance lengths of trained drafters on prompts that were held out, by category."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from backends.tokenizer import Tokenizer
from backends.train.acceptance import Tree, head_accepted, model_accepted, rounds
from backends.train.dialogues import Dialogues, to_batch
from backends.train.generate import generate
from backends.train.network import Llama
from backends.train.students import HeadStudent, ModelStudent, Teaching, teach

GSM8K_PROBLEMS = 40
SPEC_BENCH_EACH = 10
GSM8K = "gsm8k"
_MAX_NEW_TOKENS = 128
_PLACES = 16384
_SPAN = 12


def held_out_prompts(data_root: Path, tokenizer: Tokenizer) -> tuple[list[list[int]], list[str]]:
    """Prompts and categories: the first problems of GSM8K test, the first of each Spec-Bench one.

    Each is one user turn of the chat template, as the workloads gsm8k and spec_bench put it.
    """
    texts: list[tuple[str, str]] = []
    with (data_root / "gsm8k_test.jsonl").open(encoding="utf-8") as lines:
        for _, line in zip(range(GSM8K_PROBLEMS), lines, strict=False):
            texts.append((GSM8K, json.loads(line)["question"]))
    taken: Counter[str] = Counter()
    with (data_root / "spec_bench.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            taken[row["category"]] += 1
            if taken[row["category"]] <= SPEC_BENCH_EACH:
                texts.append((row["category"], row["turns"][0]))
    prompts = [tokenizer.apply_chat_template([{"role": "user", "content": t}]) for _, t in texts]
    return prompts, [category for category, _ in texts]


def held_out_dialogues(target: Llama, data_root: Path, tokenizer: Tokenizer) -> Dialogues:
    """The held-out prompts with the target's greedy answers."""
    prompts, categories = held_out_prompts(data_root, tokenizer)
    answers = generate(
        target,
        prompts,
        [0.0] * len(prompts),
        _MAX_NEW_TOKENS,
        tokenizer.stop_ids,
        places=_PLACES * 8,
    )
    return Dialogues.of(prompts, answers, categories)


def repeats_itself(answer: Sequence[int]) -> bool:
    """True where a span of 12 tokens stands three times: such text is easy to draft."""
    spans = Counter(tuple(answer[at : at + _SPAN]) for at in range(len(answer) - _SPAN + 1))
    return bool(spans) and max(spans.values()) >= 3


@dataclass(frozen=True)
class Score:
    """Acceptance length by category, of all answers and of those that do not repeat themselves."""

    name: str
    all_answers: dict[str, float]
    without_repeats: dict[str, float]

    def lines(self) -> list[str]:
        """Readable rows: GSM8K, the mean over Spec-Bench's categories, and each of them."""
        shown = []
        for label, found in (("all", self.all_answers), ("no repeats", self.without_repeats)):
            others = [value for category, value in found.items() if category != GSM8K]
            each = " ".join(f"{category} {value:.2f}" for category, value in found.items())
            shown.append(f"{self.name} ({label}): Spec-Bench {np.mean(others):.3f}; {each}")
        return shown


def score(
    name: str,
    target: Llama,
    dialogues: Dialogues,
    taps: Sequence[int],
    accepted_by: Callable[[Teaching], torch.Tensor],
) -> Score:
    """Tokens by rounds over the answers of each category."""
    device = str(target.embedding.device)
    counts: dict[bool, dict[str, list[int]]] = {
        repeats: defaultdict(lambda: [0, 0]) for repeats in (False, True)
    }
    lengths = dialogues.prompt_lengths + dialogues.answer_lengths
    order = np.argsort(lengths, kind="stable")
    for rows in np.array_split(order, max(1, int(lengths.sum()) // _PLACES)):
        batch = to_batch(dialogues, rows, device)
        accepted = accepted_by(teach(target, batch, taps)).tolist()
        ids = batch.ids[:, batch.first :].tolist()
        for row, index in enumerate(rows):
            length = int(dialogues.answer_lengths[index])
            tokens, made = rounds(accepted[row][:length])
            found = counts[repeats_itself(ids[row][:length])][str(dialogues.origins[index])]
            found[0] += tokens
            found[1] += made
    categories = list(dict.fromkeys(str(origin) for origin in dialogues.origins))
    every = {
        category: [sum(pair) for pair in zip(*(counts[r][category] for r in counts), strict=True)]
        for category in categories
    }
    return Score(
        name,
        {c: every[c][0] / max(1, every[c][1]) for c in categories},
        {c: counts[False][c][0] / max(1, counts[False][c][1]) for c in categories},
    )


def score_model(target: Llama, student: ModelStudent, dialogues: Dialogues, gamma: int) -> Score:
    """A draft model's chain."""
    return score(
        f"{student.name}, chain of {gamma}",
        target,
        dialogues,
        (),
        lambda teaching: model_accepted(student, teaching, gamma),
    )


def score_head(target: Llama, student: HeadStudent, dialogues: Dialogues, tree: Tree) -> Score:
    """A head's tree, or its chain where top_k is 1."""
    kind = f"chain of {tree.depth}" if tree.top_k == 1 else f"tree {tree}"
    return score(
        f"{student.name}, {kind}",
        target,
        dialogues,
        student.taps,
        lambda teaching: head_accepted(student, teaching, tree),
    )

"""The forms in which GSM8K problems are put to a model.

`zero_shot_chat` the question alone, in a user turn; for models with a short useful context
`study_8shot`    the first 8 train problems worked in one user turn, then the question: the form of
                 the agreement study
`lm_eval_5shot`  plain text, `Question:` / `Answer:`, as lm-evaluation-harness's task `gsm8k`; the
                 examples are the first 5 train problems, where the task draws 5 at random
`cot_8shot`      plain text, `Q:` / `A:`, as its task `gsm8k_cot`, with worked solutions in this
                 project's words (harness/gsm8k_worked.py)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from backends.tokenizer import Tokenizer
from harness.errors import ConfigError, unknown
from harness.gsm8k import Problem
from harness.gsm8k_worked import WORKED

INSTRUCTION = "Solve it step by step. End with the final number alone after ####."
_SPECIAL_STOPS = ("</s>", "<|im_end|>")


@dataclass(frozen=True)
class Form:
    """A form of prompt.

    `chat`: the text is one user turn of the model's chat template. `examples` counts the worked
    train problems, `shown_as` is how they show the final number (harness/gsm8k_answers.py), `stops`
    are the texts that end an answer.
    """

    name: str
    chat: bool
    examples: int
    shown_as: str
    stops: tuple[str, ...]


FORMS = {
    form.name: form
    for form in (
        Form("zero_shot_chat", True, 0, "hash", ()),
        Form("study_8shot", True, 8, "hash", ("Question:",)),
        Form("lm_eval_5shot", False, 5, "hash", ("Question:", *_SPECIAL_STOPS)),
        Form("cot_8shot", False, 8, "sentence", ("Q:", *_SPECIAL_STOPS)),
    )
}


def form_of(name: str, place: str) -> Form:
    """The form called `name`. Raises ConfigError with the near names; `place` is its key."""
    if name not in FORMS:
        raise unknown("form of prompt", name, FORMS, place)
    return FORMS[name]


def text_of(form: Form, problem: Problem, train: Sequence[Problem]) -> str:
    """The prompt's text, before any chat template.

    `train` holds the train problems, of which the first few serve as examples. Raises ConfigError
    where there are too few, or where they are not those that the worked solutions belong to.
    """
    if len(train) < form.examples:
        raise ConfigError(
            f"The form {form.name} works {form.examples} train problems, and the train file "
            f"holds {len(train)}."
        )
    if form.shown_as == "sentence":
        return "".join(_chain_of_thought(train[: form.examples])) + f"Q: {problem.question}\nA:"
    if form.examples:
        shown = [f"Question: {p.question}\nAnswer: {p.answer}\n\n" for p in train[: form.examples]]
        return "".join(shown) + f"Question: {problem.question}\nAnswer:"
    return f"{problem.question}\n{INSTRUCTION}"


def _chain_of_thought(train: Sequence[Problem]) -> list[str]:
    shown = []
    for problem, worked in zip(train, WORKED, strict=True):
        if not problem.question.startswith(worked.begins):
            raise ConfigError(
                f"Train problem {problem.index + 1} begins with {problem.question[:40]!r}, where "
                f"the worked solutions expect {worked.begins!r}. Use the train file of "
                "openai/grade-school-math as it is."
            )
        shown.append(f"Q: {problem.question}\nA: {worked.solution}\n\n")
    return shown


def token_ids(form: Form, text: str, tokenizer: Tokenizer) -> list[int]:
    """Token ids of a prompt, with the beginning-of-text token once where the model has one.

    A chat template writes that token itself; plain text gets it from the tokenizer. Raises
    TokenizerError where a chat form meets a model without a template.
    """
    if form.chat:
        return tokenizer.apply_chat_template([{"role": "user", "content": text}])
    return tokenizer.encode(text, add_bos=True)


def sha256(text: str) -> str:
    """Hash of a prompt's text, by which two runs show that they asked the same."""
    return hashlib.sha256(text.encode()).hexdigest()


def answer_length(tokens: Sequence[int], stops: Sequence[str], tokenizer: Tokenizer) -> int:
    """How many of `tokens` an engine makes that stops as soon as a stop text is complete."""
    if not stops or not _contains(tokenizer.decode(tokens), stops):
        return len(tokens)
    low, high = 1, len(tokens)
    while low < high:  # whether the first n tokens hold a stop text only ever turns true
        middle = (low + high) // 2
        if _contains(tokenizer.decode(tokens[:middle]), stops):
            high = middle
        else:
            low = middle + 1
    return low


def answer_text(tokens: Sequence[int], stops: Sequence[str], tokenizer: Tokenizer) -> str:
    """The answer up to the first stop text, without special tokens."""
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(ends, default=len(text))].strip()


def _contains(text: str, stops: Sequence[str]) -> bool:
    return any(stop in text for stop in stops)

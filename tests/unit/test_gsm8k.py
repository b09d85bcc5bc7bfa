"""GSM8K: reading, prompts, stop texts, and answers graded as lm-evaluation-harness does."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from backends.tokenizer import Tokenizer
from harness import gsm8k, gsm8k_answers, gsm8k_prompts
from harness.errors import ConfigError
from harness.gsm8k import Problem
from harness.gsm8k_worked import WORKED
from tests.fakes.model import metadata

DATA = Path(__file__).parents[3] / "shared" / "data"
ROW = {"question": "How many?", "answer": "1 + 1 = <<1+1=2>>2 apples\n#### 2"}


def write(folder: Path, *rows: Any, split: str = "test") -> Path:
    path = folder / gsm8k.FILES[split]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def train_problems() -> list[Problem]:
    """The train file's first problems as far as the worked solutions need them."""
    return [
        Problem(i, f"{worked.begins} and so on?", f"Because.\n#### {i}")
        for i, worked in enumerate(WORKED)
    ]


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("So 5 + 6 = 11.\n#### 11", "11", "11"),
        ("#### 1,234\nQuestion: next 9", "1234", "9"),  # strict takes the first, flexible the last
        ("#### -5", "-5", "-5"),
        ("#### $18.", None, "18"),  # the strict form allows no dollar sign
        ("#### 18.", "18", "18"),
        ("It costs $1,000.50 in all.", None, "1000.50"),
        ("2 then 3 apples", None, "3"),
        ("no number here", None, None),
        ("", None, None),
        ("I do not know...", None, ".."),  # signs alone: equal to no reference
    ],
)
def test_extraction_with_the_number_sign(
    text: str, strict: str | None, flexible: str | None
) -> None:
    assert gsm8k_answers.strict(text, "hash") == strict
    assert gsm8k_answers.flexible(text) == flexible


def test_extraction_from_a_sentence() -> None:
    assert gsm8k_answers.strict("So 2 + 2 = 4. The answer is 4.", "sentence") == "4"
    assert gsm8k_answers.strict("The answer is 1,250 dollars.", "sentence") == "1250"
    assert gsm8k_answers.strict("#### 4", "sentence") is None


def test_grading() -> None:
    right = gsm8k_answers.grade("#### 1,200", "so\n#### 1200", "hash")
    assert (right.strict, right.flexible) == (True, True)
    half = gsm8k_answers.grade("It is 1200", "so\n#### 1,200", "hash")
    assert (half.strict, half.flexible) == (None, True)
    none = gsm8k_answers.grade("It is unclear", "so\n#### 7", "hash")
    assert (none.strict, none.flexible) == (None, None)
    with pytest.raises(ValueError, match="no final number"):
        gsm8k_answers.grade("7", "so", "hash")


def test_accuracy_counts_an_answer_without_a_number_as_wrong() -> None:
    found = gsm8k_answers.accuracy([True, False, None, True], 0.95)
    assert (found["mean"], found["right"], found["no_number"], found["n"]) == (0.5, 2, 1, 4)
    # Wilson, 2 of 4: (0.5 +- 1.96 * sqrt(0.25/4 + 0.9604/16)...) = 0.1500 to 0.8500
    assert found["ci_low"] == pytest.approx(0.1500, abs=5e-4)
    assert found["ci_high"] == pytest.approx(0.8500, abs=5e-4)
    assert gsm8k_answers.accuracy([], 0.95)["mean"] is None


def test_mcnemar_is_the_exact_binomial_test() -> None:
    ours = [True] * 5 + [False] + [True] * 4
    theirs = [False] * 5 + [True] + [True] * 3 + [None]
    found = gsm8k_answers.mcnemar(ours, theirs)
    assert (found["n"], found["only_ours"], found["only_theirs"]) == (10, 6, 1)
    assert found["p"] == pytest.approx(2 * (1 + 7) / 2**7)
    assert gsm8k_answers.mcnemar([True], [True])["p"] == 1.0
    with pytest.raises(ValueError, match="zip"):
        gsm8k_answers.mcnemar([True], [])


def outcomes(both: int, ours: int, theirs: int, neither: int) -> tuple[list[bool], list[bool]]:
    """Two lists of outcomes with these numbers of pairs."""
    pairs = [(True, True)] * both + [(True, False)] * ours + [(False, True)] * theirs
    pairs += [(False, False)] * neither
    return [a for a, _ in pairs], [b for _, b in pairs]


@pytest.mark.parametrize(
    ("table", "mean", "low", "high"),
    [
        # Newcombe (1998), method 10, 95 %: phi is positive and survives the correction.
        ((36, 12, 2, 0), 0.2, 0.0569, 0.3404),
        # By hand: Wilson's interval of 5 in 10 is 0.5 ± 0.26341, phi = (25 - 5) / 25 = 0.8, so
        # that both ends lie 0.26341 · sqrt(2 - 2 · 0.8) = 0.16659 away.
        ((5, 0, 0, 5), 0.0, -0.16659, 0.16659),
    ],
)
def test_the_difference_of_pairs_is_newcombes(
    table: tuple[int, int, int, int], mean: float, low: float, high: float
) -> None:
    found = gsm8k_answers.paired_difference(*outcomes(*table), 0.95)
    assert found["mean"] == pytest.approx(mean)
    assert found["ci_low"] == pytest.approx(low, abs=1e-4)
    assert found["ci_high"] == pytest.approx(high, abs=1e-4)
    assert found["n"] == sum(table)


def test_the_difference_needs_problems_and_counts_an_answer_without_number_as_wrong() -> None:
    found = gsm8k_answers.paired_difference([None, True], [True, True], 0.95)
    assert found["mean"] == -0.5
    with pytest.raises(ValueError, match="no problem"):
        gsm8k_answers.paired_difference([], [], 0.95)


def test_problems_are_read_with_their_number_of_calculations(tmp_path: Path) -> None:
    write(tmp_path, ROW, {**ROW, "answer": "#### 3"})
    first, second = gsm8k.read("test", tmp_path)
    assert (first.id, first.steps, second.id, second.steps) == ("gsm8k-1", 1, "gsm8k-2", 0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROW, {"question": "q", "answer": "no number"}], "line 2: the answer has no final number"),
        ([{"question": " ", "answer": "#### 2"}], "line 1: a problem needs a text"),
        ([["q", "a"]], "line 1: a problem needs a text"),
        ([], "holds no problems"),
    ],
)
def test_bad_files_are_refused_by_name_and_line(
    tmp_path: Path, rows: list[Any], message: str
) -> None:
    path = write(tmp_path, *rows)
    with pytest.raises(ConfigError, match=message) as caught:
        gsm8k.read("test", tmp_path)
    assert str(path) in str(caught.value)


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, ROW)
    path.write_text(path.read_text() + "{oops\n")
    with pytest.raises(ConfigError, match="line 2: this is no JSON"):
        gsm8k.read("test", tmp_path)


def test_without_file_and_package_both_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without_datasets(name: str, *rest: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_datasets)
    with pytest.raises(ConfigError, match="pip install datasets") as caught:
        gsm8k.read("test", tmp_path)
    assert str(tmp_path / "gsm8k_test.jsonl") in str(caught.value)


def test_the_hub_serves_where_the_file_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hub:
        @staticmethod
        def load_dataset(name: str, part: str, split: str) -> list[Any]:
            assert (name, part, split) == ("openai/gsm8k", "main", "test")
            return [ROW]

    monkeypatch.setitem(__import__("sys").modules, "datasets", Hub)
    assert [p.question for p in gsm8k.read("test", tmp_path)] == ["How many?"]

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(Hub, "load_dataset", fail)
    with pytest.raises(ConfigError, match="could not be fetched: no network"):
        gsm8k.read("test", tmp_path)


def test_forms_of_prompt() -> None:
    train, problem = train_problems(), Problem(0, "How many now?", "#### 2")
    text = {name: gsm8k_prompts.text_of(form, problem, train)
            for name, form in gsm8k_prompts.FORMS.items()}  # fmt: skip
    assert text["zero_shot_chat"] == f"How many now?\n{gsm8k_prompts.INSTRUCTION}"
    for name, count in (("study_8shot", 8), ("lm_eval_5shot", 5)):
        assert text[name].count("Question: ") == count + 1
        assert text[name].startswith("Question: Natalia sold clips and so on?\nAnswer: Because.")
        assert text[name].endswith("\n\nQuestion: How many now?\nAnswer:")
    assert text["cot_8shot"].count("The answer is ") == 8
    assert text["cot_8shot"].endswith("\n\nQ: How many now?\nA:")
    assert len({gsm8k_prompts.sha256(t) for t in text.values()}) == 4
    with pytest.raises(ConfigError, match="works 8 train problems"):
        gsm8k_prompts.text_of(gsm8k_prompts.FORMS["study_8shot"], problem, train[:3])
    with pytest.raises(ConfigError, match="Train problem 8 begins with"):
        gsm8k_prompts.text_of(gsm8k_prompts.FORMS["cot_8shot"], problem, train[::-1])
    with pytest.raises(ConfigError, match="zero_shot_chat"):
        gsm8k_prompts.form_of("zero_shot", "agreement.prompt")


@pytest.mark.skipif(
    not (DATA / "gsm8k_train.jsonl").is_file(), reason="gsm8k_train.jsonl is not there"
)
def test_worked_solutions_end_in_the_train_files_numbers() -> None:
    train = gsm8k.read("train", DATA)
    for problem, worked in zip(train, WORKED, strict=False):
        assert problem.question.startswith(worked.begins)
        graded = gsm8k_answers.grade(worked.solution, problem.answer, "sentence")
        assert (graded.strict, graded.flexible) == (True, True), worked.begins
        assert worked.solution not in problem.answer
    assert (len(train), len(gsm8k.read("test", DATA))) == (7473, 1319)


def test_plain_text_and_templates_have_one_beginning_of_text() -> None:
    """The tokenizer of the tests adds none; a chat form leaves that to the template."""
    template = "<s>{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = Tokenizer(metadata(chat_template=template, bos_token="<s>"))
    chat = gsm8k_prompts.token_ids(gsm8k_prompts.FORMS["zero_shot_chat"], "q", tokenizer)
    assert tokenizer.decode(chat) == "<s>q"
    plain = gsm8k_prompts.token_ids(gsm8k_prompts.FORMS["lm_eval_5shot"], "q", tokenizer)
    assert plain == tokenizer.encode("q")


def test_stop_texts_end_an_answer() -> None:
    tokenizer = Tokenizer(metadata())  # a token a byte
    tokens = tokenizer.encode("so 4\n\nQuestion: and")
    stops = ("Question:", "</s>")
    length = gsm8k_prompts.answer_length(tokens, stops, tokenizer)
    assert tokenizer.decode(tokens[:length]) == "so 4\n\nQuestion:"
    assert gsm8k_prompts.answer_text(tokens, stops, tokenizer) == "so 4"
    assert gsm8k_prompts.answer_length(tokens, ("never",), tokenizer) == len(tokens)
    assert gsm8k_prompts.answer_length([], stops, tokenizer) == 0
    assert gsm8k_prompts.answer_text(tokens, (), tokenizer) == "so 4\n\nQuestion: and"

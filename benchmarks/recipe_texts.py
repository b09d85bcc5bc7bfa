"""The texts that recipes are scored on, out of a finished agreement run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from backends.tokenizer import Tokenizer
from harness import model_file
from harness.errors import ConfigError
from harness.results import read_json
from harness.trace import problems, settings
from harness.trace.columns import FIXED_PREFIX
from harness.trace.store import read_parquet
from harness.trial import tokens_sha256


@dataclass(frozen=True)
class Text:
    """A problem with the answer that is held fixed, and with its reference solution.

    `answer` are token ids behind `prompt`. `solution` is a whole conversation, question and
    reference solution as the chat template writes them; empty where it is not scored.
    """

    problem: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    solution: tuple[int, ...]


def read_texts(results: Path, limit: int, solutions: int, data_root: Path | None) -> list[Text]:
    """The first `limit` problems of an agreement run with mode `fixed_prefix`.

    The first `solutions` of them have one. `data_root` replaces the run's. Raises ConfigError where
    the folder is no such run, has fewer problems, or its prompts cannot be made again as they were.
    """
    config = results / "config.yaml"
    if not config.is_file():
        raise ConfigError(
            f"{results} is no finished agreement run: it has no config.yaml. Make one with `python "
            "-m harness.trace +experiment=qspec_agreement data.root=FOLDER`."
        )
    loaded = OmegaConf.load(config)
    assert isinstance(loaded, DictConfig)
    if data_root is not None:
        loaded.data.root = str(data_root)
    run = settings.read(loaded)
    model = model_file.read(run.model_path)
    tokenizer = Tokenizer(model.metadata)
    answers = {int(entry["request"]): entry for entry in read_json(results / "answers.json")}
    tables = read_json(results / "agreement.json")
    rows = read_parquet(results / tables["trace"])
    rows = rows[rows["mode"] == FIXED_PREFIX].sort_values(["request", "output_position"])
    tokens = {int(str(name)): list(group["token_id"]) for name, group in rows.groupby("request")}
    tasks = problems.read(run, model, tokenizer).tasks
    texts: list[Text] = []
    for task in tasks[:limit]:
        number = task.problem.index
        if number not in answers or not tokens.get(number):
            continue
        _check(results, number, task.tokens, answers[number], tokens[number])
        turns = [
            {"role": "user", "content": task.problem.question},
            {"role": "assistant", "content": task.problem.answer},
        ]
        solution = tokenizer.apply_chat_template(turns, add_generation_prompt=False)
        solution = solution if len(texts) < solutions else []
        texts.append(Text(number, task.tokens, tuple(tokens[number]), tuple(solution)))
    if len(texts) < limit:
        raise ConfigError(
            f"{results} holds {len(texts)} answers, and {limit} are asked for. Give a lower "
            "--limit, or run it with a larger agreement.limit."
        )
    return texts


def _check(
    results: Path, number: int, prompt: tuple[int, ...], entry: dict[str, str], answer: list[int]
) -> None:
    """Raise ConfigError where prompt or answer are not those of the run."""
    for what, ids, key in (
        ("prompt", prompt, "prompt_tokens_sha256"), ("answer", answer, "tokens_sha256"),
    ):  # fmt: skip
        if tokens_sha256(ids) != entry[key]:
            raise ConfigError(
                f"{results / 'answers.json'}: the {what} of problem {number + 1} is not the one "
                "that was recorded. Use the data and the model of that run."
            )

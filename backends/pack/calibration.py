"""Texts to calibrate a quantizer on, out of a JSON-lines file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backends.pack.errors import CheckpointError
from backends.pack.packed import PackedFile
from backends.tokenizer import Tokenizer, TokenizerError


def calibration_texts(path: Path, model: Path, samples: int) -> list[list[int]]:
    """Token ids of the first `samples` rows of `path`, by the tokenizer of the packed `model`.

    A row is `{"text"}`, taken as it is, or `{"question", "answer"}`, put into the chat template as
    a user's and an assistant's turn (plain text where there is none). Raises CheckpointError that
    names file and line for a row of another form, and for a file of too few rows.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(path, f"it cannot be read ({error}).") from error
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if samples < 1 or len(rows) < samples:
        raise CheckpointError(path, f"it has {len(rows)} texts, and {samples} are asked for.")
    metadata = PackedFile(model).metadata
    try:
        tokenizer = Tokenizer(metadata)
        return [
            _tokens(_row(path, number, line), tokenizer, bool(metadata.get("chat_template")))
            for number, line in rows[:samples]
        ]
    except TokenizerError as error:
        raise CheckpointError(model, str(error)) from error


def _row(path: Path, number: int, line: str) -> dict[str, str]:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise CheckpointError(path, f"line {number} is no JSON ({error}).") from error
    for keys in (("text",), ("question", "answer")):
        if isinstance(row, dict) and all(
            isinstance(row.get(key), str) and row[key].strip() for key in keys
        ):
            return {key: row[key] for key in keys}
    raise CheckpointError(
        path, f'line {number} has neither a "text" nor a "question" with its "answer".'
    )


def _tokens(row: dict[str, str], tokenizer: Tokenizer, chat: bool) -> list[int]:
    if "text" in row:
        return tokenizer.encode(row["text"])
    if not chat:
        return tokenizer.encode(f"{row['question']}\n{row['answer']}")
    turns = [
        {"role": "user", "content": row["question"]},
        {"role": "assistant", "content": row["answer"]},
    ]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=False)

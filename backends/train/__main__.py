"""Command line: python -m backends.train answers | drafters."""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

from backends.pack.errors import CheckpointError
from backends.pack.packed import PackedFile
from backends.tokenizer import TokenizerError

_ROOT = Path(__file__).resolve().parents[2]


class TrainError(Exception):
    """What keeps training from starting, as a sentence that says what to do."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m backends.train",
        description="Train drafters for a packed model on its own answers (docs/drafters.md). "
        "Needs PyTorch ('make backend-train') and, for more than a try, a GPU.",
    )
    parser.add_argument(
        "--target",
        type=Path,
        default=_ROOT / "models/smollm2-135m-instruct.sqm",
        help="the packed model; default: %(default)s",
    )
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--device", default="cuda", help="default: %(default)s")
    commands = parser.add_subparsers(dest="command", required=True)
    answers = commands.add_parser(
        "answers",
        help="let the target write prompts and answers",
        description="Writes --out, a compressed npz file of token ids.",
    )
    answers.add_argument("--data-root", type=Path, required=True, help="has gsm8k_train.jsonl")
    answers.add_argument("--scale", type=float, default=1.0, help="factor of all counts")
    answers.add_argument(
        "--origins", nargs="+", metavar="NAME", help="kinds of prompts; default: every kind"
    )
    answers.add_argument("--out", type=Path, required=True)
    drafters = commands.add_parser(
        "drafters",
        help="train a draft model, a head, and a head for the draft model",
        description="Writes model.sqm, head.sqm and model-head.sqm into --out and prints their "
        "acceptance lengths on held-out prompts.",
    )
    drafters.add_argument("--dialogues", type=Path, nargs="+", required=True)
    drafters.add_argument(
        "--data-root", type=Path, required=True, help="has gsm8k_test.jsonl and spec_bench.jsonl"
    )
    drafters.add_argument("--steps", type=int, default=896, help="default: %(default)s")
    drafters.add_argument("--places", type=int, default=24576, help="tokens a step")
    drafters.add_argument(
        "--start",
        type=Path,
        metavar="FOLDER",
        help="go on from the model.sqm and head.sqm in FOLDER; default: from the target's weights",
    )
    drafters.add_argument("--out", type=Path, required=True, help="folder")
    return parser


def _answers(options: argparse.Namespace) -> None:
    import torch

    from backends.tokenizer import Tokenizer
    from backends.train.answers import write_answers
    from backends.train.prompts import Counts, PromptWriter

    train_file = _needed(options.data_root / "gsm8k_train.jsonl")
    counts = Counts().scaled(options.scale)
    if options.origins is not None:
        unknown = sorted(set(options.origins) - set(vars(counts)))
        if unknown:
            raise TrainError(
                f"There are no prompts of the kind {', '.join(unknown)}. Choose among "
                f"{', '.join(sorted(vars(counts)))}."
            )
        counts = counts.only(options.origins)
    packed, target = _target(options)
    places = 1_200_000 if options.device == "cuda" else 4096
    torch.manual_seed(options.seed)
    writer = PromptWriter(target, Tokenizer(packed.metadata), random.Random(options.seed), places)
    begun = time.monotonic()
    contents = writer.contents(counts, train_file)
    print(f"prompts in {time.monotonic() - begun:.0f} s", flush=True)
    dialogues = write_answers(writer, contents, longest_prompt=1000)
    dialogues.save(options.out)
    print(
        f"Wrote {options.out}: {len(dialogues)} dialogues, {int(dialogues.answer_lengths.sum())} "
        f"tokens of answers, in {time.monotonic() - begun:.0f} s"
    )


def _drafters(options: argparse.Namespace) -> None:
    import torch

    from backends.tokenizer import Tokenizer
    from backends.train.dialogues import Dialogues
    from backends.train.distil import Plan
    from backends.train.evaluate import held_out_dialogues
    from backends.train.recipe import train_drafters

    for name in ("gsm8k_test.jsonl", "spec_bench.jsonl"):
        _needed(options.data_root / name)
    parts = []
    for path in options.dialogues:
        try:
            parts.append(Dialogues.load(_needed(path)))
        except (KeyError, ValueError, zipfile.BadZipFile) as error:
            raise TrainError(
                f"{path} holds no dialogues ({error}). Write them with 'python -m backends.train "
                "answers'."
            ) from error
    dialogues = sum(parts[1:], parts[0])
    if options.start is not None:
        for name in ("model.sqm", "head.sqm"):
            _needed(options.start / name)
    packed, target = _target(options)
    torch.manual_seed(options.seed)
    held_out = held_out_dialogues(target, options.data_root, Tokenizer(packed.metadata))
    options.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(options.steps, options.places, options.seed)
    train_drafters(packed, target, dialogues, held_out, plan, options.out, start=options.start)


def _needed(path: Path) -> Path:
    if not path.is_file():
        raise TrainError(f"The file {path} does not exist. docs/drafters.md says what it is.")
    return path


def _target(options: argparse.Namespace) -> tuple[PackedFile, Any]:
    """The packed target and its network on the device."""
    import torch

    from backends.train.recipe import load, why_not

    packed = PackedFile(options.target)
    reason = why_not(packed)
    if reason is not None:
        raise TrainError(f"Drafters cannot be trained for {options.target}: {reason}.")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise TrainError(
            "PyTorch finds no CUDA device here. Train on a machine with a GPU, or give "
            "'--device cpu' to try a few steps."
        )
    dtype = torch.float16 if options.device == "cuda" else torch.float32
    return packed, load(packed, options.device, dtype)[0]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit status (1 after a named error)."""
    options = _parser().parse_args(arguments)
    try:
        if importlib.util.find_spec("torch") is None:
            raise TrainError(
                f"PyTorch is not installed for {sys.executable}. Run 'make backend-train' and "
                "start this command with .venvs/train/bin/python."
            )
        if options.command == "answers":
            _answers(options)
        else:
            _drafters(options)
    except (CheckpointError, TokenizerError, TrainError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How drafters are made for a target: shapes, rates and the order of the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from backends.pack.packed import PackedFile
from backends.pack.shapes import DRAFT_TOKENS
from backends.train.acceptance import Tree
from backends.train.dialogues import LONGEST_ANSWER, Dialogues, to_batch
from backends.train.distil import Plan, train
from backends.train.evaluate import score_head, score_model
from backends.train.export import write_head, write_model
from backends.train.generate import generate
from backends.train.network import Llama, Sizes, packed_weights
from backends.train.optimizer import Rates
from backends.train.quantized import GROUP
from backends.train.starts import (
    HeadShape,
    head_student,
    model_student,
    trained_head,
    trained_model,
)
from backends.train.students import (
    HeadStudent,
    ModelStudent,
    Student,
    Teaching,
    Vocabulary,
    teach,
)

VOCABULARY = 8192
MODEL_HEAD_VOCABULARY = 3072
MODEL_RATES = Rates(body=1e-3, vocabulary=5e-4, vectors=1e-3)
HEAD_RATES = Rates(body=2e-3, vocabulary=5e-4, vectors=2e-3)
MODEL_HEAD_STEPS_SHARE = 0.3
CHAIN = Tree(depth=4, top_k=1, nodes=4)
TREE = Tree(depth=6, top_k=8, nodes=24)
GAMMA = 4
_PROBE_ROWS = 64
_LEAST_LAYERS = 5
_LARGEST_VOCABULARY = 65536  # ids are kept in 16 bits


@dataclass(frozen=True)
class Recipe:
    """The shapes of a target's three drafters."""

    model_layers: tuple[int, ...]
    head: HeadShape
    model_head: HeadShape

    @classmethod
    def of(cls, sizes: Sizes) -> Recipe:
        """Shapes in proportion to the target's, as they did well for the demo model.

        The draft model begins as the first two layers, one in the middle and the last two. The
        head reads the stream at 2/5 and 7/10 of the depth and behind the last layer.
        """
        depth, inner = sizes.num_layers, sizes.intermediate_size
        layers = (0, 1, depth // 2 - 1, depth - 2, depth - 1)
        few = max(1, sizes.num_heads // 2)
        return cls(
            layers,
            HeadShape(
                intermediate_size=_whole_groups(inner * 5 // 3),
                num_heads=sizes.num_heads,
                num_kv_heads=sizes.num_kv_heads,
                taps=(depth * 2 // 5, depth * 7 // 10, depth),
            ),
            HeadShape(
                intermediate_size=_whole_groups(inner // 2),
                num_heads=few,
                num_kv_heads=2 if few % 2 == 0 else 1,
                taps=(2, len(layers) - 1, len(layers)),
            ),
        )


def _whole_groups(width: int) -> int:
    return max(1, round(width / GROUP)) * GROUP


def why_not(packed: PackedFile) -> str | None:
    """What about a target this training cannot do, or None."""
    sizes = Sizes.of(packed.metadata)
    extra = [
        name
        for name in ("layers.0.qkv_bias", "layers.0.q_norm", DRAFT_TOKENS)
        if name in packed.names
    ]
    if packed.metadata["architecture"] != "llama" or extra or packed.metadata.get("rope_scaling"):
        return "it is no plain Llama (no biases, norms of heads, rotary scaling or hadamard)"
    if sizes.num_layers < _LEAST_LAYERS:
        return f"it has {sizes.num_layers} layers, and a draft model takes {_LEAST_LAYERS}"
    if sizes.vocab_size > _LARGEST_VOCABULARY:
        return f"it has more than {_LARGEST_VOCABULARY} tokens"
    widths = (sizes.hidden_size, sizes.intermediate_size, sizes.num_heads * sizes.head_dim)
    if any(width % GROUP for width in widths):
        return f"its widths {widths} are no multiples of {GROUP}"
    return None


def load(packed: PackedFile, device: str, dtype: torch.dtype) -> tuple[Llama, torch.Tensor | None]:
    """A packed model, and the tokens of its head's rows where its vocabulary is reduced."""
    weights = packed_weights(packed, device, dtype)
    tokens = weights.pop("draft_tokens", None)
    if tokens is not None:
        tokens = torch.tensor(packed.dequantize("draft_tokens")).long().to(device)
    return Llama(Sizes.of(packed.metadata), weights), tokens


def frequent(dialogues: Dialogues, count: int, vocab_size: int, device: str) -> torch.Tensor:
    """The `count` tokens that stand most often in the answers."""
    counts = dialogues.answer_counts(vocab_size)
    chosen = np.argsort(-counts, kind="stable")[:count].copy()
    share = counts[chosen].sum() / counts.sum()
    print(f"vocabulary: {count} of {vocab_size} tokens cover {share:.4f} of the answers")
    return torch.from_numpy(chosen).to(device)


def new_head(
    name: str,
    target: Llama,
    shape: HeadShape,
    vocabulary: Vocabulary,
    dialogues: Dialogues,
    seed: int,
    token_of_row: torch.Tensor | None = None,
) -> HeadStudent:
    """An untrained head; the scale of its features is measured over a few dialogues."""
    teaching = probed(target, dialogues, seed, shape.taps, token_of_row)
    generator = torch.Generator(target.embedding.device).manual_seed(seed)
    dtype = torch.bfloat16
    return head_student(name, target, shape, vocabulary, teaching, generator, dtype)


def probed(
    target: Llama,
    dialogues: Dialogues,
    seed: int,
    taps: Sequence[int],
    token_of_row: torch.Tensor | None = None,
) -> Teaching:
    """What the target says about a few dialogues."""
    rows = np.random.default_rng(seed).permutation(len(dialogues))[:_PROBE_ROWS]
    batch = to_batch(dialogues, rows, str(target.embedding.device))
    return teach(target, batch, taps, token_of_row)


def train_drafters(
    packed: PackedFile,
    target: Llama,
    dialogues: Dialogues,
    held_out: Dialogues,
    plan: Plan,
    out: Path,
    *,
    start: Path | None = None,
) -> None:
    """Train, score and write `model.sqm`, `head.sqm` and `model-head.sqm` into `out`.

    The first two go on from the files of those names in `start`, or begin anew.
    """
    device, vocab = str(target.embedding.device), target.sizes.vocab_size
    recipe = Recipe.of(target.sizes)
    if start is None:
        vocabulary = Vocabulary.of(frequent(dialogues, VOCABULARY, vocab, device), vocab)
        model = model_student("model", target, recipe.model_layers, vocabulary, torch.bfloat16)
        head = new_head("head", target, recipe.head, vocabulary, dialogues, plan.seed)
    else:
        model = trained_model("model", PackedFile(start / "model.sqm"), device, torch.bfloat16)
        before = PackedFile(start / "head.sqm")
        probe = probed(target, dialogues, plan.seed, before.metadata["target"]["taps"])
        head = trained_head("head", before, target, probe, torch.bfloat16)
    students: list[tuple[Student, Rates]] = [(model, MODEL_RATES), (head, HEAD_RATES)]
    train(target, dialogues, students, plan)
    write_model(out / "model.sqm", model, packed.metadata)
    write_head(out / "head.sqm", head, packed.metadata)
    report(target, held_out, model, head)
    train_model_head(out, recipe.model_head, dialogues, plan, device)


def report(target: Llama, held_out: Dialogues, model: ModelStudent, head: HeadStudent) -> None:
    """Print the acceptance lengths."""
    scores = [
        score_model(target, model, held_out, GAMMA),
        score_head(target, head, held_out, CHAIN),
        score_head(target, head, held_out, TREE),
    ]
    for found in scores:
        print("\n".join(found.lines()), flush=True)


def train_model_head(
    out: Path, shape: HeadShape, dialogues: Dialogues, plan: Plan, device: str
) -> None:
    """Train and write the head of the draft model in `out`, on the draft model's own answers."""
    packed = PackedFile(out / "model.sqm")
    target, tokens = load(packed, device, torch.bfloat16)
    assert tokens is not None
    own = _own_answers(target, tokens, dialogues, plan, packed.metadata["stop_ids"])
    vocab = target.sizes.vocab_size
    vocabulary = Vocabulary.of(frequent(own, MODEL_HEAD_VOCABULARY, vocab, device), vocab, tokens)
    head = new_head("head", target, shape, vocabulary, own, plan.seed, tokens)
    steps = Plan(max(1, round(plan.steps * MODEL_HEAD_STEPS_SHARE)), plan.places, plan.seed)
    train(target, own, [(head, HEAD_RATES)], steps, token_of_row=tokens)
    write_head(out / "model-head.sqm", head, packed.metadata, small=True)


def _own_answers(
    model: Llama, tokens: torch.Tensor, dialogues: Dialogues, plan: Plan, stops: list[int]
) -> Dialogues:
    """Greedy answers of a draft model to a quarter of the prompts."""
    order = np.random.default_rng(plan.seed).permutation(len(dialogues))
    rows = [int(row) for row in order[: max(1, len(dialogues) // 4)]]
    prompts = [dialogues.prompt(row) for row in rows]
    answers = generate(
        model,
        prompts,
        [0.0] * len(rows),
        LONGEST_ANSWER,
        stops,
        places=plan.places * 80,
        token_of_row=tokens,
    )
    return Dialogues.of(prompts, answers, [str(dialogues.origins[row]) for row in rows])

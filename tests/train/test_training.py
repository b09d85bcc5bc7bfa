"""Losses, optimizers, the loop, and the files that come out."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from backends.pack.packed import PackedFile
from backends.train import recipe
from backends.train.dialogues import to_batch
from backends.train.distil import Plan, rate_share, train
from backends.train.export import write_head, write_model
from backends.train.optimizer import Rates, orthogonalized
from backends.train.quantized import affine8, fake_quantize, prepared, to_tensor
from backends.train.starts import HeadShape, model_student, trained_head, trained_model
from backends.train.students import Vocabulary, teach
from tests.train.tiny import SIZES, VOCAB, dialogues

RATES = Rates(body=5e-3, vocabulary=5e-3, vectors=5e-3)
SHAPE = HeadShape(intermediate_size=64, num_heads=4, num_kv_heads=2, taps=(1, 3))
TARGET = {
    "name": "Tiny",
    "content_hash": "c0",
    "hidden_size": 64,
    "num_layers": 3,
    "stop_ids": [0],
}


def test_the_loss_sees_the_vocabulary_alone_and_counts_valid_places(tiny) -> None:
    teaching = teach(tiny, to_batch(dialogues(tiny, 3), np.arange(3), "cpu"), ())
    vocabulary = Vocabulary.of(torch.arange(VOCAB // 2), VOCAB)
    q = torch.randn(*teaching.valid.shape, VOCAB // 2)
    loss, agreement = vocabulary.loss(q[:, :-1], teaching, 1)
    total, right, count = 0.0, 0, 0
    for row, column in teaching.valid.nonzero().tolist():
        if column == 0:
            continue
        p = teaching.logits[row, column].softmax(-1)[: VOCAB // 2]
        log_q = q[row, column - 1].log_softmax(-1)
        best = int(teaching.logits[row, column].argmax())
        total += float(-(p * log_q).sum())
        total += float(-log_q[best]) if best < VOCAB // 2 else 0.0
        right += int(log_q.argmax()) == best
        count += 1
    # The count takes the columns that the shift leaves.
    assert float(loss) == pytest.approx(total / (2 * count), rel=1e-4)
    assert float(agreement) == pytest.approx(right / count)


def test_weights_in_training_are_those_of_the_file() -> None:
    w = torch.randn(32, 128)
    w[3, 64:] = 0.25
    stored = to_tensor("layers.0.o", w).dequantize()
    np.testing.assert_allclose(stored, fake_quantize(w).numpy(), atol=1e-6)
    assert torch.equal(fake_quantize(w, 0.0), w)
    assert to_tensor("feature_fc", w).kind == "f16"
    assert to_tensor("final_norm", w[0]).kind == "f32"
    np.testing.assert_allclose(affine8(w).dequantize(), w.numpy(), atol=0.02)
    v = w.clone().requires_grad_()
    fake_quantize(v).sum().backward()
    assert torch.equal(v.grad, torch.ones_like(w))


def test_orthogonalized_matrices_have_singular_values_near_one() -> None:
    for shape in ((48, 16), (16, 48)):
        values = torch.linalg.svdvals(orthogonalized(torch.randn(*shape)))
        assert values.min() > 0.5
        assert values.max() < 1.5


def test_the_rate_rises_then_falls() -> None:
    shares = [rate_share(step, 200) for step in range(200)]
    assert shares[0] < shares[5] == max(shares) == 1.0
    assert shares[5:] == sorted(shares[5:], reverse=True)
    assert shares[-1] < 0.03


def test_training_makes_drafters_agree_and_files_hold_what_was_trained(tiny, tmp_path) -> None:
    made = dialogues(tiny, 12)
    vocabulary = Vocabulary.of(torch.arange(VOCAB), VOCAB)
    model = model_student("model", tiny, (0, 2), vocabulary, torch.float32)
    head = recipe.new_head("head", tiny, SHAPE, vocabulary, made, 1)
    head.dtype, head.embedding = torch.float32, head.embedding.float()
    plan = Plan(steps=30, places=4 * 192, seed=1)
    teaching = teach(tiny, to_batch(made, np.arange(12), "cpu"), SHAPE.taps)
    ones = torch.ones(())
    before = [student.loss(teaching, ones) for student in (model, head)]
    train(tiny, made, [(model, RATES), (head, RATES)], plan)
    after = [student.loss(teaching, ones) for student in (model, head)]
    for (old, _), (new, agreements) in zip(before, after, strict=True):
        assert new.item() < 0.7 * old.item()
        assert float(agreements[-1]) > 0.3

    write_model(tmp_path / "model.sqm", model, TARGET)
    write_head(tmp_path / "head.sqm", head, TARGET, small=True)
    packed = PackedFile(tmp_path / "model.sqm")
    packed.verify()
    kept = prepared(model.parameters, torch.float32)
    for name, w in kept.items():
        np.testing.assert_allclose(packed.dequantize(name), w.detach().numpy(), atol=1e-6)
    loaded, tokens = recipe.load(packed, "cpu", torch.float32)
    assert tokens is not None
    states, _ = loaded.states(teaching.batch.ids, teaching.mask)
    own, _ = model.network().states(teaching.batch.ids, teaching.mask)
    torch.testing.assert_close(states, own.detach(), atol=1e-4, rtol=1e-4)

    file = PackedFile(tmp_path / "head.sqm")
    file.verify()
    assert file.metadata["target"] == {
        "content_hash": "c0", "hidden_size": 64, "num_layers": 3, "taps": [1, 3],
    }  # fmt: skip
    # The scale of the features has moved into the projection.
    features = torch.cat([teaching.taps[tap] for tap in SHAPE.taps], -1)
    scaled = torch.cat(head.scaled(teaching.taps), -1)
    expected = scaled @ head.parameters["feature_fc"].detach().T
    found = features @ torch.tensor(file.dequantize("feature_fc")).T
    torch.testing.assert_close(found, expected, atol=0.15 * expected.std().item(), rtol=0.05)


def test_training_goes_on_from_its_files(tiny, tmp_path) -> None:
    made = dialogues(tiny, 12)
    vocabulary = Vocabulary.of(torch.arange(5, VOCAB), VOCAB)
    model = model_student("model", tiny, (0, 2), vocabulary, torch.float32)
    head = recipe.new_head("head", tiny, SHAPE, vocabulary, made, 1)
    head.dtype, head.embedding = torch.float32, head.embedding.float()
    train(tiny, made, [(model, RATES), (head, RATES)], Plan(steps=5, places=4 * 192, seed=1))
    write_model(tmp_path / "model.sqm", model, TARGET)
    write_head(tmp_path / "head.sqm", head, TARGET)

    again = trained_model("model", PackedFile(tmp_path / "model.sqm"), "cpu", torch.float32)
    probe = recipe.probed(tiny, made, 1, SHAPE.taps)
    packed = PackedFile(tmp_path / "head.sqm")
    other = trained_head("head", packed, tiny, probe, torch.float32)
    teaching = teach(tiny, to_batch(made, np.arange(12), "cpu"), SHAPE.taps)
    for left, found in ((model, again), (head, other)):
        assert torch.equal(found.vocabulary.tokens, left.vocabulary.tokens)
        expected, _ = left.loss(teaching, torch.ones(()))
        loss, _ = found.loss(teaching, torch.zeros(()))
        assert loss.item() == pytest.approx(expected.item(), rel=0.01)
        loss.backward()
        assert all(w.grad is not None for w in found.parameters.values())


def test_too_few_dialogues_for_a_batch_are_an_error(tiny) -> None:
    made = dialogues(tiny, 2)
    with pytest.raises(ValueError, match="fill no batch of 4000 tokens"):
        train(tiny, made, [], Plan(1, 4000, 1))


def test_prompts_are_written_by_the_target_and_from_train_questions_alone(tmp_path: Path) -> None:
    from backends.train.prompts import Counts, PromptWriter

    train_file = tmp_path / "gsm8k_train.jsonl"
    train_file.write_text('{"question": "Mia has three boxes of ten pens. How many pens?"}\n')
    writer = PromptWriter.__new__(PromptWriter)
    writer.random = random.Random(1)
    writer._around = "<user>", "<end>"
    asked: list[str] = []

    def write(texts: list[str], *_: object) -> list[str]:
        asked.extend(texts)
        return ["what comes next" + writer.tokenizer.eos_token for _ in texts]

    class Tokenizer:
        eos_token = "<end>"
        stop_ids = (2,)

        def decode(self, _: list[int]) -> str:
            return "<start>"

    writer.tokenizer = Tokenizer()
    writer._write = write
    counts = Counts().scaled(0.001)
    assert vars(counts.only(["code"])) == {**dict.fromkeys(vars(counts), 0), "code": 8}
    contents = writer.contents(counts, train_file)
    assert contents["train"] == ["Mia has three boxes of ten pens. How many pens?"]
    assert all(text.startswith("Mia has three") for text in contents["arithmetic"])
    assert contents["free"][0] == "what comes next"
    assert all(text.startswith("Summarize: ") for text in contents["summary"])
    assert all(text.endswith("?") for text in contents["passage"])
    assert len(contents["opened"]) == 16


def test_shapes_follow_the_target_and_are_the_demo_models_own() -> None:
    from dataclasses import replace

    demo = replace(
        SIZES, num_layers=30, hidden_size=576, intermediate_size=1536, num_heads=9, num_kv_heads=3
    )
    found = recipe.Recipe.of(demo)
    assert found.model_layers == (0, 1, 14, 28, 29)
    assert found.head == HeadShape(2560, 9, 3, (12, 21, 30))
    assert found.model_head == HeadShape(768, 4, 2, (2, 4, 5))

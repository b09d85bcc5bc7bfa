"""Packed models onto other 4-bit grids: rounding, rotation, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from backends.llama_weights import llama_state
from backends.pack.__main__ import main
from backends.pack.calibration import calibration_texts
from backends.pack.errors import CheckpointError
from backends.pack.gguf_import import pack_gguf
from backends.pack.hadamard import transform
from backends.pack.packed import PackedFile
from backends.pack.quantize import PYTHON, Recipe, quantize
from backends.pack.rotation import rotate
from backends.pack.round_to_nearest import to_affine4, to_affine8
from tests.fakes import tiny_llama

Floats = npt.NDArray[np.float32]
TOKENS = [5, 100, 7, 7, 250, 31, 2, 90]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A packed Llama with f16 layers."""
    tiny_llama.write_gguf(tmp_path / "tiny.gguf", layers="F16", head="F16")
    pack_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.sqm")
    return tmp_path / "tiny.sqm"


def logits(state: dict[str, Floats], sizes: dict[str, Any], online: bool = False) -> Any:
    """A plain Llama in float64, with transformers' names and half-split rotary order."""
    heads, kv_heads, width = sizes["num_heads"], sizes["num_kv_heads"], sizes["head_dim"]
    w = {name: value.astype(np.float64) for name, value in state.items()}
    n = len(TOKENS)

    def norm(x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + sizes["rms_norm_eps"]) * weight

    angles = np.arange(n)[:, None] / sizes["rope_theta"] ** (np.arange(width // 2) * 2 / width)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def turned(x: Any) -> Any:
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    hidden = w["model.embed_tokens.weight"][TOKENS]
    for layer in range(sizes["num_layers"]):
        at = f"model.layers.{layer}"
        x = norm(hidden, w[f"{at}.input_layernorm.weight"])
        q, k, v = (
            (x @ w[f"{at}.self_attn.{part}_proj.weight"].T).reshape(n, -1, width) for part in "qkv"
        )
        q, k = turned(q), np.repeat(turned(k), heads // kv_heads, 1)
        v = np.repeat(v, heads // kv_heads, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(width)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        attended = np.einsum("hij,jhd->ihd", share, v).reshape(n, -1)
        hidden = hidden + attended @ w[f"{at}.self_attn.o_proj.weight"].T
        x = norm(hidden, w[f"{at}.post_attention_layernorm.weight"])
        gate, up = (x @ w[f"{at}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        inner = gate / (1 + np.exp(-gate)) * up
        if online:
            inner = transform(inner.astype(np.float32)).astype(np.float64)
        hidden = hidden + inner @ w[f"{at}.mlp.down_proj.weight"].T
    return norm(hidden, w["model.norm.weight"]) @ w["lm_head.weight"].T


def test_a_rotated_model_computes_the_same_function(model: Path) -> None:
    packed = PackedFile(model)
    state = dict(llama_state(packed))
    rotated = rotate(state, packed.metadata)
    expected = logits(state, packed.metadata)
    found = logits(rotated, packed.metadata, online=True)
    assert np.abs(found - expected).max() < 2e-4 * np.abs(expected).max()
    # Without the online part it is another function, so that the test can fail.
    assert np.abs(logits(rotated, packed.metadata) - expected).max() > 0.1


def test_rotation_flattens_outliers() -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "num_layers": 0}
    embedding = np.ones((4, 64), np.float32)
    embedding[:, 3] = 100.0
    norm = np.ones(64, np.float32)
    state = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding,
             "model.norm.weight": norm}  # fmt: skip
    rotated = rotate(state, sizes)["model.embed_tokens.weight"]
    assert np.abs(rotated).max() < 25
    assert np.allclose(np.linalg.norm(rotated, axis=1), np.linalg.norm(embedding, axis=1))


def test_weights_that_lie_on_a_grid_are_kept() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (8, 64)).astype(np.float32)
    codes[:, ::32], codes[:, 1::32] = 0, 15
    weights = codes * np.float32(0.25) - np.float32(1.5)
    for clip in (False, True):
        assert np.array_equal(to_affine4(weights, 32, clip).dequantize(), weights)


def test_clipping_never_has_a_larger_error_and_helps_where_one_weight_stands_out() -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((32, 128)).astype(np.float32)
    weights[:, 5] = 6.0

    def errors(clip: bool) -> Floats:
        difference = to_affine4(weights, 64, clip).dequantize() - weights
        found: Floats = (difference.reshape(32, 2, 64) ** 2).sum(-1)
        return found

    assert (errors(True) <= errors(False) + 1e-6).all()
    assert errors(True).sum() < 0.95 * errors(False).sum()


def test_eight_bits_round_to_half_a_step_and_zeros_stay() -> None:
    weights = np.random.default_rng(2).standard_normal((4, 64)).astype(np.float32)
    weights[1] = 0.0
    found = to_affine8(weights, 32).dequantize()
    steps = np.abs(weights.reshape(4, 2, 32)).max(-1) / 127
    assert (np.abs(found - weights).reshape(4, 2, 32) <= 0.51 * steps[..., None] + 1e-3).all()
    assert (found[1] == 0).all()


@pytest.mark.parametrize("rotated", [False, True])
def test_a_quantized_file_holds_the_rounded_layers(model: Path, rotated: bool) -> None:
    out = model.with_name("out.sqm")
    metadata = quantize(model, out, Recipe("rtn", 32, rotated))
    packed, source = PackedFile(out), PackedFile(model)
    packed.verify()
    assert metadata["source"]["made_from"] == source.metadata["content_hash"]
    assert metadata.get("hadamard") == (["down"] if rotated else None)
    assert packed.metadata["tied_head"] is not rotated
    state, found = dict(llama_state(source)), dict(llama_state(packed))
    if rotated:
        state = rotate(state, source.metadata)
    for name, value in state.items():
        if ".layers." not in name:
            assert np.abs(found[name] - value).max() <= (0.02 if rotated else 0)
        elif value.ndim == 2:
            assert np.array_equal(found[name], to_affine4(value, 32).dequantize())
        else:
            assert np.array_equal(found[name], value)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe("rtn", 16), "a group of 16 is none of 32, 64, 128"),
        (Recipe("rtn", 64), r"down'.*a group of 64 does not divide its 96 columns"),
        (Recipe("gptq", 32), "gptq needs texts to calibrate on; give --calibration"),
    ],
)
def test_what_cannot_be_quantized_is_named(model: Path, recipe: Recipe, message: str) -> None:
    out = model.with_name("out.sqm")
    with pytest.raises(CheckpointError, match=message):
        quantize(model, out, recipe)
    assert not out.exists()


def test_without_llmcompressor_the_command_says_how_to_get_it(model: Path) -> None:
    recipe = Recipe("awq", 32, texts=[[1, 2, 3]])
    with pytest.raises(CheckpointError, match="Make it with `make backend-quantize`"):
        quantize(model, model.with_name("out.sqm"), recipe, python=model.with_name("nowhere"))


def test_a_rotated_model_is_not_quantized_again(model: Path) -> None:
    once = model.with_name("once.sqm")
    quantize(model, once, Recipe("rtn", 32, True))
    with pytest.raises(CheckpointError, match="a rotated model"):
        quantize(once, model.with_name("twice.sqm"), Recipe("rtn", 32))


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_calibration_texts_are_tokens_of_texts_and_of_problems(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", {"text": "ab"}, {"question": "a", "answer": "b"})
    first, second = calibration_texts(path, model, 2)
    assert first
    assert len(second) > len(first) - 1


@pytest.mark.parametrize(
    ("row", "samples", "message"),
    [
        ({"text": " "}, 1, 'line 1 has neither a "text"'),
        ({"question": "a"}, 1, 'line 1 has neither a "text"'),
        ({"text": "a"}, 2, "it has 1 texts, and 2 are asked for"),
    ],
)
def test_bad_calibration_files_are_named(
    model: Path, tmp_path: Path, row: Any, samples: int, message: str
) -> None:
    path = write_lines(tmp_path / "c.jsonl", row)
    with pytest.raises(CheckpointError, match=message) as caught:
        calibration_texts(path, model, samples)
    assert str(path) in str(caught.value)


def test_the_command_writes_the_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = model.with_name("cli.sqm")
    assert main(["quantize", str(model), "--group", "32", "--rotate", "--out", str(out)]) == 0
    assert "rtn_int4" in capsys.readouterr().out
    assert PackedFile(out).metadata["source"]["recipe"] == "rotated, rtn, group 32"
    assert main(["quantize", str(model), "--group", "31", "--out", str(out)]) == 1
    assert "a group of 31" in capsys.readouterr().err


@pytest.mark.backend
@pytest.mark.skipif(not PYTHON.is_file(), reason="run `make backend-quantize`")
@pytest.mark.parametrize(("method", "rotated"), [("gptq", True), ("awq", False)])
def test_llmcompressors_grid_is_imported(model: Path, method: str, rotated: bool) -> None:
    rng = np.random.default_rng(0)
    texts = [list(map(int, rng.integers(3, 250, 40))) for _ in range(8)]
    out = model.with_name("out.sqm")
    quantize(model, out, Recipe(method, 32, rotated, texts=texts))
    packed, source = PackedFile(out), PackedFile(model)
    state, found = dict(llama_state(source)), dict(llama_state(packed))
    if rotated:
        state = rotate(state, source.metadata)
    for name, value in state.items():
        if ".layers." in name and value.ndim == 2 and method == "gptq":
            error = np.linalg.norm(found[name] - value) / np.linalg.norm(value)
            assert 0.01 < error < 0.3, name
    kinds = {entry["kind"] for name, entry in packed.metadata["tensors"].items()
             if name.endswith((".qkv", ".o", ".gate_up", ".down"))}  # fmt: skip
    assert kinds <= {"affine4", "affine4z"}

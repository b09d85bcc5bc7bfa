"""Draft heads of the published layouts as packed files."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.pack.__main__ import main
from backends.pack.errors import CheckpointError
from backends.pack.head_import import pack_head
from backends.pack.hf_import import pack_checkpoint
from backends.pack.packed import PackedFile
from backends.pack.positions import adjacent_pairs
from backends.pack.tiles import gate_up_order
from tests.fakes.draft_head import DRAFT_VOCAB, LAYOUTS, TAPS, draft_head
from tests.fakes.tiny_checkpoint import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    VOCAB,
    tiny,
)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.sqm"
    pack_checkpoint(tiny().write(tmp_path / "target"), path)
    return path


def packed(tmp_path: Path, target: Path, head: Any, **options: Any) -> PackedFile:
    out = tmp_path / "head.sqm"
    pack_head(head.write(tmp_path / "checkpoint"), target, out, **options)
    found = PackedFile(out)
    found.verify()
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_weight_is_kept_in_its_place(tmp_path: Path, target: Path, layout: str) -> None:
    head = draft_head(layout)
    file = packed(tmp_path, target, head)
    prefix = next(name for name in head.weights if "q_proj" in name).partition(".self_attn")[0]
    w = {name.removeprefix(f"{prefix}."): value for name, value in head.weights.items()}
    q, k, v = (w[f"self_attn.{part}_proj.weight"] for part in "qkv")
    pairs = adjacent_pairs(HEADS + KV_HEADS, HEAD_DIM)
    qkv = np.concatenate([np.concatenate([q, k])[pairs], v])
    np.testing.assert_array_equal(file.dequantize("layers.0.qkv"), qkv)
    both = np.concatenate([w["mlp.gate_proj.weight"], w["mlp.up_proj.weight"]])
    np.testing.assert_array_equal(file.dequantize("layers.0.gate_up"), both[gate_up_order(INNER)])
    np.testing.assert_array_equal(file.dequantize("layers.0.o"), w["self_attn.o_proj.weight"])
    np.testing.assert_array_equal(file.dequantize("layers.0.down"), w["mlp.down_proj.weight"])
    same = {"layers.0.mlp_norm": "post_attention_layernorm.weight"}
    if layout.endswith("eagle3"):
        same |= {
            "feature_fc": "fc.weight",
            "embed_norm": "input_layernorm.weight",
            "layers.0.attn_norm": "hidden_norm.weight",
            "final_norm": "norm.weight",
            "head": "lm_head.weight",
        }
        tokens = head.tensors["d2t"] + np.arange(DRAFT_VOCAB)
        np.testing.assert_array_equal(file.dequantize("draft_tokens"), tokens)
    else:
        same |= {
            "fc": "fc.weight" if layout == "eagle2" else "fusion_fc.weight",
            "embed": "embed_tokens.weight",
        }
    for name, source in same.items():
        np.testing.assert_array_equal(file.dequantize(name), w[source])
    assert set(file.names) == {
        *same, "layers.0.qkv", "layers.0.gate_up", "layers.0.o", "layers.0.down",
    } | ({"draft_tokens"} if layout.endswith("eagle3") else set())  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_metadata_name_the_target_and_its_states(
    tmp_path: Path, target: Path, layout: str
) -> None:
    file = packed(tmp_path, target, draft_head(layout))
    eagle3 = layout.endswith("eagle3")
    assert file.metadata["architecture"] == ("eagle3" if eagle3 else "eagle2")
    assert file.metadata["target"] == {
        "content_hash": PackedFile(target).metadata["content_hash"],
        "hidden_size": HIDDEN,
        "num_layers": LAYERS,
        "taps": [*TAPS] if eagle3 else [LAYERS + 1],
    }
    assert file.metadata["vocab_size"] == VOCAB


def test_a_fusion_with_bias_keeps_it(tmp_path: Path, target: Path) -> None:
    head = draft_head("speculators eagle", fc_bias=True)
    file = packed(tmp_path, target, head)
    np.testing.assert_array_equal(file.dequantize("fc_bias"), head.weights["fusion_fc.bias"])


def test_a_stream_of_normed_features_is_written_down(tmp_path: Path, target: Path) -> None:
    file = packed(tmp_path, target, draft_head("speculators eagle3", normed=True))
    assert file.metadata["norm_before_residual"] is True


def test_the_targets_own_embedding_is_not_stored_twice(tmp_path: Path, target: Path) -> None:
    head = draft_head("eagle2")
    head.tensors["embed_tokens.weight"] = tiny().tensors["model.embed_tokens.weight"]
    assert "embed" not in packed(tmp_path, target, head).names


def test_rows_of_an_unsorted_vocabulary_are_put_in_order(tmp_path: Path, target: Path) -> None:
    head = draft_head("eagle3")
    tokens = head.tensors["d2t"] + np.arange(DRAFT_VOCAB)
    order = np.random.default_rng(2).permutation(DRAFT_VOCAB)
    head.tensors["d2t"] = tokens[order] - np.arange(DRAFT_VOCAB)
    head.tensors["lm_head.weight"] = head.tensors["lm_head.weight"][order]
    file = packed(tmp_path, target, head)
    np.testing.assert_array_equal(file.dequantize("draft_tokens"), tokens)
    np.testing.assert_array_equal(file.dequantize("head"), head.weights["lm_head.weight"])


@pytest.mark.parametrize(
    ("config", "given", "taps"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 0]}, None, [1, 2, 0]),
        # SGLang's spelling counts layers whose output is meant.
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]}}, None, [1, 2, 2]),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 0]}, [0, 0, 3], [0, 0, 3]),
    ],
)
def test_states_are_read_as_the_settings_mean_them(
    tmp_path: Path, target: Path, config: dict[str, Any], given: Any, taps: list[int]
) -> None:
    head = draft_head("eagle3")
    del head.config["eagle_aux_hidden_state_layer_ids"]
    head.config |= config
    assert packed(tmp_path, target, head, taps=given).metadata["target"]["taps"] == taps


def test_without_settings_the_states_are_eagle3s_own(tmp_path: Path) -> None:
    deep = tiny(config={"num_hidden_layers": 8})
    for layer in range(LAYERS, 8):
        for name in list(deep.tensors):
            if name.startswith("model.layers.0."):
                deep.tensors[name.replace(".0.", f".{layer}.", 1)] = deep.tensors[name]
    pack_checkpoint(deep.write(tmp_path / "deep"), tmp_path / "deep.sqm")
    head = draft_head("eagle3")
    del head.config["eagle_aux_hidden_state_layer_ids"]
    file = packed(tmp_path, tmp_path / "deep.sqm", head)
    assert file.metadata["target"]["taps"] == [2, 4, 5]


def change_config(head: Any, **settings: Any) -> None:
    head.config |= settings


def set_tensor(head: Any, name: str, value: Any) -> None:
    head.tensors[name] = value


REFUSED = [
    ("eagle3", lambda h: change_config(h, vocab_size=VOCAB + 32), "drafts only for the model"),
    ("eagle3", lambda h: change_config(h, num_hidden_layers=2), "heads of one layer"),
    ("eagle3", lambda h: change_config(h, norm_before_fc=True), "'norm_before_fc' is on"),
    ("eagle3", lambda h: h.tensors.pop("norm.weight"), "'norm.weight': it is missing"),
    ("eagle3", lambda h: set_tensor(h, "extra.weight", np.ones(3, np.float16)), "'extra.weight'"),
    ("eagle3", lambda h: set_tensor(h, "d2t", np.zeros(DRAFT_VOCAB, np.int64) - 1), "different"),
    (
        "eagle3",
        lambda h: change_config(h, eagle_aux_hidden_state_layer_ids=[0, 1, 9]),
        "reads state 9 of its target, which has states 0 to 3",
    ),
    (
        "eagle3",
        lambda h: change_config(h, eagle_aux_hidden_state_layer_ids=[0, 1]),
        "'fc.weight': its shape",
    ),
    ("speculators eagle", lambda h: change_config(h, layernorms=True), "'layernorms' is on"),
    (
        "speculators eagle3",
        lambda h: change_config(h, speculators_model_type="mlp"),
        "'mlp' is unsupported",
    ),
    (
        "speculators eagle3",
        lambda h: change_config(h, norm_before_residual=None),
        "neither true nor false",
    ),
    (
        "speculators eagle3",
        lambda h: h.config.pop("transformer_layer_config"),
        "no 'transformer_layer_config'",
    ),
    ("eagle2", lambda h: h.tensors.pop("fc.weight"), "no draft head of a known layout"),
]


@pytest.mark.parametrize(("layout", "change", "message"), REFUSED)
def test_what_cannot_be_packed_is_named_and_nothing_is_written(
    tmp_path: Path, target: Path, layout: str, change: Any, message: str
) -> None:
    head = draft_head(layout)
    change(head)
    with pytest.raises(CheckpointError) as error:
        packed(tmp_path, target, head)
    assert message in str(error.value)
    assert not (tmp_path / "head.sqm").exists()


def test_the_command_says_what_it_wrote(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = draft_head("eagle3").write(tmp_path / "checkpoint")
    out = tmp_path / "head.sqm"
    assert main(["head", str(folder), "--target", str(target), "--output", str(out)]) == 0
    assert f"Wrote {out}" in capsys.readouterr().out
    assert main(["head", str(folder), "--target", str(out), "--output", str(out)]) == 1
    assert "is itself a draft head" in capsys.readouterr().err


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_a_pickle_that_names_a_function_is_not_run(tmp_path: Path, target: Path) -> None:
    head = draft_head("eagle2")
    folder = head.write(tmp_path / "checkpoint")
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"fc.weight": Evil()}))
    with pytest.raises(CheckpointError, match=r"'builtins\.print', which is no plain tensor"):
        pack_head(folder, target, tmp_path / "head.sqm")


@pytest.mark.parametrize("content", [b"", b"no zip file"])
def test_a_damaged_pytorch_file_is_named(tmp_path: Path, target: Path, content: bytes) -> None:
    folder = draft_head("eagle2").write(tmp_path / "checkpoint")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        pack_head(folder, target, tmp_path / "head.sqm")

"""Which tensors a packed file may have: draft heads and reduced vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.pack.errors import CheckpointError
from backends.pack.shapes import check_shapes

HIDDEN, VOCAB, REDUCED = 64, 300, 40
F16 = {"kind": "f16", "group": 0}
F32 = {"kind": "f32", "group": 0}


def described(shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    return {
        name: {"rows": rows, "cols": cols, **(F32 if cols == 1 else F16)}
        for name, (rows, cols) in shapes.items()
    }


def head(architecture: str, **changes: Any) -> dict[str, Any]:
    """Metadata of a head with no tensor that it may leave out."""
    eagle3 = architecture == "eagle3"
    shapes = {
        "layers.0.qkv": (128, (2 if eagle3 else 1) * HIDDEN),
        "layers.0.o": (HIDDEN, 64),
        "layers.0.gate_up": (192, HIDDEN),
        "layers.0.down": (HIDDEN, 96),
        "layers.0.mlp_norm": (HIDDEN, 1),
    }
    if eagle3:
        shapes |= {"feature_fc": (HIDDEN, 3 * 96), "embed_norm": (HIDDEN, 1)}
        shapes |= {"layers.0.attn_norm": (HIDDEN, 1), "final_norm": (HIDDEN, 1)}
    else:
        shapes["fc"] = (HIDDEN, 2 * HIDDEN)
    width = 96 if eagle3 else HIDDEN
    target = {"content_hash": "t", "hidden_size": width, "num_layers": 4}
    return {
        "architecture": architecture,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_layers": 1,
        "num_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 32,
        "vocab_size": VOCAB,
        "tied_head": False,
        "target": target | {"taps": [0, 2, 4] if eagle3 else [5]},
        "tensors": described(shapes),
    } | changes


def refusal(metadata: dict[str, Any]) -> str:
    try:
        check_shapes(Path("head.sqm"), metadata)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("architecture", ["eagle2", "eagle3"])
def test_a_head_needs_nothing_that_its_target_has(architecture: str) -> None:
    assert refusal(head(architecture)) == ""


@pytest.mark.parametrize("architecture", ["eagle2", "eagle3"])
@pytest.mark.parametrize("missing", ["layers.0.qkv", "layers.0.mlp_norm", "fc", "feature_fc",
                                     "embed_norm", "layers.0.attn_norm", "final_norm"])  # fmt: skip
def test_what_it_needs_is_named(architecture: str, missing: str) -> None:
    metadata = head(architecture)
    if metadata["tensors"].pop(missing, None) is not None:
        assert f"tensor {missing!r}: it is missing" in refusal(metadata)


def test_an_eagle2_head_may_have_norms_embedding_head_and_bias() -> None:
    metadata = head("eagle2")
    metadata["tensors"] |= described(
        {
            "layers.0.attn_norm": (HIDDEN, 1),
            "final_norm": (HIDDEN, 1),
            "fc_bias": (HIDDEN, 1),
            "embed": (VOCAB, HIDDEN),
            "head": (VOCAB, HIDDEN),
        }
    )
    assert refusal(metadata) == ""


def test_a_reduced_vocabulary_shortens_the_head() -> None:
    metadata = head("eagle3")
    metadata["tensors"]["draft_tokens"] = {"rows": REDUCED, "cols": 1, "kind": "i32", "group": 0}
    assert refusal(metadata) == ""
    metadata["tensors"] |= described({"head": (VOCAB, HIDDEN)})
    assert f"tensor 'head': it is {VOCAB} x {HIDDEN}" in refusal(metadata)
    metadata["tensors"] |= described({"head": (REDUCED, HIDDEN)})
    assert refusal(metadata) == ""
    metadata["tensors"]["draft_tokens"]["kind"] = "f32"
    assert "tensor 'draft_tokens': its kind 'f32' does not fit" in refusal(metadata)


def test_a_head_is_not_tied_and_can_tell_features_by_their_width() -> None:
    assert "'tied_head' is true" in refusal(head("eagle3", tied_head=True))
    target = {"content_hash": "t", "num_layers": 4}
    narrow = head("eagle3", target=target | {"hidden_size": HIDDEN, "taps": [4]})
    assert "cannot take features of width 64" in refusal(narrow)
    wide = head("eagle2", target=target | {"hidden_size": 96, "taps": [5]})
    assert "cannot take features of width 96" in refusal(wide)
    assert "its metadata is incomplete" in refusal(head("eagle2", target={}))

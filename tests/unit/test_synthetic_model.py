"""A model of the configuration that has a shape and a seed instead of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.model_file import open_model
from tests.fakes.model import write_model

SHAPE = {
    "name": "made up", "seed": 3, "hidden_size": 64, "intermediate_size": 96, "num_layers": 2,
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 100000, "max_position": 512,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tied_head": False,
}  # fmt: skip


def config(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """A synthetic `model` that takes the tokenizer of a small packed file."""
    file = write_model(tmp_path / "text.sqm")
    return {"path": None, "tokenizer_from": str(file), "synthetic": {**SHAPE, **changes}}


def test_a_worker_is_asked_for_the_shape(tmp_path: Path) -> None:
    model = open_model(config(tmp_path))
    assert model.request() == {"synthetic": SHAPE}
    assert model.metadata["vocab_size"] == 100000
    assert model.metadata["stop_ids"] == []


def test_the_hash_is_of_shape_and_seed(tmp_path: Path) -> None:
    one = open_model(config(tmp_path)).content_hash
    assert open_model(config(tmp_path)).content_hash == one
    assert open_model(config(tmp_path, seed=4)).content_hash != one


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "model.synthetic.num_layers=0"),
        ({"hidden_siz": 5}, "hidden_siz"),
    ],
)
def test_a_wrong_shape_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_model(config(tmp_path, **changes))


def test_a_path_beside_a_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either a `path` or a `synthetic`"):
        open_model({**config(tmp_path), "path": "x.sqm"})


def test_the_tokenizer_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"model\.tokenizer_from"):
        open_model({"path": None, "synthetic": SHAPE})

"""Trained drafters as packed files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from backends.pack.packed import write_packed
from backends.pack.shapes import DRAFT_TOKENS
from backends.pack.tiles import Tensor, Tokens
from backends.train.quantized import affine8, to_tensor
from backends.train.students import HeadStudent, ModelStudent

_SOURCE = {"file": "backends/train", "sha256": None, "format": "trained", "licence": "apache-2.0"}


def write_model(path: Path, student: ModelStudent, target: Mapping[str, Any]) -> str:
    """Write a draft model; return its content hash."""
    metadata = {**_common(student, target), "architecture": "llama"}
    return write_packed(path, metadata, _tensors(student, student.parameters))


def write_head(
    path: Path, student: HeadStudent, target: Mapping[str, Any], *, small: bool = False
) -> str:
    """Write a head for the packed target with this metadata; return its content hash.

    `small` keeps the projection of the target's states in 8 bits, not 16.
    """
    parameters = dict(student.parameters)
    parameters["feature_fc"] = parameters["feature_fc"] / student.tap_scale
    metadata = {
        **_common(student, target),
        "architecture": "eagle3",
        "target": {
            "content_hash": target["content_hash"],
            "hidden_size": target["hidden_size"],
            "num_layers": target["num_layers"],
            "taps": list(student.taps),
        },
    }
    tensors = _tensors(student, parameters)
    if small:
        tensors["feature_fc"] = affine8(parameters["feature_fc"])
    return write_packed(path, metadata, tensors)


def _common(student: ModelStudent | HeadStudent, target: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{target['name']} {student.name}",
        **student.sizes.metadata(),
        "tied_head": False,
        "source": _SOURCE,
        "weight_format": "affine4",
        "dequantized_baseline": True,
        # The target's own serve; a copy would be a tenth of the file.
        "tokenizer": None,
        "chat_template": None,
        "stop_ids": target["stop_ids"],
    }


def _tensors(
    student: ModelStudent | HeadStudent, parameters: Mapping[str, torch.Tensor]
) -> dict[str, Tensor]:
    tensors = {name: to_tensor(name, w) for name, w in parameters.items()}
    tokens = student.vocabulary.tokens.cpu().numpy().astype(np.int32)
    return {**tensors, DRAFT_TOKENS: Tokens(tokens)}

"""The published layouts of draft heads: how each names its tensors and settings.

EAGLE-1 and -2 (Li et al. 2024): one layer without a norm in front of attention, over `fc` of
embedding and the target's final state. EAGLE-3 (Li et al. 2025): `fc` over three states of the
target, one layer over norms of embedding and feature, a vocabulary of its own. The speculators
library (vLLM project) stores both under other names. Names and meanings were checked against the
loaders of vLLM and of the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backends.pack.checkpoint import Checkpoint
from backends.pack.errors import CheckpointError

# Settings that change the computation, and are refused when they are on.
_REFUSED = ("norm_before_fc", "fc_norm", "norm_output", "layernorms")


@dataclass(frozen=True)
class Layout:
    """Where a checkpoint keeps what a head needs.

    `layer` is the prefix of the decoder layer, `fusion` the name of the projection. `config` is the
    table of dimensions. `taps` are None where the checkpoint leaves them to the default.
    """

    name: str
    architecture: str
    layer: str
    fusion: str
    config: dict[str, Any]
    taps: tuple[int, ...] | None
    normed_stream: bool

    def default_taps(self, num_layers: int) -> tuple[int, ...]:
        """What the layout's own code reads of a target of so many layers."""
        if self.architecture == "eagle2":
            return (num_layers + 1,)
        return (2, num_layers // 2, num_layers - 3)


def find_layout(checkpoint: Checkpoint) -> Layout:
    """The layout of a draft head's checkpoint. Raises CheckpointError where it is none known."""
    config = checkpoint.config
    path = checkpoint.folder / "config.json"
    for key in _REFUSED:
        if config.get(key):
            raise CheckpointError(path, f"{key!r} is on, which changes the head; unsupported.")
    kind = config.get("speculators_model_type")
    if kind is not None:
        return _speculators(kind, config, path)
    if checkpoint.has("midlayer.self_attn.q_proj.weight"):
        normed = bool(config.get("norm_before_residual", False))
        taps = _taps(config)
        return Layout("EAGLE-3", "eagle3", "midlayer", "fc", config, taps, normed)
    if checkpoint.has("fc.weight") and checkpoint.has("layers.0.self_attn.q_proj.weight"):
        return Layout("EAGLE-2", "eagle2", "layers.0", "fc", config, None, False)
    raise checkpoint.error(
        "it is no draft head of a known layout (EAGLE-1, EAGLE-2, EAGLE-3, speculators). Pack a "
        "whole model with 'python -m backends.pack import'."
    )


def _speculators(kind: Any, config: dict[str, Any], path: Any) -> Layout:
    table = config.get("transformer_layer_config")
    if not isinstance(table, dict):
        raise CheckpointError(path, "it has no 'transformer_layer_config'.")
    if kind == "eagle":
        return Layout("speculators", "eagle2", "transformer", "fusion_fc", table, None, False)
    if kind == "eagle3":
        normed = config.get("norm_before_residual")
        if not isinstance(normed, bool):
            raise CheckpointError(path, "'norm_before_residual' is neither true nor false.")
        return Layout("speculators", "eagle3", "layers.0", "fc", table, _taps(config), normed)
    raise CheckpointError(
        path, f"speculators_model_type {kind!r} is unsupported; supported are eagle and eagle3."
    )


def _taps(config: dict[str, Any]) -> tuple[int, ...] | None:
    """The states that config.json names; `eagle_config` counts layers whose output is meant."""
    key = "eagle_aux_hidden_state_layer_ids"
    if config.get(key):
        return _integers(config[key])
    nested = config.get("eagle_config") or {}
    if nested.get(key):
        return tuple(layer + 1 for layer in _integers(nested[key]))
    return None


def _integers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)

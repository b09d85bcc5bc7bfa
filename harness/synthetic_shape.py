"""Models and draft heads without a file: a shape and a seed, checked before a worker sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import ConfigError, refuse_unknown_keys

HEAD_ARCHITECTURE = "eagle3"
"""The one layout of draft head that workers draw from a seed."""
_SIZES = (
    "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "vocab_size", "max_position",
)  # fmt: skip
_SHAPE = ("name", "seed", *_SIZES, "rope_theta", "rms_norm_eps", "tied_head")
_TARGET = ("hidden_size", "num_layers", "taps")


def checked_model(shape: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The shape of a model; `place` is its configuration key. Raises ConfigError that names it."""
    refuse_unknown_keys(shape, _SHAPE, place)
    return _checked(shape, place)


def checked_drafter(shape: Any, place: str) -> dict[str, Any]:
    """The shape of a drafter: a model's, or with `architecture` a draft head's.

    A head says which hidden states of what model it reads (`target`: `hidden_size`, `num_layers`
    and `taps`, as docs/packed-format.md counts them) and how many rows its reduced vocabulary has
    (`draft_vocab_size`; left out: every token). Raises ConfigError that names the key.
    """
    if not isinstance(shape, Mapping):
        raise ConfigError(f"{place}: this is a shape, as docs/protocol.md lists its keys.")
    if "architecture" not in shape:
        return checked_model(shape, place)
    if shape["architecture"] != HEAD_ARCHITECTURE:
        raise ConfigError(
            f"{place}.architecture={shape['architecture']}: draft heads without a file are "
            f"{HEAD_ARCHITECTURE}. Leave it out for a model."
        )
    refuse_unknown_keys(shape, (*_SHAPE, "architecture", "target", "draft_vocab_size"), place)
    checked = _checked(shape, place)
    _check_target(checked.get("target"), f"{place}.target")
    rows = checked.get("draft_vocab_size", checked["vocab_size"])
    if not _counts(rows) or rows > checked["vocab_size"]:
        raise ConfigError(
            f"{place}.draft_vocab_size={rows}: this is a whole number from 1 to vocab_size."
        )
    return checked


def _checked(shape: Mapping[str, Any], place: str) -> dict[str, Any]:
    for key in _SHAPE:
        if key not in shape:
            raise ConfigError(f"{place}.{key} is missing.")
    for key in _SIZES:
        if not _counts(shape[key]):
            raise ConfigError(f"{place}.{key}={shape[key]}: this is a whole number from 1.")
    return dict(shape)


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_target(target: Any, place: str) -> None:
    if not isinstance(target, Mapping):
        raise ConfigError(f"{place}: a head names here what it reads: {', '.join(_TARGET)}.")
    refuse_unknown_keys(target, _TARGET, place)
    for key in _TARGET:
        if key not in target:
            raise ConfigError(f"{place}.{key} is missing.")
    for key in _TARGET[:2]:
        if not _counts(target[key]):
            raise ConfigError(f"{place}.{key}={target[key]}: this is a whole number from 1.")
    taps, most = target["taps"], target["num_layers"] + 1
    valid = isinstance(taps, list) and taps and all(tap in range(most + 1) for tap in taps)
    if not valid:
        raise ConfigError(f"{place}.taps={taps}: this lists hidden states from 0 to {most}.")

"""Which tensors a packed file has, and their shapes: models, draft heads, reduced vocabularies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from backends.pack.errors import CheckpointError
from backends.pack.tiles import GROUPS, KINDS

HEADS = ("eagle2", "eagle3")
DRAFT_TOKENS = "draft_tokens"
COLUMNS = "_columns"


def expected_shapes(metadata: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Name -> (rows, cols) of every tensor of a model of these dimensions; norms have cols 1."""
    hidden, inner = metadata["hidden_size"], metadata["intermediate_size"]
    queries = metadata["num_heads"] * metadata["head_dim"]
    keys = metadata["num_kv_heads"] * metadata["head_dim"]
    shapes = {"head": (metadata["vocab_size"], hidden), "final_norm": (hidden, 1)}
    if not metadata["tied_head"]:
        shapes["embed"] = (metadata["vocab_size"], hidden)
    for layer in range(metadata["num_layers"]):
        for part, shape in (
            ("qkv", (queries + 2 * keys, hidden)),
            ("o", (hidden, queries)),
            ("gate_up", (2 * inner, hidden)),
            ("down", (hidden, inner)),
            ("attn_norm", (hidden, 1)),
            ("mlp_norm", (hidden, 1)),
        ):
            shapes[f"layers.{layer}.{part}"] = shape
    return shapes


def optional_shapes(metadata: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Name -> (rows, cols) of the tensors that a model of these dimensions may have besides."""
    width = metadata["head_dim"]
    rows = (metadata["num_heads"] + 2 * metadata["num_kv_heads"]) * width
    parts = {"qkv_bias": rows, "q_norm": width, "k_norm": width}
    return {
        f"layers.{layer}.{part}": (length, 1)
        for layer in range(metadata["num_layers"])
        for part, length in parts.items()
    }


def column_shapes(shapes: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Name -> (rows, cols) of the orders of columns that matrices of a model's layers may have."""
    matrices = ("qkv", "o", "gate_up", "down")
    return {
        name + COLUMNS: (cols, 1)
        for name, (_, cols) in shapes.items()
        if name.rpartition(".")[2] in matrices
    }


def head_shapes(
    metadata: Mapping[str, Any], present: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Name -> (rows, cols) of the tensors of a draft head, of the optional ones those `present`.

    `metadata` is a head's table (docs/packed-format.md, "Draft heads"). Raises KeyError or
    TypeError where its entry `target` is incomplete.
    """
    hidden, inner = metadata["hidden_size"], metadata["intermediate_size"]
    queries = metadata["num_heads"] * metadata["head_dim"]
    keys = metadata["num_kv_heads"] * metadata["head_dim"]
    eagle3 = metadata["architecture"] == "eagle3"
    shapes = {}
    for layer in range(metadata["num_layers"]):
        named = f"layers.{layer}"
        shapes[f"{named}.qkv"] = (queries + 2 * keys, hidden * (2 if eagle3 and not layer else 1))
        shapes[f"{named}.o"] = (hidden, queries)
        shapes[f"{named}.gate_up"] = (2 * inner, hidden)
        shapes[f"{named}.down"] = (hidden, inner)
        shapes[f"{named}.mlp_norm"] = (hidden, 1)
        shapes[f"{named}.attn_norm"] = (hidden, 1)
    shapes["final_norm"] = (hidden, 1)
    optional = {
        "embed": (metadata["vocab_size"], hidden),
        "head": (metadata["vocab_size"], hidden),
    }
    if eagle3:
        target = metadata["target"]
        shapes["feature_fc"] = (hidden, len(target["taps"]) * target["hidden_size"])
        shapes["embed_norm"] = (hidden, 1)
    else:
        shapes["fc"] = (hidden, 2 * hidden)
        optional["fc_bias"] = (hidden, 1)
        for name in ("layers.0.attn_norm", "final_norm"):
            optional[name] = shapes.pop(name)
    return shapes | {name: shape for name, shape in optional.items() if name in present}


def with_draft_tokens(
    shapes: Mapping[str, tuple[int, int]], described: Mapping[str, Any]
) -> dict[str, tuple[int, int]]:
    """`shapes` with a head of as many rows as `draft_tokens` names tokens, if it is there."""
    if DRAFT_TOKENS not in described:
        return dict(shapes)
    rows = described[DRAFT_TOKENS]["rows"]
    reduced = {DRAFT_TOKENS: (rows, 1)}
    if "head" in shapes:
        reduced["head"] = (rows, shapes["head"][1])
    return {**shapes, **reduced}


def check_shapes(path: Path, metadata: Mapping[str, Any]) -> None:
    """Raise CheckpointError where the tensors are not those of a model of these dimensions."""
    described = metadata["tensors"]
    drafts = metadata["architecture"] in HEADS
    if metadata["tied_head"] and (drafts or DRAFT_TOKENS in described):
        raise CheckpointError(path, "'tied_head' is true for a draft head or reduced vocabulary.")
    orders: dict[str, tuple[int, int]] = {}
    try:
        if drafts:
            _check_feature_width(path, metadata)
            expected = head_shapes(metadata, described)
        else:
            expected = expected_shapes(metadata)
            orders = column_shapes(expected)
        expected = with_draft_tokens(expected, described)
    except (KeyError, TypeError) as error:
        raise CheckpointError(path, f"its metadata is incomplete ({error!r}).") from None
    for name, shape in optional_shapes(metadata).items():
        # What one layer has, all have.
        if f"layers.0.{name.rpartition('.')[2]}" in described:
            expected[name] = shape
    expected |= {name: shape for name, shape in orders.items() if name in described}
    for name in sorted(expected.keys() | described.keys()):
        if name not in described:
            raise CheckpointError(path, "it is missing.", name)
        if name not in expected:
            raise CheckpointError(path, "it does not belong to a model of this shape.", name)
        entry, (rows, cols) = described[name], expected[name]
        try:
            kind, group, shape = entry["kind"], entry["group"], (entry["rows"], entry["cols"])
        except (KeyError, TypeError):
            raise CheckpointError(path, "its description is incomplete.", name) from None
        vector = "i32" if name == DRAFT_TOKENS or name.endswith(COLUMNS) else "f32"
        if kind not in KINDS or (kind == vector) != (cols == 1):
            raise CheckpointError(path, f"its kind {kind!r} does not fit.", name)
        if shape != (rows, cols):
            raise CheckpointError(
                path, f"it is {shape[0]} x {shape[1]} where the model needs {rows} x {cols}.", name
            )
        grouped = kind.startswith("affine")
        if group not in (GROUPS if grouped else (0,)):
            raise CheckpointError(path, f"group {group!r} is none of 32, 64 and 128.", name)
        if kind != vector and cols % (group if grouped else 32):
            raise CheckpointError(
                path, f"its {cols} columns are no multiple of {group if grouped else 32}.", name
            )


def _check_feature_width(path: Path, metadata: Mapping[str, Any]) -> None:
    """An eagle2 head takes one feature as wide as itself; an eagle3 head tells its own features
    from the target's by their width."""
    target, hidden = metadata["target"], metadata["hidden_size"]
    width = len(target["taps"]) * target["hidden_size"]
    if (width == hidden) != (metadata["architecture"] == "eagle2"):
        raise CheckpointError(
            path,
            f"a head of architecture {metadata['architecture']!r} and width {hidden} cannot take "
            f"features of width {width}.",
        )

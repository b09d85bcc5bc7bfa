"""Shapes of a draft: a chain, a tree, or one of several chosen while a run goes on.

A shape is the JSON object of docs/protocol.md. An entry of `methods` may leave parts of it to the
configuration: a chain without a length stands for one method a draft length, a list of shapes for
one method each, and `auto` without candidates for those of its drafter below.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import ConfigError, refuse_unknown_keys, unknown
from harness.vocabulary import MAX_DRAFTED, MAX_GROWN, SHAPES

Shape = dict[str, Any]

NONE: Shape = {"kind": "none"}
_CHAINS: tuple[Shape, ...] = tuple({"kind": "chain", "gamma": gamma} for gamma in (1, 2, 3, 4, 6))
_TREES: tuple[Shape, ...] = (
    {"kind": "tree", "depth": 3, "top_k": 3, "nodes": 7},
    {"kind": "tree", "depth": 4, "top_k": 4, "nodes": 15},
    {"kind": "tree", "depth": 5, "top_k": 8, "nodes": 24},
)
CANDIDATES: Mapping[str, tuple[Shape, ...]] = {
    "self": _CHAINS,
    "ngram": (*_CHAINS, {"kind": "chain", "gamma": 10}),
    "model": (*_CHAINS, *_TREES),
    "head": (*_CHAINS, *_TREES),
    "cascade": tuple({"kind": "chain", "gamma": gamma} for gamma in (3, 4, 6, 8)),
}
"""What `auto` chooses among where an entry names no candidates, besides plain decoding."""
_TREE_DRAFTERS = ("self", "model", "head")
_ID_DIGITS = 6


def shapes_of(
    given: Any, drafter: Mapping[str, Any], draft_lengths: Sequence[int], place: str
) -> list[Shape]:
    """The shapes that an entry stands for, one method each. Raises ConfigError naming the key."""
    kind = str(drafter["kind"])
    if kind == "none":
        if given not in (None, "none"):
            raise ConfigError(f"{place}: a method without a drafter has no shape.")
        return [dict(NONE)]
    if isinstance(given, list):
        if not given:
            raise ConfigError(f"{place}: the list of shapes is empty.")
        return [
            shape
            for number, one in enumerate(given)
            for shape in shapes_of(one, drafter, draft_lengths, f"{place}[{number}]")
        ]
    shape = {"kind": given or "chain"} if given is None or isinstance(given, str) else dict(given)
    if shape == {"kind": "chain"}:
        return [{"kind": "chain", "gamma": gamma} for gamma in draft_lengths]
    if shape.get("kind") == "auto":
        return [_auto(shape, kind, place)]
    return [check_shape(shape, kind, place)]


def check_shape(given: Any, drafter_kind: str, place: str) -> Shape:
    """A chain or tree that a drafter of `drafter_kind` can propose. Raises ConfigError."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}={given}: write a shape, for example {{kind: chain, gamma: 4}}.")
    shape = dict(given)
    kind = shape.get("kind")
    if kind not in SHAPES or kind in ("none", "auto"):
        raise unknown("shape", str(kind), (s for s in SHAPES if s != "none"), place)
    keys = ("gamma",) if kind == "chain" else ("depth", "top_k", "nodes")
    refuse_unknown_keys(shape, ("kind", *keys), place)
    for key in keys:
        check_drafted(shape.get(key), f"{place}.{key}")
    if kind == "tree":
        if drafter_kind not in _TREE_DRAFTERS:
            raise ConfigError(
                f"{place}: the drafter {drafter_kind!r} proposes chains alone. Trees are grown by "
                f"{', '.join(_TREE_DRAFTERS)}."
            )
        if shape["nodes"] < shape["depth"]:
            raise ConfigError(
                f"{place}: a tree of {shape['nodes']} nodes cannot be {shape['depth']} deep. Give "
                "`nodes` of at least `depth`."
            )
        if grown(shape) > MAX_GROWN:
            raise ConfigError(
                f"{place}: a drafter expands up to (depth - 1) * top_k nodes below the root, here "
                f"{grown(shape)}; it can hold {MAX_GROWN}. Lower `depth` or `top_k`."
            )
    return shape


def check_drafted(value: Any, place: str) -> int:
    """`value` where a round may draft that many tokens; raises ConfigError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_DRAFTED:
        raise ConfigError(
            f"{place}={value}: a round drafts a whole number of tokens from 1 to {MAX_DRAFTED}. "
            "Leave the drafter out for decoding without a draft."
        )
    return value


def _auto(shape: Mapping[str, Any], drafter_kind: str, place: str) -> Shape:
    refuse_unknown_keys(shape, ("kind", "candidates"), place)
    given = shape.get("candidates")
    if given is None:
        return {"kind": "auto", "candidates": [dict(one) for one in CANDIDATES[drafter_kind]]}
    if not isinstance(given, list) or not given:
        raise ConfigError(
            f"{place}.candidates: `auto` chooses among a list of shapes; leave the key out for the "
            "usual ones."
        )
    candidates = [
        check_shape(one, drafter_kind, f"{place}.candidates[{number}]")
        for number, one in enumerate(given)
    ]
    return {"kind": "auto", "candidates": candidates}


def drafted(shape: Mapping[str, Any]) -> int:
    """Most tokens that a round of this shape drafts."""
    if shape["kind"] == "auto":
        return max(drafted(one) for one in shape["candidates"])
    return int(shape.get("gamma", shape.get("nodes", 0)))


def grown(shape: Mapping[str, Any]) -> int:
    """Most nodes that a drafter expands below the root while it grows this tree."""
    return int((shape["depth"] - 1) * min(shape["top_k"], shape["nodes"]))


def pending(shape: Mapping[str, Any]) -> int:
    """Most tokens beyond the committed ones that a round of this shape puts into a cache."""
    if shape["kind"] == "auto":
        return max(pending(one) for one in shape["candidates"])
    return max(drafted(shape), grown(shape)) if shape["kind"] == "tree" else drafted(shape)


def longest_path(shape: Mapping[str, Any]) -> int:
    """Most drafted tokens that a round of this shape can accept."""
    if shape["kind"] == "auto":
        return max(longest_path(one) for one in shape["candidates"])
    return int(shape.get("gamma", shape.get("depth", 0)))


def shape_id(shape: Mapping[str, Any], drafter_kind: str) -> str:
    """The shape's part of a method's identifier."""
    if shape["kind"] == "chain":
        return f"chain{shape['gamma']}"
    if shape["kind"] == "tree":
        return f"tree{shape['depth']}x{shape['top_k']}x{shape['nodes']}"
    if tuple(shape["candidates"]) == CANDIDATES[drafter_kind]:
        return "auto"
    text = json.dumps(shape["candidates"], sort_keys=True)
    return f"auto-{hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]}"


def shape_name(shape: Mapping[str, Any]) -> str:
    """The shape in a method's name."""
    if shape["kind"] == "chain":
        return f"γ={shape['gamma']}"
    return f"tree of {shape['nodes']}" if shape["kind"] == "tree" else "auto"

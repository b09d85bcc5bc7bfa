"""Drafters as entries of `methods` name them, and what follows from them.

A drafter is the JSON object of docs/protocol.md. `model`, `head` and `cascade` name a drafter with
weights of its own by its `id` under `model.drafters` (harness/drafter_files.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.errors import ConfigError, refuse_unknown_keys, unknown
from harness.shapes import check_shape, pending, shape_id
from harness.vocabulary import DRAFTERS, PRECISIONS, quantized

Drafter = dict[str, Any]

DRAFTER_KEYS: dict[str, tuple[str, ...]] = {
    "none": (),
    "self": ("precision",),
    "ngram": ("max_ngram", "min_ngram"),
    "model": ("id", "precision"),
    "head": ("id", "precision"),
    "cascade": ("id", "precision", "inner", "inner_shape"),
}
NGRAM_DEFAULTS = {"max_ngram": 3, "min_ngram": 1}
TARGET = "target"


def read_drafter(given: Any, place: str, inside_cascade: bool = False) -> Drafter:
    """The drafter's JSON object; a bare name stands for its kind. Raises ConfigError."""
    if given is None:
        return {"kind": "none"}
    if not isinstance(given, str | Mapping):
        raise ConfigError(f"{place}={given}: write a drafter, for example ngram.")
    drafter: Drafter = {"kind": given} if isinstance(given, str) else dict(given)
    kind = drafter.get("kind")
    if kind not in DRAFTERS:
        raise unknown("drafter", str(kind), DRAFTERS, place)
    refuse_unknown_keys(drafter, ("kind", *DRAFTER_KEYS[kind]), place)
    if kind == "ngram":
        drafter = {**drafter, **{k: drafter.get(k, v) for k, v in NGRAM_DEFAULTS.items()}}
    for key in DRAFTER_KEYS[kind]:
        if key not in drafter:
            raise ConfigError(f"{place}: the drafter {kind!r} needs `{key}`.")
    if "precision" in drafter:
        check_precision(drafter["precision"], f"{place}.precision")
    if kind == "cascade":
        if inside_cascade:
            raise ConfigError(
                f"{place}: a cascade cannot stand inside another one: a target and one model in "
                "the middle are the most. Give the inner one a drafter of another kind."
            )
        drafter["inner"] = _inner(drafter["inner"], place)
        inner_kind = str(drafter["inner"]["kind"])
        drafter["inner_shape"] = check_shape(
            drafter["inner_shape"], inner_kind, f"{place}.inner_shape"
        )
    return drafter


def _inner(given: Any, place: str) -> Drafter:
    inner = read_drafter(given, f"{place}.inner", inside_cascade=True)
    if inner["kind"] == "none":
        raise ConfigError(f"{place}.inner: a cascade needs a drafter inside it.")
    return inner


def check_precision(name: Any, place: str) -> str:
    """`name` where it is a known precision; raises ConfigError with the near names otherwise."""
    if name not in PRECISIONS:
        raise unknown("precision", str(name), PRECISIONS, place)
    return str(name)


def nested(drafter: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The drafter and those inside it, each with what it drafts for: `target` or an id."""
    drafted_for = TARGET
    inside: Mapping[str, Any] | None = drafter
    while inside:
        yield inside, drafted_for
        drafted_for = str(inside.get("id", TARGET))
        inside = inside.get("inner")


def precisions_by_model(drafter: Mapping[str, Any]) -> dict[str, set[str]]:
    """Precisions that the drafter computes with, by model: `target` for `self`, else an id."""
    found: dict[str, set[str]] = {}
    for part, drafted_for in nested(drafter):
        if "precision" in part:
            model = drafted_for if part["kind"] == "self" else str(part["id"])
            found.setdefault(model, set()).add(str(part["precision"]))
    return found


def reads_quantized(drafter: Mapping[str, Any]) -> bool:
    """True where it, or a drafter inside it, reads 4- or 8-bit weights."""
    return any(quantized(str(part.get("precision", ""))) for part, _ in nested(drafter))


def most_pending(drafter: Mapping[str, Any], shape: Mapping[str, Any]) -> int:
    """Most tokens beyond the committed ones that caches hold in a round of this shape."""
    inner = drafter.get("inner")
    return pending(shape) + (most_pending(inner, drafter["inner_shape"]) if inner else 0)


def drafter_id(drafter: Mapping[str, Any]) -> str:
    """The drafter's part of a method's identifier."""
    kind = str(drafter["kind"])
    parts = [kind, *(str(drafter[key]) for key in ("id", "precision") if key in drafter)]
    if kind == "ngram" and {key: drafter[key] for key in NGRAM_DEFAULTS} != NGRAM_DEFAULTS:
        parts += [str(drafter["max_ngram"]), str(drafter["min_ngram"])]
    if kind == "cascade":
        inner = drafter["inner"]
        shape = shape_id(drafter["inner_shape"], str(inner["kind"]))
        parts.append(f"({drafter_id(inner)}-{shape})")
    return "-".join(parts)


def drafter_name(drafter: Mapping[str, Any]) -> str:
    """The drafter in a method's name."""
    inside = [
        str(drafter[key])
        for key in ("id", "precision")
        if key in drafter and drafter[key] != drafter["kind"]
    ]
    if drafter["kind"] == "cascade":
        inside.append(drafter_name(drafter["inner"]))
    return f"{drafter['kind']}({', '.join(inside)})" if inside else str(drafter["kind"])

"""The forwards that a round takes: what the cost model adds up, and what curves measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from harness.drafters import TARGET
from harness.shapes import drafted, longest_path
from harness.vocabulary import MAX_DRAFTED

Json = Mapping[str, Any]


class Forward(NamedTuple):
    """One pass of `model` (`target` or a drafter's id) over `rows` tokens of each sequence."""

    model: str
    precision: str
    mask: str
    rows: int


def verification(model: str, precision: str, shape: Json, proposed: int) -> Forward:
    """The pass that verifies `proposed` tokens, drafted in `shape`, and yields the bonus token."""
    return Forward(model, precision, _mask(shape), proposed + 1)


def draft_steps(drafter: Json, shape: Json, drafted_for: str = TARGET) -> list[Forward]:
    """The drafter's passes for one proposal; empty where it computes none.

    A chain takes one pass of a row for each token. A tree takes one for the first level, and one
    of `top_k` rows for each further level, whose `top_k` best nodes are grown. The passes of a
    cascade depend on what its inner rounds accept: `inner_round` has those of one of them.
    """
    kind = drafter["kind"]
    if kind in ("none", "ngram", "cascade"):
        return []
    model = drafted_for if kind == "self" else str(drafter["id"])
    step = Forward(model, str(drafter["precision"]), "chain", 1)
    if shape["kind"] == "chain":
        return [step] * int(shape["gamma"])
    level = step._replace(mask="tree", rows=int(shape["top_k"]))
    return [step, *[level] * (int(shape["depth"]) - 1)]


def inner_round(cascade: Json) -> list[Forward]:
    """The passes of one round inside a cascade: the inner draft, verified by the middle model."""
    middle, shape, inner = str(cascade["id"]), cascade["inner_shape"], cascade["inner"]
    check = verification(middle, str(cascade["precision"]), shape, drafted(shape))
    return [*draft_steps(inner, shape, middle), check]


def forwards(precision: str, drafter: Json, shape: Json) -> Iterator[Forward]:
    """All kinds of passes that a round may take, plain decoding's included."""
    yield Forward(TARGET, precision, "chain", 1)
    if shape["kind"] == "auto":
        for candidate in shape["candidates"]:
            yield from forwards(precision, drafter, candidate)
        return
    proposed = drafted(shape)
    yield verification(TARGET, precision, shape, proposed)
    if drafter["kind"] == "cascade":
        yield from inner_round(drafter)
        # The last inner round may bring more than was missing: up to a whole path of its shape.
        most = min(MAX_DRAFTED, proposed + longest_path(drafter["inner_shape"]))
        for more in range(proposed + 1, most + 1):
            yield verification(TARGET, precision, shape, more)
    yield from draft_steps(drafter, shape)


def _mask(shape: Json) -> str:
    return "tree" if shape["kind"] == "tree" else "chain"

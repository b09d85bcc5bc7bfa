"""The forwards of a round, by hand."""

from __future__ import annotations

from harness.forwards import Forward, draft_steps, forwards, inner_round

HEAD = {"kind": "head", "id": "head", "precision": "w4a8"}
TREE = {"kind": "tree", "depth": 3, "top_k": 4, "nodes": 12}
CASCADE = {
    "kind": "cascade", "id": "small", "precision": "w4a16", "inner": HEAD, "inner_shape": TREE,
}  # fmt: skip


def chain(gamma: int) -> dict[str, object]:
    return {"kind": "chain", "gamma": gamma}


def test_a_chain_takes_a_row_for_each_token_and_lookup_takes_none() -> None:
    own = {"kind": "self", "precision": "w4a4"}
    assert draft_steps(own, chain(3)) == [Forward("target", "w4a4", "chain", 1)] * 3
    assert draft_steps({"kind": "ngram"}, chain(3)) == []
    assert draft_steps(own, chain(1), "small") == [Forward("small", "w4a4", "chain", 1)]


def test_a_tree_takes_a_pass_for_each_level() -> None:
    level = Forward("head", "w4a8", "tree", 4)
    assert draft_steps(HEAD, TREE) == [Forward("head", "w4a8", "chain", 1), level, level]


def test_a_round_inside_a_cascade_ends_with_the_middle_models_verification() -> None:
    *steps, check = inner_round(CASCADE)
    assert steps == draft_steps(HEAD, TREE)
    assert check == Forward("small", "w4a16", "tree", 13)


def test_all_forwards_of_a_method() -> None:
    plain = Forward("target", "fp16", "chain", 1)
    assert set(forwards("fp16", {"kind": "none"}, {"kind": "none"})) == {plain}
    assert set(forwards("fp16", HEAD, TREE)) == {
        plain, Forward("target", "fp16", "tree", 13), *draft_steps(HEAD, TREE),
    }  # fmt: skip
    assert set(forwards("fp16", CASCADE, chain(6))) == {
        plain, *inner_round(CASCADE),
        *(Forward("target", "fp16", "chain", rows) for rows in (7, 8, 9, 10)),
    }  # fmt: skip
    auto = {"kind": "auto", "candidates": [chain(2), chain(5)]}
    rows = {f.rows for f in forwards("fp16", {"kind": "ngram"}, auto)}
    assert rows == {1, 3, 6}

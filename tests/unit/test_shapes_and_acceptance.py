"""Shapes, acceptance rules and nested drafters: what they expand to, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from harness.acceptance import Acceptance, read_acceptance
from harness.drafters import most_pending, nested, precisions_by_model, read_drafter
from harness.errors import ConfigError
from harness.methods import expand
from harness.shapes import CANDIDATES, drafted, longest_path, shape_id, shapes_of

HEAD = {"kind": "head", "id": "head", "precision": "w4a8"}
TREE = {"kind": "tree", "depth": 3, "top_k": 10, "nodes": 30}
CHAIN = {"kind": "chain", "gamma": 6}
CASCADE = {
    "kind": "cascade", "id": "middle", "precision": "w4a16", "inner": HEAD, "inner_shape": TREE,
}  # fmt: skip


def shapes(given: Any, drafter: Any = HEAD) -> list[dict[str, Any]]:
    return shapes_of(given, drafter, [2, 5], "methods[0].shape")


def accept(given: Any, drafter: Any = HEAD, shape: Any = CHAIN, profiles: Any = None) -> Acceptance:
    return read_acceptance(given, drafter, shape, profiles or {}, "methods[0].acceptance")


def test_a_list_of_shapes_stands_for_one_method_each() -> None:
    found = shapes(["chain", TREE, {"kind": "chain", "gamma": 9}])
    assert [shape_id(s, "head") for s in found] == ["chain2", "chain5", "tree3x10x30", "chain9"]
    assert [drafted(s) for s in found] == [2, 5, 30, 9]
    assert [longest_path(s) for s in found] == [2, 5, 3, 9]


def test_auto_takes_the_usual_candidates_of_its_drafter_or_those_given() -> None:
    (usual,) = shapes("auto")
    assert tuple(usual["candidates"]) == CANDIDATES["head"]
    assert shape_id(usual, "head") == "auto"
    assert drafted(usual) == 24
    (own,) = shapes({"kind": "auto", "candidates": [CHAIN, TREE]})
    assert own["candidates"] == [CHAIN, TREE]
    assert shape_id(own, "head").startswith("auto-")
    assert longest_path(own) == 6


@pytest.mark.parametrize(
    ("given", "drafter", "part"),
    [
        ({**TREE, "nodes": 2}, HEAD, r"shape: a tree of 2 nodes cannot be 3 deep"),
        ({**TREE, "nodes": 64}, HEAD, r"shape\.nodes=64.*1 to 63"),
        ({**TREE, "top_k": 0}, HEAD, r"shape\.top_k=0"),
        ({**TREE, "depth": 8}, HEAD, r"here 70; it can hold 64"),
        (TREE, {"kind": "ngram"}, r"'ngram' proposes chains alone"),
        (TREE, CASCADE, r"'cascade' proposes chains alone"),
        ({**TREE, "width": 1}, HEAD, r"no key 'width'"),
        ([], HEAD, r"list of shapes is empty"),
        ([CHAIN, {"kind": "chain", "gamma": 0}], HEAD, r"shape\[1\]\.gamma=0"),
        ({"kind": "auto", "candidates": []}, HEAD, r"shape\.candidates"),
        ({"kind": "auto", "candidates": [{"kind": "auto"}]}, HEAD, r"candidates\[0\]"),
    ],
)
def test_a_wrong_shape_is_named(given: Any, drafter: Any, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        shapes(given, drafter)


def test_a_cascade_is_followed_to_its_innermost_drafter() -> None:
    drafter = read_drafter(CASCADE, "methods[0].drafter")
    assert [(part["kind"], place) for part, place in nested(drafter)] == [
        ("cascade", "target"), ("head", "middle"),
    ]  # fmt: skip
    assert precisions_by_model(drafter) == {"middle": {"w4a16"}, "head": {"w4a8"}}
    assert most_pending(drafter, CHAIN) == 36
    assert most_pending(HEAD, {**TREE, "depth": 6, "nodes": 12}) == 50  # while the tree grows
    inner_self = {**CASCADE, "inner": {"kind": "self", "precision": "w4a4"}}
    assert precisions_by_model(inner_self) == {"middle": {"w4a16", "w4a4"}}


def test_a_wrong_cascade_is_named() -> None:
    with pytest.raises(ConfigError, match=r"d\.inner: a cascade cannot stand inside another"):
        read_drafter({**CASCADE, "inner": CASCADE, "inner_shape": CHAIN}, "d")
    with pytest.raises(ConfigError, match=r"d\.inner_shape.*cannot be 3 deep"):
        read_drafter({**CASCADE, "inner_shape": {**TREE, "nodes": 1}}, "d")
    with pytest.raises(ConfigError, match=r"d\.inner: a cascade needs a drafter"):
        read_drafter({**CASCADE, "inner": "none"}, "d")


def test_a_rate_becomes_the_shares_of_each_accepted_length() -> None:
    rule = accept({"kind": "replay", "profile": {"rate": 0.5, "source": "assumed"}},
                  shape={"kind": "chain", "gamma": 2})  # fmt: skip
    assert rule.request(7) == {
        "kind": "replay", "profile": {"accepted": [0.5, 0.25, 0.25]}, "seed": 7,
    }  # fmt: skip
    assert rule.settings() == {"profile": None, "source": "assumed", "accepted": [0.5, 0.25, 0.25]}


def test_a_profile_by_name_has_a_level_for_the_rounds_in_a_cascade() -> None:
    profiles = {"p": {"rate": 0.8, "inner": {"accepted": [0.4, 0.6]}, "source": "assumed"}}
    rule = accept({"kind": "replay", "profile": "p"}, CASCADE, CHAIN, profiles)
    assert rule.profile["inner"] == [0.4, 0.6]
    assert len(rule.profile["accepted"]) == 6 + 1
    assert (rule.suffix, rule.profile_name) == ("~replay-p", "p")


def test_without_a_drafter_a_replay_decodes_greedily() -> None:
    rule = accept({"kind": "replay", "profile": "none such"}, {"kind": "none"}, {"kind": "none"})
    assert rule == Acceptance()


def test_sampling_is_settings_of_the_run() -> None:
    rule = accept({"kind": "sampling", "temperature": 0.7, "top_p": 0.9})
    assert rule.request(3) == {"kind": "sampling"}
    assert rule.sampling(3) == {"temperature": 0.7, "top_p": 0.9, "seed": 3}
    assert rule.suffix == "~sampling-t0.7-p0.9"
    assert accept("greedy").sampling(3) is None


PROFILE = {"accepted": [0.5, 0.5], "source": "assumed"}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("gredy", r"no acceptance 'gredy'. Did you mean greedy"),
        ({"kind": "sampling", "temperature": -1}, r"acceptance\.temperature=-1"),
        ({"kind": "sampling", "top_p": 0}, r"acceptance\.top_p=0"),
        ({"kind": "sampling", "temperature": "hot"}, r"temperature=hot"),
        ({"kind": "greedy", "temperature": 1}, r"no key 'temperature'"),
        ({"kind": "replay"}, r"`replay` needs a profile"),
        ({"kind": "replay", "profile": "q"}, r"no profile 'q'"),
        ({"kind": "replay", "profile": {"accepted": [1.0]}}, r"profile\.source"),
        ({"kind": "replay", "profile": {**PROFILE, "accepted": [1.5, -0.5]}}, r"accepted\[0\]=1.5"),
        ({"kind": "replay", "profile": {**PROFILE, "accepted": [0.5, 0.4]}}, r"add up to 0.9"),
        ({"kind": "replay", "profile": {**PROFILE, "accepted": [0.125] * 8}}, r"at most 6"),
        ({"kind": "replay", "profile": {**PROFILE, "rate": 0.5}}, r"either `accepted`"),
        ({"kind": "replay", "profile": {"rate": 1.1, "source": "x"}}, r"profile\.rate=1.1"),
    ],
)
def test_a_wrong_rule_is_named(given: Any, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        accept(given)


def test_the_rule_of_the_sweep_holds_for_methods_that_name_none() -> None:
    sampling = {"kind": "sampling", "temperature": 0.8}
    entries: list[dict[str, Any]] = [
        {"precision": "fp16"}, {"precision": "fp16", "drafter": "ngram"},
        {"precision": "fp16", "acceptance": "greedy", "name": "greedy"},
    ]  # fmt: skip
    found = expand(
        entries, draft_lengths=[3], precisions=["fp16"], baseline="fp16", backends=["native"],
        acceptance=sampling,
    )  # fmt: skip
    assert [(m.method_id, m.is_baseline) for m in found] == [
        ("fp16~sampling-t0.8-p1", True),
        ("fp16+ngram-chain3~sampling-t0.8-p1", False),
        ("fp16", False),
    ]

"""Methods: identifiers, arms, and what expands over the draft lengths."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.methods import Method, expand
from harness.vocabulary import PRECISIONS

FP16 = {"precision": "fp16"}
ALL = ("fp16", "bf16", "w8a8", "w4a16", "w4a8", "w4a4")


def methods(*entries: dict[str, Any], **changes: Any) -> list[Method]:
    arguments: dict[str, Any] = {
        "draft_lengths": [3], "precisions": ALL, "baseline": "fp16", "backends": ["native"],
    } | changes  # fmt: skip
    return expand(entries, **arguments)


def one(entry: dict[str, Any], **changes: Any) -> Method:
    (_, method) = methods(FP16, entry, **changes)
    return method


@pytest.mark.parametrize(
    ("entry", "method_id", "name", "arm"),
    [
        ({"precision": "w4a8"}, "w4a8", "w4a8", "quantization"),
        ({"precision": "bf16"}, "bf16", "bf16", "baseline"),
        (
            {"precision": "fp16", "drafter": "ngram"},
            "fp16+ngram-chain3", "fp16 + ngram, γ=3", "speculation",
        ),
        (
            {"precision": "w4a16", "drafter": {"kind": "self", "precision": "w4a4"}},
            "w4a16+self-w4a4-chain3", "w4a16 + self(w4a4), γ=3", "combined",
        ),
        (
            {"precision": "w4a16", "drafter": {"kind": "self", "precision": "w4a4"},
             "name": "QSpec"},
            "w4a16+self-w4a4-chain3", "QSpec, γ=3", "combined",
        ),
        (
            {"precision": "fp16", "drafter": {"kind": "ngram", "max_ngram": 5}},
            "fp16+ngram-5-1-chain3", "fp16 + ngram, γ=3", "speculation",
        ),
        (
            {"precision": "fp16", "drafter": {"kind": "model", "id": "tiny", "precision": "fp16"},
             "shape": {"kind": "tree", "depth": 3, "top_k": 4, "nodes": 30}},
            "fp16+model-tiny-fp16-tree3x4x30", "fp16 + model(tiny, fp16), tree of 30",
            "speculation",
        ),
    ],
)  # fmt: skip
def test_a_method_is_named_after_its_axes(
    entry: dict[str, Any], method_id: str, name: str, arm: str
) -> None:
    method = one(entry)
    assert (method.method_id, method.name, method.arm) == (method_id, name, arm)
    assert not method.is_baseline


def test_a_chain_expands_over_the_draft_lengths_and_a_plain_method_does_not() -> None:
    ids = [
        method.method_id
        for method in methods(FP16, {"precision": "w4a8", "drafter": "ngram"}, draft_lengths=[2, 5])
    ]
    assert ids == ["fp16", "w4a8+ngram-chain2", "w4a8+ngram-chain5"]
    fixed = {"precision": "w4a8", "drafter": "ngram", "shape": {"kind": "chain", "gamma": 7}}
    assert one(fixed, draft_lengths=[2, 5]).shape == {"kind": "chain", "gamma": 7}


def test_a_drafter_that_reads_few_bits_is_marked() -> None:
    def quantized(drafter: Any) -> bool:
        return one({"precision": "fp16", "drafter": drafter}).quantized_drafter

    assert quantized({"kind": "self", "precision": "w4a8"})
    assert quantized({"kind": "model", "id": "m", "precision": "w8a8"})
    assert not quantized({"kind": "model", "id": "m", "precision": "bf16"})
    assert not quantized("ngram")
    inner = {"kind": "head", "id": "h", "precision": "w4a16"}
    cascade = {
        "kind": "cascade", "id": "m", "precision": "fp16", "inner": inner,
        "inner_shape": {"kind": "chain", "gamma": 2},
    }  # fmt: skip
    assert quantized(cascade)


def test_precisions_outside_the_sweep_are_dropped_but_never_the_baseline() -> None:
    kept = methods(
        {"precision": "w4a8"}, {"precision": "fp16", "drafter": "ngram"}, FP16,
        {"precision": "w4a4"}, precisions=["w4a8"],
    )  # fmt: skip
    assert [method.method_id for method in kept] == ["fp16", "w4a8"]
    assert kept[0].is_baseline


def test_the_baseline_may_be_any_precision_and_decides_the_arms() -> None:
    found = methods(
        {"precision": "w8a8"}, {"precision": "w8a8", "drafter": "ngram"}, {"precision": "w4a8"},
        baseline="w8a8",
    )  # fmt: skip
    assert [method.arm for method in found] == ["baseline", "speculation", "quantization"]


def test_a_method_of_another_backend_says_so() -> None:
    method = one({"precision": "w4a8", "backend": "vllm"}, backends=["native", "vllm"])
    assert method.method_id == "w4a8@vllm"
    assert method.backend == "vllm"


def test_a_request_holds_the_axes_alone() -> None:
    entry = {"precision": "w4a16", "drafter": {"kind": "self", "precision": "w4a4"}}
    assert one(entry).request() == {
        "precision": "w4a16", "kv_precision": "kv16",
        "drafter": {"kind": "self", "precision": "w4a4"},
        "shape": {"kind": "chain", "gamma": 3}, "acceptance": {"kind": "greedy"},
    }  # fmt: skip
    assert one(entry).precisions() == {"w4a16", "w4a4"}


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({}, "needs a `precision`"),
        ({"precision": "w4a8", "shape": "chain"}, "no shape"),
        ({"precision": "w4a8", "drafter": {"kind": "self"}}, "needs `precision`"),
        ({"precision": "w4a8", "drafter": {"kind": "ngram", "n": 3}}, "no key 'n'"),
        ({"precision": "w4a8", "drafter": "ngram", "shape": {"kind": "chain", "gamma": 64}}, "63"),
        ({"precision": "w4a8", "drafter": "ngram", "shape": {"kind": "tree", "depth": 2}}, "top_k"),
        ({"precision": "w4a8", "drafter": "ngram", "shape": "none"}, "no shape 'none'"),
    ],
)
def test_a_wrong_entry_is_named(entry: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match="methods\\[1\\]") as caught:
        methods(FP16, entry)
    assert part in str(caught.value)


@given(
    targets=st.sets(st.sampled_from(PRECISIONS), min_size=1),
    drafters=st.sets(st.sampled_from(PRECISIONS)),
    gammas=st.sets(st.integers(1, 63), min_size=1, max_size=4),
)
def test_identifiers_are_unique_and_stable(
    targets: set[str], drafters: set[str], gammas: set[int]
) -> None:
    entries: list[dict[str, Any]] = [FP16, *({"precision": p} for p in targets - {"fp16"})]
    entries += [
        {"precision": target, "drafter": {"kind": "self", "precision": drafter}}
        for target in targets
        for drafter in drafters
    ]
    found = methods(*entries, draft_lengths=sorted(gammas))
    ids = [method.method_id for method in found]
    assert len(set(ids)) == len(ids)
    again = methods(*reversed(entries), draft_lengths=sorted(gammas, reverse=True))
    assert sorted(ids) == sorted(method.method_id for method in again)

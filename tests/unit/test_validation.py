"""The checks of requests that Python workers share."""

from __future__ import annotations

from typing import Any

import pytest

from backends.protocol import RequestError
from backends.validation import Loaded, validate_forward, validate_load, validate_run

CAPABILITIES = {
    "precisions": ["fp16", "w4a16"],
    "drafters": ["none", "self", "ngram", "model"],
    "shapes": ["none", "chain", "tree"],
    "acceptance": ["greedy", "sampling"],
    "max_batch": 4,
    "trace": ["none", "tokens"],
}
LOAD = {"precisions": ["fp16"], "drafters": [], "max_context": 64, "max_batch": 2, "seed": 0}
LOADED = Loaded(("fp16", "w4a16"), ("tiny",), max_context=32, max_batch=4, vocab_size=100)
PLAIN = {"precision": "fp16", "drafter": {"kind": "none"}, "shape": {"kind": "none"}}
RUN: dict[str, Any] = {"method": PLAIN, "prompts": [[1, 2]], "batch_size": 1, "max_new_tokens": 4}


def with_method(**parts: Any) -> dict[str, Any]:
    return {"method": {**PLAIN, **parts}}


def test_a_run_gets_its_defaults() -> None:
    run = validate_run({**RUN, "prompts": [[1], [2, 3]]}, CAPABILITIES, LOADED)
    assert run["max_new_tokens"] == [4, 4]
    assert run["stop_ids"] == []
    assert run["method"]["acceptance"] == {"kind": "greedy"}
    drafter = {"kind": "ngram"}
    method = with_method(drafter=drafter, shape={"kind": "chain", "gamma": 2})
    checked = validate_run({**RUN, **method}, CAPABILITIES, LOADED)["method"]
    assert checked["drafter"] == {"kind": "ngram", "max_ngram": 3, "min_ngram": 1}


CHAIN = {"kind": "chain", "gamma": 3}
SELF = {"kind": "self", "precision": "w4a16"}


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"prompts": []}, "bad_request", "'prompts' is empty"),
        ({"prompts": [[1], []]}, "bad_request", r"'prompts\[1\]' is not a list of 1 or more"),
        ({"prompts": [[1, 100]]}, "bad_request", "holds 100, which is no token id below 100"),
        ({"prompts": [[1, -1]]}, "bad_request", "holds -1"),
        ({"prompts": [[1, 2.0]]}, "bad_request", "holds 2.0"),
        ({"prompts": [[True]]}, "bad_request", "holds True"),
        ({"prompts": "x"}, "bad_request", "'prompts' is not a list"),
        ({"batch_size": 0}, "bad_request", "'batch_size' is 0; it must be an integer from 1 to 4"),
        ({"batch_size": 5}, "bad_request", "'batch_size' is 5"),
        ({"max_new_tokens": 0}, "bad_request", "of prompt 0 is 0"),
        ({"max_new_tokens": [1, 2]}, "bad_request", "2 entries for 1 prompts"),
        ({"max_new_tokens": 31}, "bad_request", r"prompt 0 needs 2 \+ 31 \+ 0 tokens"),
        ({"stop_ids": ["x"]}, "bad_request", "'stop_ids' holds 'x'"),
        ({"arrivals": [-1]}, "bad_request", "'arrivals'"),
        ({"arrivals": [0, 1]}, "bad_request", "'arrivals'"),
        ({"trace": "tokens"}, "bad_request", "'trace_path'"),
        ({"trace": "rounds"}, "unsupported", "trace level 'rounds'"),
        ({"sampling": {}}, "bad_request", "'sampling' is needed for"),
        ({"method": None}, "bad_request", "'method' is not an object"),
        (with_method(precision="fp61"), "bad_request", "'fp61' is unknown. Did you mean 'fp16'"),
        (with_method(precision="w4a4"), "bad_request", "'w4a4' was not loaded"),
        (with_method(kv_precision="kv8"), "unsupported", "'kv8'"),
        (with_method(drafter=SELF), "bad_request", "a drafter needs a shape"),
        (with_method(shape=CHAIN), "bad_request", "a shape needs a drafter"),
        (with_method(drafter={"kind": "head"}, shape=CHAIN), "unsupported", "'head'"),
        (
            with_method(drafter={"kind": "model", "id": "x"}, shape=CHAIN),
            "bad_request",
            "drafter 'x' was not loaded",
        ),
        (
            with_method(drafter=SELF, shape={"kind": "chain", "gamma": 0}),
            "bad_request",
            "'gamma' is 0; it must be an integer from 1 to 63",
        ),
        (
            with_method(drafter=SELF, shape={"kind": "chain", "gamma": 64}),
            "bad_request",
            "'gamma' is 64",
        ),
        (
            {**with_method(drafter=SELF, shape=CHAIN), "max_new_tokens": 28},
            "bad_request",
            r"2 \+ 28 \+ 3 tokens",
        ),
    ],
)
def test_bad_runs_are_refused(change: dict[str, Any], kind: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        validate_run({**RUN, **change}, CAPABILITIES, LOADED)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"model": {}}, "bad_request"),
        ({"model": {"path": "x", "synthetic": {}}}, "bad_request"),
        ({"model": {"path": 3}}, "bad_request"),
        ({"precisions": []}, "bad_request"),
        ({"precisions": ["int4"]}, "bad_request"),
        ({"precisions": ["w4a4"]}, "unsupported"),
        ({"max_batch": 5}, "bad_request"),
        ({"max_context": 0}, "bad_request"),
        ({"drafters": [{"id": "x"}]}, "bad_request"),
    ],
)
def test_bad_loads_are_refused(change: dict[str, Any], kind: str) -> None:
    with pytest.raises(RequestError) as caught:
        validate_load({"model": {"path": "x"}, **LOAD, **change}, CAPABILITIES)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "change", [{"tokens": []}, {"tokens": [0]}, {"tokens": [33]}, {"context": 32}, {"mask": "x"}]
)
def test_bad_forwards_are_refused(change: dict[str, Any]) -> None:
    request = {"precision": "fp16", "tokens": [1], "context": 4, **change}
    with pytest.raises(RequestError) as caught:
        validate_forward(request, CAPABILITIES, LOADED)
    assert caught.value.kind == "bad_request"

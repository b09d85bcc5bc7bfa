"""What a worker says of itself and of a loaded model."""

from __future__ import annotations

from backends.pack.packed import PackedFile
from backends.protocol import CALLS, PROTOCOL_VERSION, TRACE_LEVELS
from backends.validation import ACCEPTANCE, DRAFTERS, PRECISIONS, SHAPES
from tests.conformance.served import Served


def test_hello(served: Served) -> None:
    hello = served.hello
    assert hello["protocol"] == PROTOCOL_VERSION
    assert hello["backend"]
    assert hello["version"]
    assert {"kind", "name"} <= hello["device"].keys()
    capabilities = hello["capabilities"]
    for key, known in (
        ("calls", CALLS),
        ("precisions", PRECISIONS),
        ("drafters", DRAFTERS),
        ("shapes", SHAPES),
        ("acceptance", ACCEPTANCE),
        ("trace", TRACE_LEVELS),
    ):
        assert capabilities[key], key
        assert set(capabilities[key]) <= set(known), key
    assert {"hello", "load", "run", "close"} <= set(capabilities["calls"])
    assert "none" in capabilities["drafters"]
    assert "greedy" in capabilities["acceptance"]
    assert capabilities["max_batch"] >= 1


def test_hello_is_the_same_again(served: Served) -> None:
    assert served.call("hello") == served.hello


def test_load(served: Served) -> None:
    answer = served.answer
    memory = answer["memory"]
    assert memory["weight_bytes"]
    assert all(size > 0 for size in memory["weight_bytes"].values())
    assert memory["kv_bytes"] > 0
    assert memory["peak_bytes"] > 0
    assert answer["proof"].keys() == set(served.precisions) == answer["compute_dtype"].keys()
    for precision in served.precisions:
        assert answer["proof"][precision]["kernels"]
        assert answer["proof"][precision]["bytes_per_token"] > 0
        assert answer["compute_dtype"][precision]


def test_load_describes_the_model_of_the_file(served: Served) -> None:
    metadata = PackedFile(served.request["model"]["path"]).metadata
    model = served.answer["model"]
    assert model["vocab_size"] == metadata["vocab_size"]
    assert model["max_position"] == metadata["max_position"]
    assert model["name"]
    assert model["content_hash"] in (None, metadata["content_hash"])


def test_a_second_load_replaces_the_first(served: Served) -> None:
    before = served.run()
    smaller = {**served.request, "precisions": served.precisions[:1], "max_batch": 1}
    served.call("load", **smaller)
    assert [r["tokens"] for r in served.run()["requests"]] == [
        r["tokens"] for r in before["requests"]
    ]
    again = served.call("load", **served.request)
    assert again["model"] == served.answer["model"]
    assert again["proof"] == served.answer["proof"]

"""What the llama.cpp backend promises beyond the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from backends.client import Worker, WorkerError
from backends.pack.gguf_import import pack_gguf
from tests.conformance.served import TIMEOUT_S, plain
from tests.fakes.tiny_llama import write_gguf

pytestmark = pytest.mark.backend
BACKEND = "llama_cpp_q4_0"
MAX_BATCH = 16


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A packed file beside the GGUF that it was made from, in a folder without conversions."""
    write_gguf(tmp_path / "tiny.gguf", layers="Q4_1", head="Q8_0")
    pack_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny.sqm")
    return tmp_path / "tiny.sqm"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The worker's stderr."""
    return tmp_path / "stderr.log"


@pytest.fixture
def worker(log: Path) -> Iterator[Worker]:
    """A started worker, nothing loaded."""
    backend = registry.backend(BACKEND)
    if not backend.program.exists():
        pytest.skip(f"{BACKEND} is not installed here ({backend.made_by})")
    with backend.start(log_path=log) as started:
        yield started


def load(worker: Worker, model: Path, **other: Any) -> dict[str, Any]:
    request = {
        "model": {"path": str(model)}, "precisions": ["w4a8"], "drafters": [], "max_context": 256,
        "max_batch": MAX_BATCH, "seed": 0, **other,
    }  # fmt: skip
    return worker.call("load", timeout_s=TIMEOUT_S, **request)


def test_quantizing_is_silent_and_leaves_one_whole_file(
    worker: Worker, model: Path, log: Path
) -> None:
    load(worker, model)
    (made,) = (model.parent / "llama_cpp").iterdir()
    assert made.name.endswith(".q4_0.gguf")
    changed = made.stat().st_mtime_ns
    load(worker, model)
    assert made.stat().st_mtime_ns == changed, "a file that is there is not made again"
    assert worker.close() == 0
    assert log.read_text() == ""


def test_a_missing_or_broken_gguf_is_named(worker: Worker, model: Path) -> None:
    source = model.parent / "tiny.gguf"
    whole = source.read_bytes()
    source.unlink()
    with pytest.raises(WorkerError, match=r"tiny\.gguf is missing") as missing:
        load(worker, model)
    assert missing.value.type == "model"
    source.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WorkerError, match=r"tiny\.gguf: .* llama\.cpp says: \w+") as broken:
        load(worker, model)
    assert broken.value.type == "model"
    assert list((model.parent / "llama_cpp").iterdir()) == [], "half a file must not stay"


def test_a_round_may_hold_more_rows_than_llama_cpp_computes_at_once(
    worker: Worker, model: Path
) -> None:
    load(worker, model)
    request = {"precision": "w4a8", "tokens": [1, 64], "context": 9, "batch": MAX_BATCH}
    answer = worker.call("forward", timeout_s=TIMEOUT_S, repeats=2, **request)
    assert {n: len(times) for n, times in answer["times"].items()} == {"1": 2, "64": 2}


def test_prefill_is_never_shared_and_says_so(worker: Worker, model: Path) -> None:
    load(worker, model)
    request = {"method": plain("w4a8"), "prompts": [[1, 2, 3]], "batch_size": 1,
               "max_new_tokens": 2, "stop_ids": [], "share_prefill": True}  # fmt: skip
    for _ in range(2):
        (result,) = worker.call("run", timeout_s=TIMEOUT_S, **request)["requests"]
        assert result["ttft_shared"] is False

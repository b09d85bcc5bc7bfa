"""Packed checkpoints against transformers, compressed-tensors and llmcompressor.

The libraries run in .venvs/quantize, in one process for the module.
"""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import registry
from backends.client import Worker
from backends.pack.hf_import import pack_checkpoint
from backends.pack.packed import PackedFile
from backends.pack.safetensors_file import read_safetensors
from tests.conformance.served import TIMEOUT_S
from tests.fakes.quantized_checkpoint import Format, quantized
from tests.fakes.tiny_checkpoint import VOCAB, Tiny, tiny
from tests.unit.test_pack_checkpoint import packed_as_checkpoint

pytestmark = pytest.mark.backend
PYTHON = registry.ROOT / ".venvs" / "quantize" / "bin" / "python"

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# Both sides have the same 16-bit weights. The native engine's keys and values have 16 bits as well:
# each is off by up to 5e-4 of itself.
LARGEST_DIFFERENCE = 0.02
PERPLEXITY_RATIO = 1e-3
BF16_PERPLEXITY_RATIO = 5e-3


def models() -> dict[str, Tiny]:
    """Checkpoints by name."""
    linear = {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    found = {
        "llama": tiny("llama"),
        "llama, tied": tiny("llama", tied=True),
        "llama, llama3 scaling": tiny("llama", config={"rope_scaling": LLAMA3}),
        "llama, linear scaling": tiny("llama", config=linear),
        "mistral": tiny("mistral", seed=1, config={"sliding_window": None}),
        "qwen2": tiny("qwen2", tied=True),
        "qwen3": tiny("qwen3"),
    }
    for form in (Format("gptq"), Format("gptq", bits=8, symmetric=True), Format("awq")):
        found[f"{form.library} of {form.bits} bits"] = quantized(tiny("llama"), form)
    found["gptq in act-order"] = quantized(tiny("llama"), Format("gptq", act_order=True))
    return found


def dequantized(model: Tiny) -> Tiny:
    """The same weights as a plain 16-bit checkpoint, rounded as their libraries round them."""
    config = {key: value for key, value in model.config.items() if key != "quantization_config"}
    tensors = {name: values.astype(np.float16) for name, values in model.weights.items()}
    return Tiny(config, tensors, model.weights)


@dataclass(frozen=True)
class Compressed:
    """What llmcompressor is asked for."""

    model_type: str
    dtype: str
    symmetric: bool
    strategy: str
    group_size: int | None

    @property
    def name(self) -> str:
        """A folder's name."""
        kind = "symmetric" if self.symmetric else "asymmetric"
        return f"{self.model_type}-{self.dtype}-{kind}-{self.strategy}"


COMPRESSED = [
    Compressed("llama", "float16", True, "group", 128),
    Compressed("mistral", "bfloat16", False, "group", 32),
    Compressed("qwen2", "float16", False, "group", 64),
    Compressed("qwen3", "bfloat16", True, "channel", None),
]


@dataclass(frozen=True)
class References:
    """Where the libraries' answers and the packed files lie."""

    folder: Path
    tokens: list[list[int]]

    def logprobs(self, name: str) -> list[float]:
        """transformers' log-probabilities of every sequence, one after the other."""
        found = json.loads((self.folder / f"{name}.json").read_text())
        return [value for sequence in found for value in sequence]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    """Every checkpoint written, packed and given to the libraries."""
    if not PYTHON.exists():
        pytest.skip("llmcompressor is not installed here (make backend-quantize)")
    folder = tmp_path_factory.mktemp("imports")
    draw = random.Random(0)
    tokens = [[draw.randrange(VOCAB) for _ in range(length)] for length in (40, 100)]
    steps: list[dict[str, Any]] = []

    def score(name: str, checkpoint: Path) -> None:
        out = str(folder / f"{name}.json")
        steps.append({"do": "logprobs", "folder": str(checkpoint), "tokens": tokens, "out": out})

    for name, model in models().items():
        pack_checkpoint(model.write(folder / name), folder / f"{name}.sqm")
        score(name, dequantized(model).write(folder / f"{name}, dequantized"))
    for wanted in COMPRESSED:
        dtype = {"float16": "f16", "bfloat16": "bf16"}[wanted.dtype]
        source = tiny(wanted.model_type, dtype=dtype).write(folder / f"{wanted.name}-source")
        target = folder / wanted.name
        steps.append(
            {
                "do": "compress",
                "from": str(source),
                "to": str(target),
                "dtype": wanted.dtype,
                "symmetric": wanted.symmetric,
                "strategy": wanted.strategy,
                "group_size": wanted.group_size,
            }
        )
        out = str(folder / f"{wanted.name}.safetensors")
        steps.append({"do": "weights", "folder": str(target), "out": out})
        score(wanted.name, target)
    request = folder / "request.json"
    request.write_text(json.dumps(steps))
    program = registry.ROOT / "tests" / "conformance" / "hf_reference.py"
    done = subprocess.run(
        [str(PYTHON), str(program), str(request)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return References(folder, tokens)


def native_logprobs(path: Path, precision: str, tokens: list[list[int]]) -> list[float]:
    """The native engine's log-probabilities, one after the other."""
    backend = registry.backend("native")
    if not backend.program.exists():
        pytest.skip(f"the native worker is not built here ({backend.made_by})")
    return logprobs([str(backend.program), *backend.command[1:]], path, precision, tokens)


def logprobs(
    command: list[str], path: Path, precision: str, tokens: list[list[int]]
) -> list[float]:
    """A worker's log-probabilities of a packed file, one after the other."""
    with Worker(command, name=command[0], cwd=registry.ROOT) as worker:
        worker.call(
            "load",
            timeout_s=TIMEOUT_S,
            model={"path": str(path)},
            precisions=[precision],
            drafters=[],
            max_context=256,
            max_batch=1,
            seed=0,
        )
        answer = worker.call("score", timeout_s=TIMEOUT_S, sequences=tokens, precision=precision)
    return [value for sequence in answer["sequences"] for value in sequence["logprob"]]


def assert_close(ours: list[float], theirs: list[float]) -> None:
    """Each log-probability, and the perplexity, agree."""
    found, wanted = np.array(ours), np.array(theirs)
    assert np.abs(found - wanted).max() < LARGEST_DIFFERENCE
    assert np.exp(np.mean(wanted - found)) == pytest.approx(1, abs=PERPLEXITY_RATIO)


@pytest.mark.parametrize("name", models())
def test_native_logits_are_those_of_transformers(references: References, name: str) -> None:
    ours = native_logprobs(references.folder / f"{name}.sqm", "fp16", references.tokens)
    assert_close(ours, references.logprobs(name))


@pytest.mark.parametrize("name", ["llama, llama3 scaling", "qwen2", "qwen3", "awq of 4 bits"])
def test_transformers_backend_restores_the_checkpoint(references: References, name: str) -> None:
    command = [str(PYTHON), "-m", "backends.transformers_engine"]
    ours = logprobs(command, references.folder / f"{name}.sqm", "fp16", references.tokens)
    assert np.abs(np.array(ours) - references.logprobs(name)).max() < 1e-4


@pytest.mark.parametrize("wanted", COMPRESSED, ids=lambda wanted: wanted.name)
def test_compressed_weights_are_those_of_the_library(
    references: References, tmp_path: Path, wanted: Compressed
) -> None:
    pack_checkpoint(references.folder / wanted.name, tmp_path / "m.sqm")
    packed = PackedFile(tmp_path / "m.sqm")
    assert packed.metadata["tensors"]["layers.0.o"]["kind"].startswith("affine4")
    assert packed.metadata["source"]["notes"] == []
    found = packed_as_checkpoint(packed)
    theirs = read_safetensors(references.folder / f"{wanted.name}.safetensors")
    assert found.keys() == theirs.keys()
    for name, tensor in theirs.items():
        # The library computes s·(q − zero) in the type of its scales: one rounding.
        ours = found[name]
        if tensor.dtype == "F16":
            ours = ours.astype(np.float16).astype(np.float32)
        else:
            bits = ours.view(np.uint32)
            ours = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
        np.testing.assert_array_equal(ours, tensor.floats(), err_msg=name)


@pytest.mark.parametrize("wanted", COMPRESSED, ids=lambda wanted: wanted.name)
def test_compressed_logits_are_those_of_transformers(
    references: References, tmp_path: Path, wanted: Compressed
) -> None:
    pack_checkpoint(references.folder / wanted.name, tmp_path / "m.sqm")
    theirs = references.logprobs(wanted.name)
    if wanted.dtype == "float16":
        assert_close(native_logprobs(tmp_path / "m.sqm", "fp16", references.tokens), theirs)
        return
    # bf16 rounds the activations as well, each by up to 4e-3 of itself.
    ours = native_logprobs(tmp_path / "m.sqm", "bf16", references.tokens)
    ratio = np.exp(np.mean(theirs) - np.mean(ours))
    assert ratio == pytest.approx(1, abs=BF16_PERPLEXITY_RATIO)

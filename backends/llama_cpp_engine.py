"""Worker on llama.cpp (llama-cpp-python), on the CPU: one weight format a process.

Plain greedy decoding and the library's own prompt lookup. Its loop is Python, whose share of a round
is some ten microseconds a sequence; a round of the demo model takes milliseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from backends.decoding import decode
from backends.llama_cpp_model import PRECISION_OF, WEIGHT_FORMATS, LlamaCppModel, make_gguf
from backends.pack.errors import CheckpointError
from backends.pack.packed import PackedFile
from backends.protocol import ForwardRequest, LoadRequest, RequestError, RunRequest
from backends.worker import Engine, peak_bytes, serve

_BANDWIDTH_BYTES = 256 * 1024 * 1024
COMPUTE_DTYPE = {
    "f16": "f16 activations, sums as ggml chooses (f32 on x86)",
    "q8_0": "8-bit activations in groups of 32 (Q8_0), f32 sums",
    "q4_0": "8-bit activations in groups of 32 (Q8_0), f32 sums",
    "q4_1": "8-bit activations in groups of 32 (Q8_1), f32 sums",
}


class LlamaCppEngine(Engine):
    """llama.cpp with the GGUF that the packed model was made from, in one weight format."""

    backend = "llama_cpp"
    version = f"llama-cpp-python {llama_cpp.__version__}"

    def __init__(
        self, weight_format: str, *, threads: int, flash_attention: bool, repack: bool
    ) -> None:
        self._format = weight_format
        self._threads = threads
        self._flash_attention = flash_attention
        self._repack = repack
        self._model: LlamaCppModel | None = None

    def device(self) -> dict[str, Any]:
        """The CPU, llama.cpp's build and the settings in force."""
        return {
            "kind": "cpu",
            "name": _cpu_name(),
            "threads": self._threads,
            "flash_attention": self._flash_attention,
            "repack": self._repack,
            "system_info": llama_cpp.llama_print_system_info().decode().strip(),
        }

    def capabilities(self) -> dict[str, Any]:
        """The precision that the weight format computes; prompt lookup as the one drafter."""
        return {
            "precisions": [PRECISION_OF[self._format]],
            "drafters": ["none", "ngram"],
            "shapes": ["none", "chain"],
            "acceptance": ["greedy"],
            "max_batch": 64,
            "trace": ["none", "rounds"],
        }

    def load(self, request: LoadRequest) -> dict[str, Any]:
        """Load the model in this worker's weight format, converting its GGUF where needed."""
        if "path" not in request["model"]:
            raise RequestError("unsupported", "synthetic models are not served; give 'model.path'.")
        if request["drafters"]:
            raise RequestError("unsupported", "drafters with weights of their own are not served.")
        packed = Path(request["model"]["path"])
        try:
            metadata = PackedFile(packed).metadata
        except CheckpointError as error:
            raise RequestError("model", str(error)) from error
        source = packed.parent / str(metadata["source"]["file"])
        if not source.exists():
            raise RequestError(
                "model", f"{source}: the GGUF that {packed} was made from is missing."
            )
        gguf = source
        if self._format != metadata["weight_format"]:
            gguf = make_gguf(source, self._format, packed.parent / "llama_cpp")
        model = LlamaCppModel(
            gguf,
            max_context=request["max_context"],
            max_batch=request["max_batch"],
            threads=self._threads,
            flash_attention=self._flash_attention,
            repack=self._repack,
        )
        if self._model:
            self._model.close()
        self._model = model
        precision = PRECISION_OF[self._format]
        kv_bytes = 2 * 2 * metadata["num_layers"] * metadata["num_kv_heads"] * metadata["head_dim"]
        repacked = ", repacked" if self._repack else ""
        return {
            "memory": {
                "weight_bytes": {self._format: model.bytes},
                "kv_bytes": kv_bytes * request["max_context"] * request["max_batch"],
                "peak_bytes": peak_bytes(),
            },
            "proof": {
                precision: {
                    "kernels": [f"ggml mul_mat {self._format} of {gguf.name}{repacked}"],
                    "bytes_per_token": model.bytes,
                }
            },
            "compute_dtype": {precision: COMPUTE_DTYPE[self._format]},
            "model": {
                "name": metadata["name"],
                "vocab_size": model.vocabulary,
                "max_position": metadata["max_position"],
                "content_hash": metadata["content_hash"],
                "weight_format": self._format,
            },
        }

    def run(self, request: RunRequest) -> Mapping[str, Any]:
        """Greedy decoding, with prompt lookup where the method asks for it."""
        assert self._model is not None
        drafter = request["method"]["drafter"]
        if drafter["kind"] == "none":
            return decode(request, self._model)
        lookup = LlamaPromptLookupDecoding(
            max_ngram_size=drafter["max_ngram"],
            num_pred_tokens=request["method"]["shape"]["gamma"],
        )

        def propose(tokens: Sequence[int], most: int) -> list[int]:
            found = lookup(np.array(tokens, dtype=np.intc))
            return [int(token) for token in found[:most]]

        return decode(request, self._model, propose)

    def forward(self, request: ForwardRequest) -> dict[str, Any]:
        """Seconds of a forward of n rows a sequence after `context` tokens, orders interleaved."""
        if request["mask"] != "chain":
            raise RequestError("unsupported", "only the mask 'chain' is served.")
        model = self._model
        assert model is not None
        random = np.random.default_rng(0)
        slots = list(range(request["batch"]))
        if request["context"]:
            for slot in slots:
                model.prefill(slot, random.integers(3, 1000, request["context"]).tolist())
        times: dict[str, list[float]] = {str(n): [] for n in request["tokens"]}
        for repeat in range(request["repeats"]):
            turn = repeat % len(request["tokens"])
            for n in request["tokens"][turn:] + request["tokens"][:turn]:
                rows = random.integers(3, 1000, (request["batch"], n)).tolist()
                started = time.monotonic()
                model.logits(slots, rows)
                times[str(n)].append(time.monotonic() - started)
                for slot in slots:
                    model.truncate(slot, request["context"])
        return {
            "times": times,
            "bandwidth_bytes_s": _read_bandwidth(self._threads),
            "bytes_per_token": model.bytes,
        }

    def close(self) -> None:
        """Give the model back."""
        if self._model:
            self._model.close()


def _read_bandwidth(threads: int) -> float:
    """Bytes a second of summing a 256 MiB buffer, numpy in `threads` threads, median of 5."""
    from concurrent.futures import ThreadPoolExecutor

    parts = np.array_split(np.ones(_BANDWIDTH_BYTES // 8), threads)
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            started = time.monotonic()
            list(pool.map(np.max, parts))
            seconds.append(time.monotonic() - started)
    return _BANDWIDTH_BYTES / statistics.median(seconds)


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def main() -> None:
    """Serve the protocol on stdin and stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m backends.llama_cpp_engine",
        description="Worker of the 'llama_cpp' backend (docs/protocol.md). Writes converted GGUF "
        "files into the folder llama_cpp beside the packed model.",
    )
    parser.add_argument("--weight-format", choices=sorted(WEIGHT_FORMATS), default="q4_0")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-flash-attention", action="store_true")
    parser.add_argument("--no-repack", action="store_true", help="keep the file's own layout")
    options = parser.parse_args()
    serve(
        LlamaCppEngine(
            options.weight_format,
            threads=options.threads,
            flash_attention=not options.no_flash_attention,
            repack=not options.no_repack,
        )
    )


if __name__ == "__main__":
    main()

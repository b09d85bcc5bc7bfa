"""Worker on llama.cpp (llama-cpp-python), on the CPU: one weight format a process.

Plain greedy decoding and the library's own prompt lookup. Its loop is Python, whose share of a
round is some ten microseconds a sequence; a round of the demo model takes milliseconds. Every
prefill is computed anew, also where the request would let it be shared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from backends import llama_cpp_log
from backends.decoding import Propose, decode
from backends.llama_cpp_formats import COMPUTE_DTYPE, PRECISION_OF
from backends.llama_cpp_model import LlamaCppModel, Settings
from backends.llama_cpp_weights import make_gguf
from backends.plain_load import packed_model
from backends.protocol import MAX_DRAFTED, ForwardRequest, LoadRequest, RequestError, RunRequest
from backends.worker import Engine, cpu_name, peak_bytes, serve

_BANDWIDTH_BYTES = 256 * 1024 * 1024
_BANDWIDTH_PASSES = 5
_KV_BYTES = 2
"""Of one number in the cache, which is f16."""


class LlamaCppEngine(Engine):
    """llama.cpp with the GGUF that the packed model was made from, in one weight format."""

    backend = "llama_cpp"
    version = f"llama-cpp-python {llama_cpp.__version__}"

    def __init__(self, weight_format: str, settings: Settings) -> None:
        llama_cpp_log.quiet()
        llama_cpp.llama_backend_init()
        self._format = weight_format
        self._precision = PRECISION_OF[weight_format]
        self._settings = settings
        self._model: LlamaCppModel | None = None

    def device(self) -> dict[str, Any]:
        """The CPU, llama.cpp's build and the settings in force."""
        return {
            "kind": "cpu",
            "name": cpu_name(),
            **self._settings._asdict(),
            "system_info": llama_cpp.llama_print_system_info().decode().strip(),
        }

    def capabilities(self) -> dict[str, Any]:
        """The precision that the weight format computes; prompt lookup as the one drafter."""
        return {
            "precisions": [self._precision],
            "drafters": ["none", "ngram"],
            "shapes": ["none", "chain"],
            "acceptance": ["greedy"],
            "max_batch": 64,
            "trace": ["none", "rounds"],
        }

    def load(self, request: LoadRequest) -> dict[str, Any]:
        """Load the model in this worker's weight format, converting its GGUF where needed."""
        file = packed_model(request)
        packed, metadata = file.path, file.metadata
        gguf = self._gguf(packed, metadata)
        model = LlamaCppModel(
            gguf,
            self._settings,
            max_context=request["max_context"],
            max_batch=request["max_batch"],
        )
        self.close()
        self._model = model
        return self._description(metadata, gguf, request["max_context"] * request["max_batch"])

    def _gguf(self, packed: Path, metadata: Mapping[str, Any]) -> Path:
        """The GGUF in this worker's weight format, made beside the packed file if need be."""
        source = packed.parent / str(metadata["source"]["file"])
        if metadata["source"]["format"] != "gguf":
            raise RequestError(
                "unsupported",
                f"llama.cpp reads GGUF files, but {packed} was made from {source.name!r}. "
                "Pack a GGUF file of the model.",
            )
        if not source.exists():
            raise RequestError(
                "model",
                f"{source} is missing: llama.cpp reads the GGUF that {packed} was made from. "
                "Put it there.",
            )
        if self._format == metadata["weight_format"]:
            return source
        # The hash tells two files of one name apart.
        name = f"{packed.stem}.{metadata['content_hash'][:12]}.{self._format}.gguf"
        target = packed.parent / "llama_cpp" / name
        if not target.exists():
            make_gguf(source, self._format, target)
        return target

    def _description(
        self, metadata: Mapping[str, Any], gguf: Path, cached_tokens: int
    ) -> dict[str, Any]:
        """The answer to `load`."""
        assert self._model is not None
        per_token = 2 * metadata["num_layers"] * metadata["num_kv_heads"] * metadata["head_dim"]
        repacked = ", repacked" if self._settings.repack else ""
        return {
            "memory": {
                "weight_bytes": {self._format: self._model.bytes},
                "kv_bytes": _KV_BYTES * per_token * cached_tokens,
                "peak_bytes": peak_bytes(),
            },
            "proof": {
                self._precision: {
                    "kernels": [f"ggml mul_mat {self._format} of {gguf.name}{repacked}"],
                    "bytes_per_token": self._model.bytes,
                }
            },
            "compute_dtype": {self._precision: COMPUTE_DTYPE[self._format]},
            "model": {
                "name": metadata["name"],
                "vocab_size": self._model.vocabulary,
                "max_position": metadata["max_position"],
                "content_hash": metadata["content_hash"],
                "weight_format": self._format,
            },
        }

    def run(self, request: RunRequest) -> Mapping[str, Any]:
        """Greedy decoding, with prompt lookup where the method asks for it."""
        assert self._model is not None
        method = request["method"]
        if method["drafter"]["kind"] == "none":
            return decode(request, self._model)
        return decode(
            request,
            self._model,
            _prompt_lookup(method["drafter"]["max_ngram"], method["shape"]["gamma"]),
        )

    def forward(self, request: ForwardRequest) -> dict[str, Any]:
        """Seconds of a forward of n rows a sequence after `context` tokens, orders interleaved."""
        if request["mask"] != "chain":
            raise RequestError("unsupported", "only the mask 'chain' is served.")
        if max(request["tokens"]) > 1 + MAX_DRAFTED:
            raise RequestError("unsupported", f"at most {1 + MAX_DRAFTED} rows are served.")
        assert self._model is not None
        return {
            "times": _forward_times(self._model, request),
            "bandwidth_bytes_s": _read_bandwidth(self._settings.threads),
            "bytes_per_token": self._model.bytes,
        }

    def close(self) -> None:
        """Give the model back."""
        if self._model:
            self._model.close()
            self._model = None


def _prompt_lookup(max_ngram: int, gamma: int) -> Propose:
    """The library's own drafter: what followed the last tokens where they stood before."""
    lookup = LlamaPromptLookupDecoding(max_ngram_size=max_ngram, num_pred_tokens=gamma)

    def propose(tokens: Sequence[int], most: int) -> list[int]:
        found = lookup(np.array(tokens, dtype=np.intc))
        return [int(token) for token in found[:most]]

    return propose


def _forward_times(model: LlamaCppModel, request: ForwardRequest) -> dict[str, list[float]]:
    """Seconds of `repeats` forwards for each number of rows, after one of each that is dropped."""
    random = np.random.default_rng(0)
    slots = list(range(request["batch"]))
    for slot in slots:
        model.truncate(slot, 0)
        if request["context"]:
            model.prefill(slot, random.integers(0, model.vocabulary, request["context"]).tolist())

    def timed(count: int) -> float:
        rows = random.integers(0, model.vocabulary, (request["batch"], count)).tolist()
        started = time.monotonic()
        model.logits(slots, rows)
        seconds = time.monotonic() - started
        for slot in slots:
            model.truncate(slot, request["context"])
        return seconds

    for count in request["tokens"]:
        timed(count)
    times: dict[str, list[float]] = {str(count): [] for count in request["tokens"]}
    for _ in range(request["repeats"]):
        for count in random.permutation(request["tokens"]).tolist():
            times[str(count)].append(timed(count))
    return times


def _read_bandwidth(threads: int) -> float:
    """Bytes a second of reading a 256 MiB buffer, numpy in `threads` threads, median of 5."""
    parts = np.array_split(np.ones(_BANDWIDTH_BYTES // 8), threads)
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_BANDWIDTH_PASSES):
            started = time.monotonic()
            list(pool.map(np.max, parts))
            seconds.append(time.monotonic() - started)
    return _BANDWIDTH_BYTES / statistics.median(seconds)


def main() -> None:
    """Serve the protocol on stdin and stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m backends.llama_cpp_engine",
        description="Worker of the 'llama_cpp' backend (docs/protocol.md). Writes converted GGUF "
        "files into the folder llama_cpp beside the packed model.",
    )
    parser.add_argument("--weight-format", choices=sorted(PRECISION_OF), default="q4_0")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-flash-attention", action="store_true")
    parser.add_argument("--no-repack", action="store_true", help="keep the file's own layout")
    parser.add_argument(
        "--unified-cache", action="store_true", help="one KV buffer for all sequences"
    )
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"--threads {options.threads}: at least one thread is needed.")
    settings = Settings(
        threads=options.threads,
        flash_attention=not options.no_flash_attention,
        repack=not options.no_repack,
        unified_cache=options.unified_cache,
    )
    serve(LlamaCppEngine(options.weight_format, settings))


if __name__ == "__main__":
    main()

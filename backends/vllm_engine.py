"""Worker on vLLM's offline engine: one precision a process.

Greedy decoding, alone or with vLLM's own speculation (prompt lookup, a draft model, an EAGLE head).
CUDA graphs are on and prefix caching is off, so that no prefill is skipped. The precision is proved
from the bytes of the loaded weights.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.metrics.loggers import StatLoggerBase

from backends.protocol import LoadRequest, RequestError, RunRequest
from backends.vllm_checkpoint import QUANTIZED, Checkpoint, checkpoint_of, linear_weights
from backends.vllm_proof import loaded_weights, refuse_other_precision
from backends.vllm_run import Start, Step, decode_stepping
from backends.worker import Engine, peak_bytes, serve

COMPUTE_DTYPE = {
    "fp16": "weights, activations and KV cache f16; sums as the kernels choose",
    "bf16": "weights, activations and KV cache bf16; sums as the kernels choose",
    "w4a16": "int4 weights, f16 activations and KV cache; sums as the kernels choose",
    "w4a8": "int4 weights, int8 activations (Marlin), f16 KV cache; sums as the kernels choose",
}
_PREFILL_TOKENS = 8192
"""Prompt tokens of one step, at least: prompts that start together are one step's work."""
_LENGTH_STEP = 32
"""Tokens to which the longest sequence is rounded up."""


class DraftCounter(StatLoggerBase):  # type: ignore[misc]  # vLLM has no types here
    """Counts drafted tokens as vLLM's scheduler reports them."""

    def __init__(self, *_: Any) -> None:
        self.drafted = 0

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        """Add a step's drafted tokens."""
        stats = scheduler_stats.spec_decoding_stats if scheduler_stats else None
        if stats is not None:
            self.drafted += stats.num_draft_tokens

    def log_engine_initialized(self) -> None:
        """Nothing is logged."""


class Served:
    """An engine of vLLM for one drafter and draft length."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.counters: list[DraftCounter] = []

        def counter(vllm_config: Any, engine_index: int = 0) -> DraftCounter:
            self.counters.append(DraftCounter(vllm_config, engine_index))
            return self.counters[-1]

        self.engine = LLMEngine.from_engine_args(EngineArgs(**arguments), stat_loggers=[counter])
        self._numbers: dict[str, int] = {}
        self._runs = 0

    def add(self, starts: Sequence[Start], stop_ids: Sequence[int]) -> None:
        """See vllm_run.Stepping. The engine's own process would begin with the first request while
        the others are still on their way, and the first rounds would be the others' prefill."""
        idle = len(starts) > 1 and not self.engine.has_unfinished_requests()
        if idle:
            self.engine.sleep(level=0, mode="keep")  # level 0: nothing is scheduled
        for start in starts:
            self._runs += 1
            name = f"{self._runs}"
            parameters = SamplingParams(
                temperature=0.0,
                max_tokens=start.most,
                stop_token_ids=list(stop_ids),
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            self.engine.add_request(name, {"prompt_token_ids": list(start.prompt)}, parameters)
            self._numbers[name] = start.index
        if idle:
            self.engine.wake_up(tags=["scheduling"])

    def step(self) -> Step:
        """See vllm_run.Stepping."""
        before = sum(counter.drafted for counter in self.counters)
        tokens: dict[int, list[int]] = {}
        for output in self.engine.step():
            new = list(output.outputs[0].token_ids)
            if new:
                tokens[self._numbers[output.request_id]] = new
        return Step(tokens, sum(counter.drafted for counter in self.counters) - before)

    def close(self) -> None:
        """End the engine's process and give its memory back."""
        self.engine.engine_core.shutdown()


class VllmEngine(Engine):
    """vLLM at one precision; engines with a drafter are started when a run first asks for them."""

    backend = "vllm"
    version = vllm.__version__

    def __init__(self, precision: str, options: argparse.Namespace) -> None:
        self._precision = precision
        self._options = options
        self._checkpoint: Checkpoint | None = None
        self._request: LoadRequest | None = None
        self._served: dict[tuple[str, str, int], Served] = {}

    def device(self) -> dict[str, Any]:
        """The GPU and the options in force."""
        if not torch.cuda.is_available():
            raise RequestError("device", "vLLM sees no CUDA device: check the driver and the GPU.")
        return {
            "kind": "cuda",
            "name": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "linear_backend": self._options.linear_backend,
        }

    def capabilities(self) -> dict[str, Any]:
        """One precision; vLLM's own drafters as chains."""
        return {
            "precisions": [self._precision],
            "drafters": ["none", "ngram", "model", "head"],
            "shapes": ["none", "chain"],
            "acceptance": ["greedy"],
            "max_batch": 512,
            "trace": ["none", "rounds"],
        }

    def load(self, request: LoadRequest) -> dict[str, Any]:
        """Start an engine for plain decoding and prove its precision."""
        checkpoint = checkpoint_of(request["model"], self._precision)
        self.close()
        self._checkpoint, self._request = checkpoint, request
        engine = self._engine("none", "", 0, {})
        sizes = checkpoint.sizes
        weights = loaded_weights(engine.engine)
        refuse_other_precision(weights, linear_weights(sizes), self._precision)
        return {
            "memory": {
                "weight_bytes": weights.bytes_by_dtype,
                "kv_bytes": _kv_bytes(sizes, request["max_context"] * request["max_batch"]),
                "peak_bytes": peak_bytes(),
            },
            "proof": {
                self._precision: {
                    "kernels": weights.kernels,
                    "bytes_per_token": weights.bytes_per_token,
                }
            },
            "compute_dtype": {self._precision: COMPUTE_DTYPE[self._precision]},
            "model": {
                "name": sizes["name"],
                "vocab_size": sizes["vocab_size"],
                "max_position": sizes["max_position"],
                "content_hash": checkpoint.content_hash,
                "synthetic": checkpoint.synthetic,
            },
        }

    def run(self, request: RunRequest) -> Mapping[str, Any]:
        """Greedy decoding; a drafter's engine starts before the run's clock does."""
        method = request["method"]
        drafter = method["drafter"]
        engine = self._engine(
            drafter["kind"], drafter.get("id", ""), method["shape"].get("gamma", 0), drafter
        )
        return decode_stepping(request, engine)

    def close(self) -> None:
        """End every engine."""
        for served in self._served.values():
            served.close()
        self._served.clear()

    def _engine(self, kind: str, name: str, gamma: int, drafter: Mapping[str, Any]) -> Served:
        key = (kind, name, gamma)
        if key not in self._served:
            # Plain decoding stays; of engines with a drafter one is kept.
            for other in [k for k in self._served if k[0] != "none"]:
                self._served.pop(other).close()
            self._served[key] = Served(self._arguments(kind, name, gamma, drafter))
        return self._served[key]

    def _arguments(
        self, kind: str, name: str, gamma: int, drafter: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert self._checkpoint is not None
        assert self._request is not None
        sizes, request = self._checkpoint.sizes, self._request
        # What vLLM compiled serves runs of nearly the same length.
        length = -(-request["max_context"] // _LENGTH_STEP) * _LENGTH_STEP
        length = min(length, sizes["max_position"])
        # A block of the cache holds 16 tokens; one more for each sequence's last block.
        tokens = (length + 32) * request["max_batch"]
        arguments: dict[str, Any] = {
            "model": str(self._checkpoint.folder),
            "load_format": "dummy" if self._checkpoint.synthetic else "auto",
            "skip_tokenizer_init": True,
            "dtype": self._checkpoint.dtype,
            "max_model_len": length,
            "max_num_seqs": request["max_batch"],
            "max_num_batched_tokens": max(_PREFILL_TOKENS, length),
            "kv_cache_memory_bytes": max(1 << 30, _kv_bytes(sizes, tokens) * 5 // 4),
            "gpu_memory_utilization": self._options.gpu_memory_utilization,
            "enable_prefix_caching": False,
            "seed": request["seed"],
        }
        if self._options.linear_backend != "auto":
            arguments["linear_backend"] = self._options.linear_backend
        if kind != "none":
            arguments["speculative_config"] = self._speculation(kind, name, gamma, drafter)
        return arguments

    def _speculation(
        self, kind: str, name: str, gamma: int, drafter: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert self._request is not None
        if kind == "ngram":
            return {
                "method": "ngram",
                "num_speculative_tokens": gamma,
                "prompt_lookup_max": drafter["max_ngram"],
                "prompt_lookup_min": drafter["min_ngram"],
            }
        described = next((d for d in self._request["drafters"] if d["id"] == name), None)
        path = described.get("checkpoint") if described else None
        if not path:
            raise RequestError(
                "unsupported",
                f"drafter '{name}' has no checkpoint that vLLM reads: name its Hugging Face folder "
                "as 'checkpoint' beside its packed file.",
            )
        method = "draft_model" if kind == "model" else "eagle3"
        return {"method": method, "model": str(path), "num_speculative_tokens": gamma}


def _kv_bytes(sizes: Mapping[str, Any], tokens: int) -> int:
    """Bytes of the keys and values of `tokens` tokens in 16 bits."""
    return int(4 * sizes["num_layers"] * sizes["num_kv_heads"] * sizes["head_dim"] * tokens)


def main() -> None:
    """Serve the protocol on stdin and stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m backends.vllm_engine",
        description="Worker of the 'vllm' backend (docs/protocol.md). Writes 16-bit checkpoints "
        "into the folder vllm beside a packed model made from a GGUF.",
    )
    parser.add_argument("--precision", choices=sorted(COMPUTE_DTYPE), default="fp16")
    parser.add_argument(
        "--linear-backend",
        default="auto",
        help="kernels of the quantized matrices: auto, marlin, machete ... (vLLM's own names)",
    )
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.5)
    options = parser.parse_args()
    if not 0 < options.gpu_memory_utilization <= 1:
        parser.error(f"--gpu-memory-utilization {options.gpu_memory_utilization}: give 0 to 1.")
    if options.precision == "w4a8":
        os.environ["VLLM_MARLIN_INPUT_DTYPE"] = "int8"
        options.linear_backend = "marlin"
    elif options.precision not in QUANTIZED:
        options.linear_backend = "auto"
    serve(VllmEngine(options.precision, options))


if __name__ == "__main__":
    main()

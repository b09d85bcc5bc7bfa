"""Worker on Hugging Face transformers and PyTorch, on the CPU: the independent reference.

It checks the native engine's logits and perplexity. Each active sequence has its own forward, so
that its batch timings say nothing about batching.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers

from backends.decoding import decode
from backends.llama_weights import llama_config, llama_state, model_type
from backends.pack.errors import CheckpointError
from backends.plain_load import packed_model
from backends.protocol import ForwardRequest, LoadRequest, RequestError, RunRequest, ScoreRequest
from backends.worker import Engine, cpu_name, peak_bytes, serve

COMPUTE_DTYPE = {
    "fp16": "weights rounded to f16 and held as f32; activations, KV cache and sums f32",
    "bf16": "weights, activations and KV cache bf16; sums as PyTorch chooses, f32 inside products",
}
_BANDWIDTH_BYTES = 256 * 1024 * 1024
_BANDWIDTH_REPEATS = 5


class Slots:
    """One model with a KV cache for each batch slot."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._caches: dict[int, Any] = {}

    def prefill(self, slot: int, prompt: Sequence[int]) -> int:
        """See decoding.Stepper."""
        self._caches[slot] = transformers.DynamicCache()
        return self._forward(slot, prompt)

    def step(self, slots: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """See decoding.Stepper."""
        return [[self._forward(slot, row)] for slot, row in zip(slots, rows, strict=True)]

    def truncate(self, slot: int, length: int) -> None:
        """See decoding.Stepper."""
        self._caches[slot].crop(length)

    def _forward(self, slot: int, tokens: Sequence[int]) -> int:
        logits = self.model(
            torch.tensor([list(tokens)]), past_key_values=self._caches[slot], logits_to_keep=1
        ).logits
        return int(logits[0, -1].argmax())


class TransformersEngine(Engine):
    """Plain greedy decoding, scoring and the forward curve at 16-bit precisions."""

    backend = "transformers"
    version = transformers.__version__

    def __init__(self) -> None:
        self._models: dict[str, Any] = {}

    def device(self) -> dict[str, Any]:
        """The CPU and PyTorch's number of threads."""
        return {
            "kind": "cpu",
            "name": cpu_name(),
            "isa": torch.backends.cpu.get_cpu_capability().lower(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    def capabilities(self) -> dict[str, Any]:
        """16-bit precisions without speculation."""
        return {
            "precisions": list(COMPUTE_DTYPE),
            "drafters": ["none"],
            "shapes": ["none"],
            "acceptance": ["greedy"],
            "max_batch": 16,
            "trace": ["none", "rounds"],
        }

    def load(self, request: LoadRequest) -> dict[str, Any]:
        """Dequantize the packed file once for each precision."""
        packed = packed_model(request)
        if packed.metadata.get("hadamard"):
            raise RequestError(
                "unsupported",
                f"{packed.path} needs an online Hadamard transform, which this backend lacks. "
                "Serve it with the native backend.",
            )
        try:
            state = {name: torch.tensor(values) for name, values in llama_state(packed)}
        except CheckpointError as error:
            raise RequestError("model", str(error)) from error
        sizes = packed.metadata
        if request["max_context"] > sizes["max_position"]:
            raise RequestError(
                "bad_request",
                f"max_context {request['max_context']} exceeds the model's "
                f"{sizes['max_position']} positions.",
            )
        models = {precision: _build(sizes, state, precision) for precision in request["precisions"]}
        self._models = models
        weights = {precision: _weight_bytes(model) for precision, model in models.items()}
        per_token = 2 * sizes["num_layers"] * sizes["num_kv_heads"] * sizes["head_dim"]
        width = max(model.lm_head.weight.element_size() for model in models.values())
        return {
            "memory": {
                "weight_bytes": {
                    "f32" if precision == "fp16" else precision: size
                    for precision, size in weights.items()
                },
                "kv_bytes": per_token * width * request["max_context"] * request["max_batch"],
                "peak_bytes": peak_bytes(),
            },
            "proof": {
                precision: {
                    "kernels": [f"torch.nn.functional.linear {model.lm_head.weight.dtype}"],
                    "bytes_per_token": _bytes_per_token(model),
                }
                for precision, model in models.items()
            },
            "compute_dtype": {precision: COMPUTE_DTYPE[precision] for precision in models},
            "model": {
                "name": sizes["name"],
                "vocab_size": sizes["vocab_size"],
                "max_position": sizes["max_position"],
                "content_hash": sizes["content_hash"],
            },
        }

    def run(self, request: RunRequest) -> Mapping[str, Any]:
        """Plain greedy decoding."""
        with torch.inference_mode():
            return decode(request, Slots(self._models[request["method"]["precision"]]))

    def forward(self, request: ForwardRequest) -> dict[str, Any]:
        """Seconds of a forward of n rows a sequence after `context` tokens, orders interleaved."""
        model = self._models[request["precision"]]
        vocabulary = model.config.vocab_size
        times: dict[str, list[float]] = {str(n): [] for n in request["tokens"]}
        generator = torch.Generator().manual_seed(0)
        shape = (request["batch"], request["context"])
        with torch.inference_mode():
            cache = transformers.DynamicCache()
            if request["context"]:
                context = torch.randint(vocabulary, shape, generator=generator)
                model(context, past_key_values=cache, logits_to_keep=1)
            for repeat in range(request["repeats"]):
                turn = repeat % len(request["tokens"])
                for n in request["tokens"][turn:] + request["tokens"][:turn]:
                    rows = torch.randint(vocabulary, (request["batch"], n), generator=generator)
                    started = time.monotonic()
                    model(rows, past_key_values=cache)
                    times[str(n)].append(time.monotonic() - started)
                    cache.crop(-n)
        return {
            "times": times,
            "bandwidth_bytes_s": _read_bandwidth(),
            "bytes_per_token": _bytes_per_token(model),
        }

    def score(self, request: ScoreRequest) -> dict[str, Any]:
        """Teacher-forced log-probabilities (f32 softmax), compared with a reference if asked."""
        with torch.inference_mode():
            return {"sequences": [self._score(tokens, request) for tokens in request["sequences"]]}

    def _score(self, tokens: Sequence[int], request: ScoreRequest) -> dict[str, Any]:
        given = torch.tensor(tokens[1:])[:, None]
        logits = self._logits(request["precision"], tokens)
        logprobs = logits.log_softmax(-1)
        top = logprobs.max(-1)
        columns = {
            "top1": top.indices.tolist(),
            "top1_logprob": top.values.tolist(),
            "logprob": logprobs.gather(1, given)[:, 0].tolist(),
        }
        if request["reference"] is not None:
            reference = self._logits(request["reference"], tokens)
            ref_logprobs = reference.log_softmax(-1)
            best = reference.topk(2, dim=-1)
            kl = (ref_logprobs.exp() * (ref_logprobs - logprobs)).sum(-1)
            columns["ref_top1"] = best.indices[:, 0].tolist()
            columns["ref_logprob"] = ref_logprobs.gather(1, given)[:, 0].tolist()
            columns["margin"] = (best.values[:, 0] - best.values[:, 1]).tolist()
            columns["kl"] = kl.tolist()
        return columns

    def _logits(self, precision: str, tokens: Sequence[int]) -> torch.Tensor:
        """Logits [len(tokens) - 1, vocabulary] of the predictions after each token but the last."""
        logits: torch.Tensor = self._models[precision](torch.tensor([list(tokens)])).logits
        return logits[0, :-1].float()


def _build(sizes: Mapping[str, Any], state: Mapping[str, torch.Tensor], precision: str) -> Any:
    config = transformers.AutoConfig.for_model(model_type(sizes), **llama_config(sizes))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    rounded = {
        # Norms and biases stay as stored: no precision quantizes them.
        name: values.clone() if values.dim() == 1 else values.to(dtype).float()
        for name, values in state.items()
    }
    model.load_state_dict(rounded, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    if precision == "bf16":
        model.to(torch.bfloat16)
    return model.eval()


def _weight_bytes(model: Any) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def _bytes_per_token(model: Any) -> int:
    """Weight bytes that a forward of one row reads: all but an embedding table of its own."""
    embedding = model.model.embed_tokens.weight
    apart = 0 if embedding is model.lm_head.weight else embedding.numel() * embedding.element_size()
    return _weight_bytes(model) - apart


def _read_bandwidth() -> float:
    """Bytes a second of reading a 256 MiB buffer with PyTorch's threads, median of 5."""
    buffer = torch.ones(_BANDWIDTH_BYTES // 4)
    seconds = []
    for _ in range(_BANDWIDTH_REPEATS):
        started = time.monotonic()
        buffer.sum()
        seconds.append(time.monotonic() - started)
    return _BANDWIDTH_BYTES / statistics.median(seconds)


def main() -> None:
    """Serve the protocol on stdin and stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m backends.transformers_engine",
        description="Worker of the 'transformers' backend (docs/protocol.md). Writes no files.",
    )
    parser.add_argument("--threads", type=int, help="threads of PyTorch; default: its own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    serve(TransformersEngine())


if __name__ == "__main__":
    main()

"""The precision that a vLLM engine runs, from the bytes of the weights that it holds.

vLLM has run 16-bit weights under a quantized name (a `gptq` entry with dummy weights), so that a
name proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.protocol import RequestError

_SIXTEEN_BITS = 2.0
_FOUR_BITS_AT_MOST = 0.7
"""Bytes a weight: half a byte, and scales of groups of 32 or more."""


@dataclass(frozen=True)
class Weights:
    """Bytes of a model's parameters: by their type, of the layers' matrices, and what a forward of
    one row reads; and the classes that multiply by them."""

    bytes_by_dtype: dict[str, int]
    linear_bytes: int
    bytes_per_token: int
    kernels: list[str]


def describe(model: Any) -> dict[str, Any]:
    """Run inside the engine's process: what `loaded_weights` is made from, in plain values."""
    by_dtype: dict[str, int] = {}
    linear = embedding = 0
    kernels = set()
    for name, parameter in model.named_parameters():
        size = parameter.numel() * parameter.element_size()
        kind = str(parameter.dtype).removeprefix("torch.")
        by_dtype[kind] = by_dtype.get(kind, 0) + size
        if "embed_tokens" in name:
            embedding += size
        elif ".layers." in name and parameter.dim() > 1:
            linear += size
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if method is None or "Linear" not in type(module).__name__:
            continue
        scheme = getattr(module, "scheme", None)
        kernel = getattr(scheme, "kernel", None)
        kernels.add(type(kernel or scheme or method).__name__)
    head = getattr(model, "lm_head", None)
    tied = head is not None and not any("lm_head" in n for n, _ in model.named_parameters())
    return {
        "bytes_by_dtype": by_dtype,
        "linear_bytes": linear,
        "bytes_per_token": sum(by_dtype.values()) - (0 if tied else embedding),
        "kernels": sorted(kernels),
    }


def loaded_weights(engine: Any) -> Weights:
    """Ask the engine's worker what it holds (needs VLLM_ALLOW_INSECURE_SERIALIZATION=1)."""
    described: Mapping[str, Any] = engine.apply_model(describe)[0]
    return Weights(
        dict(described["bytes_by_dtype"]),
        int(described["linear_bytes"]),
        int(described["bytes_per_token"]),
        list(described["kernels"]),
    )


def refuse_other_precision(weights: Weights, linear_weights: int, precision: str) -> None:
    """Raise RequestError (`device`) where the layers' bytes are not those of `precision`."""
    a_weight = weights.linear_bytes / linear_weights
    four_bits = precision.startswith("w4")
    if four_bits and a_weight > _FOUR_BITS_AT_MOST:
        raise RequestError(
            "device",
            f"vLLM was asked for {precision} and loaded {a_weight:.2f} bytes a weight "
            f"({', '.join(weights.kernels)}): it did not quantize. Nothing was measured.",
        )
    if not four_bits and not 0.95 * _SIXTEEN_BITS < a_weight < 1.05 * _SIXTEEN_BITS:
        raise RequestError(
            "device",
            f"vLLM was asked for {precision} and loaded {a_weight:.2f} bytes a weight; 16-bit "
            "weights take 2. Nothing was measured.",
        )

"""Tiny checkpoints quantized by the published layouts and formulas of each library.

Everything is written with numpy alone, so that what the importers read does not come from their own
code. All libraries mean w = s·(q − zero).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.fakes.tiny_checkpoint import (
    HIDDEN,
    INNER,
    Array,
    Bf16,
    Floats,
    Tiny,
    to_bf16,
    value_of,
)


@dataclass(frozen=True)
class Format:
    """`group` -1 is a whole row; `version` is that of GPTQ's zero points; `unequal` moves a column
    of group 0 into group 1."""

    library: str
    bits: int = 4
    group: int = 64
    symmetric: bool = False
    scale_type: str = "f16"
    version: int = 1
    act_order: bool = False
    unequal: bool = False


@dataclass(frozen=True)
class Quantized:
    """Codes of one matrix: q and zero as unsigned integers, s [rows, groups] as stored."""

    q: Array
    s: Array
    zero: Array

    def weights(self, order: Array) -> Floats:
        """s·(q − zero), each column with the scale and zero point of its group in `order`."""
        difference = self.q.astype(np.float64) - self.zero[:, order]
        exact = difference * value_of(self.s).astype(np.float64)[:, order]
        return exact.astype(np.float32)


def quantize(weight: Floats, form: Format, order: Array) -> Quantized:
    """Round to nearest in groups of columns; `order` gives each column's group."""
    rows, groups = len(weight), int(order.max()) + 1
    bits, top = form.bits, (1 << form.bits) - 1
    low, high = np.zeros((rows, groups)), np.zeros((rows, groups))
    for index in range(groups):
        part = weight[:, order == index]
        low[:, index], high[:, index] = part.min(axis=1), part.max(axis=1)
    if form.symmetric:
        spread = 2 * np.maximum(-low, high)
        zero = np.full((rows, groups), 1 << (bits - 1))
    else:
        spread = high - low
        # 0 does not fit the first version of GPTQ's zero points.
        zero = np.clip(np.round(-low / spread * top), 1, top).astype(int)
    scale = (spread / top).astype(np.float32)
    stored = {"f16": scale.astype(np.float16), "bf16": to_bf16(scale), "f32": scale}[
        form.scale_type
    ]
    steps = np.round(weight / value_of(stored)[:, order]) + zero[:, order]
    return Quantized(np.clip(steps, 0, top).astype(np.uint32), stored, zero)


def words(codes: Array, bits: int, axis: int) -> npt.NDArray[np.int32]:
    """Codes into 32-bit words along `axis`, the first in the lowest bits; padded with zeros."""
    moved = np.moveaxis(codes.astype(np.uint64), axis, 0)
    per_word = 32 // bits
    packed = np.zeros((-(-len(moved) // per_word), *moved.shape[1:]), np.uint64)
    for index, line in enumerate(moved):
        packed[index // per_word] |= line << np.uint64(bits * (index % per_word))
    return np.moveaxis(packed.astype(np.uint32).view(np.int32), 0, axis)


def quantized(model: Tiny, form: Format) -> Tiny:
    """The same model with its linear layers in a library's format, and the config for it."""
    random = np.random.default_rng(1)
    tensors, weights = dict(model.tensors), dict(model.weights)
    shuffled = {width: random.permutation(width) for width in (HIDDEN, INNER)}
    for name in [name for name in tensors if "_proj.weight" in name]:
        module = name.removesuffix(".weight")
        cols = weights[name].shape[1]
        # Layers with the same input share its order, as their Hessian is the same.
        place = shuffled[cols] if form.act_order else np.arange(cols)
        order = (place // (cols if form.group == -1 else form.group)).astype(np.int32)
        if form.unequal:
            order[np.argmax(order == 0)] = 1
        found = quantize(weights[name], form, order)
        del tensors[name]
        weights[name] = found.weights(order)
        parts = {"gptq": _gptq, "awq": _awq, "ct": _compressed}[form.library](found, form)
        if form.library == "gptq":
            parts["g_idx"] = order
        elif form.act_order:
            parts["weight_g_idx"] = order
        tensors |= {f"{module}.{part}": value for part, value in parts.items()}
    config = {**model.config, "quantization_config": quantization_config(form)}
    return Tiny(config, tensors, weights, dict(model.files))


def quantization_config(form: Format) -> dict[str, Any]:
    """What the library writes into config.json."""
    if form.library == "gptq":
        return {
            "quant_method": "gptq",
            "bits": form.bits,
            "group_size": form.group,
            "sym": form.symmetric,
            "desc_act": form.act_order,
            "checkpoint_format": "gptq" if form.version == 1 else "gptq_v2",
        }
    if form.library == "awq":
        return {
            "quant_method": "awq",
            "bits": form.bits,
            "group_size": form.group,
            "zero_point": True,
            "version": "gemm",
        }
    weights = {
        "num_bits": form.bits,
        "type": "int",
        "symmetric": form.symmetric,
        "strategy": "channel" if form.group == -1 else "group",
        "group_size": None if form.group == -1 else form.group,
        "actorder": "group" if form.act_order else None,
        "dynamic": False,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": None,
                "output_activations": None,
            }
        },
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }


def _transposed(array: Array) -> Array:
    kind = Bf16 if isinstance(array, Bf16) else np.ndarray
    return np.ascontiguousarray(array.T).view(kind)


def _gptq(found: Quantized, form: Format) -> dict[str, Array]:
    stored_zero = found.zero.T - (1 if form.version == 1 else 0)
    return {
        "qweight": words(found.q.T, form.bits, 0),
        "qzeros": words(stored_zero, form.bits, 1),
        "scales": _transposed(found.s),
    }


def _awq(found: Quantized, form: Format) -> dict[str, Array]:
    def interleaved(codes: Array) -> Array:
        eights = codes.reshape(len(codes), -1, 8)
        return eights[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(codes.shape)

    return {
        "qweight": words(interleaved(found.q.T), form.bits, 1),
        "qzeros": words(interleaved(found.zero.T), form.bits, 1),
        "scales": _transposed(found.s),
    }


def _compressed(found: Quantized, form: Format) -> dict[str, Array]:
    parts: dict[str, Array] = {
        "weight_packed": words(found.q, form.bits, 1),
        "weight_scale": found.s,
        "weight_shape": np.array(found.q.shape, np.int64),
    }
    if not form.symmetric:
        parts["weight_zero_point"] = words(found.zero, form.bits, 0)
    return parts

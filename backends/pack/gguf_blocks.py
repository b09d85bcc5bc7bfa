"""GGUF tensor types into the kinds of a packed file, without loss where the type has f16 scales.

Block layouts are those of ggml (ggml-common.h), each of 32 weights: Q4_0 is one f16 scale d and 16
bytes, w = d·(q − 8); Q4_1 adds an f16 minimum m, w = d·q + m; byte i holds element i in its low
half and element i + 16 in its high half. Q8_0 is one f16 scale and 32 signed bytes, w = d·q.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from backends.pack.errors import CheckpointError
from backends.pack.gguf_file import GgufTensor
from backends.pack.gguf_superblocks import dequantize_q4_k, dequantize_q6_k
from backends.pack.rounding import Rounding
from backends.pack.tiles import Affine4, Affine8, Bytes, Halves, Matrix, Sixteen, Vector

_SUPERBLOCKS = {"Q4_K": dequantize_q4_k, "Q6_K": dequantize_q6_k}
MATRIX_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", *_SUPERBLOCKS)
_BLOCK = 32


def to_vector(path: Path, tensor: GgufTensor) -> Vector:
    """A norm's weights as f32. Raises CheckpointError for other types and for NaN or infinity."""
    if tensor.type is GGMLQuantizationType.F32:
        values = tensor.data.view(np.float32).copy()
    elif tensor.type is GGMLQuantizationType.F16:
        values = tensor.data.view(np.float16).astype(np.float32)
    else:
        raise CheckpointError(
            path,
            f"type {tensor.type.name} is unsupported for a norm; use F32 or F16.",
            tensor.name,
        )
    if not np.isfinite(values).all():
        raise CheckpointError(path, "it holds NaN or infinity.", tensor.name)
    return Vector(values)


def to_matrix(path: Path, tensor: GgufTensor, rounding: Rounding) -> Matrix:
    """A weight matrix in the packed kind that keeps it.

    F32 is rounded to f16, the baseline's width, and so are the exact values of Q4_K and Q6_K, whose
    scales have more bits than a packed group's; all other types are kept exactly. Raises
    CheckpointError for an unsupported type, NaN or infinity, and values out of the kind's range.
    """
    rows, cols = tensor.shape
    name = tensor.type.name
    if name not in MATRIX_TYPES:
        raise CheckpointError(
            path,
            f"type {name} is unsupported; supported are {', '.join(MATRIX_TYPES)}. "
            "Convert the checkpoint to one of these.",
            tensor.name,
        )
    if name == "F32" or name in _SUPERBLOCKS:
        return _rounded(path, tensor, rounding)
    if name in ("F16", "BF16"):
        return _checked(
            path, tensor, Sixteen(tensor.data.view(np.uint16).reshape(rows, cols), name.lower())
        )
    blocks = tensor.data.reshape(rows, cols // _BLOCK, -1)
    scale = _halves(path, tensor, blocks[:, :, 0:2])
    if name == "Q8_0":
        codes = np.bitwise_xor(blocks[:, :, 2:], np.uint8(128))
        return Affine8(codes.reshape(rows, cols), scale)
    if name == "Q4_1":
        minimum = _halves(path, tensor, blocks[:, :, 2:4])
        return Affine4(_nibbles(blocks[:, :, 4:], rows, cols), scale, minimum)
    with np.errstate(over="ignore"):
        minimum = (scale * np.float16(-8)).astype(np.float16)
    if not np.isfinite(minimum).all():
        raise CheckpointError(path, "a scale is too large for an f16 minimum.", tensor.name)
    return Affine4(_nibbles(blocks[:, :, 2:], rows, cols), scale, minimum)


def _rounded(path: Path, tensor: GgufTensor, rounding: Rounding) -> Sixteen:
    name = tensor.type.name
    values = (
        _SUPERBLOCKS[name](tensor.data) if name in _SUPERBLOCKS else tensor.data.view(np.float32)
    ).reshape(tensor.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float16)
    matrix = _checked(path, tensor, Sixteen(rounded.view(np.uint16), "f16"))
    rounding.add(f"{name} weights", int((matrix.dequantize() != values).sum()), values.size)
    return matrix


def _checked(path: Path, tensor: GgufTensor, matrix: Sixteen) -> Sixteen:
    if not np.isfinite(matrix.dequantize()).all():
        raise CheckpointError(
            path, f"it holds NaN, infinity or values beyond {matrix.kind}.", tensor.name
        )
    return matrix


def _halves(path: Path, tensor: GgufTensor, raw: Bytes) -> Halves:
    values = np.ascontiguousarray(raw).view(np.float16)[:, :, 0]
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, group = bad[0]
        raise CheckpointError(
            path, f"row {row}, group {group}: a scale is NaN or infinity.", tensor.name
        )
    return values


def _nibbles(raw: Bytes, rows: int, cols: int) -> npt.NDArray[np.uint8]:
    return np.concatenate([raw & 15, raw >> 4], axis=2).reshape(rows, cols)

"""GGUF tensor types into the kinds of a packed file, without loss where the type has groups.

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
from backends.pack.tiles import Affine4, Affine8, Bytes, Halves, Matrix, Sixteen, Vector

MATRIX_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
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


def to_matrix(path: Path, tensor: GgufTensor) -> Matrix:
    """A weight matrix in the packed kind that keeps it.

    F32 is rounded to f16, the baseline's width; all other types are kept exactly. Raises
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
    if name in ("F32", "F16", "BF16"):
        return _sixteen(path, tensor)
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


def _sixteen(path: Path, tensor: GgufTensor) -> Sixteen:
    if tensor.type is GGMLQuantizationType.BF16:
        matrix = Sixteen(tensor.data.view(np.uint16).reshape(tensor.shape), "bf16")
    elif tensor.type is GGMLQuantizationType.F16:
        matrix = Sixteen(tensor.data.view(np.uint16).reshape(tensor.shape), "f16")
    else:
        with np.errstate(over="ignore"):
            rounded = tensor.data.view(np.float32).astype(np.float16)
        matrix = Sixteen(rounded.view(np.uint16).reshape(tensor.shape), "f16")
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

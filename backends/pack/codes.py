"""Integer codes with scales and zero points, as GPTQ, AWQ and compressed-tensors store weights.

All three mean w = s·(q − zero). `to_matrix` brings them into a packed kind; what cannot be kept
exactly is counted, never hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from backends.pack.rounding import Rounding
from backends.pack.safetensors_file import StoredTensor
from backends.pack.tiles import GROUPS, Affine4, Affine8, Bytes, Floats, Matrix, Sixteen, Tokens

Integers = npt.NDArray[np.int16]
_Values = TypeVar("_Values", Floats, Integers)


@dataclass(frozen=True)
class Codes:
    """w = s·(q − zero). q [rows, cols] uint8 of `bits` bits; s f32 and zero [rows, groups].

    `scale` is the tensor that s comes from: it names the place in errors, and its type is the one
    in which the library that wrote it computes the weights. `order` [cols] is each column's group
    where groups are not runs of neighbouring columns (act-order).
    """

    bits: int
    q: Bytes
    s: Floats
    zero: Integers
    scale: StoredTensor
    order: npt.NDArray[np.int64] | None = None

    def take_rows(self, rows: npt.NDArray[np.int64]) -> Codes:
        """The codes of these rows, in this order."""
        return Codes(self.bits, self.q[rows], self.s[rows], self.zero[rows], self.scale, self.order)

    def dequantize(self) -> Floats:
        """The weights [rows, cols], f32: exact for scales of 16 bits."""
        group = self._column_groups()
        difference = self.q.astype(np.float32) - self.zero.astype(np.float32)[:, group]
        return difference * self.s[:, group]

    def _column_groups(self) -> npt.NDArray[np.int64]:
        if self.order is not None:
            return self.order
        cols = self.q.shape[1]
        return np.repeat(np.arange(self.s.shape[1]), cols // self.s.shape[1])


def concatenate_codes(parts: Sequence[Codes]) -> Codes:
    """The rows of all parts, in order. Raises CheckpointError where they differ in width."""
    first = parts[0]
    for part in parts[1:]:
        if (part.bits, part.s.shape[1]) != (first.bits, first.s.shape[1]):
            raise part.scale.error(
                f"its matrix has {part.bits} bits in {part.s.shape[1]} groups a row beside "
                f"{first.bits} bits in {first.s.shape[1]} groups of {first.scale.name!r}: mixed "
                "bit widths or groups are unsupported, since both become one tensor."
            )
    orders = [part.order for part in parts]
    same = all(
        order is None if orders[0] is None else order is not None and (order == orders[0]).all()
        for order in orders
    )
    if not same:
        raise first.scale.error(
            "its matrix and those that are fused with it have different orders of columns (g_idx), "
            "which is unsupported."
        )
    return Codes(
        first.bits,
        np.concatenate([part.q for part in parts]),
        np.concatenate([part.s for part in parts]),
        np.concatenate([part.zero for part in parts]),
        first.scale,
        first.order,
    )


def contiguous(codes: Codes) -> tuple[Codes, Tokens | None]:
    """The codes with each group's columns side by side, and which input each column then takes.

    None where the columns stand so already, and where their groups differ in size, which leaves
    the codes in act-order.
    """
    groups = codes.s.shape[1]
    if codes.order is None:
        return codes, None
    if (np.bincount(codes.order, minlength=groups) != codes.q.shape[1] // groups).any():
        return codes, None
    columns = np.argsort(codes.order, kind="stable")
    sorted_codes = dataclasses.replace(codes, q=codes.q[:, columns], order=None)
    return sorted_codes, Tokens(columns.astype(np.int32))


def to_matrix(codes: Codes, rounding: Rounding) -> Matrix:
    """The codes in the packed kind that keeps them.

    4 bits become `affine4` where every −s·zero is an f16 number (as for symmetric codes), else
    `affine4z`; 8 bits become `affine8` where their zero points are 128 or fit it after a shift.
    Other 8-bit codes and those still in act-order become 16-bit weights, rounded as their library
    rounds them. Raises CheckpointError for a scale that is NaN, infinite or beyond f16.
    """
    rounding.wrap(int((codes.zero >> codes.bits).sum()))
    if codes.order is not None:
        return _sixteen(codes, rounding, "in act-order with groups of unequal size (g_idx)")
    s, zero = _whole_groups(codes, codes.s), _whole_groups(codes, codes.zero)
    if codes.bits == 8:
        shifted = codes.q.astype(np.int16) + np.repeat(128 - zero, _width(codes), axis=1)
        if shifted.min() < 0 or shifted.max() > 255:
            return _sixteen(codes, rounding, "of 8 bits that no symmetric 8-bit code can hold")
        return Affine8(shifted.astype(np.uint8), _halves(codes, s, rounding))
    halves = _halves(codes, s, rounding)
    exact = -halves.astype(np.float32) * zero
    with np.errstate(over="ignore"):
        minimum = exact.astype(np.float16)
    if (minimum.astype(np.float32) == exact).all():
        return Affine4(codes.q, halves, minimum)
    return Affine4(codes.q, halves, (-zero).astype(np.float16), "affine4z")


def _width(codes: Codes) -> int:
    """Columns of a packed group: the widest that divides the checkpoint's."""
    group = codes.q.shape[1] // codes.s.shape[1]
    width = max((size for size in GROUPS if group % size == 0), default=0)
    if not width:
        raise codes.scale.error(
            f"its groups of {group} columns do not divide into 32: this group size is unsupported."
        )
    return width


def _whole_groups(codes: Codes, values: _Values) -> _Values:
    """`values` [rows, groups], repeated for each packed group of a wider one."""
    times = codes.q.shape[1] // values.shape[1] // _width(codes)
    return np.repeat(values, times, axis=1)


def _halves(codes: Codes, s: Floats, rounding: Rounding) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = s.astype(np.float16)
    if not np.isfinite(halves).all():
        row, group = np.argwhere(~np.isfinite(halves))[0]
        raise codes.scale.error(f"row {row}, group {group}: a scale is too large for f16.")
    rounding.add("scales", int((halves.astype(np.float32) != s).sum()), s.size)
    return halves


def _sixteen(codes: Codes, rounding: Rounding, why: str) -> Sixteen:
    """16-bit weights of the type in which the library that wrote the codes computes them."""
    rounding.widen(why)
    kind = "bf16" if codes.scale.dtype == "BF16" else "f16"
    return sixteen(codes.dequantize(), kind, codes.scale)


def sixteen(weights: Floats, kind: str, origin: StoredTensor) -> Sixteen:
    """f32 weights rounded to `kind`, nearest and ties to even. Raises beyond its range."""
    if kind == "f16":
        with np.errstate(over="ignore"):
            bits = weights.astype(np.float16).view(np.uint16)
    else:
        wide = weights.view(np.uint32)
        bits = ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16).astype(np.uint16)
    matrix = Sixteen(bits, kind)
    if not np.isfinite(matrix.dequantize()).all():
        raise origin.error(f"it holds values beyond {kind}.")
    return matrix


def unpack_words(tensor: StoredTensor, bits: int, shape: tuple[int, int], axis: int) -> Bytes:
    """Codes [shape] from 32-bit words that run along `axis`, lowest bits first.

    Raises CheckpointError where the words do not belong to codes of this width and shape.
    """
    per_word = 32 // bits
    words = tensor.integers()
    expected = list(shape)
    expected[axis] = -(-shape[axis] // per_word)
    if tensor.dtype != "I32" or words.shape != tuple(expected):
        raise tensor.error(
            f"its {tensor.dtype} shape {words.shape} is not the I32 shape {tuple(expected)} of "
            f"{bits}-bit codes for {shape[0]} x {shape[1]}. Mixed bit widths are unsupported."
        )
    lines = np.ascontiguousarray(words if axis else words.T).view(np.uint32)
    shifts = np.arange(per_word, dtype=np.uint32) * bits
    codes = (lines[:, :, None] >> shifts & ((1 << bits) - 1)).astype(np.uint8)
    flat = codes.reshape(len(lines), -1)[:, : shape[axis]]
    return np.ascontiguousarray(flat if axis else flat.T)

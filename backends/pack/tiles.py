"""Tensors in the kinds of a packed file, and their tiles of 16 rows (docs/packed-format.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

TILE_ROWS = 16
GROUPS = (32, 64, 128)
KINDS = ("affine4", "affine4z", "affine8", "f16", "bf16", "f32", "i32")

Bytes = npt.NDArray[np.uint8]
Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Affine4:
    """w = s·q + m with q in 0..15, one s and m for each row and group of columns.

    q [rows, cols] uint8; s and m [rows, cols / group] f16. Of the kind `affine4z`, m holds the
    integers −zero, w = s·(q − zero): s·zero has too many bits for f16.
    """

    q: Bytes
    s: Halves
    m: Halves
    kind: str = "affine4"

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols)."""
        return self.q.shape[0], self.q.shape[1]

    @property
    def group(self) -> int:
        """Columns that share s and m."""
        return int(self.q.shape[1] // self.s.shape[1])

    def dequantize(self) -> Floats:
        """The weights [rows, cols], f32: one rounding of s·q + m, none where m is −s·zero."""
        rows, cols = self.shape
        q = self.q.reshape(rows, -1, self.group).astype(np.float32)
        s, m = self.s.astype(np.float32), self.m.astype(np.float32)
        if self.kind == "affine4z":
            m = s * m
        return (q * s[:, :, None] + m[:, :, None]).reshape(rows, cols)

    def to_bytes(self) -> Bytes:
        """The tensor's tiles, one after the other."""
        q, s, m = _pad_rows(self.q, 0), _pad_rows(self.s, 0), _pad_rows(self.m, 0)
        tiles, groups = len(q) // TILE_ROWS, s.shape[1]
        halves = q.reshape(tiles, TILE_ROWS, groups, self.group // 8, 2, 4)
        nibbles = np.bitwise_or(halves[..., 0, :], halves[..., 1, :] << 4)
        by_group: Bytes = nibbles.transpose(0, 2, 3, 1, 4).reshape(tiles, groups, -1)
        parts = [by_group, _tile_halves(s, tiles), _tile_halves(m, tiles)]
        return np.concatenate(parts, axis=2).reshape(-1)

    @staticmethod
    def from_bytes(data: Bytes, rows: int, cols: int, group: int, kind: str) -> Affine4:
        """Inverse of `to_bytes`; padded rows are dropped."""
        groups = cols // group
        units = data.reshape(-1, groups, group * 8 + 4 * TILE_ROWS)
        nibbles = units[:, :, : group * 8].reshape(-1, groups, group // 8, TILE_ROWS, 4)
        halves = np.stack([nibbles & 15, nibbles >> 4], axis=4).transpose(0, 3, 1, 2, 4, 5)
        s = _untile_halves(units[:, :, group * 8 : group * 8 + 32], rows)
        m = _untile_halves(units[:, :, group * 8 + 32 :], rows)
        return Affine4(halves.reshape(-1, cols)[:rows], s, m, kind)


@dataclass(frozen=True)
class Affine8:
    """w = s·(q − 128) with q in 0..255, one s for each row and group of columns.

    q [rows, cols] uint8; s [rows, cols / group] f16.
    """

    q: Bytes
    s: Halves
    kind = "affine8"

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols)."""
        return self.q.shape[0], self.q.shape[1]

    @property
    def group(self) -> int:
        """Columns that share s."""
        return int(self.q.shape[1] // self.s.shape[1])

    def dequantize(self) -> Floats:
        """The weights [rows, cols], f32, exact."""
        rows, cols = self.shape
        q = self.q.reshape(rows, -1, self.group).astype(np.float32) - np.float32(128)
        return (q * self.s.astype(np.float32)[:, :, None]).reshape(rows, cols)

    def to_bytes(self) -> Bytes:
        """The tensor's tiles, one after the other."""
        q, s = _pad_rows(self.q, 128), _pad_rows(self.s, 0)
        tiles, groups = len(q) // TILE_ROWS, s.shape[1]
        codes = q.reshape(tiles, TILE_ROWS, groups, self.group // 4, 4).transpose(0, 2, 3, 1, 4)
        parts = [codes.reshape(tiles, groups, -1), _tile_halves(s, tiles)]
        return np.concatenate(parts, axis=2).reshape(-1)

    @staticmethod
    def from_bytes(data: Bytes, rows: int, cols: int, group: int) -> Affine8:
        """Inverse of `to_bytes`; padded rows are dropped."""
        groups = cols // group
        units = data.reshape(-1, groups, group * 16 + 2 * TILE_ROWS)
        codes = units[:, :, : group * 16].reshape(-1, groups, group // 4, TILE_ROWS, 4)
        q = codes.transpose(0, 3, 1, 2, 4).reshape(-1, cols)[:rows]
        return Affine8(q, _untile_halves(units[:, :, group * 16 :], rows))


@dataclass(frozen=True)
class Sixteen:
    """16-bit weights. bits [rows, cols] uint16, of the kind `f16` or `bf16`."""

    bits: npt.NDArray[np.uint16]
    kind: str
    group = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols)."""
        return self.bits.shape[0], self.bits.shape[1]

    def dequantize(self) -> Floats:
        """The weights [rows, cols], f32, exact."""
        if self.kind == "f16":
            return self.bits.view(np.float16).astype(np.float32)
        return (self.bits.astype(np.uint32) << 16).view(np.float32)

    def to_bytes(self) -> Bytes:
        """The tensor's tiles, one after the other."""
        bits = _pad_rows(self.bits, 0)
        run = _columns_together(self.kind)
        tiled = bits.reshape(-1, TILE_ROWS, bits.shape[1] // run, run).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(tiled).view(np.uint8).reshape(-1)

    @staticmethod
    def from_bytes(data: Bytes, rows: int, cols: int, kind: str) -> Sixteen:
        """Inverse of `to_bytes`; padded rows are dropped."""
        run = _columns_together(kind)
        tiled = data.view(np.uint16).reshape(-1, cols // run, TILE_ROWS, run)
        return Sixteen(tiled.transpose(0, 2, 1, 3).reshape(-1, cols)[:rows], kind)


@dataclass(frozen=True)
class Vector:
    """A norm's weights: values [rows], f32."""

    values: Floats
    kind = "f32"
    group = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, 1)."""
        return len(self.values), 1

    def dequantize(self) -> Floats:
        """The values [rows]."""
        return self.values

    def to_bytes(self) -> Bytes:
        """The values, little-endian."""
        return np.ascontiguousarray(self.values).view(np.uint8)


@dataclass(frozen=True)
class Tokens:
    """Token ids, or places of columns: values [rows], i32."""

    values: Integers
    kind = "i32"
    group = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, 1)."""
        return len(self.values), 1

    def dequantize(self) -> Floats:
        """The values as numbers [rows]; exact below 2^24."""
        return self.values.astype(np.float32)

    def to_bytes(self) -> Bytes:
        """The values, little-endian."""
        return np.ascontiguousarray(self.values).view(np.uint8)


Matrix = Affine4 | Affine8 | Sixteen
Tensor = Matrix | Vector | Tokens
_Array = TypeVar("_Array", bound=npt.NDArray[Any])
_AnyMatrix = TypeVar("_AnyMatrix", Affine4, Affine8, Sixteen)


def tensor_bytes(kind: str, rows: int, cols: int, group: int) -> int:
    """Bytes of a tensor of this logical shape; the last tile of 16 rows counts whole."""
    tiles = -(-rows // TILE_ROWS)
    if kind in ("affine4", "affine4z"):
        return tiles * (cols // group) * (group * 8 + 4 * TILE_ROWS)
    if kind == "affine8":
        return tiles * (cols // group) * (group * 16 + 2 * TILE_ROWS)
    if kind in ("f16", "bf16"):
        return tiles * cols * 2 * TILE_ROWS
    if kind in ("f32", "i32"):
        return rows * cols * 4
    raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")


def from_bytes(data: Bytes, kind: str, rows: int, cols: int, group: int) -> Tensor:
    """The tensor of this kind and logical shape that `data` holds."""
    if kind in ("affine4", "affine4z"):
        return Affine4.from_bytes(data, rows, cols, group, kind)
    if kind == "affine8":
        return Affine8.from_bytes(data, rows, cols, group)
    if kind == "f32":
        return Vector(data.view(np.float32))
    if kind == "i32":
        return Tokens(data.view(np.int32))
    return Sixteen.from_bytes(data, rows, cols, kind)


def concatenate_rows(parts: Sequence[_AnyMatrix]) -> _AnyMatrix:
    """One matrix of all rows, in order. The parts have one kind, width and group."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(parts[0]):
        values = [getattr(part, field.name) for part in parts]
        fields[field.name] = values[0] if isinstance(values[0], str) else np.concatenate(values)
    return dataclasses.replace(parts[0], **fields)


def take_rows(matrix: _AnyMatrix, order: npt.NDArray[np.int64]) -> _AnyMatrix:
    """The matrix with its rows in `order`."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(matrix):
        value = getattr(matrix, field.name)
        fields[field.name] = value if isinstance(value, str) else value[order]
    return dataclasses.replace(matrix, **fields)


def gate_up_order(intermediate: int) -> npt.NDArray[np.int64]:
    """Row order of `gate_up` over gate's rows followed by up's: blocks of 16 rows alternate."""
    rows = np.arange(2 * intermediate).reshape(2, intermediate // TILE_ROWS, TILE_ROWS)
    return rows.transpose(1, 0, 2).reshape(-1)


def _columns_together(kind: str) -> int:
    # bf16 dot products take pairs of columns, f16 ones single columns.
    return 2 if kind == "bf16" else 1


def _pad_rows(array: _Array, fill: int) -> _Array:
    missing = -len(array) % TILE_ROWS
    if not missing:
        return array
    padding = np.full((missing, *array.shape[1:]), fill, array.dtype)
    return cast(_Array, np.concatenate([array, padding]))


def _tile_halves(values: Halves, tiles: int) -> Bytes:
    by_group = values.reshape(tiles, TILE_ROWS, -1).transpose(0, 2, 1)
    return np.ascontiguousarray(by_group).view(np.uint8)


def _untile_halves(data: Bytes, rows: int) -> Halves:
    by_group = np.ascontiguousarray(data).view(np.float16)
    return by_group.transpose(0, 2, 1).reshape(-1, by_group.shape[1])[:rows]

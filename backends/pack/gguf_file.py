"""Reader of GGUF files that survives damaged ones.

The `gguf` package serves as the table of type numbers and block sizes. Its own reader trusts the
counts that a file states: a damaged count makes it allocate without end, and a truncated file fails
without the tensor's name. The format is described in the ggml project's docs/gguf.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from backends.pack.errors import CheckpointError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class GgufTensor:
    """A tensor as it lies in the file: `data` holds its bytes, rows of blocks one after the other.

    `shape` is (rows, columns) or (length,): the reverse of the order in the file.
    """

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


class GgufFile:
    """Metadata and tensors of a GGUF file; the tensors' bytes stay on disk until they are read.

    Raises CheckpointError where the file is missing, no GGUF, truncated or inconsistent.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            size = self.path.stat().st_size
            data: npt.NDArray[np.uint8] = (
                np.memmap(self.path, dtype=np.uint8, mode="r") if size else np.empty(0, np.uint8)
            )
        except OSError as error:
            raise CheckpointError(path, f"it cannot be read ({error.strerror}).") from error
        self._bytes = data
        self._view = memoryview(cast(Any, data))
        self._at = 0
        if bytes(self._take(4, "the magic number")) != _MAGIC:
            raise self._error("it is no GGUF file.")
        version = self._scalar("I", "the version")
        if version not in _VERSIONS:
            raise self._error(f"it has GGUF version {version}; versions 2 and 3 can be read.")
        tensor_count = self._scalar("Q", "the number of tensors")
        entry_count = self._scalar("Q", "the number of metadata entries")
        self.metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self._string("a metadata key")
            if key in self.metadata:
                raise self._error(f"metadata key {key!r} stands twice.")
            self.metadata[key] = self._value(self._scalar("I", key), key)
        self.tensors = self._tensors(tensor_count)

    def _error(self, what: str, tensor: str | None = None) -> CheckpointError:
        return CheckpointError(self.path, what, tensor)

    def _take(self, count: int, what: str) -> memoryview:
        end = self._at + count
        if end > len(self._view):
            raise self._error(f"it is truncated or damaged: {what} ends after the end of the file.")
        part = self._view[self._at : end]
        self._at = end
        return part

    def _scalar(self, code: str, what: str) -> Any:
        form = struct.Struct("<" + code)
        return form.unpack(self._take(form.size, what))[0]

    def _string(self, what: str) -> str:
        raw = bytes(self._take(self._scalar("Q", what), what))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"{what} is not UTF-8: {raw[:60]!r}.") from error

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string(key)
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind], key)
        if kind != _ARRAY:
            raise self._error(f"metadata key {key!r} has the unknown type {kind}.")
        item = self._scalar("I", key)
        count = self._scalar("Q", key)
        if item == _STRING:
            # Each string takes at least its length, so a damaged count ends at the file's end.
            return [self._string(key) for _ in range(count)]
        if item not in _SCALARS:
            raise self._error(f"metadata key {key!r} is an array of the unknown type {item}.")
        form = struct.Struct("<" + _SCALARS[item])
        return [value for (value,) in form.iter_unpack(self._take(count * form.size, key))]

    def _tensors(self, count: int) -> dict[str, GgufTensor]:
        described = [self._description() for _ in range(count)]
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._error(f"its alignment {alignment!r} is no power of two.")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in described:
            if name in tensors:
                raise self._error("it stands twice.", name)
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if shape[-1] % block:
                raise self._error(
                    f"its {shape[-1]} columns do not divide into {kind.name} groups of {block}.",
                    name,
                )
            elements = 1
            for dimension in shape:
                elements *= dimension
            begin = start + offset
            end = begin + elements // block * block_bytes
            if end > len(self._bytes):
                raise self._error(
                    f"it ends at byte {end} of a file of {len(self._bytes)}: "
                    "the file is truncated or damaged.",
                    name,
                )
            tensors[name] = GgufTensor(name, kind, shape, self._bytes[begin:end])
        return tensors

    def _description(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name = self._string("a tensor's name")
        rank = self._scalar("I", f"tensor {name!r}")
        if not 1 <= rank <= _MAX_DIMENSIONS:
            raise self._error(f"it has {rank} dimensions.", name)
        shape = tuple(self._scalar("Q", f"tensor {name!r}") for _ in range(rank))[::-1]
        if 0 in shape:
            raise self._error(f"it is empty: shape {shape}.", name)
        number = self._scalar("I", f"tensor {name!r}")
        try:
            kind = GGMLQuantizationType(number)
        except ValueError:
            raise self._error(f"it has the unknown GGUF type {number}.", name) from None
        return name, shape, kind, self._scalar("Q", f"tensor {name!r}")

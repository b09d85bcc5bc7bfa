"""Reader of safetensors files that names what is wrong with a damaged one.

The `safetensors` library cannot give bf16 to numpy, and its errors name no tensor. The format is a
length (8 bytes, little-endian), that many bytes of JSON, then the tensors' bytes
(https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.pack.errors import CheckpointError
from backends.pack.tiles import Bytes, Floats

_MAX_HEADER_BYTES = 100 * 1024 * 1024
_INTEGERS = {"I8": np.int8, "U8": np.uint8, "I32": np.int32, "I64": np.int64}
_WIDTHS = {
    **{name: np.dtype(kind).itemsize for name, kind in _INTEGERS.items()},
    **{"F16": 2, "BF16": 2, "F32": 4, "F64": 8, "I16": 2, "U16": 2, "U32": 4, "BOOL": 1},
}
FLOATS = ("F16", "BF16", "F32")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it lies in the file `path`; `dtype` is safetensors' name of its type."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Bytes

    def error(self, what: str) -> CheckpointError:
        """An error about this tensor."""
        return CheckpointError(self.path, what, self.name)

    def need_shape(self, shape: tuple[int, ...]) -> None:
        """Raise CheckpointError where the shape is another one."""
        if self.shape != shape:
            raise self.error(f"its shape is {self.shape} where the model needs {shape}.")

    def integers(self) -> npt.NDArray[Any]:
        """The values of an integer tensor. Raises CheckpointError for another type."""
        kind = _INTEGERS.get(self.dtype)
        if kind is None:
            raise self.error(f"its type is {self.dtype} where integers are needed.")
        return self.data.view(kind).reshape(self.shape)

    def floats(self) -> Floats:
        """The values as f32, exact. Raises CheckpointError for another type, NaN and infinity."""
        if self.dtype == "F16":
            values = self.data.view(np.float16).astype(np.float32)
        elif self.dtype == "BF16":
            values = (self.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif self.dtype == "F32":
            values = self.data.view(np.float32)
        else:
            raise self.error(f"its type {self.dtype} is unsupported; use F16, BF16 or F32.")
        bad = np.argwhere(~np.isfinite(values.reshape(self.shape)))
        if len(bad):
            place = ", ".join(str(index) for index in bad[0])
            raise self.error(f"it holds NaN or infinity (first at [{place}]).")
        return values.reshape(self.shape)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Name -> tensor of a safetensors file; the bytes stay on disk until they are read.

    Raises CheckpointError where the file is missing, no safetensors, truncated or inconsistent.
    """
    try:
        size = path.stat().st_size
        data = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    except OSError as error:
        raise CheckpointError(path, f"it cannot be read ({error.strerror}).") from error
    length = int.from_bytes(data[:8].tobytes(), "little")
    if size < 8 or not 2 <= length <= _MAX_HEADER_BYTES:
        raise CheckpointError(path, "it is no safetensors file: it has no header.")
    if 8 + length > size:
        raise CheckpointError(path, "it is truncated inside its header.")
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
    except ValueError as error:
        raise CheckpointError(path, f"its header is no JSON ({error}).") from error
    if not isinstance(header, dict):
        raise CheckpointError(path, "its header is no JSON object.")
    body: Bytes = data[8 + length :]
    return {
        name: _stored(path, name, entry, body)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _stored(path: Path, name: str, entry: Any, body: Bytes) -> StoredTensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(path, "its description is incomplete.", name) from None
    if dtype not in _WIDTHS:
        raise CheckpointError(path, f"its type {dtype} is unsupported.", name)
    elements = 1
    for count in shape:
        elements *= count
    if min(shape, default=1) < 0 or begin < 0 or end - begin != elements * _WIDTHS[dtype]:
        raise CheckpointError(
            path, f"it has {end - begin} bytes, which do not fit {dtype} of shape {shape}.", name
        )
    if end > body.size:
        raise CheckpointError(
            path, "it ends after the end of the file: the file is truncated.", name
        )
    return StoredTensor(path, name, dtype, shape, body[begin:end])

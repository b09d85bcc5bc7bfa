"""Writer and reader of packed model files (docs/packed-format.md)."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from backends.pack.errors import CheckpointError
from backends.pack.shapes import COLUMNS, HEADS, check_shapes
from backends.pack.tiles import (
    Bytes,
    Floats,
    Tensor,
    from_bytes,
    tensor_bytes,
)

FORMAT_VERSION = 1
ALIGNMENT = 64
METADATA_KEY = "specquant"
_MAX_HEADER_BYTES = 100 * 1024 * 1024
_DIMENSIONS = (
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "max_position",
)


def write_packed(
    path: str | Path, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> str:
    """Write a packed file whole or not at all; return its content hash.

    `metadata` is the table of docs/packed-format.md without `format_version`, `tensors` and
    `content_hash`, which are added here. The content hash is the sha256 over the other metadata
    (JSON, sorted keys, no spaces) and each tensor's name and bytes in order of names.
    Raises CheckpointError where the tensors are not those of the model or the disk refuses.
    """
    path = Path(path)
    described = {
        name: {"kind": tensor.kind, "rows": shape[0], "cols": shape[1], "group": tensor.group}
        for name, tensor in sorted(tensors.items())
        for shape in [tensor.shape]
    }
    full = {"format_version": FORMAT_VERSION, **metadata, "tensors": described}
    check_shapes(path, full)
    data = {name: tensors[name].to_bytes() for name in described}
    full["content_hash"] = content_hash(full, data)

    # safetensors allows no gap between tensors, so one of an odd size can only stand last.
    order = sorted(data, key=lambda name: (data[name].size % ALIGNMENT != 0, name))
    odd = [name for name in order if data[name].size % ALIGNMENT]
    if len(odd) > 1:
        raise CheckpointError(
            path, "it cannot be aligned to 64 bytes; its width is unusual.", odd[0]
        )
    header: dict[str, Any] = {"__metadata__": {METADATA_KEY: json.dumps(full)}}
    at = 0
    for name in order:
        dtype = {"f32": "F32", "i32": "I32"}.get(tensors[name].kind, "U8")
        count = data[name].size if dtype == "U8" else data[name].size // 4
        header[name] = {
            "dtype": dtype,
            "shape": [count],
            "data_offsets": [at, at + data[name].size],
        }
        at += data[name].size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    _write_whole(path, [struct.pack("<Q", len(text)) + text, *(data[name] for name in order)])
    return str(full["content_hash"])


def content_hash(metadata: Mapping[str, Any], data: Mapping[str, Bytes]) -> str:
    """The hash that `write_packed` describes."""
    rest = {key: value for key, value in metadata.items() if key != "content_hash"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(data):
        digest.update(name.encode() + b"\0")
        digest.update(memoryview(cast(Any, data[name])))
    return digest.hexdigest()


def _write_whole(path: Path, parts: list[Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise CheckpointError(path, f"it cannot be written ({error.strerror}).") from error
    finally:
        temporary.unlink(missing_ok=True)


class PackedFile:
    """A packed model file whose every tensor has passed the checks; its bytes are read on demand.

    `metadata` is the table of docs/packed-format.md. Raises CheckpointError naming the file and,
    where it is one, the tensor.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            size = self.path.stat().st_size
            self._bytes: npt.NDArray[np.uint8] = (
                np.memmap(self.path, np.uint8, "r") if size else np.empty(0, np.uint8)
            )
        except OSError as error:
            raise CheckpointError(
                path,
                f"it cannot be read ({error.strerror}). Make it with 'python -m backends.pack'.",
            ) from error
        header, self._start = self._header()
        self.metadata = self._metadata(header.pop("__metadata__", None))
        check_shapes(self.path, self.metadata)
        self._extents = {name: self._extent(name, header) for name in self.metadata["tensors"]}

    def _header(self) -> tuple[dict[str, Any], int]:
        length = int.from_bytes(self._bytes[:8].tobytes(), "little")
        if self._bytes.size < 8 or not 2 <= length <= _MAX_HEADER_BYTES:
            raise CheckpointError(self.path, "it is no packed model file: it has no header.")
        if 8 + length > self._bytes.size:
            raise CheckpointError(self.path, "it is truncated inside its header.")
        try:
            header = json.loads(self._bytes[8 : 8 + length].tobytes())
        except ValueError as error:
            raise CheckpointError(self.path, f"its header is no JSON ({error}).") from error
        if not isinstance(header, dict):
            raise CheckpointError(self.path, "its header is no JSON object.")
        return header, 8 + length

    def _metadata(self, table: Any) -> dict[str, Any]:
        try:
            metadata = json.loads(table[METADATA_KEY])
            version = metadata["format_version"]
            architecture = metadata["architecture"]
            tied = metadata["tied_head"]
            described = metadata["tensors"]
            whole = all(isinstance(metadata[key], int) and metadata[key] > 0 for key in _DIMENSIONS)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                self.path,
                f"its metadata entry {METADATA_KEY!r} is missing or incomplete ({error!r}). "
                "Pack the checkpoint with 'python -m backends.pack'.",
            ) from error
        if version != FORMAT_VERSION:
            raise CheckpointError(
                self.path, f"it has format version {version}, not 1. Pack the checkpoint again."
            )
        if architecture not in ("llama", *HEADS):
            raise CheckpointError(
                self.path,
                f"its architecture is {architecture!r}; only 'llama', 'eagle2' and 'eagle3' can "
                "be read.",
            )
        if not (whole and isinstance(tied, bool) and isinstance(described, dict)):
            raise CheckpointError(self.path, "its dimensions are not all positive integers.")
        return dict(metadata)

    def _extent(self, name: str, header: Mapping[str, Any]) -> tuple[int, int]:
        entry = self.metadata["tensors"][name]
        try:
            begin, end = (int(offset) for offset in header[name]["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(self.path, "it has no data in the file.", name) from None
        needed = tensor_bytes(entry["kind"], entry["rows"], entry["cols"], entry["group"])
        if begin < 0 or end - begin != needed:
            raise CheckpointError(
                self.path,
                f"it has {end - begin} bytes where its kind and shape need {needed}.",
                name,
            )
        if self._start + end > self._bytes.size:
            raise CheckpointError(
                self.path, "it ends after the end of the file: the file is truncated.", name
            )
        return self._start + begin, self._start + end

    @property
    def names(self) -> list[str]:
        """The tensors' names."""
        return list(self._extents)

    def raw(self, name: str) -> Bytes:
        """The tensor's bytes as stored."""
        try:
            begin, end = self._extents[name]
        except KeyError:
            raise CheckpointError(self.path, "there is no such tensor.", name) from None
        return self._bytes[begin:end]

    def tensor(self, name: str) -> Tensor:
        """The tensor, unpacked from its tiles."""
        data = self.raw(name)
        entry = self.metadata["tensors"][name]
        return from_bytes(data, entry["kind"], entry["rows"], entry["cols"], entry["group"])

    def dequantize(self, name: str) -> Floats:
        """The tensor's values, f32: [rows, cols], or [rows] for a norm.

        Columns that are stored in an order of their own come in the order of the input. Raises
        CheckpointError where that order does not name each column once.
        """
        values = self.tensor(name).dequantize()
        if name + COLUMNS not in self.names:
            return values
        columns = self.raw(name + COLUMNS).view(np.int32)
        if not np.array_equal(np.sort(columns), np.arange(len(columns))):
            raise CheckpointError(self.path, "it does not name each column once.", name + COLUMNS)
        return values[:, np.argsort(columns)]

    def verify(self) -> None:
        """Raise CheckpointError where the content hash does not fit the content."""
        data = {name: self.raw(name) for name in self.names}
        if content_hash(self.metadata, data) != self.metadata.get("content_hash"):
            raise CheckpointError(self.path, "its content does not fit its hash: it is damaged.")

"""What the harness knows of a packed model file: its metadata.

Only the header is read; the tensors are the worker's business (docs/packed-format.md).
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

FORMAT_VERSION = 1
_MAX_HEADER_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class ModelFile:
    """A packed model's `path` and its `metadata` (the `specquant` entry)."""

    path: Path
    metadata: dict[str, Any]

    @property
    def name(self) -> str:
        """Name shown in reports."""
        return str(self.metadata["name"])

    @property
    def content_hash(self) -> str:
        """sha256 over tensors and metadata, as written by the packer."""
        return str(self.metadata["content_hash"])

    @property
    def max_position(self) -> int:
        """Tokens that the model can hold, prompt and output together."""
        return int(self.metadata["max_position"])

    def kv_bytes(self, batch_size: int, context: int) -> int:
        """Least bytes that the KV cache of `batch_size` sequences of `context` tokens takes."""
        shape = self.metadata
        width = int(shape["num_kv_heads"]) * int(shape["head_dim"])
        return 2 * 2 * width * int(shape["num_layers"]) * batch_size * context

    def summary(self) -> dict[str, Any]:
        """What records of the environment keep of the model."""
        keys = ("name", "weight_format", "dequantized_baseline", "content_hash", "source")
        return {"path": str(self.path), **{key: self.metadata.get(key) for key in keys}}


def read(path: Path, *, made_by: str | None = None) -> ModelFile:
    """Read the header of a packed model file.

    `made_by` is the command that makes the file. Raises ConfigError that names the file where it is
    missing, cut off, or not a packed model of this version.
    """
    mend = f" Make it with `{made_by}`." if made_by else ""
    if not path.is_file():
        raise ConfigError(f"The model file {path} does not exist.{mend}")
    try:
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= _MAX_HEADER_BYTES:
                raise ValueError("it does not begin as a safetensors file does")
            text = file.read(length)
            if len(text) < length:
                raise ValueError("its header is cut off")
            size = path.stat().st_size
        header = json.loads(text)
        ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
        if size < 8 + length + max(ends, default=0):
            raise ValueError("its tensors are cut off")
        metadata = json.loads(header["__metadata__"]["specquant"])
        version = metadata["format_version"]
        if version != FORMAT_VERSION:
            raise ValueError(f"its format version is {version}, not {FORMAT_VERSION}")
        if not metadata.get("content_hash"):
            raise ValueError("its metadata has no content_hash")
    except KeyError as error:
        raise ConfigError(f"{path} is no packed model file: {error} is missing.{mend}") from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no packed model file: {error}.{mend}") from error
    return ModelFile(path, metadata)

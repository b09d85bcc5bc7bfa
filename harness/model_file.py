"""What the harness knows of a model: the metadata of its packed file, or a synthetic shape.

Of a file only the header is read; the tensors are the worker's business (docs/packed-format.md). A
synthetic model has a shape and a seed, from which the worker draws the weights, and takes the
tokenizer of a packed file, so that real prompts can be put to it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.synthetic_shape import checked_model

FORMAT_VERSION = 1
_MAX_HEADER_BYTES = 256 * 1024 * 1024
_TEXT = ("tokenizer", "chat_template", "bos_token", "eos_token")


@dataclass(frozen=True)
class ModelFile:
    """A model's `metadata` (the `specquant` entry of a packed file).

    `path` is the packed file, or the one whose tokenizer a `synthetic` model takes.
    """

    path: Path
    metadata: dict[str, Any]
    synthetic: Mapping[str, Any] | None = None

    def request(self) -> dict[str, Any]:
        """The `model` of a worker's `load` request."""
        if self.synthetic is not None:
            return {"synthetic": dict(self.synthetic)}
        return {"path": str(self.path)}

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
        where = {"path": None if self.synthetic else str(self.path), "synthetic": self.synthetic}
        return {**where, **{key: self.metadata.get(key) for key in keys}}


def open_model(config: Mapping[str, Any]) -> ModelFile:
    """The model that a configuration's `model` names, by `path` or as `synthetic`.

    Raises ConfigError that names the file or the key.
    """
    file = read(model_path(config), made_by=config.get("made_by"))
    if not config.get("synthetic"):
        return file
    shape = checked_model(config["synthetic"], "model.synthetic")
    text = json.dumps(shape, sort_keys=True)
    return ModelFile(
        path=file.path,
        metadata={
            **{key: file.metadata.get(key) for key in _TEXT},
            **shape,
            # Random weights end no answer on purpose.
            "stop_ids": [],
            "weight_format": "synthetic",
            "dequantized_baseline": False,
            "content_hash": hashlib.sha256(text.encode()).hexdigest(),
        },
        synthetic=shape,
    )


def model_path(config: Mapping[str, Any]) -> Path:
    """The packed file of `model`: its own, or the one that gives a synthetic model its tokenizer.

    Raises ConfigError.
    """
    synthetic, key = config.get("synthetic"), "path"
    if synthetic:
        key = "tokenizer_from"
        if config.get("path"):
            raise ConfigError("model: a model has either a `path` or a `synthetic` shape.")
    if not config.get(key):
        raise ConfigError(f"model.{key}: no packed model file is named.")
    return Path(str(config[key])).expanduser()


def read(path: Path, *, made_by: str | None = None) -> ModelFile:
    """Read the header of a packed model file.

    `made_by` is the command that makes the file. Raises ConfigError that names the file where it is
    missing, cut off, or not a packed model of this version.
    """
    mend = f" Make it with `{made_by}`." if made_by else ""
    if not path.is_file():
        raise ConfigError(
            f"The model file {path} does not exist.{mend} A checkpoint of your own becomes one "
            "with `python -m backends.pack import`."
        )
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

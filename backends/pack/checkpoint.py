"""A Hugging Face checkpoint: its configuration, and its tensors from one or many files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from backends.pack.errors import CheckpointError
from backends.pack.files import file_sha256
from backends.pack.safetensors_file import StoredTensor, read_safetensors
from backends.pack.torch_file import read_torch

_INDEX = "model.safetensors.index.json"
_TORCH = "pytorch_model.bin"
_NOT_PLAIN = "no plain Llama, Mistral, Qwen2 or Qwen3 has such a tensor"


class Checkpoint:
    """A folder with config.json and safetensors files (or pytorch_model.bin), or one such file.

    Raises CheckpointError where a file or a shard is missing or damaged, and where the index and
    the shards contradict each other.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        single = self.path.is_file()
        self.folder = self.path.parent if single else self.path
        if not self.folder.is_dir():
            raise CheckpointError(path, "there is no such file or folder.")
        self.config = self.json("config.json")
        self._index: dict[str, str] = {}
        self.files = [self.path] if single else self._files()
        self.tensors: dict[str, StoredTensor] = {}
        for file in self.files:
            read = read_torch if file.suffix == ".bin" else read_safetensors
            for name, tensor in read(file).items():
                if name in self.tensors:
                    raise CheckpointError(
                        file, f"it also stands in {self.tensors[name].path.name}.", name
                    )
                self.tensors[name] = tensor
        if not single:
            self._check_index()
        self._taken: set[str] = set()

    def error(self, what: str, tensor: str | None = None) -> CheckpointError:
        """An error about the checkpoint as a whole."""
        return CheckpointError(self.path, what, tensor)

    def has(self, name: str) -> bool:
        """True where there is a tensor of this name."""
        return name in self.tensors

    def take(self, name: str) -> StoredTensor:
        """The tensor of this name. Raises CheckpointError where there is none."""
        if name not in self.tensors:
            raise self.error("it is missing.", name)
        self._taken.add(name)
        return self.tensors[name]

    def ignore(self, name: str) -> None:
        """Count a tensor that carries nothing as taken."""
        self._taken.add(name)

    def refuse_others(self, why: str = _NOT_PLAIN) -> None:
        """Raise CheckpointError where a tensor was neither taken nor ignored."""
        for name in sorted(self.tensors.keys() - self._taken):
            raise self.tensors[name].error(f"it is unsupported: {why}.")

    def json(self, name: str) -> dict[str, Any]:
        """The JSON object in a file of the folder. Raises CheckpointError where there is none."""
        found = self.optional_json(name)
        if found is None:
            raise CheckpointError(
                self.folder / name, "it is missing. A checkpoint needs it beside its weights."
            )
        return found

    def optional_json(self, name: str) -> dict[str, Any] | None:
        """The JSON object in a file of the folder, or None where there is no such file."""
        text = self.optional_text(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise CheckpointError(self.folder / name, f"it is no JSON ({error}).") from error
        if not isinstance(value, dict):
            raise CheckpointError(self.folder / name, "it is no JSON object.")
        return value

    def optional_text(self, name: str) -> str | None:
        """The text of a file of the folder, or None where there is no such file."""
        path = self.folder / name
        if not path.exists():
            return None
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(path, f"it cannot be read ({error}).") from error

    def _files(self) -> list[Path]:
        index = self.optional_json(_INDEX)
        if index is None:
            files = sorted(self.folder.glob("*.safetensors"))
            if len(files) > 1:
                raise CheckpointError(
                    self.folder / _INDEX,
                    f"it is missing, and the folder has {len(files)} safetensors files. "
                    "Name the one to pack.",
                )
            if not files and (self.folder / _TORCH).exists():
                return [self.folder / _TORCH]
            if not files:
                raise CheckpointError(self.folder, f"it has no safetensors file and no {_TORCH}.")
            return files
        self._index = self._weight_map(index)
        files = [self.folder / name for name in sorted(set(self._index.values()))]
        for file in files:
            if not file.exists():
                first = next(name for name, shard in self._index.items() if shard == file.name)
                raise CheckpointError(
                    file, f"this shard is missing, though {_INDEX} names it.", first
                )
        return files

    def _weight_map(self, index: dict[str, Any]) -> dict[str, str]:
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(self.folder / _INDEX, "it has no 'weight_map'.")
        for name, shard in weight_map.items():
            if not isinstance(shard, str) or Path(shard).name != shard:
                raise CheckpointError(
                    self.folder / _INDEX, f"its shard {shard!r} is no file beside it.", name
                )
        return weight_map

    def _check_index(self) -> None:
        for name, shard in self._index.items():
            if name not in self.tensors or self.tensors[name].path.name != shard:
                raise CheckpointError(
                    self.folder / shard, f"it is not there, though {_INDEX} says so.", name
                )

    def sha256(self) -> str:
        """sha256 of the one file; of many, that of the listing that `sha256sum` prints."""
        digests = [(file_sha256(file), file.name) for file in self.files]
        if len(digests) == 1:
            return digests[0][0]
        listing = "".join(f"{digest}  {name}\n" for digest, name in digests)
        return hashlib.sha256(listing.encode()).hexdigest()

"""What is wrong with a checkpoint or a packed file."""

from __future__ import annotations

from pathlib import Path


class CheckpointError(Exception):
    """A file that cannot be packed or read; the message names it and, if known, the tensor."""

    def __init__(self, path: str | Path, what: str, tensor: str | None = None) -> None:
        where = f"{path}" if tensor is None else f"{path}: tensor {tensor!r}"
        super().__init__(f"{where}: {what}")
        self.tensor = tensor

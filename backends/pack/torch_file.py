"""Reader of PyTorch's zip files (`pytorch_model.bin`) without PyTorch, for tensors alone.

Such a file is an uncompressed zip of a pickle and of one entry a storage. A pickle can name any
function; this reader knows the few that tensors need and refuses the others.
"""

from __future__ import annotations

import collections
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backends.pack.errors import CheckpointError
from backends.pack.safetensors_file import StoredTensor
from backends.pack.tiles import Bytes

_STORAGES = {
    **{"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"},
    **{"DoubleStorage": "F64", "LongStorage": "I64", "IntStorage": "I32", "BoolStorage": "BOOL"},
}
_WIDTHS = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "BOOL": 1}


class _Tensor:
    """A tensor of the pickle: type, shape, and its bytes in row-major order."""

    def __init__(
        self, storage: tuple[str, bytes], offset: int, shape: tuple[int, ...], steps: Any
    ) -> None:
        self.dtype, data = storage
        self.shape = tuple(int(size) for size in shape)
        width = _WIDTHS[self.dtype]
        units = np.frombuffer(data, f"V{width}")
        reach = offset + sum(
            (size - 1) * step for size, step in zip(self.shape, steps, strict=True)
        )
        if min(self.shape, default=1) < 1 or not 0 <= reach < len(units):
            raise ValueError(f"a tensor of shape {self.shape} reaches beyond its storage")
        view = np.lib.stride_tricks.as_strided(
            units[offset:], self.shape, [width * int(step) for step in steps]
        )
        self.data: Bytes = np.frombuffer(view.tobytes(), np.uint8)


def read_torch(path: Path) -> dict[str, StoredTensor]:
    """Name -> tensor of a PyTorch zip file that holds a dictionary of tensors.

    Raises CheckpointError where the file is missing, damaged, of PyTorch's older format, or holds
    anything but tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = _Unpickler(path, archive).load()
    except OSError as error:
        raise CheckpointError(path, f"it cannot be read ({error.strerror}).") from error
    except zipfile.BadZipFile as error:
        raise CheckpointError(
            path, "it is no PyTorch zip file. Save it again with safetensors."
        ) from error
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(path, f"it is damaged ({error}).") from error
    if not isinstance(found, dict):
        raise CheckpointError(path, "it holds no dictionary of tensors.")
    for name, value in found.items():
        if not isinstance(value, _Tensor):
            raise CheckpointError(path, "it is no tensor.", str(name))
    return {
        str(name): StoredTensor(path, str(name), value.dtype, value.shape, value.data)
        for name, value in found.items()
    }


class _Unpickler(pickle.Unpickler):
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(path, "it is no PyTorch zip file: it has no data.pkl.")
        super().__init__(archive.open(pickles[0]))
        self._path, self._archive = path, archive
        self._prefix = pickles[0].removesuffix("data.pkl")

    def find_class(self, module: str, name: str) -> Any:
        """The few names that tensors need."""
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch._utils" and name in _REBUILD:
            return _REBUILD[name]
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise CheckpointError(
            self._path, f"it holds '{module}.{name}', which is no plain tensor; not loaded."
        )

    def persistent_load(self, pid: Any) -> tuple[str, bytes]:
        """A storage: its type and bytes."""
        _, dtype, key, _, _ = pid
        return dtype, self._archive.read(f"{self._prefix}data/{key}")


_REBUILD: dict[str, Callable[..., Any]] = {
    "_rebuild_tensor_v2": lambda storage, offset, shape, steps, *_: _Tensor(
        storage, offset, shape, steps
    ),
    "_rebuild_parameter": lambda tensor, *_: tensor,
}

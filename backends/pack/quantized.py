"""Quantized checkpoints: which library's format, and the codes of one of their matrices.

The layouts are those that the libraries publish: AutoGPTQ and GPTQModel (qlinear modules), AutoAWQ
(WQLinear_GEMM) and compressed-tensors (`pack-quantized`). All store words of 32 bits, lowest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.pack.checkpoint import Checkpoint
from backends.pack.codes import Codes, unpack_words
from backends.pack.errors import CheckpointError
from backends.pack.safetensors_file import StoredTensor

_CONFIG = "config.json"
# Word position i holds column _AWQ_ORDER[i] of its eight.
_AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


@dataclass(frozen=True)
class Scheme:
    """How a checkpoint's matrices are quantized. `group` is -1 for one group a row."""

    checkpoint: Checkpoint
    library: str
    bits: int
    group: int
    symmetric: bool = False
    zero_offset: int = 0

    @property
    def weight_format(self) -> str:
        """Name of the stored format in records, such as `gptq_int4`."""
        return f"{self.library}_int{self.bits}"

    def codes(self, module: str, rows: int, cols: int) -> Codes | None:
        """The codes of a linear layer, or None where the checkpoint keeps it unquantized.

        Raises CheckpointError where its tensors do not fit the configuration or each other.
        """
        marker = "weight_packed" if self.library == "ct" else "qweight"
        if not self.checkpoint.has(f"{module}.{marker}"):
            return None
        words = self.checkpoint.take(f"{module}.{marker}")
        width = cols if self.group == -1 else self.group
        if cols % width:
            raise words.error(
                f"its {cols} columns do not divide into groups of {width} (group_size)."
            )
        read = {"gptq": self._gptq, "awq": self._awq, "ct": self._compressed}[self.library]
        return read(words, module, rows, cols, cols // width)

    def _gptq(self, words: StoredTensor, module: str, rows: int, cols: int, groups: int) -> Codes:
        q = unpack_words(words, self.bits, (cols, rows), axis=0)
        zeros = self.checkpoint.take(f"{module}.qzeros")
        zero = unpack_words(zeros, self.bits, (groups, rows), axis=1).astype(np.int16)
        return self._transposed(module, q, zero + np.int16(self.zero_offset), groups, "g_idx")

    def _awq(self, words: StoredTensor, module: str, rows: int, cols: int, groups: int) -> Codes:
        q = _awq_columns(unpack_words(words, self.bits, (cols, rows), axis=1))
        zeros = self.checkpoint.take(f"{module}.qzeros")
        zero = _awq_columns(unpack_words(zeros, self.bits, (groups, rows), axis=1))
        return self._transposed(module, q, zero.astype(np.int16), groups, None)

    def _transposed(
        self,
        module: str,
        q: npt.NDArray[np.uint8],
        zero: npt.NDArray[np.int16],
        groups: int,
        order: str | None,
    ) -> Codes:
        """Codes of a library that stores [inputs, outputs]."""
        scale = self.checkpoint.take(f"{module}.scales")
        scale.need_shape((groups, q.shape[1]))
        s = np.ascontiguousarray(scale.floats().T)
        columns = None if order is None else self._order(f"{module}.{order}", q.shape[0], groups)
        return Codes(
            self.bits, np.ascontiguousarray(q.T), s, np.ascontiguousarray(zero.T), scale, columns
        )

    def _compressed(
        self, words: StoredTensor, module: str, rows: int, cols: int, groups: int
    ) -> Codes:
        shape = self.checkpoint.take(f"{module}.weight_shape")
        if shape.integers().tolist() != [rows, cols]:
            raise shape.error(
                f"it says {shape.integers().tolist()} where the model needs {[rows, cols]}."
            )
        q = unpack_words(words, self.bits, (rows, cols), axis=1)
        scale = self.checkpoint.take(f"{module}.weight_scale")
        scale.need_shape((rows, groups))
        # Codes and zero points are signed, and both are packed with this offset.
        zero = np.full((rows, groups), 1 << (self.bits - 1), np.int16)
        name = f"{module}.weight_zero_point"
        if not self.symmetric or self.checkpoint.has(name):
            zeros = self.checkpoint.take(name)
            if zeros.dtype == "I8":  # older versions of the library do not pack them
                zeros.need_shape((rows, groups))
                zero += zeros.integers()
            else:
                zero = unpack_words(zeros, self.bits, (rows, groups), axis=0).astype(np.int16)
        order = self._order(f"{module}.weight_g_idx", cols, groups)
        return Codes(self.bits, q, scale.floats(), zero, scale, order)

    def _order(self, name: str, cols: int, groups: int) -> npt.NDArray[np.int64] | None:
        """Each column's group, or None where groups are runs of neighbouring columns."""
        if not self.checkpoint.has(name):
            return None
        tensor = self.checkpoint.take(name)
        tensor.need_shape((cols,))
        order = tensor.integers().astype(np.int64)
        if order.min() < 0 or order.max() >= groups:
            at = int(np.argmax((order < 0) | (order >= groups)))
            raise tensor.error(
                f"column {at} is in group {order[at]}, out of range: there are {groups} groups."
            )
        plain = np.arange(cols) // (cols // groups)
        return None if (order == plain).all() else order


def read_scheme(checkpoint: Checkpoint) -> Scheme | None:
    """The scheme that config.json names (or AutoGPTQ's quantize_config.json); None without one.

    Raises CheckpointError for a method, a width or an option that is not supported.
    """
    config = checkpoint.config.get("quantization_config")
    if config is None:
        config = checkpoint.optional_json("quantize_config.json")
        if config is None:
            return None
        config = {"quant_method": "gptq", **config}
    if not isinstance(config, dict):
        raise _refused(checkpoint, f"its quantization_config {config!r} is no object.")
    method = config.get("quant_method")
    if method == "gptq":
        return _gptq_scheme(checkpoint, config)
    if method == "awq":
        return _awq_scheme(checkpoint, config)
    if method == "compressed-tensors":
        return _compressed_scheme(checkpoint, config)
    raise _refused(
        checkpoint,
        f"its quantization method {method!r} is unknown; supported are 'gptq', 'awq' and "
        "'compressed-tensors'.",
    )


def _refused(checkpoint: Checkpoint, what: str) -> CheckpointError:
    return CheckpointError(checkpoint.folder / _CONFIG, what)


def _checked(scheme: Scheme, widths: tuple[int, ...]) -> Scheme:
    if scheme.bits not in widths:
        raise _refused(
            scheme.checkpoint,
            f"its codes have {scheme.bits!r} bits; supported are {' and '.join(map(str, widths))}.",
        )
    group = scheme.group
    if type(group) is not int or (group != -1 and (group <= 0 or group % 32)):
        raise _refused(
            scheme.checkpoint,
            f"its group size {group!r} is unsupported; use -1 or a multiple of 32.",
        )
    return scheme


def _gptq_scheme(checkpoint: Checkpoint, config: dict[str, Any]) -> Scheme:
    if config.get("dynamic"):
        raise _refused(
            checkpoint,
            "its 'dynamic' rules quantize modules differently: mixed bit widths are unsupported.",
        )
    form = config.get("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise _refused(
            checkpoint,
            f"its checkpoint_format {form!r} is unsupported; save it as 'gptq' or 'gptq_v2'.",
        )
    # The first version of the format stores each zero point less one.
    offset = 1 if form == "gptq" else 0
    scheme = Scheme(
        checkpoint,
        "gptq",
        config.get("bits", 0),
        config.get("group_size", 0),
        zero_offset=offset,
    )
    return _checked(scheme, (4, 8))


def _awq_scheme(checkpoint: Checkpoint, config: dict[str, Any]) -> Scheme:
    version = str(config.get("version", "gemm")).lower()
    if version != "gemm":
        raise _refused(checkpoint, f"its AWQ version {version!r} is unsupported; use 'gemm'.")
    bits = config.get("bits", config.get("w_bit", 0))
    group = config.get("group_size", config.get("q_group_size", 0))
    return _checked(Scheme(checkpoint, "awq", bits, group), (4,))


def _compressed_scheme(checkpoint: Checkpoint, config: dict[str, Any]) -> Scheme:
    form = config.get("format")
    if form != "pack-quantized":
        raise _refused(
            checkpoint, f"its format {form!r} is unsupported; only 'pack-quantized' can be packed."
        )
    for key in ("kv_cache_scheme", "transform_config"):
        if config.get(key):
            raise _refused(checkpoint, f"its {key} is unsupported.")
    if (config.get("sparsity_config") or {}).get("format", "dense") != "dense":
        raise _refused(checkpoint, "its sparsity_config is unsupported.")
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise _refused(
            checkpoint, "it has not exactly one of config_groups: mixed schemes are unsupported."
        )
    ((name, entry),) = groups.items()
    if not isinstance(entry, dict) or not isinstance(entry.get("weights"), dict):
        raise _refused(checkpoint, f"its {name} says nothing about weights.")
    if entry.get("input_activations") or entry.get("output_activations"):
        raise _refused(
            checkpoint, f"{name} quantizes activations: only quantized weights are supported."
        )
    weights = entry["weights"]
    strategy = weights.get("strategy")
    if weights.get("type") != "int" or strategy not in ("group", "channel"):
        raise _refused(
            checkpoint,
            f"{name} has weights of type {weights.get('type')!r} and strategy {strategy!r}; "
            "supported are 'int' with 'group' or 'channel'.",
        )
    group = -1 if strategy == "channel" else weights.get("group_size", 0)
    symmetric = bool(weights.get("symmetric", True))
    scheme = Scheme(checkpoint, "ct", weights.get("num_bits", 0), group, symmetric)
    return _checked(scheme, (4, 8))


def _awq_columns(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Codes in the order of the words' bits into the order of columns."""
    return codes.reshape(len(codes), -1, 8)[:, :, np.argsort(_AWQ_ORDER)].reshape(codes.shape)

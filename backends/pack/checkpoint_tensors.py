"""Layers, matrices and vectors of a Hugging Face checkpoint under the packed layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from backends.pack.checkpoint import Checkpoint
from backends.pack.codes import Codes, concatenate_codes, contiguous, sixteen, to_matrix
from backends.pack.hf_config import HfConfig
from backends.pack.positions import adjacent_pairs
from backends.pack.quantized import read_scheme
from backends.pack.rounding import Rounding
from backends.pack.shapes import COLUMNS
from backends.pack.tiles import (
    Matrix,
    Sixteen,
    Tensor,
    Vector,
    concatenate_rows,
    gate_up_order,
    take_rows,
)

_Rows = npt.NDArray[np.int64]


class CheckpointTensors:
    """Reads what models and draft heads have in common.

    `rounding` collects what could not be kept. Methods raise CheckpointError naming the tensor.
    """

    def __init__(self, checkpoint: Checkpoint, config: HfConfig) -> None:
        self.checkpoint = checkpoint
        self.config = config
        self.dimensions = config.dimensions
        self.scheme = read_scheme(checkpoint)
        self.rounding = Rounding()

    def layer(self, source: str, target: str, input_width: int) -> dict[str, Tensor]:
        """The matrices of one layer; `input_width` is that of the attention's input."""
        sizes = self.dimensions
        hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
        queries = sizes["num_heads"] * sizes["head_dim"]
        self.checkpoint.ignore(f"{source}.self_attn.rotary_emb.inv_freq")
        packed = self._attention_input(f"{source}.self_attn", target, input_width)
        packed |= self._linear(f"{target}.o", f"{source}.self_attn.o_proj", hidden, queries)
        packed |= self._fused(
            f"{target}.gate_up",
            [f"{source}.mlp.gate_proj", f"{source}.mlp.up_proj"],
            [inner, inner],
            hidden,
            lambda: gate_up_order(inner),
        )
        packed |= self._linear(f"{target}.down", f"{source}.mlp.down_proj", hidden, inner)
        return packed

    def vector(self, name: str, length: int) -> Vector:
        """A norm or bias."""
        tensor = self.checkpoint.take(name)
        tensor.need_shape((length,))
        return Vector(tensor.floats())

    def matrix(self, module: str, rows: int, cols: int, *, bias: bool = False) -> Matrix:
        """A linear layer; `bias` says that the caller reads its bias."""
        part = self._part(module, rows, cols, bias)
        return to_matrix(part, self.rounding) if isinstance(part, Codes) else part

    def plain(self, name: str, rows: int, cols: int) -> Sixteen:
        """An unquantized matrix; F32 is rounded to f16, the baseline's width."""
        tensor = self.checkpoint.take(name)
        tensor.need_shape((rows, cols))
        if cols % 32:
            raise tensor.error(f"its {cols} columns are no multiple of 32.")
        values = tensor.floats()
        if tensor.dtype == "F32":
            matrix = sixteen(values, "f16", tensor)
            self.rounding.add(
                "F32 weights", int((matrix.dequantize() != values).sum()), values.size
            )
            return matrix
        return Sixteen(tensor.data.view(np.uint16).reshape(rows, cols), tensor.dtype.lower())

    def _attention_input(self, source: str, target: str, input_width: int) -> dict[str, Tensor]:
        """q, k and v as one matrix, with what Qwen2 and Qwen3 add."""
        sizes = self.dimensions
        heads, kv_heads, width = sizes["num_heads"], sizes["num_kv_heads"], sizes["head_dim"]
        counts = [heads * width, kv_heads * width, kv_heads * width]

        def pairs() -> _Rows:
            values = np.arange(sum(counts[:2]), sum(counts))
            return np.concatenate([adjacent_pairs(heads + kv_heads, width), values])

        modules = [f"{source}.{part}_proj" for part in "qkv"]
        found = self._fused(f"{target}.qkv", modules, counts, input_width, pairs)
        biases = [f"{module}.bias" for module in modules]
        needed = self.config.model_type == "qwen2"
        if needed or any(self.checkpoint.has(bias) for bias in biases):
            values = [
                self.vector(bias, count).values for bias, count in zip(biases, counts, strict=True)
            ]
            found[f"{target}.qkv_bias"] = Vector(np.concatenate(values)[pairs()])
        if self.config.model_type == "qwen3":
            for part in "qk":
                norm = self.vector(f"{source}.{part}_norm.weight", width)
                found[f"{target}.{part}_norm"] = Vector(norm.values[adjacent_pairs(1, width)])
        return found

    def _part(self, module: str, rows: int, cols: int, has_bias: bool = False) -> Codes | Sixteen:
        """A linear layer as it is stored; a bias of zeros, as old GPTQ files have, is dropped."""
        bias = f"{module}.bias"
        kept = has_bias or module.endswith(("q_proj", "k_proj", "v_proj"))
        if not kept and self.checkpoint.has(bias) and self.vector(bias, rows).values.any():
            raise self.checkpoint.tensors[bias].error("a bias is supported only for q, k and v.")
        codes = self.scheme.codes(module, rows, cols) if self.scheme else None
        if codes is not None:
            return codes
        return self.plain(f"{module}.weight", rows, cols)

    def _linear(self, name: str, module: str, rows: int, cols: int) -> dict[str, Tensor]:
        part = self._part(module, rows, cols)
        return self._placed(name, part) if isinstance(part, Codes) else {name: part}

    def _placed(self, name: str, codes: Codes) -> dict[str, Tensor]:
        """Codes as a packed matrix, with the order of its columns where they were in act-order."""
        codes, columns = contiguous(codes)
        found: dict[str, Tensor] = {name: to_matrix(codes, self.rounding)}
        if columns is not None:
            found[name + COLUMNS] = columns
        return found

    def _fused(
        self,
        name: str,
        modules: Sequence[str],
        rows: Sequence[int],
        cols: int,
        order: Callable[[], _Rows],
    ) -> dict[str, Tensor]:
        """Linear layers with the same input as one matrix, its rows in `order`, which is asked for
        once the tensors have been found to have the sizes that the configuration claims."""
        parts = [
            self._part(module, count, cols) for module, count in zip(modules, rows, strict=True)
        ]
        codes = [part for part in parts if isinstance(part, Codes)]
        plain = [part for part in parts if isinstance(part, Sixteen)]
        if len(codes) == len(parts):
            return self._placed(name, concatenate_codes(codes).take_rows(order()))
        if len(plain) == len(parts) and len({part.kind for part in plain}) == 1:
            return {name: take_rows(concatenate_rows(plain), order())}
        raise self.checkpoint.error(
            f"{', '.join(modules)} are stored in different types, which is unsupported, since "
            "they become one tensor."
        )

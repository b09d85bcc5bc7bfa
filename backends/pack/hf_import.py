"""A Hugging Face checkpoint of a Llama, Mistral, Qwen2 or Qwen3 into a packed model file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.pack.checkpoint import Checkpoint
from backends.pack.codes import Codes, concatenate_codes, sixteen, to_matrix
from backends.pack.hf_config import read_config
from backends.pack.hf_tokenizer import tokenizer_metadata
from backends.pack.packed import write_packed
from backends.pack.positions import adjacent_pairs
from backends.pack.quantized import read_scheme
from backends.pack.rounding import Rounding
from backends.pack.safetensors_file import StoredTensor
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


def pack_checkpoint(
    path: str | Path, out: str | Path, *, name: str | None = None
) -> dict[str, Any]:
    """Pack a checkpoint folder (or one safetensors file in it) into `out`; return the metadata.

    16-bit weights and codes with their scales are kept exactly; F32 matrices, scales of f32 and
    act-order codes are rounded, which `source.notes` counts. Raises CheckpointError naming the file
    and the tensor; `out` is then untouched.
    """
    checkpoint = Checkpoint(path)
    model = _Importer(checkpoint)
    tensors = model.tensors()
    checkpoint.refuse_others()
    quantized = model.scheme is not None
    metadata = {
        **model.dimensions,
        "name": name or checkpoint.folder.absolute().name,
        "source": {
            "file": checkpoint.path.absolute().name,
            "sha256": checkpoint.sha256(),
            "format": "safetensors",
            "licence": None,
            "notes": [*model.config.notes, *model.rounding.notes()],
        },
        "weight_format": model.weight_format(tensors),
        "dequantized_baseline": quantized,
        **tokenizer_metadata(checkpoint, model.dimensions["vocab_size"]),
    }
    digest = write_packed(out, metadata, tensors)
    return {**metadata, "content_hash": digest}


class _Importer:
    """Reads the tensors of one checkpoint under their packed names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.config = read_config(checkpoint)
        self.dimensions = self.config.dimensions
        self.scheme = read_scheme(checkpoint)
        self.rounding = Rounding()

    def weight_format(self, tensors: dict[str, Tensor]) -> str:
        """The scheme's name, or the layers' 16-bit type."""
        return self.scheme.weight_format if self.scheme else tensors["layers.0.down"].kind

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the model."""
        sizes = self.dimensions
        hidden, inner, vocab = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
        queries = sizes["num_heads"] * sizes["head_dim"]
        packed: dict[str, Tensor] = {"final_norm": self._vector("model.norm.weight", hidden)}
        packed |= self._vocabulary(vocab, hidden)
        for layer in range(sizes["num_layers"]):
            source, target = f"model.layers.{layer}", f"layers.{layer}"
            self.checkpoint.ignore(f"{source}.self_attn.rotary_emb.inv_freq")
            packed |= self._attention_input(f"{source}.self_attn", target)
            packed[f"{target}.o"] = self._matrix(f"{source}.self_attn.o_proj", hidden, queries)
            packed[f"{target}.gate_up"] = self._fused(
                [f"{source}.mlp.gate_proj", f"{source}.mlp.up_proj"],
                [inner, inner],
                gate_up_order(inner),
            )
            packed[f"{target}.down"] = self._matrix(f"{source}.mlp.down_proj", hidden, inner)
            for norm, place in (("attn", "input"), ("mlp", "post_attention")):
                packed[f"{target}.{norm}_norm"] = self._vector(
                    f"{source}.{place}_layernorm.weight", hidden
                )
        return packed

    def _vocabulary(self, vocab: int, hidden: int) -> dict[str, Tensor]:
        embedding = self._plain(self.checkpoint.take("model.embed_tokens.weight"), vocab, hidden)
        if not self.dimensions["tied_head"]:
            return {"embed": embedding, "head": self._matrix("lm_head", vocab, hidden)}
        if self.checkpoint.has("lm_head.weight"):
            head = self.checkpoint.take("lm_head.weight")
            stored = self.checkpoint.take("model.embed_tokens.weight")
            if head.dtype != stored.dtype or not np.array_equal(head.data, stored.data):
                raise head.error(
                    "it differs from the embedding, though config.json ties them "
                    "(tie_word_embeddings)."
                )
        return {"head": embedding}

    def _attention_input(self, source: str, target: str) -> dict[str, Tensor]:
        """q, k and v as one matrix, with what Qwen2 and Qwen3 add."""
        sizes = self.dimensions
        heads, kv_heads, width = sizes["num_heads"], sizes["num_kv_heads"], sizes["head_dim"]
        counts = [heads * width, kv_heads * width, kv_heads * width]
        pairs = np.concatenate(
            [
                adjacent_pairs(heads + kv_heads, width),
                np.arange(sum(counts[:2]), sum(counts)),
            ]
        )
        modules = [f"{source}.{part}_proj" for part in "qkv"]
        found: dict[str, Tensor] = {f"{target}.qkv": self._fused(modules, counts, pairs)}
        biases = [f"{module}.bias" for module in modules]
        needed = self.config.model_type == "qwen2"
        if needed or any(self.checkpoint.has(bias) for bias in biases):
            values = [
                self._vector(bias, count).values for bias, count in zip(biases, counts, strict=True)
            ]
            found[f"{target}.qkv_bias"] = Vector(np.concatenate(values)[pairs])
        if self.config.model_type == "qwen3":
            for part in "qk":
                norm = self._vector(f"{source}.{part}_norm.weight", width)
                found[f"{target}.{part}_norm"] = Vector(norm.values[adjacent_pairs(1, width)])
        return found

    def _vector(self, name: str, length: int) -> Vector:
        tensor = self.checkpoint.take(name)
        tensor.need_shape((length,))
        return Vector(tensor.floats())

    def _part(self, module: str, rows: int, cols: int) -> Codes | Sixteen:
        """A linear layer as it is stored; a bias of zeros, as old GPTQ files have, is dropped."""
        bias = f"{module}.bias"
        in_qkv = module.endswith(("q_proj", "k_proj", "v_proj"))
        if not in_qkv and self.checkpoint.has(bias) and self._vector(bias, rows).values.any():
            raise self.checkpoint.tensors[bias].error("a bias is supported only for q, k and v.")
        codes = self.scheme.codes(module, rows, cols) if self.scheme else None
        if codes is not None:
            return codes
        return self._plain(self.checkpoint.take(f"{module}.weight"), rows, cols)

    def _plain(self, tensor: StoredTensor, rows: int, cols: int) -> Sixteen:
        """An unquantized matrix; F32 is rounded to f16, the baseline's width."""
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

    def _matrix(self, module: str, rows: int, cols: int) -> Matrix:
        part = self._part(module, rows, cols)
        return to_matrix(part, self.rounding) if isinstance(part, Codes) else part

    def _fused(self, modules: Sequence[str], rows: Sequence[int], order: _Rows) -> Matrix:
        """Linear layers with the same input as one matrix, its rows in `order`."""
        cols = self.dimensions["hidden_size"]
        parts = [
            self._part(module, count, cols) for module, count in zip(modules, rows, strict=True)
        ]
        codes = [part for part in parts if isinstance(part, Codes)]
        plain = [part for part in parts if isinstance(part, Sixteen)]
        if len(codes) == len(parts):
            return to_matrix(concatenate_codes(codes).take_rows(order), self.rounding)
        if len(plain) == len(parts) and len({part.kind for part in plain}) == 1:
            return take_rows(concatenate_rows(plain), order)
        raise self.checkpoint.error(
            f"{', '.join(modules)} are stored in different types, which is unsupported, since "
            "they become one tensor."
        )

"""A GGUF file of a Llama, Mistral, Qwen2 or Qwen3 into a packed model file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np

from backends.pack.errors import CheckpointError
from backends.pack.files import file_sha256
from backends.pack.gguf_blocks import to_matrix, to_vector
from backends.pack.gguf_file import GgufFile
from backends.pack.gguf_tokenizer import tokenizer_metadata
from backends.pack.packed import write_packed
from backends.pack.positions import adjacent_pairs, llama3_scaling, window_note
from backends.pack.rounding import Rounding, source_notes
from backends.pack.tiles import (
    TILE_ROWS,
    Affine4,
    Matrix,
    Tensor,
    Vector,
    concatenate_rows,
    gate_up_order,
    take_rows,
)

# A Mistral's architecture is 'llama' here.
ARCHITECTURES = ("llama", "qwen2", "qwen3")
_GLOBAL = {"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"}
_LAYER = {
    f"{part}.weight"
    for part in (
        *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
        *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
    )
}
_EXTRA = {
    "llama": {f"attn_{part}.bias" for part in "qkv"},
    "qwen2": {f"attn_{part}.bias" for part in "qkv"},
    "qwen3": {f"attn_{part}_norm.weight" for part in "qk"},
}


def pack_gguf(path: str | Path, out: str | Path, *, name: str | None = None) -> dict[str, Any]:
    """Pack the GGUF file `path` into `out`; return the metadata written, `content_hash` included.

    GGUF keeps the rows of llama's q and k in adjacent-pair rotary order, as the packed format
    wants them; those of Qwen are in half-split order and are sorted. Raises CheckpointError where
    the file has an architecture, a type or a shape that is not supported; `out` is then untouched.
    """
    file = GgufFile(path)
    model = _Importer(file)
    tensors = model.tensors()
    metadata = {
        **model.dimensions,
        "name": name or str(file.metadata.get("general.name") or file.path.stem),
        "source": {
            "file": file.path.name,
            "sha256": file_sha256(file.path),
            "format": "gguf",
            "licence": file.metadata.get("general.license"),
            **source_notes([*model.notes, *model.rounding.notes()]),
        },
        "weight_format": model.weight_format(),
        "dequantized_baseline": any(
            tensor.type.name not in ("F32", "F16", "BF16") for tensor in file.tensors.values()
        ),
        **tokenizer_metadata(file.metadata, file.path),
    }
    digest = write_packed(out, metadata, tensors)
    return {**metadata, "content_hash": digest}


class _Importer:
    """Reads dimensions and tensors of one GGUF file and checks them against each other."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.rounding = Rounding()
        self.notes: list[str] = []
        self.architecture = str(file.metadata.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise self._error(
                f"its architecture is {self.architecture!r}; supported are "
                f"{', '.join(ARCHITECTURES)}."
            )
        self.dimensions = self._dimensions()
        self._refuse_other_tensors()

    def _error(self, what: str, tensor: str | None = None) -> CheckpointError:
        return CheckpointError(self.file.path, what, tensor)

    def _number(self, key: str, default: float | None = None) -> Any:
        full = f"{self.architecture}.{key}"
        value = self.file.metadata.get(full, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._error(f"metadata key {full!r} is missing or no positive number.")
        return value

    def _dimensions(self) -> dict[str, Any]:
        hidden = self._number("embedding_length")
        heads = self._number("attention.head_count")
        kv_heads = self._number("attention.head_count_kv", heads)
        head_dim = self._number("attention.key_length", hidden // heads)
        rotary = self._number("rope.dimension_count", head_dim)
        if self._number("attention.value_length", head_dim) != head_dim or rotary != head_dim:
            raise self._error(
                "heads with another width for values or rotary embedding are unsupported."
            )
        if self.file.metadata.get(f"{self.architecture}.expert_count"):
            raise self._error("mixtures of experts are unsupported.")
        if heads % kv_heads:
            raise self._error(f"{heads} heads do not divide into {kv_heads} key-value heads.")
        inner = self._number("feed_forward_length")
        if inner % TILE_ROWS:
            raise self._error(f"feed_forward_length {inner} is no multiple of 16.")
        theta = self._number("rope.freq_base", 10000.0)
        scaling = self._scaling(theta, head_dim)
        return {
            "architecture": "llama",
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_layers": self._number("block_count"),
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": head_dim,
            "vocab_size": self._vocab_size(),
            "max_position": self._max_position(),
            "rope_theta": theta,
            "rms_norm_eps": self._number("attention.layer_norm_rms_epsilon"),
            "tied_head": "output.weight" not in self.file.tensors,
            **({} if scaling is None else {"rope_scaling": scaling}),
        }

    def _max_position(self) -> int:
        longest = int(self._number("context_length"))
        window = int(self._number("attention.sliding_window", longest))
        if window < longest:
            self.notes.append(window_note(window, longest))
        return min(window, longest)

    def _scaling(self, theta: float, head_dim: int) -> dict[str, Any] | None:
        kind = self.file.metadata.get(f"{self.architecture}.rope.scaling.type", "none")
        factors = self.file.tensors.get("rope_freqs.weight")
        if kind == "linear" and factors is None:
            return {"type": "linear", "factor": float(self._number("rope.scaling.factor"))}
        if kind != "none":
            raise self._error(f"rotary scaling {kind!r} is unsupported.")
        if factors is None:
            return None
        found = llama3_scaling(self._vector(factors.name, head_dim // 2).values, theta)
        if found is None:
            raise self._error("its factors are not those of Llama 3's scaling.", factors.name)
        return found

    def _vocab_size(self) -> int:
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None:
            raise self._error("it is missing.", "token_embd.weight")
        rows = embedding.shape[0]
        tokens = self.file.metadata.get("tokenizer.ggml.tokens")
        if tokens is not None and len(tokens) != rows:
            raise self._error(
                f"it has {rows} rows for {len(tokens)} tokens of the tokenizer.", embedding.name
            )
        return rows

    def _refuse_other_tensors(self) -> None:
        layers = self.dimensions["num_layers"]
        for name in self.file.tensors:
            prefix, _, rest = name.partition(".")
            number, _, part = rest.partition(".")
            in_layer = prefix == "blk" and number.isdigit() and int(number) < layers
            known = part in _LAYER or part in _EXTRA[self.architecture]
            if not (name in _GLOBAL or (in_layer and known)):
                raise self._error(
                    f"it is unsupported: no plain {self.architecture} has such a tensor.", name
                )

    def _matrix(self, name: str, rows: int, cols: int) -> Matrix:
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise self._error("it is missing.", name)
        if tensor.shape != (rows, cols):
            raise self._error(
                f"its shape is {tensor.shape} where the model needs {(rows, cols)}.", name
            )
        if cols % 32:
            raise self._error(f"its {cols} columns are no multiple of 32.", name)
        return to_matrix(self.file.path, tensor, self.rounding)

    def _vector(self, name: str, length: int) -> Vector:
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise self._error("it is missing.", name)
        if tensor.shape != (length,):
            raise self._error(
                f"its shape is {tensor.shape} where the model needs {(length,)}.", name
            )
        return to_vector(self.file.path, tensor)

    def _fused(self, names: list[str], rows: list[int], cols: int) -> Matrix:
        parts = [self._matrix(name, count, cols) for name, count in zip(names, rows, strict=True)]
        for name, part in zip(names, parts, strict=True):
            if (part.kind, part.group) != (parts[0].kind, parts[0].group):
                raise self._error(
                    f"it is {self.file.tensors[name].type.name} beside {names[0]!r} of type "
                    f"{self.file.tensors[names[0]].type.name}: this mix is unsupported, since "
                    "both become one tensor.",
                    name,
                )
        # All parts have the first one's type, which the checker cannot see.
        return concatenate_rows(cast("list[Affine4]", parts))

    def tensors(self) -> dict[str, Tensor]:
        """All tensors under their packed names."""
        sizes = self.dimensions
        hidden, inner, vocab = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
        queries = sizes["num_heads"] * sizes["head_dim"]
        embedding = self._matrix("token_embd.weight", vocab, hidden)
        packed: dict[str, Tensor] = {"final_norm": self._vector("output_norm.weight", hidden)}
        if sizes["tied_head"]:
            packed["head"] = embedding
        else:
            packed["embed"] = embedding
            packed["head"] = self._matrix("output.weight", vocab, hidden)
        for layer in range(sizes["num_layers"]):
            source, target = f"blk.{layer}", f"layers.{layer}"
            packed |= self._attention_input(source, target)
            packed[f"{target}.o"] = self._matrix(f"{source}.attn_output.weight", hidden, queries)
            gate_up = self._fused(
                [f"{source}.ffn_gate.weight", f"{source}.ffn_up.weight"], [inner, inner], hidden
            )
            packed[f"{target}.gate_up"] = take_rows(cast(Affine4, gate_up), gate_up_order(inner))
            packed[f"{target}.down"] = self._matrix(f"{source}.ffn_down.weight", hidden, inner)
            packed[f"{target}.attn_norm"] = self._vector(f"{source}.attn_norm.weight", hidden)
            packed[f"{target}.mlp_norm"] = self._vector(f"{source}.ffn_norm.weight", hidden)
        return packed

    def _attention_input(self, source: str, target: str) -> dict[str, Tensor]:
        """q, k and v as one matrix, with what Qwen2 and Qwen3 add."""
        sizes = self.dimensions
        width, hidden = sizes["head_dim"], sizes["hidden_size"]
        counts = [sizes["num_heads"] * width, *[sizes["num_kv_heads"] * width] * 2]
        # First, since it holds the sizes that the file claims against the tensors that are there.
        qkv = self._fused([f"{source}.attn_{part}.weight" for part in "qkv"], counts, hidden)
        rows = np.arange(sum(counts))
        head = np.arange(width)
        if self.architecture != "llama":
            rotated = sizes["num_heads"] + sizes["num_kv_heads"]
            rows[: rotated * width] = adjacent_pairs(rotated, width)
            head = adjacent_pairs(1, width)
        found: dict[str, Tensor] = {f"{target}.qkv": take_rows(cast(Affine4, qkv), rows)}
        biases = [f"{source}.attn_{part}.bias" for part in "qkv"]
        if self.architecture == "qwen2" or any(name in self.file.tensors for name in biases):
            values = [
                self._vector(name, count).values for name, count in zip(biases, counts, strict=True)
            ]
            found[f"{target}.qkv_bias"] = Vector(np.concatenate(values)[rows])
        if self.architecture == "qwen3":
            for part in "qk":
                norm = self._vector(f"{source}.attn_{part}_norm.weight", width)
                found[f"{target}.{part}_norm"] = Vector(norm.values[head])
        return found

    def weight_format(self) -> str:
        """The most frequent type among the layers' matrices, in lower case (`q4_1`)."""
        types = Counter(
            tensor.type.name.lower()
            for name, tensor in self.file.tensors.items()
            if name.startswith("blk.") and len(tensor.shape) == 2
        )
        # Matrices of these types are rounded to f16 as they are packed.
        common = types.most_common(1)[0][0]
        return "f16" if common in ("f32", "q4_k", "q6_k") else common

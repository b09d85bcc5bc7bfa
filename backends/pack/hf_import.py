"""A Hugging Face checkpoint of a Llama, Mistral, Qwen2 or Qwen3 into a packed model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backends.pack.checkpoint import Checkpoint
from backends.pack.checkpoint_tensors import CheckpointTensors
from backends.pack.hf_config import read_config
from backends.pack.hf_tokenizer import tokenizer_metadata
from backends.pack.packed import write_packed
from backends.pack.rounding import source_notes
from backends.pack.tiles import Tensor


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
            **source_notes([*model.config.notes, *model.rounding.notes()]),
        },
        "weight_format": model.weight_format(tensors),
        "dequantized_baseline": quantized,
        **tokenizer_metadata(checkpoint, model.dimensions["vocab_size"]),
    }
    digest = write_packed(out, metadata, tensors)
    return {**metadata, "content_hash": digest}


class _Importer(CheckpointTensors):
    """Reads the tensors of one model under their packed names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint, read_config(checkpoint))

    def weight_format(self, tensors: dict[str, Tensor]) -> str:
        """The scheme's name, or the layers' 16-bit type."""
        return self.scheme.weight_format if self.scheme else tensors["layers.0.down"].kind

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the model."""
        sizes = self.dimensions
        hidden, vocab = sizes["hidden_size"], sizes["vocab_size"]
        packed: dict[str, Tensor] = {"final_norm": self.vector("model.norm.weight", hidden)}
        packed |= self._vocabulary(vocab, hidden)
        for layer in range(sizes["num_layers"]):
            source, target = f"model.layers.{layer}", f"layers.{layer}"
            packed |= self.layer(source, target, input_width=hidden)
            for norm, place in (("attn", "input"), ("mlp", "post_attention")):
                packed[f"{target}.{norm}_norm"] = self.vector(
                    f"{source}.{place}_layernorm.weight", hidden
                )
        return packed

    def _vocabulary(self, vocab: int, hidden: int) -> dict[str, Tensor]:
        embedding = self.plain("model.embed_tokens.weight", vocab, hidden)
        if not self.dimensions["tied_head"]:
            return {"embed": embedding, "head": self.matrix("lm_head", vocab, hidden)}
        if self.checkpoint.has("lm_head.weight"):
            head = self.checkpoint.take("lm_head.weight")
            stored = self.checkpoint.take("model.embed_tokens.weight")
            if head.dtype != stored.dtype or not np.array_equal(head.data, stored.data):
                raise head.error(
                    "it differs from the embedding, though config.json ties them "
                    "(tie_word_embeddings)."
                )
        return {"head": embedding}

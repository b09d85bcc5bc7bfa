"""A draft head's checkpoint into a packed file, for one target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backends.pack.checkpoint import Checkpoint
from backends.pack.checkpoint_tensors import CheckpointTensors
from backends.pack.head_layouts import Layout, find_layout
from backends.pack.hf_config import read_config
from backends.pack.packed import PackedFile, write_packed
from backends.pack.rounding import source_notes
from backends.pack.shapes import DRAFT_TOKENS, HEADS
from backends.pack.tiles import Integers, Sixteen, Tensor, Tokens, take_rows


def pack_head(
    path: str | Path,
    target: str | Path,
    out: str | Path,
    *,
    taps: Sequence[int] | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Pack the head in `path` for the packed model `target` into `out`; return the metadata.

    `taps` overrides the target's states that the checkpoint's layout reads (docs/packed-format.md
    numbers them). The head's 16-bit weights are kept exactly. Raises CheckpointError naming the
    file and the tensor; `out` is then untouched.
    """
    checkpoint = Checkpoint(path)
    head = _Importer(checkpoint, PackedFile(target), taps)
    tensors = head.tensors()
    checkpoint.refuse_others("no draft head of this layout has such a tensor")
    metadata = {
        **head.dimensions,
        "name": name or checkpoint.folder.absolute().name,
        "target": head.target_metadata(),
        "source": {
            "file": checkpoint.path.absolute().name,
            "sha256": checkpoint.sha256(),
            "format": head.layout.name,
            "licence": None,
            **source_notes([*head.notes, *head.rounding.notes()]),
        },
        "weight_format": tensors["layers.0.down"].kind,
        "dequantized_baseline": False,
        "tokenizer": None,
        "chat_template": None,
        "stop_ids": head.target.metadata.get("stop_ids") or [],
    }
    if head.layout.normed_stream:
        metadata["norm_before_residual"] = True
    digest = write_packed(out, metadata, tensors)
    return {**metadata, "content_hash": digest}


class _Importer(CheckpointTensors):
    """Reads the tensors of one head under their packed names."""

    def __init__(
        self, checkpoint: Checkpoint, target: PackedFile, taps: Sequence[int] | None
    ) -> None:
        self.layout: Layout = find_layout(checkpoint)
        config = read_config(checkpoint, self.layout.config)
        super().__init__(checkpoint, config)
        self.target = target
        if target.metadata["architecture"] in HEADS:
            raise checkpoint.error(f"its target {target.path} is itself a draft head.")
        self.notes = config.notes
        layers = int(target.metadata["num_layers"])
        self.taps = tuple(taps or self.layout.taps or self.layout.default_taps(layers))
        outside = [tap for tap in self.taps if not 0 <= tap <= layers + 1]
        if outside:
            raise checkpoint.error(
                f"it reads state {outside[0]} of its target, which has states 0 to {layers + 1}. "
                "Give the right ones with --taps."
            )
        self.dimensions |= {"architecture": self.layout.architecture, "tied_head": False}
        vocab, wanted = self.dimensions["vocab_size"], target.metadata["vocab_size"]
        if vocab != wanted:
            raise checkpoint.error(
                f"its vocabulary has {vocab} tokens and that of {target.path} {wanted}. A head "
                "drafts only for the model that it was trained for."
            )
        if self.dimensions["num_layers"] != 1:
            raise checkpoint.error(
                f"it has {self.dimensions['num_layers']} layers; heads of one layer are supported."
            )

    def target_metadata(self) -> dict[str, Any]:
        """The packed file's entry `target`."""
        keys = ("content_hash", "hidden_size", "num_layers")
        return {**{key: self.target.metadata[key] for key in keys}, "taps": list(self.taps)}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the head."""
        eagle3 = self.layout.architecture == "eagle3"
        hidden, source = self.dimensions["hidden_size"], self.layout.layer
        width = len(self.taps) * int(self.target.metadata["hidden_size"])
        packed = self.layer(source, "layers.0", input_width=hidden * (2 if eagle3 else 1))
        packed["layers.0.mlp_norm"] = self.vector(
            f"{source}.post_attention_layernorm.weight", hidden
        )
        if eagle3:
            packed["feature_fc"] = self.matrix(self.layout.fusion, hidden, width)
            packed["embed_norm"] = self.vector(f"{source}.input_layernorm.weight", hidden)
            packed["layers.0.attn_norm"] = self.vector(f"{source}.hidden_norm.weight", hidden)
            packed["final_norm"] = self.vector("norm.weight", hidden)
        else:
            packed["fc"] = self.matrix(self.layout.fusion, hidden, 2 * hidden, bias=True)
            bias = f"{self.layout.fusion}.bias"
            if self.checkpoint.has(bias):
                packed["fc_bias"] = self.vector(bias, hidden)
        return {**packed, **self._vocabulary(hidden)}

    def _vocabulary(self, hidden: int) -> dict[str, Tensor]:
        vocab = self.dimensions["vocab_size"]
        packed: dict[str, Tensor] = {}
        if self.checkpoint.has("embed_tokens.weight"):
            embedding = self.plain("embed_tokens.weight", vocab, hidden)
            if not self._is_targets(embedding):
                packed["embed"] = embedding
        elif hidden != self.target.metadata["hidden_size"]:
            raise self.checkpoint.error(
                f"it has no embedding, and the target's width is "
                f"{self.target.metadata['hidden_size']}, not {hidden}.",
                "embed_tokens.weight",
            )
        tokens = self._draft_tokens(vocab)
        if self.checkpoint.has("lm_head.weight"):
            head = self.plain("lm_head.weight", vocab if tokens is None else len(tokens), hidden)
            if tokens is not None:
                order = np.argsort(tokens, kind="stable")
                head, tokens = take_rows(head, order), tokens[order]
            packed["head"] = head
        elif tokens is not None:
            tokens = np.sort(tokens)
        if tokens is not None:
            packed[DRAFT_TOKENS] = Tokens(tokens)
        return packed

    def _draft_tokens(self, vocab: int) -> Integers | None:
        """The target's token of each row: `d2t` holds it less the row's own number."""
        self.checkpoint.ignore("t2d")
        if not self.checkpoint.has("d2t"):
            return None
        stored = self.checkpoint.take("d2t")
        shifts = stored.integers().reshape(-1)
        tokens = shifts + np.arange(len(shifts))
        if len(np.unique(tokens)) != len(tokens) or tokens.min() < 0 or tokens.max() >= vocab:
            raise stored.error(
                f"it does not map its {len(tokens)} rows to different tokens of {vocab}."
            )
        return tokens.astype(np.int32)

    def _is_targets(self, embedding: Sixteen) -> bool:
        """True where the target's embedding has these very values, so that a copy is no use."""
        stored = "head" if self.target.metadata["tied_head"] else "embed"
        entry = self.target.metadata["tensors"][stored]
        if (entry["rows"], entry["cols"]) != embedding.shape:
            return False
        return bool(np.array_equal(self.target.dequantize(stored), embedding.dequantize()))

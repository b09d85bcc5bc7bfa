"""A packed model onto another 4-bit grid: rotated or not, rounded to nearest, by GPTQ or by AWQ."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.llama_weights import llama_state
from backends.pack.errors import CheckpointError
from backends.pack.hf_import import pack_checkpoint
from backends.pack.packed import PackedFile, write_packed
from backends.pack.positions import adjacent_pairs
from backends.pack.rotation import ONLINE, rotate
from backends.pack.round_to_nearest import to_affine4, to_affine8
from backends.pack.tiles import (
    GROUPS,
    Affine4,
    Floats,
    Tensor,
    Vector,
    concatenate_rows,
    gate_up_order,
    take_rows,
)

METHODS = ("rtn", "gptq", "awq")
HEAD_GROUP = 32
_ROOT = Path(__file__).resolve().parents[2]
PYTHON = _ROOT / ".venvs" / "quantize" / "bin" / "python"
"""Interpreter with llmcompressor, made by `make backend-quantize`."""


@dataclass(frozen=True)
class Recipe:
    """How the layers' matrices come to 4 bits. `texts` are token ids to calibrate on."""

    method: str
    group: int = 32
    rotated: bool = False
    clip: bool = True
    texts: Sequence[Sequence[int]] = ()

    @property
    def name(self) -> str:
        """As it is written into the file: `rotated, gptq, group 32`."""
        parts = ["rotated"] if self.rotated else []
        method = self.method if self.method != "rtn" or self.clip else "rtn without clipping"
        return ", ".join([*parts, method, f"group {self.group}"])


def quantize(
    source: Path, out: Path, recipe: Recipe, *, name: str | None = None, python: Path = PYTHON
) -> dict[str, Any]:
    """Quantize the layers of a packed model into the packed file `out`; return its metadata.

    The weights of `source` are dequantized first, so that a file of 16-bit weights loses least.
    Embedding and head keep their tensors, or, where rotation makes them new, 8 bits in groups of
    32. Raises CheckpointError naming the file; `out` is then untouched.
    """
    packed = PackedFile(source)
    _refuse(packed, recipe)
    sizes = packed.metadata
    state = dict(llama_state(packed))
    if recipe.rotated:
        state = _rotate(state, packed)
    notes: list[str] = []
    if recipe.method == "rtn":
        layers = _rounded(state, packed, recipe)
    else:
        layers, notes = _by_llm_compressor(packed, recipe, python)
    tensors = {**layers, **_vocabulary(packed, state if recipe.rotated else None)}
    metadata = {
        key: value
        for key, value in sizes.items()
        if key not in ("format_version", "tensors", "content_hash", "hadamard")
    }
    metadata |= {
        "name": name or f"{sizes['name']} ({recipe.name})",
        "weight_format": f"{recipe.method}_int4",
        "dequantized_baseline": True,
        "source": {**(sizes["source"] or {}), "recipe": recipe.name,
                   "made_from": sizes["content_hash"], "notes": notes},
    }  # fmt: skip
    if recipe.rotated:
        metadata |= {"hadamard": ONLINE, "tied_head": False}
    digest = write_packed(out, metadata, tensors)
    return {**metadata, "content_hash": digest}


def _refuse(packed: PackedFile, recipe: Recipe) -> None:
    """Raise CheckpointError for what cannot be quantized."""
    if recipe.group not in GROUPS:
        raise CheckpointError(
            packed.path, f"a group of {recipe.group} is none of {', '.join(map(str, GROUPS))}."
        )
    for name, entry in packed.metadata["tensors"].items():
        if name.startswith("layers.") and entry["cols"] > 1 and entry["cols"] % recipe.group:
            raise CheckpointError(
                packed.path,
                f"a group of {recipe.group} does not divide its {entry['cols']} columns; use a "
                "smaller group.",
                name,
            )
        if name.endswith(("qkv_bias", "q_norm", "k_norm")):
            raise CheckpointError(
                packed.path, "models with it cannot be quantized here; plain Llamas can.", name
            )
    if packed.metadata.get("hadamard") or packed.metadata.get("rope_scaling"):
        raise CheckpointError(
            packed.path,
            "a rotated model, or one with scaled rotary positions, cannot be quantized.",
        )
    if recipe.method != "rtn" and not recipe.texts:
        raise CheckpointError(
            packed.path, f"{recipe.method} needs texts to calibrate on; give --calibration FILE."
        )


def _rotate(state: Mapping[str, Floats], packed: PackedFile) -> dict[str, Floats]:
    try:
        return rotate(state, packed.metadata)
    except ValueError as error:
        raise CheckpointError(packed.path, f"it cannot be rotated: {error}.") from error


def _rounded(state: Mapping[str, Floats], packed: PackedFile, recipe: Recipe) -> dict[str, Tensor]:
    """The layers' tensors by rounding to nearest."""
    sizes = packed.metadata
    heads = sizes["num_heads"] + sizes["num_kv_heads"]
    pairs = adjacent_pairs(heads, sizes["head_dim"])
    tensors: dict[str, Tensor] = {}

    def matrix(*names: str) -> Affine4:
        values = [state[f"{name}.weight"] for name in names]
        try:
            parts = [to_affine4(value, recipe.group, recipe.clip) for value in values]
        except ValueError as error:
            raise CheckpointError(packed.path, f"{error}.", names[0]) from error
        return concatenate_rows(parts)

    for layer in range(sizes["num_layers"]):
        at, to = f"model.layers.{layer}", f"layers.{layer}"
        qk = take_rows(matrix(f"{at}.self_attn.q_proj", f"{at}.self_attn.k_proj"), pairs)
        tensors[f"{to}.qkv"] = concatenate_rows([qk, matrix(f"{at}.self_attn.v_proj")])
        tensors[f"{to}.o"] = matrix(f"{at}.self_attn.o_proj")
        gate_up = matrix(f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj")
        tensors[f"{to}.gate_up"] = take_rows(gate_up, gate_up_order(sizes["intermediate_size"]))
        tensors[f"{to}.down"] = matrix(f"{at}.mlp.down_proj")
        tensors[f"{to}.attn_norm"] = Vector(state[f"{at}.input_layernorm.weight"])
        tensors[f"{to}.mlp_norm"] = Vector(state[f"{at}.post_attention_layernorm.weight"])
    return tensors


def _vocabulary(packed: PackedFile, rotated: Mapping[str, Floats] | None) -> dict[str, Tensor]:
    """Embedding, head and final norm: as they are, or the rotated ones."""
    if rotated is None:
        names = [name for name in packed.names if not name.startswith("layers.")]
        return {name: packed.tensor(name) for name in names}
    return {
        "embed": to_affine8(rotated["model.embed_tokens.weight"], HEAD_GROUP),
        "head": to_affine8(rotated["lm_head.weight"], HEAD_GROUP),
        "final_norm": Vector(rotated["model.norm.weight"]),
    }


def _by_llm_compressor(
    packed: PackedFile, recipe: Recipe, python: Path
) -> tuple[dict[str, Tensor], list[str]]:
    """The layers' tensors out of the checkpoint that llmcompressor writes, and what their import
    could not keep."""
    if not python.is_file():
        raise CheckpointError(
            packed.path,
            f"{recipe.method} needs llmcompressor, and {python} does not exist. Make it with "
            "`make backend-quantize`, or use --method rtn.",
        )
    with tempfile.TemporaryDirectory(prefix="specquant-quantize-") as folder:
        request = Path(folder) / "request.json"
        checkpoint = Path(folder) / "checkpoint"
        request.write_text(
            json.dumps({
                "model": str(packed.path.absolute()), "method": recipe.method,
                "group": recipe.group, "rotated": recipe.rotated,
                "texts": [list(text) for text in recipe.texts], "out": str(checkpoint),
            }),
            encoding="utf-8",
        )  # fmt: skip
        result = subprocess.run(
            [str(python), "-m", "backends.pack.llm_compressor", str(request)],
            cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode:
            tail = "\n".join((result.stderr or result.stdout).strip().splitlines()[-5:])
            raise CheckpointError(packed.path, f"llmcompressor failed:\n{tail}")
        imported = Path(folder) / "imported.sqm"
        pack_checkpoint(checkpoint, imported)
        quantized = PackedFile(imported)
        layers = {
            name: quantized.tensor(name) for name in quantized.names if name.startswith("layers.")
        }
        # Its 16-bit weights are embedding and head, which come from elsewhere.
        notes = [n for n in quantized.metadata["source"].get("notes", []) if " weights " not in n]
        return layers, notes

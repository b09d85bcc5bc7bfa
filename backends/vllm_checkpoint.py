"""What vLLM loads: a folder in the Hugging Face layout for a packed or a synthetic model.

A packed model made from a Hugging Face folder is served from that folder. One made from a GGUF is
written out as 16-bit safetensors. A synthetic model has a config.json alone, and vLLM draws the
weights (`load_format=dummy`).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.llama_weights import llama_config, llama_state, model_type
from backends.pack.errors import CheckpointError
from backends.pack.packed import PackedFile
from backends.protocol import RequestError

GROUP = 128
"""Columns that share a scale in the 4-bit weights of a synthetic model."""

QUANTIZED = ("w4a16", "w4a8")

_DTYPE = {"fp16": "float16", "bf16": "bfloat16", "w4a16": "float16", "w4a8": "float16"}


@dataclass(frozen=True)
class Checkpoint:
    """A `folder` for vLLM, whether its weights are `synthetic`, and the model's `sizes`
    (the keys of docs/packed-format.md)."""

    folder: Path
    synthetic: bool
    dtype: str
    sizes: Mapping[str, Any]
    content_hash: str


def checkpoint_of(model: Mapping[str, Any], precision: str) -> Checkpoint:
    """The checkpoint for the `model` of a `load` at `precision`.

    Raises RequestError: `model` where the packed file or its source is missing or damaged,
    `unsupported` where its weights cannot be given to vLLM at this precision.
    """
    if "synthetic" in model:
        return _synthetic(model["synthetic"], precision)
    path = Path(model["path"])
    try:
        packed = PackedFile(path)
    except CheckpointError as error:
        raise RequestError("model", str(error)) from error
    metadata = packed.metadata
    source = path.parent / str(metadata["source"]["file"])
    if source.is_dir():
        folder = source
    elif precision in QUANTIZED:
        raise RequestError(
            "unsupported",
            f"{path} was made from {source.name}, whose 4-bit weights vLLM cannot read. Serve "
            "w4a16 from a compressed-tensors, GPTQ or AWQ folder packed by `python -m "
            "backends.pack`, or compare at fp16.",
        )
    else:
        folder = _written_out(path, packed, precision)
    return Checkpoint(folder, False, _DTYPE[precision], metadata, str(metadata["content_hash"]))


def linear_weights(sizes: Mapping[str, Any]) -> int:
    """Number of weights in the layers' matrices: what a 4-bit precision quantizes."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    queries = sizes["num_heads"] * sizes["head_dim"]
    keys = sizes["num_kv_heads"] * sizes["head_dim"]
    layer = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * inner
    return int(sizes["num_layers"] * layer)


def hf_config(sizes: Mapping[str, Any], precision: str) -> dict[str, Any]:
    """config.json of a model of these sizes; 4-bit precisions name compressed-tensors' packed
    int4 format, which vLLM 0.26 honours with dummy weights (a `gptq` entry it does not)."""
    kind = model_type(sizes)
    config: dict[str, Any] = {
        **llama_config(sizes),
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "hidden_act": "silu",
        "torch_dtype": _DTYPE[precision],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    if precision in QUANTIZED:
        config["quantization_config"] = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "input_activations": None,
                    "output_activations": None,
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "symmetric": True,
                        "strategy": "group",
                        "group_size": GROUP,
                        "dynamic": False,
                    },
                }
            },
        }
    return config


def _synthetic(sizes: Mapping[str, Any], precision: str) -> Checkpoint:
    config = json.dumps(hf_config(sizes, precision))
    # vLLM keeps what it compiled by the model's path among others, so that equal models have one.
    name = hashlib.sha256(config.encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"specquant-vllm-{os.getuid()}" / name
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".config.{os.getpid()}"
    partial.write_text(config)
    partial.replace(folder / "config.json")
    digest = f"synthetic-{sizes['name']}-{sizes['seed']}"
    return Checkpoint(folder, True, _DTYPE[precision], sizes, digest)


def _written_out(path: Path, packed: PackedFile, precision: str) -> Path:
    """The packed file's dequantized weights as a folder beside it, made once."""
    import torch
    from safetensors.torch import save_file

    metadata = packed.metadata
    name = f"{path.stem}.{str(metadata['content_hash'])[:12]}.{precision}"
    folder = path.parent / "vllm" / name
    weights = folder / "model.safetensors"
    if weights.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    dtype = getattr(torch, _DTYPE[precision])
    state = {name: torch.tensor(values).to(dtype) for name, values in llama_state(packed)}
    (folder / "config.json").write_text(json.dumps(hf_config(metadata, precision)))
    partial = folder / ".model.partial"
    save_file(state, str(partial), metadata={"format": "pt"})
    partial.replace(weights)
    return folder

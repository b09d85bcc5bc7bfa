"""A Llama of a few kilobytes with random weights, as a GGUF file written by the gguf library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 304

Floats = npt.NDArray[np.float32]


def byte_tokens() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def vocabulary() -> list[str]:
    """Special tokens, then bytes, then fillers."""
    tokens = [*WORDS, *byte_tokens(), "ab"]
    return tokens + [f"filler{index}" for index in range(VOCAB - len(tokens))]


def shapes(tied: bool = True) -> dict[str, tuple[int, ...]]:
    """GGUF tensor name -> shape."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    if not tied:
        found["output.weight"] = (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        found |= {
            prefix + "attn_norm.weight": (HIDDEN,),
            prefix + "ffn_norm.weight": (HIDDEN,),
            prefix + "attn_q.weight": (queries, HIDDEN),
            prefix + "attn_k.weight": (keys, HIDDEN),
            prefix + "attn_v.weight": (keys, HIDDEN),
            prefix + "attn_output.weight": (HIDDEN, queries),
            prefix + "ffn_gate.weight": (INNER, HIDDEN),
            prefix + "ffn_up.weight": (INNER, HIDDEN),
            prefix + "ffn_down.weight": (HIDDEN, INNER),
        }
    return found


def write_gguf(
    path: Path,
    *,
    layers: str = "Q4_1",
    head: str = "Q8_0",
    tied: bool = True,
    seed: int = 0,
    architecture: str = "llama",
    metadata: Mapping[str, Any] | None = None,
    replace: Mapping[str, Floats] | None = None,
    types: Mapping[str, str] | None = None,
    leave_out: tuple[str, ...] = (),
) -> dict[str, Floats]:
    """Write a GGUF file and return the library's own dequantized values by tensor name.

    `layers` and `head` name GGUF types. `metadata` sets or (None) drops entries, `replace` gives
    tensors other values, `types` other types, `leave_out` drops tensors.
    """
    random = np.random.default_rng(seed)
    entries: dict[str, Any] = {
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 512,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": INNER,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.rope.dimension_count": HEAD_DIM,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": vocabulary(),
        "tokenizer.ggml.token_type": [3] * len(WORDS) + [1] * (VOCAB - len(WORDS)),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **(metadata or {}),
    }
    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    for key, value in entries.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif value is not None:
            writer.add_string(key, value)
    expected: dict[str, Floats] = {}
    for name, shape in shapes(tied).items():
        if name in leave_out:
            continue
        if len(shape) == 1:
            values = 1 + 0.1 * random.standard_normal(shape)
        else:
            # Larger than a trained model's, so that the next token depends on the text.
            values = random.standard_normal(shape) * 2 / np.sqrt(shape[1])
        values = (replace or {}).get(name, values.astype(np.float32))
        default = "F32" if values.ndim == 1 else layers if name.startswith("blk.") else head
        kind = GGMLQuantizationType[(types or {}).get(name, default)]
        raw = quantize(values, kind)
        expected[name] = dequantize(raw, kind).reshape(values.shape)
        writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected

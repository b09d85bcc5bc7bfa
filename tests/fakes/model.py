"""A packed model file of no weights: metadata and a tokenizer of one token a byte."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def tokenizer_json() -> str:
    """A byte-level tokenizer: every byte of a text is one of 256 tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return str(tokenizer.to_str())


def metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of a packed file as docs/packed-format.md lists it."""
    entries: dict[str, Any] = {
        "format_version": 1, "architecture": "llama", "name": "Fake-1M", "hidden_size": 64,
        "intermediate_size": 128, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
        "head_dim": 16, "vocab_size": 256, "max_position": 512, "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5, "tied_head": True, "tensors": {},
        "source": {"file": "none", "sha256": "0", "format": "none", "licence": "none"},
        "weight_format": "q4_1", "dequantized_baseline": True, "tokenizer": tokenizer_json(),
        "chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
                         "{% if add_generation_prompt %}<assistant>{% endif %}",
        "bos_token": None, "eos_token": None, "stop_ids": [],
    }  # fmt: skip
    entries |= changes
    text = json.dumps(entries, sort_keys=True)
    return {**entries, "content_hash": hashlib.sha256(text.encode()).hexdigest()}


def write_model(path: Path, **changes: Any) -> Path:
    """Write such a file; `changes` replace entries of its metadata."""
    header = {"__metadata__": {"specquant": json.dumps(metadata(**changes))}}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path

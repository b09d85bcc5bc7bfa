"""The names that configuration, records and reports may use for an axis."""

from __future__ import annotations

from typing import Final

PRECISIONS = (
    "fp16", "bf16", "w8a8", "w4a16", "w4a8", "w4a4",
    "w4a4_g16", "w4a4_qkv8", "w4a4_od8", "w4a4_g16_qkv8", "w4a4_g16_od8",
)  # fmt: skip
KV_PRECISIONS = ("kv16",)
DRAFTERS = ("none", "self", "model", "head", "ngram", "cascade")
SHAPES = ("none", "chain", "tree", "auto")
ACCEPTANCE = ("greedy", "sampling", "replay")
NATURAL: Final = "natural"
"""The context length that keeps prompts as long as they are."""

MAX_DRAFTED = 63
"""Tokens that one round may draft: with the bonus token a round has at most 64 rows."""
MAX_GROWN = 64
"""Nodes that a drafter can expand below the root of a tree: one bit each in a row's mask."""

TRACES = ("rounds", "tokens")
"""What a sweep keeps of each round: its counts, or every drafted position as well."""

HIGH_PROBABILITY = 0.8
"""A top-1 probability strictly above this counts as high, as in the agreement study."""

ABSURD_BATCH = 4096
"""A batch size above this is a slip of the pen and refused before anything is started."""


def quantized(precision: str) -> bool:
    """True where the precision reads 4- or 8-bit weights."""
    return precision.startswith(("w4", "w8"))

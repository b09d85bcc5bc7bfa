"""Positions: rotary order of rows, Llama 3's scaling, and what a sliding window leaves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.pack.tiles import Floats

# The settings that all Llama 3.1, 3.2 and 3.3 models share; `factor` differs.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 8192}


def adjacent_pairs(heads: int, head_dim: int) -> npt.NDArray[np.int64]:
    """Rows of q or k heads in adjacent-pair order, over rows in half-split order.

    Pair i of a head is rows i and i + head_dim / 2 of a half-split checkpoint, and 2i and 2i + 1 of
    the packed file.
    """
    head = np.arange(head_dim).reshape(2, -1).T.reshape(-1)
    return (np.arange(heads)[:, None] * head_dim + head).reshape(-1)


def window_note(window: int, longest: int) -> str:
    """What is said where a sliding window limits the context."""
    return (
        f"max_position is {window} instead of {longest}: attention slides over {window} tokens and "
        "is plain attention only up to there."
    )


def llama3_scaling(factors: Floats, theta: float) -> dict[str, Any] | None:
    """The packed file's `rope_scaling` for a GGUF's `rope_freqs` [head_dim / 2], or None.

    GGUF keeps each frequency's divisor instead of the settings. Llama 3's are tried with the
    largest divisor as their factor: 1 for wavelengths below original_max_position /
    high_freq_factor, the factor above original_max_position / low_freq_factor, and a line in
    1 / divisor between (as in transformers' modeling_rope_utils).
    """
    factor = float(factors.max())
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    wavelength = 2 * math.pi * theta ** (np.arange(len(factors)) / len(factors))
    turns = _LLAMA3["original_max_position"] / wavelength
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    if not np.allclose(factors, 1 / ((1 - smooth) / factor + smooth), rtol=1e-5, atol=0):
        return None
    return {"type": "llama3", "factor": factor, **_LLAMA3}

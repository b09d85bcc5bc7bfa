"""Weights of GGUF's super-blocks of 256 weights, Q4_K and Q6_K (ggml-common.h, ggml-quants.c).

Q4_K: f16 d and dmin, 12 bytes of 6-bit scales and minima for 8 groups of 32, 128 bytes of codes;
w = (d·scale)·q − dmin·minimum. Byte i of each 32 bytes holds element i of one group in its low half
and of the next group in its high half. Scales and minima of groups 0 to 3 are the low 6 bits of
bytes 0 to 3 and 4 to 7; groups 4 to 7 have their low 4 bits in bytes 8 to 11 (scale low, minimum
high) and their upper 2 bits on top of bytes 0 to 3 and 4 to 7.

Q6_K: 128 bytes of low halves, 64 bytes of upper 2 bits, 16 signed scales for groups of 16, f16 d;
w = (d·scale)·(q − 32). Of each 128 weights, element 32·k + i has its low four bits in byte
i + 32·(k % 2), the low half for k < 2, and its upper bits in byte i, from bit 2·k.
"""

from __future__ import annotations

import numpy as np

from backends.pack.tiles import Bytes, Floats

_WEIGHTS = 256
_Q4_K_BYTES, _Q6_K_BYTES = 144, 210


def dequantize_q4_k(data: Bytes) -> Floats:
    """The weights of whole Q4_K blocks, f32 [blocks, 256], rounded once where f32 must."""
    blocks = data.reshape(-1, _Q4_K_BYTES)
    d, minimum_scale = _halves(blocks[:, 0:2]), _halves(blocks[:, 2:4])
    first, second, third = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    codes = blocks[:, 16:].reshape(-1, 4, 1, 32)
    q = np.concatenate([codes & 15, codes >> 4], axis=2).reshape(-1, 8, 32)
    slope, offset = d * scales, minimum_scale * minima
    weights: Floats = slope[:, :, None] * q - offset[:, :, None]
    return weights.reshape(-1, _WEIGHTS)


def dequantize_q6_k(data: Bytes) -> Floats:
    """The weights of whole Q6_K blocks, f32 [blocks, 256], exact."""
    blocks = data.reshape(-1, _Q6_K_BYTES)
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    upper = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    q = (low | upper << 4).astype(np.int8) - np.int8(32)
    scales = blocks[:, 192:208].view(np.int8)
    slope = _halves(blocks[:, 208:210]) * scales
    return (slope[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, _WEIGHTS)


def _halves(raw: Bytes) -> Floats:
    """f16 of two bytes a row, as f32 [rows, 1]."""
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)

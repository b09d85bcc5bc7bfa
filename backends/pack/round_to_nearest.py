"""Weights onto 4- and 8-bit grids by rounding to nearest, with nothing but numpy."""

from __future__ import annotations

import numpy as np

from backends.pack.tiles import Affine4, Affine8, Bytes, Floats, Halves

SHRINKS = tuple(float(x) for x in np.linspace(1.0, 0.7, 13))
"""Shares of a group's range that are tried; outside it, weights are clipped."""
_LEVELS = 15
_ROWS_AT_ONCE = 256


def to_affine4(weights: Floats, group: int, clip: bool = True) -> Affine4:
    """[rows, cols] f32 on a grid of 16 levels for each row and `group` columns.

    The grid spans the group's minimum to its maximum, or, with `clip`, the share of that range
    (both ends moved in alike) with the least squared error. Scale and minimum are rounded to f16
    before the codes are chosen. Raises ValueError for a group that does not divide the columns, and
    for weights that are not finite or beyond f16.
    """
    _check(weights, group)
    rows, cols = weights.shape
    parts = [
        _nearest(weights[first : first + _ROWS_AT_ONCE].reshape(-1, group), clip)
        for first in range(0, rows, _ROWS_AT_ONCE)
    ]
    q, s, m = (np.concatenate(found) for found in zip(*parts, strict=True))
    return Affine4(q.reshape(rows, cols), s.reshape(rows, -1), m.reshape(rows, -1))


def to_affine8(weights: Floats, group: int) -> Affine8:
    """[rows, cols] f32 in steps of absmax / 127 for each row and `group` columns, without clipping.

    Raises ValueError as `to_affine4` does.
    """
    _check(weights, group)
    rows, cols = weights.shape
    values = weights.reshape(-1, group)
    scale = (np.abs(values).max(axis=1) / 127.0).astype(np.float16)
    steps = np.where(scale == 0, np.float16(1), scale).astype(np.float32)[:, None]
    codes = np.clip(np.rint(values / steps), -127, 127) + 128
    return Affine8(codes.astype(np.uint8).reshape(rows, cols), scale.reshape(rows, -1))


def _check(weights: Floats, group: int) -> None:
    if weights.shape[1] % group:
        raise ValueError(f"a group of {group} does not divide {weights.shape[1]} columns")
    if not np.isfinite(weights).all() or np.abs(weights).max() > 60000:
        raise ValueError("weights are not finite, or too large for a scale of f16")


def _nearest(values: Floats, clip: bool) -> tuple[Bytes, Halves, Halves]:
    """Codes [n, group] uint8, scale and minimum [n] f16 of the best grid of each row."""
    low, high = values.min(axis=1), values.max(axis=1)
    best = np.full(len(values), np.inf, np.float32)
    codes = np.zeros(values.shape, np.uint8)
    scale, minimum = np.zeros(len(values), np.float16), np.zeros(len(values), np.float16)
    for shrink in SHRINKS if clip else SHRINKS[:1]:
        margin = (high - low) * np.float32((1 - shrink) / 2)
        m = (low + margin).astype(np.float16)
        s = ((high - low - 2 * margin) / _LEVELS).astype(np.float16)
        steps = np.where(s == 0, np.float16(1), s).astype(np.float32)[:, None]
        start = m.astype(np.float32)[:, None]
        q = np.clip(np.rint((values - start) / steps), 0, _LEVELS)
        error = ((q * steps + start - values) ** 2).sum(axis=1)
        better = error < best
        best[better], codes[better] = error[better], q[better].astype(np.uint8)
        scale[better], minimum[better] = s[better], m[better]
    return codes, scale, minimum

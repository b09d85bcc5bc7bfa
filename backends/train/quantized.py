"""4-bit weights as the packed file keeps them, with straight-through gradients."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from backends.pack.tiles import Affine4, Affine8, Sixteen, Tensor, Vector

GROUP = 64
"""Columns that share a scale: nine groups in a row of the demo model's width."""
_SIXTEEN_BITS = re.compile(r"feature_fc|fc")


def is_vector(name: str) -> bool:
    """Norms and biases, which are stored as f32."""
    return name.endswith(("norm", "bias"))


def is_quantized(name: str) -> bool:
    """Matrices stored in 4 bits; the projection of raw features keeps 16."""
    return not is_vector(name) and not _SIXTEEN_BITS.fullmatch(name)


def affine4(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes q [rows, groups, GROUP] and s, m [rows, groups, 1] with w ≈ s·q + m.

    s and m run from a group's least weight to its greatest and are rounded to f16, as stored.
    """
    grouped = w.unflatten(-1, (-1, GROUP))
    least, greatest = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    s = ((greatest - least) / 15).half().float()
    m = least.half().float()
    q = torch.where(s > 0, (grouped - m) / s, 0.0).round().clamp(0, 15)
    return q, s, m


def fake_quantize(w: torch.Tensor, share: torch.Tensor | float = 1.0) -> torch.Tensor:
    """The weights that a 4-bit file would hold; the gradient passes as if they were w.

    With `share` 0 they are w, with 1 those of the file.
    """
    with torch.no_grad():
        q, s, m = affine4(w)
        rounding = ((q * s + m).flatten(-2) - w) * share
    return w + rounding


def prepared(
    parameters: Mapping[str, torch.Tensor], dtype: torch.dtype, share: torch.Tensor | float = 1.0
) -> dict[str, torch.Tensor]:
    """Parameters as a forward pass takes them: matrices rounded to 4 bits, all as `dtype`."""
    return {
        name: (fake_quantize(w, share) if is_quantized(name) else w).to(dtype)
        for name, w in parameters.items()
    }


def to_tensor(name: str, w: torch.Tensor) -> Tensor:
    """The tensor of the packed file."""
    values = w.detach().float().cpu()
    if is_vector(name):
        return Vector(values.numpy())
    if not is_quantized(name):
        return Sixteen(values.half().view(torch.uint16).numpy(), "f16")
    q, s, m = affine4(values)
    return Affine4(
        q.flatten(-2).to(torch.uint8).numpy(),
        s.squeeze(-1).half().numpy(),
        m.squeeze(-1).half().numpy(),
    )


def affine8(w: torch.Tensor) -> Affine8:
    """The matrix in 8 bits, GROUP columns to a scale."""
    grouped = w.detach().float().cpu().unflatten(-1, (-1, GROUP))
    s = (grouped.abs().amax(-1, keepdim=True) / 127).half().float()
    q = torch.where(s > 0, grouped / s, 0.0).round().clamp(-127, 127) + 128
    return Affine8(q.flatten(-2).to(torch.uint8).numpy(), s.squeeze(-1).half().numpy())

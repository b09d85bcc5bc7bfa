"""Muon for the matrices of a network's body, Adam for the rest, all in place.

Written out so that a step can be part of a CUDA graph with a learning rate that changes. Muon:
Jordan et al. 2024, momentum orthogonalized by a Newton-Schulz iteration; an update is scaled to
the root mean square of 0.2 that Adam's has (Liu et al. 2025, "Muon is scalable").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from backends.train.quantized import is_vector

_MOMENTUM = 0.95
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_ADAM = (0.9, 0.98)
_TINY = 1e-8
_MUON_SCALE = 0.2
_DECAY = 0.01
_VOCABULARY = ("embed", "head")


@dataclass(frozen=True)
class Rates:
    """Learning rates: the body's matrices (Muon), vocabulary and embedding, vectors (Adam)."""

    body: float
    vocabulary: float
    vectors: float


class Optimizer:
    """`step` changes the parameters by their gradients, `share` times their rate."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], rates: Rates) -> None:
        some = next(iter(parameters.values()))
        self.share = torch.zeros((), device=some.device)
        self._count = torch.zeros((), device=some.device)
        self._body = {
            name: (w, torch.zeros_like(w))
            for name, w in parameters.items()
            if not is_vector(name) and name not in _VOCABULARY
        }
        self._rest = {
            name: (w, torch.zeros_like(w), torch.zeros_like(w))
            for name, w in parameters.items()
            if name not in self._body
        }
        self._rates = rates

    def step(self) -> None:
        """One update; gradients are dropped."""
        with torch.no_grad():
            self._count.add_(1)
            for w, momentum in self._body.values():
                momentum.lerp_(w.grad, 1 - _MOMENTUM)
                direction = orthogonalized(w.grad.lerp(momentum, _MOMENTUM))
                rate = self.share * self._rates.body
                w.mul_(1 - rate * _DECAY)
                w.sub_(direction * (rate * _MUON_SCALE * math.sqrt(max(w.shape))))
                w.grad = None
            first, second = _ADAM
            for name, (w, mean, square) in self._rest.items():
                mean.lerp_(w.grad, 1 - first)
                square.mul_(second).addcmul_(w.grad, w.grad, value=1 - second)
                rates = self._rates
                rate = rates.vocabulary if name in _VOCABULARY else rates.vectors
                scale = (square / (1 - second**self._count)).sqrt_().add_(_TINY)
                w.sub_(mean / scale * (self.share * rate / (1 - first**self._count)))
                w.grad = None


def orthogonalized(gradient: torch.Tensor) -> torch.Tensor:
    """A matrix with about the gradient's singular vectors and singular values near 1."""
    x = gradient.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    a, b, c = _NEWTON_SCHULZ
    for _ in range(_ITERATIONS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x.T if tall else x).to(gradient.dtype)

"""Orthonormal Hadamard transforms of any width m·2^k for which a small Paley matrix is known.

The definition that the engines share stands in docs/quantize.md.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_Signs = npt.NDArray[np.int8]


def split_width(width: int) -> tuple[int, int]:
    """(m, 2^k) with width = m·2^k: m is 1, or four times the odd part of the width.

    Raises ValueError where there is no Hadamard matrix of order m that this module constructs.
    """
    power = width & -width if width > 0 else 1
    odd = width // power
    if width > 0 and odd == 1:
        return 1, width
    order = 4 * odd
    if width <= 0 or power < 4 or _paley(order) is None:
        raise ValueError(
            f"there is no Hadamard transform of width {width}: the width must be a power of two, "
            "or four times an odd number times a power of two with a known Paley matrix"
        )
    return order, power // 4


@cache
def hadamard_matrix(width: int) -> Floats:
    """The orthonormal matrix H = (H_m ⊗ H_2^k) / √width, [width, width].

    H_2^k[i, j] = (−1)^(number of ones in i and j) (Sylvester); H_m by `small_matrix`. Raises
    ValueError where the width has no transform.
    """
    order, power = split_width(width)
    whole = np.kron(small_matrix(order), _sylvester(power)).astype(np.float64)
    scaled: Floats = (whole / np.sqrt(width)).astype(np.float32)
    return scaled


def transform(x: Floats) -> Floats:
    """H·x along the last axis: [..., width] f32. Raises ValueError where there is no transform."""
    width = x.shape[-1]
    order, power = split_width(width)
    y = x.reshape(-1, order, power).astype(np.float32)
    step = 1
    while step < power:  # Sylvester's matrix as additions, k stages
        halves = y.reshape(-1, order, power // (2 * step), 2, step)
        first, second = halves[..., 0, :], halves[..., 1, :]
        y = np.stack([first + second, first - second], axis=-2).reshape(-1, order, power)
        step *= 2
    if order > 1:
        y = np.einsum("ab,rbc->rac", small_matrix(order).astype(np.float32), y)
    scaled = y * np.float32(1 / np.sqrt(width))
    return np.ascontiguousarray(scaled.reshape(x.shape), np.float32)


def small_matrix(order: int) -> _Signs:
    """The Hadamard matrix H_m of signs: 1 for m = 1, else Paley's first or second construction.

    Raises ValueError where neither gives one (Paley 1933, J. Math. Phys. 12).
    """
    found = np.ones((1, 1), np.int8) if order == 1 else _paley(order)
    if found is None:
        raise ValueError(f"there is no Paley matrix of order {order} over a prime field")
    return found


@cache
def _paley(order: int) -> _Signs | None:
    """First construction where order − 1 is a prime ≡ 3 (mod 4), else the second where
    order / 2 − 1 is a prime ≡ 1 (mod 4), else None."""
    one = np.int8(1)
    first, second = order - 1, order // 2 - 1
    if order % 4 == 0 and _is_prime(first) and first % 4 == 3:
        core = np.zeros((order, order), np.int8)
        core[0, 1:], core[1:, 0] = one, -one
        core[1:, 1:] = _residues(first)
        return core + np.eye(order, dtype=np.int8)
    if order % 4 == 0 and _is_prime(second) and second % 4 == 1:
        core = np.zeros((order // 2, order // 2), np.int8)
        core[0, 1:] = core[1:, 0] = one
        core[1:, 1:] = _residues(second)
        diagonal = np.eye(order // 2, dtype=np.int8)
        plus = np.array([[1, 1], [1, -1]], np.int8)
        minus = np.array([[1, -1], [-1, -1]], np.int8)
        doubled: _Signs = np.kron(core, plus) + np.kron(diagonal, minus)
        return doubled
    return None


def _residues(prime: int) -> _Signs:
    """Jacobsthal's matrix: entry [i, j] is 1 where i − j is a square modulo the prime, −1 where it
    is none, 0 on the diagonal."""
    squares = {i * i % prime for i in range(1, prime)}
    values = np.array([0 if i == 0 else 1 if i in squares else -1 for i in range(prime)], np.int8)
    index = np.arange(prime)
    matrix: _Signs = values[(index[:, None] - index[None, :]) % prime]
    return matrix


def _sylvester(power: int) -> _Signs:
    matrix = np.ones((1, 1), np.int8)
    while len(matrix) < power:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]]).astype(np.int8)
    return matrix


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))

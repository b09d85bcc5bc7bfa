"""The Hadamard transform against its definition in docs/quantize.md."""

from __future__ import annotations

import numpy as np
import pytest

from backends.pack.hadamard import hadamard_matrix, small_matrix, split_width, transform

WIDTHS = (1, 2, 4, 12, 16, 20, 28, 36, 64, 76, 96, 576, 1536)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_matrix_is_orthonormal_and_of_one_magnitude(width: int) -> None:
    matrix = hadamard_matrix(width).astype(np.float64)
    assert np.abs(matrix @ matrix.T - np.eye(width)).max() < 1e-6
    assert np.allclose(np.abs(matrix), 1 / np.sqrt(width))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_transform_is_the_matrix_from_the_left(width: int) -> None:
    x = np.random.default_rng(width).standard_normal((3, 2, width)).astype(np.float32)
    expected = np.einsum("ij,abj->abi", hadamard_matrix(width).astype(np.float64), x)
    assert np.abs(transform(x) - expected).max() < 1e-5


def test_the_widths_of_the_demo_model_split_as_documented() -> None:
    assert split_width(576) == (36, 16)
    assert split_width(1536) == (12, 128)
    assert split_width(64) == (1, 64)


def test_order_12_follows_paleys_first_construction() -> None:
    """Squares modulo 11 are 1, 3, 4, 5, 9; written out by hand for the first rows."""
    matrix = small_matrix(12)
    assert matrix[0].tolist() == [1] * 12
    assert matrix[:, 0].tolist() == [1] + [-1] * 11
    # Row 1 holds chi(0 - j): chi(-1) = -1 since 10 is no square, chi(-2) = chi(9) = 1, ...
    assert matrix[1].tolist() == [-1, 1, -1, 1, -1, -1, -1, 1, 1, 1, -1, 1]
    assert (matrix != matrix.T).any()


def test_order_36_follows_paleys_second_construction() -> None:
    matrix = small_matrix(36)
    assert (matrix == matrix.T).all()
    assert matrix[:2, :4].tolist() == [[1, -1, 1, 1], [-1, -1, 1, -1]]
    # C[1, 2] = chi(-1) = 1 modulo 17.
    assert matrix[2:4, 2:6].tolist() == [[1, -1, 1, 1], [-1, -1, 1, -1]]


@pytest.mark.parametrize("width", [0, -4, 3, 6, 18, 11008])
def test_other_widths_are_refused(width: int) -> None:
    with pytest.raises(ValueError, match=f"no Hadamard transform of width {width}"):
        split_width(width)

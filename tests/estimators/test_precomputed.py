"""Kernel matrices given by the user: made symmetric in one pass, and stored once."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from seqmed import SeqMED
from seqmed.estimators import validation
from seqmed.kernels import Precomputed
from seqmed.numeric import factors

GENERATOR = np.random.default_rng(0)


def nearly_symmetric(n, difference):
    """Return a kernel matrix (n, n) that differs from its transpose by up to the given amount."""
    rows = GENERATOR.normal(size=(n, 3))
    return rows @ rows.T + difference * np.triu(GENERATOR.uniform(-1.0, 1.0, size=(n, n)), 1)


@pytest.mark.parametrize("tile", [3, 4, 256])
@pytest.mark.parametrize("n", [0, 1, 3, 7, 12])
@pytest.mark.parametrize("difference", [0.0, 1e-9])
def test_the_upper_triangle_is_used(n, difference, tile, monkeypatch):
    monkeypatch.setattr(factors, "TILE", tile)
    matrix = nearly_symmetric(n, difference)
    before = matrix.copy()
    found, largest = factors.made_symmetric(matrix)
    assert np.array_equal(found, np.triu(matrix) + np.triu(matrix, 1).T)
    assert largest == np.abs(matrix - matrix.T).max(initial=0.0)
    assert np.array_equal(matrix, before)
    assert not np.shares_memory(found, matrix)  # the model keeps it, whatever the caller does


@pytest.mark.parametrize("place", [(0, 11), (5, 1), (11, 10)])
def test_asymmetric_matrices_are_refused_wherever_they_differ(place, monkeypatch):
    monkeypatch.setattr(factors, "TILE", 4)
    matrix = nearly_symmetric(12, 0.0)
    matrix[place] += 0.5
    with pytest.raises(ValueError, match=r"transpose by 0\.5, expected a symmetric"):
        SeqMED("precomputed").fit(matrix, np.arange(12) % 2)


def test_a_fit_holds_one_copy_of_the_matrix():
    """A difference with the transpose, or a second copy, would take as much memory again."""
    n = 1000
    matrix = nearly_symmetric(n, 0.0)
    tracemalloc.start()
    try:
        square = validation.square_gram(matrix)
        validation.check_magnitude(square)
        places = np.arange(n)[:, None]
        assert Precomputed(square)(places, places) is square
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * matrix.nbytes


def test_other_rows_are_looked_up():
    matrix = nearly_symmetric(5, 0.0)
    kernel = Precomputed(matrix)
    some, others = np.array([[3], [1]]), np.array([[0], [1], [4]])
    assert np.array_equal(kernel(some, others), matrix[[3, 1]][:, [0, 1, 4]])
    reverse = np.arange(5)[::-1, None]
    assert np.array_equal(kernel(reverse, reverse), matrix[::-1, ::-1])

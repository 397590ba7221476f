"""Products with triangular matrices, and factors, against their definitions."""

import numpy as np
import pytest

from seqmed.numeric import factors
from seqmed.numeric.factors import (
    is_upper,
    lower_times,
    semidefinite_factor,
    squared_upper_times,
    times_upper,
    triangular_inverse,
    upper_times,
)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


FORMS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "strided": lambda values: np.repeat(values, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("upper", [True, False], ids=["upper", "full"])
@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_products_are_the_plain_ones(form, upper, precision):
    matrix = random(7, 7).astype(precision)
    matrix = np.triu(matrix) if upper else matrix
    assert is_upper(matrix) == upper
    values = FORMS[form](random(5, 7, seed=1).astype(precision))
    before = values.copy()
    tolerance = {"rtol": 0, "atol": 100 * np.finfo(precision).eps}
    for known in (None, upper):
        found = times_upper(values, matrix, known)
        assert found.dtype == precision
        np.testing.assert_allclose(found, values @ matrix, **tolerance)
    np.testing.assert_array_equal(values, before)
    if precision is np.float64:
        np.testing.assert_allclose(
            upper_times(matrix, values.T, upper), matrix @ values.T, **tolerance
        )
        np.testing.assert_allclose(
            squared_upper_times(matrix, values[0], upper),
            matrix @ (matrix.T @ values[0]),
            **tolerance,
        )


@pytest.mark.parametrize("form", FORMS)
def test_products_with_a_lower_matrix(form):
    lower, values = np.tril(random(7, 7)), FORMS[form](random(7, 5, seed=1))
    for matrix in (lower, np.asfortranarray(lower)):
        np.testing.assert_allclose(lower_times(matrix, values), lower @ values, rtol=0, atol=1e-12)
    assert lower_times(lower, np.zeros((7, 0))).shape == (7, 0)


def test_single_precision_meets_double():
    matrix, values = np.triu(random(7, 7)), random(5, 7, seed=1).astype(np.float32)
    found = times_upper(values, matrix)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, values.astype(np.float64) @ matrix, rtol=0, atol=1e-13)


def test_only_square_matrices_are_triangular():
    assert not is_upper(np.zeros((4, 0)))
    assert not is_upper(np.triu(random(5, 3)))
    np.testing.assert_allclose(times_upper(np.eye(5), np.triu(random(5, 3))), np.triu(random(5, 3)))


def test_products_with_empty_matrices():
    nothing = np.zeros((0, 0))
    assert times_upper(np.zeros((3, 0)), nothing).shape == (3, 0)
    assert times_upper(np.zeros((0, 4)), np.eye(4)).shape == (0, 4)
    assert times_upper(np.ones((3, 4)), np.zeros((4, 0))).shape == (3, 0)
    assert upper_times(np.eye(4), np.zeros((4, 0)), True).shape == (4, 0)
    assert squared_upper_times(nothing, np.zeros(0), True).shape == (0,)


@pytest.mark.parametrize("n", [1, 2, 6, 7, 13])
def test_an_inverse_by_halves(n, monkeypatch):
    monkeypatch.setattr(factors, "SMALL_TRIANGLE", 2)
    lower = random(n, n) + n * np.eye(n)  # entries above the diagonal are ignored
    inverse = triangular_inverse(lower)
    assert is_upper(inverse.T)
    np.testing.assert_allclose(inverse @ np.tril(lower), np.eye(n), rtol=0, atol=1e-13)


def test_a_factor_of_full_rank_is_upper_triangular():
    tall = random(20, 30)
    matrix = tall @ tall.T
    before = matrix.copy()
    factor = semidefinite_factor(matrix)
    assert factor.shape == (20, 20)
    assert factor.flags.c_contiguous
    assert is_upper(factor)
    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("rank", [0, 1, 4, 19])
def test_a_factor_has_as_many_columns_as_the_rank(rank):
    tall = random(20, rank, seed=13)
    factor = semidefinite_factor(tall @ tall.T)
    assert factor.shape == (20, rank)
    np.testing.assert_allclose(factor @ factor.T, tall @ tall.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_a_laplacian_has_rank_n_minus_one(seed):
    """Its last pivot is rounding, and may well be positive."""
    weights = np.abs(random(20, 20, seed=seed))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    scale = 1.0 / np.sqrt(weights.sum(axis=1))
    assert semidefinite_factor(np.eye(20) - scale[:, None] * weights * scale).shape == (20, 19)


def test_a_factor_of_an_empty_matrix():
    assert semidefinite_factor(np.zeros((0, 0))).shape == (0, 0)

"""Triangular matrices, dense: products with them at half the price, inverses, factors."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import bandwidth
from scipy.linalg.blas import dtrmm, dtrmv, strmm
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtri

from seqmed.arrays import Array
from seqmed.linalg import factorisation
from seqmed.threads import product

# Rows up to which a triangular matrix is inverted by LAPACK.
SMALL_TRIANGLE = 64
# Share of the largest diagonal entry that a pivot of a matrix of full rank has: without pivoting,
# rounding of one that is not may leave much more than a rounding.
CLEARLY = 1e-8


def is_upper(matrix: Array) -> bool:
    """Whether a matrix is square and upper triangular."""
    return matrix.shape[0] == matrix.shape[1] and bandwidth(matrix)[0] == 0


def times_upper(values: Any, matrix: Any, upper: bool | None = None) -> Any:
    """Return ``values @ matrix``, (n, m), cheaper if the matrix is upper; in single, if both are.

    ``upper`` tells whether it is, should that be known.
    """
    if upper is None:
        upper = is_upper(matrix)
    if not upper or not values.size:
        return product(values, matrix)
    multiply = strmm if values.dtype == matrix.dtype == np.float32 else dtrmm
    if values.flags.f_contiguous:
        return multiply(1.0, matrix.T, values, lower=1, side=1, trans_a=1)
    return multiply(1.0, matrix.T, np.ascontiguousarray(values).T, lower=1).T


def upper_times(matrix: Array, values: Array, upper: bool) -> Array:
    """Return ``matrix @ values``, (m, r), cheaper if the matrix is ``upper``."""
    if not upper or not values.size:
        return matrix @ values
    return dtrmm(1.0, matrix.T, values.T, lower=1, side=1).T


def lower_times(matrix: Array, values: Array) -> Array:
    """Return ``matrix @ values``, (m, r), for a lower triangular matrix."""
    if not values.size:
        return matrix @ values
    return dtrmm(1.0, matrix.T, values.T, side=1).T


def squared_upper_times(matrix: Array, vector: Array, upper: bool) -> Array:
    """Return ``M M' v``, (m,), cheaper if the matrix M is ``upper``."""
    if not upper or not vector.size:
        return matrix @ (matrix.T @ vector)
    return dtrmv(matrix.T, dtrmv(matrix.T, vector, lower=1), lower=1, trans=1)


def triangular_inverse(lower: Array) -> Array:
    """Return the inverse of a lower triangular matrix, the entries above its diagonal ignored.

    By halves, so that most of it is products: LAPACK's own takes twice as long.
    """
    n = lower.shape[0]
    if n <= SMALL_TRIANGLE:
        return np.tril(dtrtri(lower, lower=1)[0])
    half = n // 2
    first, last = triangular_inverse(lower[:half, :half]), triangular_inverse(lower[half:, half:])
    whole = np.zeros((n, n))
    whole[:half, :half], whole[half:, half:] = first, last
    whole[half:, :half] = -(last @ (lower[half:, :half] @ first))
    return whole


def semidefinite_factor(matrix: Array) -> Array:
    """Return R, (n, rank), with ``R R' = matrix`` for a symmetric positive semi-definite matrix.

    Upper triangular, if the rank is clearly n. Else by Cholesky with diagonal pivoting, which takes
    longer and stops by itself at the numerical rank.
    """
    n, largest = matrix.shape[0], np.diagonal(matrix).max(initial=0.0)
    if n > factorisation.LARGEST:
        columns, order = factorisation.pivoted_cholesky(matrix)
        factor = np.empty_like(columns)
        factor[order] = columns
        return factor
    # the factor of the matrix in reverse, lower, is an upper one of the matrix, in reverse
    lower, info = dpotrf(np.ascontiguousarray(matrix[::-1, ::-1]).T, lower=1, overwrite_a=1)
    if n and not info and np.square(np.diagonal(lower)).min() > CLEARLY * largest:
        return np.ascontiguousarray(lower[::-1, ::-1])
    upper, pivots, rank, _ = dpstrf(matrix.T)  # the transpose, by columns as LAPACK has them
    factor = np.zeros((n, rank))
    factor[pivots - 1] = np.tril(upper.T)[:, :rank]
    return factor

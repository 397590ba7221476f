"""Dense triangular matrices: products at half the cost, inverses, factors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import bandwidth
from scipy.linalg.blas import dtrmm, dtrmv, strmm
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtri

from seqmed.arrays import Array, Float
from seqmed.linalg import factorisation
from seqmed.threads import product

# Rows up to which a triangular matrix is inverted by LAPACK.
SMALL_TRIANGLE = 64
# Smallest squared pivot, as a share of the largest diagonal entry, of a matrix of full rank.
# Without pivoting, the rounding errors of a singular matrix may be much larger than eps.
SMALLEST_PIVOT = 1e-8


def is_upper(matrix: NDArray[np.floating]) -> bool:
    """Whether a matrix is square and upper triangular."""
    return matrix.shape[0] == matrix.shape[1] and bool(bandwidth(matrix)[0] == 0)


def times_upper(
    values: NDArray[Float], matrix: NDArray[Float], upper: bool | None = None
) -> NDArray[Float]:
    """Return ``values @ matrix``, (n, m), cheaper if the matrix is upper; in single, if both are.

    ``upper`` tells whether it is; None to test it.
    """
    if upper is None:
        upper = is_upper(matrix)
    if not upper or not values.size:
        return product(values, matrix)
    multiply = strmm if values.dtype == matrix.dtype == np.float32 else dtrmm
    if values.flags.f_contiguous:
        return np.asarray(multiply(1.0, matrix.T, values, lower=1, side=1, trans_a=1))
    return np.asarray(multiply(1.0, matrix.T, np.ascontiguousarray(values).T, lower=1).T)


def upper_times(matrix: Array, values: Array, upper: bool) -> Array:
    """Return ``matrix @ values``, (m, r), cheaper if the matrix is ``upper``."""
    if not upper or not values.size:
        return matrix @ values
    return np.asarray(dtrmm(1.0, matrix.T, values.T, lower=1, side=1).T)


def lower_times(matrix: Array, values: Array) -> Array:
    """Return ``matrix @ values``, (m, r), for a lower triangular matrix."""
    if not values.size:
        return matrix @ values
    return np.asarray(dtrmm(1.0, matrix.T, values.T, side=1).T)


def squared_upper_times(matrix: Array, vector: Array, upper: bool) -> Array:
    """Return ``M M' v``, (m,), cheaper if the matrix M is ``upper``."""
    if not upper or not vector.size:
        return matrix @ (matrix.T @ vector)
    return np.asarray(dtrmv(matrix.T, dtrmv(matrix.T, vector, lower=1), lower=1, trans=1))


def triangular_inverse(lower: Array) -> Array:
    """Return the inverse of a lower triangular matrix, the entries above its diagonal ignored.

    By halves, so that most of the work is matrix products: LAPACK's dtrtri takes twice as long.
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

    R is upper triangular if the matrix has full rank. Otherwise it is by Cholesky with diagonal
    pivoting, which takes longer and stops at the numerical rank.
    """
    n, largest = matrix.shape[0], np.diagonal(matrix).max(initial=0.0)
    if n > factorisation.LARGEST:
        columns, order = factorisation.pivoted_cholesky(matrix)
        factor = np.empty_like(columns)
        factor[order] = columns
        return factor
    # the factor of the matrix in reverse, lower, is an upper one of the matrix, in reverse
    lower, info = dpotrf(np.ascontiguousarray(matrix[::-1, ::-1]).T, lower=1, overwrite_a=1)
    if n and not info and np.square(np.diagonal(lower)).min() > SMALLEST_PIVOT * largest:
        return np.ascontiguousarray(lower[::-1, ::-1])
    upper, pivots, rank, _ = dpstrf(matrix.T)  # the transpose, by columns as LAPACK has them
    factor = np.zeros((n, rank))
    factor[pivots - 1] = np.tril(upper.T)[:, :rank]
    return factor

"""Linear algebra: Cholesky and semidefinite factors, triangular products."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import bandwidth
from scipy.linalg.blas import dtrmm, dtrmv, strmm
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtri

from seqmed.numeric.arrays import Array, Float
from seqmed.numeric.execution import one_thread, product

# Largest number of rows for which a matrix is factored, or multiplied by its transpose, in several
# threads. OpenBLAS with several threads crashes the process in dsyrk of 16,000 rows.
LARGEST = 8192


def threads_to_factor(n: int) -> AbstractContextManager[None]:
    """Use a single thread for matrices of more than `LARGEST` rows."""
    return one_thread(n > LARGEST)


def symmetric_product(rows: NDArray[Float]) -> NDArray[Float]:
    """Return ``rows @ rows.T``, (n, n), exactly symmetric."""
    with threads_to_factor(rows.shape[0]):
        return np.asarray(rows @ rows.T)


def cholesky(matrix: Array) -> Array:
    """Return the lower Cholesky factor (n, n); raise LinAlgError if not positive definite."""
    with threads_to_factor(matrix.shape[0]):
        return np.asarray(linalg.cholesky(matrix, lower=True))


# Largest number of rows for which LAPACK inverts a triangular matrix.
SMALL_TRIANGLE = 64
# Smallest squared pivot of a matrix of full rank, as a fraction of the largest diagonal entry.
SMALLEST_PIVOT = 1e-8


def is_upper(matrix: NDArray[np.floating]) -> bool:
    """Whether a matrix is square and upper triangular."""
    return matrix.shape[0] == matrix.shape[1] and bool(bandwidth(matrix)[0] == 0)


def times_upper(
    values: NDArray[Float], matrix: NDArray[Float], upper: bool | None = None
) -> NDArray[Float]:
    """Return ``values @ matrix``, (n, m), at half the cost if the matrix is ``upper`` triangular.

    If both arguments are in single precision, so is the result.
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
    """Return ``matrix @ values``, (m, r), at half the cost if the matrix is ``upper``."""
    if not upper or not values.size:
        return matrix @ values
    return np.asarray(dtrmm(1.0, matrix.T, values.T, lower=1, side=1).T)


def lower_times(matrix: Array, values: Array) -> Array:
    """Return ``matrix @ values``, (m, r), for a lower triangular matrix."""
    if not values.size:
        return matrix @ values
    return np.asarray(dtrmm(1.0, matrix.T, values.T, side=1).T)


def squared_upper_times(matrix: Array, vector: Array, upper: bool) -> Array:
    """Return ``M M' v``, (m,), at half the cost if the matrix M is ``upper``."""
    if not upper or not vector.size:
        return matrix @ (matrix.T @ vector)
    return np.asarray(dtrmv(matrix.T, dtrmv(matrix.T, vector, lower=1), lower=1, trans=1))


def triangular_inverse(lower: Array) -> Array:
    """Return the inverse of a lower triangular matrix; entries above the diagonal are ignored.

    Most of the work is matrix products. LAPACK's dtrtri takes twice as long.
    """
    n = lower.shape[0]
    if n <= SMALL_TRIANGLE:
        return np.tril(dtrtri(lower, lower=1)[0]) if n else np.zeros((0, 0))
    half = n // 2
    first, last = triangular_inverse(lower[:half, :half]), triangular_inverse(lower[half:, half:])
    whole = np.zeros((n, n))
    whole[:half, :half], whole[half:, half:] = first, last
    whole[half:, :half] = -(last @ (lower[half:, :half] @ first))
    return whole


def semidefinite_factor(matrix: Array) -> Array:
    """Return R, (n, rank), with ``R R' = matrix`` for a symmetric positive semi-definite matrix.

    R is upper triangular if the matrix has full rank; otherwise diagonal pivoting takes longer.
    """
    n, largest = matrix.shape[0], np.diagonal(matrix).max(initial=0.0)
    with threads_to_factor(n):
        # reversing rows and columns turns the lower factor into an upper factor
        lower, info = dpotrf(np.ascontiguousarray(matrix[::-1, ::-1]).T, lower=1, overwrite_a=1)
        if n and not info and np.square(np.diagonal(lower)).min() > SMALLEST_PIVOT * largest:
            return np.ascontiguousarray(lower[::-1, ::-1])
        upper, pivots, rank, _ = dpstrf(matrix.T)  # transposed, because LAPACK stores columns
    factor = np.zeros((n, rank))
    factor[pivots - 1] = np.tril(upper.T)[:, :rank]
    return factor

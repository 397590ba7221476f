"""Cholesky factors and symmetric products of any size, computed by BLAS calls of bounded size.

OpenBLAS with several threads crashes the process in `dsyrk` of 16,000 rows or more, and so in
`dpotrf`, `dpstrf` and numpy's ``A @ A.T``. For more than `LARGEST` rows the functions of this
module work block by block. For fewer rows each function is a single call.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg.blas import dtrsm

from seqmed.arrays import Array, Float, Indices

# Largest number of rows for which a matrix is factored, or multiplied by its transpose, in one
# call.
LARGEST = 8192
# Number of rows of a block for larger matrices, and number of columns of a block with pivoting.
BLOCK, PANEL = 2048, 128


def symmetric_product(rows: NDArray[Float]) -> NDArray[Float]:
    """Return ``rows @ rows.T``, (n, n), exactly symmetric."""
    n = rows.shape[0]
    if n <= LARGEST:
        return np.asarray(rows @ rows.T)
    values: NDArray[Float] = np.empty((n, n), dtype=rows.dtype)
    for part in blocks(0, n):
        own = rows[part]
        values[part, part] = own @ own.T
        values[part, : part.start] = own @ rows[: part.start].T
        values[: part.start, part] = values[part, : part.start].T
    return values


def cholesky(matrix: Array) -> Array:
    """Return the lower Cholesky factor (n, n); raise LinAlgError if not positive definite."""
    n = matrix.shape[0]
    if n <= LARGEST:
        return np.asarray(linalg.cholesky(matrix, lower=True))
    lower = np.tril(matrix)
    for part in blocks(0, n):
        lower[part, part] = linalg.cholesky(lower[part, part], lower=True)
        for rows in blocks(part.stop, n):
            lower[rows, part] = divided(lower[rows, part], lower[part, part])
        subtract_squares(lower, lower[:, part], part.stop)
    return lower


def divided(rows: Array, lower: Array) -> Array:
    """Return ``A L'^{-1}``, (k, n), for a lower triangular matrix L (n, n)."""
    return np.asarray(dtrsm(1.0, lower, rows, side=1, lower=1, trans_a=1))


def subtract_squares(matrix: Array, columns: Array, start: int) -> None:
    """Subtract ``C C'``, C (n, k), from rows and columns ``start:`` of a matrix, in place.

    Only entries on and below the diagonal are valid afterwards.
    """
    for rows in blocks(start, matrix.shape[0]):
        matrix[rows, start : rows.stop] -= columns[rows] @ columns[start : rows.stop].T


def pivoted_cholesky(matrix: Array, cutoff: float | None = None) -> tuple[Array, Indices]:
    """Return L, (n, rank), and an order with ``L L' = matrix`` in that order of rows and columns.

    The matrix is positive semi-definite. The next pivot is the largest remaining variance.
    Variances up to ``cutoff`` count as 0; the default is n rounding errors of the largest variance.
    """
    n = matrix.shape[0]
    work, lower, order = matrix.copy(), np.zeros((n, n)), np.arange(n)
    left = np.diagonal(matrix).copy()
    if cutoff is None:
        cutoff = n * float(np.finfo(np.float64).eps) * float(left.max(initial=0.0))
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        for column in range(start, stop):
            pivot = column + int(np.argmax(left[column:]))
            if not left[pivot] > cutoff:
                return lower[:, :column], order
            for array in (order, left, lower, work, work.T):
                array[[column, pivot]] = array[[pivot, column]]
            values = (
                work[column:, column] - lower[column:, start:column] @ lower[column, start:column]
            )
            lower[column, column] = np.sqrt(left[column])
            lower[column + 1 :, column] = values[1:] / lower[column, column]
            left[column + 1 :] -= lower[column + 1 :, column] ** 2
        done = lower[:, start:stop]
        for rows in blocks(stop, n):
            work[rows, stop:] -= done[rows] @ done[stop:].T
    return lower, order


def solve_lower(lower: Array, values: Array) -> Array:
    """Return ``L^{-1} V``, (n, r), for a lower triangular matrix L (n, n)."""
    n = lower.shape[0]
    if n <= LARGEST:
        return np.asarray(linalg.solve_triangular(lower, values, lower=True))
    half = n // 2
    first = solve_lower(lower[:half, :half], values[:half])
    rest = values[half:] - lower[half:, :half] @ first
    return np.concatenate([first, solve_lower(lower[half:, half:], rest)])


def blocks(start: int, stop: int) -> Iterator[slice]:
    """Yield slices of up to `BLOCK` rows."""
    for first in range(start, stop, BLOCK):
        yield slice(first, min(first + BLOCK, stop))

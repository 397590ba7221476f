"""Kernel values in bounded memory: sums over many points, and rows of large matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Points, row_norms_squared, take_rows
from seqmed.kernels.protocol import Expansion, Kernel

# Number of kernel values held at once while scores are computed: 16 MB, which are reused.
BLOCK_VALUES = 2**21


def evaluate(kernel: Kernel, parts: tuple[Expansion, ...], points: Points) -> Array:
    """Return the sum of expansions at every row, (n, machines), in bounded memory.

    A kernel may have its own method ``sums``, which needs no matrix.
    """
    own_sums = getattr(kernel, "sums", None)
    scores = np.zeros((points.shape[0], parts[0].coefficients.shape[1]))
    for part in parts:
        if not part.points.shape[0]:
            continue
        if own_sums is not None:
            scores += own_sums(points, part)
        else:
            scores += sums_by_blocks(kernel, points, part)
    return scores


def sums_by_blocks(kernel: Kernel, points: Points, expansion: Expansion) -> Array:
    """Return the values of an expansion at every row, (n, machines), block by block."""
    sums = np.empty((points.shape[0], expansion.coefficients.shape[1]))
    for rows in blocks(points.shape[0], expansion.points.shape[0]):
        sums[rows] = kernel(points[rows], expansion.points) @ expansion.coefficients
    return sums


def blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows whose products with ``width`` columns stay within `BLOCK_VALUES`."""
    size = max(1, BLOCK_VALUES // max(width, 1))
    for start in range(0, n_rows, size):
        yield slice(start, start + size)


@dataclass(frozen=True)
class ComputedGram:
    """The symmetric covariance matrix (n, n) of n points, computed row by row.

    Parameters
    ----------
    kernel : the base kernel.
    points : (n, p).
    features : (n, r) psi of the points, for the covariance ``k - psi . psi``; None if the
        covariance is the kernel k.
    """

    kernel: Kernel
    points: Points
    features: Array | None = None

    def __getitem__(self, rows: Indices) -> Array:
        values = self.kernel(take_rows(self.points, rows), self.points)
        return values if self.features is None else values - self.features[rows] @ self.features.T

    def __matmul__(self, coefficients: Array) -> Array:
        """Return the product with ``coefficients`` (n,); points with coefficient 0 are skipped."""
        support = np.flatnonzero(coefficients)
        expansion = Expansion(take_rows(self.points, support), coefficients[support, None])
        product = evaluate(self.kernel, (expansion,), self.points)[:, 0]
        if self.features is None:
            return product
        return product - self.features @ (self.features.T @ coefficients)

    def diagonal(self) -> Array:
        diagonal = self.kernel.diagonal(self.points)
        return diagonal if self.features is None else diagonal - row_norms_squared(self.features)


def check_overflow(values: NDArray[np.floating]) -> None:
    """Refuse rows on which the kernel overflows."""
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values.reshape(values.shape[0], -1)).all(axis=1))[0])
        raise ValueError(
            f"the kernel overflows on row {row} of X, expected finite values: scale the features "
            "as in the batches the model has learned."
        )

"""Covariance matrices that are not held in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmed.arrays import Array, Indices, Points, row_norms_squared, take_rows
from seqmed.kernels import Expansion, Kernel, evaluate


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

"""Kernels given by the user: a function, or a matrix of values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmed.kernels.interface import Pointwise
from seqmed.numeric.arrays import Array, Points

# Number of rows evaluated at once if only the diagonal is needed.
DIAGONAL_BLOCK = 128


@dataclass(frozen=True, eq=False)
class FromFunction(Pointwise):
    """A function given by the user: it maps rows (n, p) and (m, p) to kernel values (n, m)."""

    function: Callable[[Any, Any], Any]

    def __call__(self, left: Points, right: Points) -> Array:
        expected = (left.shape[0], right.shape[0])
        if 0 in expected:  # many functions do not accept empty input
            return np.zeros(expected)
        values = np.asarray(self.function(left, right), dtype=np.float64)
        if values.shape != expected:
            raise ValueError(
                f"the kernel function returned shape {values.shape}, expected {expected}: correct "
                "the function, which must map (n, p) and (m, p) rows to an (n, m) matrix."
            )
        if not np.isfinite(values).all():
            raise ValueError(
                "the kernel function returned NaN or infinity, expected finite values: correct the "
                "function or scale the features."
            )
        return 0.5 * (values + values.T) if left is right else values

    def diagonal(self, points: Points) -> Array:
        blocks = [
            np.diagonal(self(block, block))
            for start in range(0, points.shape[0], DIAGONAL_BLOCK)
            for block in [points[start : start + DIAGONAL_BLOCK]]
        ]
        return np.concatenate([np.zeros(0), *blocks])


@dataclass(frozen=True, eq=False)
class Precomputed(Pointwise):
    """Kernel values computed by the user.

    Known points are integer indices, (n, 1), into ``gram`` (n, n). A new point is given by its (n,)
    kernel values with the known points; k(x, x) is then unknown.
    """

    gram: Array
    on_vectors = False

    def accepts(self, points: Points) -> bool:
        size = self.gram.shape[0]
        return points.dtype.kind == "i" and bool(((points >= 0) & (points < size)).all())

    def __call__(self, left: Points, right: Points) -> Array:
        columns = right[:, 0]
        if left.dtype.kind == "i":
            places = np.arange(self.gram.shape[0])
            if np.array_equal(left[:, 0], places) and np.array_equal(columns, places):
                return self.gram
            return self.gram[np.ix_(left[:, 0], columns)]
        return np.asarray(left[:, columns])

    def diagonal(self, points: Points) -> Array:
        if points.dtype.kind != "i":
            raise ValueError(
                "kernel='precomputed' got rows of kernel values, which do not contain k(x, x), "
                "expected known points: pass a kernel object or a callable kernel instead."
            )
        return np.asarray(np.diagonal(self.gram)[points[:, 0]].copy())

    def coordinates(self, points: Points) -> None:
        return None

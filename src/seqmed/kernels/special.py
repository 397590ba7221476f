"""Kernels on counts, kernels given as a function, and kernels given as a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import safe_sparse_dot

from seqmed.kernels.on_vectors import Expansion, Kernel, parts
from seqmed.numeric.arrays import Array, Points, row_norms_squared


@dataclass(frozen=True, eq=False)
class TfIdf(Kernel):
    """Cosine of ``log(1 + counts) * idf`` for rows of counts, dense or CSR.

    ``idf`` (p,) is ``log((1 + N) / (1 + df)) + 1`` over the N rows of the first batch. A row
    without any count has kernel value 0 with every row, itself included.
    """

    idf: Array | None = None

    on_vectors = False

    def freeze(self, points: Points, weights: Array) -> Kernel:
        check_counts(points)
        present = points.sign() if sp.issparse(points) else np.sign(points)
        frequency = np.asarray(weights @ present).ravel()
        return replace(self, idf=np.log((1.0 + weights.sum()) / (1.0 + frequency)) + 1.0)

    def coordinates(self, points: Points) -> Points:
        check_counts(points)
        assert self.idf is not None, "call freeze first"
        if sp.issparse(points):
            weighted = sp.csr_array(points.log1p() * self.idf)
        else:
            weighted = np.log1p(points) * self.idf
        lengths = np.sqrt(row_norms_squared(weighted))
        scale = 1.0 / np.where(lengths > 0, lengths, 1.0)
        if sp.issparse(weighted):
            return sp.csr_array(sp.diags_array(scale) @ weighted)
        return weighted * scale[:, None]

    def __call__(self, left: Points, right: Points) -> Array:
        first = self.coordinates(left)
        second = first if left is right else self.coordinates(right)
        return np.asarray(safe_sparse_dot(first, second.T, dense_output=True))

    def sums(self, points: Points, expansion: Expansion) -> Array:
        """Return the values of an expansion at every row, from explicit weights."""
        others = self.coordinates(expansion.points)
        weights = safe_sparse_dot(others.T, expansion.coefficients, dense_output=True)
        return np.asarray(safe_sparse_dot(self.coordinates(points), weights, dense_output=True))

    def diagonal(self, points: Points) -> Array:
        return row_norms_squared(self.coordinates(points))


def check_counts(points: Points) -> None:
    """Refuse negative entries."""
    data = points.data if sp.issparse(points) else points
    if data.size and data.min() < 0:
        raise ValueError(
            f"kernel='tfidf' got a negative entry ({data.min():.3g}), expected counts >= 0: "
            "pass raw counts, not scaled or centred features, or choose another kernel."
        )


@dataclass(frozen=True, eq=False)
class FromFunction(Kernel):
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
        diagonal = np.empty(points.shape[0])
        for rows in parts(points.shape[0], 128):
            diagonal[rows] = np.diagonal(self(points[rows], points[rows]))
        return diagonal


@dataclass(frozen=True, eq=False)
class Precomputed(Kernel):
    """Kernel values computed by the user.

    Known points are integer indices, (n, 1), into ``gram`` (n, n). A new point is given by its (n,)
    kernel values with the known points; k(x, x) is then unknown.
    """

    gram: Array
    on_vectors = False

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

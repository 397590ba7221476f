"""The tf-idf kernel on rows of counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import safe_sparse_dot

from seqmed.kernels.interface import Expansion, Pointwise
from seqmed.numeric.arrays import Array, Points, row_norms_squared


@dataclass(frozen=True, eq=False)
class TfIdf(Pointwise):
    """Cosine of ``log(1 + counts) * idf`` for rows of counts, dense or CSR.

    ``idf`` (p,) is ``log((1 + N) / (1 + df)) + 1`` over the N rows of the first batch. A row
    without any count has kernel value 0 with every row, itself included.
    """

    idf: Array | None = None

    on_vectors = False

    def accepts(self, points: Points) -> bool:
        values = points.data if sp.issparse(points) else points
        return super().accepts(points) and bool((values >= 0).all())

    def freeze(self, points: Points, weights: Array) -> TfIdf:
        check_counts(points)
        present = points.sign() if sp.issparse(points) else np.sign(points)
        frequency = np.asarray(weights @ present).ravel()
        return replace(self, idf=np.log((1.0 + weights.sum()) / (1.0 + frequency)) + 1.0)

    def coordinates(self, points: Points) -> Points:
        check_counts(points)
        if self.idf is None:
            raise ValueError(
                "TfIdf has no idf weights yet, expected weights of a first batch: call freeze "
                "first."
            )
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

"""The covariances of a window from Nystroem features, for the dual solver."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import (
    Array,
    Indices,
    Mask,
    no_indices,
    row_norms_squared,
)
from seqmed.linalg.factorisation import symmetric_product
from seqmed.linalg.triangular import squared_upper_times, times_upper


class NystroemGram:
    """Covariances of n points from Nystroem features; each entry is computed once.

    Blocks are in single precision if that is precise enough for the steps of the solver. Products,
    which decide whether the solver has converged, are in double precision.

    Parameters
    ----------
    values : (n, m) kernel values between the points and the landmarks.
    whitening : the matrix W, (m, m).
    factor : the matrix W in the precision of blocks.
    triangular : whether W is upper triangular.
    """

    def __init__(
        self,
        values: Array,
        whitening: Array,
        factor: NDArray[np.floating],
        triangular: bool,
    ) -> None:
        self.values, self.whitening = values, whitening
        self.factor, self.triangular = factor, triangular
        self.precision = factor.dtype
        self.order = no_indices()  # the points with features, in order of computation
        self.features: list[NDArray[np.floating]] = []  # their features, in blocks
        self.held: list[Array] = []  # their kernel values, in blocks
        self.known = np.zeros((0, 0), dtype=self.precision)

    def block(self, rows: Mask) -> tuple[Indices, NDArray[np.floating]]:
        """Return indices (k,) of the selected points, in any order, and covariances (k, k)."""
        new = rows.copy()
        new[self.order] = False
        if new.any():
            self._add(np.flatnonzero(new))
        wanted = rows[self.order]
        if wanted.all():
            return self.order, self.known
        # faster than np.ix_; the transpose of the symmetric matrix is stored by rows
        return self.order[wanted], self.known[wanted][:, wanted].T

    def _add(self, new: Indices) -> None:
        """Add points: compute their covariances with each other and with earlier points."""
        size = self.order.size
        values = self.values[new]
        features = times_upper(values.astype(self.precision), self.factor, self.triangular)
        known = symmetric_product(features)
        if size:
            own, known = known, np.empty((size + new.size,) * 2, dtype=self.precision)
            known[:size, :size], known[size:, size:] = self.known, own
            across = [features @ others.T for others in self.features]
            np.concatenate(across, axis=1, out=known[size:, :size])
            known[:size, size:] = known[size:, :size].T
        self.order, self.known = np.append(self.order, new), known
        self.features.append(features)
        self.held.append(values)

    def gram(self) -> NystroemGram:
        """Return itself."""
        return self

    def scores(self, coefficients: Array) -> Array:
        return self.values @ coefficients

    def landmark_part(self, coefficients: Array) -> Array:
        return np.stack([self.projected(each) for each in coefficients.T], axis=1)

    def projected(self, coefficients: Array) -> Array:
        """Return the projection (m,) of an expansion with coefficients (n,)."""
        if not coefficients.any():
            return np.zeros(self.values.shape[1])
        return squared_upper_times(self.whitening, self.summed(coefficients), self.triangular)

    def summed(self, coefficients: Array) -> Array:
        """Return ``values.T @ coefficients``, (m,); rows are skipped if most coefficients are 0."""
        weights = coefficients[self.order]
        if np.count_nonzero(weights) < np.count_nonzero(coefficients):
            return self.values.T @ coefficients
        ends = np.cumsum([each.shape[0] for each in self.held])
        parts = np.split(weights, ends[:-1])
        products = [part @ each for part, each in zip(parts, self.held, strict=True)]
        return np.asarray(np.sum(products, axis=0))

    def __matmul__(self, coefficients: Array) -> Array:
        if not coefficients.any():
            return np.zeros_like(coefficients)
        return self.values @ self.projected(coefficients)

    def __getitem__(self, rows: Indices) -> Array:
        features = times_upper(self.values[rows], self.whitening, self.triangular)
        return np.asarray((self.values @ (self.whitening @ features.T)).T)

    def diagonal(self) -> Array:
        return row_norms_squared(times_upper(self.values, self.whitening, self.triangular))

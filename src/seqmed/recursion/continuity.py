"""Graph continuity: new points are linked to kept ones, and what is dropped is committed.

The paper's graph falls into one piece per batch. Here the landmarks are points kept from the past,
and the graph of a batch spans both. Each point i says one thing, that its value is the mean of its
neighbours', ``r_i = f(x_i) - sum_j P_ij f(x_j)``, at the price ``strength * r_i^2``. While a point
is kept, its row is rewritten with every batch, by its neighbours of that time; when it is dropped,
its row is committed to the penalty for good, and the rest of the past is marginalised over it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Points, found_among, no_indices, stack, take_rows
from seqmed.graph import Smoothness
from seqmed.posterior import Covariance, Projection
from seqmed.recursion.basis import Basis, empty_basis
from seqmed.recursion.landmarks import draw_keys, largest


@dataclass(frozen=True)
class ContinuousRecursion:
    """Carries the covariance on kept points: those of the window, and a sample of the others.

    Parameters
    ----------
    covariance : the current covariance; its anchors are the kept points, then those that leave.
    memory : how many points to keep besides the pinned ones.
    seed : entropy of the choice among points.
    basis : what is committed, on the kept points; None before the first batch.
    keys : (m,) the draw by which each kept point holds its place; the largest stay.
    anchors : the points of the last graph, (q, p).
    kept : (m,) where the kept points stand among the anchors.
    origin : (q,) where each anchor stood before the last fold, -1 for a new one.
    n_folds : batches folded in.
    """

    covariance: Covariance
    memory: int
    seed: int
    basis: Basis | None = None
    keys: Array | None = None
    anchors: Points | None = None
    kept: NDArray[np.intp] = field(default_factory=no_indices)
    origin: NDArray[np.intp] = field(default_factory=no_indices)
    n_folds: int = 0
    pins: ClassVar[bool] = True
    replacement_cost: ClassVar[float] = 0.0

    def vertices(self, points: Points) -> Points:
        """Return what a graph of the batch spans: the kept points, and those of the batch."""
        if self.basis is None:
            return points
        kept = self.basis.landmarks
        return stack(kept, take_rows(points, ~found_among(points, kept)))

    def forget(self, share: float) -> ContinuousRecursion:
        """Return the recursion with every penalty committed so far scaled by ``share``."""
        if self.basis is None or self.keys is None:
            return self
        basis = replace(self.basis, penalty=share * self.basis.penalty)
        return replace(self, basis=basis, keys=self.keys / share)

    def project(self, points: Points, coefficients: Array) -> Projection:
        """Return the nearest expansion on the kept points, with zeros on the other anchors."""
        assert self.basis is not None
        found = self.basis.project(self.covariance.kernel, points, coefficients)
        on_anchors = np.zeros((self.origin.size, coefficients.shape[1]))
        on_anchors[self.kept] = found.coefficients
        return found._replace(coefficients=on_anchors)

    def unexplained(self, points: Points) -> Array:
        """Return what projecting loses of each row, (n,)."""
        assert self.basis is not None
        return self.basis.unexplained(self.covariance.kernel, points)

    def fold(
        self,
        points: Points,
        smoothness: Smoothness | None,
        pinned: NDArray[np.bool_] | None = None,
    ) -> ContinuousRecursion:
        """Return the recursion after one more batch, with ``points`` from `vertices`."""
        kernel = self.covariance.kernel
        basis, keys = self.basis, self.keys
        if basis is None or keys is None:
            basis, keys = empty_basis(points), np.zeros(0)
        n, m = points.shape[0], basis.size
        keys = np.append(keys, draw_keys(n - m, self.seed, self.n_folds))
        stays = np.zeros(n, dtype=bool) if pinned is None else pinned.copy()
        others = np.flatnonzero(~stays)
        stays[others[largest(keys[others], self.memory)]] = True

        committed = tentative = basis.extend(kernel, take_rows(points, np.arange(m, n)))
        if smoothness is not None:
            residuals = smoothness.residuals(committed.features(kernel, points))
            committed = committed.add(residuals[~stays].T @ residuals[~stays])
            tentative = committed.add(residuals[stays].T @ residuals[stays])
        kept = np.flatnonzero(stays)
        return replace(
            self,
            covariance=tentative.covariance(kernel) if tentative.penalty.any() else self.covariance,
            basis=committed.restrict(kernel, kept),
            keys=keys[kept],
            anchors=points,
            kept=kept,
            origin=np.append(self.kept, np.full(n - m, -1)),
            n_folds=self.n_folds + 1,
        )

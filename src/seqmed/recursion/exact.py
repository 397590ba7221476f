"""The exact recursion: every point is kept. The reference, and right for short streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Points, no_indices
from seqmed.graph import Smoothness
from seqmed.posterior import Covariance, Projection
from seqmed.recursion.theorem import discount, fold_exactly


@dataclass(frozen=True)
class ExactRecursion:
    """Carries the covariance without approximation, in memory O(N^2) after N points.

    Parameters
    ----------
    covariance : the current covariance; its anchors are all points so far.
    origin : (N,) where each anchor stood before the last fold, -1 for a new one.
    """

    covariance: Covariance
    origin: NDArray[np.intp] = field(default_factory=no_indices)

    grows: ClassVar[bool] = False
    replacement_cost: ClassVar[float] = 0.0

    @property
    def anchors(self) -> Points | None:
        """All points folded in so far."""
        reduction = self.covariance.reduction
        return None if reduction is None else reduction.anchors

    def forget(self, share: float) -> ExactRecursion:
        """Return the recursion with every penalty so far scaled by ``share``."""
        reduction = self.covariance.reduction
        size = 0 if reduction is None else reduction.anchors.shape[0]
        return ExactRecursion(discount(self.covariance, share), np.arange(size))

    def project(self, points: Points, coefficients: Array) -> Projection:
        """Refuse: every point is kept as it is."""
        raise ValueError("recursion='exact' keeps every point: use recursion='landmarks'.")

    def unexplained(self, points: Points) -> Array:
        """Return what projecting loses: everything."""
        return self.covariance.kernel.diagonal(points)

    def fold(self, points: Points, smoothness: Smoothness | None) -> ExactRecursion:
        """Return the recursion after one more batch."""
        reduction = self.covariance.reduction
        before = 0 if reduction is None else reduction.anchors.shape[0]
        if smoothness is None:
            return ExactRecursion(self.covariance, np.arange(before))
        origin = np.append(np.arange(before), np.full(points.shape[0], -1))
        return ExactRecursion(fold_exactly(self.covariance, points, smoothness), origin)

    def reach(self, window: Points, n_new: int) -> ExactRecursion:
        """Return the recursion itself: labels are learned with the whole kernel."""
        return self

"""The exact recursion: every point is kept.

This recursion is the reference for the others, and suitable for short streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqmed.arrays import Array, Points
from seqmed.covariance.low_rank import LowRankCovariance, discount, fold_exactly
from seqmed.covariance.protocol import FoldResult, Projection
from seqmed.graph.laplacian import Smoothness


@dataclass(frozen=True)
class ExactRecursion:
    """The covariance without approximation; it needs O(N^2) memory after N points.

    Parameters
    ----------
    covariance : the current covariance; its landmarks are all points so far.
    """

    covariance: LowRankCovariance

    capacity: ClassVar[None] = None
    grows: ClassVar[bool] = False

    @property
    def landmarks(self) -> Points | None:
        """All points folded in so far."""
        reduction = self.covariance.reduction
        return None if reduction is None else reduction.landmarks

    def project(self, points: Points, coefficients: Array) -> Projection:
        """Raise an error: no point is projected."""
        raise ValueError(
            "recursion='exact' got points to project, expected none: use recursion='landmarks'."
        )

    def residual_variances(self, points: Points) -> Array:
        return self.covariance.kernel.diagonal(points)

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        past = discount(self.covariance, forgetting)
        if smoothness is None:
            return FoldResult(ExactRecursion(past))
        before = 0 if self.landmarks is None else self.landmarks.shape[0]
        origin = np.append(np.arange(before), np.full(points.shape[0], -1))
        return FoldResult(ExactRecursion(fold_exactly(past, points, smoothness)), origin)

    def add_labeled(self, points: Points) -> FoldResult:
        """Return the recursion unchanged: labels are learned with the exact kernel."""
        return FoldResult(self)

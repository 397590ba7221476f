"""The exact recursion: every point is kept.

This recursion is the reference for the others, and suitable for short streams.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmed.arrays import Points
from seqmed.covariance.low_rank import LowRankCovariance, discount, fold_exactly
from seqmed.covariance.protocol import FoldResult
from seqmed.covariance.unprojected import Unprojected
from seqmed.graph.laplacian import Smoothness


@dataclass(frozen=True)
class ExactRecursion(Unprojected):
    """The covariance without approximation; it needs O(N^2) memory after N points.

    Parameters
    ----------
    covariance : the current covariance; its landmarks are all points so far.
    """

    covariance: LowRankCovariance

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        past = discount(self.covariance, forgetting)
        if smoothness is None:
            return FoldResult(ExactRecursion(past))
        before = 0 if self.landmarks is None else self.landmarks.shape[0]
        origin = np.append(np.arange(before), np.full(points.shape[0], -1))
        return FoldResult(ExactRecursion(fold_exactly(past, points, smoothness)), origin)

"""The exact recursion: every point is kept. The reference, and right for short streams."""

from __future__ import annotations

from dataclasses import dataclass

from seqmed.arrays import Points
from seqmed.graph import Smoothness
from seqmed.posterior import Covariance
from seqmed.recursion.theorem import fold_exactly


@dataclass(frozen=True)
class ExactRecursion:
    """Carries the covariance without approximation, in memory O(N^2) after N points."""

    covariance: Covariance

    def fold(self, points: Points, smoothness: Smoothness) -> ExactRecursion:
        """Return the recursion after one more batch."""
        return ExactRecursion(fold_exactly(self.covariance, points, smoothness))

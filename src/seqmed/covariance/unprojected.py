"""Recursions that project nothing: labels are learned with the exact kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from seqmed.arrays import Array, Points
from seqmed.covariance.low_rank import LowRankCovariance
from seqmed.covariance.protocol import FoldResult, Projection
from seqmed.graph.laplacian import Smoothness


class Unprojected(ABC):
    """Members shared by recursions whose landmarks are those of their covariance."""

    covariance: LowRankCovariance

    capacity: ClassVar[None] = None
    grows: ClassVar[bool] = False

    @property
    def landmarks(self) -> Points | None:
        reduction = self.covariance.reduction
        return None if reduction is None else reduction.landmarks

    @abstractmethod
    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        """Return the recursion after one more batch."""

    def add_labeled(self, points: Points) -> FoldResult:
        """Return the recursion unchanged."""
        return FoldResult(self)

    def project(self, points: Points, coefficients: Array) -> Projection:
        """Raise an error: estimators refuse a budget with these recursions."""
        raise NotImplementedError("this recursion has no landmarks of its own to project on")

    def residual_variances(self, points: Points) -> Array:
        return self.covariance.kernel.diagonal(points)

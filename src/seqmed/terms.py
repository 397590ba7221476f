"""Terms of the mean: points with coefficients, in the current covariance and averaged."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Points, take_rows
from seqmed.kernels import Expansion


@dataclass(frozen=True)
class Terms:
    """Points of an expansion of the mean.

    Parameters
    ----------
    points : (n, p).
    coefficients : (n, machines) in the current covariance.
    averages : (n, machines) of the averaged mean, in the base kernel; zeros without averaging.
    """

    points: Points
    coefficients: Array
    averages: Array

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the rows selected by a mask or by indices."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return type(self)(*(take_rows(getattr(self, f.name), rows) for f in fields(self)))

    def mapped(self, transfer: Array) -> Self:
        """Return the terms of new machines, each a combination (h, H) of the old machines."""
        return replace(
            self,
            coefficients=self.coefficients @ transfer,
            averages=self.averages @ transfer,
        )

    @property
    def nonzero(self) -> NDArray[np.bool_]:
        """Mask (n,) of the points with any coefficient."""
        return np.asarray(self.coefficients.any(axis=1) | self.averages.any(axis=1))

    @property
    def expansion(self) -> Expansion:
        """The points with a nonzero coefficient in the current covariance."""
        rows = np.any(self.coefficients != 0, axis=1)
        if rows.all():
            return Expansion(self.points, self.coefficients)
        return Expansion(take_rows(self.points, rows), self.coefficients[rows])


@dataclass(frozen=True)
class ScoredTerms(Terms):
    """Terms with the scores of the frozen support vectors at their points.

    Parameters
    ----------
    frozen_scores : (n, machines) ``sum_frozen k(x, x_s) c_s`` in the base kernel. They are cached,
        because they change only when support vectors are frozen or dropped.
    """

    frozen_scores: Array

    def mapped(self, transfer: Array) -> Self:
        """Return the terms of new machines, each a combination (h, H) of the old machines."""
        return replace(super().mapped(transfer), frozen_scores=self.frozen_scores @ transfer)

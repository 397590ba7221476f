"""The validated rows of a batch, which every learner receives."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from seqmed.numeric.arrays import Array, Indices, Mask, Points, take_rows


class Rows(NamedTuple):
    """A validated batch, or a part of it.

    Attributes
    ----------
    points : (n, p) rows, or (n, 1) indices into ``gram``.
    codes : (n,) their classes, -1 for unlabeled rows.
    weights : (n,) positive weights.
    gram : (n, n) precomputed kernel matrix, None without one.
    """

    points: Points
    codes: Indices
    weights: Array
    gram: Array | None = None

    @property
    def labeled(self) -> Mask:
        """Mask (n,) of the labeled rows."""
        return self.codes >= 0

    def take(self, rows: NDArray[Any]) -> Rows:
        """Return some of the rows, by a mask or by indices."""
        return Rows(take_rows(self.points, rows), self.codes[rows], self.weights[rows])

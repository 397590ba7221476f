"""The last labeled rows: experts are fitted on them, or start again from them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask, Points, no_rows, stack, take_rows
from seqmed.mixture.change import Change
from seqmed.mixture.record import RECORD


@dataclass(frozen=True)
class RecentRows:
    """The last labeled rows, oldest first.

    Parameters
    ----------
    points : (r, p).
    codes : (r,) their classes.
    weights : (r,) their weights.
    """

    points: Points
    codes: Indices
    weights: Array

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    def add(self, points: Points, codes: Indices, weights: Array) -> RecentRows:
        """Return the newest `RECORD` rows after some more."""
        return RecentRows(
            stack(self.points, points)[-RECORD:],
            np.append(self.codes, codes)[-RECORD:].astype(np.intp),
            np.append(self.weights, weights)[-RECORD:],
        )

    def take(self, rows: NDArray[np.bool_]) -> RecentRows:
        """Return some of the rows, by a mask."""
        chosen = np.flatnonzero(rows)
        return RecentRows(*(take_rows(getattr(self, f.name), chosen) for f in fields(self)))

    def with_classes(self, places: Indices) -> RecentRows:
        """Return the rows with old class c at ``places[c]``; those of -1 are dropped."""
        codes = places[self.codes]
        return RecentRows(self.points, codes, self.weights).take(codes >= 0)

    def valid_after(self, change: Change) -> Mask:
        """Return a mask (r,) of the rows whose labels stay valid.

        These are the labels since the change, and the newest label of every other class, which
        would be unknown without it.
        """
        valid = np.arange(self.size) >= self.size - change.n_labels
        for code in np.setdiff1d(self.codes, self.codes[valid]):
            valid[np.flatnonzero(self.codes == code)[-1]] = True
        return valid


def no_recent_rows(points: Points) -> RecentRows:
    """Return no rows, of the format of ``points``."""
    return RecentRows(no_rows(points), np.zeros(0, dtype=np.intp), np.zeros(0))

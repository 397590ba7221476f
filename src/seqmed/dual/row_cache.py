"""Rows of the covariance for the steps of the solver: all of them, or a cache."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask
from seqmed.dual.problem import fits_single_precision

# Memory of the row cache, and how many missing rows are computed at a time.
ROW_BYTES, ROWS_AT_A_TIME = 2**29, 16


class RowCache(NamedTuple):
    """A cache of rows of the covariance over the n active points, replaced by the clock algorithm.

    Attributes
    ----------
    source : (N, N) all covariances; (0, 0) if the caller computes rows.
    columns : (n,) the index of every point in ``source``.
    values : (slots, n) the cached rows.
    slots : (n,) the slot of the row of every point; -1 if it is not cached.
    owners : (slots,) the point whose row is in a slot; -1 for none.
    referenced : (slots,) whether a slot was used since the hand last passed it.
    hand : (1,) the slot to be replaced next, unless it was referenced.
    """

    source: Array
    columns: Indices
    values: NDArray[np.floating]
    slots: Indices
    owners: Indices
    referenced: Mask
    hand: Indices


def full_row_cache(values: NDArray[np.floating]) -> RowCache:
    """Return a cache that holds all rows, (n, n)."""
    own = np.arange(values.shape[0])
    return RowCache(
        source=np.empty((0, 0)),
        columns=own,
        values=values,
        slots=own,
        owners=own,
        referenced=np.zeros(own.size, dtype=np.bool_),
        hand=np.zeros(1, dtype=np.intp),
    )


def empty_row_cache(gram: Any, places: Indices) -> RowCache:
    """Return an empty cache for rows of the covariances, in single precision."""
    n = places.size
    slots = int(min(n, max(ROW_BYTES // (4 * n), 4 * ROWS_AT_A_TIME)))
    single = fits_single_precision(float(np.abs(gram.diagonal()).max()))
    values = np.empty((slots, n), dtype=np.float32 if single else np.float64)
    values[0] = 0.0  # a step of length zero uses this row
    return RowCache(
        source=gram if isinstance(gram, np.ndarray) else np.empty((0, 0)),
        columns=places,
        values=values,
        slots=np.full(n, -1),
        owners=np.full(slots, -1),
        referenced=np.zeros(slots, dtype=np.bool_),
        hand=np.zeros(1, dtype=np.intp),
    )

"""Kept rows of a graph in a model file: one array of rows, without sketches.

Sketches are computed when a model is loaded. If the metric computes its distances from the rows,
squared norms are also computed then: no result depends on their last bits. Other metrics use the
norms in their distances, so these norms are saved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from seqmed.graph.kept_rows import BLOCK, SPARE, KeptRows, Lists
from seqmed.graph.metrics import Metric, without_sketch
from seqmed.model_file.declarations import Rules, check_records, declare
from seqmed.numeric.arrays import Points, Single


class SavedRows(NamedTuple):
    """`KeptRows` in a model file.

    Attributes
    ----------
    metric, n_neighbors, lists : as in `KeptRows`.
    rows : (n, p) all rows, in single precision.
    norms : (n,) squared norms; None if they are computed from the rows.
    """

    metric: Metric
    n_neighbors: int
    rows: Points
    norms: Single | None
    lists: Lists

    @classmethod
    def of(cls, kept: KeptRows) -> SavedRows:
        """Return the saved form of kept rows."""
        parts = [block.rows for block in kept.blocks]
        sparse = any(map(sp.issparse, parts))
        rows = sp.csr_array(sp.vstack(parts, format="csr")) if sparse else np.concatenate(parts)
        norms = [block.norms for block in kept.blocks]
        computed = kept.metric.refines
        all_norms = None if computed else np.concatenate(norms)
        return cls(kept.metric, kept.n_neighbors, rows, all_norms, kept.lists)

    def as_read(self) -> KeptRows:
        """Return valid kept rows, with sketches.

        All arrays are copied: numba would compile its functions again for read-only arrays, and
        views would keep replaced blocks in memory.
        """
        rows, norms = self.rows, self.norms
        if rows.ndim != 2 or not rows.shape[0]:
            raise ValueError(f"kept rows have the shape {rows.shape}, expected at least one row")
        if (norms is None) != self.metric.refines:
            raise ValueError("norms must be saved if the metric uses them, and only then")
        check_records(self, p=rows.shape[1])
        if norms is None:
            norms = np.zeros(rows.shape[0], dtype=np.float32)
        cuts = [slice(start, start + BLOCK) for start in range(0, rows.shape[0], BLOCK)]
        stored = (without_sketch(rows[cut].copy(), norms[cut].copy()) for cut in cuts)
        blocks = tuple(map(self.metric.restored, stored))
        return KeptRows(self.metric, self.n_neighbors, blocks, self.lists.copy())


@declare(
    Lists, slots="kept length >= -1", distances="kept length inf >= 0", horizons="kept inf >= 0",
    sizes="kept >= 0",
)  # fmt: skip
def _(lists: Lists) -> Rules:
    slots, distances, sizes = lists.slots, lists.distances, lists.sizes
    n, length = slots.shape
    yield "fewer neighbours than kept rows", (sizes <= min(length, n - 1)).all()
    used = np.arange(length, dtype=np.int32) < sizes[:, None]
    yield "neighbours among the kept rows", ((slots >= 0) == used).all() and (slots < n).all()
    yield "a distance for every neighbour", (np.isfinite(distances) == used).all()
    yield "neighbours in order of distance", (distances[:, 1:] >= distances[:, :-1]).all()
    yield "neighbours other than the row", (slots != np.arange(n, dtype=np.int32)[:, None]).all()
    ordered = np.sort(slots, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    yield "each neighbour once", not twice.any()
    rows = np.flatnonzero(sizes)
    last = distances[rows, sizes[rows] - 1]
    yield "neighbours within the horizon", (last <= lists.horizons[rows]).all()


@declare(SavedRows, n_neighbors=">= 1", rows="kept p", norms="kept >= 0")
def _(saved: SavedRows) -> Rules:
    lists, metric, limit = saved.lists, saved.metric, np.float32(saved.metric.limit)
    if metric.unit_norms:
        yield "squared norms of 1", np.all(saved.norms == 1)
    length = np.ceil(SPARE * saved.n_neighbors)
    yield "lists of the right length", lists.slots.shape[1] == length
    complete = lists.horizons == limit
    yield "horizons within the limit", (lists.horizons <= limit).all()
    yield "enough neighbours", (complete | (lists.sizes >= saved.n_neighbors)).all()
    everything = (lists.sizes[complete] == lists.sizes.size - 1).all()
    yield "all other rows in complete lists", everything or not metric.refines

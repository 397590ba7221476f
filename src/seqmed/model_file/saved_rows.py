"""Kept rows of a graph in a model file: one array of rows, without sketches.

Sketches are computed when a model is loaded. If the metric computes its distances from the rows,
squared norms are also computed then: no result depends on their last bits. Other metrics use the
norms in their distances, so these norms are saved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from seqmed.arrays import Points
from seqmed.graph.kept_rows import BLOCK, KeptRows
from seqmed.graph.metrics import Metric, without_sketch
from seqmed.graph.neighbours import Lists, Single


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
        """Return kept rows without sketches, which `completed` adds after validation.

        All arrays are copied: numba would compile its functions again for read-only arrays, and
        views would keep replaced blocks in memory.
        """
        rows, norms = self.rows, self.norms
        if rows.ndim != 2 or not rows.shape[0]:
            raise ValueError(f"kept rows have the shape {rows.shape}, expected at least one row")
        if (norms is None) != self.metric.refines:
            raise ValueError("norms must be saved if the metric uses them, and only then")
        if norms is None:
            norms = np.zeros(rows.shape[0], dtype=np.float32)
        cuts = [slice(start, start + BLOCK) for start in range(0, rows.shape[0], BLOCK)]
        blocks = tuple(without_sketch(rows[cut].copy(), norms[cut].copy()) for cut in cuts)
        return KeptRows(self.metric, self.n_neighbors, blocks, self.lists.copy())


def completed(kept: KeptRows) -> KeptRows:
    """Return kept rows with their sketches."""
    return replace(kept, blocks=tuple(map(kept.metric.restored, kept.blocks)))

"""The labeled rows that refitted experts are fitted on.

They are the last `NEWEST` labeled rows, and a uniform sample of the older ones, `MOST` in all, and
fewer if rows are large. A row of the sample has one of the smallest keys. The key of a row depends
on a seed and on its number in the stream only. Rows that left the sample are kept as long as an
expert is fitted on them, so that a loaded model can fit the same expert again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.late_rows import equal_rows
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Mask,
    Points,
    no_indices,
    no_rows,
    random_keys,
    stack,
    take_rows,
)
from seqmed.numeric.expectations import expect, expect_shape

# Number of newest labeled rows that are all kept, and largest number of rows in all.
NEWEST, MOST = 2000, 20_000
# Largest number of bytes of these rows; the newest `NEWEST` are kept in any case.
MOST_BYTES = 64_000_000


class LabeledRows(NamedTuple):
    """Labeled rows, oldest first.

    Attributes
    ----------
    points : (n, p) rows, not divided by the scales of the columns.
    codes : (n,) their classes.
    weights : (n,) their sample weights.
    discounts : (n,) products of the forgetting factors since they were learned, in (0, 1].
    numbers : (n,) their numbers in the stream of labeled rows, increasing.
    sampled : (n,) mask of the rows that the next fit uses.
    """

    points: Points
    codes: Indices
    weights: Array
    discounts: Array
    numbers: Indices
    sampled: Mask

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the same rows."""
        names = ("codes", "weights", "discounts", "numbers", "sampled")
        expect_shape(self, (self.points.shape[0],), *names)
        expect((self.codes >= 0).all(), "classes >= 0")
        expect((self.weights > 0).all() and (self.discounts >= 0).all(), "weights > 0")
        expect((np.diff(self.numbers, prepend=-1) > 0).all(), "numbers in order")

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    @property
    def n_seen(self) -> int:
        """Number that the next labeled row gets."""
        return int(self.numbers[-1]) + 1 if self.size else 0

    def take(self, rows: NDArray[np.bool_] | Indices) -> LabeledRows:
        """Return some of the rows, by a mask or by indices."""
        return LabeledRows._make(take_rows(each, rows) for each in self)

    def newest(self, n: int) -> LabeledRows:
        """Return the newest ``n`` > 0 rows."""
        return LabeledRows._make(each[-n:] for each in self)

    def add(self, points: Points, codes: Indices, weights: Array, seed: int) -> LabeledRows:
        """Return the rows after some more; ``seed`` determines which older ones are sampled."""
        m, first = codes.size, self.n_seen
        if not m:
            return self
        grown = LabeledRows(
            stack(self.points, points),
            np.append(self.codes, codes).astype(np.intp),
            np.append(self.weights, weights),
            np.append(self.discounts, np.ones(m)),
            np.append(self.numbers, np.arange(first, first + m)),
            np.append(self.sampled, np.ones(m, dtype=bool)),
        )
        most = most_rows(grown.points)
        surplus = int(np.count_nonzero(grown.sampled)) - most
        if surplus <= 0:
            return grown
        older = np.flatnonzero(grown.sampled & (grown.numbers < grown.n_seen - min(NEWEST, most)))
        keys = random_keys(grown.numbers[older], seed)
        sampled = grown.sampled.copy()
        sampled[older[np.argsort(keys)[older.size - surplus :]]] = False
        return grown._replace(sampled=sampled)

    def forget(self, forgetting: float) -> LabeledRows:
        """Return the rows with weights discounted by ``forgetting`` in (0, 1]."""
        if forgetting == 1.0:
            return self
        return self._replace(discounts=forgetting * self.discounts)

    def hold(self, points: Points, codes: Indices) -> Mask:
        """Return a mask (m,) of the points that equal a row of their class."""
        equal = zip(equal_rows(self.points, points), codes, strict=True)
        return np.array([(self.codes[rows] == code).any() for rows, code in equal], dtype=bool)

    def without_labels(self, points: Points, codes: Indices) -> LabeledRows:
        """Return the rows without the newest row that equals each of ``points`` and its class."""
        removed = np.zeros(self.size, dtype=bool)
        for equal, code in zip(equal_rows(self.points, points), codes, strict=True):
            fitting = equal[(self.codes[equal] == code) & ~removed[equal]]
            removed[fitting[-1:]] = True
        return self.take(~removed)

    def with_classes(self, places: Indices) -> LabeledRows:
        """Return the rows with old class c at ``places[c]``; those of -1 are dropped."""
        codes = places[self.codes]
        moved = self._replace(codes=codes)
        return moved if (codes >= 0).all() else moved.take(codes >= 0)


def no_labeled_rows(points: Points) -> LabeledRows:
    """Return no rows, of the format of ``points``."""
    none, places = np.zeros(0), no_indices()
    return LabeledRows(no_rows(points), places, none, none, places, np.zeros(0, dtype=bool))


def most_rows(points: Points) -> int:
    """Return the largest number of rows of this format that are kept."""
    n = max(1, points.shape[0])
    n_bytes = 12 * points.nnz if sp.issparse(points) else points.nbytes
    return int(np.clip(MOST_BYTES * n // max(1, n_bytes), NEWEST, MOST))

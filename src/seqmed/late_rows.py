"""Rows of late and retracted labels, which are found by their values among the kept rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.numeric.arrays import Indices, Mask, Points, row_keys

# Differences that are attributed to rounding: relative to the value itself, and relative to the
# largest value of the row.
SAME_VALUE, SAME_SUM = 1e-10, 1e-14


# Why a label cannot be retracted.
NO_LABEL = (
    "row {} of X has no label: it was retracted before, or the row was learned without one, "
    "expected rows that have a label: leave the row out."
)
OTHER_LABEL = (
    "row {} of X has another label, expected the label it was learned with: correct y, or leave y "
    "out to retract whatever label a row has."
)
TOO_OFTEN = (
    "row {} of X equals earlier rows of X, and there are more such rows than labels, expected at "
    "most one row for each label: leave the row out."
)


class LateLabels(NamedTuple):
    """Number of late labels by the rows they belong to."""

    n_found: int  # of rows that are kept without a label
    n_not_found: int  # of rows that are not kept; they are learned too
    n_already_known: int  # of rows that have this label already; they change nothing


class KeptLabels(NamedTuple):
    """What is known of the rows of m late labels."""

    free: Mask  # (m,) the row is kept without a label
    same: Mask  # (m,) the row is kept with this label
    other: Indices  # (m,) class of a kept row of equal values with another label, or -1

    def joined(self, others: KeptLabels) -> KeptLabels:
        """Return what is known by either of two stores of rows."""
        other = np.where(self.other >= 0, self.other, others.other)
        return KeptLabels(self.free | others.free, self.same | others.same, other)


def compare_labels(
    equal: Sequence[Sequence[int] | Indices], kept: NDArray[np.integer], codes: Indices
) -> KeptLabels:
    """Return what is known of the rows of late labels.

    A kept row without a label is used for one late label only. ``equal`` has the kept rows of equal
    values for each label. ``kept`` are classes of kept rows, -1 without a label. ``codes`` (m,) are
    the classes of the late labels, -1 for new classes.
    """
    free, same = np.zeros((2, codes.size), dtype=bool)
    other, used = np.full(codes.size, -1), set()
    for row, places in enumerate(equal):
        unused = [each for each in places if kept[each] < 0 and each not in used]
        used.update(unused[:1])
        free[row] = bool(unused)
        own = kept[np.asarray(places, dtype=np.intp)]
        labeled = own[own >= 0]
        same[row] = codes[row] >= 0 and (labeled == codes[row]).any()
        other[row] = next((each for each in labeled if each != codes[row]), -1)
    return KeptLabels(free, same, other)


def equal_rows(kept: Points, points: Points) -> list[Indices]:
    """Return the indices of the kept rows that equal each of m rows.

    Dense rows may differ by rounding if no row is exactly equal: a transformer may round a single
    row differently from the same row in a batch.
    """
    places: dict[object, list[int]] = {}
    for place, key in enumerate(row_keys(kept)):
        places.setdefault(key, []).append(place)
    found = [np.array(places.get(key, ()), dtype=np.intp) for key in row_keys(points)]
    missing = [row for row, each in enumerate(found) if not each.size]
    if not missing or sp.issparse(points) or not kept.shape[0]:
        return found
    # rows that are close have similar sums of weighted values
    weights = np.random.default_rng(0).random(points.shape[1])
    sums = kept @ weights
    order = np.argsort(sums)
    for row in missing:
        sizes = np.abs(points[row])
        allowed = np.maximum(SAME_VALUE * sizes, SAME_SUM * sizes.max(initial=0.0))
        middle, slack = points[row] @ weights, 2.0 * (allowed @ weights)
        first, last = np.searchsorted(sums[order], [middle - slack, middle + slack])
        candidates = np.sort(order[first:last])
        close = (np.abs(kept[candidates] - points[row]) <= allowed).all(axis=1)
        found[row] = candidates[close]
    return found

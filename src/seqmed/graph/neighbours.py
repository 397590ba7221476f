"""Nearest-neighbour lists, and the rows that are compared to fill them.

The list of a kept row holds its nearest kept rows, sorted by squared distance. The list is exact up
to its *horizon*: every kept row nearer than the horizon is in the list. Insertion and deletion
preserve this property. The nearest rows are known as long as the list has enough entries; otherwise
they are searched for again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Single = NDArray[np.float32]
Slots = NDArray[np.int32]


class Lists(NamedTuple):
    """Neighbour lists of n rows with up to L entries each.

    Attributes
    ----------
    slots : (n, L) int32, the neighbours by their slot; only the first ``sizes[i]`` are valid.
    distances : (n, L) float32, squared distances in ascending order.
    horizons : (n,) float32; every other row nearer than this is in the list.
    sizes : (n,) int32, the number of entries.
    """

    slots: Slots
    distances: Single
    horizons: Single
    sizes: Slots

    def copy(self) -> Lists:
        """Return lists that share no memory with these."""
        return Lists._make(array.copy() for array in self)

    def take(self, rows: Any) -> Lists:
        """Return the lists of the selected rows."""
        return Lists._make(array[rows] for array in self)


def empty_lists(n: int, length: int, limit: float) -> Lists:
    """Return n empty lists of at most ``length`` entries nearer than ``limit``."""
    return Lists(
        slots=np.full((n, length), -1, dtype=np.int32),
        distances=np.full((n, length), np.inf, dtype=np.float32),
        horizons=np.full(n, limit, dtype=np.float32),
        sizes=np.zeros(n, dtype=np.int32),
    )


class ComparedRows(NamedTuple):
    """Rows prepared for a comparison with other rows.

    Attributes
    ----------
    rows : (m, p) float32, for exact distances; (m, 0) if inner products already give exact
        distances.
    norms : (m,) float32, squared norms minus a bound on rounding errors.
    slots : (m,) int32, the slots of the rows; -1 for a row that is not kept.
    """

    rows: Single
    norms: Single
    slots: Slots

"""The kept rows of a stream and the graph over them.

A *slot* is the index of one kept row. Rows are stored in blocks. An update copies the blocks that
it changes and shares the others, so that the previous state is never modified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.graph.metrics import Metric, Stored
from seqmed.graph.neighbours import Lists, empty_lists
from seqmed.numeric.arrays import Indices, stack
from seqmed.numeric.threads import allowed_threads, run_in_threads

# Number of rows in a block, and number of queries searched for at once. With many queries at once,
# a block is read into the cache less often. If the number of rows were a power of two, products
# would be a third slower.
BLOCK, STRIP = 960, 1024
# Number of entries of a list per neighbour of the graph. The additional entries compensate for
# deletions.
SPARE = 1.6


@dataclass(frozen=True)
class KeptRows:
    """Rows in blocks of `BLOCK` slots, with exact neighbour lists.

    Parameters
    ----------
    metric : how rows are stored and compared.
    n_neighbors : number of neighbours that are always known, if there are as many other rows.
    blocks : the rows, `BLOCK` in each block except the last.
    lists : the neighbour lists of all rows.
    """

    metric: Metric
    n_neighbors: int
    blocks: tuple[Stored, ...]
    lists: Lists

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.lists.sizes.size

    def take(self, slots: Indices) -> Stored:
        """Return the rows of the given slots, in their order."""
        return gather(self.blocks, slots)

    def search(self, queries: Stored, own: NDArray[Any] | None = None, length: int = 0) -> Lists:
        """Return the nearest rows of every query.

        Parameters
        ----------
        queries : m rows as the metric stores them.
        own : (m,) slot to be left out for each query; -1 or None for none.
        length : number of entries, `n_neighbors` by default.
        """
        from seqmed.graph.scan import Scan

        length = length or self.n_neighbors
        found = empty_lists(queries.size, length, self.metric.limit)
        own = np.full(queries.size, -1, np.int32) if own is None else own.astype(np.int32)

        def fill(part: list[slice]) -> None:
            scan = Scan(self.metric, self.blocks, self.lists)
            for rows in part:
                nearest = scan.nearest(queries.take(rows), own[rows], length)
                for array, values in zip(found, nearest, strict=True):
                    array[rows] = values

        cut = strips(queries.size)
        count = min(allowed_threads(), len(cut))
        run_in_threads(fill, (cut[n::count] for n in range(count)), queries.size * self.size)
        return found

    def put(self, slots: Indices, entering: Stored) -> KeptRows:
        """Return the rows with ``entering`` in the given distinct slots.

        Slots from `size` on are new and must be consecutive. Rows in other slots are replaced.
        """
        from seqmed.graph.scan import Scan, drop  # numba is imported by the first update

        if not slots.size:
            return self
        size = max(self.size, int(slots.max()) + 1)
        gone = np.zeros(size, dtype=bool)
        gone[slots] = True
        lists = extended(self.lists, size - self.size, self.metric.limit)
        drop(tuple(lists), gone)
        horizons = np.empty(slots.size, dtype=np.float32)
        lists.horizons[slots] = -np.inf  # entering rows get their lists last
        kept = replace(self, blocks=with_rows(self.blocks, slots, entering), lists=lists)
        own = slots.astype(np.int32)
        scan = Scan(kept.metric, kept.blocks, lists)
        for rows in strips(entering.size):
            nearest = scan.nearest(entering.take(rows), own[rows], lists.slots.shape[1], lists)
            for array, values in zip(lists, nearest, strict=True):
                if array is not lists.horizons:
                    array[slots[rows]] = values
            horizons[rows] = nearest.horizons
        lists.horizons[slots] = horizons
        kept._search_short_lists()
        return kept.remeasured()

    def remeasured(self) -> KeptRows:
        """Return the rows with new sketches, if there are enough rows to improve the sketches."""
        metric = self.metric.remeasured(self.blocks, self.size)
        if metric is None:
            return self
        blocks = tuple(metric.restored(block) for block in self.blocks)
        return replace(self, metric=metric, blocks=blocks)

    def _search_short_lists(self) -> None:
        """Search again for the neighbours of rows whose lists have become too short."""
        lists = self.lists
        complete = lists.horizons == np.float32(self.metric.limit)
        short = np.flatnonzero((lists.sizes < self.n_neighbors) & ~complete)
        if short.size:
            found = self.search(self.take(short), own=short, length=lists.slots.shape[1])
            for array, values in zip(lists, found, strict=True):
                array[short] = values


def no_kept_rows(metric: Metric, n_neighbors: int) -> KeptRows:
    """Return an empty set of kept rows."""
    length = int(np.ceil(SPARE * n_neighbors))
    return KeptRows(metric, n_neighbors, (), empty_lists(0, length, metric.limit))


def strips(n: int) -> list[slice]:
    """Return slices of at most `STRIP` queries that cover n queries."""
    return [slice(start, min(start + STRIP, n)) for start in range(0, n, STRIP)]


def extended(lists: Lists, n: int, limit: float) -> Lists:
    """Return a copy of the lists with n empty lists added."""
    more = empty_lists(n, lists.slots.shape[1], limit)
    return Lists._make(np.concatenate(pair) for pair in zip(lists, more, strict=True))


def gather(blocks: tuple[Stored, ...], slots: Indices) -> Stored:
    """Return the rows of the given slots, in their order."""
    order = np.argsort(slots, kind="stable")
    numbers, places = np.divmod(slots[order], BLOCK)
    rows: Stored = reduce(
        joined_rows, (blocks[n].take(places[numbers == n]) for n in np.unique(numbers))
    )
    return rows.take(np.argsort(order, kind="stable"))


def joined_rows(first: Stored, second: Stored) -> Stored:
    """Return the rows of both arguments, concatenated."""
    return Stored(
        stack(first.rows, second.rows),
        np.append(first.norms, second.norms),
        np.vstack([first.sketch, second.sketch]),
    )


def with_rows(blocks: tuple[Stored, ...], slots: Indices, entering: Stored) -> tuple[Stored, ...]:
    """Return the blocks with rows put in the given slots; unchanged blocks are shared."""
    result = list(blocks)
    for number in np.unique(slots // BLOCK):
        chosen = np.flatnonzero(slots // BLOCK == number)
        places, new = slots[chosen] - number * BLOCK, entering.take(chosen)
        if number == len(result):
            order = np.argsort(places)
            result.append(new.take(order))
            continue
        old = result[number]
        size = max(old.size, int(places.max()) + 1)
        source = np.arange(size)
        source[places] = old.size + np.arange(places.size)
        result[number] = joined_rows(old, new).take(source)
    return tuple(result)

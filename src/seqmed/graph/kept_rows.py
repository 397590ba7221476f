"""The kept rows of a stream, and the list of the nearest other kept rows for each of them.

A list is sorted by squared distance. It is exact up to its *horizon*: every kept row nearer than
the horizon is in the list. Insertion and deletion preserve this property. The nearest rows are
known as long as the list has enough entries; otherwise they are searched for again.

A *slot* is the index of one kept row. Rows are stored in blocks. An update copies the blocks that
it changes and shares the others, so that the previous state is never modified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.graph.metrics import Euclidean, Metric, Stored, without_sketch
from seqmed.numeric.arrays import Indices, Points, Single, Slots, bit_sums
from seqmed.numeric.execution import allowed_threads, run_in_threads
from seqmed.numeric.expectations import expect, expect_shape

# Number of rows in a block, and number of queries searched for at once. With many queries at once,
# a block is read into the cache less often. If the number of rows were a power of two, products
# would be a third slower.
BLOCK, STRIP = 960, 1024
# Largest number of inner products of a strip (32 MB), if it has more than 64 queries. The memory of
# more products is new in every search, and touching it first takes longer than the products.
PRODUCTS, FEWEST_QUERIES = 2**23, 64
# Number of entries of a list per neighbour of the graph. The additional entries compensate for
# deletions.
SPARE = 1.6
# The edge weight of the farthest neighbour is exp(-SHARPNESS).
SHARPNESS = 4.0


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

    def validate(self) -> None:
        """Raise a ValueError if compiled loops would leave the arrays."""
        n, length = self.slots.shape
        expect_shape(self, (n, length), "distances")
        expect_shape(self, (n,), "horizons", "sizes")
        expect(((self.sizes >= 0) & (self.sizes <= length)).all(), f"sizes from 0 to {length}")
        used = np.arange(length, dtype=np.int32) < self.sizes[:, None]
        expect(((self.slots >= 0) == used).all(), "as many neighbours as the sizes")
        expect((self.slots < n).all(), "neighbours among the kept rows")
        expect((np.isfinite(self.distances) == used).all(), "a distance for every neighbour")

    @property
    def n_lists(self) -> int:
        """Number of lists."""
        return self.sizes.size

    def take(self, rows: Any) -> Lists:
        """Return the lists of the selected rows."""
        return Lists._make(array[rows] for array in self)

    def put(self, rows: Indices, lists: Lists) -> None:
        """Replace the lists of the given rows, in place."""
        for array, values in zip(self, lists, strict=True):
            array[rows] = values


def empty_lists(n: int, length: int, limit: float) -> Lists:
    """Return n empty lists of at most ``length`` entries nearer than ``limit``."""
    return Lists(
        slots=np.full((n, length), -1, dtype=np.int32),
        distances=np.full((n, length), np.inf, dtype=np.float32),
        horizons=np.full(n, limit, dtype=np.float32),
        sizes=np.zeros(n, dtype=np.int32),
    )


def edge_weights(distances: Single, sizes: Slots, n_neighbors: int) -> Single:
    """Return heat weights (n, k) of the k nearest neighbours, 0 if a list has fewer entries."""
    k = min(n_neighbors, distances.shape[1])
    nearest = distances[:, :k]
    used = np.arange(k) < sizes[:, None]
    last = np.minimum(sizes, k) - 1
    widths = np.take_along_axis(distances, np.maximum(last, 0)[:, None], axis=1)
    shares = np.divide(nearest, widths, out=np.zeros_like(nearest), where=used & (widths > 0))
    return np.where(used, np.exp(np.float32(-SHARPNESS) * shares), np.float32(0.0))


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

    def validate(self) -> None:
        """Raise a ValueError if compiled loops would leave the blocks or the lists."""
        length = int(np.ceil(SPARE * self.n_neighbors))
        same = self.lists.slots.shape[1] == length > 0
        expect(same, f"lists of {SPARE} * {self.n_neighbors} > 0 entries")
        sizes, rows = [each.size for each in self.blocks], [each.rows for each in self.blocks]
        expect(all(size == BLOCK for size in sizes[:-1]), f"blocks of {BLOCK} rows")
        expect(0 < sizes[-1] <= BLOCK and sum(sizes) == self.size, "a list for every row")
        widths = {each.shape[1] for each in rows}
        if isinstance(self.metric, Euclidean):
            widths.add(self.metric.centre.size)
        expect(len(widths) == 1, "rows of the same columns")
        formats = {sp.issparse(each) for each in rows}
        expect(len(formats) == 1, "rows of the same format")
        expect(formats == {False} or not self.metric.refines, "dense rows")

    def for_file(self) -> KeptRows:
        """Return the rows without their sketches, which `from_file` computes."""
        blocks = (without_sketch(block.rows, block.norms) for block in self.blocks)
        return replace(self, blocks=tuple(blocks))

    def from_file(self) -> KeptRows:
        """Return the rows with their sketches."""
        return replace(self, blocks=tuple(map(self.metric.restored, self.blocks)))

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.lists.n_lists

    @property
    def device(self) -> str:
        """Name of the device; see `seqmed.graph.device` for others."""
        return "cpu"

    @property
    def list_length(self) -> int:
        """Largest number of entries of a list."""
        return int(self.lists.slots.shape[1])

    def store(self, points: Points) -> Stored:
        """Return rows in the stored form."""
        return self.metric.store(points)

    def placed(self, stored: Stored) -> Stored:
        """Return stored rows on the device."""
        return stored

    def emptied(self, metric: Metric) -> KeptRows:
        """Return no rows, of another metric."""
        return no_kept_rows(metric, self.n_neighbors)

    def lists_of(self, slots: Indices) -> Lists:
        """Return the lists of some rows."""
        return self.lists.take(slots)

    def likely_equal(self, rows: Points) -> Indices:
        """Return the slots of rows whose bits have the same sum as those of one of ``rows``."""
        sums = bit_sums(rows)
        likely = [np.isin(bit_sums(block.rows), sums) for block in self.blocks]
        return np.flatnonzero(np.concatenate(likely))

    def take(self, slots: Indices) -> Stored:
        """Return the rows of the given slots, in their order."""
        numbers, places = np.divmod(slots, BLOCK)
        parts = [self.blocks[n].take(places[numbers == n]) for n in np.unique(numbers)]
        rows = joined_rows(parts or [self.blocks[0].take(places)])
        return rows.take(np.argsort(np.argsort(numbers, kind="stable")))

    def search(self, queries: Stored, own: NDArray[Any] | None = None, length: int = 0) -> Lists:
        """Return the nearest rows of every query.

        Parameters
        ----------
        queries : m rows as the metric stores them.
        own : (m,) slot to be left out for each query; -1 or None for none.
        length : number of entries, `n_neighbors` by default.
        """
        from seqmed.graph.neighbour_search import Scan  # numba is imported by the first update

        found = empty_lists(queries.size, length or self.n_neighbors, self.metric.limit)
        own = np.full(queries.size, -1, np.int32) if own is None else own.astype(np.int32)

        def fill(part: list[slice]) -> None:
            scan = Scan(self.metric, self.blocks)
            for rows in part:
                scan.nearest(queries.take(rows), own[rows], found.take(rows))

        cut = strips(queries.size, self.size)
        count = min(allowed_threads(), len(cut))
        run_in_threads(fill, (cut[n::count] for n in range(count)), queries.size * self.size)
        return found

    def put(self, slots: Indices, entering: Stored) -> KeptRows:
        """Return the rows with ``entering`` in the given distinct slots.

        Slots from `size` on are new and must be consecutive. Rows in other slots are replaced.
        """
        from seqmed.graph.neighbour_search import Scan, drop

        if not slots.size:
            return self
        size, limit = max(self.size, int(slots.max()) + 1), self.metric.limit
        gone = np.zeros(size, dtype=bool)
        gone[slots] = True
        length = self.lists.slots.shape[1]
        more = empty_lists(size - self.size, length, limit)
        lists = Lists._make(np.concatenate(pair) for pair in zip(self.lists, more, strict=True))
        drop(tuple(lists), gone)
        lists.horizons[slots] = -np.inf  # entering rows get their lists last
        kept = replace(self, blocks=with_rows(self.blocks, slots, entering), lists=lists)
        own, found = slots.astype(np.int32), empty_lists(slots.size, length, limit)
        scan = Scan(self.metric, kept.blocks)
        for rows in strips(slots.size, size):
            scan.nearest(entering.take(rows), own[rows], found.take(rows), lists)
        lists.put(slots, found)
        complete = lists.horizons == np.float32(limit)
        short = np.flatnonzero((lists.sizes < self.n_neighbors) & ~complete)
        if short.size:  # deletions have made their lists too short
            lists.put(short, kept.search(kept.take(short), own=short, length=length))
        metric = self.metric.remeasured(kept.blocks, size)
        if metric is None:
            return kept
        return replace(kept, metric=metric, blocks=tuple(map(metric.restored, kept.blocks)))


def no_kept_rows(metric: Metric, n_neighbors: int) -> KeptRows:
    """Return an empty set of kept rows."""
    length = int(np.ceil(SPARE * n_neighbors))
    return KeptRows(metric, n_neighbors, (), empty_lists(0, length, metric.limit))


def nearest_of_both(
    metric: Metric, length: int, one: Stored, first: int, other: Stored, second: int
) -> tuple[Lists, Lists]:
    """Return the nearest rows of one set in the other, and the reverse.

    The sets are consecutive rows. Their slots begin at ``first`` and ``second``, which are equal
    for a set and itself. The lists have at most ``length`` entries.
    """

    def nearest(queries: Stored, rows: Stored, start: int) -> Lists:
        blocks = tuple(rows.take(slice(at, at + BLOCK)) for at in range(0, rows.size, BLOCK))
        kept = KeptRows(metric, length, blocks, empty_lists(rows.size, length, metric.limit))
        own = np.arange(rows.size) if first == second else None
        found = kept.search(queries, own)
        return found._replace(slots=np.where(found.slots >= 0, found.slots + np.int32(start), -1))

    return nearest(one, other, second), nearest(other, one, first)


def joined_lists(parts: Sequence[Lists], length: int, limit: float) -> Lists:
    """Return the nearest entries of the lists of the same rows; equal ones in order of slots.

    The parts have entries of different slots. ``limit`` is that of the metric.
    """
    slots = np.concatenate([part.slots for part in parts], axis=1)
    distances = np.concatenate([part.distances for part in parts], axis=1)
    order = np.lexsort((slots, distances), axis=1)[:, :length]
    found = empty_lists(slots.shape[0], length, limit)
    width = order.shape[1]
    found.slots[:, :width] = np.take_along_axis(slots, order, axis=1)
    found.distances[:, :width] = np.take_along_axis(distances, order, axis=1)
    found.sizes[:] = np.isfinite(found.distances).sum(axis=1)
    full = found.sizes == length
    found.horizons[full] = found.distances[full, -1]
    return found


def strips(n: int, n_rows: int) -> list[slice]:
    """Return slices of queries that cover n queries of ``n_rows`` rows: see `STRIP`, `PRODUCTS`."""
    size = min(STRIP, max(FEWEST_QUERIES, PRODUCTS // max(1, n_rows)))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def joined_rows(parts: Sequence[Stored]) -> Stored:
    """Return the rows of all parts, concatenated."""
    rows, norms, sketches = zip(*parts, strict=True)
    joined = sp.vstack(rows, format="csr") if sp.issparse(rows[0]) else np.concatenate(rows)
    return Stored(joined, np.concatenate(norms), np.concatenate(sketches))


def with_rows(blocks: tuple[Stored, ...], slots: Indices, entering: Stored) -> tuple[Stored, ...]:
    """Return the blocks with rows put in the given slots; unchanged blocks are shared."""
    result = list(blocks)
    for number in np.unique(slots // BLOCK):
        chosen = np.flatnonzero(slots // BLOCK == number)
        places, new = slots[chosen] - number * BLOCK, entering.take(chosen)
        block = result[number] if number < len(result) else entering.take(slice(0))
        result[number : number + 1] = [with_places(block, places, new)]
    return tuple(result)


def with_places(block: Stored, places: Indices, new: Stored) -> Stored:
    """Return a copy of a block with new rows in the given places.

    Places from the size of the block on must be consecutive.
    """
    size = max(block.size, int(places.max()) + 1)
    if sp.issparse(block.rows):
        source = np.arange(size)
        source[places] = block.size + np.arange(places.size)
        return joined_rows([block, new]).take(source)
    # most updates change most blocks, so each array is copied only once
    arrays = [np.empty((size, *array.shape[1:]), dtype=array.dtype) for array in block]
    for array, old, entering in zip(arrays, block, new, strict=True):
        array[: block.size] = old
        array[places] = entering
    return Stored(*arrays)

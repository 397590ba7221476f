"""Exact nearest neighbours among the kept rows, in strips of queries and blocks of rows.

Inner products give distances or lower bounds of them. Compiled loops find the few rows that may be
neighbours, compute their exact distances, and insert them in sorted lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqmed.graph.metrics import Metric, Stored
from seqmed.numeric.arrays import Mask, Single, Slots
from seqmed.numeric.execution import compiled

if TYPE_CHECKING:
    from seqmed.graph.kept_rows import Lists

# To find k rows, the rows are divided into at least `GROUPS` * k groups. The nearest row of each
# group is found by inner products. The nearest k + `GUESSES` of these rows are compared exactly,
# and their distances bound the search.
GROUPS, GUESSES = 4, 3
# Number of groups that are updated at once by vector instructions.
LANES = 64
# Number of comparisons that are tested at once, as one 64-bit integer.
WORD = 8

# Unit roundoff of single precision.
ROUNDOFF = 2.0**-24

# Arguments of compiled loops are plain tuples of arrays: numba's cache names the classes of a
# signature, and raises an error if one of them was renamed or moved.
ListArrays = tuple[Any, ...]
"""The arrays of `seqmed.graph.kept_rows.Lists`."""
Numbers = NDArray[np.uint32]
SideArrays = tuple[Single, Single, Slots]
"""Rows prepared for a comparison with other rows.

They are rows (m, p) for exact distances, or (m, 0) if inner products already give exact distances;
squared norms (m,) minus a bound on rounding errors; and the slots (m,) of the rows, -1 for a row
that is not kept.
"""


class Scan:
    """A search through all blocks, strip by strip, in memory that is reused."""

    def __init__(self, metric: Metric, blocks: tuple[Stored, ...]) -> None:
        self.metric, self.blocks = metric, blocks
        dense = all(isinstance(block.rows, np.ndarray) for block in blocks)
        self.unit = metric.unit_norms
        # a product of dense rows of unit length is rounded differently among other rows
        self.refines = metric.refines or (self.unit and dense)
        ends = np.cumsum([0, *(block.size for block in blocks)], dtype=np.int32)
        self.size = int(ends[-1])
        self.sides = [
            self.side(block, np.arange(first, last, dtype=np.int32))
            for block, first, last in zip(blocks, ends[:-1], ends[1:], strict=True)
        ]
        self.memory = np.empty(0, dtype=np.float32)

    def side(self, stored: Stored, slots: Slots) -> SideArrays:
        """Return rows prepared for comparisons.

        Norms are reduced by a bound on the rounding errors of sketches, products and distances.
        """
        if not self.refines:
            return np.zeros((stored.size, 0), dtype=np.float32), stored.norms, slots
        slack = (8 * stored.rows.shape[1] + 32) * ROUNDOFF
        return stored.rows, np.float32(1.0 - slack) * stored.norms, slots

    def nearest(
        self, queries: Stored, own: Slots, found: Lists, receiving: Lists | None = None
    ) -> None:
        """Write the nearest rows of the queries, and insert the queries in ``receiving``.

        Parameters
        ----------
        queries : the rows of a strip.
        own : (m,) slot to be left out for each query; -1 for none.
        found : m empty lists; changed in place.
        receiving : lists of all kept rows, changed in place; None if the queries are not kept rows.
        """
        strip, length = self.side(queries, own), found.slots.shape[1]
        shape = queries.size, -(-GROUPS * length // LANES) * LANES
        values = np.full(shape, np.inf, dtype=np.float32)
        slots = np.full(shape, -1, dtype=np.int32)
        if self.memory.size < queries.size * self.size:
            self.memory = np.empty(queries.size * self.size, dtype=np.float32)
        compared, start = [], 0
        for stored, block in zip(self.blocks, self.sides, strict=True):
            stop = start + queries.size * stored.size
            products = self.memory[start:stop].reshape(queries.size, stored.size)
            self.metric.products(queries, stored, products)
            nearest_of_groups(products, block, values, slots)
            compared.append((products, block))
            start = stop
        radii = np.nextafter(self.radii(values, slots, strip, length), np.float32(np.inf))
        np.minimum(radii, found.horizons, out=found.horizons)
        for products, block in compared:
            insert_pairs(products, strip, block, tuple(found), self.unit, False)
            if receiving is not None:
                part = receiving.take(slice(block[2][0], block[2][-1] + 1))
                insert_pairs(products, strip, block, tuple(part), self.unit, True)

    def radii(self, values: Single, slots: Slots, strip: SideArrays, length: int) -> Single:
        """Return squared distances (m,) within which there are at least ``length`` rows.

        Parameters
        ----------
        values, slots : (m, g) as written by `nearest_of_groups`.
        strip : the queries.
        length : number of rows.
        """
        _, norms, own = strip
        itself = slots == own[:, None]
        values[itself], slots[itself] = np.inf, -1
        chosen = np.argpartition(values, length + GUESSES, axis=1)[:, : length + GUESSES]
        guesses = np.take_along_axis(slots, chosen, axis=1)
        distances = norms[:, None] + np.take_along_axis(values, chosen, axis=1)
        if self.refines:
            for block in self.sides:
                measure(guesses, strip, block, distances, self.unit)
        return np.maximum(np.partition(distances, length - 1, axis=1)[:, length - 1], 0.0)


@compiled(nogil=True, fastmath={"reassoc", "contract"})
def squared_distance(first: Single, second: Single) -> np.float32:
    """Return the squared Euclidean distance of two rows; symmetric to the last bit."""
    total = np.float32(0.0)
    for column in range(first.size):
        difference = first[column] - second[column]
        total += difference * difference
    return total


@compiled(nogil=True, fastmath={"reassoc", "contract"})
def cosine_distance(first: Single, second: Single) -> np.float32:
    """Return ``2 - 2 cos`` of two rows of unit length; symmetric to the last bit."""
    total = np.float32(0.0)
    for column in range(first.size):
        total += first[column] * second[column]
    return max(np.float32(2.0) - np.float32(2.0) * total, np.float32(0.0))


@compiled(nogil=True, inline="always")
def insert(
    slots: Slots, distances: Single, size: int, horizon: float, slot: int, distance: float
) -> tuple[int, float]:
    """Insert an entry nearer than the horizon in a list; a full list loses its last entry.

    Returns the size and the horizon of the list.
    """
    place = size
    if size == slots.size:
        if distance >= distances[size - 1]:
            return size, distance
        place = size - 1
        horizon = distances[place]
    else:
        size += 1
    while place > 0 and distances[place - 1] > distance:
        slots[place] = slots[place - 1]
        distances[place] = distances[place - 1]
        place -= 1
    slots[place] = slot
    distances[place] = distance
    return size, horizon


@compiled(nogil=True)
def find_below(products: Single, norms: Single, limits: Single) -> tuple[Numbers, Numbers]:
    """Return the pairs of a query and a row with ``norm - 2 product <= limit``, query by query.

    Comparisons are vectorised. `WORD` results are tested at once, because most rows are too far
    away. Indices are unsigned, because loops over signed indices would not be vectorised.

    Parameters
    ----------
    products : (m, b) float32, inner products.
    norms : (b,) float32.
    limits : (m,) float32.
    """
    n_words = (norms.size + WORD - 1) // WORD
    flags = np.zeros(n_words * WORD, dtype=np.bool_)
    words = flags.view(np.uint64)
    queries = np.empty(products.size + WORD, dtype=np.uint32)
    rows = np.empty(products.size + WORD, dtype=np.uint32)
    count = np.uint64(0)
    for query in range(limits.size):
        values, limit = products[query], limits[query]
        for row in range(np.uint64(norms.size)):
            flags[row] = norms[row] - np.float32(2.0) * values[row] <= limit
        for place in range(np.uint64(n_words)):
            if words[place]:
                start = np.uint64(WORD) * place
                for row in range(start, start + np.uint64(WORD)):
                    queries[count], rows[count] = query, row
                    count += np.uint64(flags[row])
    return queries[:count], rows[:count]


@compiled(nogil=True)
def pair_distances(
    products: Single, queries: SideArrays, block: SideArrays, pairs: tuple[Numbers, Numbers],
    unit: bool,
) -> Single:  # fmt: skip
    """Return squared distances of the pairs that `find_below` has found.

    If the block has the rows, distances are computed from them, pair by pair, so that they do not
    depend on the other queries; ``unit`` is whether the rows have unit length. Otherwise they are
    ``|q|^2 + |b|^2 - 2 q.b``. A separate loop is twice as fast as one that also inserts in lists.
    """
    (points, query_norms, _), (rows, norms, _) = queries, block
    distances = np.empty(pairs[0].size, dtype=np.float32)
    for place in range(distances.size):
        query, row = pairs[0][place], pairs[1][place]
        if rows.shape[1] == 0:
            rest = norms[row] - np.float32(2.0) * products[query, row]
            distances[place] = max(query_norms[query] + rest, np.float32(0.0))
        elif unit:
            distances[place] = cosine_distance(points[query], rows[row])
        else:
            distances[place] = squared_distance(points[query], rows[row])
    return distances


@compiled(nogil=True)
def nearest_of_groups(products: Single, block: SideArrays, values: Single, slots: Slots) -> None:
    """Update the row with the smallest ``norm - 2 product`` in each of g groups, for every query.

    Row i of a block is in group ``i % g``, so that groups are compared by vector instructions.

    Parameters
    ----------
    products : (m, b) float32, inner products.
    block : the rows.
    values : (m, g) float32, the smallest values so far, inf for none; g is a multiple of `LANES`.
        Changed in place.
    slots : (m, g) int32, the slots of these rows. Changed in place.
    """
    _, norms, block_slots = block
    n_rows, n_groups, lanes = np.uint64(norms.size), np.uint64(values.shape[1]), np.uint64(LANES)
    whole = n_rows // lanes * lanes
    for query in range(products.shape[0]):
        for start in range(np.uint64(0), whole, lanes):
            first = start % n_groups
            for lane in range(lanes):
                value = norms[start + lane] - np.float32(2.0) * products[query, start + lane]
                if value < values[query, first + lane]:
                    values[query, first + lane] = value
                    slots[query, first + lane] = block_slots[start + lane]
        for row in range(whole, n_rows):
            value = norms[row] - np.float32(2.0) * products[query, row]
            if value < values[query, row % n_groups]:
                values[query, row % n_groups] = value
                slots[query, row % n_groups] = block_slots[row]


@compiled(nogil=True)
def insert_pairs(
    products: Single,
    queries: SideArrays,
    block: SideArrays,
    lists: ListArrays,
    unit: bool,
    reverse: bool,
) -> None:
    """Insert the rows of a block in the lists of queries, or the reverse; no row in its own list.

    The lower bound of a squared distance is ``|q|^2 + |b|^2 - 2 q.b``. If the block has no rows to
    compute distances from, this bound is the distance itself.

    Parameters
    ----------
    products : (m, b) float32, inner products.
    queries, block : the two sets of rows.
    lists : lists of the m queries, or of the b rows if ``reverse``; changed in place. A list with
        horizon -inf is not changed.
    unit : whether the rows have unit length.
    """
    slots, distances, horizons, sizes = lists
    (_, norms, own), (_, block_norms, block_slots) = queries, block
    if reverse:
        pairs = find_below(products, block_norms - horizons, -norms)
    else:
        pairs = find_below(products, block_norms, horizons - norms)
    computed = pair_distances(products, queries, block, pairs, unit)
    for place in range(computed.size):
        query, row, distance = pairs[0][place], pairs[1][place], computed[place]
        owner, slot = (row, own[query]) if reverse else (query, block_slots[row])
        if distance < horizons[owner] and block_slots[row] != own[query]:
            sizes[owner], horizons[owner] = insert(
                slots[owner], distances[owner], sizes[owner], horizons[owner], slot, distance
            )


@compiled(nogil=True)
def measure(
    guesses: Slots, queries: SideArrays, block: SideArrays, distances: Single, unit: bool
) -> None:
    """Write squared distances (m, g) between queries and the guessed rows of a block.

    Guesses are slots, -1 for none. The slots of the block are consecutive. Guesses in other blocks
    are skipped.
    """
    (points, _, _), (rows, _, slots) = queries, block
    first, last = slots[0], slots[-1]
    for query in range(guesses.shape[0]):
        point = points[query]
        for place in range(guesses.shape[1]):
            slot = guesses[query, place]
            if first <= slot <= last and unit:
                distances[query, place] = cosine_distance(point, rows[slot - first])
            elif first <= slot <= last:
                distances[query, place] = squared_distance(point, rows[slot - first])


@compiled(nogil=True)
def drop(lists: ListArrays, gone: Mask) -> None:
    """Delete the entries of slots in the mask ``gone`` (n,) from all lists."""
    slots, distances, _, sizes = lists
    for row in range(sizes.size):
        kept = 0
        for entry in range(sizes[row]):
            slot = slots[row, entry]
            if not gone[slot]:
                slots[row, kept] = slot
                distances[row, kept] = distances[row, entry]
                kept += 1
        for entry in range(kept, sizes[row]):
            slots[row, entry] = -1
            distances[row, entry] = np.inf
        sizes[row] = kept

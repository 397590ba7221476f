"""The compiled loops of the graph: search, insertion and deletion in lists, and products.

`Lists` and `ComparedRows` are passed as plain tuples: numba's cache names the classes of a
signature, and raises an error if one of them was renamed or moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.graph.neighbours import Single, Slots
from seqmed.numeric.arrays import Indices, Mask
from seqmed.numeric.compiled import compiled

# The arrays of `seqmed.graph.kept_rows.Lists`, and of `ComparedRows`.
Lists = tuple[Any, ...]
ComparedRows = tuple[Any, ...]

# Number of comparisons that are tested at once, as one 64-bit integer.
WORD = 8
# Residuals that are never too large: far from labels, values may underflow.
SMALLEST_RESIDUAL = np.float32(1e-30)
# Number of groups that are updated at once by vector instructions.
LANES = 64


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
def find_below(
    products: Single, norms: Single, limits: Single
) -> tuple[NDArray[np.uint32], Indices]:
    """Return the rows with ``norm - 2 product <= limit`` for every query.

    Comparisons are vectorised. `WORD` results are tested at once, because most rows are too far
    away. Indices are unsigned, because loops over signed indices would not be vectorised.

    Parameters
    ----------
    products : (m, b) float32, inner products.
    norms : (b,) float32.
    limits : (m,) float32.

    Returns
    -------
    found : row indices, grouped by query.
    ends : (m,) where the rows of each query end.
    """
    n_words = (norms.size + WORD - 1) // WORD
    flags = np.zeros(n_words * WORD, dtype=np.bool_)
    words = flags.view(np.uint64)
    found = np.empty(products.size + WORD, dtype=np.uint32)
    ends = np.empty(limits.size, dtype=np.intp)
    count = np.uint64(0)
    for query in range(limits.size):
        values, limit = products[query], limits[query]
        for row in range(np.uint64(norms.size)):
            flags[row] = norms[row] - np.float32(2.0) * values[row] <= limit
        for place in range(np.uint64(n_words)):
            if words[place]:
                start = np.uint64(WORD) * place
                for row in range(start, start + np.uint64(WORD)):
                    found[count] = row
                    count += np.uint64(flags[row])
        ends[query] = count
    return found[:count], ends


@compiled(nogil=True)
def found_distances(
    products: Single,
    queries: ComparedRows,
    block: ComparedRows,
    found: NDArray[np.uint32],
    ends: Indices,
    unit: bool,
) -> Single:
    """Return squared distances of queries to the rows that `find_below` has found for them.

    If the block has the rows, distances are computed from them, pair by pair, so that they do not
    depend on the other queries; ``unit`` is whether the rows have unit length. Otherwise they are
    ``|q|^2 + |b|^2 - 2 q.b``. A separate loop is twice as fast as one that also inserts in lists.
    """
    (points, query_norms, _), (rows, norms, _) = queries, block
    distances = np.empty(found.size, dtype=np.float32)
    start = 0
    for query in range(ends.size):
        values, norm, point = products[query], query_norms[query], points[query]
        for place in range(start, ends[query]):
            row = found[place]
            if rows.shape[1] == 0:
                distance = norm + (norms[row] - np.float32(2.0) * values[row])
                distances[place] = max(distance, np.float32(0.0))
            elif unit:
                distances[place] = cosine_distance(point, rows[row])
            else:
                distances[place] = squared_distance(point, rows[row])
        start = ends[query]
    return distances


@compiled(nogil=True)
def nearest_of_groups(products: Single, block: ComparedRows, values: Single, slots: Slots) -> None:
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
def insert_rows(
    products: Single, queries: ComparedRows, block: ComparedRows, lists: Lists, unit: bool
) -> None:
    """Insert the rows of a block in the lists of queries, except for a query itself.

    The lower bound of a squared distance is ``|q|^2 + |b|^2 - 2 q.b``. If the block has no rows to
    compute distances from, this bound is the distance itself.

    Parameters
    ----------
    products : (m, b) float32, inner products.
    queries, block : the two sets of rows.
    lists : lists of the m queries; changed in place.
    unit : whether the rows have unit length.
    """
    slots, distances, horizons, sizes = lists
    (_, norms, own), (_, block_norms, block_slots) = queries, block
    found, ends = find_below(products, block_norms, horizons - norms)
    computed = found_distances(products, queries, block, found, ends, unit)
    start = 0
    for query in range(ends.size):
        for place in range(start, ends[query]):
            distance, slot = computed[place], block_slots[found[place]]
            if distance < horizons[query] and slot != own[query]:
                sizes[query], horizons[query] = insert(
                    slots[query], distances[query], sizes[query], horizons[query], slot, distance
                )
        start = ends[query]


@compiled(nogil=True)
def insert_queries(
    products: Single, queries: ComparedRows, block: ComparedRows, lists: Lists, unit: bool
) -> None:
    """Insert queries in the lists of the rows of a block; the reverse of `insert_rows`.

    ``lists`` are those of the b rows; changed in place. The list of a row with horizon -inf is not
    changed.
    """
    slots, distances, horizons, sizes = lists
    (_, norms, own), (_, block_norms, _) = queries, block
    found, ends = find_below(products, block_norms - horizons, -norms)
    computed = found_distances(products, queries, block, found, ends, unit)
    start = 0
    for query in range(ends.size):
        for place in range(start, ends[query]):
            row, distance = found[place], computed[place]
            if distance < horizons[row]:
                sizes[row], horizons[row] = insert(
                    slots[row], distances[row], sizes[row], horizons[row],
                    own[query], distance,
                )  # fmt: skip
        start = ends[query]


@compiled(nogil=True)
def measure(
    guesses: Slots, queries: ComparedRows, block: ComparedRows, distances: Single, unit: bool
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
def drop(lists: Lists, gone: Mask) -> None:
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


@compiled(nogil=True, fastmath={"contract"})
def multiply(slots: Slots, weights: Single, values: Single, out: Single) -> None:
    """Add ``(A + A') values`` to ``out``, both (n, K), for a matrix A given by lists.

    ``weights`` (n, k) is 0 where a list has fewer than k entries. Indices are unsigned, so that the
    loops over columns are vectorised. A multiple of 8 columns is fastest.
    """
    columns = np.uint64(values.shape[1])
    for row in range(np.uint64(weights.shape[0])):
        for entry in range(np.uint64(weights.shape[1])):
            weight = weights[row, entry]
            if weight != 0:
                other = np.uint64(slots[row, entry])
                for column in range(columns):
                    out[row, column] += weight * values[other, column]
                for column in range(columns):
                    out[other, column] += weight * values[row, column]


@compiled(nogil=True, fastmath={"contract"})
def take_step(
    values: Single, residual: Single, direction: Single, image: Single, step: Single
) -> Single:
    """Take a step (K,) of conjugate gradients in place; return the squared residual norms (K,).

    ``image`` is the product of the matrix and ``direction``; all are (n, K). This function and
    `update_direction` are two to three times as fast as numpy.
    """
    columns = np.uint64(values.shape[1])
    squares = np.zeros(columns, dtype=np.float32)
    for row in range(np.uint64(values.shape[0])):
        for column in range(columns):
            values[row, column] += step[column] * direction[row, column]
        for column in range(columns):
            residual[row, column] -= step[column] * image[row, column]
        for column in range(columns):
            squares[column] += residual[row, column] * residual[row, column]
    return squares


@compiled(nogil=True)
def connected_rows(slots: Slots, weights: Single, rows: Mask) -> Mask:
    """Return a mask (n,) of the rows that have a path to one of ``rows``, a mask (n,).

    Components are trees of parents, each with its first row as the root.
    """
    n = rows.size
    parents = np.arange(n)
    for row in range(n):
        for entry in range(slots.shape[1]):
            if weights[row, entry] != 0:
                one, other = row, int(slots[row, entry])
                while parents[one] != one:
                    parents[one] = parents[parents[one]]
                    one = parents[one]
                while parents[other] != other:
                    parents[other] = parents[parents[other]]
                    other = parents[other]
                parents[max(one, other)] = min(one, other)
    found = np.zeros(n, dtype=np.bool_)
    for row in range(n):  # parents come before their children
        parents[row] = parents[parents[row]]
        found[parents[row]] |= rows[row]
    return found[parents]


@compiled(nogil=True, fastmath={"contract"})
def unsolved_row(values: Single, residual: Single, share: np.float32, first: int) -> int:
    """Return a row whose residual is larger than a share of its values, -1 if there is none.

    ``values`` and ``residual`` are (n, K). The comparison begins with row ``first``: a row found at
    one step of the solver is mostly found again at the next.
    """
    n, columns = values.shape[0], np.uint64(values.shape[1])
    for place in range(n):
        row = np.uint64((place + first) % n)
        total = largest = np.float32(0.0)
        for column in range(columns):
            total += abs(values[row, column])
            largest = max(largest, abs(residual[row, column]))
        if largest > share * total + SMALLEST_RESIDUAL:
            return int(row)
    return -1


@compiled(nogil=True, fastmath={"contract"})
def update_direction(direction: Single, residual: Single, ratio: Single) -> None:
    """Replace a direction (n, K) by the residual plus ``ratio`` (K,) times itself."""
    for row in range(np.uint64(direction.shape[0])):
        for column in range(np.uint64(direction.shape[1])):
            direction[row, column] = residual[row, column] + ratio[column] * direction[row, column]

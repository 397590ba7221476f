"""The compiled loops of the graph: search, insertion and deletion in lists, and products."""

from __future__ import annotations

import numpy as np
from numba import njit

# Distances that are compared with a horizon at a time; most are too large.
WORD = 64


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def squared_distance(first, second):
    """Return the squared Euclidean distance of two rows; symmetric to the last bit."""
    total = np.float32(0.0)
    for column in range(first.size):
        difference = first[column] - second[column]
        total += difference * difference
    return total


@njit(cache=True, nogil=True, inline="always")
def insert(slots, distances, size, horizon, slot, distance):
    """Insert an entry nearer than the horizon in a list; a full one gives up its last entry.

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


@njit(cache=True, nogil=True, inline="always")
def below(products, norms, start, limit):
    """Return the rows from ``start`` on with ``norm - 2 product < limit`` as bits of a word.

    Indices are unsigned: signed ones might be negative, and the loop would not be vectorised.
    """
    word, bits = np.uint64(0), np.uint64(WORD)
    if start + bits <= np.uint64(products.size):
        for k in range(bits):
            near = norms[start + k] - np.float32(2.0) * products[start + k] < limit
            word |= np.uint64(near) << k
    else:
        for k in range(np.uint64(products.size) - start):
            near = norms[start + k] - np.float32(2.0) * products[start + k] < limit
            word |= np.uint64(near) << k
    return word


@njit(cache=True, nogil=True, inline="always")
def lowest_bit(word):
    """Return the place of the lowest bit of a word that is set, by halving."""
    place, half = np.uint64(0), np.uint64(WORD // 2)
    while half:
        if not word & ((np.uint64(1) << half) - np.uint64(1)):
            word >>= half
            place += half
        half >>= np.uint64(1)
    return place


@njit(cache=True, nogil=True)
def offer(products, queries, block, lists):
    """Offer every row of a block to the lists of some queries, but for a query itself.

    Squared distances are at least ``|q|^2 + |b|^2 - 2 q.b``. They are that, unless there are rows
    to compute them from.

    Parameters
    ----------
    products : (m, b) float32, inner products.
    queries, block : the two sides.
    lists : of the m queries; changed in place.
    """
    rows, norms, slots = block
    query_rows, query_norms, query_slots = queries
    all_slots, all_distances, horizons, sizes = lists
    exact = rows.shape[1] == 0
    for query in range(products.shape[0]):
        values, norm, own = products[query], query_norms[query], query_slots[query]
        point, entries, distances = query_rows[query], all_slots[query], all_distances[query]
        size, horizon = sizes[query], horizons[query]
        for start in range(np.uint64(0), np.uint64(values.size), np.uint64(WORD)):
            word = below(values, norms, start, horizon - norm)
            while word:
                row = start + lowest_bit(word)
                word &= word - np.uint64(1)
                if slots[row] == own:
                    continue
                if exact:
                    distance = norm + (norms[row] - np.float32(2.0) * values[row])
                    distance = max(distance, np.float32(0.0))
                else:
                    distance = squared_distance(point, rows[row])
                if distance < horizon:
                    size, horizon = insert(entries, distances, size, horizon, slots[row], distance)
        sizes[query], horizons[query] = size, horizon


@njit(cache=True, nogil=True)
def receive(products, queries, block, lists):
    """Insert some queries in the lists of the rows of a block: `offer` the other way round.

    ``lists`` are those of the b rows; changed in place. A row of horizon -inf receives nothing.
    """
    rows, norms, _ = block
    query_rows, query_norms, query_slots = queries
    slots, distances, horizons, sizes = lists
    exact = rows.shape[1] == 0
    gaps = norms - horizons  # horizons shrink meanwhile, so these are lower bounds
    for query in range(products.shape[0]):
        values, norm, point = products[query], query_norms[query], query_rows[query]
        for start in range(np.uint64(0), np.uint64(values.size), np.uint64(WORD)):
            word = below(values, gaps, start, -norm)
            while word:
                row = start + lowest_bit(word)
                word &= word - np.uint64(1)
                if exact:
                    distance = norm + (norms[row] - np.float32(2.0) * values[row])
                    distance = max(distance, np.float32(0.0))
                else:
                    distance = squared_distance(point, rows[row])
                if distance < horizons[row]:
                    sizes[row], horizons[row] = insert(
                        slots[row], distances[row], sizes[row], horizons[row],
                        query_slots[query], distance,
                    )  # fmt: skip


@njit(cache=True, nogil=True)
def measure(guesses, queries, block, lists):
    """Insert guessed neighbours (m, g) that are in a block in the lists of the queries.

    Guesses are slots, -1 for none; the slots of the block follow each other.
    """
    rows, norms, slots = block
    query_rows, all_slots, all_distances = queries.rows, lists.slots, lists.distances
    horizons, sizes = lists.horizons, lists.sizes
    for query in range(guesses.shape[0]):
        for guess in guesses[query]:
            row = guess - slots[0]
            if 0 <= row < norms.size:
                distance = squared_distance(query_rows[query], rows[row])
                if distance < horizons[query]:
                    sizes[query], horizons[query] = insert(
                        all_slots[query], all_distances[query], sizes[query], horizons[query],
                        guess, distance,
                    )  # fmt: skip


@njit(cache=True, nogil=True)
def drop(lists, gone):
    """Delete the entries of slots in the mask ``gone`` (n,) from all lists."""
    for row in range(lists.sizes.size):
        kept = 0
        for entry in range(lists.sizes[row]):
            slot = lists.slots[row, entry]
            if not gone[slot]:
                lists.slots[row, kept] = slot
                lists.distances[row, kept] = lists.distances[row, entry]
                kept += 1
        for entry in range(kept, lists.sizes[row]):
            lists.slots[row, entry] = -1
            lists.distances[row, entry] = np.inf
        lists.sizes[row] = kept


@njit(cache=True, nogil=True, fastmath={"contract"})
def multiply(slots, weights, values, out):
    """Add ``(A + A') values`` to ``out``, both (n, K), for a matrix A given by lists.

    ``weights`` (n, k) is 0 where a list has fewer than k entries. Indices are unsigned, so that the
    loops over columns are vectorised; they are best with a multiple of 8 columns.
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


@njit(cache=True, nogil=True, fastmath={"contract"})
def advance(values, residual, direction, image, step):
    """Go a step (K,) in a direction with this image, all (n, K); return the squares of residuals.

    Two or three times as fast as the same with numpy, as is `turn`.
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


@njit(cache=True, nogil=True, fastmath={"contract"})
def turn(direction, residual, ratio):
    """Replace a direction (n, K) by the residual plus ``ratio`` (K,) times itself."""
    for row in range(np.uint64(direction.shape[0])):
        for column in range(np.uint64(direction.shape[1])):
            direction[row, column] = residual[row, column] + ratio[column] * direction[row, column]

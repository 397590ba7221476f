"""The compiled loops of the graph: search, insertion and deletion in lists, and products."""

from __future__ import annotations

import numpy as np
from numba import njit

# Distances that are compared with a horizon several at a time; most are too large.
CHUNK = 64


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def squared_distance(first, second):
    """Return the squared Euclidean distance of two rows; symmetric to the last bit."""
    total = np.float32(0.0)
    for column in range(first.size):
        difference = first[column] - second[column]
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def insert(lists, row, slot, distance):
    """Insert an entry nearer than the horizon; a full list gives up its last entry."""
    slots, distances = lists.slots[row], lists.distances[row]
    size = lists.sizes[row]
    if size == slots.size:
        if distance >= distances[size - 1]:
            lists.horizons[row] = distance
            return
        lists.horizons[row] = distances[size - 1]
        place = size - 1
    else:
        place = size
        lists.sizes[row] = size + 1
    while place > 0 and distances[place - 1] > distance:
        slots[place] = slots[place - 1]
        distances[place] = distances[place - 1]
        place -= 1
    slots[place] = slot
    distances[place] = distance


@njit(cache=True, nogil=True)
def next_below(products, norms, start, limit):
    """Return the first place from ``start`` on with ``norm - 2 product < limit``, the size if none.

    Places are unsigned: signed ones might be negative, and the loop would not be vectorised.
    """
    size, chunk = np.uint64(products.size), np.uint64(CHUNK)
    place = np.uint64(start)
    while place < size:
        stop = min(place + chunk, size)
        count = np.int32(0)
        for k in range(place, stop):
            count += np.int32(norms[k] - np.float32(2.0) * products[k] < limit)
        if count:
            for k in range(place, stop):
                if norms[k] - np.float32(2.0) * products[k] < limit:
                    return np.int64(k)
        place = stop
    return np.int64(size)


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
    exact, size = block.rows.shape[1] == 0, products.shape[1]
    for query in range(products.shape[0]):
        values, norm = products[query], queries.norms[query]
        row = next_below(values, block.norms, 0, lists.horizons[query] - norm)
        while row < size:
            if block.slots[row] != queries.slots[query]:
                if exact:
                    distance = norm + (block.norms[row] - np.float32(2.0) * values[row])
                    distance = max(distance, np.float32(0.0))
                else:
                    distance = squared_distance(queries.rows[query], block.rows[row])
                if distance < lists.horizons[query]:
                    insert(lists, query, block.slots[row], distance)
            row = next_below(values, block.norms, row + 1, lists.horizons[query] - norm)


@njit(cache=True, nogil=True)
def receive(products, queries, block, lists):
    """Insert some queries in the lists of the rows of a block: `offer` the other way round.

    ``lists`` are those of the b rows; changed in place. A row of horizon -inf receives nothing.
    """
    exact, size = block.rows.shape[1] == 0, products.shape[1]
    gaps = block.norms - lists.horizons  # horizons shrink meanwhile, so these are lower bounds
    for query in range(products.shape[0]):
        values, norm = products[query], queries.norms[query]
        row = next_below(values, gaps, 0, -norm)
        while row < size:
            if exact:
                distance = norm + (block.norms[row] - np.float32(2.0) * values[row])
                distance = max(distance, np.float32(0.0))
            else:
                distance = squared_distance(queries.rows[query], block.rows[row])
            if distance < lists.horizons[row]:
                insert(lists, row, queries.slots[query], distance)
            row = next_below(values, gaps, row + 1, -norm)


@njit(cache=True, nogil=True)
def widen(radii, guesses, queries, block):
    """Raise ``radii`` (m,) to the distances of guessed neighbours that are in a block.

    ``guesses`` (m, g) are slots, -1 for none; the slots of the block follow each other.
    """
    for query in range(radii.size):
        for entry in range(guesses.shape[1]):
            row = guesses[query, entry] - block.slots[0]
            if 0 <= row < block.norms.size:
                distance = squared_distance(queries.rows[query], block.rows[row])
                radii[query] = max(radii[query], distance)


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
    """Add ``(A + A') values`` to ``out``, both (n, K), for edge weights A given by lists.

    ``weights`` (n, k) is 0 where a list has fewer than k entries. Indices are unsigned, so that the
    loops over columns are vectorised; they are best with a multiple of 8 columns.
    """
    columns = np.uint64(values.shape[1])
    for row in range(np.uint64(weights.shape[0])):
        for entry in range(np.uint64(weights.shape[1])):
            weight = weights[row, entry]
            if weight > 0:
                other = np.uint64(slots[row, entry])
                for column in range(columns):
                    out[row, column] += weight * values[other, column]
                for column in range(columns):
                    out[other, column] += weight * values[row, column]

"""The reservoir: which rows of a batch are kept for the graph, and the slots they take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Indices
from seqmed.graph.graph_state import GraphState

# Largest fraction of the kept rows that may be labeled.
LABELED_SHARE = 0.5


class Entering(NamedTuple):
    """The rows of a batch that are kept, and their slots; both (e,)."""

    rows: Indices
    slots: Indices


def choose_entering(state: GraphState, codes: NDArray[np.integer]) -> Entering:
    """Choose the rows of a batch that are kept, and the slots they take.

    New labeled rows are always kept; if labeled rows fill half of the capacity, they replace random
    labeled rows. The kept unlabeled rows are a uniform sample of all unlabeled rows.

    Parameters
    ----------
    state : state before the batch.
    codes : (m,) classes of the rows, -1 for unlabeled rows.
    """
    rng = np.random.default_rng((state.seed, state.n_updates))
    owner: dict[int, int] = {}  # the row that enters each slot
    labeled = np.flatnonzero(state.codes >= 0).tolist()
    unlabeled = np.flatnonzero(state.codes < 0).tolist()
    size = state.rows.size
    for row in np.flatnonzero(codes >= 0).tolist():
        full = len(labeled) >= most_labeled(state)
        if not full and size < state.capacity:
            slot, size = size, size + 1
        else:
            slot = take_random(labeled if full or not unlabeled else unlabeled, rng)
        labeled.append(slot)
        owner[slot] = row
    rows = np.flatnonzero(codes < 0)
    n_free = min(rows.size, max(0, state.capacity - size))
    owner.update(zip(range(size, size + n_free), rows[:n_free].tolist(), strict=True))
    unlabeled += range(size, size + n_free)
    rest = rows[n_free:]
    ranks = state.n_unlabeled + n_free + 1.0 + np.arange(rest.size)
    drawn = rest[rng.random(rest.size) * ranks < len(unlabeled)]
    places = rng.integers(len(unlabeled), size=drawn.size)
    for row, place in zip(drawn.tolist(), places.tolist(), strict=True):
        owner[unlabeled[place]] = row
    slots = np.fromiter(owner, np.intp, len(owner))
    return Entering(np.fromiter(owner.values(), np.intp, len(owner)), slots)


def most_labeled(state: GraphState) -> int:
    """Return the largest number of labeled rows that are kept."""
    return max(1, int(LABELED_SHARE * state.capacity))


def take_random(pool: list[int], rng: np.random.Generator) -> int:
    """Remove a random slot from a pool and return it."""
    place = int(rng.integers(len(pool)))
    pool[place], pool[-1] = pool[-1], pool[place]
    return pool.pop()

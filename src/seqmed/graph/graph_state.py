"""The state of label propagation: kept rows, their labels, and scores of new rows.

The kept rows are a uniform sample of the unlabeled rows of a stream, and a sample of its labeled
rows in which newer rows are more frequent. `seqmed.graph.propagation` updates the state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.classes import UNLABELED, moved
from seqmed.graph.conjugate_gradients import edge_weights
from seqmed.graph.kept_rows import KeptRows, no_kept_rows
from seqmed.graph.metrics import Metric
from seqmed.graph.neighbours import Lists, Single, Slots
from seqmed.numeric.arrays import Array, Indices, Points, bytes_of

# A label whose weight is below this fraction of the largest weight is dropped.
NEGLIGIBLE = 1e-6
# Number of values gathered at once for the means over neighbours (4 MB).
LARGEST_GATHER = 2**20


@dataclass(frozen=True)
class GraphState:
    """The kept rows of a stream, their graph, and the influence of every class on them.

    Parameters
    ----------
    rows : the kept rows and their neighbour lists.
    capacity : largest number of kept rows.
    alpha : weight of the neighbours relative to a row's own label, in [0, 1).
    codes : (n,) class of every kept row, -1 for an unlabeled row.
    label_weights : (n,) weight of its label, 0 for an unlabeled row.
    influence : (n, K) float32, the posterior mean U of every class, >= 0, per unit of label weight.
    solution : (n, K) float32, the last solution Z; the next solve starts from it.
    solved_label_weights : (K,) label weight of every class at the last solve.
    n_unlabeled : number of unlabeled rows seen; forgetting discounts earlier rows.
    n_stale : number of kept rows that have changed since the last solve.
    seed, n_updates : random choices are derived from these two.
    """

    rows: KeptRows
    capacity: int
    alpha: float
    codes: Slots
    label_weights: Array
    influence: Single
    solution: Single
    solved_label_weights: Array
    n_unlabeled: float
    n_stale: int
    seed: int
    n_updates: int

    @property
    def class_label_weights(self) -> Array:
        """Total label weight of every class, (K,)."""
        labeled = self.codes >= 0
        n_classes = self.influence.shape[1]
        found = np.bincount(self.codes[labeled], self.label_weights[labeled], minlength=n_classes)
        return found.astype(np.float64)

    @property
    def nbytes(self) -> int:
        """Total size in bytes of the arrays of the state, each counted once."""
        return bytes_of(self)

    def with_classes(self, places: Indices, n_classes: int) -> GraphState:
        """Return the state with class c moved to ``places[c]`` of ``n_classes``; -1 drops it."""
        codes = self.codes.copy()
        codes[codes >= 0] = places[codes[codes >= 0]]
        return replace(
            self,
            codes=codes,
            label_weights=np.where(codes >= 0, self.label_weights, 0.0),
            influence=moved(self.influence, places, n_classes),
            solution=moved(self.solution, places, n_classes),
            solved_label_weights=moved(self.solved_label_weights, places, n_classes),
        )

    def forget(self, forgetting: float, *, new_labels: bool = True) -> GraphState:
        """Return the state with earlier rows discounted by ``forgetting`` in (0, 1].

        Earlier unlabeled rows are replaced sooner. Label weights are discounted if there are
        ``new_labels``.
        """
        if forgetting == 1.0:
            return self
        label_weights = forgetting * self.label_weights if new_labels else self.label_weights
        negligible = label_weights <= NEGLIGIBLE * label_weights.max(initial=0.0)
        return replace(
            self,
            label_weights=np.where(negligible, 0.0, label_weights),
            codes=np.where(negligible, np.int32(UNLABELED), self.codes),
            n_unlabeled=forgetting * self.n_unlabeled,
        )

    def search(self, points: Points) -> Lists:
        """Return the nearest kept rows of every row, (m, p)."""
        return self.rows.search(self.rows.metric.store(points))

    def scores(self, found: Lists, class_weights: Array | None = None) -> Array:
        """Return class scores (m, K) >= 0 of rows with these nearest kept rows.

        The scores are the heat-weighted mean of U over the neighbours, divided by the sum of this
        mean over the classes. If no label has reached the neighbours, the scores are uniform over
        the classes with labels. ``class_weights`` (K,) multiply the scores first.
        """
        known = self.class_label_weights > 0
        if not known.any():
            return np.zeros((found.sizes.size, known.size))
        values = self.mean_influence(found).astype(np.float64)
        values *= 1.0 if class_weights is None else class_weights
        totals = values.sum(axis=1)
        reached = totals > 0
        values[reached] /= totals[reached, None]
        values[~reached] = known / known.sum()
        return values

    def mean_influence(self, found: Lists) -> Single:
        """Return the heat-weighted mean of U over the neighbours of m rows, (m, K)."""
        k = self.rows.n_neighbors
        weights = edge_weights(found.distances, found.sizes, k)
        totals = weights.sum(axis=1)
        weights = np.divide(
            weights, totals[:, None], out=np.zeros_like(weights), where=totals[:, None] > 0
        )
        slots = found.slots[:, : weights.shape[1]]
        means = np.empty((slots.shape[0], self.influence.shape[1]), dtype=np.float32)
        size = max(1, LARGEST_GATHER // max(1, weights.shape[1] * means.shape[1]))
        for start in range(0, slots.shape[0], size):
            rows = slice(start, start + size)
            np.einsum("mk,mkc->mc", weights[rows], self.influence[slots[rows]], out=means[rows])
        return means


def empty_graph(
    metric: Metric, capacity: int, n_neighbors: int, alpha: float, seed: int
) -> GraphState:
    """Return the state before the first batch."""
    return GraphState(
        rows=no_kept_rows(metric, n_neighbors),
        capacity=capacity,
        alpha=alpha,
        codes=np.zeros(0, dtype=np.int32),
        label_weights=np.zeros(0),
        influence=np.zeros((0, 0), dtype=np.float32),
        solution=np.zeros((0, 0), dtype=np.float32),
        solved_label_weights=np.zeros(0),
        n_unlabeled=0.0,
        n_stale=0,
        seed=seed,
        n_updates=0,
    )


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

"""Label propagation over a stream: its state, and one update.

The kept rows are a uniform sample of the unlabeled rows of a stream, and a sample of its labeled
rows in which newer rows are more frequent. An update replaces some of them. Then it solves for the
influence of every class, starting from the last solution.
`seqmed.margin.theory.propagated_labels` is the solution as an equation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.classes import UNLABELED, moved
from seqmed.graph.kept_rows import KeptRows, Lists, edge_weights, no_kept_rows
from seqmed.graph.metrics import Euclidean, Metric, Stored, clipped
from seqmed.late_rows import KeptLabels, LateLabels, compare_labels
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Mask,
    Points,
    Single,
    Slots,
    bytes_of,
    canonical,
    no_indices,
    row_keys,
)
from seqmed.numeric.expectations import expect, expect_shape

# A label whose weight is below this fraction of the largest weight is dropped.
NEGLIGIBLE = 1e-6
# Number of values gathered at once for the means over neighbours (4 MB).
LARGEST_GATHER = 2**20
# Largest fraction of the kept rows that may be labeled.
LABELED_SHARE = 0.5
# Fraction of the kept rows that may change before the system is solved again without new labels.
STALE_SHARE = 0.01
# If the label weight of a class at the last solve was larger than this multiple of its current
# weight, the next solve starts from zero.
LARGEST_RATIO = 10.0


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

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the kept rows and the classes."""
        n, n_classes = self.rows.size, self.influence.shape[-1]
        expect_shape(self, (n,), "codes", "label_weights")
        expect_shape(self, (n, n_classes), "influence", "solution")
        expect_shape(self, (n_classes,), "solved_label_weights")
        expect(((self.codes >= -1) & (self.codes < n_classes)).all(), "known classes")
        weighted = (self.label_weights > 0) == (self.codes >= 0)
        expect(weighted.all(), "a label weight for every labeled row, and for no other")
        expect(n <= self.capacity and 0 <= self.alpha < 1, "n <= capacity and alpha in [0, 1)")

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


class GraphInfo(NamedTuple):
    """The report of an update of the graph.

    Attributes
    ----------
    n_entered : rows of the batch that were kept.
    n_iter : iterations of conjugate gradients; 0 if the last solution is kept.
    residual : relative residual of the solution.
    gap : upper bound of the duality gap of the quadratic problem, relative to its right-hand side.
    late_labels : numbers of the late labels; None if they were not late.
    """

    n_entered: int
    n_iter: int
    residual: float
    gap: float
    late_labels: LateLabels | None = None


# -- an update -------------------------------------------------------------------------------------


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


def learn_graph(
    state: GraphState,
    batch: Stored,
    codes: NDArray[np.integer],
    label_weights: Array,
    *,
    late: bool = False,
    entering: Entering | None = None,
) -> tuple[GraphState, GraphInfo]:
    """Learn a batch: add some of its rows to the kept rows, and solve the system.

    Parameters
    ----------
    state : state with a column for every class.
    batch : m rows as the metric of the state stores them.
    codes, label_weights : (m,) classes and weights of their labels; -1 and 0 for unlabeled rows.
    late : whether the labels belong to rows learned before. A kept row is then given its label; a
        row that is no longer kept enters again.
    entering : result of `choose_entering`, if that has been called.
    """
    if late:
        state, placed = place_labels(state, batch, codes, label_weights)
        batch, codes, label_weights = batch.take(~placed), codes[~placed], label_weights[~placed]
    rows, slots = choose_entering(state, codes) if entering is None else entering
    kept = state.rows.put(slots, batch.take(rows))
    added = kept.size - state.rows.size
    codes_kept = np.append(state.codes, np.full(added, UNLABELED, np.int32))
    label_weights_kept = np.append(state.label_weights, np.zeros(added))
    codes_kept[slots], label_weights_kept[slots] = codes[rows], label_weights[rows]
    influence = grown(state.influence, added)
    influence[slots] = 0.0
    changed = replace(
        state,
        rows=kept,
        codes=codes_kept,
        label_weights=label_weights_kept,
        influence=influence,
        solution=grown(state.solution, added),
        n_unlabeled=state.n_unlabeled + float(np.count_nonzero(codes < 0)),
        n_stale=state.n_stale + rows.size,
        n_updates=state.n_updates + 1,
    )
    return solved(changed, slots, labels_changed=late or bool((codes[rows] >= 0).any()))


def solved(
    state: GraphState, entered: Indices, *, labels_changed: bool
) -> tuple[GraphState, GraphInfo]:
    """Return the state with its system solved, unless little has changed since the last solve."""
    if not labels_changed and state.n_stale <= STALE_SHARE * state.rows.size:
        return state, GraphInfo(entered.size, 0, 0.0, 0.0)
    from seqmed.graph.conjugate_gradients import make_graph, solve_system

    graph = make_graph(state.rows.lists, state.rows.n_neighbors)
    roots = np.where(graph.roots > 0, graph.roots, np.float32(1.0))[:, None]
    start = state.solution.copy()
    totals = state.class_label_weights
    known = np.flatnonzero(totals > 0)
    ratios = state.solved_label_weights[known] / totals[known]
    # if most labels of a class were dropped, rounding errors of the last solution would dominate
    start[:, known] *= np.where(ratios < LARGEST_RATIO, ratios, 0.0).astype(np.float32)
    # entering rows start at the mean of their neighbours
    start[entered] = state.mean_influence(state.rows.lists.take(entered)) / roots[entered]
    targets = np.zeros((state.rows.size, known.size), dtype=np.float32)
    labeled = np.flatnonzero(state.codes >= 0)
    codes = state.codes[labeled]
    targets[labeled, np.searchsorted(known, codes)] = state.label_weights[labeled] / totals[codes]
    solution = solve_system(graph, targets, state.alpha, start[:, known])
    values = np.zeros_like(start)
    values[:, known] = solution.values
    influence = np.maximum(values * roots, np.float32(0.0))
    state = replace(
        state, solution=values, influence=influence, solved_label_weights=totals, n_stale=0
    )
    # The problem is to minimise z'Az / 2 - b'z. All eigenvalues of A are at least 1 - alpha, so the
    # gap is r'A^{-1}r / 2 <= |r|^2 / (2 (1 - alpha)) for a residual r. The gap and the residual are
    # in units of b.
    gap = solution.residual**2 / (2.0 * (1.0 - state.alpha))
    return state, GraphInfo(entered.size, solution.n_iter, solution.residual, gap)


def grown(values: Single, n: int) -> Single:
    """Return a copy of (m, K) values with n rows of zeros added."""
    return np.vstack([values, np.zeros((n, values.shape[1]), dtype=np.float32)])


# -- late labels, and labels that are retracted ----------------------------------------------------


def place_labels(
    state: GraphState, batch: Stored, codes: NDArray[np.integer], label_weights: Array
) -> tuple[GraphState, Mask]:
    """Assign late labels to their kept rows; also return a mask (m,) of the labels that were used.

    If the labeled rows are then more than `most_labeled`, random earlier labels are removed, and
    random new labels if that is not enough.
    """
    slots = equal_slots(state, batch, lambda slot, _: bool(state.codes[slot] < 0))
    placed = slots >= 0
    new = relabeled(state, slots[placed], codes[placed], label_weights[placed])
    labeled = np.flatnonzero(new.codes >= 0)
    excess = labeled.size - most_labeled(state)
    if excess > 0:
        rng = np.random.default_rng((state.seed, state.n_updates, 1))
        older = np.setdiff1d(labeled, slots[placed])
        dropped = np.append(rng.permutation(older), rng.permutation(slots[placed]))[:excess]
        new = relabeled(new, dropped, UNLABELED, 0.0)
    return new, placed


def without_labels(state: GraphState, classes: Mask) -> GraphState:
    """Return the state without the labels of some classes, a mask (K,); the rows stay.

    The system is not solved.
    """
    slots = np.flatnonzero((state.codes >= 0) & classes[state.codes])
    return relabeled(state, slots, UNLABELED, 0.0)


class GraphRetraction(NamedTuple):
    """The outcome of a retraction of labels.

    Attributes
    ----------
    state, info : the state without the labels, and its report.
    found : (m,) mask of the labels that were found.
    codes, label_weights : (m,) their classes and weights; -1 and 0 where none was found.
    """

    state: GraphState
    info: GraphInfo
    found: Mask
    codes: NDArray[np.integer]
    label_weights: Array


def retract_from_graph(
    state: GraphState, batch: Stored, codes: NDArray[np.integer]
) -> GraphRetraction:
    """Retract the labels ``codes`` (m,) of kept rows; -1 retracts any label of a row.

    The rows and the graph do not change.
    """

    def fits(slot: int, row: int) -> bool:
        own = state.codes[slot]
        return bool(own == codes[row] if codes[row] >= 0 else own >= 0)

    slots = equal_slots(state, batch, fits)
    found = slots >= 0
    changed = relabeled(state, slots[found], UNLABELED, 0.0)
    changed = replace(changed, n_updates=state.n_updates + 1)
    new, info = solved(changed, no_indices(), labels_changed=bool(found.any()))
    codes = np.where(found, state.codes[slots], UNLABELED)
    label_weights = np.where(found, state.label_weights[slots], 0.0)
    return GraphRetraction(new, info, found, codes, label_weights)


def relabeled(state: GraphState, slots: Indices, codes: Any, label_weights: Any) -> GraphState:
    """Return the state with new labels in the given slots; the system is not solved."""
    new_codes, new_label_weights = state.codes.copy(), state.label_weights.copy()
    new_codes[slots], new_label_weights[slots] = codes, label_weights
    return replace(state, codes=new_codes, label_weights=new_label_weights)


def equal_slots(
    state: GraphState, batch: Stored, fits: Callable[[int, int], bool]
) -> NDArray[np.intp]:
    """Return the slot of a kept row that equals each row of a batch, -1 for none.

    No slot is returned twice. ``fits(slot, row)`` tells whether the label of a slot fits a row.
    """
    slots, taken = np.full(batch.size, -1), set()
    for row, candidates in enumerate(candidate_slots(state, batch)):
        free = (slot for slot in candidates if slot not in taken and fits(slot, row))
        slots[row] = next(free, -1)
        taken.add(int(slots[row]))
    return slots


def candidate_slots(state: GraphState, batch: Stored) -> list[list[int]]:
    """Return the slots of the kept rows that equal each row of a batch."""
    wanted = row_keys(batch.rows)
    candidates: dict[Any, list[int]] = {key: [] for key in wanted}
    sums, first = bit_sums(batch.rows), 0
    for block in state.rows.blocks:
        # the keys of all rows would take longer than everything else
        likely = np.flatnonzero(np.isin(bit_sums(block.rows), sums))
        for slot, key in zip(likely.tolist(), row_keys(block.rows[likely]), strict=True):
            if key in candidates:
                candidates[key].append(first + slot)
        first += block.size
    return [candidates[key] for key in wanted]


def bit_sums(rows: Points) -> NDArray[np.uint64]:
    """Return a number (n,) that is the same for rows of equal values in single precision."""
    if sp.issparse(rows):
        rows = canonical(rows)
        sums = np.zeros(rows.data.size + 1, dtype=np.uint64)
        np.cumsum((rows.data + 0).view(np.uint32), out=sums[1:])
        return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])
    return np.asarray((rows + 0).view(np.uint32).sum(axis=1, dtype=np.uint64))


def labels_in_graph(state: GraphState, batch: Stored, codes: Indices) -> KeptLabels:
    """Return what the kept rows tell about late labels ``codes`` (m,), -1 for new classes."""
    return compare_labels(candidate_slots(state, batch), state.codes, codes)


def keeps_all_rows(state: GraphState) -> bool:
    """Whether no kept row has been replaced so far."""
    n_labeled = np.count_nonzero(state.codes >= 0)
    return bool(state.rows.size < state.capacity and n_labeled < most_labeled(state))


# -- columns that are scaled -----------------------------------------------------------------------


def euclidean(state: GraphState) -> Euclidean:
    """Return the metric of a graph whose columns may be scaled."""
    return cast(Euclidean, state.rows.metric)


def centre(state: GraphState) -> Array:
    """Return the centre of the rows for Euclidean distances, (p,)."""
    return euclidean(state).centre


def kept_points(state: GraphState, slots: Indices | slice) -> Array:
    """Return kept rows in the coordinates of the rows of the stream, for Euclidean distances."""
    metric, slots = euclidean(state), np.arange(state.rows.size)[slots]
    if not slots.size:
        return np.zeros((0, metric.centre.size))
    return metric.points(state.rows.take(slots))


def rescaled_graph(state: GraphState, factors: Array) -> GraphState:
    """Return the state with columns multiplied by ``factors`` (p,), which are powers of two.

    The neighbour lists are computed from scratch. The system is not solved.
    """
    slots = np.arange(state.rows.size)
    stored, metric = state.rows.take(slots), euclidean(state).rescaled(factors)
    rows = no_kept_rows(metric, state.rows.n_neighbors)
    return replace(state, rows=rows.put(slots, metric.stored(clipped(stored.rows * factors))))

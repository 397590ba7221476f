"""Label propagation over a stream: its state and its updates.

The kept rows are a uniform sample of the unlabeled rows of a stream, and a sample of its labeled
rows in which newer rows are more frequent. An update replaces some of them. Then it solves for the
influence of every class, starting from the last solution.

`GraphState` is the graph expert of the mixture. `PropagationState` is the state of
`GraphPropagation`, which also counts labels. The functions expect validated rows and change nothing
in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import cg

from seqmed.classes import UNLABELED, ClassCounts, Rows, moved
from seqmed.graph.kept_rows import BLOCK, KeptRows, Lists, edge_weights
from seqmed.graph.metrics import Euclidean, Metric, Stored, clipped
from seqmed.kernels import Sums
from seqmed.late_rows import (
    NO_LABEL,
    OTHER_LABEL,
    TOO_OFTEN,
    KeptLabels,
    LateLabels,
    compare_labels,
    equal_rows,
)
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Mask,
    Points,
    Single,
    Slots,
    no_indices,
)
from seqmed.numeric.execution import one_thread
from seqmed.numeric.expectations import expect, expect_shape

# A label whose weight is below this fraction of the largest weight is dropped.
NEGLIGIBLE = 1e-6
# Number of values gathered at once for the means over neighbours (4 MB).
LARGEST_GATHER = 2**20
# Largest fraction of the kept rows that may be labeled.
LABELED_SHARE = 0.5
# Fraction of the kept rows that may change before the system is solved again without new labels.
STALE_SHARE = 0.01
# With fewer unlabeled rows, the proportions of the classes are those over all kept rows.
FEWEST_UNLABELED = 50
# Largest factor of a class, and the inverse of the smallest. Larger factors would amplify the
# errors of small influences.
LARGEST_FACTOR = 50.0
# Largest number of Sinkhorn steps, and the relative change of the factors at which they end. The
# number is reached only if no factors give the proportions.
SINKHORN_STEPS, SINKHORN_TOLERANCE = 100, 1e-6
# If the label weight of a class at the last solve was larger than this multiple of its current
# weight, the next solve starts from zero.
LARGEST_RATIO = 10.0
# Relative residual of the influence of all labels on one row. It is small, because labels that are
# far from the row have small influences.
SHARE_TOLERANCE = 1e-8


@dataclass(frozen=True)
class GraphState:
    """The kept rows of a stream, their graph, and the influence of every class on them.

    Parameters
    ----------
    rows : the kept rows and their neighbour lists.
    capacity : largest number of kept rows.
    alpha : weight of the neighbours relative to a row's own label, in [0, 1).
    seed, n_updates : random choices are derived from these two.
    codes : (n,) class of every kept row, -1 for an unlabeled row.
    label_weights : (n,) weight of its label, 0 for an unlabeled row.
    influence : (n, K) float32, the posterior mean U of every class, >= 0, per unit of label weight.
    solution : (n, K) float32, the last solution Z; the next solve starts from it.
    solved_label_weights : (K,) label weight of every class at the last solve.
    class_factors : (K,) factors > 0 of the scores; 1 without known class proportions.
    n_unlabeled : number of unlabeled rows seen; forgetting discounts earlier rows.
    n_stale : number of kept rows that have changed since the last solve.
    """

    rows: KeptRows
    capacity: int
    alpha: float
    seed: int
    codes: Slots = field(default_factory=lambda: np.zeros(0, np.int32))
    label_weights: Array = field(default_factory=lambda: np.zeros(0))
    influence: Single = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    solution: Single = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    solved_label_weights: Array = field(default_factory=lambda: np.zeros(0))
    class_factors: Array = field(default_factory=lambda: np.ones(0))
    n_unlabeled: float = 0.0
    n_stale: int = 0
    n_updates: int = 0

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the kept rows and the classes."""
        n, n_classes = self.rows.size, self.influence.shape[-1]
        expect_shape(self, (n,), "codes", "label_weights")
        expect_shape(self, (n, n_classes), "influence", "solution")
        expect_shape(self, (n_classes,), "solved_label_weights", "class_factors")
        expect(((self.codes >= -1) & (self.codes < n_classes)).all(), "known classes")
        weighted = (self.label_weights > 0) == (self.codes >= 0)
        expect((self.class_factors > 0).all(), "factors > 0 of the classes")
        expect(weighted.all(), "a label weight for every labeled row, and for no other")
        expect(n <= self.capacity and 0 <= self.alpha < 1, "n <= capacity and alpha in [0, 1)")

    @property
    def class_label_weights(self) -> Array:
        """Total label weight of every class, (K,)."""
        labeled = np.flatnonzero(self.codes >= 0)
        found = np.bincount(
            self.codes[labeled], self.label_weights[labeled], self.influence.shape[1]
        )
        return found.astype(np.float64)

    @property
    def n_labeled(self) -> int:
        """Number of kept rows with a label."""
        return int(np.count_nonzero(self.codes >= 0))

    @property
    def most_labeled(self) -> int:
        """Largest number of labeled rows that are kept."""
        return max(1, int(LABELED_SHARE * self.capacity))

    @property
    def keeps_all_rows(self) -> bool:
        """Whether no kept row has been replaced so far."""
        return self.rows.size < self.capacity and self.n_labeled < self.most_labeled

    def with_classes(self, places: Indices, n_classes: int) -> GraphState:
        """Return the state with class c moved to ``places[c]`` of ``n_classes``; -1 drops it."""
        if np.array_equal(places, np.arange(n_classes)):  # as in most batches
            return self
        codes = np.append(places, UNLABELED).astype(np.int32)[self.codes]
        class_factors = np.ones(n_classes)
        class_factors[places[places >= 0]] = self.class_factors[places >= 0]
        return replace(
            self,
            codes=codes,
            label_weights=np.where(codes >= 0, self.label_weights, 0.0),
            influence=self.moved(self.influence, places, n_classes),
            solution=self.moved(self.solution, places, n_classes),
            solved_label_weights=moved(self.solved_label_weights, places, n_classes),
            class_factors=class_factors,
        )

    def moved(self, values: Single, places: Indices, n_classes: int) -> Single:
        """Return values of the kept rows with class c moved to ``places[c]``."""
        if self.rows.device == "cpu":
            return moved(values, places, n_classes)
        from seqmed.graph import device

        return cast(Single, device.moved_classes(values, places, n_classes))

    @property
    def kernel_sums(self) -> Sums | None:
        """The function that computes kernel values on the device; None on the CPU."""
        if self.rows.device == "cpu":
            return None
        from seqmed.graph import device

        return partial(device.kernel_sums, self.rows.device)

    def on(self, name: str) -> GraphState:
        """Return the state on the device ``name``."""
        if name == self.rows.device:
            return self
        from seqmed.graph import device

        return device.to_device(self, name)

    def for_file(self) -> GraphState:
        """Return the state with arrays, also if it is on a device."""
        return self.on("cpu")

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
        return self.rows.search(self.rows.store(points))

    def scores(self, found: Lists, class_weights: Array | None = None) -> Array:
        """Return class scores (m, K) >= 0 of rows with these nearest kept rows.

        The scores are the heat-weighted mean of U over the neighbours, times `class_factors` and
        ``class_weights`` (K,), divided by their sum over the classes. If no label has reached the
        neighbours, the scores are uniform over the classes with labels.
        """
        known = self.class_label_weights > 0
        if not known.any():
            return np.zeros((found.n_lists, known.size))
        if self.rows.device != "cpu":
            from seqmed.graph import device

            weights = 1.0 if class_weights is None else class_weights
            return device.scores_on(self, found, self.class_factors * weights, known / known.sum())
        values = self.class_factors * self.mean_influence(found)
        values *= 1.0 if class_weights is None else class_weights
        totals = values.sum(axis=1)
        reached = totals > 0
        np.divide(values, totals[:, None], out=values, where=reached[:, None])
        values[~reached] = known / known.sum()
        return values

    def mean_influence(self, found: Lists) -> Single:
        """Return the heat-weighted mean of U over the neighbours of m rows, (m, K)."""
        if self.rows.device != "cpu":
            from seqmed.graph import device

            return device.mean_influence(self, found)
        weights = edge_weights(found.distances, found.sizes, self.rows.n_neighbors)
        totals = weights.sum(axis=1, keepdims=True)
        weights /= np.where(totals > 0, totals, np.float32(1.0))
        slots = found.slots[:, : weights.shape[1]]
        means = np.empty((slots.shape[0], self.influence.shape[1]), dtype=np.float32)
        size = max(1, LARGEST_GATHER // max(1, weights.shape[1] * means.shape[1]))
        for start in range(0, slots.shape[0], size):
            rows = slice(start, start + size)
            np.einsum("mk,mkc->mc", weights[rows], self.influence[slots[rows]], out=means[rows])
        return means


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


def choose_entering(state: GraphState, codes: NDArray[np.integer]) -> tuple[Indices, Indices]:
    """Choose the rows of a batch that are kept, and the slots they take; both (e,).

    New labeled rows are always kept; if labeled rows fill half of the capacity, they replace random
    labeled rows. The kept unlabeled rows are a uniform sample of all unlabeled rows.

    Parameters
    ----------
    state : state before the batch.
    codes : (m,) classes of the rows, -1 for unlabeled rows.
    """
    new, size = np.flatnonzero(codes >= 0), state.codes.size
    n_labeled = state.n_labeled
    if size + codes.size <= state.capacity and n_labeled + new.size <= state.most_labeled:
        rows = np.append(new, np.flatnonzero(codes < 0))
        return rows, np.arange(size, size + codes.size)
    rng = np.random.default_rng((state.seed, state.n_updates))
    labeled = np.flatnonzero(state.codes >= 0)
    labeled = np.append(labeled, np.empty(new.size, np.intp))  # room for the new ones
    unlabeled = np.flatnonzero(state.codes < 0)
    n_unlabeled = unlabeled.size
    taken = np.empty(new.size, dtype=np.intp)
    for number in range(new.size):
        full = n_labeled >= state.most_labeled
        if not full and size < state.capacity:
            slot, size = size, size + 1
        elif full or not n_unlabeled:
            slot, n_labeled = take_random(labeled, n_labeled, rng), n_labeled - 1
        else:
            slot, n_unlabeled = take_random(unlabeled, n_unlabeled, rng), n_unlabeled - 1
        labeled[n_labeled], n_labeled = slot, n_labeled + 1
        taken[number] = slot
    rows = np.flatnonzero(codes < 0)
    free = np.arange(size, size + min(rows.size, max(0, state.capacity - size)))
    unlabeled = np.append(unlabeled[:n_unlabeled], free)
    rest = rows[free.size :]
    ranks = state.n_unlabeled + free.size + 1.0 + np.arange(rest.size)
    drawn = rest[rng.random(rest.size) * ranks < unlabeled.size]
    places = unlabeled[rng.integers(unlabeled.size, size=drawn.size)]
    slots = np.concatenate([taken, free, places])
    # the last row of a slot stays, in the place of the first one
    found, first = np.unique(slots, return_index=True)
    last = slots.size - 1 - np.unique(slots[::-1], return_index=True)[1]
    order = np.argsort(first)
    return np.concatenate([new, rows[: free.size], drawn])[last[order]], found[order]


def choose_by_parts(
    state: GraphState, codes: NDArray[np.integer], size: int
) -> tuple[Indices, Indices]:
    """Choose the rows that are kept as if parts of ``size`` rows were learned one by one.

    Parameters and results are those of `choose_entering`.
    """
    n, n_unlabeled = state.codes.size, state.n_unlabeled
    kept = np.append(state.codes, np.full(min(codes.size, state.capacity), UNLABELED, np.int32))
    owners = np.full(kept.size, -1)
    for number, start in enumerate(range(0, codes.size, size)):
        part = codes[start : start + size]
        before = replace(
            state, codes=kept[:n], n_unlabeled=n_unlabeled, n_updates=state.n_updates + number
        )
        chosen, taken = choose_entering(before, part)
        owners[taken], kept[taken] = start + chosen, part[chosen]
        n = max(n, int(taken.max(initial=-1)) + 1)
        n_unlabeled += float(np.count_nonzero(part < 0))
    slots = np.flatnonzero(owners >= 0)
    return owners[slots], slots


def take_random(pool: Indices, size: int, rng: np.random.Generator) -> int:
    """Move a random slot of the first ``size`` of a pool behind the others, and return it."""
    place, last = int(rng.integers(size)), size - 1
    pool[place], pool[last] = pool[last], pool[place]
    return int(pool[last])


def learn_graph(
    state: GraphState,
    rows: Rows,
    *,
    new_points: bool = True,
    proportions: Array | None = None,
    solve: bool = True,
    part: int | None = None,
) -> tuple[GraphState, GraphInfo, Indices]:
    """Learn a batch: add some of its rows to the kept rows, and solve the system.

    Parameters
    ----------
    state : state with a column for every class.
    rows : m rows.
    new_points : False if the labels belong to rows learned before. A kept row is then given its
        label; a row that is no longer kept enters again.
    proportions : (K,) known class proportions, see `proportion_factors`; None if they are unknown.
    solve : False if more rows follow before the state is used, and the system can wait for them.
    part : number of rows from which the kept ones are chosen at a time; None for all m.

    Returns
    -------
    state, info : the state after the batch, and the report.
    slots : (m,) slots of the rows of the batch, -1 for a row that is not kept.
    """
    stored, codes = state.rows.store(rows.points), rows.codes
    label_weights = np.where(rows.labeled, rows.weights, 0.0)
    slots, absent = np.full(codes.size, -1), np.arange(codes.size)
    if not new_points:
        state, slots = place_labels(state, rows)
        absent = np.flatnonzero(slots < 0)
    part = part or max(1, absent.size)
    chosen, taken = (
        choose_entering(state, codes[absent])
        if absent.size <= part
        else choose_by_parts(state, codes[absent], part)
    )
    entering = absent[chosen]
    slots[entering] = taken
    kept = state.rows.put(taken, stored.take(entering))
    added = kept.size - state.rows.size
    influence = grown(state.influence, added)
    influence[taken] = 0.0
    changed = replace(
        state,
        rows=kept,
        codes=np.append(state.codes, np.full(added, UNLABELED, np.int32)),
        label_weights=np.append(state.label_weights, np.zeros(added)),
        influence=influence,
        solution=grown(state.solution, added),
        n_unlabeled=state.n_unlabeled + float(np.count_nonzero(codes < 0)),
        n_stale=state.n_stale + entering.size,
        n_updates=state.n_updates + max(1, -(-absent.size // part)),
    )
    changed = relabeled(changed, taken, codes[entering], label_weights[entering])
    if not solve:
        return changed, GraphInfo(entering.size, 0, 0.0, 0.0), slots
    labels_changed = not new_points or bool((codes[entering] >= 0).any())
    changed, info = solved(changed, taken, labels_changed=labels_changed)
    return with_proportions(changed, proportions), info, slots


def solved(
    state: GraphState, entered: Indices, *, labels_changed: bool
) -> tuple[GraphState, GraphInfo]:
    """Return the state with its system solved, unless little has changed since the last solve."""
    if not labels_changed and state.n_stale <= STALE_SHARE * state.rows.size:
        return state, GraphInfo(entered.size, 0, 0.0, 0.0)
    totals = state.class_label_weights
    known = np.flatnonzero(totals > 0)
    ratios = state.solved_label_weights[known] / totals[known]
    # if most labels of a class were dropped, rounding errors of the last solution would dominate
    factors = np.where(ratios < LARGEST_RATIO, ratios, 0.0).astype(np.float32)
    labeled = np.flatnonzero(state.codes >= 0)
    codes = state.codes[labeled]
    targets = Targets(
        rows=labeled,
        columns=np.searchsorted(known, codes),
        values=(state.label_weights[labeled] / totals[codes]).astype(np.float32),
    )
    if state.rows.device == "cpu":
        solution, influence, n_iter, residual = solution_of(state, known, factors, entered, targets)
    else:
        from seqmed.graph import device

        solution, influence, n_iter, residual = device.solution_on(
            state, known, factors, entered, targets
        )
    state = replace(
        state,
        solution=solution,
        influence=influence,
        solved_label_weights=totals,
        n_stale=0,
    )
    # The problem is to minimise z'Az / 2 - b'z. All eigenvalues of A are at least 1 - alpha, so the
    # gap is r'A^{-1}r / 2 <= |r|^2 / (2 (1 - alpha)) for a residual r. The gap and the residual are
    # in units of b.
    gap = residual**2 / (2.0 * (1.0 - state.alpha))
    return state, GraphInfo(entered.size, n_iter, residual, gap)


class Targets(NamedTuple):
    """The label weights Y: l entries of an (n, c) matrix, with a column for every known class."""

    rows: Indices
    columns: Indices
    values: Single


def solution_of(
    state: GraphState, known: Indices, factors: Single, entered: Indices, targets: Targets
) -> tuple[Single, Single, int, float]:
    """Return the solution Z and the influence U (n, K), the number of steps and the residual.

    Parameters
    ----------
    state : state whose solution is the starting point.
    known : (c,) classes with labels.
    factors : (c,) factors of the last solution.
    entered : slots of new rows, which start at the mean of their neighbours.
    targets : label weights of the known classes.
    """
    from seqmed.graph.conjugate_gradients import make_graph, solve_system

    graph, start = make_graph(state.rows.lists, state.rows.n_neighbors), state.solution.copy()
    start[:, known] *= factors
    start[entered] = state.mean_influence(state.rows.lists.take(entered)) / graph.roots[entered]
    labels = np.zeros((state.rows.size, known.size), dtype=np.float32)
    labels[targets.rows, targets.columns] = targets.values
    solution = np.zeros_like(start)
    solution[:, known], n_iter, residual = solve_system(graph, labels, state.alpha, start[:, known])
    return solution, np.maximum(solution * graph.roots, np.float32(0.0)), n_iter, residual


def grown(values: Single, n: int) -> Single:
    """Return a copy of (m, K) values with n rows of zeros added."""
    if not isinstance(values, np.ndarray):
        from seqmed.graph import device

        return cast(Single, device.grown_rows(values, n))
    return np.vstack([values, np.zeros((n, values.shape[1]), dtype=np.float32)])


def rescaled_graph(
    state: GraphState, factors: Array, proportions: Array | None = None
) -> tuple[GraphState, GraphInfo]:
    """Return the state with columns multiplied by ``factors`` (p,), which are powers of two.

    The distances must be Euclidean. The neighbour lists are computed from scratch. ``proportions``
    (K,) are known class proportions.
    """
    slots, metric = np.arange(state.rows.size), euclidean(state).rescaled(factors)
    stored = metric.stored(clipped(state.rows.take(slots).rows * factors))
    empty = state.rows.emptied(metric)
    rows = empty.put(slots, empty.placed(stored))
    state, info = solved(replace(state, rows=rows), no_indices(), labels_changed=True)
    return with_proportions(state, proportions), info


def euclidean(state: GraphState) -> Euclidean:
    """Return the metric of a graph whose columns may be scaled."""
    return cast(Euclidean, state.rows.metric)


def kept_points(state: GraphState, slots: Indices | slice) -> Array:
    """Return kept rows in the coordinates of the rows of the stream, for Euclidean distances."""
    return euclidean(state).points(state.rows.take(np.arange(state.rows.size)[slots]))


# -- shares of labeled rows ------------------------------------------------------------------------


def label_shares(
    state: GraphState, found: Lists, class_weights: Array | None = None
) -> tuple[Indices, Array]:
    """Return the slots (l,) of the labeled kept rows, and their shares (m, l) >= 0 in class scores.

    The scores of `GraphState.scores` are sums over labeled rows: the shares of the rows of a class
    add up to its score. The matrix of influences is symmetric, so that one system for each of the m
    rows gives the influence of all labels on it. If no label reaches a row, its shares are 0.
    """
    lists, k = state.rows.lists, state.rows.n_neighbors
    adjacency = neighbour_matrix(lists, k, state.rows.size)
    adjacency = 0.5 * (adjacency + adjacency.T)
    degrees = adjacency.sum(axis=1)
    degrees[degrees == 0] = 1.0
    precision = sp.csr_array(sp.diags_array(degrees) - state.alpha * adjacency)
    inverse = sp.diags_array(1.0 / degrees)
    slots = np.flatnonzero(state.codes >= 0)
    codes = state.codes[slots]
    factors = state.label_weights[slots] / state.class_label_weights[codes]
    factors *= state.class_factors[codes]
    factors *= 1.0 if class_weights is None else class_weights[codes]
    scores, shares = state.scores(found, class_weights), np.zeros((found.n_lists, slots.size))
    for row, near in enumerate(neighbour_matrix(found, k, state.rows.size).toarray()):
        influence, _ = cg(precision, near / (near.sum() or 1.0), rtol=SHARE_TOLERANCE, M=inverse)
        shares[row] = factors * np.maximum(influence[slots], 0.0)
        totals = np.bincount(codes, shares[row], minlength=scores.shape[1])
        # `scores` come from a solution of lower precision
        shares[row] *= np.divide(scores[row], totals, out=np.zeros_like(totals), where=totals > 0)[
            codes
        ]
    return slots, shares


def neighbour_matrix(lists: Lists, n_neighbors: int, n_kept: int) -> sp.csr_array:
    """Return the heat weights (n, n_kept) of the nearest ``n_neighbors`` entries of n lists."""
    weights = edge_weights(lists.distances, lists.sizes, n_neighbors).astype(np.float64)
    rows, entries = np.nonzero(weights)
    shape = (lists.sizes.size, n_kept)
    return sp.csr_array((weights[rows, entries], (rows, lists.slots[rows, entries])), shape=shape)


# -- known class proportions -----------------------------------------------------------------------


def with_proportions(state: GraphState, proportions: Array | None) -> GraphState:
    """Return the state with the factors of known class proportions (K,), or of none."""
    return replace(state, class_factors=proportion_factors(state, proportions))


def proportion_factors(state: GraphState, proportions: Array | None) -> Array:
    """Return factors (K,) of the class scores, by known proportions of the classes.

    The factors are such that the mean scores of unlabeled kept rows are, half way, the known
    proportions: their geometric mean with the mean scores without factors, normalised. They are
    found by Sinkhorn steps. Rows that no label has reached are left out: their scores are uniform
    whatever the factors. If `FEWEST_UNLABELED` kept rows are not unlabeled, all kept rows count.

    Parameters
    ----------
    state : a solved state.
    proportions : (K,) positive proportions, of which those of the classes with labels are
        normalised. None gives factors 1.

    Returns
    -------
    factors : (K,) from 1 / `LARGEST_FACTOR` to `LARGEST_FACTOR`; 1 for a class without a label.
    """
    factors = np.ones(state.influence.shape[1])
    known = np.flatnonzero(state.class_label_weights > 0)
    if proportions is None or known.size < 2:
        return factors
    rows = np.flatnonzero(state.codes < 0)
    if rows.size < FEWEST_UNLABELED:
        rows = np.arange(state.rows.size)
    scores = state.mean_influence(state.rows.lists_of(rows))[:, known].astype(np.float64)
    scores = scores[scores.any(axis=1)]
    if scores.size:
        scores /= scores.sum(axis=1, keepdims=True)
        target = np.sqrt(scores.mean(axis=0) * proportions[known])
        factors[known] = sinkhorn_factors(scores, target / target.sum())
    return factors


def sinkhorn_factors(scores: Array, target: Array) -> Array:
    """Return factors (k,) with which the mean of normalised scores (n, k) is the target (k,).

    A class that has no scores has the target 0 and the factor 1. The factors are bounded by
    `LARGEST_FACTOR`; if no factors reach the target, they are those of the last step.
    """
    factors = np.ones(target.size)
    for _ in range(SINKHORN_STEPS):
        means = factors * (np.reciprocal(scores @ factors) @ scores) / scores.shape[0]
        ratios = np.divide(target, means, out=np.ones_like(means), where=means > 0)
        new = np.clip(factors * ratios, 1.0 / LARGEST_FACTOR, LARGEST_FACTOR)
        change = np.abs(new / factors - 1.0).max()
        factors = new
        if change <= SINKHORN_TOLERANCE:
            break
    return factors


# -- late labels, and labels that are retracted ----------------------------------------------------


def place_labels(state: GraphState, rows: Rows) -> tuple[GraphState, Indices]:
    """Assign late labels to their kept rows; also return the slots (m,) of these, -1 for no row.

    If the labeled rows are then more than `most_labeled`, random earlier labels are removed, and
    random new labels if that is not enough.
    """
    slots = equal_slots(state, rows.points, np.full(rows.codes.size, UNLABELED))
    placed = slots >= 0
    new = relabeled(state, slots[placed], rows.codes[placed], rows.weights[placed])
    labeled = np.flatnonzero(new.codes >= 0)
    excess = labeled.size - state.most_labeled
    if excess > 0:
        rng = np.random.default_rng((state.seed, state.n_updates, 1))
        older = np.setdiff1d(labeled, slots[placed])
        dropped = np.append(rng.permutation(older), rng.permutation(slots[placed]))[:excess]
        new = relabeled(new, dropped, UNLABELED, 0.0)
    return new, slots


def without_labels(state: GraphState, classes: Mask) -> GraphState:
    """Return the state without the labels of some classes, a mask (K,); the rows stay.

    The system is not solved.
    """
    slots = np.flatnonzero((state.codes >= 0) & classes[state.codes])
    return relabeled(state, slots, UNLABELED, 0.0)


def retract_from_graph(
    state: GraphState, points: Points, codes: Indices | None, proportions: Array | None = None
) -> tuple[GraphState, GraphInfo, Indices]:
    """Retract the labels ``codes`` (m,) of kept rows; None retracts any label of a row.

    The rows and the graph do not change. ``proportions`` (K,) are known class proportions. Return
    the state, its report, and the slots (m,) of the rows, -1 where the label was not found.
    """
    slots = equal_slots(state, points, codes)
    slots = np.where(state.codes[slots] >= 0, slots, -1)
    found = slots[slots >= 0]
    changed = relabeled(state, found, UNLABELED, 0.0)
    changed = replace(changed, n_updates=state.n_updates + 1)
    changed, info = solved(changed, no_indices(), labels_changed=found.size > 0)
    return with_proportions(changed, proportions), info, slots


def is_unlabeled(state: GraphState, point: Points) -> bool:
    """Whether all kept rows that equal a point (1, p) have no label, and there is one."""
    (equal,) = all_equal_slots(state, point)
    return equal.size > 0 and bool((state.codes[equal] < 0).all())


def relabeled(state: GraphState, slots: Indices, codes: Any, label_weights: Any) -> GraphState:
    """Return the state with new labels in the given slots; the system is not solved."""
    new_codes, new_label_weights = state.codes.copy(), state.label_weights.copy()
    new_codes[slots], new_label_weights[slots] = codes, label_weights
    return replace(state, codes=new_codes, label_weights=new_label_weights)


def labels_in_graph(state: GraphState, points: Points, codes: Indices) -> KeptLabels:
    """Return what the kept rows tell about late labels ``codes`` (m,), -1 for new classes."""
    return compare_labels(all_equal_slots(state, points), state.codes, codes)


def equal_slots(state: GraphState, points: Points, codes: Indices | None) -> Indices:
    """Return the slot of a kept row that equals each of m rows, -1 for none.

    No slot is returned twice. The kept rows have the classes ``codes`` (m,), -1 for rows without a
    label. With None they have any label.
    """
    slots, taken = np.full(points.shape[0], -1), set()
    for row, equal in enumerate(all_equal_slots(state, points)):
        own = state.codes[equal]
        fitting = equal[own >= 0 if codes is None else own == codes[row]]
        slots[row] = next((slot for slot in fitting.tolist() if slot not in taken), -1)
        taken.add(int(slots[row]))
    return slots


def all_equal_slots(state: GraphState, points: Points) -> list[Indices]:
    """Return the slots of the kept rows that equal each of m rows."""
    rows = state.rows.metric.store(points).rows
    # the keys of all rows would take longer than everything else
    slots = state.rows.likely_equal(rows)
    return [slots[places] for places in equal_rows(state.rows.take(slots).rows, rows)]


# -- the state of GraphPropagation -----------------------------------------------------------------


class PropagationState(NamedTuple):
    """The state of `GraphPropagation`.

    Attributes
    ----------
    graph : the kept rows and the influence of every class on them.
    counts : labels of every class so far.
    n_batches : batches learned.
    """

    graph: GraphState
    counts: ClassCounts
    n_batches: int

    @property
    def kept(self) -> Points:
        """Kept rows in the format of the stream."""
        return self.graph.rows.take(no_indices()).rows

    def on(self, device: str) -> PropagationState:
        """Return the state on a device."""
        return self._replace(graph=self.graph.on(device))

    def validate(self) -> None:
        """Raise a ValueError if the graph is not of the classes."""
        expect(self.graph.influence.shape[1] == self.counts.size, "influence of every class")


def with_classes(state: PropagationState, places: Indices, declared: Mask) -> PropagationState:
    """Return the state with class c moved to ``places[c]``; -1 drops it.

    ``declared`` (K,) is the mask of the classes afterwards that were declared.
    """
    graph = state.graph.with_classes(places, declared.size)
    return state._replace(graph=graph, counts=state.counts.with_classes(places, declared))


def learn_whole(
    state: PropagationState,
    rows: Rows,
    measured: int,
    search: Callable[[Metric, Sequence[Stored], int], Lists],
    proportions: Array | None = None,
) -> tuple[PropagationState, GraphInfo]:
    """Learn rows that are all kept, in the order of their slots, as the first batch.

    Parameters
    ----------
    state : an empty state with a column for every class.
    rows : n rows, at most the capacity, of which at most half are labeled.
    measured : number of rows, the first ones, whose principal directions the metric measures.
    search : returns exact lists of a given length, of all rows in blocks.
    proportions : (K,) known class proportions.
    """
    graph, n_rows = state.graph, rows.codes.size
    stored = graph.rows.metric.store(rows.points)
    n_first = min(measured, n_rows)
    metric = graph.rows.put(np.arange(n_first), stored.take(slice(n_first))).metric
    starts = range(0, n_rows, BLOCK)
    blocks = tuple(metric.restored(stored.take(slice(at, at + BLOCK))) for at in starts)
    lists = search(metric, blocks, graph.rows.lists.slots.shape[1])
    zeros = np.zeros((n_rows, graph.influence.shape[1]), dtype=np.float32)
    graph = replace(
        graph,
        rows=replace(graph.rows, metric=metric, blocks=blocks, lists=lists),
        codes=rows.codes.astype(np.int32),
        label_weights=np.where(rows.labeled, rows.weights, 0.0),
        influence=zeros,
        solution=zeros,
        n_unlabeled=float(np.count_nonzero(~rows.labeled)),
        n_stale=n_rows,
        n_updates=-(-n_rows // measured),
    )
    counts = state.counts.add(rows.codes[rows.labeled], rows.weights[rows.labeled])
    graph, info = solved(graph, no_indices(), labels_changed=True)
    graph = with_proportions(graph, proportions)
    return PropagationState(graph, counts, 1), info._replace(n_entered=n_rows)


def learn(
    state: PropagationState,
    rows: Rows,
    forgetting: float,
    proportions: Array | None = None,
    *,
    new_points: bool,
    new_batch: bool,
    solve: bool = True,
    part: int | None = None,
) -> tuple[PropagationState, GraphInfo]:
    """Learn a batch, or late labels if its points are not new.

    ``proportions`` (K,) are known class proportions. ``new_batch`` is False for a part of a larger
    batch, which is not counted as a batch. Every other batch but the first discounts earlier rows
    by ``forgetting`` in (0, 1]; earlier labels are discounted by batches with labels only. For
    ``solve`` and ``part`` see `learn_graph`.
    """
    forgetting = forgetting if new_batch and state.n_batches else 1.0
    codes, weights = rows.codes[rows.labeled], rows.weights[rows.labeled]
    counts = state.counts.forget(forgetting if codes.size else 1.0).add(codes, weights)
    graph = state.graph.forget(forgetting, new_labels=bool(codes.size))
    with one_thread():
        graph, info, _ = learn_graph(
            graph, rows, new_points=new_points, proportions=proportions, solve=solve, part=part
        )
    return PropagationState(graph, counts, state.n_batches + new_batch), info


def retract(
    state: PropagationState,
    points: Points,
    codes: Indices | None,
    proportions: Array | None = None,
) -> tuple[PropagationState, GraphInfo, Mask]:
    """Retract the labels of some rows; also return the mask (K,) of the classes that are kept.

    ``codes`` (n,) are the classes of the labels, None for whatever labels the rows have.
    ``proportions`` (K,) are known class proportions.
    """
    before = state.graph
    with one_thread():
        graph, info, slots = retract_from_graph(before, points, codes, proportions)
    if (slots < 0).any():
        row = int(np.flatnonzero(slots < 0)[0])
        (equal,) = all_equal_slots(before, points[row : row + 1])
        if equal.size:
            labeled = equal[before.codes[equal] >= 0].tolist()
            taken = OTHER_LABEL if {*labeled} - {*slots.tolist()} else TOO_OFTEN
            raise ValueError((taken if labeled else NO_LABEL).format(row))
        raise ValueError(
            f"row {row} of X is not among the {before.n_labeled} labeled rows that are kept "
            f"(graph_memory={before.capacity}), expected one of them, with the values it was "
            "learned with: correct the row, or leave it out."
        )
    weights = before.label_weights[slots]
    counts = state.counts.remove(before.codes[slots].astype(np.intp), weights, weights)
    kept = counts.kept
    places = np.where(kept, np.cumsum(kept) - 1, -1)
    state = with_classes(state._replace(graph=graph, counts=counts), places, counts.declared[kept])
    return state, info, kept


def scores(state: PropagationState, points: Points) -> Array:
    """Return class scores (n, K) >= 0 at every row.

    If no kept row has a label any more, they are uniform over the classes with labels.
    """
    if not state.graph.n_labeled:
        seen = state.counts.seen
        return np.tile(seen / max(1, seen.sum()), (points.shape[0], 1))
    return state.graph.scores(state.graph.search(points))

"""Label propagation over a stream: one update, and scores of new rows.

The state keeps a uniform sample of the unlabeled rows and a sample of the labeled ones in which
newer rows are more frequent, the graph over them, and the solution of
`seqmed.graph.conjugate_gradients`. An update replaces some of the kept rows and
solves again, starting from the last solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask, Points, bytes_of, no_indices, row_keys
from seqmed.graph.conjugate_gradients import Solution, edge_weights, make_graph, solve
from seqmed.graph.kept_rows import KeptRows, no_kept_rows
from seqmed.graph.metrics import Metric, Stored
from seqmed.graph.neighbours import Lists, Single, Slots

UNLABELED = -1
# Share of the kept rows that labeled ones may take.
LABELED_SHARE = 0.5
# Share of the kept rows that may change before the system is solved again without new labels.
STALE_SHARE = 0.01
# Label mass of a class at the last solution, relative to that of now, from which on the next one
# starts from zero.
LARGEST_RATIO = 10.0
# A label that forgetting has left with less than this share of the largest mass is dropped.
FADED = 1e-6
# Values that are gathered at once for the means of neighbours, 4 MB.
LARGEST_GATHER = 2**20


class GraphInfo(NamedTuple):
    """What an update of the graph has to report.

    Attributes
    ----------
    n_entered : rows that were taken into the memory.
    n_iter : steps of conjugate gradients; 0 if the last solution still serves.
    residual : relative residual of the solution.
    gap : upper bound of the duality gap of the quadratic problem, relative to its right-hand side.
    """

    n_entered: int
    n_iter: int
    residual: float
    gap: float


@dataclass(frozen=True)
class GraphState:
    """What the graph expert has kept of a stream.

    Parameters
    ----------
    rows : the kept rows and their neighbour lists.
    capacity : largest number of kept rows.
    alpha : in [0, 1), weight of the graph against the degrees.
    codes : (n,) class of every kept row, -1 for an unlabeled one.
    masses : (n,) weight of its label, 0 for an unlabeled one.
    influence : (n, K) float32, the posterior mean U of every class, >= 0, per unit of label mass.
    solution : (n, K) float32, the solution Z from which the next one starts.
    solved_masses : (K,) label mass of every class when that solution was found.
    n_unlabeled : unlabeled rows seen, past ones discounted by forgetting.
    n_stale : kept rows that changed since the last solution.
    seed, n_updates : from which random choices are derived.
    """

    rows: KeptRows
    capacity: int
    alpha: float
    codes: Slots
    masses: Array
    influence: Single
    solution: Single
    solved_masses: Array
    n_unlabeled: float
    n_stale: int
    seed: int
    n_updates: int

    @property
    def class_masses(self) -> Array:
        """Total label mass of every class, (K,)."""
        labeled = self.codes >= 0
        n_classes = self.influence.shape[1]
        found = np.bincount(self.codes[labeled], self.masses[labeled], minlength=n_classes)
        return found.astype(np.float64)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays the state consists of, each counted once."""
        return bytes_of(self)

    def with_classes(self, places: Indices, n_classes: int) -> GraphState:
        """Return the state with old class c at ``places[c]`` of ``n_classes``; -1: forgotten."""
        kept = np.flatnonzero(places >= 0)
        codes, masses = self.codes, self.masses
        labeled = codes >= 0
        codes = codes.copy()
        codes[labeled] = places[codes[labeled]]
        masses = np.where(codes >= 0, masses, 0.0)
        solved_masses = np.zeros(n_classes)
        solved_masses[places[kept]] = self.solved_masses[kept]
        columns = []
        for old in (self.influence, self.solution):
            new = np.zeros((old.shape[0], n_classes), dtype=np.float32)
            new[:, places[kept]] = old[:, kept]
            columns.append(new)
        return replace(
            self,
            codes=codes,
            masses=masses,
            influence=columns[0],
            solution=columns[1],
            solved_masses=solved_masses,
        )

    def search(self, points: Points) -> Lists:
        """Return the nearest kept rows of every row, (m, p)."""
        return self.rows.search(self.rows.metric.store(points))

    def scores(self, found: Lists, class_weights: Array | None = None) -> Array:
        """Return class scores (m, K) >= 0 of rows with these nearest kept rows.

        The heat-weighted mean of U over the neighbours, divided by its sum over classes; uniform
        over the classes with labels where no label reaches.
        ``class_weights`` (K,) multiply the scores first.
        """
        known = self.class_masses > 0
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
        masses=np.zeros(0),
        influence=np.zeros((0, 0), dtype=np.float32),
        solution=np.zeros((0, 0), dtype=np.float32),
        solved_masses=np.zeros(0),
        n_unlabeled=0.0,
        n_stale=0,
        seed=seed,
        n_updates=0,
    )


class Entering(NamedTuple):
    """Which rows of a batch are taken into the memory, and in which slots; both (e,)."""

    rows: Indices
    slots: Indices


def choose_entering(state: GraphState, codes: NDArray[np.integer]) -> Entering:
    """Choose the rows of a batch that are kept, and the slots they take.

    Labeled rows are always kept; beyond half of the capacity they replace random labeled rows.
    Unlabeled rows are a uniform sample of those seen.

    Parameters
    ----------
    state : before the batch.
    codes : (m,) classes of the rows, -1 for unlabeled ones.
    """
    rng = np.random.default_rng((state.seed, state.n_updates))
    owner: dict[int, int] = {}
    pools = {
        True: np.flatnonzero(state.codes >= 0).tolist(),
        False: np.flatnonzero(state.codes < 0).tolist(),
    }
    size = state.rows.size
    seen = state.n_unlabeled
    for row in np.flatnonzero(codes >= 0).tolist():
        full = len(pools[True]) >= most_labeled(state)
        if not full and size < state.capacity:
            slot, size = size, size + 1
        else:
            pool = pools[True] if full or not pools[False] else pools[False]
            slot = take_random(pool, rng)
        pools[True].append(slot)
        owner[slot] = row
    unlabeled = np.flatnonzero(codes < 0)
    free = unlabeled[: max(0, state.capacity - size)]
    for row in free.tolist():
        owner[size] = row
        size += 1
    n_slots = len(pools[False]) + free.size
    rest = unlabeled[free.size :]
    ranks = seen + free.size + 1.0 + np.arange(rest.size)
    drawn = rest[rng.random(rest.size) * ranks < n_slots]
    candidates = np.array(pools[False] + list(range(size - free.size, size)), dtype=np.intp)
    for row, slot in zip(drawn.tolist(), rng.integers(n_slots, size=drawn.size), strict=True):
        owner[int(candidates[slot])] = row
    slots = np.fromiter(owner, np.intp, len(owner))
    return Entering(np.fromiter(owner.values(), np.intp, len(owner)), slots)


def most_labeled(state: GraphState) -> int:
    """Return how many labeled rows are kept at most."""
    return max(1, int(LABELED_SHARE * state.capacity))


def take_random(pool: list[int], rng: np.random.Generator) -> int:
    """Remove a random slot from a pool and return it."""
    place = int(rng.integers(len(pool)))
    pool[place], pool[-1] = pool[-1], pool[place]
    return pool.pop()


def learn(
    state: GraphState,
    batch: Stored,
    codes: NDArray[np.integer],
    masses: Array,
    *,
    late: bool = False,
    entering: Entering | None = None,
) -> tuple[GraphState, GraphInfo]:
    """Learn a batch: take some of its rows into the memory, and solve again.

    Parameters
    ----------
    state : with a column for every class.
    batch : m rows as the metric of the state stores them.
    codes, masses : (m,) classes and weights of their labels; -1 and 0 for unlabeled rows.
    late : whether the labels are of rows learned before. A kept row is then given its label; a row
        that is no longer kept enters again.
    entering : as chosen by `choose_entering`, if that has been called.
    """
    if late:
        state, placed = place_labels(state, batch, codes, masses)
        batch, codes, masses = batch.take(~placed), codes[~placed], masses[~placed]
    rows, slots = entering or choose_entering(state, codes)
    kept = state.rows.put(slots, batch.take(rows))
    added = kept.size - state.rows.size
    codes_kept = np.append(state.codes, np.full(added, UNLABELED, np.int32))
    masses_kept = np.append(state.masses, np.zeros(added))
    codes_kept[slots], masses_kept[slots] = codes[rows], masses[rows]
    influence = grown(state.influence, added)
    influence[slots] = 0.0
    changed = replace(
        state,
        rows=kept,
        codes=codes_kept,
        masses=masses_kept,
        influence=influence,
        solution=grown(state.solution, added),
        n_unlabeled=state.n_unlabeled + float(np.count_nonzero(codes < 0)),
        n_stale=state.n_stale + rows.size,
        n_updates=state.n_updates + 1,
    )
    return solved(changed, slots, labels_changed=late or bool((codes[rows] >= 0).any()))


def place_labels(
    state: GraphState, batch: Stored, codes: NDArray[np.integer], masses: Array
) -> tuple[GraphState, Mask]:
    """Give labels to the kept rows they belong to; return also a mask (m,) of labels so placed.

    If more than `LABELED_SHARE` of the kept rows are labeled then, random ones lose their labels,
    older ones first.
    """
    slots = equal_slots(state, batch, lambda slot, _: state.codes[slot] < 0)
    placed = slots >= 0
    new_codes, new_masses = state.codes.copy(), state.masses.copy()
    new_codes[slots[placed]], new_masses[slots[placed]] = codes[placed], masses[placed]
    excess = int(np.count_nonzero(new_codes >= 0)) - most_labeled(state)
    if excess > 0:
        rng = np.random.default_rng((state.seed, state.n_updates, 1))
        older = np.setdiff1d(np.flatnonzero(new_codes >= 0), slots[placed])
        dropped = np.append(rng.permutation(older), rng.permutation(slots[placed]))[:excess]
        new_codes[dropped], new_masses[dropped] = UNLABELED, 0.0
    return replace(state, codes=new_codes, masses=new_masses), placed


class Retraction(NamedTuple):
    """What is left when labels have been taken back.

    Attributes
    ----------
    state, info : the state without the labels, and its report.
    found : (m,) mask of the labels that were found.
    codes, masses : (m,) their classes and weights; -1 and 0 where none was found.
    """

    state: GraphState
    info: GraphInfo
    found: Mask
    codes: NDArray[np.integer]
    masses: Array


def take_labels_back(state: GraphState, batch: Stored, codes: NDArray[np.integer]) -> Retraction:
    """Take back the labels ``codes`` (m,) of kept rows; -1 for whatever label a row has.

    The rows and the graph stay.
    """
    slots = equal_slots(
        state,
        batch,
        lambda slot, row: (
            state.codes[slot] == codes[row] if codes[row] >= 0 else state.codes[slot] >= 0
        ),
    )
    found = slots >= 0
    new_codes, new_masses = state.codes.copy(), state.masses.copy()
    new_codes[slots[found]], new_masses[slots[found]] = UNLABELED, 0.0
    changed = replace(state, codes=new_codes, masses=new_masses, n_updates=state.n_updates + 1)
    new, info = solved(changed, no_indices(), labels_changed=bool(found.any()))
    codes = np.where(found, state.codes[slots], UNLABELED)
    masses = np.where(found, state.masses[slots], 0.0)
    return Retraction(new, info, found, codes, masses)


def equal_slots(
    state: GraphState, batch: Stored, fits: Callable[[int, int], bool]
) -> NDArray[np.intp]:
    """Return the slot of a kept row equal to each row of a batch, -1 for none; each slot once.

    ``fits`` tells whether a slot may be taken for a row.
    """
    wanted = row_keys(batch.rows)
    candidates: dict[Any, list[int]] = {key: [] for key in wanted}
    keys = (key for block in state.rows.blocks for key in row_keys(block.rows))
    for slot, key in enumerate(keys):
        if key in candidates:
            candidates[key].append(slot)
    slots = np.full(batch.size, -1)
    for row, key in enumerate(wanted):
        slots[row] = next((slot for slot in candidates[key] if fits(slot, row)), -1)
        if slots[row] >= 0:
            candidates[key].remove(int(slots[row]))
    return slots


def solved(
    state: GraphState, entered: Indices, *, labels_changed: bool
) -> tuple[GraphState, GraphInfo]:
    """Return the state with its system solved, unless too little has changed since it was."""
    if not labels_changed and state.n_stale <= STALE_SHARE * state.rows.size:
        return state, GraphInfo(entered.size, 0, 0.0, 0.0)
    graph = make_graph(state.rows.lists, state.rows.n_neighbors)
    roots = np.where(graph.roots > 0, graph.roots, np.float32(1.0))[:, None]
    start = state.solution.copy()
    totals = state.class_masses
    known = np.flatnonzero(totals > 0)
    ratios = state.solved_masses[known] / totals[known]
    # where most of a class is gone the last solution is no start: its digits would drown the next
    start[:, known] *= np.where(ratios < LARGEST_RATIO, ratios, 0.0).astype(np.float32)
    # entering rows start at the mean of their neighbours
    start[entered] = state.mean_influence(state.rows.lists.take(entered)) / roots[entered]
    targets = np.zeros((state.rows.size, known.size), dtype=np.float32)
    labeled = np.flatnonzero(state.codes >= 0)
    codes = state.codes[labeled]
    targets[labeled, np.searchsorted(known, codes)] = state.masses[labeled] / totals[codes]
    solution = solve(graph, targets, state.alpha, start[:, known])
    values = np.zeros_like(start)
    values[:, known] = solution.values
    influence = np.maximum(values * roots, np.float32(0.0))
    state = replace(state, solution=values, influence=influence, solved_masses=totals, n_stale=0)
    return state, GraphInfo(entered.size, solution.n_iter, *certificate(solution, state.alpha))


def certificate(solution: Solution, alpha: float) -> tuple[float, float]:
    """Return the relative residual, and a bound of the relative duality gap.

    The problem is to minimise ``z'Az / 2 - b'z``, A having eigenvalues >= 1 - alpha, so the gap is
    ``r'A^{-1}r / 2 <= |r|^2 / (2 (1 - alpha))``, given in units of ``|b|^2``.
    """
    return solution.residual, solution.residual**2 / (2.0 * (1.0 - alpha))


def grown(values: Single, n: int) -> Single:
    """Return a copy of (m, K) values with n rows of zeros added."""
    return np.vstack([values, np.zeros((n, values.shape[1]), dtype=np.float32)])


def forget(state: GraphState, share: float, *, new_labels: bool = True) -> GraphState:
    """Return the state with the past discounted by ``share`` in (0, 1].

    Unlabeled rows of the past count less in the sample, and labels lose mass if there are new ones.
    """
    if share == 1.0:
        return state
    masses = share * state.masses if new_labels else state.masses
    faded = masses <= FADED * masses.max(initial=0.0)
    return replace(
        state,
        masses=np.where(faded, 0.0, masses),
        codes=np.where(faded, np.int32(UNLABELED), state.codes),
        n_unlabeled=share * state.n_unlabeled,
    )

"""The state of GraphPropagation and its updates: the graph, and the labels of every class.

The functions expect validated rows and change nothing in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.classes import UNLABELED, ClassCounts, Rows, no_classes
from seqmed.graph import propagation
from seqmed.graph.propagation import GraphInfo, GraphState
from seqmed.numeric.arrays import Array, Indices, Mask, Points
from seqmed.numeric.execution import one_thread
from seqmed.numeric.expectations import expect


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
        return self.graph.rows.blocks[0].rows

    def validate(self) -> None:
        """Raise a ValueError if the graph is not of the classes."""
        expect(self.graph.influence.shape[1] == self.counts.size, "influence of every class")

    @property
    def n_labeled(self) -> int:
        """Number of kept rows with a label."""
        return int(np.count_nonzero(self.graph.codes >= 0))


def begin(graph: GraphState) -> PropagationState:
    """Return the state before the first batch."""
    return PropagationState(graph, no_classes(per_class=True), 0)


def with_classes(state: PropagationState, places: Indices, declared: Mask) -> PropagationState:
    """Return the state with class c moved to ``places[c]``; -1 drops it.

    ``declared`` (K,) is the mask of the classes afterwards that were declared.
    """
    graph = state.graph.with_classes(places, declared.size)
    return state._replace(graph=graph, counts=state.counts.with_classes(places, declared))


def learn(
    state: PropagationState, rows: Rows, forgetting: float, *, new_points: bool, new_batch: bool
) -> tuple[PropagationState, GraphInfo]:
    """Learn a batch, or late labels if its points are not new.

    ``new_batch`` is False for a part of a larger batch, which is not counted as a batch. Every
    other batch but the first discounts earlier rows by ``forgetting`` in (0, 1]; earlier labels are
    discounted by batches with labels only.
    """
    forgetting = forgetting if new_batch and state.n_batches else 1.0
    labeled = rows.labeled
    codes, weights = rows.codes[labeled], rows.weights[labeled]
    counts = state.counts.add(codes, weights)
    counts = counts.discount(forgetting if codes.size else 1.0, codes, weights)
    graph = state.graph.forget(forgetting, new_labels=bool(codes.size))
    label_weights = np.where(labeled, rows.weights, 0.0)
    with one_thread():
        stored = graph.rows.metric.store(rows.points)
        graph, info = propagation.learn_graph(
            graph, stored, rows.codes, label_weights, late=not new_points
        )
    return PropagationState(graph, counts, state.n_batches + new_batch), info


class PropagationRetraction(NamedTuple):
    """The outcome of a retraction of labels.

    Attributes
    ----------
    state, info : the state without the labels, and its report.
    kept : (K,) mask of the classes that are kept.
    found : (n,) mask of the labels that were found. If one was not, the state is meaningless.
    """

    state: PropagationState
    info: GraphInfo
    kept: Mask
    found: Mask


def retract(
    state: PropagationState, points: Points, codes: Indices | None
) -> PropagationRetraction:
    """Retract the labels of some rows.

    ``codes`` (n,) are the classes of the labels, None for whatever labels the rows have.
    """
    stored = state.graph.rows.metric.store(points)
    wanted = np.full(points.shape[0], UNLABELED) if codes is None else codes
    with one_thread():
        graph, info, found, removed, weights = propagation.retract_from_graph(
            state.graph, stored, wanted
        )
    if codes is not None:
        found = found & (codes >= 0)
    weights = weights[found]
    counts = state.counts.remove(removed[found].astype(np.intp), weights, weights)
    kept = counts.kept
    places = np.where(kept, np.cumsum(kept) - 1, -1)
    state = with_classes(state._replace(graph=graph, counts=counts), places, counts.declared[kept])
    return PropagationRetraction(state, info, kept, found)


def scores(state: PropagationState, points: Points) -> Array:
    """Return class scores (n, K) >= 0 at every row.

    If no kept row has a label any more, they are uniform over the classes with labels.
    """
    if not state.n_labeled:
        seen = state.counts.seen
        return np.tile(seen / max(1, seen.sum()), (points.shape[0], 1))
    return state.graph.scores(state.graph.search(points))

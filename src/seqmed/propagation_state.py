"""The state of GraphPropagation (classes, graph) and its updates.

The functions expect validated rows and change nothing in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from seqmed.arrays import Array, Indices, Mask, Points
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry, empty_registry
from seqmed.graph import propagation
from seqmed.graph.graph_state import UNLABELED, GraphState
from seqmed.graph.propagation import GraphInfo
from seqmed.threads import one_thread


class PropagationState(NamedTuple):
    """The state of `GraphPropagation`."""

    graph: GraphState
    registry: ClassRegistry
    n_batches: int
    fixed: dict[str, Any]
    sparse: bool

    @property
    def n_labeled(self) -> int:
        """Number of kept rows with a label."""
        return int(np.count_nonzero(self.graph.codes >= 0))


def empty_state(graph: GraphState, rows: Rows, fixed: dict[str, Any]) -> PropagationState:
    """Return the state before the first batch, ``rows``."""
    registry = empty_registry(per_class=True)
    return PropagationState(graph, registry, 0, fixed, sp.issparse(rows.points))


def learn(
    state: PropagationState, rows: Rows, forgetting: float, *, new_points: bool, new_batch: bool
) -> tuple[PropagationState, GraphInfo]:
    """Learn a batch, or late labels if its points are not new.

    ``new_batch`` is False for a part of a larger batch, which is not counted as a batch. Every
    other batch but the first discounts earlier rows by ``forgetting`` in (0, 1]; earlier labels are
    discounted by batches with labels only.
    """
    forgetting = forgetting if new_batch and state.n_batches else 1.0
    has_labels, weights = bool(rows.labeled.any()), rows.weights[rows.labeled]
    registry = state.registry.declare(rows.declared).add(rows.labels, weights)
    graph = state.graph.forget(forgetting, new_labels=has_labels)
    graph = graph.with_classes(state.registry.indices_in(registry), registry.classes.size)
    codes = np.full(rows.weights.size, UNLABELED)
    codes[rows.labeled] = registry.find(rows.labels)
    registry = registry.discount(forgetting if has_labels else 1.0, codes[rows.labeled], weights)
    label_weights = np.where(rows.labeled, rows.weights, 0.0)
    with one_thread():
        stored = graph.rows.metric.store(rows.points)
        graph, info = propagation.learn(graph, stored, codes, label_weights, late=not new_points)
    n_batches = state.n_batches + new_batch
    return state._replace(graph=graph, registry=registry, n_batches=n_batches), info


def retract(
    state: PropagationState, points: Points, codes: Indices | None
) -> tuple[PropagationState, GraphInfo, Mask]:
    """Retract the labels of some rows; also return a mask (n,) of the labels that were found.

    ``codes`` (n,) are the classes of the labels, None for whatever labels the rows have. If a label
    is not found, the state is meaningless.
    """
    graph, registry = state.graph, state.registry
    stored = graph.rows.metric.store(points)
    wanted = np.full(points.shape[0], UNLABELED) if codes is None else codes
    with one_thread():
        new, info, found, removed, weights = propagation.retract(graph, stored, wanted)
    if codes is not None:
        found = found & (codes >= 0)
    remaining = registry.remove(removed[found].astype(np.intp), weights[found], weights[found])
    new = new.with_classes(registry.indices_in(remaining), remaining.classes.size)
    return state._replace(graph=new, registry=remaining), info, found


def scores(state: PropagationState, points: Points) -> Array:
    """Return class scores (n, K) >= 0 at every row.

    If no kept row has a label any more, they are uniform over the classes with labels.
    """
    if not state.n_labeled:
        seen = state.registry.seen
        return np.tile(seen / max(1, seen.sum()), (points.shape[0], 1))
    return state.graph.scores(state.graph.search(points))

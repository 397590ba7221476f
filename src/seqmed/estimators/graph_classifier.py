"""The graph over kept rows, shared by GraphPropagation and SeqGraphMED."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import uncertainty
from seqmed.arrays import Array, Points, take_rows
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry
from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.validation import MatrixLike
from seqmed.graph.graph_state import GraphState, empty_graph
from seqmed.graph.metrics import make_metric
from seqmed.kernels import Kernel, make_kernel
from seqmed.uncertainty import Uncertainty

DEFAULT_GRAPH_MEMORY = 10_000
# Number of rows in the mini-batches of `fit`.
FIT_BATCH = 1000


class GraphClassifier(StreamClassifier):
    """A classifier with a graph over kept rows."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "graph_memory": [Interval(Integral, 2, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0.0, 1.0, closed="left")],
        "metric": [StrOptions({"auto", "euclidean", "cosine"}), callable],
        "unlabeled": "no_validation",
        "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
        "random_state": ["random_state"],
    }

    _fixed_parameters: tuple[str, ...] = (
        "graph_memory",
        "n_neighbors",
        "alpha",
        "metric",
    )

    graph_memory: int
    n_neighbors: int
    alpha: float
    metric: Any
    forgetting: float | str
    random_state: Any

    n_kept_: int
    duality_gap_: float
    n_iter_: int

    # -- learning --------------------------------------------------------------------------------

    def _learn_all(self, rows: Rows) -> None:
        """Learn the rows in random order, in mini-batches that count as one batch."""
        seed = self._drawn_seed()
        order = np.random.default_rng(seed).permutation(rows.weights.size)
        state, info = None, None
        size = self._fit_batch(order.size)
        for start in range(0, order.size, size):
            part = taken(rows, order[start : start + size])
            if state is None:
                state = self._begin(part, seed, np.unique(rows.labels))
            state, info = self._learn_rows(state, part, new_points=True, new_batch=not start)
        self._commit(state, info)

    def _learn_batch(self, rows: Rows, state: Any, *, new_points: bool) -> None:
        if state is None:
            state = self._begin(rows, self._drawn_seed(), rows.declared)
        elif not new_points:
            rows = taken(rows, np.flatnonzero(rows.labeled))
        learned = self._learn_rows(state, rows, new_points=new_points, new_batch=new_points)
        self._commit(*learned)

    def _fit_batch(self, n_rows: int) -> int:
        """Return the size of the mini-batches in which `fit` learns n rows."""
        return FIT_BATCH

    def _drawn_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _begin_graph(self, rows: Rows, seed: int, kernel: Kernel | None) -> GraphState:
        """Return an empty graph. ``metric="auto"`` uses the distance of ``kernel``, if not None."""
        metric = self.metric
        if callable(metric):
            metric = make_kernel(metric, "scale", 3, 0.0).freeze(rows.points, rows.weights)
        metric = make_metric(metric, rows.points, kernel)
        return empty_graph(metric, self.graph_memory, self.n_neighbors, self.alpha, seed)

    # -- fitted attributes and label queries -----------------------------------------------------

    @property
    def metric_(self) -> Any:
        """Distance of the graph: "euclidean", "cosine" or a Kernel."""
        state = getattr(self, "_state", None)
        if state is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first.")
        metric = state.graph.rows.metric
        return metric.name

    def _class_scores(self, X: MatrixLike) -> tuple[ClassRegistry, Array]:
        model = self._snapshot()
        return model._state.registry, model._scores(model._checked_points(X))

    def _predictions(self, X: MatrixLike) -> tuple[ClassRegistry, Array, Array]:
        model = self._snapshot()
        scores = model._scores(model._checked_points(X))
        return model._state.registry, scores, model._probabilities(scores)

    def predict_proba(self, X: MatrixLike) -> Array:
        return self._predictions(X)[2]

    def _n_support(self) -> int:
        return uncertainty.CONDITIONED

    def _uncertainty(self, points: Points) -> Uncertainty:
        state = self._state
        probabilities = np.zeros((points.shape[0], 0))
        if state.registry.seen.sum() > 1:
            probabilities = self._probabilities(self._scores(points))
        return uncertainty.of_graph(state.graph, state.registry, points, probabilities)

    # -- methods of subclasses -------------------------------------------------------------------

    @abstractmethod
    def _begin(self, rows: Rows, seed: int, classes: NDArray[Any]) -> Any:
        """Return the state before the first batch; ``rows`` is this batch."""

    @abstractmethod
    def _learn_rows(
        self, state: Any, rows: Rows, *, new_points: bool, new_batch: bool
    ) -> tuple[Any, Any]:
        """Return the next state and a report. With ``new_batch`` the rows count as a batch."""

    @abstractmethod
    def _commit(self, state: Any, info: Any) -> None:
        """Store a new state and everything that is derived from it."""

    @abstractmethod
    def _scores(self, points: Points) -> Array:
        """Return the score of every class at validated rows, (n, n_classes)."""

    @abstractmethod
    def _probabilities(self, scores: Array) -> Array:
        """Return the probabilities of the classes, given their scores, both (n, n_classes)."""


def taken(rows: Rows, order: NDArray[np.intp]) -> Rows:
    """Return the selected rows of a validated batch, in the given order."""
    places = np.cumsum(rows.labeled) - 1
    labeled = rows.labeled[order]
    return rows._replace(
        points=take_rows(rows.points, order),
        labeled=labeled,
        labels=rows.labels[places[order][labeled]],
        weights=rows.weights[order],
    )

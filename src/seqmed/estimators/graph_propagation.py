"""GraphPropagation: label propagation over the kept rows of a stream."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import uncertainty
from seqmed.classes import Rows, no_classes
from seqmed.estimators.base import StreamClassifier
from seqmed.graph import propagation
from seqmed.graph.kept_rows import no_kept_rows
from seqmed.graph.metrics import make_metric
from seqmed.graph.propagation import GraphInfo, GraphState, PropagationState
from seqmed.kernels import Kernel, make_kernel
from seqmed.late_rows import KeptLabels
from seqmed.margin.calibration import with_unseen
from seqmed.numeric.arrays import Array, Indices, Points
from seqmed.uncertainty import Uncertainty

DEFAULT_GRAPH_MEMORY = 10_000
# Number of rows in the mini-batches of `fit`.
FIT_BATCH = 1000


class GraphPropagation(StreamClassifier):
    """Label propagation over a stream, in bounded memory.

    A graph connects each kept row with its nearest neighbours, and labels propagate along its
    edges. The kept rows are labeled rows and a uniform sample of the unlabeled rows. When labeled
    rows fill half of the memory, a new labeled row replaces a random labeled row.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string. A
    saved model contains kept rows of the stream.

    Parameters
    ----------
    graph_memory : int >= 2, default=10000
        Largest number of kept rows. At most half of them are labeled.
    n_neighbors : int >= 1, default=10
        Number of neighbours of a row in the graph.
    alpha : float in [0, 1), default=0.97
        Weight of the neighbours relative to a row's own label.
    metric : {"auto", "euclidean", "cosine"} or callable, default="auto"
        Distance of two rows. "auto" is "euclidean" for dense rows and "cosine" for sparse rows. A
        callable is a kernel k, which maps arrays of shape (n, p) and (m, p) to an (n, m) matrix.
        The squared distance is then ``k(x, x) + k(x', x') - 2 k(x, x')``. The metric used is
        `metric_`.
    unlabeled : object, default=-1
        Marker of unlabeled rows in y. With None, only NaN, None, NaT and empty strings mark them.
    forgetting : float in (0, 1], default=1.0
        Forgetting factor: the weight of earlier labels is multiplied by it at every batch with
        labels, and kept rows are replaced sooner. Choose a value below 1 for streams that drift.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of kept rows, and of the order of the rows in `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes so far, sorted.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names. Only available if the first batch has column names that are all strings.
    n_batches_ : int
        Number of batches learned; `fit` counts as one.
    n_kept_ : int
        Number of kept rows.
    metric_ : {"euclidean", "cosine"} or Kernel
        Distance of the graph.
    duality_gap_ : float >= 0
        Upper bound of the relative duality gap of the last solve.
    n_iter_ : int
        Number of conjugate gradient iterations of the last batch.
    update_info_ : GraphInfo
        Report of the last batch.

    See Also
    --------
    SeqGraphMED : Mixes this classifier with a maximum-margin one. The default choice.
    sklearn.semi_supervised.LabelSpreading : Label propagation on a single batch.

    Notes
    -----
    The prior over functions on the graph is ``N(0, (D - alpha W)^{-1})``, with edge weights W and
    vertex degrees D. The posterior mean for one-hot labels Y is ``U = (D - alpha W)^{-1} Y``. The
    score of a class at a new row is the weighted mean of U over its nearest kept rows, divided by
    the number of labels of the class.

    Probabilities are the normalised class scores. They are not calibrated.

    `fit` shuffles the rows and learns them in mini-batches. `retract` applies to labeled rows that
    are kept. `forgetting` may change between batches with `set_params`. `graph_memory`,
    `n_neighbors`, `alpha` and `metric` may not change.

    References
    ----------
    D. Zhou, O. Bousquet, T. Lal, J. Weston, B. Schoelkopf, "Learning with local and global
    consistency", NIPS 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from seqmed import GraphPropagation
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) % 20 == 0, y, -1)  # one label in twenty
    >>> model = GraphPropagation(random_state=0)
    >>> for start in range(0, 1500, 250):
    ...     batch = slice(start, start + 250)
    ...     model = model.partial_fit(X[batch], labels[batch])
    >>> model.n_kept_
    1500
    >>> bool(model.score(X[1500:], y[1500:]) > 0.85)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "graph_memory": [Interval(Integral, 2, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0.0, 1.0, closed="left")],
        "metric": [StrOptions({"auto", "euclidean", "cosine"}), callable],
        "unlabeled": "no_validation",
        "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
        "random_state": ["random_state"],
    }

    _fixed_parameters = ("graph_memory", "n_neighbors", "alpha", "metric")

    n_kept_: int
    duality_gap_: float
    n_iter_: int
    update_info_: GraphInfo
    _state: PropagationState

    def __init__(
        self,
        *,
        graph_memory: int = DEFAULT_GRAPH_MEMORY,
        n_neighbors: int = 10,
        alpha: float = 0.97,
        metric: str | Callable[[Any, Any], Any] | Kernel = "auto",
        unlabeled: Any = -1,
        forgetting: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.graph_memory = graph_memory
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.metric = metric
        self.unlabeled = unlabeled
        self.forgetting = forgetting
        self.random_state = random_state

    # -- learning --------------------------------------------------------------------------------

    _with_classes = staticmethod(propagation.with_classes)

    def _fit_batch(self, n_rows: int) -> int:
        return FIT_BATCH

    def _begin(self, rows: Rows, seed: int) -> PropagationState:
        return PropagationState(begin_graph(self, rows, seed, None), no_classes(per_class=True), 0)

    def _learn_rows(
        self, state: Any, rows: Rows, classes: NDArray[Any], **kind: bool
    ) -> tuple[PropagationState, GraphInfo]:
        return propagation.learn(state, rows, float(self.forgetting), **kind)

    def _commit(self, state: PropagationState, info: GraphInfo, classes: NDArray[Any]) -> None:
        self.__dict__.update(
            _state=state,
            classes_=classes,
            n_batches_=state.n_batches,
            n_kept_=state.graph.rows.size,
            update_info_=info,
            duality_gap_=info.gap,
            n_iter_=info.n_iter,
        )

    def _kept_labels(self, points: Points, codes: Indices) -> KeptLabels:
        return propagation.labels_in_graph(self._state.graph, points, codes)

    def _retract(self, points: Points, codes: Indices | None) -> None:
        state, info, kept = propagation.retract(self._state, points, codes)
        self._commit(state, info, self.classes_[kept])

    # -- predictions -----------------------------------------------------------------------------

    def _class_scores(self, points: Points) -> Array:
        return propagation.scores(self._state, points)

    def _probabilities(self, scores: Array) -> Array:
        counts = self._state.counts
        return with_unseen(counts, scores[:, counts.seen], scores)

    def _n_support(self) -> int:
        return uncertainty.CONDITIONED

    def _uncertainty(self, points: Points) -> Uncertainty:
        return uncertainty_in_graph(self, points)

    @property
    def metric_(self) -> Any:
        """Distance of the graph: "euclidean", "cosine" or a Kernel."""
        return self._snapshot()._state.graph.rows.metric.name


# -- shared with SeqGraphMED -----------------------------------------------------------------------


def begin_graph(model: Any, rows: Rows, seed: int, kernel: Kernel | None) -> GraphState:
    """Return an empty graph. ``metric="auto"`` uses the distance of ``kernel``, if not None."""
    metric = model.metric
    if callable(metric):
        metric = make_kernel(metric, "scale", 3, 0.0).freeze(rows.points, rows.weights)
    kept = no_kept_rows(make_metric(metric, rows.points, kernel), model.n_neighbors)
    return GraphState(kept, model.graph_memory, model.alpha, seed)


def uncertainty_in_graph(model: Any, points: Points) -> Uncertainty:
    """Return the uncertainty of the decisions of a classifier with a graph."""
    state, probabilities = model._state, np.zeros((points.shape[0], 0))
    if state.counts.seen.sum() > 1:
        probabilities = model._probabilities(model._class_scores(points))
    return uncertainty.of_graph(state.graph, state.counts, points, probabilities)

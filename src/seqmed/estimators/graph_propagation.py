"""GraphPropagation: label propagation over a stream."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import uncertainty
from seqmed.arrays import Array, Points, take_rows
from seqmed.calibration import with_unseen
from seqmed.classes import ClassRegistry, empty_registry
from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.validation import Rows
from seqmed.graph import propagation
from seqmed.graph.metrics import make_metric
from seqmed.graph.propagation import UNLABELED, GraphInfo, GraphState
from seqmed.kernels import Kernel, make_kernel
from seqmed.snapshots import snapshot
from seqmed.threads import one_thread
from seqmed.uncertainty import Uncertainty

DEFAULT_GRAPH_MEMORY = 10_000
# Rows that `fit` learns at a time.
FIT_BATCH = 1000


class GraphStream(NamedTuple):
    """Everything `GraphPropagation` carries from batch to batch."""

    graph: GraphState
    registry: ClassRegistry
    n_batches: int
    fixed: dict[str, Any]
    sparse: bool


class GraphClassifier(StreamClassifier):
    """What `GraphPropagation` and `SeqGraphMED` share: parameters of the graph, and `fit`."""

    _parameter_constraints: ClassVar[dict] = {
        "graph_memory": [Interval(Integral, 2, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0.0, 1.0, closed="left")],
        "metric": [StrOptions({"auto", "euclidean", "cosine"}), callable],
        "unlabeled": "no_validation",
        "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
        "random_state": ["random_state"],
    }

    _fixed_parameters = ("graph_memory", "n_neighbors", "alpha", "metric")

    def fit(self, X, y, sample_weight=None):
        """Learn from rows given at once, forgetting all that was learned before.

        The rows are shuffled by `random_state` and learned as a stream. The memory of the graph
        is bounded; that of a margin expert grows with its support vectors, unless it has a
        budget. All rows count as one batch.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,)
            Labels; missing ones as described in the class documentation. At least one is needed.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. A weight of 0 leaves a row out.

        Returns
        -------
        self : the fitted classifier.
        """
        self._validate_params()
        model = snapshot(self)
        rows = model._validate_batch(X, y, None, sample_weight, None)
        model._check_labels(rows, alone=True, new_points=True)
        seed = check_random_state(model.random_state).randint(np.iinfo(np.int32).max)
        order = np.random.default_rng(seed).permutation(rows.weights.size)
        stream, info = None, None
        size = model._rows_at_once(order.size)
        for start in range(0, order.size, size):
            part = taken(rows, order[start : start + size])
            if stream is None:
                stream = model._begin(part, seed, np.unique(rows.labels))
            stream, info = model._learn_rows(stream, part, new_points=True, new_batch=not start)
        model._commit(stream, info)
        self.__dict__ = model.__dict__  # in one stroke: for interrupts and other threads
        return self

    def _rows_at_once(self, n_rows: int) -> int:
        """Return how many of n rows `fit` learns at a time."""
        return FIT_BATCH

    def partial_fit(self, X, y, classes=None, sample_weight=None, *, new_points=True):
        """Learn the next batch of a stream, or labels that come late for rows of earlier batches.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows of the batch, at least one.
        y : array-like of shape (n_samples,)
            Labels; missing ones as described in the class documentation. A batch may have labels
            of one class only, or none.
        classes : array-like of shape (n_classes,), default=None
            Classes to expect. Optional in every call: classes that first appear in a later batch
            are added as they come, and a class without an example is never predicted.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. A weight of 0 leaves a row out.
        new_points : bool, default=True
            False for labels of rows that were learned without them. Rows that still have no label
            are passed over; at least one is needed.

        Returns
        -------
        self : the classifier, one batch further. Left as it was if the batch is refused.
        """
        self._validate_params()
        self._check_new_points(new_points)
        stream = getattr(self, "_stream", None)
        if stream is not None:
            self._check_unchanged(stream.fixed)
        model = snapshot(self)
        rows = model._validate_batch(X, y, classes, sample_weight, stream)
        model._check_labels(rows, alone=False, new_points=new_points)
        if stream is None:
            seed = check_random_state(model.random_state).randint(np.iinfo(np.int32).max)
            stream = model._begin(rows, seed, rows.declared)
        elif not new_points:
            rows = taken(rows, np.flatnonzero(rows.labeled))
        model._commit(*model._learn_rows(stream, rows, new_points=new_points, new_batch=new_points))
        self.__dict__ = model.__dict__  # in one stroke: for interrupts and other threads
        return self

    def decision_function(self, X):
        """Return the class scores of every row; the largest is that of the class predicted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Of two classes the score of ``classes_[1]`` less that of ``classes_[0]``.
        """
        stream, scores = self._class_scores(X)
        scores = stream.registry.compared(scores)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X):
        """Return the label of every row, one of the classes of which an example has been seen.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        stream, scores = self._class_scores(X)
        return stream.registry.classes[stream.registry.best(scores)]

    @abstractmethod
    def _class_scores(self, X: Any) -> tuple[Any, Array]:
        """Return the state, and the score of every class at every row, (n_samples, n_classes)."""

    @abstractmethod
    def _probabilities(self, points: Points) -> Array:
        """Return the probability of every class at validated rows, (n, n_classes)."""

    def _n_support(self) -> int:
        """Return how many points a query compares rows with."""
        return uncertainty.CONDITIONED

    def _uncertainty(self, points: Points) -> Uncertainty:
        """Return the uncertainty of the decisions at some rows."""
        stream = self._stream
        probabilities = np.zeros((points.shape[0], 0))
        if stream.registry.seen.sum() > 1:
            probabilities = self._probabilities(points)
        return uncertainty.of_graph(stream.graph, stream.registry, points, probabilities)

    def _begin_graph(self, rows: Rows, seed: int, kernel: Kernel | None) -> GraphState:
        """Return the graph before the first batch; ``kernel`` is whose distances "auto" means."""
        metric = self.metric
        if callable(metric):
            metric = make_kernel(metric, "scale", 3, 0.0).freeze(rows.points, rows.weights)
        metric = make_metric(metric, rows.points, kernel)
        return propagation.empty_graph(
            metric, self.graph_memory, self.n_neighbors, self.alpha, int(seed)
        )

    def _fixed(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fixed_parameters}


def taken(rows: Rows, order: Any) -> Rows:
    """Return some rows of a validated batch, in the order given."""
    places = np.cumsum(rows.labeled) - 1
    labeled = rows.labeled[order]
    return rows._replace(
        points=take_rows(rows.points, order),
        labeled=labeled,
        labels=rows.labels[places[order][labeled]],
        weights=rows.weights[order],
    )


class GraphPropagation(GraphClassifier):
    """Label propagation over a stream, in bounded memory.

    Rows are vertices of a graph of nearest neighbours, and labels spread along its edges. Kept are
    a uniform sample of the unlabeled rows, and labeled rows; beyond half of the memory a new
    labeled row replaces a random labeled one. The prior over functions on the graph is
    ``N(0, (D - alpha W)^{-1})``, W the edge weights and D their sums. The posterior mean for
    one-hot labels Y is ``U = (D - alpha W)^{-1} Y``; the score of a class at a new row is the
    weighted mean of U over its nearest kept rows, divided by the number of labels of the class.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string.

    Parameters
    ----------
    graph_memory : int >= 2, default=10000
        Rows kept at most. At most half of them are labeled.
    n_neighbors : int >= 1, default=10
        Neighbours of a row in the graph.
    alpha : float in [0, 1), default=0.97
        Weight of the neighbours against a row's own label.
    metric : {"auto", "euclidean", "cosine"} or callable, default="auto"
        Distance of two rows. "auto" is "euclidean" for dense rows and "cosine" for sparse ones. A
        callable is a kernel: it maps (n, p) and (m, p) rows to (n, m) values k, and the squared
        distance is ``k(x, x) + k(x', x') - 2 k(x, x')``.
    unlabeled : object, default=-1
        Marker of a missing label; None if only NaN, None, NaT and empty strings are missing.
    forgetting : float in (0, 1], default=1.0
        Forgetting factor per batch: labels lose weight, and kept rows are replaced sooner.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of kept rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels known so far, sorted.
    n_features_in_ : int
        Number of columns.
    n_batches_ : int
        Batches learned.
    n_kept_ : int
        Rows kept.
    duality_gap_ : float
        Bound on the relative duality gap of the last solve, >= 0.
    n_iter_ : int
        Conjugate gradient steps of the last batch.
    update_info_ : GraphInfo
        Everything the last batch reported.

    See Also
    --------
    SeqGraphMED : This classifier beside a maximum-margin one, mixed by evidence.
    sklearn.semi_supervised.LabelSpreading : Label propagation on all rows at once.

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
    >>> bool(model.score(X[1500:], y[1500:]) > 0.85)
    True
    """

    def __init__(
        self,
        *,
        graph_memory=DEFAULT_GRAPH_MEMORY,
        n_neighbors=10,
        alpha=0.97,
        metric="auto",
        unlabeled=-1,
        forgetting=1.0,
        random_state=None,
    ):
        self.graph_memory = graph_memory
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.metric = metric
        self.unlabeled = unlabeled
        self.forgetting = forgetting
        self.random_state = random_state

    def _begin(self, rows: Rows, seed: int, classes: Any) -> GraphStream:
        graph = self._begin_graph(rows, seed, None)
        registry = empty_registry(per_class=True)
        return GraphStream(graph, registry, 0, self._fixed(), sp.issparse(rows.points))

    def _learn_rows(
        self, stream: GraphStream, rows: Rows, *, new_points: bool, new_batch: bool
    ) -> tuple[GraphStream, GraphInfo]:
        share = float(self.forgetting) if new_batch and stream.n_batches else 1.0
        registry = stream.registry.declare(rows.declared).add(
            rows.labels, rows.weights[rows.labeled]
        )
        graph = propagation.forget(stream.graph, share, new_labels=bool(rows.labeled.any()))
        share = share if rows.labeled.any() else 1.0
        graph = graph.with_classes(stream.registry.places_in(registry), registry.classes.size)
        codes, masses = coded(rows, registry)
        registry = registry.discount(share, codes[rows.labeled], rows.weights[rows.labeled])
        with one_thread():
            batch = graph.rows.metric.store(rows.points)
            graph, info = propagation.learn(graph, batch, codes, masses, late=not new_points)
        n_batches = stream.n_batches + new_batch
        return stream._replace(graph=graph, registry=registry, n_batches=n_batches), info

    def _commit(self, stream: GraphStream, info: GraphInfo) -> Self:
        self.__dict__.update(
            _stream=stream,
            classes_=stream.registry.classes,
            n_batches_=stream.n_batches,
            n_kept_=stream.graph.rows.size,
            update_info_=info,
            duality_gap_=info.gap,
            n_iter_=info.n_iter,
        )
        return self

    def retract(self, X, y=None):
        """Take labels back: the rows stay as unlabeled ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows as they were learned. They must still be kept.
        y : array-like of shape (n_samples,), default=None
            The labels to take back; None for whatever label a row has.

        Returns
        -------
        self : the classifier without those labels. Left as it was if one of them is refused.
        """
        model = self._snapshot()
        points = model._points(X)
        model._validate_params()
        stream = model._stream
        model._check_unchanged(stream.fixed)
        graph = stream.graph
        codes = np.full(points.shape[0], -1)
        if y is not None:
            codes = model._codes_to_retract(y, points.shape[0])
        unknown = codes < 0 if y is not None else np.zeros(codes.size, dtype=bool)
        batch = graph.rows.metric.store(points)
        with one_thread():
            new, info, found, codes, weights = propagation.take_labels_back(graph, batch, codes)
        found &= ~unknown
        if not found.all():
            row = int(np.flatnonzero(~found)[0])
            raise ValueError(
                f"row {row} of X is not among the {np.count_nonzero(graph.codes >= 0)} labeled "
                f"rows that are kept (graph_memory={self.graph_memory}), expected one of them, as "
                "it was learned and with the label it had."
            )
        registry = stream.registry.remove(codes, weights, weights)
        new = new.with_classes(stream.registry.places_in(registry), registry.classes.size)
        return self._commit(stream._replace(graph=new, registry=registry), info)

    def _class_scores(self, X: Any) -> tuple[GraphStream, Array]:
        model = self._snapshot()
        stream = model._stream
        found = stream.graph.search(model._checked_points(X))
        return stream, stream.graph.scores(found)

    def predict_proba(self, X):
        """Return the normalised class scores of every row. They are not calibrated.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`; rows sum to 1.
        """
        model = self._snapshot()
        return model._probabilities(model._checked_points(X))

    def _probabilities(self, points: Points) -> Array:
        """Return probabilities (n, K) at validated rows; to be called on a snapshot."""
        stream = self._stream
        scores = stream.graph.scores(stream.graph.search(points))
        return with_unseen(stream.registry, scores[:, stream.registry.seen], scores)


def coded(rows: Rows, registry: ClassRegistry) -> tuple[Any, Array]:
    """Return classes and label weights of all rows, both (n,); -1 and 0 for unlabeled ones."""
    codes = np.full(rows.weights.size, UNLABELED)
    codes[rows.labeled] = registry.encode(rows.labels)
    return codes, np.where(rows.labeled, rows.weights, 0.0)

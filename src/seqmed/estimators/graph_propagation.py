"""GraphPropagation: label propagation over the kept rows of a stream."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import uncertainty
from seqmed.classes import Rows, no_classes
from seqmed.estimators.base import GraphClassifier, Started, unfitted
from seqmed.estimators.row_sample import MISSING, SamplePlan, Summary, whole_sample
from seqmed.estimators.validation import (
    check_proportions,
    checked_class_prior,
    validated_batch,
)
from seqmed.graph import propagation
from seqmed.graph.kept_rows import no_kept_rows
from seqmed.graph.metrics import make_metric
from seqmed.graph.propagation import GraphInfo, GraphState, PropagationState
from seqmed.kernels import Kernel, make_kernel
from seqmed.late_rows import KeptLabels
from seqmed.margin.calibration import with_unseen
from seqmed.numeric.arrays import Array, Indices, Points
from seqmed.uncertainty import Uncertainty

# The rows that `graph_memory="auto"` keeps: as many as fit this memory, from fewest to most. With
# more rows, an update would take more than 1.5 times as long as with the fewest.
MEMORY_BYTES, FEWEST_ROWS, MOST_ROWS = 2**26, 10_000, 13_000
# Number of rows in the mini-batches of `fit`.
FIT_BATCH = 1000


class GraphPropagation(GraphClassifier):
    """Label propagation over a stream, in bounded memory.

    A graph connects each kept row with its nearest neighbours, and labels propagate along its
    edges. The kept rows are labeled rows and a uniform sample of the unlabeled rows. When labeled
    rows fill half of the memory, a new labeled row replaces a random labeled row.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string. A
    saved model contains kept rows of the stream.

    Parameters
    ----------
    graph_memory : "auto" or int >= 2, default="auto"
        Largest number of kept rows. At most half of them are labeled. "auto" is the number of rows
        that fit 64 MB in single precision, at least 10,000 and at most 13,000. The number used is
        `graph_memory_`.
    n_neighbors : int >= 1, default=10
        Number of neighbours of a row in the graph.
    alpha : float in [0, 1), default=0.97
        Weight of the neighbours relative to a row's own label.
    metric : {"auto", "euclidean", "cosine"} or callable, default="auto"
        Distance of two rows. "auto" is "euclidean" for dense rows and "cosine" for sparse rows. A
        callable is a kernel k, which maps arrays of shape (n, p) and (m, p) to an (n, m) matrix.
        The squared distance is then ``k(x, x) + k(x', x') - 2 k(x, x')``. The metric used is
        `metric_`.
    class_prior : dict or None, default=None
        Known proportions of the classes in the stream, such as ``{"fraud": 0.01, "other": 0.99}``.
        They sum to 1, and every class has one; the dict may name classes that appear later. The
        class scores are multiplied by factors that take their means over the unlabeled kept rows
        half way to these proportions.
    unlabeled : object, default=-1
        Marker of unlabeled rows in y. With None, only NaN, None, NaT and empty strings mark them.
    forgetting : float in (0, 1], default=1.0
        Forgetting factor: the weight of earlier labels is multiplied by it at every batch with
        labels, and kept rows are replaced sooner. Choose a value below 1 for streams that drift.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of kept rows, and of the order of the rows in `fit`.
    device : str, default="cpu"
        Where the graph is: "cpu", or a device of torch such as "cuda" or "cuda:1", which needs
        ``pip install 'seqmed[gpu]'``. Rows must be dense, and the metric "euclidean" or "cosine".
        It may change between batches; `set_params` moves what was learned at once. Model files do
        not have it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes so far, sorted.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names. Only available if the first batch has column names that are all strings.
    n_batches_ : int
        Number of batches learned; `fit` counts as one.
    n_kept_ : int
        Number of kept rows.
    graph_memory_ : int
        Largest number of kept rows.
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

    With `class_prior`, the mean scores of the unlabeled kept rows become the geometric mean of the
    known proportions and the mean scores without it, normalised. The factors of the classes are
    found by Sinkhorn iteration after every update, and lie between 1 / 50 and 50. Classes without a
    label take no part. Known proportions help most with very few labels per class.

    `fit` shuffles the rows and learns them in mini-batches; of large tables it learns a sample.
    `retract` applies to labeled rows that are kept. `class_prior` and `forgetting` may
    change between batches with `set_params`. `graph_memory`, `n_neighbors`, `alpha` and `metric`
    may not change.

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
        "graph_memory": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0.0, 1.0, closed="left")],
        "metric": [StrOptions({"auto", "euclidean", "cosine"}), callable],
        "class_prior": [dict, None],
        "unlabeled": "no_validation",
        "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
        "random_state": ["random_state"],
        "device": [str],
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
        graph_memory: int | str = "auto",
        n_neighbors: int = 10,
        alpha: float = 0.97,
        metric: str | Callable[[Any, Any], Any] | Kernel = "auto",
        class_prior: dict[Any, float] | None = None,
        unlabeled: Any = -1,
        forgetting: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
    ) -> None:
        self.graph_memory = graph_memory
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.metric = metric
        self.class_prior = class_prior
        self.unlabeled = unlabeled
        self.forgetting = forgetting
        self.random_state = random_state
        self.device = device

    # -- learning --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_proportions(self.class_prior)

    _with_classes = staticmethod(propagation.with_classes)

    def _fit_batch(self, n_rows: int) -> int:
        return FIT_BATCH

    def _most_parts(self) -> int | None:
        # a device learns all rows after the first mini-batch at once, which is faster there; the
        # kept rows and their slots are those of mini-batches
        return None if self.device == "cpu" else 2

    def _sample_sizes(self) -> tuple[int, int]:
        kept = most_kept(self.graph_memory)
        return kept, kept

    def _begin(self, rows: Rows, seed: int) -> PropagationState:
        return PropagationState(begin_graph(self, rows, seed, None), no_classes(per_class=True), 0)

    def _keeps_all(self, summary: Summary) -> bool:
        """Whether the graph keeps all rows of a summary, as far as its labels tell."""
        return 2 * int((summary.kinds != MISSING).sum()) <= most_kept(self.graph_memory)

    def _fit_whole(self, plan: SamplePlan, summary: Summary, search: Any) -> Self:
        """Learn a summary whose rows are all kept, as `_fit_summary` does; solve once.

        See `seqmed.graph.propagation.learn_whole` for ``search``.
        """
        self._check_parameters()
        summary = whole_sample(plan, summary)
        model, y = unfitted(self), summary.y
        batch = validated_batch(
            model, summary.rows, y, None, summary.weights, alone=True, new_points=True
        )
        rows, order = batch.rows, np.random.default_rng(plan.seed).permutation(y.size)
        parts = [order[start : start + FIT_BATCH] for start in range(0, y.size, FIT_BATCH)]
        labeled = [rows.labeled[part] for part in parts]
        sides = zip(parts, labeled, strict=True)
        slots = np.concatenate([side for part, own in sides for side in (part[own], part[~own])])
        model._started = Started(sp.issparse(rows.points), model._fixed())
        state = model._begin(rows.take(parts[0]), plan.seed)
        state = model._with_classes(state, batch.places, batch.declared)
        proportions = checked_class_prior(self.class_prior, batch.classes, state.counts.declared)
        new, info = propagation.learn_whole(state, rows.take(slots), FIT_BATCH, search, proportions)
        model._commit(new, info, batch.classes)
        self.__dict__ = model.__dict__  # one assignment: safe for interrupts and other threads
        return self

    def _learn_rows(
        self,
        state: Any,
        rows: Rows,
        classes: NDArray[Any],
        *,
        new_points: bool,
        new_batch: bool,
        last: bool,
    ) -> tuple[PropagationState, GraphInfo]:
        proportions = checked_class_prior(self.class_prior, classes, state.counts.declared)
        return propagation.learn(
            state,
            rows,
            float(self.forgetting),
            proportions,
            new_points=new_points,
            new_batch=new_batch,
            solve=last,
            part=FIT_BATCH if new_points and not new_batch else None,  # see `_most_parts`
        )

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
        declared = self._state.counts.declared
        proportions = checked_class_prior(self.class_prior, self.classes_, declared)
        before = self._state.on(self.device)
        state, info, kept = propagation.retract(before, points, codes, proportions)
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
        return uncertainty_in_graph(self, points, points)

    @property
    def graph_memory_(self) -> int:
        """Largest number of kept rows."""
        return int(self._snapshot()._state.graph.capacity)

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
    capacity = model.graph_memory
    if capacity == "auto":
        capacity = rows_in_memory(rows.points)
    return GraphState(kept, capacity, model.alpha, seed).on(model.device)


def most_kept(graph_memory: int | str) -> int:
    """Return the largest number of rows that a graph may keep."""
    return MOST_ROWS if isinstance(graph_memory, str) else int(graph_memory)


def rows_in_memory(points: Points) -> int:
    """Return how many rows like these (n, p) ``graph_memory="auto"`` keeps."""
    size = 4.0 * points.shape[1]
    if sp.issparse(points):  # a value and its column
        size = 8.0 * points.nnz / points.shape[0]
    return int(np.clip(MEMORY_BYTES / max(1.0, size), FEWEST_ROWS, MOST_ROWS))


def uncertainty_in_graph(model: Any, points: Points, scaled: Points) -> Uncertainty:
    """Return the uncertainty of the decisions of a classifier with a graph.

    ``points`` are rows as the classifier takes them, and ``scaled`` as the graph takes them.
    """
    state, probabilities = model._state, np.zeros((points.shape[0], 0))
    if state.counts.seen.sum() > 1:
        probabilities = model._probabilities(model._class_scores(points))
    return uncertainty.of_graph(state.graph, state.counts, scaled, probabilities)

"""SeqGraphMED: a maximum-margin classifier and a graph, mixed by evidence."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import scipy.sparse as sp
from scipy.special import softmax
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed.arrays import Array, Points
from seqmed.calibration import with_unseen
from seqmed.classes import empty_registry
from seqmed.estimators.graph_propagation import DEFAULT_GRAPH_MEMORY, GraphClassifier
from seqmed.estimators.seqmed import SeqMED
from seqmed.estimators.validation import Rows, is_estimator
from seqmed.kernels.bounded import check_overflow
from seqmed.mixture import experts as margins
from seqmed.mixture import update as mixture_update
from seqmed.mixture.update import MixtureInfo, MixtureSettings, MixtureStream


class SeqGraphMED(GraphClassifier):
    """Maximum-margin classifier and label propagation, mixed by evidence, for streams.

    Two experts learn the stream. The margin expert, a `SeqMED` by default, learns from labeled
    rows. The graph expert, as `GraphPropagation`, spreads labels over a graph of kept rows, so that
    unlabeled rows shape the boundary. Every labeled row is scored by both before it is learned;
    the last 300 of these scores choose the weight of the graph and calibrate the probabilities. The
    graph takes part only as far as this record speaks for it.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string. A
    saved model contains kept rows of the stream.

    Parameters
    ----------
    estimator : classifier or None, default=None
        The margin expert. None is a `SeqMED` with the `class_weight`, `forgetting` and
        `random_state` of this classifier. Any classifier with `partial_fit` and
        `decision_function` (or `predict_proba`) may be given; it uses its own parameters. One
        with a parameter `unlabeled`, except `SeqMED`, gets all rows, any other the labeled ones.
        The estimator is copied. Parameters of a `SeqMED` or `SeqLapMED` may change between batches
        as they may in these classifiers; those of other estimators may not.
    graph_memory : int >= 2, default=10000
        Rows kept for the graph at most. At most half of them are labeled.
    n_neighbors : int >= 1, default=10
        Neighbours of a row in the graph.
    alpha : float in [0, 1), default=0.97
        Weight of the neighbours against a row's own label.
    metric : {"auto", "euclidean", "cosine"} or callable, default="auto"
        Distance of two rows in the graph. "auto" is the distance of the estimator's kernel, if it
        is a `SeqMED` or `SeqLapMED` with a kernel other than "rbf" and "linear"; else "cosine" for
        sparse rows and "euclidean" for dense ones. A callable is a kernel, as in
        `GraphPropagation`.
    mixture : "evidence" or float in [0, 1], default="evidence"
        Weight of the graph. "evidence" is the posterior mean of the weight, given the record and a
        prior that favours the margin.
    class_prior : {"evidence", "uniform"}, default="evidence"
        Whether classes with more labels are favoured. "evidence" does so if it predicts the
        record better, which raises accuracy and lowers the recall of rare classes. Only scores of
        a `SeqMED` or `SeqLapMED` with ``bias="auto"`` are adjusted.
    unlabeled : object, default=-1
        Marker of a missing label; None if only NaN, None, NaT and empty strings are missing.
    forgetting : float in (0, 1], default=1.0
        Forgetting factor per batch of the graph, of the record, and of the default estimator.
        Below 1 for streams that drift.
    class_weight : {"balanced"}, dict or None, default=None
        Weights of classes. "balanced" weighs the margins of rare classes more. A dict multiplies
        the graph's scores too. It is passed on to an estimator that is a `SeqMED` or `SeqLapMED`
        without a `class_weight` of its own; with any other estimator it must be None.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of kept rows, and of the order in `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels known so far, sorted.
    n_features_in_ : int
        Number of columns.
    n_batches_ : int
        Batches learned.
    estimator_ : classifier
        The fitted margin expert.
    graph_weight_ : float
        Weight of the graph, in [0, 1].
    n_kept_ : int
        Rows kept for the graph.
    duality_gap_ : float
        Largest duality gap of the last update of a `SeqMED` or `SeqLapMED`; NaN if there was none.
    n_iter_ : int
        Conjugate gradient steps of the last update of the graph.
    update_info_ : MixtureInfo
        Everything the last batch reported.

    See Also
    --------
    SeqMED : The margin expert alone.
    GraphPropagation : The graph expert alone.

    References
    ----------
    E. Hou, A. Hero, "Sequential maximum margin classifiers for partially labeled data", ICASSP
    2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from seqmed import SeqGraphMED
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) % 20 == 0, y, -1)  # one label in twenty
    >>> model = SeqGraphMED(random_state=0)
    >>> for start in range(0, 1500, 250):
    ...     batch = slice(start, start + 250)
    ...     model = model.partial_fit(X[batch], labels[batch])
    >>> bool(model.score(X[1500:], y[1500:]) > 0.85)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **GraphClassifier._parameter_constraints,
        "estimator": "no_validation",
        "mixture": [StrOptions({"evidence"}), Interval(Real, 0.0, 1.0, closed="both")],
        "class_prior": [StrOptions({"evidence", "uniform"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    def __init__(
        self,
        estimator=None,
        *,
        graph_memory=DEFAULT_GRAPH_MEMORY,
        n_neighbors=10,
        alpha=0.97,
        metric="auto",
        mixture="evidence",
        class_prior="evidence",
        unlabeled=-1,
        forgetting=1.0,
        class_weight=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.graph_memory = graph_memory
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.metric = metric
        self.mixture = mixture
        self.class_prior = class_prior
        self.unlabeled = unlabeled
        self.forgetting = forgetting
        self.class_weight = class_weight
        self.random_state = random_state

    def set_params(self, **params):
        """Set parameters, those of the estimator as ``estimator__NAME``.

        All but `graph_memory`, `n_neighbors`, `alpha`, `metric` and the type of the estimator may
        be changed between batches, and take effect with the next one.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self : the classifier.
        """
        nested = [name for name in params if name.startswith("estimator__")]
        if nested and self.estimator is None and params.get("estimator") is None:
            raise ValueError(
                f"{nested[0]} was given with estimator=None, expected an estimator that has this "
                "parameter: set estimator=SeqMED() too."
            )
        return super().set_params(**params)

    # -- learning ------------------------------------------------------------------------------

    def _template(self) -> Any:
        """Return the estimator whose parameters the margin expert has."""
        if self.estimator is None:
            return SeqMED(
                class_weight=self.class_weight,
                forgetting=self.forgetting,
                random_state=self.random_state,
            )
        if not is_estimator(self.estimator):
            raise TypeError(
                f"estimator={self.estimator!r}, expected a classifier such as SeqMED() or None: "
                "pass an object, not a class or a name."
            )
        if self.class_weight is None:
            return self.estimator
        if not margins.is_own(self.estimator) or self.estimator.class_weight is not None:
            raise ValueError(
                f"class_weight={self.class_weight!r} was given with estimator={self.estimator!r}, "
                "expected None: set class_weight of the estimator. Only a SeqMED or SeqLapMED "
                "without a class_weight of its own takes that of SeqGraphMED."
            )
        parameters = self.estimator.get_params(deep=False)
        return type(self.estimator)(**{**parameters, "class_weight": self.class_weight})

    def _settings(self) -> MixtureSettings:
        return MixtureSettings(
            weight=None if self.mixture == "evidence" else float(self.mixture),
            shares=self.class_prior == "evidence" and self.class_weight != "balanced",
            forgetting=float(self.forgetting),
            class_weight=self.class_weight,
        )

    def _rows_at_once(self, n_rows: int) -> int:
        # an estimator that learns from unlabeled rows sees all of them as one batch
        if margins.learns_from_unlabeled(self._template()):
            return n_rows
        return super()._rows_at_once(n_rows)

    def _begin(self, rows: Rows, seed: int, classes: Any) -> MixtureStream:
        margin = margins.make_expert(self._template())
        graph = self._begin_graph(rows, seed, margin.frozen_kernel(rows))
        registry = empty_registry(per_class=True)
        sparse = sp.issparse(rows.points)
        stream = mixture_update.initial_state(
            graph, margin, registry, rows.points, self._fixed(), sparse
        )
        return mixture_update.with_classes(stream, registry.declare(classes))

    def _learn_rows(
        self, stream: MixtureStream, rows: Rows, *, new_points: bool, new_batch: bool
    ) -> tuple[MixtureStream, MixtureInfo]:
        return mixture_update.learn(
            self._with_parameters(stream),
            rows,
            self._settings(),
            new_points=new_points,
            new_batch=new_batch,
        )

    def _with_parameters(self, stream: MixtureStream) -> MixtureStream:
        """Return the stream with the margin expert's parameters as they are now."""
        return stream._replace(margin=stream.margin.with_parameters(self._template()))

    def _commit(self, stream: MixtureStream, info: MixtureInfo) -> Self:
        estimator = stream.margin.estimator
        self.__dict__.update(
            _stream=stream,
            classes_=stream.registry.classes,
            n_batches_=stream.n_batches,
            n_kept_=stream.graph.rows.size,
            estimator_=estimator,
            graph_weight_=stream.choice.weight,
            update_info_=info,
            duality_gap_=getattr(estimator, "duality_gap_", float("nan")),
            n_iter_=info.graph.n_iter,
        )
        return self

    def retract(self, X, y=None):
        """Take labels back: what they taught is forgotten, the rows stay as unlabeled ones.

        Possible while the rows are in the window of the margin expert, a `SeqMED` or `SeqLapMED`.
        The record of earlier scores stays.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows as they were learned, to 10 digits.
        y : array-like of shape (n_samples,), default=None
            The labels to take back; None for whatever label a row has.

        Returns
        -------
        self : the classifier without those labels. Left as it was if one of them is refused.
        """
        model = self._snapshot()
        points = model._points(X)
        model._validate_params()
        model._check_unchanged(model._stream.fixed)
        stream = model._with_parameters(model._stream)
        codes = None if y is None else model._codes_to_retract(y, points.shape[0])
        return self._commit(*mixture_update.take_back(stream, points, codes, model._settings()))

    # -- predictions -----------------------------------------------------------------------------

    def _class_scores(self, X: Any) -> tuple[MixtureStream, Array]:
        model = self._snapshot()
        scores = mixture_update.class_scores(model._stream, model._checked_points(X))
        check_overflow(scores)
        return model._stream, scores

    def predict_proba(self, X):
        """Return the probability of every class at every row.

        They are calibrated by the scores of labeled rows before they were learned.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`; rows sum to 1, and the largest of a row is that of the class
            `predict` returns.
        """
        model = self._snapshot()
        return model._probabilities(model._checked_points(X))

    def _probabilities(self, points: Points) -> Array:
        """Return probabilities (n, K) at validated rows; to be called on a snapshot."""
        stream = self._stream
        scores = mixture_update.class_scores(stream, points)
        check_overflow(scores)
        return with_unseen(
            stream.registry, softmax(scores[:, stream.registry.seen], axis=1), scores
        )

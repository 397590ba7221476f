"""What both classifiers share: what they are asked, looked at and refused, or learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from numbers import Integral, Real
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import kernels, margin_state, uncertainty, window
from seqmed.arrays import Points
from seqmed.covariance.protocol import Recursion
from seqmed.estimators.prediction import PosteriorPredictor
from seqmed.estimators.validation import (
    Registered,
    Rows,
    check_strength,
    square_gram,
    warn_unless_converged,
)
from seqmed.graph.laplacian import GraphRecipe
from seqmed.kernels import Kernel, Precomputed, make_kernel
from seqmed.margin_state import MarginState
from seqmed.settings import Settings
from seqmed.snapshots import snapshot
from seqmed.uncertainty import Uncertainty
from seqmed.update import UpdateInfo

DEFAULT_C = 10.0
# Chosen by prequential accuracy on streams of their own: docs/decisions, 0016 and 0027.
DEFAULT_WINDOW = 500
# Labels of a batch that are learned by one dual within a budget, per labeled point that is kept.
LABELS_AT_ONCE = 4


class SequentialClassifier(PosteriorPredictor):
    """A classifier that carries its posterior from batch to batch as the next prior."""

    _parameter_constraints: ClassVar[dict] = {
        "kernel": [Registered(kernels.KERNELS, "precomputed"), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="neither")],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, 0.0, None, closed="left")],
        "C": [Interval(Real, 0.0, None, closed="neither")],
        "slack_shape": [Interval(Real, 0.0, None, closed="left")],
        "bias": [StrOptions({"auto", "exact", "median"})],
        "bias_variance": [Interval(Real, 0.0, None, closed="both")],
        "window": [Interval(Integral, 1, None, closed="left"), None],
        "lag": [Interval(Integral, 1, None, closed="left"), None],
        "averaging": ["boolean"],
        "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
        "budget": [Interval(Integral, 2, None, closed="left"), None],
        "unlabeled": "no_validation",
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "random_state": ["random_state"],
    }

    # Parameters a stream is built on: they may not change between two batches, except for the bias
    # from "exact" to "median" and back.
    _fixed_parameters: tuple[str, ...] = (
        "kernel", "gamma", "degree", "coef0", "bias", "bias_variance", "averaging", "budget",
    )  # fmt: skip

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.kernel in ("tfidf", "dcm")
        return tags

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None):
        """Learn from one batch, forgetting all earlier ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows, or the (n_samples, n_samples) Gram matrix with ``kernel="precomputed"``.
        y : array-like of shape (n_samples,)
            Labels; missing ones as described in the class documentation. At least one is needed.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. A weight of 2 is a row given twice, a weight of 0 a row left out.

        Returns
        -------
        self : the fitted classifier.
        """
        self._validate_params()
        self._check_bias_rule()
        return self._learn(X, y, None, sample_weight, stream=None, alone=True)

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
            Weights >= 0, as in `fit`.
        new_points : bool, default=True
            False for labels that come late, of rows that were learned without them: the labels
            are learned as if they belonged to the last batch, the graph stays as it is, and no
            batch is counted. Rows that still have no label are passed over; at least one is needed.
            That the rows were learned, and had no label yet, is the caller's to know: not all of
            them are kept.

        Returns
        -------
        self : the classifier, one batch further. Left as it was if the batch is refused.
        """
        stream = getattr(self, "_stream", None)
        self._check_parameters(stream)
        if self.kernel == "precomputed":
            raise ValueError(
                "partial_fit got kernel='precomputed', expected a kernel that can be evaluated "
                "between batches: use fit, or pass the kernel as a callable."
            )
        self._check_new_points(new_points)
        return self._learn(
            X, y, classes, sample_weight, stream=stream, alone=False, new_points=new_points
        )

    def retract(self, X, y=None):
        """Take labels back: what they taught is forgotten, the rows stay as unlabeled ones.

        Possible while the rows are in the window, that is among the last `window` labeled rows and
        the last `lag` batches with labels. A class of which no example is left, and that was not
        declared, is forgotten too. Probabilities keep the record of how earlier scores turned out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows as they were learned, to 10 digits. A row learned more than once is taken back
            once, the newest first, for every time it is given.
        y : array-like of shape (n_samples,), default=None
            The labels to take back; None for whatever label a row has.

        Returns
        -------
        self : the classifier without those labels. Left as it was if one of them is refused.
        """
        if self.kernel == "precomputed":
            raise ValueError(
                "retract got kernel='precomputed', expected a kernel on rows: fit again, without "
                "the labels."
            )
        model = self._snapshot()
        points = model._points(X)
        model._check_parameters(model._stream)
        model._check_retractable()
        codes = None if y is None else model._codes_to_retract(y, points.shape[0])
        model._retract_rows(model._find_in_window(points, codes))
        self.__dict__ = model.__dict__
        return self

    def _retract_rows(self, rows: NDArray[np.bool_]) -> Self:
        """Take back the labels of some rows of the window, by a mask."""
        stream = self._stream
        settings = self._settings(0.0, float(stream.posterior.window.weights[rows].sum()))
        new, info = margin_state.take_back(stream, rows, settings)
        warn_unless_converged(info, self.tol)
        return self._commit(new, info)

    def _learn(self, X, y, classes, sample_weight, *, stream, alone, new_points=True):
        model = snapshot(self)
        rows = model._validate_batch(X, y, classes, sample_weight, stream, alone=alone)
        model._check_labels(rows, alone=alone, new_points=new_points)
        model._learn_rows(rows, stream, new_points=new_points)
        self.__dict__ = model.__dict__  # in one stroke: for interrupts and other threads
        return self

    def _learn_rows(self, rows: Rows, stream: MarginState | None, *, new_points: bool) -> Self:
        """Learn a validated batch."""
        if stream is None:
            stream = self._begin(rows)
        settings = self._settings(
            float(rows.weights[rows.labeled].sum()), float(rows.weights.sum())
        )
        infos: list[UpdateInfo] = []
        for part in self._mini_batches(rows, stream, settings.capacity):
            first = new_points and not infos
            stream, info = margin_state.learn(stream, part, settings, self.class_weight, first)
            warn_unless_converged(info, self.tol)  # an error, if the user has made it one
            infos.append(info)
        return self._commit(stream, infos[-1].after(infos[:-1]))

    def _mini_batches(
        self, rows: Rows, stream: MarginState, capacity: int | None
    ) -> Iterator[Rows]:
        """Yield a batch in parts of so many labels as may be learned at once, in random order.

        The first has all rows, so that the batch has one graph; the other labels come late.
        """
        most = rows.labels.size if capacity is None else self._labels_at_once(capacity)
        if rows.labels.size <= most:
            yield rows
            return
        places = np.flatnonzero(rows.labeled)
        order = np.random.default_rng(stream.posterior.n_batches).permutation(places.size)
        for start in range(0, order.size, most):
            chosen = np.sort(order[start : start + most])
            labeled = np.zeros_like(rows.labeled)
            labeled[places[chosen]] = True
            yield rows._replace(labeled=labeled, labels=rows.labels[chosen])

    def _commit(self, new: MarginState, info: UpdateInfo) -> Self:
        self.__dict__.update(
            _stream=new,
            classes_=new.registry.classes,
            n_batches_=new.posterior.n_batches,
            posterior_=new.posterior,
            update_info_=info,
            intercept_=new.posterior.intercepts.copy(),
            duality_gap_=info.gap,
            n_iter_=info.n_iter,
        )
        return self

    def _format_rows(self, X, stream):
        if self.kernel != "precomputed":
            return super()._format_rows(X, stream)
        gram = square_gram(X)
        return np.arange(gram.shape[0])[:, None], gram

    def _begin(self, rows: Rows) -> MarginState:
        if rows.gram is not None:
            kernel: Kernel = Precomputed(rows.gram)
        else:
            kernel = make_kernel(self.kernel, self.gamma, self.degree, self.coef0)
            kernel = kernel.freeze(rows.points, rows.weights)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        carrier = self._begin_recursion(kernel, rows, seed)
        fixed = {name: getattr(self, name) for name in self._fixed_parameters}
        variance = None if self.bias == "auto" else float(self.bias_variance)
        return margin_state.empty_state(carrier, self._graph_recipe(), rows, variance, fixed)

    def _find_in_window(self, points: Points, codes: NDArray[np.intp] | None) -> NDArray[np.bool_]:
        """Return a mask of the rows of the window whose labels are to be taken back."""
        kept, registry = self._stream.posterior.window, self._stream.registry
        found, missing = window.find(kept, registry.own_classes(kept.signs), points, codes)
        if missing is not None:
            budget = f"budget={self.budget}, " if self.budget is not None else ""
            raise ValueError(
                f"row {missing} of X is not among the {kept.size} labeled rows that can still be "
                f"taken back ({budget}window={self.window}, lag={self.lag}), expected one of them, "
                "as it was learned and with the label it had: the multipliers of other rows are "
                "frozen. Start a new model with window=None, lag=None and no budget to keep all."
            )
        return found

    def _settings(self, labeled_weight: float, weight: float) -> Settings:
        bound, smoothing = self._strengths(labeled_weight, weight)
        return Settings(
            bound=bound,
            slack_shape=float(self.slack_shape),
            smoothing=smoothing,
            bias=self.bias,
            tol=self.tol,
            max_iter=self.max_iter,
            lag=self.lag,
            window=self.window,
            averaging=self.averaging,
            forgetting=float(self.forgetting),
            capacity=None if self.budget is None else self.budget - self._landmarks_within_budget(),
        )

    def _check_bound(self, bound: float, origin: str) -> float:
        check_strength(bound, origin)
        if bound <= self.slack_shape:
            raise ValueError(
                f"{origin}, expected C > slack_shape={self.slack_shape:g}: at or below it every "
                "multiplier stays 0 and nothing can be learned. Raise C, or lower slack_shape (0 "
                "is the support vector machine)."
            )
        return bound

    def _check_parameters(self, stream: MarginState | None) -> None:
        """Check the parameters before an update; ``stream`` is the state so far, None before it."""
        self._validate_params()
        self._check_bias_rule()
        if stream is not None:
            self._check_unchanged(stream.fixed)

    def _check_retractable(self) -> None:
        if self.averaging:
            raise ValueError(
                "retract got averaging=True, expected False: the running mean has taken in past "
                "means that the labels shaped. Start a new model, without averaging."
            )

    def _check_bias_rule(self) -> None:
        if self.bias != "exact" and np.isfinite(self.bias_variance):
            raise ValueError(
                f"bias={self.bias!r} requires bias_variance=inf, got {self.bias_variance:g}. Set "
                "bias='exact' to use a finite variance."
            )

    # -- queries ---------------------------------------------------------------------------------

    def _n_support(self) -> int:
        """Return how many points a query compares rows with."""
        return self._stream.posterior.size

    def _uncertainty(self, points: Points) -> Uncertainty:
        """Return the uncertainty of the decisions at some rows."""
        if self.kernel == "precomputed":
            raise ValueError(
                "query got a model with kernel='precomputed', expected a kernel that can be "
                "evaluated between any two rows: pass the kernel as a callable."
            )
        stream = self._stream
        return uncertainty.of_posterior(stream.posterior, stream.registry, points, self.C)

    # -- what a subclass decides -----------------------------------------------------------------

    @abstractmethod
    def _begin_recursion(self, kernel: Kernel, rows: Rows, seed: int) -> Recursion:
        """Return what carries the covariance, before the first batch."""

    @abstractmethod
    def _landmarks_within_budget(self) -> int:
        """Return how many of the points kept are landmarks; the rest is for labeled points."""

    @abstractmethod
    def _labels_at_once(self, room: int) -> int:
        """Return how many labels of a batch one dual may have, if ``room`` labeled points stay."""

    @abstractmethod
    def _graph_recipe(self) -> GraphRecipe:
        """Return how a batch becomes a graph."""

    @abstractmethod
    def _strengths(self, labeled_weight: float, weight: float) -> tuple[float, float]:
        """Return C and the smoothing strength of a batch of these total weights."""

"""What both classifiers share in learning: batches in, a new posterior out, nothing numerical."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    validate_data,
)

from seqmed import kernels, learning
from seqmed.arrays import Array, Points, take_rows
from seqmed.graph import GraphRecipe
from seqmed.kernels import Kernel, Precomputed, make_kernel
from seqmed.labels import ClassBook, empty_book
from seqmed.learning import Batch, Settings, StepInfo
from seqmed.posterior import Posterior, Recursion
from seqmed.predicting import PosteriorPredictor
from seqmed.threads import threads_for
from seqmed.validation import (
    check_magnitude,
    check_weights,
    in_format,
    square_gram,
    warn_unless_converged,
)


class Rows(NamedTuple):
    """A validated batch: points, who is labeled, their labels, and the weight of every row.

    ``declared`` are the classes the caller named; ``gram`` is the user's kernel matrix where the
    points are indices into one.
    """

    points: Points
    labeled: NDArray[np.bool_]
    labels: NDArray[Any]
    weights: Array
    declared: NDArray[Any]
    gram: Array | None = None


class Stream(NamedTuple):
    """Everything a fitted classifier carries from batch to batch."""

    posterior: Posterior
    book: ClassBook
    fixed: dict[str, Any]
    sparse: bool


class SequentialClassifier(PosteriorPredictor, BaseEstimator, ABC):
    """A classifier that carries its posterior from batch to batch as the next prior."""

    _parameter_constraints: ClassVar[dict] = {
        "kernel": [StrOptions(set(kernels.NAMES)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="neither")],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, 0.0, None, closed="left")],
        "C": [Interval(Real, 0.0, None, closed="neither")],
        "slack_shape": [Interval(Real, 0.0, None, closed="left")],
        "bias": [StrOptions({"exact", "median"})],
        "bias_variance": [Interval(Real, 0.0, None, closed="both")],
        "lag": [Interval(Integral, 1, None, closed="left"), None],
        "averaging": ["boolean"],
        "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
        "budget": [Interval(Integral, 2, None, closed="left"), None],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "random_state": ["random_state"],
    }

    # Parameters a stream is built on: they may not change between two batches.
    _fixed_parameters: tuple[str, ...] = (
        "kernel", "gamma", "degree", "coef0", "bias_variance", "averaging", "budget",
    )  # fmt: skip

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
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

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn the next batch of a stream.

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

        Returns
        -------
        self : the classifier, one batch further. Left as it was if the batch is refused.
        """
        self._validate_params()
        self._check_bias_rule()
        if self.kernel == "precomputed":
            raise ValueError(
                "partial_fit got kernel='precomputed', expected a kernel that can be evaluated "
                "between batches: use fit, or pass the kernel as a callable."
            )
        stream = getattr(self, "_stream", None)
        if stream is not None:
            self._check_unchanged(stream.fixed)
        return self._learn(X, y, classes, sample_weight, stream=stream, alone=False)

    def _learn(self, X, y, classes, sample_weight, *, stream, alone):
        before = self.__dict__.copy()
        try:
            rows = self._validate_batch(X, y, classes, sample_weight, stream)
            if alone and not rows.labels.size:
                raise ValueError(
                    f"{type(self).__name__}.fit got no labeled row among {rows.weights.size}, "
                    "expected at least one: add labels, or learn unlabeled batches with "
                    "partial_fit."
                )
            if stream is None:
                stream = self._begin(rows)
            new, info = self._advance(stream, rows)
            warn_unless_converged(info, self.tol)  # an error, if the user has made it one
        except BaseException:
            self.__dict__ = before
            raise
        self.__dict__.update(  # in one stroke, so that no interrupt can come between
            _stream=new,
            classes_=new.book.classes,
            n_batches_=new.posterior.n_batches,
            posterior_=new.posterior,
            update_info_=info,
            intercept_=new.posterior.intercepts.copy(),
            duality_gap_=info.gap,
            n_iter_=info.n_iter,
        )
        return self

    def _validate_batch(self, X, y, classes, sample_weight, stream):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        X = validate_data(self, X, reset=stream is None, accept_sparse="csr", dtype=np.float64)
        known = None if stream is None or not stream.book.classes.size else stream.book.classes
        declared = np.zeros(0) if classes is None else self._check_classes(classes)
        if known is None and declared.size:
            known = declared
        labeled, labels = self._split_labels(y, known)
        check_consistent_length(X, labeled)
        if declared.size and labels.size:
            strange = np.setdiff1d(labels, declared)
            if strange.size:
                raise ValueError(
                    f"y holds {strange.tolist()[0]!r}, which is not among classes="
                    f"{declared.tolist()}: correct the label, or leave classes out to let new "
                    "classes be added."
                )
        weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        check_weights(weights)
        check_magnitude(X)
        gram = None
        if self.kernel == "precomputed":
            gram = square_gram(X)
            X = np.arange(gram.shape[0])[:, None]
        else:
            X = in_format(X, sp.issparse(X) if stream is None else stream.sparse)
        used = weights > 0
        if not used.any():
            raise ValueError(
                "every sample_weight is zero, expected at least one positive: leave out the batch."
            )
        if not used.all():
            X, weights = take_rows(X, used), weights[used]
            labels, labeled = labels[used[labeled]], labeled[used]
        return Rows(X, labeled, labels, weights, declared, gram)

    def _begin(self, rows: Rows) -> Stream:
        if rows.gram is not None:
            kernel: Kernel = Precomputed(rows.gram)
        else:
            kernel = make_kernel(self.kernel, self.gamma, self.degree, self.coef0)
            kernel = kernel.freeze(rows.points, rows.weights)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        carrier = self._begin_recursion(kernel, rows, seed)
        return Stream(
            posterior=learning.begin(
                carrier, self._graph_recipe(), rows.points, float(self.bias_variance)
            ),
            book=empty_book(),
            fixed={name: getattr(self, name) for name in self._fixed_parameters},
            sparse=sp.issparse(rows.points),
        )

    def _advance(self, stream: Stream, rows: Rows) -> tuple[Stream, StepInfo]:
        labeled = np.flatnonzero(rows.labeled)
        weights = rows.weights[labeled]
        book = stream.book.declare(rows.declared).add(rows.labels, weights)
        posterior = stream.posterior
        if book.classes.size != stream.book.classes.size:
            posterior = learning.rehead(posterior, *stream.book.transfer(book))
        codes = book.encode(rows.labels)
        batch = Batch(
            points=rows.points,
            labeled=labeled,
            targets=book.targets(codes),
            weights=weights * self._class_weights(book)[codes],
        )
        bound, smoothing = self._strengths(float(weights.sum()), float(rows.weights.sum()))
        settings = Settings(
            bound=bound,
            slack_shape=float(self.slack_shape),
            smoothing=smoothing,
            bias=self.bias,
            tol=self.tol,
            max_iter=self.max_iter,
            lag=self.lag,
            averaging=self.averaging,
            forgetting=float(self.forgetting),
            room=None if self.budget is None else self.budget - self._landmarks_within_budget(),
        )
        with threads_for(max(rows.points.shape[0], posterior.size)):
            posterior, info = learning.step(posterior, batch, settings)
        return stream._replace(posterior=posterior, book=book), info

    def _check_classes(self, classes: Any) -> NDArray[Any]:
        """Return declared classes, sorted; refuse missing labels and the marker among them."""
        given = np.asarray(sorted(classes) if isinstance(classes, set | frozenset) else classes)
        if given.ndim != 1:
            raise ValueError(
                f"classes has shape {given.shape}, expected one dimension: pass a list of labels."
            )
        labeled, values = self._split_labels(given, given)
        if not labeled.all():
            raise ValueError(
                f"classes={given.tolist()} holds a value that marks unlabeled rows, expected "
                "classes only: leave it out, or choose another marker."
            )
        return np.unique(values)

    def _class_weights(self, book: ClassBook) -> Array:
        """Return the weight of every class, (K,); "balanced" counts all labels seen so far."""
        if self.class_weight is None:
            return np.ones(book.classes.size)
        if isinstance(self.class_weight, dict):
            given = [self.class_weight.get(label, 1.0) for label in book.classes.tolist()]
            if not all(isinstance(weight, Real) and 0 < float(weight) < np.inf for weight in given):
                raise ValueError(
                    f"class_weight got {self.class_weight!r}, expected positive finite weights: to "
                    "leave a class out, remove its rows."
                )
            return np.array(given, dtype=np.float64)
        seen = book.seen
        weights = np.ones(book.classes.size)
        weights[seen] = book.weights.sum() / (seen.sum() * book.weights[seen])
        return weights

    def _check_unchanged(self, fixed: dict[str, Any]) -> None:
        for name, before in fixed.items():
            now = getattr(self, name)
            if now is not before and now != before:
                raise ValueError(
                    f"{name} was changed from {before!r} to {now!r} in mid-stream, expected it to "
                    f"stay: set {name}={before!r} again, or start a new model."
                )

    def _check_bound(self, bound: float, origin: str) -> float:
        if bound <= self.slack_shape:
            raise ValueError(
                f"{origin}, expected C > slack_shape={self.slack_shape:g}: at or below it every "
                "multiplier stays 0 and nothing can be learned. Raise C, or lower slack_shape (0 "
                "is the support vector machine)."
            )
        return bound

    def _check_bias_rule(self) -> None:
        if self.bias == "median" and np.isfinite(self.bias_variance):
            raise ValueError(
                f"bias='median' got bias_variance={self.bias_variance:g}, expected inf: a finite "
                "variance fixes the bias by itself. Use bias='exact'."
            )

    # -- what a subclass decides -----------------------------------------------------------------

    @abstractmethod
    def _split_labels(self, y, known):
        """Return the mask of labeled rows and their labels; ``known`` classes, if any are."""

    @abstractmethod
    def _begin_recursion(self, kernel: Kernel, rows: Rows, seed: int) -> Recursion:
        """Return what carries the covariance, before the first batch."""

    @abstractmethod
    def _landmarks_within_budget(self) -> int:
        """Return how many of the points kept are landmarks; the rest is for labeled points."""

    @abstractmethod
    def _graph_recipe(self) -> GraphRecipe:
        """Return how a batch becomes a graph."""

    @abstractmethod
    def _strengths(self, labeled_weight: float, weight: float) -> tuple[float, float]:
        """Return C and the smoothing strength of a batch of these total weights."""

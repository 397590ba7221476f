"""The methods of every classifier: fit, partial_fit, retract, predict and score."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
)

from seqmed.arrays import Array, Indices, Mask, Points
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry
from seqmed.estimators.batch_validation import BatchValidator
from seqmed.estimators.validation import MatrixLike, callers_level, checked_rows, in_format
from seqmed.label_dtypes import aligned
from seqmed.snapshots import snapshot
from seqmed.uncertainty import Uncertainty


class StreamClassifier(ClassifierMixin, BatchValidator, ABC):
    """A classifier that learns a stream batch by batch.

    The state is one immutable object, ``_state``, with the classes so far (``registry``), the
    format of the rows (``sparse``) and the parameters that may not change (``fixed``). An update
    replaces this object. Every method reads a snapshot.
    """

    classes_: NDArray[Any]
    n_features_in_: int
    n_batches_: int
    _state: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- learning --------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one batch and discard everything learned before.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, labeled or not. With ``kernel="precomputed"`` the kernel matrix of shape
            (n_samples, n_samples).
        y : array-like of shape (n_samples,)
            Labels; the class documentation describes how missing labels are marked. At least one
            label is required.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. Rows of weight 0 are left out. None gives every row the weight 1.

        Returns
        -------
        self : object
            The fitted classifier.

        Raises
        ------
        ValueError
            If a parameter, X or y is invalid. The classifier is then unchanged.
        """
        self._check_parameters(None)
        model = snapshot(self)
        rows = model._validate_batch(X, y, None, sample_weight, None, alone=True)
        model._check_labels(rows, alone=True, new_points=True)
        model._learn_all(rows)
        self.__dict__ = model.__dict__  # one assignment: safe for interrupts and other threads
        return self

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        new_points: bool = True,
    ) -> Self:
        """Learn the next batch of a stream, or late labels of rows of earlier batches.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the batch, at least one.
        y : array-like of shape (n_samples,)
            Labels; the class documentation describes how missing labels are marked. A batch may
            have labels of a single class, or no label at all.
        classes : array-like of shape (n_classes,), default=None
            Classes to expect; labels of other classes are then refused. Optional in every call:
            new classes are added when they first appear. A class without a label is never
            predicted.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. Rows of weight 0 are left out. None gives every row the weight 1.
        new_points : bool, default=True
            Whether the rows are new. False is for labels that arrive after their rows were learned
            without them: the labels are learned, the graph is unchanged, and no batch is counted.
            Unlabeled rows are then ignored, and at least one label is required. The classifier does
            not check that the rows were learned before, because it does not keep all rows.

        Returns
        -------
        self : object
            The classifier after the batch.

        Raises
        ------
        ValueError
            If a parameter, X or y is invalid. The classifier is then unchanged.
        """
        state = getattr(self, "_state", None)
        self._check_parameters(state)
        self._check_kernel("partial_fit")
        self._check_new_points(new_points)
        model = snapshot(self)
        rows = model._validate_batch(X, y, classes, sample_weight, state)
        model._check_labels(rows, alone=False, new_points=new_points)
        model._learn_batch(rows, state, new_points=new_points)
        self.__dict__ = model.__dict__  # one assignment: safe for interrupts and other threads
        return self

    def retract(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Remove labels that were learned; their rows remain as unlabeled rows.

        Only rows that are still stored can lose their label: see the Notes of the class. A class
        without any label left is removed too, unless it was declared with ``classes``.
        Probabilities remain calibrated by the scores recorded so far.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows as they were learned, equal to 10 digits. If a row was learned several times, each
            occurrence in X retracts one label, the newest first.
        y : array-like of shape (n_samples,), default=None
            Labels to retract, one per row. None retracts whatever label each row has.

        Returns
        -------
        self : object
            The classifier without these labels.

        Raises
        ------
        ValueError
            If a row or its label is not found. The classifier is then unchanged.
        """
        self._check_kernel("retract")
        model = self._snapshot()
        points = model._points(X)
        model._check_parameters(model._state)
        codes = None if y is None else model._codes_to_retract(y, points.shape[0])
        model._retract(points, codes)
        self.__dict__ = model.__dict__  # one assignment: safe for interrupts and other threads
        return self

    # -- predictions -----------------------------------------------------------------------------

    def decision_function(self, X: MatrixLike) -> Array:
        """Return the class scores of every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One column per class if there are more than two classes. For two classes, the score of
            ``classes_[1]`` minus that of ``classes_[0]``. For one class, its score. The column of
            a declared class without a label is meaningless, and `predict` ignores it.
        """
        return decision_scores(*self._class_scores(X))

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the predicted label of every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Class with the largest score at every row, among classes with at least one label.
        """
        registry, scores = self._class_scores(X)
        labels: NDArray[Any] = registry.classes[registry.best(scores)]
        return labels

    @abstractmethod
    def predict_proba(self, X: MatrixLike) -> Array:
        """Return the probability of every class at every row, (n_samples, n_classes)."""

    def _scores_and_probabilities(self, X: MatrixLike) -> tuple[Array, Array]:
        """Return what `decision_function` and `predict_proba` return; the model runs once."""
        registry, scores, probabilities = self._predictions(X)
        return decision_scores(registry, scores), probabilities

    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Return the logarithm of the probability of every class at every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            Logarithms of `predict_proba`, in the order of `classes_`.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy on the labeled rows.

        Unlabeled rows are left out. The first time, a warning says so.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.
        y : array-like of shape (n_samples,)
            True labels; the class documentation describes how missing labels are marked.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives every row the weight 1.

        Returns
        -------
        accuracy : float in [0, 1]
            Weighted fraction of labeled rows that are predicted correctly.

        Raises
        ------
        ValueError
            If no row is labeled, or X, y or sample_weight is invalid.
        """
        model = self._snapshot()
        labeled, labels = model._split_labels(y, model._state.registry.classes)
        return accuracy(model.predict, X, labeled, labels, sample_weight)

    # -- rows to predict -------------------------------------------------------------------------

    def _snapshot(self) -> Self:
        """Return a shallow copy of the fitted classifier."""
        model = snapshot(self)
        check_is_fitted(model, "_state")
        return model

    def _points(self, X: MatrixLike) -> Points:
        """Return rows in the format of the stream. Call it on a snapshot."""
        return in_format(checked_rows(self, X, reset=False), self._state.sparse)

    @property
    def _has_labels(self) -> bool:
        """Whether a label has been learned."""
        state = getattr(self, "_state", None)
        return state is not None and bool(state.registry.seen.any())

    def _checked_points(self, X: MatrixLike) -> Points:
        """Return rows to predict; refuse if no label has been learned."""
        points = self._points(X)
        if not self._has_labels:
            raise NotFittedError(
                f"this {type(self).__name__} has learned no label and cannot predict: learn at "
                "least one labeled row first."
            )
        return points

    # -- methods of subclasses -------------------------------------------------------------------

    def _check_kernel(self, method: str) -> None:
        """Refuse ``method`` if it needs kernel values that are not available."""

    @abstractmethod
    def _learn_all(self, rows: Rows) -> None:
        """Learn the batch of `fit`."""

    @abstractmethod
    def _learn_batch(self, rows: Rows, state: Any, *, new_points: bool) -> None:
        """Learn a batch of `partial_fit`, or late labels; ``state`` is None before the first."""

    @abstractmethod
    def _retract(self, points: Points, codes: Indices | None) -> None:
        """Remove the labels of the given rows; ``codes`` (n,) are their classes, None for any."""

    @abstractmethod
    def _class_scores(self, X: MatrixLike) -> tuple[ClassRegistry, Array]:
        """Return the classes, and the score of every class at every row, (n, n_classes)."""

    @abstractmethod
    def _predictions(self, X: MatrixLike) -> tuple[ClassRegistry, Array, Array]:
        """Return the classes, and the scores and probabilities of all classes at every row."""

    @abstractmethod
    def _n_support(self) -> int:
        """Return the number of points that a label query compares the rows with."""

    @abstractmethod
    def _uncertainty(self, points: Points) -> Uncertainty:
        """Return the uncertainty of the decisions at the given rows, for label queries."""


def decision_scores(registry: ClassRegistry, scores: Array) -> Array:
    """Return class scores in the form of `decision_function`."""
    compared = registry.compared(scores)
    return compared[:, 0] if compared.shape[1] == 1 else compared


def accuracy(
    predict: Callable[[MatrixLike], NDArray[Any]],
    X: MatrixLike,
    labeled: Mask,
    labels: NDArray[Any],
    sample_weight: ArrayLike | None,
) -> float:
    """Return the weighted fraction of labeled rows that are predicted correctly.

    Parameters
    ----------
    predict : the method of the classifier.
    X : rows, labeled or not.
    labeled : (n,) mask of the labeled rows.
    labels : their labels.
    sample_weight : (n,) weights of the rows, a number, or None.
    """
    check_consistent_length(X, labeled)
    weights = _check_sample_weight(sample_weight, labeled, ensure_non_negative=True)[labeled]
    if not labels.size:
        raise ValueError(
            f"score got no labeled row among {labeled.size}, expected at least one: pass true "
            "labels."
        )
    if not weights.any():
        raise ValueError(
            "every sample_weight of a labeled row is zero, expected at least one positive weight: "
            "correct the weights."
        )
    if not labeled.all():
        warn_of_unlabeled_rows()
        X = _safe_indexing(*indexable(X), np.flatnonzero(labeled))
    predicted, labels = aligned(predict(X), labels)
    return float(np.average(predicted == labels, weights=weights))


@cache  # Python's own filter repeats a warning after every change of the filters
def warn_of_unlabeled_rows() -> None:
    """Warn once per process that `score` leaves rows out."""
    warnings.warn(
        "score leaves unlabeled rows out and returns the accuracy on the labeled rows. A scorer "
        "such as scoring='accuracy' counts unlabeled rows as errors. To cross-validate, use "
        "seqmed.SemiSupervisedSplit, which tests labeled rows only.",
        UserWarning,
        stacklevel=callers_level(),
    )

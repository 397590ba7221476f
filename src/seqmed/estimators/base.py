"""What all classifiers of this package share: validation of batches, and predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils._param_validation import make_constraint
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from seqmed.arrays import Array, Mask, Points, take_rows
from seqmed.classes import find
from seqmed.estimators.validation import Rows, check_weights, checked_rows, in_format
from seqmed.labels import aligned, as_label_array, is_marked, is_minus_one, split_labels
from seqmed.snapshots import snapshot


@cache
def made_constraints(kind: type[BaseEstimator]) -> dict[str, list[Any]]:
    """Return what each parameter of an estimator may be, ready to be tested."""
    return {
        name: [make_constraint(each) for each in allowed]
        for name, allowed in kind._parameter_constraints.items()
        if allowed != "no_validation"
    }


class StreamClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier that learns a stream batch by batch.

    All that was learned is in one immutable object, ``_stream``, with the classes so far
    (``registry``), the format of the rows (``sparse``) and the parameters that may not change
    (``fixed``). An update replaces it; every method reads a snapshot.
    """

    # Parameters a stream is built on: they may not change between two batches.
    _fixed_parameters: tuple[str, ...] = ()
    # Whether unlabeled rows are learned from. If not, -1 may be a class beside ``unlabeled=-1``.
    _semi_supervised = True
    unlabeled: Any

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validate_params(self):
        """Check the parameters; scikit-learn, which is slower, writes the error message."""
        for name, constraints in made_constraints(type(self)).items():
            value = getattr(self, name)
            if not any(constraint.is_satisfied_by(value) for constraint in constraints):
                super()._validate_params()

    # -- validation ------------------------------------------------------------------------------

    def _validate_batch(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, stream: Any, *, alone: bool = False
    ) -> Rows:
        """Return a batch as it is learned.

        ``stream`` is the state so far, None before it; ``alone`` tells whether no batch follows.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        X = checked_rows(self, X, reset=stream is None)
        known = (
            None if stream is None or not stream.registry.classes.size else stream.registry.classes
        )
        declared = np.zeros(0) if classes is None else self._check_classes(classes, known)
        if known is None and declared.size:
            known = declared
        labeled, labels = self._split_labels(y, known, alone=alone)
        check_consistent_length(X, labeled)
        if declared.size and labels.size:
            strange = labels[find(labels, declared) < 0]
            if strange.size:
                raise ValueError(
                    f"y holds {strange.tolist()[0]!r}, which is not among classes="
                    f"{declared.tolist()}: correct the label, or leave classes out to let new "
                    "classes be added."
                )
        weights = np.ones(X.shape[0])
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            check_weights(weights)
        X, gram = self._format_rows(X, stream)
        used = weights > 0
        if not used.any():
            raise ValueError(
                "every sample_weight is zero, expected at least one positive: leave out the batch."
            )
        if not used.all():
            X, weights = take_rows(X, used), weights[used]
            labels, labeled = labels[used[labeled]], labeled[used]
        if not declared.size:  # a marker that is a class remains one, if its labels are retracted
            declared = labels[is_marked(labels, self.unlabeled)][:1]
        return Rows(X, labeled, labels, weights, declared, gram)

    def _split_labels(
        self, y: Any, known: NDArray[Any] | None, *, alone: bool = False
    ) -> tuple[Mask, NDArray[Any]]:
        """Return the mask of labeled rows and their labels.

        ``known`` classes, if any are; ``alone`` tells whether these are all labels there will be.
        """
        signs_are_classes = alone and not self._semi_supervised
        return split_labels(y, self.unlabeled, known=known, signs_are_classes=signs_are_classes)

    def _format_rows(self, X: Points, stream: Any) -> tuple[Points, Array | None]:
        """Return rows in the format of the stream, and the user's kernel matrix if there is one."""
        return in_format(X, sp.issparse(X) if stream is None else stream.sparse), None

    def _check_classes(self, classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
        """Return declared classes, sorted; refuse missing labels and the marker among them."""
        given = list(classes) if isinstance(classes, set | frozenset) else classes
        if np.ndim(given) != 1:
            raise ValueError(
                f"classes has shape {np.shape(given)}, expected one dimension: pass a list of "
                "labels."
            )
        given = list(as_label_array(given))  # objects, among which 'nan' is a name
        marker = self.unlabeled
        if not self._semi_supervised and is_minus_one(marker):
            marker = None
        labeled, values = split_labels(given, marker, known=known)
        if not labeled.all():
            raise ValueError(
                f"classes={given} holds a value that marks unlabeled rows, expected "
                "classes only: leave it out, or choose another marker."
            )
        return np.unique(values)

    def _check_unchanged(self, fixed: dict[str, Any]) -> None:
        for name, before in fixed.items():
            now = getattr(self, name)
            if name == "bias" and "auto" not in (before, now):
                continue
            if now is not before and now != before:
                raise ValueError(
                    f"{name} was changed from {before!r} to {now!r} in mid-stream, expected it to "
                    f"stay: set {name}={before!r} again, or start a new model."
                )

    def _codes_to_retract(self, y: Any, n_rows: int) -> NDArray[np.intp]:
        """Return the classes (n,) of the labels that are to be taken back."""
        registry = self._stream.registry
        labeled, labels = self._split_labels(y, registry.classes)
        if labeled.size != n_rows or not labeled.all():
            raise ValueError(
                f"retract got {labels.size} labels for {n_rows} rows, expected one for each: leave "
                "out the rows whose label is to stay, or y for whatever labels the rows have."
            )
        return registry.find(labels)

    def _check_new_points(self, new_points: Any) -> None:
        if not isinstance(new_points, bool | np.bool_):
            raise ValueError(
                f"partial_fit got new_points={new_points!r}, expected True or False: False for "
                "labels of rows that were learned before."
            )
        if not new_points and getattr(self, "_stream", None) is None:
            raise ValueError(
                "partial_fit got new_points=False in its first call, expected rows learned before: "
                "learn the batch first, with the labels there are."
            )

    def _check_labels(self, rows: Rows, *, alone: bool, new_points: bool) -> None:
        """Refuse a batch without labels where some are needed."""
        if not rows.labels.size and (alone or not new_points):
            call = "fit" if alone else "partial_fit(new_points=False)"
            raise ValueError(
                f"{type(self).__name__}.{call} got no labeled row among {rows.weights.size}, "
                "expected at least one: add labels, or learn unlabeled batches with "
                "partial_fit."
            )

    # -- predictions -----------------------------------------------------------------------------

    def _snapshot(self) -> Self:
        """Return the fitted classifier as it is now."""
        model = snapshot(self)
        check_is_fitted(model, "_stream")
        return model

    def _points(self, X: Any) -> Points:
        """Return rows in the format of the stream; to be called on a snapshot."""
        return in_format(checked_rows(self, X, reset=False), self._stream.sparse)

    def _checked_points(self, X: Any) -> Points:
        """Return rows to predict; refuse if no label has been learned."""
        points = self._points(X)
        if not self._stream.registry.seen.any():
            raise NotFittedError(
                f"this {type(self).__name__} has learned {self.n_batches_} batches without a "
                "label, expected at least one labeled row before predictions: call partial_fit "
                "with labels."
            )
        return points

    def predict_log_proba(self, X):
        """Return the logarithms of `predict_proba`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X, y, sample_weight=None):
        """Return the accuracy on the labeled rows; unlabeled ones are left out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            True labels; missing ones as described in the class documentation.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        accuracy : float in [0, 1]
        """
        model = self._snapshot()
        labeled, labels = model._split_labels(y, model._stream.registry.classes)
        if not labels.size:
            raise ValueError(
                f"score got no labeled row among {labeled.size}, expected at least one: pass true "
                "labels."
            )
        if not labeled.all():
            X = _safe_indexing(*indexable(X), np.flatnonzero(labeled))
            if sample_weight is not None:
                sample_weight = np.asarray(sample_weight)[labeled]
        predicted, labels = aligned(model.predict(X), labels)
        return float(np.average(predicted == labels, weights=sample_weight))

    # -- what a subclass decides -----------------------------------------------------------------

    @abstractmethod
    def predict_proba(self, X):
        """Return the probability of every class at every row, (n_samples, n_classes)."""

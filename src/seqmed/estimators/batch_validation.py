"""Validation of parameters, batches and labels, shared by all classifiers."""

from __future__ import annotations

import warnings
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import make_constraint
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from seqmed.classes import UNLABELED, Rows, moved
from seqmed.estimators.labels import (
    are_plus_one,
    as_label_array,
    find,
    is_marked,
    is_minus_one,
    marks_minus_one,
    split_labels,
    with_labels,
)
from seqmed.estimators.validation import MatrixLike, check_weights, checked_rows, in_format
from seqmed.numeric.arrays import Array, Indices, Mask, Points, take_rows
from seqmed.numeric.execution import callers_level


@cache
def made_constraints(kind: Any) -> dict[str, list[Any]]:
    """Return the constraints on every parameter of an estimator class."""
    return {
        name: [make_constraint(each) for each in allowed]
        for name, allowed in kind._parameter_constraints.items()
        if allowed != "no_validation"
    }


class Started(NamedTuple):
    """What the first batch of a stream determines.

    Attributes
    ----------
    sparse : whether the rows are sparse.
    fixed : parameters that may not change any more, with their values.
    """

    sparse: bool
    fixed: dict[str, Any]


class ClassifiedRows(NamedTuple):
    """A validated batch, and the classes after it.

    Attributes
    ----------
    rows : the batch, with class numbers instead of labels.
    classes : (K,) sorted classes after the batch.
    places : (k,) indices of the earlier classes among them.
    declared : (K,) mask of the classes that the caller has declared.
    """

    rows: Rows
    classes: NDArray[Any]
    places: Indices
    declared: Mask


class BatchValidator(BaseEstimator):
    """Base class of all classifiers: validation of user input."""

    # Parameters that may not change between two batches.
    _fixed_parameters: tuple[str, ...] = ()
    # Whether unlabeled rows are learned from. If not, -1 may be a class even if it is the marker.
    _semi_supervised = True
    # Whether -1 marked unlabeled rows while no class but +1 was known: it may have been a class.
    _minus_one_seen = False
    unlabeled: Any
    class_weight: Any = None
    classes_: NDArray[Any]
    _state: Any
    _started: Started

    # -- parameters ------------------------------------------------------------------------------

    def _validate_params(self) -> None:
        """Check each parameter on its own; the error message is scikit-learn's."""
        kind: Any = type(self)
        for name, constraints in made_constraints(kind).items():
            value = getattr(self, name)
            if not any(constraint.is_satisfied_by(value) for constraint in constraints):
                super()._validate_params()

    def _check_combinations(self) -> None:
        """Refuse parameters that exclude each other."""

    def _check_parameters(self, before: Started | None) -> None:
        """Check the parameters before an update; ``before`` is None before the first batch."""
        self._validate_params()
        self._check_combinations()
        if before is not None:
            self._check_unchanged(before.fixed)

    def _fixed(self) -> dict[str, Any]:
        """Return the parameters that may not change between two batches."""
        return {name: getattr(self, name) for name in self._fixed_parameters}

    def _check_unchanged(self, fixed: dict[str, Any]) -> None:
        current = self._fixed()
        for name, before in fixed.items():
            now = current[name]
            if now is not before and now != before and not self._may_change(name, before, now):
                raise ValueError(
                    f"{name} was changed from {before!r} to {now!r} after the first batch, "
                    f"expected the same value for all batches: set {name}={before!r} again, or "
                    "start a new model."
                )

    def _may_change(self, name: str, before: Any, now: Any) -> bool:
        """Whether a parameter that is fixed in general may change between these two values."""
        return False

    # -- batches ---------------------------------------------------------------------------------

    def _validate_batch(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None,
        sample_weight: ArrayLike | None,
        before: Started | None,
        *,
        alone: bool = False,
    ) -> ClassifiedRows:
        """Return a batch, checked and converted. Call it on a snapshot.

        ``before`` is None before the first batch. ``alone`` is True for `fit`, after which no batch
        follows.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        points = checked_rows(self, X, reset=before is None)
        known = None
        if before is not None and self.classes_.size:
            known = self.classes_
        declared = np.zeros(0) if classes is None else self._check_classes(classes, known)
        if known is None and declared.size:
            known = declared
        labeled, labels = self._split_labels(y, known, alone=alone)
        if alone:
            self.__dict__.pop("_minus_one_seen", None)
        elif not (self._minus_one_seen or declared.size):
            only = are_plus_one(labels if known is None else known)
            if only and marks_minus_one(y, self.unlabeled):
                self._minus_one_seen = True
        check_consistent_length(points, labeled)
        check_declared(labels, declared)
        weights = np.ones(points.shape[0])
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, points, ensure_non_negative=True)
            check_weights(weights)
        points, gram = self._format_rows(points, before)
        used = weights > 0
        if not used.any():
            raise ValueError(
                "every sample_weight is zero, expected at least one positive weight: correct the "
                "weights, or skip the batch."
            )
        if not used.all():
            points, weights = take_rows(points, used), weights[used]
            labels, labeled = labels[used[labeled]], labeled[used]
        if not declared.size:  # a marker that is a class is still a class after `retract`
            declared = labels[is_marked(labels, self.unlabeled)][:1]
        self._started = before or Started(sp.issparse(points), self._fixed())
        return self._classified(points, labeled, labels, weights, declared, before, gram)

    def _classified(
        self,
        points: Points,
        labeled: Mask,
        labels: NDArray[Any],
        weights: Array,
        declared: NDArray[Any],
        before: Started | None,
        gram: Array | None,
    ) -> ClassifiedRows:
        """Return a batch whose labels are class numbers."""
        known, already = np.zeros(0), np.zeros(0, dtype=bool)
        if before is not None:
            known, already = self.classes_, self._state.counts.declared
        classes = with_labels(with_labels(known, declared), labels)
        places = find(known, classes)
        codes = np.full(points.shape[0], UNLABELED)
        codes[labeled] = find(labels, classes)
        now_declared = moved(already, places, classes.size)
        now_declared[find(declared, classes)] = True
        return ClassifiedRows(Rows(points, codes, weights, gram), classes, places, now_declared)

    def _format_rows(self, X: Points, before: Started | None) -> tuple[Points, Array | None]:
        """Return rows in the format of the stream, and the precomputed kernel matrix if any."""
        return in_format(X, sp.issparse(X) if before is None else before.sparse), None

    def _check_new_points(self, new_points: bool) -> None:
        if not isinstance(new_points, bool | np.bool_):
            raise ValueError(
                f"partial_fit got new_points={new_points!r}, expected True or False: pass False "
                "for labels of rows that were learned before."
            )
        if not new_points and getattr(self, "_state", None) is None:
            raise ValueError(
                "partial_fit got new_points=False in its first call, expected rows that were "
                "learned before: learn the rows first, with the labels available."
            )

    # -- labels ----------------------------------------------------------------------------------

    def _split_labels(
        self, y: ArrayLike, known: NDArray[Any] | None, *, alone: bool = False
    ) -> tuple[Mask, NDArray[Any]]:
        """Return the mask of labeled rows and their labels.

        ``known`` are the classes so far, None before there are any. ``alone`` is True if no labels
        follow.
        """
        signs_are_classes = alone and not self._semi_supervised
        labeled, labels = split_labels(
            y, self.unlabeled, known=known, signs_are_classes=signs_are_classes
        )
        if alone and labels.size and are_plus_one(labels) and marks_minus_one(y, self.unlabeled):
            warnings.warn(
                f"y holds only {labels[0]} and -1, and -1 marks unlabeled rows, so that "
                f"{labels[0]} is the only class: if -1 is a class, set unlabeled=None; if not, "
                "mark unlabeled rows by None.",
                stacklevel=callers_level(),
            )
        return labeled, labels

    def _check_classes(self, classes: ArrayLike, known: NDArray[Any] | None) -> NDArray[Any]:
        """Return the declared classes, sorted; refuse missing labels and the marker."""
        given = list(classes) if isinstance(classes, set | frozenset) else classes
        if np.ndim(given) != 1:
            raise ValueError(
                f"classes has shape {np.shape(given)}, expected one dimension: pass a list of "
                "labels."
            )
        values = list(as_label_array(given))  # as objects: 'nan' is a class name
        marker = self.unlabeled
        if not self._semi_supervised and is_minus_one(marker):
            marker = None
        labeled, labels = split_labels(values, marker, known=known)
        if not labeled.all():
            raise ValueError(
                f"classes={values} contains a value that marks unlabeled rows, expected classes "
                "only: leave the value out, or set another marker with unlabeled=."
            )
        return np.unique(labels)

    def _check_labels(self, rows: Rows, *, alone: bool, new_points: bool) -> None:
        """Refuse a batch without labels if labels are required."""
        if not rows.labeled.any() and (alone or not new_points):
            call = "fit" if alone else "partial_fit(new_points=False)"
            raise ValueError(
                f"{type(self).__name__}.{call} got no labeled row among {rows.weights.size}, "
                "expected at least one: add labels, or learn unlabeled batches with "
                "partial_fit."
            )

    def _codes_to_retract(self, y: ArrayLike, n_rows: int) -> Indices:
        """Return the class indices (n,) of the labels to retract."""
        labeled, labels = self._split_labels(y, self.classes_)
        if labeled.size != n_rows or not labeled.all():
            raise ValueError(
                f"retract got {labels.size} labels for {n_rows} rows, expected one label per row: "
                "pass only rows whose label is to be retracted, or leave y out to retract "
                "whatever label each row has."
            )
        return find(labels, self.classes_)

    def _class_weights(self, classes: NDArray[Any]) -> Any:
        """Return ``class_weight`` with a dict replaced by the weight of every class, (K,)."""
        given = self.class_weight
        if not isinstance(given, dict):
            return given
        weights: list[Any] = [1.0] * classes.size
        for label, weight in given.items():
            try:
                place = find(split_labels([label], None, known=classes)[1], classes)
            except ValueError as error:
                raise ValueError(
                    f"class_weight has the key {label!r}, expected labels of the type of the "
                    f"classes {classes.tolist()}: correct the key, or leave it out."
                ) from error
            if place.size and place[0] >= 0:
                weights[place[0]] = weight
        if not all(isinstance(each, Real) and 0 < float(each) < np.inf for each in weights):
            raise ValueError(
                f"class_weight got {given!r}, expected positive finite weights: correct the "
                "weights, or remove the rows of a class to leave it out."
            )
        return np.array(weights, dtype=np.float64)


def check_declared(labels: NDArray[Any], declared: NDArray[Any]) -> None:
    """Refuse labels that are not among the declared classes, if there are any."""
    if not declared.size or not labels.size:
        return
    strange = labels[find(labels, declared) < 0]
    if strange.size:
        raise ValueError(
            f"y contains {strange.tolist()[0]!r}, expected one of classes={declared.tolist()}: "
            "correct the label, or leave classes out to let new classes be added."
        )

"""Validation of a batch: X, y, classes and sample weights become rows with class numbers."""

from __future__ import annotations

import datetime
import warnings
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import (
    _check_feature_names,
    _check_sample_weight,
    check_consistent_length,
    validate_data,
)

from seqmed.classes import UNLABELED, Rows, moved
from seqmed.estimators.labels import (
    are_plus_one,
    as_label_array,
    find,
    holds_minus_one,
    is_marked,
    is_minus_one,
    is_missing_value,
    split_labels,
    with_labels,
)
from seqmed.numeric.arrays import Array, Indices, Mask, Points, canonical, take_rows
from seqmed.numeric.execution import by_parts, callers_level

MatrixLike: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix
"""Rows as a user passes them: array-like, data frame or sparse matrix, of shape (n, p)."""

# Largest relative asymmetry of a precomputed kernel matrix that is attributed to rounding.
ASYMMETRY = 1e-6
# Range of positive sample weights. This range keeps bounds and slack terms within the range of
# doubles.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-50, 1e50
# Description of a missing cell, and largest number of characters of a cell, in error messages.
MISSING_CELL, LONGEST_CELL = "NaN (missing values)", 40
# Largest difference between the sum of class proportions and 1; 3 * 0.33 is accepted.
PROPORTIONS_ERROR = 0.01 + 1e-9
# Squares of features, and products of two such squares, must stay finite.
LARGEST_FEATURE = 1e70


class ClassifiedRows(NamedTuple):
    """A validated batch of n rows, and the K classes after it."""

    rows: Rows  # with class numbers instead of labels
    numbers: Indices  # (n,) places of the rows in X
    classes: NDArray[Any]  # (K,) sorted
    places: Indices  # (k,) indices of the earlier classes
    declared: Mask  # (K,) mask of the classes that the caller has declared


def validated_batch(
    model: Any,
    X: MatrixLike,
    y: ArrayLike,
    classes: ArrayLike | None,
    sample_weight: ArrayLike | None,
    *,
    alone: bool,
    new_points: bool,
) -> ClassifiedRows:
    """Return a batch, checked and converted.

    The columns of X are stored in the model, and whether -1 may have been a class. ``alone`` is
    True for the batch of `fit`, after which no batch need follow.
    """
    if y is None:
        raise ValueError(
            f"{type(model).__name__} requires y to be passed, but the target y is None."
        )
    started = getattr(model, "_started", None)
    points = checked_rows(model, X, reset=started is None)
    known, already = np.zeros(0), np.zeros(0, dtype=bool)
    if started is not None:
        known, already = model.classes_, model._state.counts.declared
    # labels
    declared = np.zeros(0) if classes is None else checked_classes(model, classes, known)
    labeled, labels = read_labels(model, y, known if known.size else declared, alone=alone)
    check_consistent_length(points, labeled)
    strange = labels[find(labels, declared) < 0] if declared.size else declared
    if strange.size:
        raise ValueError(
            f"y contains {strange.tolist()[0]!r}, expected one of classes={declared.tolist()}: "
            "correct the label, or leave classes out to let new classes be added."
        )
    so_far = known if known.size else labels
    if not (alone or declared.size) and signs_are_ambiguous(model, y, so_far):
        model._minus_one_seen = True
    # rows of positive weight
    weights = _check_sample_weight(sample_weight, points, ensure_non_negative=True)
    check_weights(weights)
    gram = None
    if getattr(model, "kernel", None) == "precomputed":
        gram = square_gram(points)
        points = np.arange(gram.shape[0])[:, None]
    else:
        points = in_format(points, sp.issparse(points) if started is None else started.sparse)
        if alone and not sp.issparse(points):  # sums do not depend on the order in memory
            points = np.ascontiguousarray(points)
    numbers = np.flatnonzero(weights)
    if numbers.size < weights.size:
        used = weights > 0
        points, weights = take_rows(points, used), weights[used]
        labels, labeled = labels[used[labeled]], labeled[used]
    if not labels.size and (alone or not new_points):
        call = "fit" if alone else "partial_fit(new_points=False)"
        raise ValueError(
            f"{type(model).__name__}.{call} got no labeled row among {weights.size}, expected at "
            "least one: add labels, or learn unlabeled batches with partial_fit."
        )
    # class numbers
    if not declared.size:  # a marker that is a class is still a class after `retract`
        declared = labels[is_marked(labels, model.unlabeled)][:1]
    now = with_labels(with_labels(known, declared), labels)
    if alone and now.dtype.kind == "U":
        now = np.array(now.tolist())  # as wide as the longest class
    codes = np.full(points.shape[0], UNLABELED)
    codes[labeled] = find(labels, now)
    places = find(known, now)
    now_declared = moved(already, places, now.size)
    now_declared[find(declared, now)] = True
    return ClassifiedRows(Rows(points, codes, weights, gram), numbers, now, places, now_declared)


# -- rows ------------------------------------------------------------------------------------------


def checked_rows(estimator: BaseEstimator, X: MatrixLike, *, reset: bool) -> Points:
    """Return rows as doubles, dense or CSR; refuse missing, infinite and very large values.

    ``reset`` is True for the first rows of a stream, which set the number of features. Later rows
    that `are_plain` skip scikit-learn's slower validation.
    """
    if reset or not are_plain(X, estimator):
        try:
            X = validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=np.float64)
        except (TypeError, ValueError) as error:
            cell = cell_without_number(X)
            if cell is None or get_tags(estimator).input_tags.pairwise:
                raise
            with warnings.catch_warnings(action="ignore"):  # wrong columns are refused first
                _check_feature_names(estimator, X, reset=False)
            raise ValueError(
                f"Input X contains {cell}, expected finite numbers: use "
                f"seqmed.make_stream_pipeline({type(estimator).__name__}(...)), which learns from "
                "tables with text, categories, dates and missing values, or encode and fill these "
                "cells first."
            ) from error
    check_magnitude(X)
    return X


def cell_without_number(X: Any) -> str | None:
    """Return the first cell that is missing, text or a date; None without such cells."""
    try:
        cells = np.asarray(X.data if sp.issparse(X) else X)
    except ValueError:  # rows of several lengths
        return None
    if cells.dtype.kind == "f":
        return MISSING_CELL if np.isnan(cells).any() else None
    for cell in cells.flat if cells.ndim else ():
        if is_missing_value(cell):
            return MISSING_CELL
        if isinstance(cell, str | datetime.date | np.datetime64):
            try:
                float(str(cell))  # scikit-learn converts numbers that are text
            except ValueError:
                return repr(str(cell)[:LONGEST_CELL])
    return None


def are_plain(X: Any, estimator: BaseEstimator) -> bool:
    """Whether rows are a finite array of doubles of the expected width, without column names."""
    if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2 or not X.size:
        return False
    if X.shape[1] != estimator.n_features_in_ or hasattr(estimator, "feature_names_in_"):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(by_parts(np.sum, X)).all())


def check_magnitude(X: Points) -> None:
    """Refuse features whose squares would overflow."""
    values = X.data if sp.issparse(X) else X
    if largest_size(values) > LARGEST_FEATURE:
        sizes = abs(X).max(axis=1)
        sizes = sizes.toarray().ravel() if sp.issparse(X) else sizes
        row = int(sizes.argmax())
        raise ValueError(
            f"row {row} of X contains a value of size {sizes.max():.3g}, expected at most "
            f"{LARGEST_FEATURE:g}: scale the features, for example with StandardScaler."
        )


def in_format(points: Points, sparse: bool) -> Points:
    """Return rows in the format of the first batch, CSR or dense."""
    if sparse:
        return canonical(sp.csr_array(points))
    return points.toarray() if sp.issparse(points) else points


def square_gram(gram: Points) -> Array:
    """Return a symmetric dense copy of a precomputed kernel matrix; refuse other matrices."""
    gram = gram.toarray() if sp.issparse(gram) else gram
    if gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"kernel='precomputed' got X of shape {gram.shape}, expected a square matrix: pass the "
            "kernel values between all rows."
        )
    gram = np.asarray(gram, dtype=np.float64)
    difference = float(np.abs(gram - gram.T).max(initial=0.0))
    if difference > 0 and difference > ASYMMETRY * largest_size(gram):
        raise ValueError(
            f"kernel='precomputed' got a matrix that differs from its transpose by {difference:.3g}"
            ", expected a symmetric matrix: pass rows and columns in the same order."
        )
    return np.asarray(np.triu(gram) + np.triu(gram, 1).T)


def largest_size(values: Array) -> float:
    """Return the largest absolute value, 0 for an empty array, without a copy."""
    if not values.size:
        return 0.0
    return max(float(by_parts(np.max, values).max()), -float(by_parts(np.min, values).min()))


def check_weights(weights: Array) -> None:
    """Refuse weights whose products with C would overflow or underflow, and weights of 0 only."""
    strange = (weights > 0) & ((weights < SMALLEST_WEIGHT) | (weights > LARGEST_WEIGHT))
    if strange.any():
        raise ValueError(
            f"sample_weight contains {weights[strange][0]:.3g}, expected 0 or values from "
            f"{SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}: rescale the weights."
        )
    if not weights.any():
        raise ValueError(
            "every sample_weight is zero, expected at least one positive weight: correct the "
            "weights, or skip the batch."
        )


# -- labels ----------------------------------------------------------------------------------------


def read_labels(
    model: Any, y: ArrayLike, known: NDArray[Any], *, alone: bool = False
) -> tuple[Mask, NDArray[Any]]:
    """Return the mask of labeled rows and their labels.

    ``known`` are the classes so far, empty before there are any. ``alone`` is True if no labels
    follow.
    """
    labeled, labels = split_labels(y, model.unlabeled, known=known)
    if alone and labels.size and signs_are_ambiguous(model, y, labels):
        if not model._semi_supervised:  # -1 is a class
            return split_labels(y, None)
        warn_of_signs(labels)
    return labeled, labels


def signs_are_ambiguous(model: Any, y: ArrayLike, classes: NDArray[Any]) -> bool:
    """Whether y has -1 as a marker, and no class but +1 is known: -1 may be a class, too."""
    return are_plus_one(classes) and holds_minus_one(y, model.unlabeled)


def warn_of_signs(classes: NDArray[Any]) -> None:
    """Warn that -1 was taken for the marker although it may be a class."""
    warnings.warn(
        f"{classes[0]} is the only class so far, and labels -1 were taken for missing ones: if -1 "
        "is a class, start a new model with unlabeled=None; if not, mark unlabeled rows by None, "
        "or pass all classes to partial_fit by classes=.",
        stacklevel=callers_level(),
    )


def checked_classes(model: Any, classes: ArrayLike, known: NDArray[Any]) -> NDArray[Any]:
    """Return the declared classes, sorted; refuse missing labels and the marker."""
    given = list(classes) if isinstance(classes, set | frozenset) else classes
    if np.ndim(given) != 1:
        raise ValueError(
            f"classes has shape {np.shape(given)}, expected one dimension: pass a list of labels."
        )
    values = list(as_label_array(given))  # as objects: 'nan' is a class name
    marker = model.unlabeled
    if not model._semi_supervised and is_minus_one(marker):
        marker = None
    labeled, labels = split_labels(values, marker, known=known)
    if not labeled.all():
        raise ValueError(
            f"classes={values} contains a value that marks unlabeled rows, expected classes "
            "only: leave the value out, or set another marker with unlabeled=."
        )
    return np.unique(labels)


def codes_to_retract(model: Any, y: ArrayLike, n_rows: int) -> Indices:
    """Return the class indices (n,) of the labels to retract."""
    labeled, labels = read_labels(model, y, model.classes_)
    if labeled.size != n_rows or not labeled.all():
        raise ValueError(
            f"retract got {labels.size} labels for {n_rows} rows, expected one label per row: "
            "leave other rows out, or leave y out to retract whatever label each row has."
        )
    return find(labels, model.classes_)


def checked_class_weights(given: Any, classes: NDArray[Any]) -> Any:
    """Return ``class_weight`` with a dict replaced by the weight of every class, (K,)."""
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
            f"class_weight got {given!r}, expected positive finite weights: correct them, or "
            "remove the rows of a class to leave it out."
        )
    return np.array(weights, dtype=np.float64)


def checked_class_prior(given: Any, classes: NDArray[Any], declared: Mask) -> Array | None:
    """Return known class proportions, (K,), from a dict by label; None without a dict.

    Keys may name classes that have not appeared. Once classes are declared, they must be classes.

    Parameters
    ----------
    given : the parameter ``class_prior``.
    classes : (K,) sorted classes.
    declared : (K,) mask of the classes that the caller has declared.
    """
    check_proportions(given)
    if not isinstance(given, dict):
        return None
    proportions = np.zeros(classes.size)
    for label, proportion in given.items():
        try:
            place = find(split_labels([label], None, known=classes)[1], classes)
        except ValueError:  # of another type
            place = np.zeros(0, dtype=np.intp)
        if not place.size or (place[0] < 0 and declared.any()):
            raise ValueError(
                f"class_prior has the key {label!r}, expected labels of the classes "
                f"{classes.tolist()}: correct the key, or leave it out."
            )
        if place[0] >= 0:
            proportions[place[0]] = proportion
    missing = classes[proportions == 0]
    if missing.size:
        raise ValueError(
            f"class_prior has no proportion of the class {missing.tolist()[0]!r}, expected one of "
            f"every class in {classes.tolist()}: add the class, or set class_prior=None."
        )
    return proportions


def check_proportions(given: Any) -> None:
    """Refuse a dict of class proportions that are not positive or do not sum to 1."""
    if not isinstance(given, dict):
        return
    for label, proportion in given.items():
        number = isinstance(proportion, Real) and not isinstance(proportion, bool | np.bool_)
        if not number or not 0 < float(proportion) < np.inf:
            raise ValueError(
                f"class_prior has the proportion {proportion!r} of the class {label!r}, expected a "
                "number > 0: correct it, or leave out a class that does not occur."
            )
    total = float(sum(given.values()))
    if abs(total - 1.0) > PROPORTIONS_ERROR:
        raise ValueError(
            f"class_prior has proportions with the sum {total:.6g}, expected 1: divide them by "
            "their sum."
        )


# -- models ----------------------------------------------------------------------------------------


def refuse_plain_pipeline(model: Any, subject: str) -> None:
    """Refuse a Pipeline of scikit-learn; ``subject`` begins the message, such as "query got"."""
    if isinstance(model, Pipeline) and not hasattr(type(model), "partial_fit"):
        raise TypeError(
            f"{subject} a {type(model).__name__} of scikit-learn, which has no partial_fit, "
            "expected a model that learns in batches: make a seqmed.StreamPipeline of the same "
            "steps, or use seqmed.make_stream_pipeline."
        )

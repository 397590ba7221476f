"""Input validation and warnings."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from numbers import Real
from typing import Any, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import validate_data

from seqmed.estimators.labels import is_missing_value
from seqmed.numeric.arrays import Array, Indices, Points, canonical
from seqmed.numeric.factors import made_symmetric

MatrixLike: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix
"""Rows as a user passes them: array-like, data frame or sparse matrix, of shape (n, p)."""

# Largest relative asymmetry of a precomputed kernel matrix that is attributed to rounding.
ASYMMETRY = 1e-6
# Range of positive sample weights. This range keeps bounds and slack terms within the range of
# doubles.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-50, 1e50
# Description of a missing cell, and largest number of characters of a cell, in error messages.
MISSING_CELL, LONGEST_CELL = "NaN (missing values)", 40
# Squares of features, and products of two such squares, must stay finite.
LARGEST_FEATURE = 1e70


def refuse_plain_pipeline(
    model: Any, subject: str, error: type[ValueError | TypeError] = TypeError
) -> None:
    """Refuse a Pipeline of scikit-learn, which cannot learn a stream.

    Parameters
    ----------
    model : the object that a user passed.
    subject : beginning of the message, such as "query got".
    error : type of the error.
    """
    if isinstance(model, Pipeline) and not hasattr(type(model), "partial_fit"):
        raise error(
            f"{subject} a {type(model).__name__} of scikit-learn, which has no partial_fit, "
            "expected a model that learns in batches: make a seqmed.StreamPipeline of the same "
            "steps, or use seqmed.make_stream_pipeline."
        )


class Registered(StrOptions):
    """Parameter constraint: a name in a registry, to which names may be added later."""

    def __init__(self, registry: Mapping[str, Any], *others: str) -> None:
        super().__init__({*registry, *others})
        self.registry, self.others = registry, others

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value is one of the names."""
        return isinstance(val, str) and (val in self.registry or val in self.others)

    def __str__(self) -> str:
        return f"a str among {{{', '.join(map(repr, sorted({*self.registry, *self.others})))}}}"


def square_gram(gram: Points) -> Array:
    """Return a symmetric dense copy of a precomputed kernel matrix; refuse other matrices."""
    gram = gram.toarray() if sp.issparse(gram) else gram
    if gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"kernel='precomputed' got X of shape {gram.shape}, expected a square matrix: pass the "
            "kernel values between all training rows."
        )
    symmetric, difference = made_symmetric(gram)
    if difference > 0 and difference > ASYMMETRY * largest_size(gram):
        raise ValueError(
            "kernel='precomputed' got a matrix that differs from its transpose by "
            f"{difference:.3g}, expected a symmetric matrix: pass rows and columns in the same "
            "order."
        )
    return symmetric


def largest_size(values: Array) -> float:
    """Return the largest absolute value, 0 for an empty array, without a copy."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def check_weights(weights: Array) -> None:
    """Refuse weights whose products with C would overflow or underflow."""
    strange = (weights > 0) & ((weights < SMALLEST_WEIGHT) | (weights > LARGEST_WEIGHT))
    if strange.any():
        raise ValueError(
            f"sample_weight contains {weights[strange][0]:.3g}, expected 0 or values from "
            f"{SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}: rescale the weights."
        )


def rows_of_weight(sample_weight: ArrayLike | None, n_rows: int) -> Indices:
    """Return the indices of the rows of positive weight, of which there are ``n_rows``."""
    weights = np.ravel(1.0 if sample_weight is None else np.asarray(sample_weight))
    return np.flatnonzero(weights > 0) if weights.size >= n_rows > 1 else np.arange(n_rows)


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
            kernel_values = get_tags(estimator).input_tags.pairwise
            if cell is None or kernel_values or "feature names" in str(error):
                raise
            raise ValueError(
                f"Input X contains {cell}, expected finite numbers: use "
                f"seqmed.make_stream_pipeline({type(estimator).__name__}(...)), which learns from "
                "tables with text, categories, dates and missing values, or encode and fill these "
                "cells first."
            ) from error
    check_magnitude(X)
    return X


def cell_without_number(X: Any) -> str | None:
    """Return what the first cell is that is missing, text or a date; None without such cells."""
    try:
        cells = np.asarray(X.data if sp.issparse(X) else X)
    except ValueError:  # rows of several lengths
        return None
    if cells.dtype.kind == "f":
        return MISSING_CELL if np.isnan(cells).any() else None
    for cell in cells.flat if cells.ndim else ():
        if is_missing_value(cell):
            return MISSING_CELL
        if isinstance(cell, str | bytes) and not is_number(cell):
            return f"text ({cell[:LONGEST_CELL]!r})"
        if isinstance(cell, datetime.date | np.datetime64):
            return f"dates ({cell})"
    return None


def is_number(text: str | bytes) -> bool:
    """Whether a text is that of a number, which scikit-learn converts."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def are_plain(X: Any, estimator: BaseEstimator) -> bool:
    """Whether rows are a finite array of doubles of the expected width, without column names."""
    if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2 or not X.size:
        return False
    if X.shape[1] != estimator.n_features_in_ or hasattr(estimator, "feature_names_in_"):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


def check_magnitude(X: Points) -> None:
    """Refuse features whose squares would overflow."""
    values = X.data if sp.issparse(X) else X
    if largest_size(values) > LARGEST_FEATURE:
        sizes = np.abs(values)
        place = int(sizes.argmax())
        if sp.issparse(X):
            row = int(np.searchsorted(X.indptr, place, side="right")) - 1
        else:
            row = place // X.shape[1]
        raise ValueError(
            f"row {row} of X contains a value of size {sizes.max():.3g}, expected at most "
            f"{LARGEST_FEATURE:g}: scale the features, for example with StandardScaler."
        )


def in_format(points: Points, sparse: bool) -> Points:
    """Return rows in the format of the first batch, CSR or dense."""
    if sparse:
        return canonical(sp.csr_array(points))
    return points.toarray() if sp.issparse(points) else points


@contextmanager
def generators_kept(estimator: Any) -> Iterator[None]:
    """Restore the RandomState that was passed to an estimator, if an error is raised meanwhile."""
    owners = (estimator, getattr(estimator, "estimator", None))
    passed = [getattr(owner, "random_state", None) for owner in owners]
    before = [
        (each, each.get_state()) for each in passed if isinstance(each, np.random.RandomState)
    ]
    try:
        yield
    except BaseException:
        for generator, state in before:
            generator.set_state(state)
        raise


def is_estimator(value: Any) -> bool:
    """Whether a value is an estimator object, not an estimator class."""
    return hasattr(value, "get_params") and not isinstance(value, type)


def equal_parameters(first: Any, second: Any) -> bool:
    """Whether two parameter values are equal. Estimators are compared by their parameters."""
    if first is second:
        return True
    if isinstance(first, Real) and isinstance(second, Real):
        return bool(first == second or (first != first and second != second))
    if type(first) is not type(second):
        return False
    if is_estimator(first):
        return equal_parameters(first.get_params(deep=False), second.get_params(deep=False))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            equal_parameters(first[k], second[k]) for k in first
        )
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(equal_parameters, first, second))
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second)
    return bool(first == second)


Estimator = TypeVar("Estimator")


def snapshot(estimator: Estimator) -> Estimator:
    """Return a shallow copy of an estimator, which later updates do not change."""
    copied = object.__new__(type(estimator))
    copied.__dict__.update(estimator.__dict__)  # one atomic operation
    return copied


def copy_to_fit(estimator: Any) -> Any:
    """Return a copy that can learn without changing the estimator.

    The copy is shallow for models of this package, and deep for all others.
    """
    return snapshot(estimator) if hasattr(estimator, "_snapshot") else deepcopy(estimator)

"""Experts that are fitted on the last labeled rows: they suit linear boundaries and drift.

A refitted expert learns from the last `WINDOW` labeled rows only. It therefore follows a stream
that changes. It is fitted less often while its weight is 0, which saves time. `REFITTED` lists the
kinds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from seqmed.classes import moved
from seqmed.mixture.change import RECORD
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Points,
    no_indices,
    no_rows,
    row_norms_squared,
    stack,
    take_rows,
)
from seqmed.numeric.expectations import expect, expect_shape


class RecentRows(NamedTuple):
    """The last labeled rows, oldest first.

    Attributes
    ----------
    points : (r, p).
    codes : (r,) their classes.
    weights : (r,) their weights.
    """

    points: Points
    codes: Indices
    weights: Array

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the same rows."""
        expect_shape(self, (self.points.shape[0],), "codes", "weights")
        expect((self.codes >= 0).all(), "classes >= 0")

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    def add(self, points: Points, codes: Indices, weights: Array) -> RecentRows:
        """Return the newest `RECORD` rows after some more."""
        return RecentRows(
            stack(self.points, points)[-RECORD:],
            np.append(self.codes, codes)[-RECORD:].astype(np.intp),
            np.append(self.weights, weights)[-RECORD:],
        )

    def take(self, rows: NDArray[np.bool_]) -> RecentRows:
        """Return some of the rows, by a mask."""
        return RecentRows(*(take_rows(each, rows) for each in self))

    def with_classes(self, places: Indices) -> RecentRows:
        """Return the rows with old class c at ``places[c]``; those of -1 are dropped."""
        codes = places[self.codes]
        return self._replace(codes=codes).take(codes >= 0)


def no_recent_rows(points: Points) -> RecentRows:
    """Return no rows, of the format of ``points``."""
    return RecentRows(no_rows(points), np.zeros(0, dtype=np.intp), np.zeros(0))


# Largest number of labeled rows that an expert is fitted on.
WINDOW = 150
# An expert is fitted again if this fraction of the rows is new: while it is used, and otherwise.
SHARE_USED, SHARE_UNUSED = 0.1, 0.3
# Tolerance of the solver. A smaller one takes twice as long and gains less than 0.1 points.
TOLERANCE = 0.01


class RefittedExpert(Protocol):
    """An expert that is fitted on the last labeled rows.

    Attributes
    ----------
    name : its name in reports.
    n_new : number of labels since the last fit.
    """

    @property
    def name(self) -> str: ...
    @property
    def n_new(self) -> int: ...

    def fit(self, recent: RecentRows, n_classes: int) -> RefittedExpert:
        """Return the expert fitted on some rows."""

    def wait(self, n_new: int) -> RefittedExpert:
        """Return the expert with this number of labels since its last fit."""

    def scores(self, points: Points) -> Array:
        """Return scores (m, K); all 0 if it has not been fitted."""

    def summed_size(self, points: Points) -> float:
        """Return the root mean square of the sum of ``|term|`` over the terms of a score."""

    def with_classes(self, places: Indices, n_classes: int) -> RefittedExpert:
        """Return the expert with class c moved to ``places[c]`` of ``n_classes``; -1 drops it."""


@dataclass(frozen=True)
class LinearExpert:
    """Softmax regression with an L2 penalty.

    The rows are centred and divided by one number, so that the penalty does not depend on their
    unit. Sparse rows are not centred.

    Parameters
    ----------
    columns : (c,) columns that are used: all, or those of sparse rows that are not 0 everywhere.
    coef : (K, c) coefficients.
    intercept : (K,) intercepts.
    fitted : (K,) 1 for the classes of the rows it was fitted on; other classes get the smallest
        score.
    n_new : number of labels since the last fit.
    """

    columns: Indices
    coef: Array
    intercept: Array
    fitted: Array
    n_new: int

    name = "linear"

    def fit(self, recent: RecentRows, n_classes: int) -> LinearExpert:
        """Return the expert fitted on some rows; not fitted if they have fewer than two classes."""
        present = np.unique(recent.codes)
        unfitted = no_linear_expert().with_classes(no_indices(), n_classes)
        if present.size < 2:
            return unfitted
        points, columns, mean, scale = standardised(recent.points)
        if not 0.0 < scale < np.inf:
            return unfitted
        model = LogisticRegression(tol=TOLERANCE)
        with warnings.catch_warnings():  # of a slow solver, or of few labels with many classes
            warnings.simplefilter("ignore")
            model.fit(points, recent.codes, recent.weights)
        found, intercepts = model.coef_, model.intercept_
        if present.size == 2:  # one row of coefficients for two classes
            found, intercepts = (
                np.outer([-0.5, 0.5], found),
                np.outer([-0.5, 0.5], intercepts)[:, 0],
            )
        coef, intercept, fitted = np.zeros((n_classes, columns.size)), *np.zeros((2, n_classes))
        coef[present], intercept[present], fitted[present] = found / scale, intercepts, 1.0
        intercept -= coef @ mean
        finite = np.isfinite(coef).all() and np.isfinite(intercept).all()
        return LinearExpert(columns, coef, intercept, fitted, 0) if finite else unfitted

    def wait(self, n_new: int) -> LinearExpert:
        return replace(self, n_new=n_new)

    def scores(self, points: Points) -> Array:
        fitted = self.fitted > 0
        if not fitted.any():
            return np.zeros((points.shape[0], fitted.size))
        if self.columns.size < points.shape[1]:
            points = points[:, self.columns]
        scores = np.asarray(points @ self.coef.T + self.intercept)
        scores[:, ~fitted] = scores[:, fitted].min(axis=1, keepdims=True)
        return scores

    def summed_size(self, points: Points) -> float:
        if not self.fitted.any():
            return 0.0
        # by the inequality of Cauchy and Schwarz
        size = np.sqrt(row_norms_squared(points).mean() * row_norms_squared(self.coef).max())
        return float(size + np.abs(self.intercept).max())

    def with_classes(self, places: Indices, n_classes: int) -> LinearExpert:
        return replace(
            self,
            coef=np.ascontiguousarray(moved(self.coef.T, places, n_classes).T),
            intercept=moved(self.intercept, places, n_classes),
            fitted=moved(self.fitted, places, n_classes),
        )

    def validate(self) -> None:
        """Raise a ValueError if the arrays do not fit together."""
        expect_shape(self, (self.fitted.size,), "fitted", "intercept")
        expect_shape(self, (self.fitted.size, *self.columns.shape), "coef")
        expect((np.diff(self.columns, prepend=-1) > 0).all(), "distinct columns in order")


def standardised(points: Points) -> tuple[Points, Indices, Array, float]:
    """Return rows that are centred, unless they are sparse, and divided by one number.

    Further, the used columns (c,), their means (c,), and that number: the root mean square of all
    entries; 0 or infinity if the rows cannot be divided by it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if sp.issparse(points):
            columns = np.unique(points.indices).astype(np.intp)
            points, mean = points[:, columns], np.zeros(columns.size)
            squares = points.power(2)
        else:
            columns, mean = np.arange(points.shape[1]), points.mean(axis=0)
            points = points - mean
            squares = np.square(points)
        scale = float(np.sqrt(squares.mean())) if columns.size else 0.0
        usable = 0.0 < scale < np.inf
        return points / scale if usable else points, columns, mean, scale


def no_linear_expert() -> LinearExpert:
    """Return an expert that has not been fitted."""
    return LinearExpert(no_indices(), np.zeros((0, 0)), np.zeros(0), np.zeros(0), 0)


# The refitted experts of a mixture, in the order in which they are added.
REFITTED: list[Callable[[], RefittedExpert]] = [no_linear_expert]


def is_due(n_new: int, n_rows: int, *, used: bool) -> bool:
    """Whether an expert with ``n_new`` labels since its last fit is fitted again.

    ``n_rows`` is the number of rows that it would be fitted on, and ``used`` whether it has a
    weight in the mixture.
    """
    return n_new >= max(1.0, (SHARE_USED if used else SHARE_UNUSED) * n_rows)


def training_rows(recent: RecentRows, class_weights: Array, *, balanced: bool) -> RecentRows:
    """Return the rows that experts are fitted on: the last `WINDOW` labeled rows, weighted.

    ``class_weights`` (K,) are factors of the weights. If ``balanced``, all classes have the same
    total weight before.
    """
    recent = RecentRows._make(each[-WINDOW:] for each in recent)
    codes, weights = recent.codes, recent.weights
    if balanced and codes.size:
        totals = np.bincount(codes, weights, minlength=class_weights.size)
        weights = weights * (totals.sum() / np.count_nonzero(totals) / totals[codes])
    return recent._replace(weights=weights * class_weights[codes])

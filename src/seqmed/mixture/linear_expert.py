"""The linear expert: fitted on the last labeled rows, it suits linear boundaries and drift.

It learns from the last `WINDOW` labeled rows only. It therefore follows a stream that changes. It
is fitted less often while its weight is 0, which saves time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from seqmed.classes import Rows, moved
from seqmed.numeric.arrays import Array, Indices, Points, no_indices, row_norms_squared
from seqmed.numeric.expectations import expect, expect_shape

# Largest number of labeled rows that it is fitted on.
WINDOW = 150
# It is fitted again if this fraction of the rows is new: while it is used, and otherwise.
SHARE_USED, SHARE_UNUSED = 0.1, 0.3
# Tolerance of the solver. A smaller one takes twice as long and gains less than 0.1 points.
TOLERANCE = 0.01


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

    def fit(self, recent: Rows, n_classes: int) -> LinearExpert:
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

    def is_due(self, n_rows: int, *, used: bool) -> bool:
        """Whether it is fitted again, on ``n_rows`` rows.

        ``used`` is whether it has a weight in the mixture.
        """
        return self.n_new >= max(1.0, (SHARE_USED if used else SHARE_UNUSED) * n_rows)

    def wait(self, n_new: int) -> LinearExpert:
        """Return the expert with this number of labels since its last fit."""
        return replace(self, n_new=n_new)

    def scores(self, points: Points) -> Array:
        """Return scores (m, K); all 0 if it has not been fitted."""
        fitted = self.fitted > 0
        if not fitted.any():
            return np.zeros((points.shape[0], fitted.size))
        if self.columns.size < points.shape[1]:
            points = points[:, self.columns]
        scores = np.asarray(points @ self.coef.T + self.intercept)
        scores[:, ~fitted] = scores[:, fitted].min(axis=1, keepdims=True)
        return scores

    def summed_size(self, points: Points) -> float:
        """Return a bound of the root mean square of the sum of ``|term|`` in a score."""
        if not self.fitted.any():
            return 0.0
        # by the inequality of Cauchy and Schwarz
        size = np.sqrt(row_norms_squared(points).mean() * row_norms_squared(self.coef).max())
        return float(size + np.abs(self.intercept).max())

    def with_classes(self, places: Indices, n_classes: int) -> LinearExpert:
        """Return the expert with class c moved to ``places[c]`` of ``n_classes``; -1 drops it."""
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


def balanced(codes: Indices, weights: Array, n_classes: int) -> Array:
    """Return the weights (n,) of rows, scaled so that all classes have the same total weight."""
    if not codes.size:
        return weights
    totals = np.bincount(codes, weights, minlength=n_classes)
    return np.asarray(weights * (totals.sum() / np.count_nonzero(totals) / totals[codes]))

"""Label queries: the rows whose labels reduce the expected regret of all decisions the most.

**Expected regret.** The decision at a row is the class with the largest score, and its margin m is
``|f|`` for a single machine, or ``(best - second) / sqrt(q_1^2 + q_2^2)`` with one machine per
class, whose factors are q (`class_scale_`). If the score is Gaussian with standard deviation s
around m, the expected regret of deciding now is

    r(m, s) = s phi(m / s) - m Phi(-m / s).

**Value of a label.** Labels do not shrink the covariance k_t of MED. It is therefore conditioned on
the labeled rows L that the model keeps, as if each were an observation with noise variance 1 / C:

    c(x, x') = k_t(x, x') - k_t(x, L) (k_t(L, L) + I / C)^{-1} k_t(L, x').

An observation at row i changes the score of row j by a Gaussian amount with standard deviation
``t_ij = |c_ij| / sqrt(c_ii + 1 / C)``, and reduces the expected regret at j by exactly
``r(m_j, t_ij)``. The value of row i is the sum of this over all distinct rows j.

**Greedy choice.** The row with the largest value is chosen, and c is conditioned on it. This is
repeated, so that the chosen rows are diverse. A finite bias variance is added to k_t; an infinite
one is left out, as in `decision_std`. For the covariance and margins of a graph, see
`seqmed.uncertainty.of_graph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.pipeline import Pipeline

from seqmed.estimators.base import in_blocks, transformed
from seqmed.estimators.validation import MatrixLike, refuse_plain_pipeline
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Points,
    check_overflow,
    distinct_rows,
    random_keys,
    stack,
    take_rows,
)
from seqmed.numeric.execution import threads_for
from seqmed.uncertainty import (
    Uncertainty,
    conditional_covariance,
    conditional_variances,
    observation_variances,
)

__all__ = ["expected_regret", "query"]

# Largest number of rows that are compared with each other.
SHORTLIST = 1000
# Relative difference below which two values are equal. If rows have equal values, the first one is
# chosen.
TIE = 1e-9
# Margin, in standard deviations, beyond which the regret is zero in double precision.
CERTAIN = 40.0


def query(model: Any, X: MatrixLike, n: int) -> Indices:
    """Return the rows to label next, the most valuable first.

    Parameters
    ----------
    model : fitted SeqMED, SeqLapMED, SeqGraphMED or GraphPropagation
        A StreamPipeline that ends in one of these, and fitted searches, are also accepted. The
        model may have learned unlabeled rows only. It is not changed.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows that can be labeled, in the form that ``model.predict`` takes.
    n : int in [1, n_samples]
        Number of rows to choose.

    Returns
    -------
    rows : ndarray of shape (n,)
        Distinct indices into X. If several rows have the same value, the first one is chosen.
        Duplicates of chosen rows come last.

    Raises
    ------
    TypeError
        If ``model`` is not one of these classifiers, or is a Pipeline of scikit-learn.
    ValueError
        If ``n`` is out of range, or the kernel is precomputed.

    See Also
    --------
    expected_regret : Expected regret of single rows, to choose candidates from a long stream.

    Notes
    -----
    Up to 1000 distinct rows are compared with each other, at a cost of ``n * n_samples**2``. If
    there are more, only the 1000 rows with the largest expected regret are compared. If fewer than
    two classes have labels, 1000 evenly spaced rows are used instead. If the model keeps l labeled
    rows, they add a cost of ``l**3 + l**2 * n_samples``; `window`, `lag` and `budget` limit l.

    Examples
    --------
    >>> from seqmed import SeqMED, query
    >>> model = SeqMED().fit([[0.0], [1.0]], [0, 1])
    >>> query(model, [[0.0], [0.45], [0.5], [1.0]], 1)
    array([2])
    """
    with uncertainty_of(model, X) as known:
        points, margins = known.points, known.margins
        n_rows = margins.size
        if not isinstance(n, Integral) or isinstance(n, bool | np.bool_) or not 1 <= n <= n_rows:
            raise ValueError(
                f"query got n={n!r} for {n_rows} rows, expected an integer from 1 to {n_rows}: "
                "choose fewer rows, or pass more."
            )
        distinct = distinct_rows(points)
        ranked = distinct[ranking(known, take_rows(points, distinct), margins[distinct])]
        short = np.sort(ranked[:SHORTLIST])
        covariance = conditional_covariance(known, take_rows(points, short))
        check_overflow(covariance)
        chosen = greedy(covariance, margins[short], known.noise, min(n, short.size))
    copies = np.setdiff1d(np.arange(n_rows), distinct)
    return np.concatenate([short[chosen], ranked[SHORTLIST:], copies])[:n]


def expected_regret(model: Any, X: MatrixLike) -> Array | None:
    """Return the expected regret of the decision at every row.

    The expected regret is the value of a label for the row itself. Use it to choose candidates for
    `query` from a stream that is too long to be passed at once.

    Parameters
    ----------
    model : fitted SeqMED, SeqLapMED, SeqGraphMED or GraphPropagation
        A StreamPipeline that ends in one of these, and fitted searches, are also accepted. The
        model is not changed.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows that can be labeled, in the form that ``model.predict`` takes.

    Returns
    -------
    regrets : ndarray of shape (n_samples,) or None
        Expected regret >= 0 of every row. None if fewer than two classes have labels; choose
        candidates at random in that case.

    See Also
    --------
    query : Rows to label next. It refuses the same models.

    Examples
    --------
    >>> from seqmed import SeqMED, expected_regret
    >>> model = SeqMED().fit([[0.0], [1.0]], [0, 1])
    >>> expected_regret(model, [[0.0], [0.5], [1.0]]).round(3)
    array([0.   , 0.347, 0.   ])
    """
    model, X = final_step(model, X)
    model = model._snapshot()
    if model._state.counts.seen.sum() < 2:
        return None
    return regret(*margins_and_deviations(model, X))


def margins_and_deviations(model: Any, X: MatrixLike) -> tuple[Array, Array]:
    """Return the margin m >= 0 and the standard deviation s of every row, both (n_samples,).

    The expected regret of a row is ``r(m, s)``. The margins are 0 if fewer than two classes have
    labels. Arguments as in `expected_regret`.
    """
    with uncertainty_of(model, X) as known:
        deviations = np.sqrt(conditional_variances(known, known.points))
    check_overflow(deviations)
    return known.margins, deviations


# -- the classifier and its rows -------------------------------------------------------------------


def final_step(model: Any, X: MatrixLike) -> tuple[Any, Any]:
    """Return the classifier inside a pipeline or search, and the rows it receives."""
    if hasattr(model, "best_estimator_"):
        return final_step(model.best_estimator_, X)
    refuse_plain_pipeline(model, "query got")
    if isinstance(model, Pipeline):
        return final_step(model.steps[-1][1], transformed(model.steps, X))
    if not hasattr(model, "_uncertainty"):
        raise TypeError(
            f"query got a model of type {type(model).__name__}, expected a fitted SeqMED, "
            "SeqLapMED, SeqGraphMED or GraphPropagation: pass one of these, a StreamPipeline "
            "that ends in one, or a fitted search over one."
        )
    return model, X


@contextmanager
def uncertainty_of(model: Any, X: MatrixLike) -> Iterator[Uncertainty]:
    """Yield the uncertainty of the classifier inside a model at the rows it receives.

    Meanwhile, the number of threads is set and overflow is ignored: check results afterwards.
    """
    model, X = final_step(model, X)
    model = model._snapshot()
    points = model._points(X)
    rows = max(points.shape[0], model._n_support())
    with threads_for(rows), np.errstate(over="ignore", invalid="ignore"):
        yield model._uncertainty(points)


# -- rows of largest expected regret of a long table -----------------------------------------------


class Shortlist(NamedTuple):
    """The distinct rows of a table of largest expected regret, in their order.

    The rows do not depend on how the table is divided.

    Attributes
    ----------
    size : largest number of rows.
    points : (n, p) rows as the classifier takes them.
    values : (n,) their expected regret, or other values that are the larger the better.
    numbers : (n,) their numbers in the table, increasing. Of equal rows and values, the first row
        is taken.
    cells : what is known of each row.
    """

    size: int
    points: Points
    values: Array
    numbers: Indices
    cells: tuple[Any, ...]

    @classmethod
    def of(
        cls, model: Any, size: int, points: Points, numbers: Indices, cells: Sequence[Any]
    ) -> Shortlist:
        """Return the best of n rows; random rows if fewer than two classes have labels.

        Parameters
        ----------
        model : a classifier of this package, not a pipeline.
        size : largest number of rows.
        points, numbers, cells : see the class; n may be 0.
        """
        values = random_keys(numbers, 0) / 2.0**64
        if numbers.size and model._snapshot()._state.counts.seen.sum() > 1:
            (values,) = in_blocks(lambda rows: (expected_regret(model, rows),), points)
        return cls(size, points, values, numbers, tuple(cells)).best()

    def best(self) -> Shortlist:
        """Return the best distinct rows."""
        order = np.lexsort((self.numbers, -self.values))
        order = order[distinct_rows(take_rows(self.points, order))[: self.size]]
        order = order[np.argsort(self.numbers[order])]
        return Shortlist(
            self.size,
            take_rows(self.points, order),
            self.values[order],
            self.numbers[order],
            tuple(self.cells[place] for place in order.tolist()),
        )

    def plus(self, other: Shortlist) -> Shortlist:
        """Return the best rows of both, which have different numbers."""
        if not (self.cells and other.cells):
            return self if self.cells else other
        return Shortlist(
            self.size,
            stack(self.points, other.points),
            np.append(self.values, other.values),
            np.append(self.numbers, other.numbers),
            self.cells + other.cells,
        ).best()


# -- the choice ------------------------------------------------------------------------------------


def regret(margin: Array, deviation: Array) -> Array:
    """Return the expected regret r(m, s) >= 0 for margins m and standard deviations s."""
    deviation = np.maximum(deviation, np.maximum(margin / CERTAIN, np.finfo(np.float64).tiny))
    ratio = margin / deviation
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
    found: Array = np.maximum(deviation * (density - ratio * ndtr(-ratio)), 0.0)
    return found


def ranking(known: Uncertainty, points: Points, margins: Array) -> Indices:
    """Return all rows, first those with the largest regret, or evenly spaced ones."""
    size = margins.size
    if size <= SHORTLIST:
        return np.arange(size)
    if margins.any():
        own = regret(margins, np.sqrt(conditional_variances(known, points)))
        return np.argsort(-own, kind="stable")
    spaced = np.arange(SHORTLIST) * size // SHORTLIST
    return np.concatenate([spaced, np.setdiff1d(np.arange(size), spaced)])


def greedy(covariance: Array, margins: Array, noise: float, n: int) -> Indices:
    """Return n <= N rows, each the most valuable one given those before it.

    The covariance (N, N) is conditioned on the labels, and ``noise`` is the variance of the noise
    of an observation.
    """
    covariance, chosen = covariance.copy(), np.zeros(n, dtype=np.intp)
    free = np.ones(margins.size, dtype=bool)
    for turn in range(n):
        observed = observation_variances(covariance, noise)
        rows = np.flatnonzero(free)
        values = label_values(covariance, margins, observed)[rows]
        row = rows[np.argmax(values >= (1.0 - TIE) * values.max())]  # the first one of ties
        if not values.any():  # all underflow to zero
            row = rows[np.argmin((margins / np.sqrt(observed))[rows])]
        chosen[turn], free[row] = row, False
        column = covariance[:, row] / np.sqrt(observed[row])
        covariance -= np.outer(column, column)
    return chosen


def label_values(covariance: Array, margins: Array, observed: Array) -> Array:
    """Return the value of every row, (N,): its label reduces the total regret by this amount."""
    changes = np.abs(covariance) / np.sqrt(observed)[:, None]
    values: Array = regret(margins[None, :], changes).sum(axis=1)
    return values

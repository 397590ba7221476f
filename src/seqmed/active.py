"""Which rows to have labeled next: those whose labels would mend the most decisions.

A row's decision is the sign of a score, or the better of its two best classes. Let m >= 0 be its
margin over the classes seen: ``|f|`` for one machine, ``(best - second) / sqrt(q_1^2 + q_2^2)`` for
several, q the factors by which the class scores scale the machines' (`class_scale_`; 1 for
``bias="exact"``). Let the score be Gaussian around it with standard deviation s. What a decision
loses by being taken now, on average, is its regret

    r(m, s) = s phi(m / s) - m Phi(-m / s).

MED's covariance k_t never shrinks with labels. So it is conditioned on the labeled rows L that the
model still holds, as if each were an observation of the score with noise variance 1 / C:

    c(x, x') = k_t(x, x') - k_t(x, L) (k_t(L, L) + I / C)^{-1} k_t(L, x').

One more such observation, of row i, moves the score of row j by a Gaussian amount of standard
deviation ``t_ij = |c_ij| / sqrt(c_ii + 1 / C)``, and takes exactly ``r(m_j, t_ij)`` off the regret
at j. The value of row i is the sum over the distinct rows asked about,

    v_i = sum_j r(m_j, t_ij):

large where a row is undecided and its neighbours are, and there are many of them. The best row is
taken, c is conditioned on it too, and so on; whatever resembles a chosen row has lost its value,
which is how the choice becomes diverse. Before two classes have been seen all margins are 0, and
the value is what a row tells about the others, ``sum_j t_ij / sqrt(2 pi)``.

The covariance of classifiers with a graph, `SeqGraphMED` and `GraphPropagation`, is
``k_t(x, x') = exp(-d^2 / (2 h^2))``, d the distance of the graph and h^2 the mean squared distance
of a kept row's last neighbour. L are labeled rows that are kept, C is 10, and m is the gap of the
two largest probabilities.

A finite bias variance is added to k_t; a diffuse bias is left out, as in `decision_std`. Of many
rows only a shortlist is compared, because no row j adds more than ``r(m_j, s_j)`` to any value:
rows with little regret of their own hardly matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.pipeline import Pipeline

from seqmed.arrays import Array, Indices, Points, distinct_rows, take_rows
from seqmed.kernels.bounded import check_overflow
from seqmed.threads import threads_for
from seqmed.uncertainty import (
    Uncertainty,
    conditional_covariance,
    conditional_variances,
    observation_variances,
)

__all__ = ["doubt", "query"]

# Rows compared with each other; of more, those with the largest regret of their own.
SHORTLIST = 1000
# Values that differ by less than this share of the largest are equal: the first row is taken.
TIE = 1e-9
# Margin, in standard deviations, beyond which a regret is zero in double precision.
NO_DOUBT = 40.0


def query(model: Any, X: Any, n: int) -> Indices:
    """Return the rows most worth labeling, the most valuable first.

    Parameters
    ----------
    model : fitted SeqMED, SeqLapMED, SeqGraphMED or GraphPropagation
        Or a pipeline that ends in one, or a search over either. It may have learned batches
        without any label. It is not changed.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The rows that could be labeled.
    n : int from 1 to n_samples
        How many labels there will be.

    Returns
    -------
    rows : ndarray of shape (n,)
        Distinct indices into X. Of rows of equal value the first is taken, and a row equal to a
        chosen one only when no other is left.

    Notes
    -----
    Up to 1000 distinct rows are compared with each other, at a cost of ``n * n_samples**2``; more
    are first ranked by their own regret, or, before two classes are known, thinned evenly. The
    labeled rows the model holds, l of them, add ``l**3 + l**2 * n_samples``: a lag and a budget
    bound them.

    Examples
    --------
    >>> import numpy as np
    >>> from seqmed import SeqMED
    >>> from seqmed.active import query
    >>> model = SeqMED().fit([[0.0], [1.0]], [0, 1])
    >>> query(model, [[0.0], [0.45], [0.5], [1.0]], 1)
    array([2])
    """
    model, points = prepared(model, X)
    check_number(n, points.shape[0])
    with working(model, points):
        known = model._uncertainty(points)
        points, gaps = known.points, known.margins
        distinct = distinct_rows(points)
        ranked = distinct[ranking(known, take_rows(points, distinct), gaps[distinct])]
        short = np.sort(ranked[:SHORTLIST])
        covariance = conditional_covariance(known, take_rows(points, short))
        check_overflow(covariance)
        chosen = greedy(covariance, gaps[short], known.noise, min(n, short.size))
    copies = np.setdiff1d(np.arange(points.shape[0]), distinct)
    return np.concatenate([short[chosen], ranked[SHORTLIST:], copies])[:n]


def doubt(model: Any, X: Any) -> Array | None:
    """Return how much a label of every row would be worth by itself, for choosing candidates.

    Of a stream too long for `query`, pass it the rows of the largest doubt.

    Parameters
    ----------
    model : as in `query`.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)

    Returns
    -------
    values : ndarray of shape (n_samples,), or None
        The regret of deciding at the row now, >= 0. None before two classes have been seen: all
        decisions are open then, and rows that are far from all others would come first. Take a
        random sample instead.
    """
    model, points = prepared(model, X)
    if model._stream.registry.seen.sum() < 2:
        return None
    with working(model, points):
        known = model._uncertainty(points)
        values = own_regret(known, known.points, known.margins)
    check_overflow(values)
    return values


# -- the model and its rows ------------------------------------------------------------------------


def final_step(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the classifier within pipelines and searches, and the rows as they reach it."""
    if hasattr(model, "best_estimator_"):
        return final_step(model.best_estimator_, X)
    if isinstance(model, Pipeline):
        steps = model.steps
        for _, step in steps[:-1]:
            if step is not None and step != "passthrough":
                X = step.transform(X)
        return final_step(steps[-1][1], X)
    if not hasattr(model, "_uncertainty"):
        raise TypeError(
            f"query got a model of type {type(model).__name__}, expected a fitted SeqMED, "
            "SeqLapMED, SeqGraphMED or GraphPropagation, a pipeline that ends in one, or a fitted "
            "search over them: pass one of these."
        )
    return model, X


def prepared(model: Any, X: Any) -> tuple[Any, Points]:
    """Return a snapshot of the classifier, and the validated rows."""
    model, X = final_step(model, X)
    model = model._snapshot()
    return model, model._points(X)


@contextmanager
def working(model: Any, points: Points) -> Iterator[None]:
    """Compute with as many threads as pay; overflow is checked afterwards."""
    rows = max(points.shape[0], model._n_support())
    with threads_for(rows), np.errstate(over="ignore", invalid="ignore"):
        yield


def check_number(n: Any, n_rows: int) -> None:
    """Refuse a number of labels that the rows cannot provide."""
    if not isinstance(n, Integral) or isinstance(n, bool | np.bool_) or not 1 <= int(n) <= n_rows:
        raise ValueError(
            f"query got n={n!r} for {n_rows} rows, expected a whole number from 1 to {n_rows}: ask "
            "for fewer rows, or pass more."
        )


# -- the choice ------------------------------------------------------------------------------------


def regret(margin: Array, spread: Array) -> Array:
    """Return what decisions of these margins and standard deviations lose on average, >= 0."""
    spread = np.maximum(spread, np.maximum(margin / NO_DOUBT, np.finfo(np.float64).tiny))
    ratio = margin / spread
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
    return np.maximum(spread * (density - ratio * ndtr(-ratio)), 0.0)


def own_regret(known: Uncertainty, points: Points, gaps: Array) -> Array:
    """Return what the decision at every row loses on average, (n,)."""
    return regret(gaps, np.sqrt(conditional_variances(known, points)))


def ranking(known: Uncertainty, points: Points, gaps: Array) -> Indices:
    """Return all rows, those for the shortlist first: by their own regret, or thinned evenly."""
    size = gaps.size
    if size <= SHORTLIST:
        return np.arange(size)
    if gaps.any():
        return np.argsort(-own_regret(known, points, gaps), kind="stable")
    spaced = np.arange(SHORTLIST) * size // SHORTLIST
    return np.concatenate([spaced, np.setdiff1d(np.arange(size), spaced)])


def greedy(covariance: Array, gaps: Array, noise: float, n: int) -> Indices:
    """Return n rows, each the most valuable given those before it.

    Parameters
    ----------
    covariance : (N, N) between the rows, given the labels.
    gaps : (N,) margins.
    noise : noise variance of an observation of a row's score.
    n : rows to choose, <= N.
    """
    covariance, chosen = covariance.copy(), np.zeros(n, dtype=np.intp)
    free = np.ones(gaps.size, dtype=bool)
    for turn in range(n):
        observed = observation_variances(covariance, noise)
        rows = np.flatnonzero(free)
        row = rows[best(worth(covariance, gaps, observed)[rows], (gaps / np.sqrt(observed))[rows])]
        chosen[turn], free[row] = row, False
        column = covariance[:, row] / np.sqrt(observed[row])
        covariance -= np.outer(column, column)
    return chosen


def best(values: Array, ratios: Array) -> int:
    """Return the row of the largest value, the first of equals.

    Where all values are zero, too far from any doubt for numbers, it is that of the smallest ratio.
    """
    largest = values.max()
    if largest <= 0.0:
        return int(np.argmin(ratios))
    return int(np.argmax(values >= (1.0 - TIE) * largest))


def worth(covariance: Array, gaps: Array, observed: Array) -> Array:
    """Return the value of every row, (N,): the regret it takes off all rows."""
    moves = np.abs(covariance) / np.sqrt(observed)[:, None]
    return regret(gaps[None, :], moves).sum(axis=1)

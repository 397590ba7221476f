"""Which rows to have labeled next: those whose labels would mend the most decisions.

A row's decision is the sign of a score, or the better of its two best classes. Let m >= 0 be its
margin over the classes seen: ``|f|`` for one machine, ``(best - second) / sqrt(q_1^2 + q_2^2)`` for
several, q the factors by which the class scores scale the machines' (`class_scale_`; 1 for
``bias="exact"``). Let the score be Gaussian around it with standard deviation s. What a decision
loses by being taken now, on average, is its regret

    r(m, s) = s phi(m / s) - m Phi(-m / s).

MED's covariance k_t never shrinks with labels. So it is conditioned on the labeled rows L that the
model still holds, as if each were a look at the score with a noise of variance 1 / C:

    c(x, x') = k_t(x, x') - k_t(x, L) (k_t(L, L) + I / C)^{-1} k_t(L, x').

One more such look, at row i, moves the score of row j by a Gaussian amount of standard deviation
``t_ij = |c_ij| / sqrt(c_ii + 1 / C)``, and takes exactly ``r(m_j, t_ij)`` off the regret at j. The
value of row i is the sum over the distinct rows asked about,

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
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.pipeline import Pipeline

from seqmed.arrays import Array, Indices, Points, distinct_rows, found_among, stack, take_rows
from seqmed.estimators.graph_propagation import GraphClassifier
from seqmed.estimators.sequential import DEFAULT_C, SequentialClassifier
from seqmed.graph.metrics import KernelDistance
from seqmed.graph.propagation import GraphState
from seqmed.kernels import Kernel, Linear, Precomputed, blocks
from seqmed.kernels.bounded import check_overflow
from seqmed.linalg.factorisation import cholesky, solve_lower
from seqmed.posterior import CovarianceFunction, Posterior
from seqmed.threads import threads_for

__all__ = ["doubt", "query"]

# Rows compared with each other; of more, those with the largest regret of their own.
SHORTLIST = 1000
# Values that differ by less than this share of the largest are equal: the first row is taken.
TIE = 1e-9
# Share of the largest variance that is added to the noise, against rounding.
JITTER = 1e-10
# Margin, in standard deviations, beyond which a regret is zero in double precision.
NO_DOUBT = 40.0
# Labeled rows that the covariance of a graph is conditioned on at most.
CONDITIONED = 2000


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
    model, points = asked(model, X)
    check_number(n, points.shape[0])
    with working(model, points):
        gaps = margins(model, points)
        known = knowledge_of(model)
        points = compared(model, points)
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
    model, points = asked(model, X)
    if model._stream.book.seen.sum() < 2:
        return None
    with working(model, points):
        gaps = margins(model, points)
        values = own_regret(knowledge_of(model), compared(model, points), gaps)
    check_overflow(values)
    return values


# -- what is asked ---------------------------------------------------------------------------------


Classifier = SequentialClassifier | GraphClassifier


def final_step(model: Any, X: Any) -> tuple[Classifier, Any]:
    """Return the classifier within pipelines and searches, and the rows as they reach it."""
    if hasattr(model, "best_estimator_"):
        return final_step(model.best_estimator_, X)
    if isinstance(model, Pipeline):
        steps = model.steps
        for _, step in steps[:-1]:
            if step is not None and step != "passthrough":
                X = step.transform(X)
        return final_step(steps[-1][1], X)
    if not isinstance(model, Classifier):
        raise TypeError(
            f"query got a model of type {type(model).__name__}, expected a fitted SeqMED, "
            "SeqLapMED, SeqGraphMED or GraphPropagation, a pipeline that ends in one, or a fitted "
            "search over them: pass one of these."
        )
    return model, X


def asked(model: Any, X: Any) -> tuple[Classifier, Points]:
    """Return a snapshot of the classifier, and the rows, once they can be compared."""
    model, X = final_step(model, X)
    model = model._snapshot()
    points = model._points(X)
    kernel = None if isinstance(model, GraphClassifier) else model.posterior_.covariance.kernel
    if isinstance(kernel, Precomputed):
        raise ValueError(
            "query got a model with kernel='precomputed', expected a kernel that can be evaluated "
            "between any two rows: pass the kernel as a callable."
        )
    return model, points


@contextmanager
def working(model: Classifier, points: Points) -> Iterator[None]:
    """Compute with as many threads as pay, overflow being looked for afterwards."""
    held = CONDITIONED if isinstance(model, GraphClassifier) else model.posterior_.size
    rows = max(points.shape[0], held)
    with threads_for(rows), np.errstate(over="ignore", invalid="ignore"):
        yield


def check_number(n: Any, n_rows: int) -> None:
    """Refuse a number of labels that the rows cannot provide."""
    if not isinstance(n, Integral) or isinstance(n, bool | np.bool_) or not 1 <= int(n) <= n_rows:
        raise ValueError(
            f"query got n={n!r} for {n_rows} rows, expected a whole number from 1 to {n_rows}: ask "
            "for fewer rows, or pass more."
        )


# -- margins and spread ----------------------------------------------------------------------------


def margins(model: Classifier, points: Points) -> Array:
    """Return how far every row is from another decision, (n,); 0 before there are two classes."""
    book = model._stream.book
    if book.seen.sum() < 2:
        return np.zeros(points.shape[0])
    if isinstance(model, GraphClassifier):
        scores = model._probabilities(points)
    else:
        scores = book.class_scores(model.posterior_.mean(points))
    scores = scores[:, book.seen]
    check_overflow(scores)
    best = np.argsort(scores, axis=1)[:, -2:]
    gaps = np.diff(np.take_along_axis(scores, best, axis=1), axis=1)[:, 0]
    if isinstance(model, GraphClassifier) or book.n_heads == 1:
        return gaps
    return gaps / np.sqrt(np.sum(book.scale[book.seen][best] ** 2, axis=1))


def compared(model: Classifier, points: Points) -> Points:
    """Return rows in the form that the covariance is a function of."""
    if not isinstance(model, GraphClassifier):
        return points
    return model._stream.graph.rows.metric.store(points).rows.astype(np.float64)


class Knowledge(NamedTuple):
    """What is known of the spread: the covariance, and the labeled rows to condition it on.

    Attributes
    ----------
    covariance : k_t.
    bias_variance : what is added to it everywhere, finite.
    labeled : (l, p) rows.
    noise : variance of a look at the score of a row.
    """

    covariance: CovarianceFunction | HeatCovariance
    bias_variance: float
    labeled: Points
    noise: float


@dataclass(frozen=True)
class HeatCovariance:
    """``exp(-gamma d^2)`` for distances ``d^2 = k(x, x) + k(x', x') - 2 k(x, x')`` of a kernel."""

    kernel: Kernel
    gamma: float

    width = 1

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of two sets of rows."""
        sums = self.kernel.diagonal(left)[:, None] + self.kernel.diagonal(right)
        distances = np.maximum(sums - 2.0 * self.kernel(left, right), 0.0)
        return np.exp(-self.gamma * distances)

    def diagonal(self, points: Points) -> Array:
        """Return the variance of every row, (n,)."""
        return np.ones(points.shape[0])


def knowledge_of(model: Classifier) -> Knowledge:
    """Return what a model knows of the spread."""
    if isinstance(model, GraphClassifier):
        return graph_knowledge(model._stream.graph)
    return knowledge(model.posterior_, model.C)


def graph_knowledge(graph: GraphState) -> Knowledge:
    """Return what a graph knows of the spread: how far rows are from kept labeled ones."""
    rows = graph.rows
    metric, k = rows.metric, rows.n_neighbors
    kernel = metric.kernel if isinstance(metric, KernelDistance) else Linear()
    widths = rows.lists.distances[rows.lists.sizes >= k, k - 1].astype(np.float64)
    width = float(widths.mean()) if widths.size and widths.any() else 1.0
    labeled = np.flatnonzero(graph.codes >= 0)
    if labeled.size > CONDITIONED:
        labeled = labeled[np.arange(CONDITIONED) * labeled.size // CONDITIONED]
    stored = rows.take(labeled) if labeled.size else rows.blocks[0].take(slice(0, 0))
    points = stored.rows.astype(np.float64)
    return Knowledge(HeatCovariance(kernel, 0.5 / width), 0.0, points, 1.0 / DEFAULT_C)


def knowledge(posterior: Posterior, bound: float) -> Knowledge:
    """Return what a posterior knows of the spread.

    The noise is 1 / C by the bounds of the window, or by ``bound`` if it is empty. Labeled rows
    that have been summed into weights (linear kernel), or projected, are no longer there.
    """
    window, frozen = posterior.window, posterior.frozen.points
    if posterior.covariance.on_landmarks:  # then landmarks are labeled rows
        landmarks = posterior.landmarks.points
        frozen = take_rows(landmarks, ~found_among(landmarks, window.points))
    compact = posterior.covariance.kernel.compact
    diffuse = not np.isfinite(posterior.bias_variance)
    return Knowledge(
        posterior.covariance,
        0.0 if diffuse else posterior.bias_variance,
        window.points if compact else stack(frozen, window.points),
        1.0 / float(np.median(window.bounds) if window.size else bound),
    )


def conditional_covariance(known: Knowledge, points: Points) -> Array:
    """Return c between all rows, (n, n)."""
    size = known.labeled.shape[0]
    every = stack(known.labeled, points)
    joint = known.covariance(every, every) + known.bias_variance  # one call: each is dear
    if not size:
        return joint
    factor = cholesky(noisy(joint[:size, :size], known.noise))
    explained = solve_lower(factor, joint[:size, size:])
    return joint[size:, size:] - explained.T @ explained


def conditional_variances(known: Knowledge, points: Points) -> Array:
    """Return c(x, x) of every row, (n,), in bounded memory."""
    covariance, labeled, size = known.covariance, known.labeled, known.labeled.shape[0]
    variances = np.empty(points.shape[0])
    if size:
        gram = covariance(labeled, labeled) + known.bias_variance
        factor = cholesky(noisy(gram, known.noise))
    for rows in blocks(points.shape[0], covariance.width + size):
        variances[rows] = covariance.diagonal(points[rows]) + known.bias_variance
        if size:
            across = covariance(labeled, points[rows]) + known.bias_variance
            variances[rows] -= np.sum(solve_lower(factor, across) ** 2, axis=0)
    return np.maximum(variances, 0.0)


def noisy(covariance: Array, noise: float) -> Array:
    """Return the covariance (n, n) of looks at the scores, noise on the diagonal."""
    looks = covariance.copy()
    looks[np.diag_indices_from(looks)] = look_variances(covariance, noise)
    return looks


def look_variances(covariance: Array, noise: float) -> Array:
    """Return the variance of a look at the score of every row, (n,)."""
    variances = np.maximum(np.diagonal(covariance), 0.0)
    return variances + (noise + JITTER * variances.max())


# -- the choice ------------------------------------------------------------------------------------


def regret(margin: Array, spread: Array) -> Array:
    """Return what decisions of these margins and standard deviations lose on average, >= 0."""
    spread = np.maximum(spread, np.maximum(margin / NO_DOUBT, np.finfo(np.float64).tiny))
    ratio = margin / spread
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
    return np.maximum(spread * (density - ratio * ndtr(-ratio)), 0.0)


def own_regret(known: Knowledge, points: Points, gaps: Array) -> Array:
    """Return what the decision at every row loses on average, (n,)."""
    return regret(gaps, np.sqrt(conditional_variances(known, points)))


def ranking(known: Knowledge, points: Points, gaps: Array) -> Indices:
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
    noise : variance of a look at a row's score.
    n : rows to choose, <= N.
    """
    covariance, chosen = covariance.copy(), np.zeros(n, dtype=np.intp)
    free = np.ones(gaps.size, dtype=bool)
    for turn in range(n):
        looks = look_variances(covariance, noise)
        rows = np.flatnonzero(free)
        row = rows[best(worth(covariance, gaps, looks)[rows], (gaps / np.sqrt(looks))[rows])]
        chosen[turn], free[row] = row, False
        column = covariance[:, row] / np.sqrt(looks[row])
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


def worth(covariance: Array, gaps: Array, looks: Array) -> Array:
    """Return the value of every row, (N,): the regret that a look at it takes off all rows."""
    moves = np.abs(covariance) / np.sqrt(looks)[:, None]
    return regret(gaps[None, :], moves).sum(axis=1)

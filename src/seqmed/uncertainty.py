"""The uncertainty of decisions: margins, and a covariance conditioned on labeled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular

from seqmed.classes import ClassCounts
from seqmed.graph.propagation import GraphState
from seqmed.kernels import Kernel, blocks
from seqmed.margin.covariance.exact import CovarianceFunction
from seqmed.margin.posterior import Posterior
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Points,
    check_overflow,
    found_among,
    stack,
    take_rows,
)
from seqmed.numeric.factors import cholesky

# Noise variance that is added because of rounding, as a fraction of the largest variance.
JITTER = 1e-10
# Largest number of labeled rows that the covariance of a graph is conditioned on.
CONDITIONED = 2000
# Number of kernel values, besides those of labeled rows, that a covariance takes at once.
EXPANDED = 500
# Noise variance of a label in a graph: 1 / C for the default C of SeqMED.
GRAPH_NOISE = 0.1


@dataclass(frozen=True)
class HeatCovariance:
    """``exp(-gamma d^2)`` with the kernel distance ``d^2 = k(x, x) + k(x', x') - 2 k(x, x')``."""

    kernel: Kernel
    gamma: float

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of two sets of rows."""
        sums = self.kernel.diagonal(left)[:, None] + self.kernel.diagonal(right)
        distances = np.maximum(sums - 2.0 * self.kernel(left, right), 0.0)
        return np.exp(-self.gamma * distances)

    def diagonal(self, points: Points) -> Array:
        """Return the variance of every row, (n,)."""
        return np.ones(points.shape[0])


class Uncertainty(NamedTuple):
    """The uncertainty of the decisions at n rows."""

    points: Points  # (n, p) rows, as the covariance function takes them
    margins: Array  # (n,) 0 if fewer than two classes have labels
    covariance: CovarianceFunction | HeatCovariance
    labeled: Points  # (l, p) rows to condition on
    noise: float  # variance of the noise of an observation of a score


def of_posterior(
    posterior: Posterior, counts: ClassCounts, points: Points, C: float
) -> Uncertainty:
    """Return the uncertainty of a posterior at the given rows.

    The noise variance is 1 / C, where C is the median bound in the window, or ``C`` if the window
    is empty. Labeled rows that were projected, or summed into the weights of a linear kernel, are
    not available.
    """
    window, frozen = posterior.window, posterior.frozen.points
    if posterior.covariance.on_landmarks:  # landmarks are labeled rows
        landmarks = posterior.landmarks.points
        frozen = take_rows(landmarks, ~found_among(landmarks, window.points))
    margins = np.zeros(points.shape[0])
    if counts.seen.sum() > 1:
        gaps, best = two_best(counts.class_scores(posterior.mean(points))[:, counts.seen])
        scale = counts.scale[counts.seen]
        own = np.sqrt(np.sum(scale[best] ** 2, axis=1))
        margins = gaps if counts.n_machines == 1 else gaps / own
    compact = posterior.covariance.kernel.compact
    return Uncertainty(
        points=points,
        margins=margins,
        covariance=posterior.covariance,
        labeled=window.points if compact else stack(frozen, window.points),
        noise=1.0 / float(np.median(window.bounds) if window.size else C),
    )


def of_graph(
    graph: GraphState, counts: ClassCounts, points: Points, probabilities: Array
) -> Uncertainty:
    """Return the uncertainty of a graph at the given rows.

    The prior covariance of two rows is ``exp(-d^2 / (2 h^2))`` with the distance d of the graph,
    and labeled rows reduce it. h^2 is the mean squared distance of a kept row to its farthest
    neighbour. The margin is the difference between
    the two largest probabilities.
    """
    rows = graph.rows
    metric, k = rows.metric, rows.n_neighbors
    widths = rows.lists.distances[rows.lists.sizes >= k, k - 1].astype(np.float64)
    width = float(widths.mean()) if widths.size and widths.any() else 1.0
    labeled = np.flatnonzero(graph.codes >= 0)
    if labeled.size > CONDITIONED:
        labeled = labeled[np.arange(CONDITIONED) * labeled.size // CONDITIONED]
    stored = rows.take(labeled)
    margins = np.zeros(points.shape[0])
    if counts.seen.sum() > 1:
        margins, _ = two_best(probabilities[:, counts.seen])
    return Uncertainty(
        points=metric.store(points).rows.astype(np.float64),
        margins=margins,
        covariance=HeatCovariance(metric.kernel, 0.5 / width),
        labeled=stored.rows.astype(np.float64),
        noise=GRAPH_NOISE,
    )


def two_best(scores: Array) -> tuple[Array, Indices]:
    """Return the difference between the two largest scores, (n,), and their columns, (n, 2)."""
    check_overflow(scores)
    best = np.argsort(scores, axis=1)[:, -2:]
    return np.diff(np.take_along_axis(scores, best, axis=1), axis=1)[:, 0], best


def conditional_covariance(known: Uncertainty, points: Points) -> Array:
    """Return the conditional covariance of all rows, (n, n)."""
    size = known.labeled.shape[0]
    every = stack(known.labeled, points)
    joint = known.covariance(every, every)  # one call is faster than several
    if not size:
        return joint
    factor = observation_factor(joint[:size, :size], known.noise)
    explained: Array = solve_triangular(factor, joint[:size, size:], lower=True)
    return joint[size:, size:] - explained.T @ explained


def conditional_variances(known: Uncertainty, points: Points) -> Array:
    """Return the conditional variance of every row, (n,), in bounded memory."""
    covariance, labeled, size = known.covariance, known.labeled, known.labeled.shape[0]
    variances = np.empty(points.shape[0])
    if size:
        gram = covariance(labeled, labeled)
        factor = observation_factor(gram, known.noise)
    for rows in blocks(points.shape[0], size + EXPANDED):
        variances[rows] = covariance.diagonal(points[rows])
        if size:
            across = covariance(labeled, points[rows])
            explained = solve_triangular(factor, across, lower=True)
            variances[rows] -= np.sum(explained**2, axis=0)
    return np.maximum(variances, 0.0)


def observation_factor(covariance: Array, noise: float) -> Array:
    """Return the lower Cholesky factor (n, n) of the covariance of observed scores.

    If rounding of large values has made a covariance indefinite, the noise is increased.
    """
    while True:
        observed = covariance.copy()
        np.fill_diagonal(observed, observation_variances(covariance, noise))
        try:
            return cholesky(observed)
        except LinAlgError:
            noise = 10.0 * max(noise, JITTER * float(np.abs(covariance).max()))


def observation_variances(covariance: Array, noise: float) -> Array:
    """Return the variance of an observation of the score of every row, (n,)."""
    variances: Array = np.maximum(np.diagonal(covariance), 0.0)
    return variances + float(noise + JITTER * variances.max())

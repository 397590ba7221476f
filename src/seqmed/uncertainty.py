"""The uncertainty of decisions: margins, and a covariance to condition on labeled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqmed.arrays import Array, Indices, Points, found_among, stack, take_rows
from seqmed.classes import ClassRegistry
from seqmed.covariance.protocol import CovarianceFunction
from seqmed.graph.propagation import GraphState
from seqmed.kernels import Kernel, Linear, blocks
from seqmed.kernels.bounded import check_overflow
from seqmed.linalg.factorisation import cholesky, solve_lower
from seqmed.posterior import Posterior

# Share of the largest variance that is added to the noise, against rounding.
JITTER = 1e-10
# Labeled rows that the covariance of a graph is conditioned on at most.
CONDITIONED = 2000
# Noise variance of a label in a graph: 1 / C at the margin's default.
GRAPH_NOISE = 0.1


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


class Uncertainty(NamedTuple):
    """The uncertainty of the decisions at n rows.

    Attributes
    ----------
    points : (n, p) rows in the form that the covariance is a function of.
    margins : (n,) distance of every row from another decision; 0 before there are two classes.
    covariance : k_t.
    bias_variance : finite variance that is added to it everywhere.
    labeled : (l, p) rows to condition it on.
    noise : noise variance of an observation of the score of a row.
    """

    points: Points
    margins: Array
    covariance: CovarianceFunction | HeatCovariance
    bias_variance: float
    labeled: Points
    noise: float


def of_posterior(
    posterior: Posterior, registry: ClassRegistry, points: Points, C: float
) -> Uncertainty:
    """Return the uncertainty of a posterior.

    The noise is 1 / C by the bounds of the window, or by ``C`` if it is empty. Labeled rows that
    have been summed into weights (linear kernel), or projected, are no longer there.
    """
    window, frozen = posterior.window, posterior.frozen.points
    if posterior.covariance.on_landmarks:  # then landmarks are labeled rows
        landmarks = posterior.landmarks.points
        frozen = take_rows(landmarks, ~found_among(landmarks, window.points))
    margins = np.zeros(points.shape[0])
    if registry.seen.sum() > 1:
        gaps, best = two_best(registry.class_scores(posterior.mean(points))[:, registry.seen])
        scale = registry.scale[registry.seen]
        own = np.sqrt(np.sum(scale[best] ** 2, axis=1))
        margins = gaps if registry.n_machines == 1 else gaps / own
    compact = posterior.covariance.kernel.compact
    diffuse = not np.isfinite(posterior.bias_variance)
    return Uncertainty(
        points=points,
        margins=margins,
        covariance=posterior.covariance,
        bias_variance=0.0 if diffuse else posterior.bias_variance,
        labeled=window.points if compact else stack(frozen, window.points),
        noise=1.0 / float(np.median(window.bounds) if window.size else C),
    )


def of_graph(
    graph: GraphState, registry: ClassRegistry, points: Points, probabilities: Array
) -> Uncertainty:
    """Return the uncertainty of a graph: how far rows are from kept labeled ones."""
    rows = graph.rows
    metric, k = rows.metric, rows.n_neighbors
    widths = rows.lists.distances[rows.lists.sizes >= k, k - 1].astype(np.float64)
    width = float(widths.mean()) if widths.size and widths.any() else 1.0
    labeled = np.flatnonzero(graph.codes >= 0)
    if labeled.size > CONDITIONED:
        labeled = labeled[np.arange(CONDITIONED) * labeled.size // CONDITIONED]
    stored = rows.take(labeled) if labeled.size else rows.blocks[0].take(slice(0, 0))
    margins = np.zeros(points.shape[0])
    if registry.seen.sum() > 1:
        margins, _ = two_best(probabilities[:, registry.seen])
    return Uncertainty(
        points=metric.store(points).rows.astype(np.float64),
        margins=margins,
        covariance=HeatCovariance(getattr(metric, "kernel", Linear()), 0.5 / width),
        bias_variance=0.0,
        labeled=stored.rows.astype(np.float64),
        noise=GRAPH_NOISE,
    )


def two_best(scores: Array) -> tuple[Array, Indices]:
    """Return the gap of the two largest scores of every row, (n,), and their columns, (n, 2)."""
    check_overflow(scores)
    best = np.argsort(scores, axis=1)[:, -2:]
    return np.diff(np.take_along_axis(scores, best, axis=1), axis=1)[:, 0], best


def conditional_covariance(known: Uncertainty, points: Points) -> Array:
    """Return c between all rows, (n, n)."""
    size = known.labeled.shape[0]
    every = stack(known.labeled, points)
    joint = known.covariance(every, every) + known.bias_variance  # one call: each is expensive
    if not size:
        return joint
    factor = cholesky(noisy(joint[:size, :size], known.noise))
    explained = solve_lower(factor, joint[:size, size:])
    return joint[size:, size:] - explained.T @ explained


def conditional_variances(known: Uncertainty, points: Points) -> Array:
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
    """Return the covariance (n, n) of observed scores, noise on the diagonal."""
    observed = covariance.copy()
    observed[np.diag_indices_from(observed)] = observation_variances(covariance, noise)
    return observed


def observation_variances(covariance: Array, noise: float) -> Array:
    """Return the variance of an observation of the score of every row, (n,)."""
    variances = np.maximum(np.diagonal(covariance), 0.0)
    return variances + (noise + JITTER * variances.max())

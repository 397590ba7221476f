"""What is known after t batches: a Gaussian over functions, its mean and its spread.

The covariance carries everything the unlabeled data has said, the mean everything the labels have.
All three recursions produce a covariance of one form,

    k_t(x, x') = k(x, x') - psi(x) . psi(x'),      psi(x) = k(x, Z) Q,

the base kernel less what smoothness has already decided, with anchor points Z and a factor Q.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Points
from seqmed.graph import GraphRecipe, Smoothness
from seqmed.kernels import Expansion, Kernel

# Kernel values held at once while scores are computed: 64 MB of doubles.
BLOCK_VALUES = 2**23

# Share of k(x, x) by which rounding may make its reduction exceed it.
LARGEST_EXCESS = 1e-6


@dataclass(frozen=True)
class Reduction:
    """What smoothness takes from the base kernel: anchors Z, (m, p), and a factor Q, (m, r)."""

    anchors: Points
    factor: Array

    def features(self, kernel: Kernel, points: Points) -> Array:
        """Return psi of every row, (n, r)."""
        return kernel(points, self.anchors) @ self.factor


@dataclass(frozen=True)
class Covariance:
    """The covariance function of a posterior: a base kernel and, once smoothed, its reduction."""

    kernel: Kernel
    reduction: Reduction | None = None

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of the function's values on two sets of rows."""
        values = self.kernel(left, right)
        if self.reduction is None:
            return values
        features = self.reduction.features(self.kernel, left)
        others = features if left is right else self.reduction.features(self.kernel, right)
        if left is right:
            check_reduction(np.diagonal(values), features)
        return values - features @ others.T

    def diagonal(self, points: Points) -> Array:
        """Return the variance at every row, (n,), >= 0."""
        variances = self.kernel.diagonal(points)
        if self.reduction is not None:
            features = self.reduction.features(self.kernel, points)
            variances = variances - np.einsum("ij,ij->i", features, features)
        return np.maximum(variances, 0.0)

    def in_base_kernel(self, expansion: Expansion) -> tuple[Expansion, ...]:
        """Return ``sum_s k_t(., x_s) c_s`` as a sum of expansions in the base kernel."""
        if self.reduction is None:
            return (expansion,)
        anchors, factor = self.reduction.anchors, self.reduction.factor
        inner = self.kernel(anchors, expansion.points) @ expansion.coefficients
        return (expansion, Expansion(anchors, -(factor @ (factor.T @ inner))))


def check_reduction(variances: Array, features: Array) -> None:
    """Refuse to go on where the reduction exceeds what there was to reduce.

    In exact arithmetic ``psi(x) . psi(x) <= k(x, x)``. Kernel values so large that rounding breaks
    this would be amplified by every further batch.
    """
    excess = np.einsum("ij,ij->i", features, features) - variances
    if not (excess <= LARGEST_EXCESS * np.abs(variances)).all():
        raise ValueError(
            f"kernel values of up to {np.abs(variances).max():.3g} are too large for this "
            "smoothing in double precision, or the kernel is not positive semi-definite, expected "
            "one that is, with values nearer to 1: scale the features (for example with "
            "StandardScaler), lower beta, or mend the kernel."
        )


class Recursion(Protocol):
    """A way to carry the covariance from batch to batch (Theorem 2)."""

    @property
    def covariance(self) -> Covariance:
        """The covariance with every batch so far folded in."""

    def fold(self, points: Points, smoothness: Smoothness) -> Recursion:
        """Return the recursion after one more batch of distinct points, (n, p), and its penalty."""


def evaluate(kernel: Kernel, parts: tuple[Expansion, ...], points: Points) -> Array:
    """Return the sum of expansions at every row, (n, heads), in bounded memory."""
    heads = parts[0].coefficients.shape[1]
    scores = np.zeros((points.shape[0], heads))
    for part in parts:
        if part.points.shape[0] == 0:
            continue
        for rows in blocks(points.shape[0], part.points.shape[0]):
            scores[rows] += kernel(points[rows], part.points) @ part.coefficients
    return scores


def blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows whose products with ``width`` columns stay within `BLOCK_VALUES`."""
    size = max(1, BLOCK_VALUES // max(width, 1))
    for start in range(0, n_rows, size):
        yield slice(start, start + size)


@dataclass(frozen=True)
class Posterior:
    """The state of a stream learner; every update makes a new one.

    Parameters
    ----------
    recursion : carries the covariance.
    graph : how a batch becomes a graph, with the heat width once it has been measured.
    support : support vectors (s, p) and their coefficients (s, heads) in the current covariance.
    mean_parts : the same mean function as expansions in the base kernel, ready to evaluate.
    intercepts : (heads,) the bias of each head.
    solved : (heads,) whether a dual has ever fixed that bias.
    bias_variance : prior variance of the bias, inf for a diffuse one.
    n_batches : batches learned.
    """

    recursion: Recursion
    graph: GraphRecipe
    support: Expansion
    mean_parts: tuple[Expansion, ...]
    intercepts: Array
    solved: NDArray[np.bool_]
    bias_variance: float
    n_batches: int

    @property
    def covariance(self) -> Covariance:
        """The current covariance function."""
        return self.recursion.covariance

    @property
    def size(self) -> int:
        """Rows of the largest set of points the mean is made of."""
        return max(part.points.shape[0] for part in self.mean_parts)

    def mean(self, points: Points) -> Array:
        """Return the mean score of every row under every head, bias included, (n, heads)."""
        return evaluate(self.covariance.kernel, self.mean_parts, points) + self.intercepts

    def spread(self, points: Points) -> Array:
        """Return the standard deviation of the score at every row, (n,).

        A finite bias variance is part of it; a diffuse one, being infinite everywhere, is not.
        """
        covariance = self.covariance
        reduction = covariance.reduction
        width = 1 if reduction is None else reduction.anchors.shape[0]
        variances = np.empty(points.shape[0])
        for rows in blocks(points.shape[0], width):
            variances[rows] = covariance.diagonal(points[rows])
        if np.isfinite(self.bias_variance):
            variances += self.bias_variance
        return np.sqrt(variances)

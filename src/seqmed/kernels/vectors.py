"""Kernels on vectors: radial basis function, linear, polynomial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import safe_sparse_dot

from seqmed.kernels.gaussians import Gaussians, differenced, lengths_of
from seqmed.kernels.interface import Expansion, Pointwise
from seqmed.numeric.arrays import Array, Points, row_norms_squared
from seqmed.numeric.factors import symmetric_product

# Largest |x|^2, in units of 1/gamma, for which the data are not centred.
NEAR_ZERO = 10.0
# Standard deviation of equal entries because of rounding, relative to the largest entry.
CONSTANT = 4 * float(np.finfo(np.float64).eps)


def scale_gamma(points: Points, weights: Array) -> float:
    """Return ``1 / (n_features * variance of all entries)`` of weighted rows.

    1 for constant data, as in scikit-learn.
    """
    total = float(weights.sum()) * points.shape[1]
    mean = float(weights @ np.asarray(points.sum(axis=1)).ravel()) / total
    if sp.issparse(points):
        deviations = row_norms_squared(points) - points.shape[1] * mean**2
        variance = float(weights @ deviations) / total
    else:
        variance = float(weights @ np.square(points - mean).sum(axis=1)) / total
    largest = float(np.abs(points.data if sp.issparse(points) else points).max(initial=0.0))
    if variance <= (CONSTANT * largest) ** 2:
        return 1.0
    return float(1.0 / (points.shape[1] * variance))


def resolve_gamma(gamma: float | str, points: Points, weights: Array) -> float:
    """Return ``gamma`` as a number, "scale" and "auto" as in scikit-learn's SVC."""
    if gamma == "scale":
        return scale_gamma(points, weights)
    if gamma == "auto":
        return float(1.0 / points.shape[1])
    return float(gamma)


@dataclass(frozen=True, eq=False)
class RBF(Pointwise):
    """``exp(-gamma |x - x'|^2)``; the paper's width ``w`` is ``gamma = 1 / (2 w^2)``.

    ``centre`` (p,) is the mean of the first dense batch. The centre is subtracted before distances
    are computed, because a common offset of all rows would make digits cancel. None if no centring
    is needed.
    """

    gamma: float | str = "scale"
    centre: Array | None = None

    def freeze(self, points: Points, weights: Array) -> RBF:
        gamma, centre = resolve_gamma(self.gamma, points, weights), None
        if not sp.issparse(points) and lengths_of(points, gamma).max() > NEAR_ZERO:
            centre = np.average(points, axis=0, weights=weights)
        return replace(self, gamma=gamma, centre=centre)

    def __call__(self, left: Points, right: Points) -> Array:
        if sp.issparse(left):
            values = squared_distances(left, right)
            values *= -float(self.gamma)
            return np.exp(values, out=values)
        if left.shape[0] == 1:  # for one row, preparing all points would cost more
            return differenced(left, right, float(self.gamma))
        gaussians = Gaussians(right, self.centre, float(self.gamma))
        return gaussians.symmetric(left) if left is right else gaussians.matrix(left)

    def sums(self, points: Points, expansion: Expansion) -> Array:
        """Return the values of an expansion at every row by tiles, up to twice as fast."""
        others, coefficients = expansion
        if sp.issparse(points) or points.shape[0] == 1:
            return super().sums(points, expansion)
        return Gaussians(others, self.centre, float(self.gamma)).sums(points, coefficients)

    def diagonal(self, points: Points) -> Array:
        return np.ones(points.shape[0])


def inner_products(left: Points, right: Points) -> Array:
    """Return the inner products of all rows, (n, m)."""
    if left is right and not sp.issparse(left):
        return symmetric_product(left)
    return np.asarray(safe_sparse_dot(left, right.T, dense_output=True))


def squared_distances(left: Points, right: Points) -> Array:
    """Return squared Euclidean distances, (n, m), from inner products."""
    left_norms = row_norms_squared(left)
    right_norms = left_norms if left is right else row_norms_squared(right)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = inner_products(left, right)
        distances *= -2.0
        if left is right:
            distances += left_norms[:, None] + left_norms[None, :]  # symmetric to the last bit
        else:
            distances += left_norms[:, None]
            distances += right_norms[None, :]
    np.maximum(distances, 0.0, out=distances)
    if left is right:
        np.fill_diagonal(distances, 0.0)
    return distances


@dataclass(frozen=True, eq=False)
class Linear(Pointwise):
    """``x . x'``; an expansion is kept as one weight vector per machine."""

    compact = True

    def __call__(self, left: Points, right: Points) -> Array:
        return inner_products(left, right)

    def diagonal(self, points: Points) -> Array:
        return row_norms_squared(points)

    def join(self, first: Expansion, second: Expansion) -> Expansion:
        weights = linear_weights(first) + linear_weights(second)
        return Expansion(weights, np.eye(weights.shape[0]))


@dataclass(frozen=True, eq=False)
class ByFormat(RBF):
    """`Linear` for sparse rows and `RBF` for dense rows; the first batch decides."""

    def freeze(self, points: Points, weights: Array) -> Any:
        return Linear() if sp.issparse(points) else RBF(self.gamma).freeze(points, weights)


def linear_weights(expansion: Expansion) -> Array:
    """Return the (machines, p) weight vectors of an expansion in a linear kernel."""
    weights = safe_sparse_dot(expansion.coefficients.T, expansion.points, dense_output=True)
    return np.asarray(weights)


@dataclass(frozen=True, eq=False)
class Polynomial(Pointwise):
    """``(gamma x . x' + coef0) ** degree``."""

    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0

    def freeze(self, points: Points, weights: Array) -> Polynomial:
        return replace(self, gamma=resolve_gamma(self.gamma, points, weights))

    def __call__(self, left: Points, right: Points) -> Array:
        products = inner_products(left, right)
        return (float(self.gamma) * products + self.coef0) ** self.degree

    def diagonal(self, points: Points) -> Array:
        return (float(self.gamma) * row_norms_squared(points) + self.coef0) ** self.degree

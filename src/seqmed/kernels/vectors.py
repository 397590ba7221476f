"""Kernels on vectors: radial basis function, linear, polynomial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.utils.extmath import safe_sparse_dot

from seqmed.arrays import Array, Points, row_norms_squared
from seqmed.kernels.protocol import Expansion, Pointwise
from seqmed.sharing import shared
from seqmed.threads import side_by_side

# |x - centre|^2 in units of 1/gamma beyond which distances by inner products lose digits of the
# kernel value (their error is about 1e-15 of this); such rows are differenced directly.
FAR_FROM_CENTRE = 1e4
# Spread of entries, relative to the largest, that rounding of their mean alone would show.
CONSTANT = 4 * float(np.finfo(np.float64).eps)

# Side of a tile: half a megabyte of doubles.
TILE = 256
# Columns up to which the exponentials cost more than the products.
NARROW = 32


def scale_gamma(points: Points, weights: Array) -> float:
    """Return ``1 / (n_features * variance of all entries)`` with rows counted by weight.

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
    return 1.0 / (points.shape[1] * variance)


def resolve_gamma(gamma: float | str, points: Points, weights: Array) -> float:
    """Return ``gamma`` as a number, "scale" and "auto" as in scikit-learn's SVC."""
    if gamma == "scale":
        return scale_gamma(points, weights)
    if gamma == "auto":
        return 1.0 / points.shape[1]
    return float(gamma)


@dataclass(frozen=True, eq=False)
class RBF(Pointwise):
    """``exp(-gamma |x - x'|^2)``; the paper's width ``w`` is ``gamma = 1 / (2 w^2)``.

    ``centre`` (p,) is the mean of the first dense batch, subtracted before distances are formed so
    that an offset common to all data costs no digits.
    """

    gamma: float | str = "scale"
    centre: Array | None = None

    def freeze(self, points: Points, weights: Array) -> RBF:
        centre = None if sp.issparse(points) else np.average(points, axis=0, weights=weights)
        return replace(self, gamma=resolve_gamma(self.gamma, points, weights), centre=centre)

    @shared
    def __call__(self, left: Points, right: Points) -> Array:
        gamma = float(self.gamma)
        if sp.issparse(left):
            values = squared_distances(left, right)
            values *= -gamma
            return np.exp(values, out=values)
        if left.shape[0] == 1:  # nothing to be gained from preparing the others
            return np.exp(-gamma * cdist(left, right, "sqeuclidean"))
        same = left is right
        if self.centre is not None:
            left = left - self.centre
            right = left if same else right - self.centre
        return gaussians(left, right, gamma)

    def diagonal(self, points: Points) -> Array:
        return np.ones(points.shape[0])


def gaussians(left: Array, right: Array, gamma: float) -> Array:
    """Return ``exp(-gamma |x - x'|^2)``, (n, m), of dense rows.

    The exponent of a pair is one inner product, of ``(2 gamma x, -gamma |x|^2, 1)`` with
    ``(x', 1, -gamma |x'|^2)``. It is worked out tile by tile, each in cache from the product to the
    exponential; of a symmetric matrix only the tiles above the diagonal. Rows far from the origin
    are differenced coordinate by coordinate instead.
    """
    n, m, same = left.shape[0], right.shape[0], left is right
    left_norms = row_norms_squared(left)
    right_norms = left_norms if same else row_norms_squared(right)
    values = np.empty((n, m))
    with np.errstate(over="ignore"):
        first = np.column_stack((2.0 * gamma * left, -gamma * left_norms, np.ones(n)))
        second = np.column_stack((right, np.ones(m), -gamma * right_norms)).T

    def fill(rows: slice) -> None:
        room = np.zeros((2, min(n, TILE) * min(m, TILE)))
        with np.errstate(over="ignore", invalid="ignore"):
            for columns in tiles(rows.start if same else 0, m):
                shape = rows.stop - rows.start, columns.stop - columns.start
                tile, zeros = (each[: shape[0] * shape[1]].reshape(shape) for each in room)
                np.matmul(first[rows], second[:, columns], out=tile)
                np.minimum(tile, zeros, out=tile)
                np.exp(tile, out=values[rows, columns])
                if same and columns.start > rows.start:
                    values[columns, rows] = values[rows, columns].T
            if same:
                corner = values[rows, rows]
                below = np.tri(corner.shape[0], k=-1, dtype=bool)
                corner[below] = corner.T[below]

    side_by_side(fill, tiles(0, n), n * m * max(1, left.shape[1] // NARROW))
    far = FAR_FROM_CENTRE / gamma
    for row in np.flatnonzero(~(left_norms <= far)):
        values[row] = np.exp(-gamma * cdist(left[row, None], right, "sqeuclidean")[0])
    for column in np.flatnonzero(~(right_norms <= far)):
        values[:, column] = np.exp(-gamma * cdist(left, right[column, None], "sqeuclidean")[:, 0])
    if same:
        np.fill_diagonal(values, 1.0)
    return values


def tiles(start: int, stop: int) -> Iterator[slice]:
    """Yield slices that cut a range into sides of tiles."""
    for first in range(start, stop, TILE):
        yield slice(first, min(first + TILE, stop))


def squared_distances(left: Points, right: Points) -> Array:
    """Return squared Euclidean distances, (n, m), by inner products."""
    left_norms = row_norms_squared(left)
    right_norms = left_norms if left is right else row_norms_squared(right)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = safe_sparse_dot(left, right.T, dense_output=True)
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
    """``x . x'``; an expansion is kept as one weight vector per head."""

    compact = True

    def __call__(self, left: Points, right: Points) -> Array:
        return safe_sparse_dot(left, right.T, dense_output=True)

    def diagonal(self, points: Points) -> Array:
        return row_norms_squared(points)

    def join(self, first: Expansion, second: Expansion) -> Expansion:
        weights = linear_weights(first) + linear_weights(second)
        return Expansion(weights, np.eye(weights.shape[0]))


def linear_weights(expansion: Expansion) -> Array:
    """Return the (heads, p) weight vectors of an expansion in a linear kernel."""
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
        products = safe_sparse_dot(left, right.T, dense_output=True)
        return (float(self.gamma) * products + self.coef0) ** self.degree

    def diagonal(self, points: Points) -> Array:
        return (float(self.gamma) * row_norms_squared(points) + self.coef0) ** self.degree

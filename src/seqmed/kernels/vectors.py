"""Kernels on vectors: radial basis function, linear, polynomial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.utils.extmath import safe_sparse_dot

from seqmed.arrays import Array, Points, row_norms_squared
from seqmed.kernels.bounded import sums_by_blocks
from seqmed.kernels.protocol import Expansion, Pointwise
from seqmed.sharing import is_sharing, shared
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
        if sp.issparse(left):
            values = squared_distances(left, right)
            values *= -float(self.gamma)
            return np.exp(values, out=values)
        if left.shape[0] == 1:  # nothing would be gained by preparing the others
            return np.exp(-float(self.gamma) * cdist(left, right, "sqeuclidean"))
        return self._between(left, right).matrix()

    def sums(self, points: Points, expansion: Expansion) -> Array:
        """Return an expansion at every row, (n, heads), with no more than a tile in memory.

        A matrix that other models are going to ask for is formed, and summed alike.
        """
        if sp.issparse(points) or points.shape[0] == 1:
            return sums_by_blocks(self, points, expansion)
        if not is_sharing():
            return self._between(points, expansion.points).sums(expansion.coefficients)
        values = self(points, expansion.points)
        scores = np.zeros((points.shape[0], expansion.coefficients.shape[1]))
        for rows in tiles(0, values.shape[0]):
            for columns in tiles(0, values.shape[1]):
                scores[rows] += values[rows, columns] @ expansion.coefficients[columns]
        return scores

    def _between(self, left: Array, right: Array) -> Gaussians:
        if self.centre is None:
            return Gaussians(left, right, float(self.gamma))
        centred = left - self.centre
        others = centred if left is right else right - self.centre
        return Gaussians(centred, others, float(self.gamma))

    def diagonal(self, points: Points) -> Array:
        return np.ones(points.shape[0])


class Gaussians:
    """``exp(-gamma |x - x'|^2)`` between dense rows, tile by tile.

    The exponents ``2 gamma x . x' - gamma |x|^2 - gamma |x'|^2`` of a tile stay in cache from the
    product to the exponential. Rows far from the origin, where the three would cancel, are
    differenced coordinate by coordinate instead.
    """

    def __init__(self, left: Array, right: Array, gamma: float) -> None:
        self.left, self.right, self.gamma, self.same = left, right, gamma, left is right
        left_norms = row_norms_squared(left)
        right_norms = left_norms if self.same else row_norms_squared(right)
        with np.errstate(over="ignore"):
            self.scaled = 2.0 * gamma * left
            self.left_terms, self.right_terms = gamma * left_norms, gamma * right_norms
        self.far_left = np.flatnonzero(~(self.left_terms <= FAR_FROM_CENTRE))
        self.far_right = np.flatnonzero(~(self.right_terms <= FAR_FROM_CENTRE))

    def tile(self, rows: slice, columns: slice, room: Array) -> Array:
        """Return the values of some rows and columns, in ``room``, (2, TILE * TILE), as made."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        tile, zeros = (each[: shape[0] * shape[1]].reshape(shape) for each in room)
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(self.scaled[rows], self.right[columns].T, out=tile)
            tile -= self.left_terms[rows, None]
            tile -= self.right_terms[columns]
            np.minimum(tile, zeros, out=tile)
            np.exp(tile, out=tile)
        for row in within(self.far_left, rows):
            tile[row - rows.start] = self.differenced(slice(row, row + 1), columns)[0]
        for column in within(self.far_right, columns):
            tile[:, column - columns.start] = self.differenced(rows, slice(column, column + 1))[
                :, 0
            ]
        return tile

    def differenced(self, rows: slice, columns: slice) -> Array:
        """Return values by differences of coordinates."""
        return np.exp(-self.gamma * cdist(self.left[rows], self.right[columns], "sqeuclidean"))

    def each(self, work: Callable[[slice, Array], None]) -> None:
        """Do some work for every strip of rows, with room for a tile."""
        n, m = self.left.shape[0], self.right.shape[0]

        def strip(rows: slice) -> None:
            work(rows, np.zeros((2, min(n, TILE) * min(m, TILE))))

        side_by_side(strip, tiles(0, n), n * m * max(1, self.left.shape[1] // NARROW))

    def matrix(self) -> Array:
        """Return all values, (n, m); a symmetric matrix is computed once."""
        values = np.empty((self.left.shape[0], self.right.shape[0]))

        def fill(rows: slice, room: Array) -> None:
            for columns in tiles(rows.start if self.same else 0, self.right.shape[0]):
                tile = self.tile(rows, columns, room)
                if self.same and columns == rows:
                    below = np.tri(tile.shape[0], k=-1, dtype=bool)
                    tile[below] = tile.T[below]
                elif self.same:
                    values[columns, rows] = tile.T
                values[rows, columns] = tile

        self.each(fill)
        if self.same:
            np.fill_diagonal(values, 1.0)
        return values

    def sums(self, coefficients: Array) -> Array:
        """Return the product of the matrix with ``coefficients`` (m, heads); it is not formed."""
        scores = np.zeros((self.left.shape[0], coefficients.shape[1]))

        def add(rows: slice, room: Array) -> None:
            for columns in tiles(0, self.right.shape[0]):
                scores[rows] += self.tile(rows, columns, room) @ coefficients[columns]

        self.each(add)
        return scores


def within(places: NDArray[np.intp], part: slice) -> NDArray[np.intp]:
    """Return those of some sorted places that are in a slice."""
    return places[np.searchsorted(places, part.start) : np.searchsorted(places, part.stop)]


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

"""The interface of a kernel, and kernels on vectors: Gaussian, linear and polynomial.

A kernel is a frozen object. Parameters that depend on data (``gamma="scale"``, idf weights) are
learned once, by `Kernel.freeze` on the first batch. They never change, because a change would
invalidate every multiplier learned before.

Points are rows, dense or CSR arrays (n, p); both arguments of a call have the same format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.utils.extmath import safe_sparse_dot

from seqmed.numeric.arrays import Array, Indices, Points, row_norms_squared, stack
from seqmed.numeric.execution import run_in_threads
from seqmed.numeric.factors import symmetric_product

# Largest |x|^2, in units of 1/gamma, for which the data are not centred.
NEAR_ZERO = 10.0
# Standard deviation of equal entries because of rounding, relative to the largest entry.
CONSTANT = 4 * float(np.finfo(np.float64).eps)
# Number of kernel values held at once while scores are computed: 16 MB, which are reused.
BLOCK_VALUES = 2**21
# Largest |x - centre|^2, in units of 1/gamma, for which distances are computed from inner products,
# with an error of about 1e-15 of this value.
FAR_FROM_CENTRE = 1e4
# Side of a square tile (512 kB). Other tiles have as many values. Wide tiles are faster.
TILE, TILE_COLUMNS = 256, 1024
# Largest number of columns for which the exponentials cost more than the products.
NARROW = 32


class Expansion(NamedTuple):
    """A function ``x -> k(x, points) @ coefficients``, one column per machine."""

    points: Points
    coefficients: Array


class Kernel(ABC):
    """A kernel, with defaults for kernels whose expansions are lists of points."""

    on_vectors = True
    """Whether any real vector is a valid point (needed by the spectral recursion)."""
    compact = False
    """Whether `join` returns an expansion of bounded size, instead of listing all points."""

    @abstractmethod
    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) matrix of kernel values; exactly symmetric if ``left is right``."""

    @abstractmethod
    def diagonal(self, points: Points) -> Array:
        """Return ``k(x, x)`` for every row, (n,)."""

    def freeze(self, points: Points, weights: Array) -> Kernel:
        """Return the kernel with its data-dependent parameters learned from a weighted batch."""
        return self

    def sums(self, points: Points, expansion: Expansion) -> Array:
        """Return the values of an expansion at every row, (n, machines), in bounded memory."""
        sums = np.empty((points.shape[0], expansion.coefficients.shape[1]))
        for rows in blocks(points.shape[0], expansion.points.shape[0]):
            sums[rows] = self(points[rows], expansion.points) @ expansion.coefficients
        return sums

    def coordinates(self, points: Points) -> Points | None:
        """Return the vectors whose distances the graph uses; None for those in feature space."""
        return points

    def join(self, first: Expansion, second: Expansion) -> Expansion:
        """Return the sum of two expansions."""
        if not first.points.shape[0] or not second.points.shape[0]:
            return second if not first.points.shape[0] else first
        return Expansion(
            stack(first.points, second.points),
            np.vstack([first.coefficients, second.coefficients]),
        )


Sums = Callable[[Kernel, Points, Expansion], Array | None]
"""A function like `Kernel.sums` on a device; None if it leaves the values to the CPU."""


def evaluate(
    kernel: Kernel, parts: tuple[Expansion, ...], points: Points, sums: Sums | None = None
) -> Array:
    """Return the sum of expansions at every row, (n, machines), in bounded memory.

    ``sums`` computes the values on a device.
    """
    scores = np.zeros((points.shape[0], parts[0].coefficients.shape[1]))
    for part in parts:
        if part.points.shape[0]:
            found = None if sums is None else sums(kernel, points, part)
            scores += kernel.sums(points, part) if found is None else found
    return scores


def blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Return slices of rows whose products with ``width`` columns stay within `BLOCK_VALUES`."""
    return parts(n_rows, max(1, BLOCK_VALUES // max(width, 1)))


# -- kernels on vectors ----------------------------------------------------------------------------


def resolve_gamma(gamma: float | str, points: Points, weights: Array) -> float:
    """Return ``gamma`` as a number, "scale" and "auto" as in scikit-learn's SVC.

    "scale" is ``1 / (n_features * variance of all entries)`` of weighted rows, 1 for constant data.
    """
    if gamma == "auto":
        return float(1.0 / points.shape[1])
    if gamma != "scale":
        return float(gamma)
    total = float(weights.sum()) * points.shape[1]
    mean = float(weights @ np.asarray(points.sum(axis=1)).ravel()) / total
    if sp.issparse(points):
        deviations = row_norms_squared(points) - points.shape[1] * mean**2
    else:
        deviations = np.square(points - mean).sum(axis=1)
    variance = float(weights @ deviations) / total
    largest = float(np.abs(points.data if sp.issparse(points) else points).max(initial=0.0))
    if variance <= (CONSTANT * largest) ** 2:
        return 1.0
    return float(1.0 / (points.shape[1] * variance))


@dataclass(frozen=True, eq=False)
class RBF(Kernel):
    """RBF kernel ``exp(-gamma |x - x'|^2)``; the paper's width ``w`` is ``gamma = 1 / (2 w^2)``.

    ``centre`` (p,) is the mean of the first dense batch, subtracted because a common offset of all
    rows would make digits cancel; None if no centring is needed.
    """

    gamma: float | str = "scale"
    centre: Array | None = None

    def freeze(self, points: Points, weights: Array) -> Kernel:
        gamma, centre = resolve_gamma(self.gamma, points, weights), None
        with np.errstate(over="ignore"):
            largest = gamma * row_norms_squared(points).max()
        if not sp.issparse(points) and largest > NEAR_ZERO:
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
class Linear(Kernel):
    """Linear kernel ``x x'``; an expansion is kept as one weight vector per machine.

    An expansion of sparse points lists them, as long as they are smaller than the weights of the
    columns that occur.
    """

    compact = True

    def __call__(self, left: Points, right: Points) -> Array:
        return inner_products(left, right)

    def diagonal(self, points: Points) -> Array:
        return row_norms_squared(points)

    def sums(self, points: Points, expansion: Expansion) -> Array:
        """Return the values of an expansion at every row, from the weights of their columns."""
        if not sp.issparse(points):
            return super().sums(points, expansion)
        columns = np.unique(points.indices)
        weights = safe_sparse_dot(
            expansion.points[:, columns].T, expansion.coefficients, dense_output=True
        )
        return np.asarray(points[:, columns] @ weights)

    def join(self, first: Expansion, second: Expansion) -> Expansion:
        if sp.issparse(first.points):
            return on_columns(super().join(first, second))
        weights = linear_weights(first) + linear_weights(second)
        return Expansion(weights, np.eye(weights.shape[0]))


@dataclass(frozen=True, eq=False)
class ByFormat(RBF):
    """`Linear` for sparse rows and `RBF` for dense rows; the first batch decides."""

    def freeze(self, points: Points, weights: Array) -> Kernel:
        return Linear() if sp.issparse(points) else RBF(self.gamma).freeze(points, weights)


def linear_weights(expansion: Expansion) -> Array:
    """Return the (machines, p) weight vectors of an expansion in a linear kernel."""
    weights = safe_sparse_dot(expansion.coefficients.T, expansion.points, dense_output=True)
    return np.asarray(weights)


def on_columns(expansion: Expansion) -> Expansion:
    """Return an expansion of sparse points in a linear kernel, on unit vectors if it is smaller.

    There is one unit vector for every column that occurs.
    """
    points, coefficients = expansion
    columns = np.unique(points.indices)
    if points.nnz + coefficients.size <= columns.size * (1 + coefficients.shape[1]):
        return expansion
    weights = np.asarray(points[:, columns].T @ coefficients)
    units = sp.csr_array(
        (np.ones(columns.size), columns, np.arange(columns.size + 1)),
        shape=(columns.size, points.shape[1]),
    )
    return Expansion(units, weights)


@dataclass(frozen=True, eq=False)
class Polynomial(Kernel):
    """Polynomial kernel ``(gamma x x' + coef0)^degree``."""

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


# -- Gaussian kernel values in tiles that stay in the cache ----------------------------------------


class PreparedRows(NamedTuple):
    """The left or the right factor of the products of rows (n, p)."""

    rows: Array
    factors: Array  # minus the centre, with two more columns if they are narrow
    lengths: Array  # (n,) gamma |x|^2 of these
    far: Indices  # indices of rows far from the centre


class Gaussians:
    """``exp(-gamma |x - x'|^2)`` from dense rows to m points, tile by tile.

    The exponent is ``2 gamma x . x' - gamma |x|^2 - gamma |x'|^2``. For narrow rows it is computed
    as a single product, ``(2 gamma x, -gamma |x|^2, 1) . (x', 1, -gamma |x'|^2)``. Rows far from
    the centre are compared by differences of coordinates. Tiles stay in the cache.
    """

    def __init__(self, points: Array, centre: Array | None, gamma: float) -> None:
        self.points, self.centre, self.gamma = points, centre, gamma
        self.size = points.shape[0]
        self.narrow = points.shape[1] <= NARROW
        self.right = self.side(points, left=False)

    def side(self, rows: Array, left: bool) -> PreparedRows:
        """Return the left or the right factor of the products of these rows."""
        factors = rows if self.centre is None else rows - self.centre
        with np.errstate(over="ignore"):
            lengths = self.gamma * row_norms_squared(factors)
        far = np.flatnonzero(~(lengths <= FAR_FROM_CENTRE))
        if self.narrow:
            centred, factors = factors, np.empty((rows.shape[0], rows.shape[1] + 2))
            with np.errstate(over="ignore"):
                np.multiply(centred, 2.0 * self.gamma if left else 1.0, out=factors[:, :-2])
            factors[:, -2] = -lengths if left else 1.0
            factors[:, -1] = 1.0 if left else -lengths
        return PreparedRows(rows, factors, lengths, far)

    def tile(self, strip: PreparedRows, columns: slice, out: Array) -> Array:
        """Write the values between a strip and a slice of the points to ``out``, (k, l)."""
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(strip.factors, self.right.factors[columns].T, out=out)
            if not self.narrow:
                out *= 2.0 * self.gamma
                out -= strip.lengths[:, None]
                out -= self.right.lengths[columns]
            if not out.max(initial=0.0) <= 0:  # positive by rounding, or NaN that is replaced below
                np.minimum(out, 0.0, out=out)
            np.exp(out, out=out)
        for row in strip.far:
            out[row] = differenced(strip.rows[row : row + 1], self.points[columns], self.gamma)[0]
        for column in within(self.right.far, columns):
            one = differenced(strip.rows, self.points[column : column + 1], self.gamma)
            out[:, column - columns.start] = one[:, 0]
        return out

    def in_strips(
        self, work: Callable[[slice, PreparedRows, Array], None], left: Array, size: int, width: int
    ) -> None:
        """Call ``work`` with every strip of ``left`` and a buffer for tiles of ``width``."""
        n, cost = left.shape[0], self.size * max(1, self.points.shape[1] // NARROW)

        def run(rows: slice) -> None:
            strip = self.side(left[rows], left=True)
            work(rows, strip, np.empty(size * min(self.size, width)))

        run_in_threads(run, parts(n, size), n * cost)

    def matrix(self, left: Array) -> Array:
        """Return all values, (n, m)."""
        values = np.empty((left.shape[0], self.size))

        def fill(rows: slice, strip: PreparedRows, buffer: Array) -> None:
            for columns in parts(self.size, TILE_COLUMNS):
                self.tile(strip, columns, values[rows, columns])

        self.in_strips(fill, left, self.strip_size(left), 0)
        return values

    def symmetric(self, points: Array) -> Array:
        """Return all values among the points, (m, m), each computed once."""
        n, side, width = self.size, TILE, TILE
        if points.shape[1] > NARROW:
            side, width = even(n, TILE // 2), TILE_COLUMNS
        values = np.empty((n, n))

        def fill(rows: slice, strip: PreparedRows, buffer: Array) -> None:
            for columns in parts(n, width, rows.start):
                tile = self.tile(strip, columns, tile_of(buffer, rows, columns))
                if columns.start == rows.start:
                    own = tile[:, : tile.shape[0]]
                    below = np.tri(own.shape[0], k=-1, dtype=bool)
                    own[below] = own.T[below]
                values[rows, columns] = tile
                values[columns, rows] = tile.T

        self.in_strips(fill, points, side, width)
        np.fill_diagonal(values, 1.0)
        return values

    def sums(self, left: Array, coefficients: Array) -> Array:
        """Return the matrix times ``coefficients`` (m, machines), without forming the matrix."""
        scores = np.zeros((left.shape[0], coefficients.shape[1]))

        def add(rows: slice, strip: PreparedRows, buffer: Array) -> None:
            for columns in parts(self.size, TILE_COLUMNS):
                tile = self.tile(strip, columns, tile_of(buffer, rows, columns))
                scores[rows] += tile @ coefficients[columns]

        self.in_strips(add, left, self.strip_size(left), TILE_COLUMNS)
        return scores

    def strip_size(self, left: Array) -> int:
        """Return the number of rows of a strip, for tiles of about `TILE` x `TILE` values."""
        rows = TILE * TILE // max(min(self.size, TILE_COLUMNS), TILE // 4)
        return even(left.shape[0], rows if self.narrow else max(rows, TILE // 2))


def differenced(rows: Array, points: Array, gamma: float) -> Array:
    """Return ``exp(-gamma |x - x'|^2)``, (n, m), from differences of coordinates."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-gamma * cdist(rows, points, "sqeuclidean")))


def tile_of(buffer: Array, rows: slice, columns: slice) -> Array:
    """Return a contiguous part of a buffer with the shape of a tile, (k, l)."""
    shape = rows.stop - rows.start, columns.stop - columns.start
    return buffer[: shape[0] * shape[1]].reshape(shape)


def even(n: int, size: int) -> int:
    """Return a strip size close to ``size`` that divides n rows evenly between two threads."""
    count = 2 * round(n / (2 * size)) or 1
    return max(1, -(-n // count))


def within(places: Indices, part: slice) -> Indices:
    """Return the part of sorted indices that is within a slice."""
    return places[np.searchsorted(places, part.start) : np.searchsorted(places, part.stop)]


def parts(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    """Yield slices that divide a range into parts of ``size``."""
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))

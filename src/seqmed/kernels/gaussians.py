"""Gaussian kernel values of dense rows, computed in tiles that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from seqmed.numeric.arrays import Array, Indices, row_norms_squared
from seqmed.numeric.threads import run_in_threads

# Largest |x - centre|^2, in units of 1/gamma, for which distances are computed from inner products.
# The error of such a distance is about 1e-15 of this value. For larger values, distances are
# computed from differences.
FAR_FROM_CENTRE = 1e4
# Side of a square tile (512 kB). Other tiles have as many values. Wide tiles are faster.
TILE, TILE_COLUMNS = 256, 1024
# Largest number of columns for which the exponentials cost more than the products.
NARROW = 32


class PreparedRows(NamedTuple):
    """Rows (n, p) prepared as the left or right factor of a product.

    ``factors`` (n, p) are the rows minus the centre, and ``lengths`` (n,) are their gamma |x|^2.
    For narrow rows, ``factors`` are (n, p + 2) and include the lengths. ``far`` are the indices of
    rows far from the centre.
    """

    rows: Array
    factors: Array
    lengths: Array
    far: Indices

    def part(self, rows: slice) -> PreparedRows:
        """Return the selected rows."""
        far = within(self.far, rows) - rows.start
        return PreparedRows(self.rows[rows], self.factors[rows], self.lengths[rows], far)


def lengths_of(factors: Array, gamma: float) -> Array:
    """Return ``gamma |x|^2`` of every row, (n,)."""
    with np.errstate(over="ignore"):
        return gamma * row_norms_squared(factors)


def with_lengths(rows: Array, lengths: Array, scale: float, left: bool) -> Array:
    """Return scaled rows and their lengths as factors of one product, (n, p + 2)."""
    n, p = rows.shape
    factors = np.empty((n, p + 2))
    with np.errstate(over="ignore"):
        np.multiply(rows, scale, out=factors[:, :-2])
    factors[:, -2] = -lengths if left else 1.0
    factors[:, -1] = 1.0 if left else -lengths
    return factors


class Gaussians:
    """``exp(-gamma |x - x'|^2)`` from dense rows to m points, tile by tile.

    The exponent is ``2 gamma x . x' - gamma |x|^2 - gamma |x'|^2``. For narrow rows it is computed
    as a single product, ``(2 gamma x, -gamma |x|^2, 1) . (x', 1, -gamma |x'|^2)``. Each tile stays
    in the cache from the product to the exponential. For rows far from the centre the three terms
    would cancel, so the exponent is computed from differences of coordinates.
    """

    def __init__(self, points: Array, centre: Array | None, gamma: float) -> None:
        self.points, self.centre, self.gamma = points, centre, gamma
        self.size = points.shape[0]
        self.narrow = points.shape[1] <= NARROW
        self.right = self.side(points, left=False)

    def side(self, rows: Array, left: bool) -> PreparedRows:
        """Return rows prepared as the left or right factor of a product."""
        factors = rows if self.centre is None else rows - self.centre
        lengths = lengths_of(factors, self.gamma)
        far = np.flatnonzero(~(lengths <= FAR_FROM_CENTRE))
        if self.narrow:
            factors = with_lengths(factors, lengths, 2.0 * self.gamma if left else 1.0, left)
        return PreparedRows(rows, factors, lengths, far)

    def strips_of(self, left: Array) -> Callable[[slice], PreparedRows]:
        """Return a function that maps a slice to the prepared rows of ``left``.

        If there are few rows, all are prepared at once.
        """
        if left.size <= TILE * TILE:
            return self.side(left, left=True).part
        return lambda rows: self.side(left[rows], left=True)

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

    def each(self, work: Callable[[slice], None], n: int, size: int) -> None:
        """Call ``work`` for every strip of ``size`` of the n rows, in several threads."""
        run_in_threads(work, parts(n, size), n * self.size * max(1, self.points.shape[1] // NARROW))

    def matrix(self, left: Array) -> Array:
        """Return all values, (n, m)."""
        n, size = left.shape[0], even(left.shape[0], strip_rows(*self.points.shape))
        values, strips = np.empty((n, self.size)), self.strips_of(left)

        def fill(rows: slice) -> None:
            strip = strips(rows)
            for columns in parts(self.size, TILE_COLUMNS):
                self.tile(strip, columns, values[rows, columns])

        self.each(fill, n, size)
        return values

    def symmetric(self, points: Array) -> Array:
        """Return all values among the points, (m, m), each computed once."""
        n, side, width = self.size, TILE, TILE
        if points.shape[1] > NARROW:
            side, width = even(n, TILE // 2), TILE_COLUMNS
        values, strips = np.empty((n, n)), self.strips_of(points)

        def fill(rows: slice) -> None:
            strip, buffer = strips(rows), np.empty(side * min(n, width))
            for columns in parts(n, width, rows.start):
                tile = self.tile(strip, columns, tile_of(buffer, rows, columns))
                if columns.start == rows.start:
                    own = tile[:, : tile.shape[0]]
                    below = np.tri(own.shape[0], k=-1, dtype=bool)
                    own[below] = own.T[below]
                values[rows, columns] = tile
                values[columns, rows] = tile.T

        self.each(fill, n, side)
        np.fill_diagonal(values, 1.0)
        return values

    def sums(self, left: Array, coefficients: Array) -> Array:
        """Return the matrix times ``coefficients`` (m, machines), without forming the matrix."""
        n, size = left.shape[0], even(left.shape[0], strip_rows(*self.points.shape))
        scores, strips = np.zeros((n, coefficients.shape[1])), self.strips_of(left)

        def add(rows: slice) -> None:
            strip, buffer = strips(rows), np.empty(size * min(self.size, TILE_COLUMNS))
            for columns in parts(self.size, TILE_COLUMNS):
                tile = self.tile(strip, columns, tile_of(buffer, rows, columns))
                scores[rows] += tile @ coefficients[columns]

        self.each(add, n, size)
        return scores


def differenced(rows: Array, points: Array, gamma: float) -> Array:
    """Return ``exp(-gamma |x - x'|^2)``, (n, m), from differences of coordinates."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-gamma * cdist(rows, points, "sqeuclidean")))


def tile_of(buffer: Array, rows: slice, columns: slice) -> Array:
    """Return a contiguous part of a buffer with the shape of a tile, (k, l)."""
    shape = rows.stop - rows.start, columns.stop - columns.start
    return buffer[: shape[0] * shape[1]].reshape(shape)


def strip_rows(n_points: int, n_features: int) -> int:
    """Return the number of rows of a strip, for tiles of about `TILE` x `TILE` values."""
    rows = TILE * TILE // max(min(n_points, TILE_COLUMNS), TILE // 4)
    return rows if n_features <= NARROW else max(rows, TILE // 2)


def even(n: int, size: int) -> int:
    """Return a strip size close to ``size`` that divides n rows into an even number of strips.

    Two threads then have equal work. If there are few rows, there is a single strip.
    """
    count = 2 * round(n / (2 * size)) or 1
    return max(1, -(-n // count))


def within(places: Indices, part: slice) -> Indices:
    """Return the part of sorted indices that is within a slice."""
    return places[np.searchsorted(places, part.start) : np.searchsorted(places, part.stop)]


def parts(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    """Yield slices that divide a range into parts of ``size``."""
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))

"""Distances between rows: Euclidean, cosine, or in the feature space of a kernel.

A metric decides how rows are stored, in single precision, and returns the inner products of queries
and stored rows. Inner products and squared norms together give squared distances, or lower bounds
of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from seqmed.kernels import Kernel, Linear
from seqmed.numeric.arrays import Array, Points, Single, check_overflow, row_norms_squared
from seqmed.numeric.expectations import expect, expect_shape

# Stored coordinates are at most this large in units of the first batch, so that squares are finite.
LARGEST_COORDINATE = 1e15
# The scale is at most this multiple of the median row of the first batch. With a larger scale, an
# outlier would make the squares of all other rows underflow.
LARGEST_OUTLIER = 1e6
# The number of columns of a sketch is the smallest multiple of `COLUMNS` that contains the fraction
# `CAPTURED` of the sum of squares. It has at most `WIDEST` columns and at most a third of the
# columns of a row. Its directions are computed once, from `MEASURED` rows. With fewer rows,
# searches are cheap.
COLUMNS, CAPTURED, WIDEST, MEASURED = 16, 0.9, 256, 1000
# Number of values that are converted at once (256 kB). An array of all rows would not stay in the
# cache, and its memory would be allocated again for every search.
CACHED = 2**15


class Stored(NamedTuple):
    """Rows as a metric stores them.

    Attributes
    ----------
    rows : (n, p), in single precision.
    norms : (n,) squared norms.
    sketch : (n, q) rows with fewer columns, the same norms, and distances that are not larger; (n,
        0) if there is no sketch.
    """

    rows: Points
    norms: Single
    sketch: Single

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the same rows in single precision."""
        expect_shape(self, (self.rows.shape[0],), "norms")
        expect_shape(self, (self.norms.size, self.sketch.shape[-1]), "sketch")
        expect(self.rows.dtype == np.float32, "rows in single precision")

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.norms.size

    def take(self, rows: NDArray[Any] | slice) -> Stored:
        """Return the selected rows."""
        return Stored(self.rows[rows], self.norms[rows], self.sketch[rows])

    @property
    def compared(self) -> Points:
        """The rows from which inner products are computed: the sketch if there is one."""
        return self.sketch if self.sketch.shape[1] else self.rows


def without_sketch(rows: Points, norms: Single) -> Stored:
    """Return stored rows without a sketch."""
    return Stored(rows, norms, np.zeros((norms.size, 0), dtype=np.float32))


class Metric(ABC):
    """How rows are stored and compared.

    Attributes
    ----------
    limit : two rows with at least this squared distance are never neighbours.
    refines : whether inner products give only lower bounds, so that squared distances must be
        computed from the stored rows.
    unit_norms : whether all squared norms are 1. The distances of dense rows are then computed from
        the stored rows too, because inner products are rounded differently among other rows.
    name : the metric as a parameter of an estimator, see `make_metric`.
    kernel : the kernel whose values on stored rows are the inner products.
    """

    limit: ClassVar[float] = np.inf
    refines: ClassVar[bool] = False
    unit_norms: ClassVar[bool] = False
    name: Any
    kernel: Kernel

    @abstractmethod
    def store(self, points: Points) -> Stored:
        """Return rows in the stored form."""

    @abstractmethod
    def products(self, queries: Stored, block: Stored, out: Single) -> None:
        """Write inner products to ``out``, (m, b)."""

    def remeasured(self, blocks: tuple[Stored, ...], size: int) -> Metric | None:
        """Return the metric with better sketches for ``size`` rows; None if it needs no change."""
        return None

    def restored(self, block: Stored) -> Stored:
        """Return stored rows with the sketches of this metric."""
        return block


@dataclass(frozen=True)
class Euclidean(Metric):
    """Euclidean distances of dense rows, shifted and scaled by the first batch.

    Distances between sketches are lower bounds. A sketch has the coordinates along some principal
    directions and the norm of the remainder.

    Parameters
    ----------
    centre : (p,) median of the first batch.
    scale : largest difference between a coordinate and the centre in the first batch, with outliers
        clipped.
    directions : (p, q) orthonormal columns, or (p, 0) without a sketch.
    n_measured : number of kept rows when the directions were computed; 0 before.
    """

    centre: Array
    scale: float
    directions: Array
    n_measured: int

    refines = True
    name = "euclidean"
    kernel = Linear()

    def validate(self) -> None:
        """Raise a ValueError if rows cannot be centred, scaled and sketched."""
        expect_shape(self, (*self.centre.shape, self.directions.shape[-1]), "directions")
        expect(0 < self.scale < np.inf, "scale > 0")

    def store(self, points: Points) -> Stored:
        """Return centred rows of single precision; extreme coordinates are clipped."""
        rows = np.empty(points.shape, dtype=np.float32)
        for part in cached_slices(rows):
            with np.errstate(over="ignore"):
                rows[part] = clipped((points[part] - self.centre) / self.scale)
        return self.stored(rows)

    def stored(self, rows: Single) -> Stored:
        """Return centred and scaled rows with their norms and sketches."""
        if not self.directions.shape[1]:
            return without_sketch(rows, np.einsum("ij,ij->i", rows, rows))
        norms = np.empty(rows.shape[0], dtype=np.float32)
        sketch = np.empty((rows.shape[0], self.directions.shape[1] + 1), dtype=np.float32)
        for part in cached_slices(rows):
            doubles = rows[part].astype(np.float64)
            squares = np.einsum("ij,ij->i", doubles, doubles)
            along = doubles @ self.directions
            rest = squares - np.einsum("ij,ij->i", along, along)
            norms[part], sketch[part, :-1] = squares, along
            sketch[part, -1] = np.sqrt(np.maximum(rest, 0.0))
        return Stored(rows, norms, sketch)

    def products(self, queries: Stored, block: Stored, out: Single) -> None:
        """Write inner products of the sketches to ``out``, (m, b)."""
        # stored rows are finite, but BLAS may raise the flag for unused lanes of a vector register
        with np.errstate(invalid="ignore"):
            np.matmul(queries.compared, block.compared.T, out=out)

    def remeasured(self, blocks: tuple[Stored, ...], size: int) -> Euclidean | None:
        """Return the metric with principal directions of the rows, once there are enough."""
        most = min(self.centre.size // 3, WIDEST) // COLUMNS * COLUMNS
        if self.n_measured or size < MEASURED or not most:
            return None
        rows = np.concatenate([block.rows for block in blocks])[:MEASURED]
        rows /= max(np.abs(rows).max(), np.finfo(np.float32).tiny)  # no product overflows
        _, values, vectors = randomized_svd(rows, most, n_iter=1, random_state=0)
        total = max((rows**2).sum(), np.finfo(np.float32).tiny)
        shares = np.cumsum(values**2) / total
        enough = np.flatnonzero(shares[COLUMNS - 2 : most - 1 : COLUMNS] >= CAPTURED)
        columns = COLUMNS * (int(enough[0]) + 1) - 1 if enough.size else 0
        directions = np.linalg.qr(vectors[:columns].T.astype(np.float64))[0]
        return replace(self, directions=directions, n_measured=size)

    def restored(self, block: Stored) -> Stored:
        """Return stored rows with the sketches of this metric."""
        return self.stored(block.rows)

    def points(self, stored: Stored) -> Array:
        """Return stored rows in the coordinates of the rows of the stream, in double precision."""
        return np.asarray(stored.rows.astype(np.float64) * self.scale + self.centre)

    def rescaled(self, factors: Array) -> Euclidean:
        """Return the metric of rows whose columns are multiplied by ``factors`` (p,)."""
        return Euclidean(factors * self.centre, self.scale, np.zeros((factors.size, 0)), 0)


def clipped(rows: Array) -> Single:
    """Return rows of single precision whose squared distances are finite."""
    return np.clip(rows, -LARGEST_COORDINATE, LARGEST_COORDINATE).astype(np.float32)


def cached_slices(rows: Single) -> list[slice]:
    """Return slices of rows, short enough that copies in double precision stay in the cache."""
    size = max(1, CACHED // max(1, rows.shape[1]))
    return [slice(start, start + size) for start in range(0, rows.shape[0], size)]


@dataclass(frozen=True)
class Cosine(Metric):
    """Distances ``2 - 2 cos`` between rows of counts or weights, dense or sparse.

    Rows without a common feature are never neighbours, nor are rows of zeros.
    """

    limit = 2.0
    unit_norms = True
    name = "cosine"
    kernel = Linear()

    def store(self, points: Points) -> Stored:
        """Return rows of unit length."""
        if sp.issparse(points):
            points = sp.csr_array(points)
            sizes = abs(points).max(axis=1).toarray().ravel()
            norms = row_norms_squared(sp.diags_array(reciprocals(sizes)) @ points)
            factors = reciprocals(sizes) * reciprocals(np.sqrt(norms))
            rows = sp.csr_array(sp.diags_array(factors) @ points, dtype=np.float32)
            rows.sort_indices()
        else:
            sizes = np.abs(points).max(axis=1, initial=0.0)
            scaled = points * reciprocals(sizes)[:, None]
            rows = scaled * reciprocals(np.sqrt(row_norms_squared(scaled)))[:, None]
            rows = np.ascontiguousarray(rows, dtype=np.float32)
        return without_sketch(rows, np.ones(rows.shape[0], dtype=np.float32))

    def products(self, queries: Stored, block: Stored, out: Single) -> None:
        """Write cosines to ``out``, (m, b)."""
        cosines = queries.rows @ block.rows.T
        out[:] = cosines.toarray() if sp.issparse(cosines) else cosines


@dataclass(frozen=True)
class KernelDistance(Metric):
    """Distances ``k(x, x) + k(x', x') - 2 k(x, x')`` in the feature space of a kernel."""

    kernel: Kernel

    @property
    def name(self) -> Kernel:
        """The kernel."""
        return self.kernel

    def store(self, points: Points) -> Stored:
        """Return the rows themselves, in single precision."""
        largest = abs(points).max(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            check_overflow(
                (largest.toarray() if sp.issparse(largest) else largest).astype(np.float32)
            )
            rows = points.astype(np.float32)
            norms = self.kernel.diagonal(rows.astype(np.float64)).astype(np.float32)
        check_overflow(norms)
        return without_sketch(rows, norms)

    def products(self, queries: Stored, block: Stored, out: Single) -> None:
        """Write kernel values to ``out``, (m, b)."""
        out[:] = self.kernel(queries.rows.astype(np.float64), block.rows.astype(np.float64))


def reciprocals(values: Array) -> Array:
    """Return ``1 / value`` for every value (n,); 0 if a value is 0 or too small to be inverted."""
    usable = values > np.finfo(np.float64).tiny
    return np.divide(1.0, values, out=np.zeros_like(values), where=usable)


def make_metric(name: Any, points: Points, kernel: Kernel | None = None) -> Metric:
    """Return the metric of a stream that begins with these rows.

    Parameters
    ----------
    name : "auto", "euclidean", "cosine", or a kernel frozen on these rows. "auto" is
        the distance of ``kernel`` if one is given, else "cosine" for sparse rows and "euclidean"
        for dense rows.
    points : (n, p) the first batch.
    kernel : kernel whose distances "auto" uses, or None.
    """
    if name == "auto":
        name = kernel or ("cosine" if sp.issparse(points) else "euclidean")
    if name == "cosine":
        return Cosine()
    if name == "euclidean":
        return KernelDistance(Linear()) if sp.issparse(points) else measure_euclidean(points)
    return KernelDistance(name)


def measure_euclidean(points: Array) -> Euclidean:
    """Return the Euclidean metric for a stream that begins with these dense rows."""
    centre = np.median(points, axis=0)  # not the mean: an outlier would make all rows lose digits
    sizes = np.abs(points - centre).max(axis=1, initial=0.0)
    scale, typical = float(sizes.max()), float(np.median(sizes))
    if typical > 0:
        scale = min(scale, LARGEST_OUTLIER * typical)
    # if all rows are equal, the scale is the size of their values
    scale = scale or float(np.abs(centre).max())
    return Euclidean(centre, scale or 1.0, np.zeros((centre.size, 0)), 0)

"""Distances between rows: Euclidean, cosine, or those of a kernel.

A metric decides how rows are stored, in single precision, and returns the inner products of queries
and stored rows. With squared norms they give squared distances, or lower bounds of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from seqmed.arrays import Array, Points, row_norms_squared
from seqmed.graph.neighbours import Single
from seqmed.kernels import Kernel, Linear
from seqmed.kernels.bounded import check_overflow

# Stored coordinates are at most this large in units of the first batch, so that squares are finite.
LARGEST_COORDINATE = 1e15
# An outlier of the first batch is in the scale up to this many times the median row, so that the
# squares of all others do not underflow.
LARGEST_OUTLIER = 1e6
# A sketch has a multiple of `COLUMNS` columns, as many as hold the share `CAPTURED` of the sum of
# squares, and at most `WIDEST` or a third of the columns of a row. Its directions are measured
# once, on `MEASURED` rows: before that searches are cheap.
COLUMNS, CAPTURED, WIDEST, MEASURED = 16, 0.9, 256, 1000
# Values that are converted at once, 256 kB: arrays of all rows would not stay in the cache, and
# their memory would be asked for anew with every search.
CACHED = 2**15
# Unit roundoff of single precision.
ROUNDOFF = 2.0**-24


class Stored(NamedTuple):
    """Rows as a metric stores them.

    Attributes
    ----------
    rows : (n, p), in single precision.
    norms : (n,) squared norms.
    sketch : (n, q) rows of fewer columns, of the same norms and at distances that are no larger;
        of no columns if there is no sketch.
    """

    rows: Points
    norms: Single
    sketch: Single

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.norms.size

    def take(self, rows: NDArray[Any] | slice) -> Stored:
        """Return some of the rows."""
        return Stored(self.rows[rows], self.norms[rows], self.sketch[rows])

    @property
    def sketched(self) -> bool:
        """Whether there is a sketch."""
        return bool(self.sketch.shape[1])

    @property
    def compared(self) -> Points:
        """The rows that inner products are computed from: the sketch if there is one."""
        return self.sketch if self.sketched else self.rows


def without_sketch(rows: Points, norms: Single) -> Stored:
    """Return stored rows without a sketch."""
    return Stored(rows, norms, np.zeros((norms.size, 0), dtype=np.float32))


class Metric(Protocol):
    """How rows are stored and compared.

    Attributes
    ----------
    limit : squared distance from which on two rows are no neighbours.
    refines : whether inner products give lower bounds only, and squared distances are to be
        computed from the stored rows.
    """

    limit: float
    refines: bool

    def store(self, points: Points) -> Stored:
        """Return rows in the form that is kept."""

    def products(self, queries: Stored, block: Stored, out: Single) -> None:
        """Write inner products to ``out``, (m, b)."""

    def slack(self, n_columns: int) -> float:
        """Return the rounding error of a squared distance, as a share of the squared norms."""

    def remeasured(self, blocks: tuple[Stored, ...], size: int) -> Metric | None:
        """Return the metric with better sketches for ``size`` rows; None if it serves as it is."""

    def restored(self, block: Stored) -> Stored:
        """Return stored rows with the sketches of this metric."""


@dataclass(frozen=True)
class Euclidean:
    """Euclidean distances of dense rows, shifted and scaled by the first batch.

    Distances are bounded from below by those of a sketch: the coordinates along some principal
    directions, and the norm of the rest.

    Parameters
    ----------
    centre : (p,) median of the first batch.
    scale : largest distance of a coordinate from the centre in the first batch, outliers bounded.
    directions : (p, q) orthonormal columns, or (p, 0) if rows are their own sketch.
    n_measured : rows kept when the directions were measured; 0 before that.
    """

    centre: Array
    scale: float
    directions: Array
    n_measured: int

    limit = np.inf
    refines = True

    def store(self, points: Points) -> Stored:
        """Return centred rows of single precision; extreme coordinates are clipped."""
        rows = np.empty(points.shape, dtype=np.float32)
        for part in parts(rows):
            with np.errstate(over="ignore"):
                scaled = (points[part] - self.centre) / self.scale
            rows[part] = np.clip(scaled, -LARGEST_COORDINATE, LARGEST_COORDINATE)
        return self.stored(rows)

    def stored(self, rows: Single) -> Stored:
        """Return centred and scaled rows with their norms and sketches."""
        if not self.directions.shape[1]:
            return without_sketch(rows, np.einsum("ij,ij->i", rows, rows))
        norms = np.empty(rows.shape[0], dtype=np.float32)
        sketch = np.empty((rows.shape[0], self.directions.shape[1] + 1), dtype=np.float32)
        for part in parts(rows):
            doubles = rows[part].astype(np.float64)
            squares = np.einsum("ij,ij->i", doubles, doubles)
            along = doubles @ self.directions
            rest = squares - np.einsum("ij,ij->i", along, along)
            norms[part], sketch[part, :-1] = squares, along
            sketch[part, -1] = np.sqrt(np.maximum(rest, 0.0))
        return Stored(rows, norms, sketch)

    def products(self, queries: Stored, block: Stored, out: Single) -> None:
        """Write inner products of the sketches to ``out``, (m, b)."""
        np.matmul(queries.compared, block.compared.T, out=out)

    def slack(self, n_columns: int) -> float:
        """Return a bound of rounding errors of sketches, inner products and distances."""
        return (8 * n_columns + 32) * ROUNDOFF

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


def parts(rows: Single) -> list[slice]:
    """Return slices of rows, of which copies in double precision stay in the cache."""
    size = max(1, CACHED // max(1, rows.shape[1]))
    return [slice(start, start + size) for start in range(0, rows.shape[0], size)]


class Unsketched:
    """A metric whose rows are their own sketches, and whose products are taken as exact."""

    refines = False

    def slack(self, n_columns: int) -> float:
        """Return 0."""
        return 0.0

    def remeasured(self, blocks: tuple[Stored, ...], size: int) -> None:
        """Return None: there is no sketch to measure."""

    def restored(self, block: Stored) -> Stored:
        """Return the rows as they are."""
        return block


@dataclass(frozen=True)
class Cosine(Unsketched):
    """Distances ``2 - 2 cos`` between rows of counts or weights, dense or sparse.

    Rows without a common feature are no neighbours, nor are rows of zeros.
    """

    limit = 2.0

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
class KernelDistance(Unsketched):
    """Distances ``k(x, x) + k(x', x') - 2 k(x, x')`` in the feature space of a kernel."""

    kernel: Kernel

    limit = np.inf

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
    """Return ``1 / value`` for every value (n,), 0 for 0 and values too small to be inverted."""
    usable = values > np.finfo(np.float64).tiny
    return np.divide(1.0, values, out=np.zeros_like(values), where=usable)


def make_metric(name: Any, points: Points, kernel: Kernel | None = None) -> Metric:
    """Return the metric of a stream that begins with these rows.

    Parameters
    ----------
    name : "auto", "euclidean", "cosine", or a kernel that has seen the rows. "auto" is
        the distance of ``kernel`` if one is given, else "cosine" for sparse rows and "euclidean"
        for dense ones.
    points : (n, p) the first batch.
    kernel : whose distances "auto" means, None for none.
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
    centre = np.median(points, axis=0)  # not the mean: one outlier would cost all rows their digits
    sizes = np.abs(points - centre).max(axis=1, initial=0.0)
    scale, typical = float(sizes.max()), float(np.median(sizes))
    if typical > 0:
        scale = min(scale, LARGEST_OUTLIER * typical)
    # equal rows have no distances to measure: the size of their values is all that is known
    scale = scale or float(np.abs(centre).max())
    return Euclidean(centre, scale or 1.0, np.zeros((centre.size, 0)), 0)

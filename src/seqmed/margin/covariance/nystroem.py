"""Nystroem features: the learned function is in the span of m landmarks.

With features ``phi(x) = W' k(Z, x)`` of landmarks Z, ``W' K_ZZ W = I``, the covariance of the
learned function is ``phi(x) . phi(x')``. The function is projected on the span of all ``k(., z)``.
Every mean is then an expansion on the landmarks, and freezing a multiplier is exact.

Landmarks are labeled points; with up to m of them nothing is approximated. Later, landmarks are
replaced only if they approximate new labeled points worse than they approximate each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seqmed.kernels import Kernel
from seqmed.margin.covariance.exact import (
    CovarianceFunction,
    FoldResult,
    Recursion,
    WindowCovariance,
)
from seqmed.margin.covariance.landmarks import whiten_gram
from seqmed.margin.dual.problem import fits_single_precision
from seqmed.margin.laplacian import Smoothness
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Mask,
    Points,
    distinct_rows,
    found_among,
    no_indices,
    row_norms_squared,
    stack,
    take_rows,
)
from seqmed.numeric.expectations import expect
from seqmed.numeric.factors import is_upper, squared_upper_times, symmetric_product, times_upper


class NystroemGram(WindowCovariance):
    """Covariances of n points from Nystroem features; each entry is computed once.

    ``values`` (n, m) are kernel values at the landmarks, ``whitening`` (m, m) is W. Blocks may be
    in single precision; products, which decide on convergence, are in double precision.
    """

    def __init__(self, values: Array, whitening: Array, single: bool) -> None:
        self.values, self.whitening, self.triangular = values, whitening, is_upper(whitening)
        self.factor: NDArray[np.floating] = whitening.astype(np.float32) if single else whitening
        self.precision = self.factor.dtype
        self.order = no_indices()  # the points with features, in order of computation
        self.features: list[NDArray[np.floating]] = []  # their features, in blocks
        self.held: list[Array] = []  # their kernel values, in blocks
        self.known = np.zeros((0, 0), dtype=self.precision)

    def block(self, rows: Mask) -> tuple[Indices, NDArray[np.floating]]:
        """Return indices (k,) of the selected points, in any order, and covariances (k, k)."""
        new = rows.copy()
        new[self.order] = False
        if new.any():
            self._add(np.flatnonzero(new))
        wanted = rows[self.order]
        if wanted.all():
            return self.order, self.known
        # faster than np.ix_; the transpose of the symmetric matrix is stored by rows
        return self.order[wanted], self.known[wanted][:, wanted].T

    def _add(self, new: Indices) -> None:
        """Add points: compute their covariances with each other and with earlier points."""
        size = self.order.size
        values = self.values[new]
        features = times_upper(values.astype(self.precision), self.factor, self.triangular)
        known = symmetric_product(features)
        if size:
            own, known = known, np.empty((size + new.size,) * 2, dtype=self.precision)
            known[:size, :size], known[size:, size:] = self.known, own
            across = [features @ others.T for others in self.features]
            np.concatenate(across, axis=1, out=known[size:, :size])
            known[:size, size:] = known[size:, :size].T
        self.order, self.known = np.append(self.order, new), known
        self.features.append(features)
        self.held.append(values)

    def gram(self) -> NystroemGram:
        """Return itself."""
        return self

    def landmark_part(self, coefficients: Array) -> Array:
        return np.stack([self.projected(each) for each in coefficients.T], axis=1)

    def projected(self, coefficients: Array) -> Array:
        """Return the projection (m,) of an expansion with coefficients (n,)."""
        if not coefficients.any():
            return np.zeros(self.values.shape[1])
        return squared_upper_times(self.whitening, self.summed(coefficients), self.triangular)

    def summed(self, coefficients: Array) -> Array:
        """Return ``values.T @ coefficients``, (m,); rows are skipped if most coefficients are 0."""
        weights = coefficients[self.order]
        if np.count_nonzero(weights) < np.count_nonzero(coefficients):
            return self.values.T @ coefficients
        ends = np.cumsum([each.shape[0] for each in self.held])
        parts = np.split(weights, ends[:-1])
        products = [part @ each for part, each in zip(parts, self.held, strict=True)]
        return np.asarray(np.sum(products, axis=0))

    def __matmul__(self, coefficients: Array) -> Array:
        if not coefficients.any():
            return np.zeros_like(coefficients)
        return self.values @ self.projected(coefficients)

    def __getitem__(self, rows: Indices) -> Array:
        features = times_upper(self.values[rows], self.whitening, self.triangular)
        return np.asarray((self.values @ (self.whitening @ features.T)).T)


# Number of points of a batch on which the approximation by the landmarks is tested.
PROBES = 50
# Landmarks are replaced if the error of new points exceeds that of landmarks by this many standard
# errors.
REPLACEMENT_THRESHOLD = 4.0
# Largest fraction of the landmarks that one batch may replace.
LARGEST_SHARE = 0.5
# Largest entry of W, in units of the kernel, for which features are computed in single precision.
LARGEST_AMPLIFICATION = 100.0


@dataclass(frozen=True)
class NystroemCovariance(CovarianceFunction):
    """The base kernel, projected for learning on the span of landmarks Z (m, p).

    The part of the function outside the span keeps its prior variance. The columns of W (m, m) are
    zero for redundant landmarks.
    """

    landmarks: Points
    whitening: Array

    on_landmarks = True

    def in_single(self, points: Points) -> bool:
        """Whether single precision is enough for features of the points."""
        variances = (self.kernel.diagonal(points), self.kernel.diagonal(self.landmarks))
        largest = max(float(each.max(initial=0.0)) for each in variances)
        # the factor by which W may amplify rounding errors
        amplification = float(np.abs(self.whitening).max(initial=0.0)) * np.sqrt(largest)
        return fits_single_precision(largest) and bool(amplification <= LARGEST_AMPLIFICATION)

    def on_window(self, points: Points, landmarks: Points) -> NystroemGram:
        values = self.kernel(points, self.landmarks)
        return NystroemGram(values, self.whitening, self.in_single(points))

    def features(self, points: Points) -> Array:
        """Return phi of every row, (n, m)."""
        return times_upper(self.kernel(points, self.landmarks), self.whitening)

    def residual_variances(self, points: Points) -> Array:
        """Return the squared distance, (n,), of each row's kernel function from the span, >= 0."""
        rest = self.kernel.diagonal(points) - row_norms_squared(self.features(points))
        return np.maximum(rest, 0.0)

    def leave_one_out_variances(self) -> Array:
        """Return the squared distance, (m,), of each landmark from the span of the others."""
        precisions = row_norms_squared(self.whitening)  # the diagonal of the inverse of K_ZZ
        return np.divide(1.0, precisions, out=np.zeros_like(precisions), where=precisions > 0)


def nystroem_covariance(kernel: Kernel, landmarks: Points) -> NystroemCovariance:
    """Return the covariance from the Nystroem features of the given landmarks."""
    return NystroemCovariance(kernel, landmarks, whiten_gram(kernel(landmarks, landmarks)))


@dataclass(frozen=True)
class NystroemRecursion(Recursion):
    """Landmarks in O(m^2 + m p) memory, for streams of any length.

    Parameters
    ----------
    capacity : largest number of landmarks.
    seed : random seed of the choice of landmarks.
    n_seen : number of labels seen; forgetting discounts earlier labels.
    n_calls : number of calls of `add_labeled`.
    """

    covariance: NystroemCovariance
    capacity: int
    seed: int
    n_seen: float = 0.0
    n_calls: int = 0

    def validate(self) -> None:
        """Raise a ValueError if there are too many landmarks."""
        expect(self.size <= self.capacity, f"at most {self.capacity} landmarks")

    @property
    def landmarks(self) -> Points:
        return self.covariance.landmarks

    @property
    def size(self) -> int:
        """Number of landmarks."""
        return int(self.landmarks.shape[0])

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        """Return the recursion with the number of labels seen so far discounted."""
        assert smoothness is None
        return FoldResult(replace(self, n_seen=forgetting * self.n_seen))

    def add_labeled(self, points: Points) -> FoldResult:
        """Return the recursion with newly labeled points added as landmarks if needed."""
        n = points.shape[0]
        generator = np.random.default_rng((self.seed, self.n_calls))
        shuffled = generator.permutation(n)
        seen = replace(self, n_seen=self.n_seen + n, n_calls=self.n_calls + 1)
        n_free = self.capacity - self.size
        if not n_free and not self._approximates_poorly(take_rows(points, shuffled[:PROBES])):
            return FoldResult(seen)
        new = shuffled[np.sort(distinct_rows(take_rows(points, shuffled)))]
        new = new[~found_among(take_rows(points, new), self.landmarks)]
        leaving = 0
        if not n_free:  # the fraction of the batch in a uniform sample of all labels
            fraction = min(n / seen.n_seen, LARGEST_SHARE)
            leaving = min(int(fraction * self.size + generator.random()), new.size)
        stays = np.sort(generator.permutation(self.size)[leaving:])
        enters = np.sort(new[: n_free + leaving])
        if not enters.size:
            return FoldResult(seen)
        landmarks = stack(take_rows(self.landmarks, stays), take_rows(points, enters))
        grown = replace(seen, covariance=nystroem_covariance(self.covariance.kernel, landmarks))
        return FoldResult(grown, np.append(stays, np.full(enters.size, -1)))

    def _approximates_poorly(self, points: Points) -> bool:
        """Whether the landmarks approximate the points worse than they approximate each other."""
        found = self.covariance.residual_variances(points)
        usual = self.covariance.leave_one_out_variances()
        variance = max(found.var(), usual.var())
        error = np.sqrt(variance / found.size + usual.var() / usual.size)
        return bool(found.mean() > usual.mean() + REPLACEMENT_THRESHOLD * error)

    def project(self, points: Points, coefficients: Array) -> Array:
        return self.covariance.on_window(points, self.landmarks).landmark_part(coefficients)

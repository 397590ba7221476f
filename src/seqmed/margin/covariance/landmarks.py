"""The landmark recursion: smoothness is projected on m landmarks, labels use the exact kernel.

The landmarks are a uniform sample of all points seen (a reservoir). Replacing them is expensive,
and deferred until the pending points are a tenth of the stream. The penalty ``f' P f`` of a batch
is projected on the landmarks, and an m x m matrix is conditioned on it.

The matrix is that of a Gaussian over functions in the span of the landmarks Z. With features
``phi(x) = W' k(Z, x)`` that reproduce the kernel on Z, any function of the form ``phi(x)' u`` is
fixed by its values on Z. Before any batch ``u`` has covariance I. A penalty ``|F u|^2`` is
equivalent to observing ``F u = 0`` with noise of unit variance. Conditioning on this observation
reduces the covariance V of ``u``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, block_diag, eigh
from scipy.linalg.lapack import dpotrf, dpstrf

from seqmed.kernels import Kernel
from seqmed.margin.covariance.exact import (
    FoldResult,
    LowRankCovariance,
    Recursion,
    Reduction,
    check_variance,
)
from seqmed.margin.laplacian import Smoothness
from seqmed.numeric import factors
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Points,
    no_rows,
    row_norms_squared,
    stack,
    take_rows,
)
from seqmed.numeric.execution import product
from seqmed.numeric.expectations import expect, expect_shape

# A landmark is redundant if the squared distance of its kernel function from the span of the others
# is below this fraction of the largest k(z, z).
REDUNDANT = 1e-10


@dataclass(frozen=True)
class Basis:
    """Nystroem features of landmarks, and the covariance of their coefficients.

    Parameters
    ----------
    landmarks : the points Z, (m, p).
    whitening : the matrix W, (m, m), with ``W' K_ZZ W = I``; zero for a redundant landmark.
    gram : the matrix K_ZZ, (m, m).
    coefficient_covariance : the covariance V, (m, m), of u; None for I, before any penalty.
    """

    landmarks: Points
    whitening: Array
    gram: Array
    coefficient_covariance: Array | None = None

    @property
    def size(self) -> int:
        """Number of landmarks."""
        return int(self.landmarks.shape[0])

    def features(self, kernel: Kernel, points: Points) -> Array:
        """Return phi of every row, (n, m)."""
        return factors.times_upper(kernel(points, self.landmarks), self.whitening)

    def extend(self, kernel: Kernel, points: Points) -> Basis:
        """Return the basis with further landmarks after the existing ones.

        This is exact: old features do not change, and new features are orthogonal to them.
        """
        n, m, known = points.shape[0], self.size, self.coefficient_covariance
        gram = self._gram_with(kernel, kernel(points, self.landmarks), points)
        features = factors.times_upper(gram[m:, :m], self.whitening)
        cutoff = REDUNDANT * np.diagonal(gram).max(initial=0.0)
        own = whiten(gram[m:, m:] - factors.symmetric_product(features), cutoff)
        whitening = np.block([
            [self.whitening, -self.whitening @ (features.T @ own)],
            [np.zeros((n, m)), own],
        ])  # fmt: skip
        known = None if known is None else block_diag(known, np.eye(n))
        return Basis(stack(self.landmarks, points), whitening, gram, known)

    def replace_landmarks(self, kernel: Kernel, stays: Indices, points: Points) -> Basis:
        """Return the basis with only the landmarks ``stays`` (indices) and with new points.

        The covariance of the function at all of these points is exact, because it is a marginal.
        """
        gram = self._gram_with(kernel, kernel(points, self.landmarks), points)
        now = np.append(stays, np.arange(self.size, gram.shape[0]))
        landmarks = stack(take_rows(self.landmarks, stays), points)
        own = gram[np.ix_(now, now)]
        whitening = whiten_gram(own)
        if self.coefficient_covariance is None:
            return Basis(landmarks, whitening, own)
        features = factors.times_upper(gram[:, : self.size], self.factor())
        taken = factors.times_upper(features[now].T, whitening).T
        rest = np.eye(now.size) - factors.symmetric_product(taken)
        return Basis(landmarks, whitening, own, rest)

    def _gram_with(self, kernel: Kernel, across: Array, points: Points) -> Array:
        """Return the kernel matrix of the landmarks and further points, (m + n, m + n)."""
        return np.block([[self.gram, across.T], [across, kernel(points, points)]])

    def factor(self) -> Array:
        """Return Q, (m, r): ``k(x, Z) Q`` are the features psi of the reduction."""
        assert self.coefficient_covariance is not None
        taken = -self.coefficient_covariance
        taken[np.diag_indices_from(taken)] += 1.0
        factor, whitening = factors.semidefinite_factor(taken), self.whitening
        return factors.upper_times(whitening, factor, factors.is_upper(whitening))

    def observe(self, rows: Array) -> Basis:
        """Return the basis conditioned on ``F u = 0`` with unit noise variance, F (r, m)."""
        if not rows.shape[0]:
            return self
        known = self.coefficient_covariance
        known = np.eye(self.size) if known is None else known
        return replace(self, coefficient_covariance=conditioned(known, rows))

    def forget(self, forgetting: float) -> Basis:
        """Return the basis with every penalty so far scaled by ``forgetting`` in (0, 1).

        ``V = (I + H)^{-1}`` becomes ``(I + g H)^{-1}`` with the forgetting factor g.
        """
        known = self.coefficient_covariance
        if known is None:
            return self
        # Without a factor, negative eigenvalues caused by rounding would grow with every batch.
        factor = factors.semidefinite_factor(known)
        known = reduced(factor, np.sqrt(1.0 - forgetting) * factor, forgetting)
        return replace(self, coefficient_covariance=known)


def whiten_gram(gram: Array) -> Array:
    """Return W, (n, n), for a Gram matrix with the default cutoff; see `whiten`."""
    return whiten(gram, REDUNDANT * np.diagonal(gram).max(initial=0.0))


def whiten(gram: Array, cutoff: float) -> Array:
    """Return W, (n, n), with ``W' K W = I`` except for zeros at redundant points.

    These have a squared pivot below ``cutoff``. If there are none, W is upper triangular.
    """
    n = gram.shape[0]
    if not np.diagonal(gram).max(initial=0.0) > cutoff:
        return np.zeros((n, n))
    with factors.threads_to_factor(n):
        lower, info = dpotrf(gram, lower=1)
        order = np.arange(n)
        if info or not np.square(np.diagonal(lower)).min() > cutoff:
            lower, pivots, rank, _ = dpstrf(gram, tol=cutoff, lower=1)
            order = pivots[:rank] - 1
    inverted = factors.triangular_inverse(lower[: order.size, : order.size]).T
    if order.size == n and (order[1:] > order[:-1]).all():
        return np.ascontiguousarray(inverted)
    whitening = np.zeros((n, n))
    whitening[np.ix_(order, order)] = inverted
    return whitening


def conditioned(covariance: Array, rows: Array) -> Array:
    """Return the covariance of f conditioned on ``rows @ f = 0`` with unit noise variance."""
    cross = product(rows, covariance)
    noisy = rows @ cross.T
    noisy[np.diag_indices_from(noisy)] += 1.0
    own = np.diagonal(covariance)
    try:
        lower = factors.cholesky(0.5 * (noisy + noisy.T))
    except LinAlgError:
        check_variance(np.full_like(own, -np.inf), own)
        raise
    half = factors.lower_times(factors.triangular_inverse(lower), cross)
    rest = covariance - factors.symmetric_product(half.T)
    check_variance(np.diagonal(rest), own)
    return rest


def reduced(factor: Array, rows: Array, own: float) -> Array:
    """Return ``C (own I + R' R)^{-1} C'``, (m, m), for a factor C (m, r) and rows R (k, r)."""
    inner = factors.symmetric_product(rows.T)
    inner[np.diag_indices_from(inner)] += own
    try:
        half = factors.lower_times(factors.triangular_inverse(factors.cholesky(inner)), factor.T).T
    except LinAlgError:  # rounding errors of R'R are larger than the smallest eigenvalue
        with factors.threads_to_factor(inner.shape[0]):
            values, vectors = eigh(inner)
        half = factor @ vectors / np.sqrt(np.maximum(values, own))
    return factors.symmetric_product(half)


# Landmark replacement is deferred until the pending points are this fraction of the stream:
# replacing one landmark costs as much as replacing many.
DEFERRED = 0.1


@dataclass(frozen=True)
class LandmarkRecursion(Recursion):
    """The covariance in O(m^2 + m p) memory, for streams of any length.

    Parameters
    ----------
    capacity : largest number of landmarks.
    seed : random seed of the choice of landmarks.
    basis : the landmarks and their covariance, None before the first batch.
    keys : (m,) random keys of the landmarks; points with the largest keys remain landmarks.
    n_folds : batches folded in.
    n_seen, n_pending : number of points seen, and number of points not yet considered as landmarks.
        Forgetting discounts earlier points in both.
    """

    covariance: LowRankCovariance
    capacity: int
    seed: int
    basis: Basis | None = None
    keys: Array | None = None
    n_folds: int = 0
    n_seen: float = 0.0
    n_pending: float = 0.0

    grows = True

    def validate(self) -> None:
        """Raise a ValueError if the keys are not of the landmarks."""
        size = 0 if self.basis is None else self.basis.size
        expect_shape(self, (size,), "keys")
        expect(size <= self.capacity, f"at most {self.capacity} landmarks")

    @property
    def landmarks(self) -> Points | None:
        return None if self.basis is None else self.basis.landmarks

    def project(self, points: Points, coefficients: Array) -> Array:
        assert self.basis is not None
        features = self.basis.features(self.covariance.kernel, points)
        projected: Array = self.basis.whitening @ (features.T @ coefficients)
        return projected

    def residual_variances(self, points: Points) -> Array:
        """Return the squared error, (n,), of `project` for each row's kernel function."""
        assert self.basis is not None
        kernel = self.covariance.kernel
        features = self.basis.features(kernel, points)
        return np.maximum(kernel.diagonal(points) - row_norms_squared(features), 0.0)

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        """Return the recursion after one more batch; landmarks are added even without a penalty."""
        kernel, n = self.covariance.kernel, points.shape[0]
        basis, keys = self._forgotten(points, forgetting)
        seen, pending = forgetting * self.n_seen + n, forgetting * self.n_pending + n
        represented = pending
        if basis.size == self.capacity:
            represented = replaced_now(n, pending, seen, self.capacity)
        origin = None
        draws = draw_keys(n, self.seed, self.n_folds, represented) if represented else np.zeros(0)
        chosen = largest(np.append(keys, draws), self.capacity)
        stays, enters = chosen[chosen < basis.size], chosen[chosen >= basis.size] - basis.size
        if enters.size:
            new = take_rows(points, enters)
            if stays.size == basis.size:
                basis = basis.extend(kernel, new)
            else:
                basis = basis.replace_landmarks(kernel, stays, new)
            origin = np.append(stays, np.full(enters.size, -1))
            keys = np.append(keys[stays], draws[enters])
        if smoothness is not None:
            basis = basis.observe(smoothness.observations(basis.features(kernel, points)))
        covariance = self.covariance  # the base kernel, before any penalty
        if basis.coefficient_covariance is not None:
            covariance = LowRankCovariance(kernel, Reduction(basis.landmarks, basis.factor()))
        folded = replace(
            self,
            covariance=covariance,
            basis=basis,
            keys=keys,
            n_folds=self.n_folds + 1,
            n_seen=seen,
            n_pending=pending - represented,
        )
        return FoldResult(folded, origin)

    def _forgotten(self, points: Points, forgetting: float) -> tuple[Basis, Array]:
        """Return the discounted basis and its keys."""
        if self.basis is None or self.keys is None:
            return Basis(no_rows(points), np.zeros((0, 0)), np.zeros((0, 0))), np.zeros(0)
        if forgetting == 1:
            return self.basis, self.keys
        with np.errstate(over="ignore"):  # keys stay finite
            keys = np.maximum(self.keys / forgetting, np.finfo(np.float64).min)
        return self.basis.forget(forgetting), keys


def replaced_now(n: int, pending: float, seen: float, n_landmarks: int) -> float:
    """Return how many pending points the last n points represent; 0 to defer the replacement.

    It is deferred until there are enough pending points, or replacements due, for n points.
    """
    due = n_landmarks * pending / seen
    # n points are enough for this expected number of replacements, plus three standard deviations
    most = max(n / 8, n - 3.0 * np.sqrt(n))
    if pending < DEFERRED * seen and due < most:
        return 0.0
    return float(max(n, pending * min(1.0, most / due)))


def draw_keys(n: int, seed: int, n_folds: int, represented: float) -> Array:
    """Return the n largest of ``represented`` random keys; all are negative.

    The points with the m largest keys of a stream are a uniform sample.
    """
    generator = np.random.default_rng((seed, n_folds))
    keys = np.log(generator.random(n))
    if represented == n:
        return keys
    # the largest of N uniform numbers is the N-th root of one; this repeats with N - 1, N - 2, ...
    return generator.permutation(np.cumsum(keys / (represented - np.arange(n))))


def largest(keys: Array, wanted: int) -> Indices:
    """Return the sorted indices of the ``wanted`` largest keys, all of them if there are fewer."""
    if keys.size <= wanted:
        return np.arange(keys.size)
    return np.sort(np.argpartition(keys, keys.size - wanted)[keys.size - wanted :])

"""A Gaussian over functions in the span of landmarks.

With features ``phi(x) = W' k(Z, x)`` that reproduce the kernel on the landmarks Z, any function of
the form ``phi(x)' u`` is fixed by its values on Z. Before any batch ``u`` has covariance I. A
smoothness penalty ``|F u|^2`` is equivalent to observing ``F u = 0`` with noise of unit variance.
Conditioning on this observation reduces the covariance V of ``u``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag, eigh
from scipy.linalg.lapack import dpotrf, dpstrf

from seqmed.kernels import Kernel, blocks
from seqmed.margin.covariance.low_rank import LowRankCovariance, Reduction, check_variance
from seqmed.margin.covariance.protocol import Projection
from seqmed.numeric import factors
from seqmed.numeric.arrays import Array, Points, no_rows, row_norms_squared, stack, take_rows
from seqmed.numeric.execution import product
from seqmed.numeric.factors import (
    cholesky,
    is_upper,
    lower_times,
    semidefinite_factor,
    symmetric_product,
    times_upper,
    triangular_inverse,
    upper_times,
)

# A landmark is redundant if the squared distance of its kernel function from the span of the others
# is below this fraction of the largest k(z, z). Dividing by such a small distance would amplify
# rounding errors.
REDUNDANT = 1e-10


@dataclass(frozen=True)
class Basis:
    """Nystroem features of landmarks, and the covariance of their coefficients.

    Parameters
    ----------
    landmarks : the points Z, (m, p).
    whitening : the matrix W, (m, m), with ``W' K_ZZ W = I``; the column of a redundant landmark is
        zero, so that a basis of m landmarks always has the same size.
    gram : the matrix K_ZZ, (m, m).
    coefficient_covariance : the matrix V, (m, m), the covariance of u, with the identity in the
        entries of redundant landmarks; None before any penalty, when V is the identity.
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
        return times_upper(kernel(points, self.landmarks), self.whitening)

    def extend(self, kernel: Kernel, points: Points) -> Basis:
        """Return the basis with further landmarks after the existing ones.

        This is exact: old features do not change, and new features are orthogonal to them.
        """
        n, m, known = points.shape[0], self.size, self.coefficient_covariance
        gram = self._gram_with(kernel, kernel(points, self.landmarks), points)
        features = times_upper(gram[m:, :m], self.whitening)
        cutoff = REDUNDANT * np.diagonal(gram).max(initial=0.0)
        own = whiten(gram[m:, m:] - symmetric_product(features), cutoff)
        whitening = np.block([
            [self.whitening, -self.whitening @ (features.T @ own)],
            [np.zeros((n, m)), own],
        ])  # fmt: skip
        known = None if known is None else block_diag(known, np.eye(n))
        return Basis(stack(self.landmarks, points), whitening, gram, known)

    def replace_landmarks(
        self,
        kernel: Kernel,
        stays: NDArray[np.intp],
        points: Points,
        factor: Array | None = None,
    ) -> tuple[Basis, float]:
        """Return the basis with only the landmarks ``stays`` (indices) and with new points.

        The covariance of the function at all of these points is exact, because it is a marginal.
        ``factor`` (m, r) is the result of `factor`, or None to compute it. Also returns the largest
        change of the variance at a removed landmark, as a fraction of k(z, z).
        """
        across = kernel(points, self.landmarks)
        gram = self._gram_with(kernel, across, points)
        left = np.setdiff1d(np.arange(self.size), stays)
        now = np.append(stays, np.arange(self.size, gram.shape[0]))
        landmarks = stack(take_rows(self.landmarks, stays), points)
        own = gram[np.ix_(now, now)]
        whitening = whiten_gram(own)
        if self.coefficient_covariance is None:
            return Basis(landmarks, whitening, own), 0.0
        factor = self.factor() if factor is None else factor
        features = times_upper(gram[:, : self.size], factor)
        taken = times_upper(features[now].T, whitening).T
        rest = np.eye(now.size) - symmetric_product(taken)
        before = row_norms_squared(features[left])
        after = row_norms_squared(times_upper(gram[np.ix_(left, now)], whitening) @ taken)
        variances = np.diagonal(gram)[left]
        change = np.abs(before - after) / np.where(variances > 0, variances, 1.0)
        return Basis(landmarks, whitening, own, rest), float(change.max(initial=0.0))

    def _gram_with(self, kernel: Kernel, across: Array, points: Points) -> Array:
        """Return the kernel matrix of the landmarks and further points, (m + n, m + n)."""
        return np.block([[self.gram, across.T], [across, kernel(points, points)]])

    def factor(self) -> Array:
        """Return Q, (m, r): ``k(x, Z) Q`` are the features psi of the reduction."""
        assert self.coefficient_covariance is not None
        taken = -self.coefficient_covariance
        taken[np.diag_indices_from(taken)] += 1.0
        return upper_times(self.whitening, semidefinite_factor(taken), is_upper(self.whitening))

    def covariance(self, kernel: Kernel) -> LowRankCovariance:
        """Return ``k - phi (I - V) phi'``, after a penalty."""
        return LowRankCovariance(kernel, Reduction(self.landmarks, self.factor()))

    def observe(self, rows: Array) -> Basis:
        """Return the basis conditioned on ``F u = 0`` with unit noise variance, F (r, m)."""
        if not rows.shape[0]:
            return self
        known = self.coefficient_covariance
        known = np.eye(self.size) if known is None else known
        try:
            known = conditioned(known, rows)
        except ValueError:  # rounding errors with penalties of about 1e14 and more
            known = conditioned_by_factor(known, rows)
        return replace(self, coefficient_covariance=known)

    def forget(self, forgetting: float) -> Basis:
        """Return the basis with every penalty so far scaled by ``forgetting`` in (0, 1)."""
        known = self.coefficient_covariance
        return (
            self
            if known is None
            else replace(self, coefficient_covariance=with_discounted_penalty(known, forgetting))
        )

    def residual_variances(self, kernel: Kernel, points: Points) -> Array:
        """Return the squared distance, (n,), of each row's kernel function from the span, >= 0."""
        features = self.features(kernel, points)
        return np.maximum(kernel.diagonal(points) - row_norms_squared(features), 0.0)

    def project(self, kernel: Kernel, points: Points, coefficients: Array) -> Projection:
        """Return the projection of an expansion on the span, and its squared error."""
        features, size = self.features(kernel, points), points.shape[0]
        squared_error = np.zeros(coefficients.shape[1])
        for rows in blocks(size, size):
            rest = kernel(points[rows], points) - features[rows] @ features.T
            squared_error += np.sum(coefficients[rows] * (rest @ coefficients), axis=0)
        return Projection(
            coefficients=self.whitening @ (features.T @ coefficients),
            squared_error=np.maximum(squared_error, 0.0),
        )


def empty_basis(like: Points) -> Basis:
    """Return a basis without landmarks, for rows in the format of ``like``."""
    return Basis(no_rows(like), np.zeros((0, 0)), np.zeros((0, 0)))


def whiten_gram(gram: Array) -> Array:
    """Return W, (n, n), for a Gram matrix with the default cutoff; see `whiten`."""
    return whiten(gram, REDUNDANT * np.diagonal(gram).max(initial=0.0))


def whiten(gram: Array, cutoff: float) -> Array:
    """Return W, (n, n), with ``W' K W = I`` except for zeros at redundant points.

    W is computed by Cholesky factorisation, with diagonal pivoting if a squared pivot is below
    ``cutoff``. A point with such a pivot is redundant. Without pivoting W is upper triangular.
    """
    n = gram.shape[0]
    if not np.diagonal(gram).max(initial=0.0) > cutoff:
        return np.zeros((n, n))
    if n > factors.LARGEST:
        lower, order = factors.pivoted_cholesky(gram, cutoff)
        order = order[: lower.shape[1]]
    else:
        lower, info = dpotrf(gram, lower=1)
        order = np.arange(n)
        if info or not np.square(np.diagonal(lower)).min() > cutoff:
            lower, pivots, rank, _ = dpstrf(gram, tol=cutoff, lower=1)
            order = pivots[:rank] - 1
    inverted = triangular_inverse(lower[: order.size, : order.size]).T
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
        lower = cholesky(0.5 * (noisy + noisy.T))
    except LinAlgError:
        check_variance(np.full_like(own, -np.inf), own)
        raise
    half = lower_times(triangular_inverse(lower), cross)
    rest = covariance - symmetric_product(half.T)
    check_variance(np.diagonal(rest), own)
    return rest


def conditioned_by_factor(covariance: Array, rows: Array) -> Array:
    """Return the result of `conditioned`, but always semi-definite, at a higher cost."""
    factor = semidefinite_factor(covariance)
    return reduced(factor, rows @ factor, 1.0)


def with_discounted_penalty(known: Array, forgetting: float) -> Array:
    """Return ``(I + g H)^{-1}`` for ``V = (I + H)^{-1}``, (m, m), and the forgetting factor g.

    The matrix is computed from a factor of V. Without the factor, negative eigenvalues caused by
    rounding would grow with every batch.
    """
    factor = semidefinite_factor(known)
    return reduced(factor, np.sqrt(1.0 - forgetting) * factor, forgetting)


def reduced(factor: Array, rows: Array, own: float) -> Array:
    """Return ``C (own I + R' R)^{-1} C'``, (m, m), for a factor C (m, r) and rows R (k, r)."""
    inner = symmetric_product(rows.T)
    inner[np.diag_indices_from(inner)] += own
    try:
        half = lower_times(triangular_inverse(cholesky(inner)), factor.T).T
    except LinAlgError:  # rounding errors of R'R are larger than the smallest eigenvalue
        values, vectors = eigh(inner)
        half = factor @ vectors / np.sqrt(np.maximum(values, own))
    return symmetric_product(half)

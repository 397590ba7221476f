"""A Gaussian on a set of landmarks: what is known of a function by its values there.

With features ``phi(x) = W' k(Z, x)`` that reproduce the kernel on the landmarks Z, any function of
the form ``phi(x)' u`` is fixed by its values on Z, and a smoothness penalty on such functions is a
matrix H: ``u`` has the prior covariance ``V = (I + H)^{-1}``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import bandwidth, eigh
from scipy.linalg.blas import dtrmm, strmm
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtri

from seqmed.arrays import Array, Points, no_rows, row_norms_squared, stack, take_rows
from seqmed.graph import semidefinite_factor
from seqmed.kernels import Kernel
from seqmed.posterior import Covariance, Projection, Reduction
from seqmed.sharing import shared

# A landmark whose kernel function is this close to the span of the others (squared distance, as a
# share of the largest k(z, z)) adds no direction: dividing by so little would carry rounding.
REDUNDANT = 1e-10
# Rows up to which a triangular matrix is inverted by LAPACK.
SMALL_TRIANGLE = 100


@dataclass(frozen=True)
class Basis:
    """What is known on the landmarks.

    Parameters
    ----------
    landmarks : the points Z, (m, p).
    whitening : the matrix W, (m, m), with ``W' K_ZZ W = I``; the column of a redundant landmark is
        zero, so that a basis of m landmarks always has the same size.
    penalty : the matrix H, (m, m), zero in the place of redundant landmarks.
    """

    landmarks: Points
    whitening: Array
    penalty: Array

    @property
    def size(self) -> int:
        """Number of landmarks."""
        return self.landmarks.shape[0]

    def features(self, kernel: Kernel, points: Points) -> Array:
        """Return phi of every row, (n, m)."""
        return whitened(kernel(points, self.landmarks), self.whitening)

    def extend(self, kernel: Kernel, points: Points) -> Basis:
        """Return the basis with more landmarks, the old ones first.

        Exact: old features do not change, and new ones are what the old cannot express.
        """
        n, m = points.shape[0], self.size
        gram = kernel(points, points)
        largest = np.diagonal(gram).max(initial=0.0)
        features = np.zeros((n, 0))
        if m:
            features = self.features(kernel, points)
            largest = max(largest, kernel.diagonal(self.landmarks).max())
            gram = gram - features @ features.T
        own = whiten(gram, REDUNDANT * largest)
        whitening = np.block([
            [self.whitening, -self.whitening @ (features.T @ own)],
            [np.zeros((n, m)), own],
        ])  # fmt: skip
        penalty = np.zeros((m + n, m + n))
        penalty[:m, :m] = self.penalty
        return Basis(stack(self.landmarks, points), whitening, penalty)

    def restrict(
        self, kernel: Kernel, kept: NDArray[np.intp], factor: Array | None = None
    ) -> Restriction:
        """Return the basis on some of its landmarks, in the order of the indices ``kept``.

        The function's covariance on those that stay is kept exactly: it is a marginal. ``factor``
        (q, r) is that of `covariance`, as far as it was made before the last landmarks came.
        """
        landmarks = take_rows(self.landmarks, kept)
        gram = kernel(self.landmarks, self.landmarks)
        whitening = whiten_gram(gram[np.ix_(kept, kept)])
        if not self.penalty.any():
            return Restriction(Basis(landmarks, whitening, np.zeros((kept.size, kept.size))), 0.0)
        factor = self.factor() if factor is None else factor
        features = gram[:, : factor.shape[0]] @ factor
        within = whitened(features[kept].T, whitening).T
        identity = np.eye(kept.size)
        penalty = inverse(identity - within @ within.T) - identity
        left = np.setdiff1d(np.arange(self.size), kept)
        before = row_norms_squared(features[left])
        after = row_norms_squared(whitened(gram[np.ix_(left, kept)], whitening) @ within)
        own = np.diagonal(gram)[left]
        change = np.abs(before - after) / np.where(own > 0, own, 1.0)
        return Restriction(Basis(landmarks, whitening, penalty), float(change.max(initial=0.0)))

    def factor(self) -> Array:
        """Return Q, (m, r): ``k(x, Z) Q`` are the features psi of what smoothness has taken."""
        return self.whitening @ semidefinite_factor(shrinkage(self.penalty))

    def covariance(self, kernel: Kernel) -> Covariance:
        """Return ``k - phi (I - (I + H)^{-1}) phi'``."""
        if not self.penalty.any():
            return Covariance(kernel)
        return Covariance(kernel, Reduction(self.landmarks, self.factor()))

    def add(self, penalty: Array) -> Basis:
        """Return the basis with more smoothness, (m, m), on the functions of its span."""
        return replace(self, penalty=self.penalty + penalty)

    def unexplained(self, kernel: Kernel, points: Points) -> Array:
        """Return the squared distance, (n,), of each row's kernel function from the span, >= 0."""
        features = self.features(kernel, points)
        rest = kernel.diagonal(points) - np.einsum("ij,ij->i", features, features)
        return np.maximum(rest, 0.0)

    def project(self, kernel: Kernel, points: Points, coefficients: Array) -> Projection:
        """Return the function of the span nearest to an expansion, and how far it is."""
        features = self.features(kernel, points)
        rest = kernel(points, points) - features @ features.T
        return Projection(
            coefficients=self.whitening @ (features.T @ coefficients),
            squared_error=np.maximum(np.sum(coefficients * (rest @ coefficients), axis=0), 0.0),
        )


class Restriction(NamedTuple):
    """A basis on some of its landmarks.

    Attributes
    ----------
    basis : what is known on those that stay.
    cost : largest change, at a landmark that left, of what smoothness has taken from its variance,
        as a share of k(z, z).
    """

    basis: Basis
    cost: float


def whiten_points(kernel: Kernel, points: Points) -> Basis:
    """Return the basis of given landmarks, about which no smoothness is known."""
    return empty_basis(points).extend(kernel, points)


def empty_basis(like: Points) -> Basis:
    """Return a basis without landmarks, for rows in the format of ``like``."""
    return Basis(no_rows(like), np.zeros((0, 0)), np.zeros((0, 0)))


def whitened(values: Any, whitening: Any, triangular: bool | None = None) -> Any:
    """Return ``values @ W``, (n, m), in their precision, at half the price if W is triangular."""
    if triangular is None:
        triangular = is_triangular(whitening)
    if not triangular or not values.size:
        return values @ whitening
    product = strmm if values.dtype == np.float32 else dtrmm
    return product(1.0, whitening.T, values.T, lower=1).T


def is_triangular(whitening: Array) -> bool:
    """Whether a matrix is upper triangular."""
    return bandwidth(whitening)[0] == 0


def whiten_gram(gram: Array) -> Array:
    """Return W, (n, n), of a whole Gram matrix; see `whiten`."""
    return whiten(gram, REDUNDANT * np.diagonal(gram).max(initial=0.0))


@shared
def whiten(gram: Array, cutoff: float) -> Array:
    """Return W, (n, n), with ``W' K W`` the identity but for zeros in redundant places.

    Cholesky, with diagonal pivoting where a ``k(z, z)`` has less than ``cutoff`` left of it: such
    a point is redundant. Without pivoting W is upper triangular.
    """
    n = gram.shape[0]
    if not np.diagonal(gram).max(initial=0.0) > cutoff:
        return np.zeros((n, n))
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


def triangular_inverse(lower: Array) -> Array:
    """Return the inverse of a lower triangular matrix, the entries above its diagonal ignored.

    By halves, so that most of it is products: LAPACK's own takes twice as long.
    """
    n = lower.shape[0]
    if n <= SMALL_TRIANGLE:
        return np.tril(dtrtri(lower, lower=1)[0])
    half = n // 2
    first, last = triangular_inverse(lower[:half, :half]), triangular_inverse(lower[half:, half:])
    whole = np.zeros((n, n))
    whole[:half, :half], whole[half:, half:] = first, last
    whole[half:, :half] = -(last @ (lower[half:, :half] @ first))
    return whole


def shrinkage(penalty: Array) -> Array:
    """Return ``I - (I + H)^{-1}``, the share of the prior covariance that H has taken."""
    identity = np.eye(penalty.shape[0])
    return identity - inverse(identity + penalty)


@shared
def inverse(matrix: Array) -> Array:
    """Return the inverse of a positive definite matrix; rounding may have spoiled that a little."""
    lower, info = dpotrf(matrix, lower=1)
    if info == 0:
        root = triangular_inverse(lower)
        return root.T @ root
    values, vectors = eigh(matrix)
    floor = matrix.shape[0] * np.finfo(np.float64).eps * max(float(values[-1]), 1.0)
    return (vectors / np.maximum(values, floor)) @ vectors.T

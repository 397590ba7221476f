"""Theorem 2: a covariance that a smoothness penalty reduces by a matrix of low rank.

The covariance of every recursion that uses smoothness has the form

    k_t(x, x') = k(x, x') - psi(x) . psi(x'),      psi(x) = k(x, Z) Q,

with landmarks Z and a factor Q. `seqmed.margin.theory.smoothed_kernel` is the equation. The file
has the interfaces of covariances and recursions, this covariance, and the exact recursion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, eigh, solve_triangular

from seqmed.kernels import Kernel
from seqmed.margin.dual.problem import ComputedRows
from seqmed.margin.laplacian import Smoothness
from seqmed.numeric import factors
from seqmed.numeric.arrays import Array, Indices, Points, row_norms_squared, stack


class WindowCovariance(ABC):
    """The covariance between n points of the window and m landmarks."""

    values: Array
    """The kernel values between the points and the landmarks, (n, m)."""

    @abstractmethod
    def gram(self) -> Array | ComputedRows:
        """Return the covariances between the points, (n, n), as the dual solver takes them."""

    @abstractmethod
    def landmark_part(self, coefficients: Array) -> Array:
        """Return the landmark part (m, machines) of ``sum_s k_t(., x_s) c_s``, c (n, machines)."""

    def scores(self, coefficients: Array) -> Array:
        """Return ``sum_z k(x, z) a_z`` at the points, (n, machines), from (m, machines)."""
        return self.values @ coefficients


@dataclass(frozen=True)
class CovarianceFunction(ABC):
    """The covariance function k_t of a posterior; without overrides it is the base kernel."""

    kernel: Kernel

    on_landmarks = False
    """Whether every ``k_t(., x)`` is an expansion on the landmarks alone."""

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of the function's values on two sets of rows."""
        return self.kernel(left, right)

    def diagonal(self, points: Points) -> Array:
        """Return the variance at every row, (n,), >= 0."""
        return self.kernel.diagonal(points)

    @abstractmethod
    def on_window(self, points: Points, landmarks: Points) -> WindowCovariance:
        """Return the covariance of the window's points."""

    def smoothed(self, scores: Array) -> Array:
        """Return the coefficients (m, machines) that the reduction adds, given landmark scores."""
        return np.zeros_like(scores)


class FoldResult(NamedTuple):
    """A recursion after a batch, and the index (m,) of each landmark before it, -1 for a new one.

    ``origin`` is None if no landmark has changed.
    """

    recursion: Recursion
    origin: Indices | None = None


class Recursion(ABC):
    """A way to update the covariance batch by batch (Theorem 2)."""

    covariance: CovarianceFunction
    """The covariance after every batch so far."""
    capacity: int | None
    """The largest number of landmarks; None if it grows with the stream."""
    grows = False
    """Whether `fold` chooses landmarks among the points, even without a penalty."""

    @property
    @abstractmethod
    def landmarks(self) -> Points | None:
        """Points (m, p) on which the mean is expanded, besides those with multipliers; or None."""

    @abstractmethod
    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        """Return the recursion after one more batch of distinct rows and the penalty of its graph.

        Earlier penalties are first scaled by ``forgetting`` in (0, 1].
        """

    def add_labeled(self, points: Points) -> FoldResult:
        """Return the recursion with landmarks for newly labeled points, if it needs them."""
        return FoldResult(self)

    def project(self, points: Points, coefficients: Array) -> Array:
        """Return the coefficients (m, machines) of an expansion projected on the landmarks."""
        raise NotImplementedError("this recursion has no landmarks of its own to project on")


# Fraction of k(x, x) by which its reduction may exceed it because of rounding.
LARGEST_EXCESS = 1e-6
# Largest number of points of a window, whose covariances are all held in memory: 3.2 GB.
LARGEST_WINDOW = 20_000


@dataclass(frozen=True)
class Reduction:
    """The reduction of the base kernel: landmarks Z, (m, p), and a factor Q, (m, r)."""

    landmarks: Points
    factor: Array

    def features(self, kernel: Kernel, points: Points) -> Array:
        """Return psi of every row, (n, r)."""
        return factors.times_upper(kernel(points, self.landmarks), self.factor)


@dataclass(frozen=True)
class LowRankCovariance(CovarianceFunction):
    """A base kernel minus its reduction by smoothness; there is no reduction before any penalty."""

    reduction: Reduction | None = None

    def __call__(self, left: Points, right: Points) -> Array:
        values = self.kernel(left, right)
        if self.reduction is None:
            return values
        features = self.reduction.features(self.kernel, left)
        if left is right:
            check_reduction(np.diagonal(values), features)
            return values - factors.symmetric_product(features)
        return values - features @ self.reduction.features(self.kernel, right).T

    def diagonal(self, points: Points) -> Array:
        variances = self.kernel.diagonal(points)
        if self.reduction is not None:
            variances = variances - row_norms_squared(self.reduction.features(self.kernel, points))
        return np.maximum(variances, 0.0)

    def on_window(self, points: Points, landmarks: Points) -> LowRankWindow:
        nothing = np.zeros((points.shape[0], 0))
        values = self.kernel(points, landmarks) if landmarks.shape[0] else nothing
        return LowRankWindow(self, points, values)

    def smoothed(self, scores: Array) -> Array:
        if self.reduction is None:
            return np.zeros_like(scores)
        factor = self.reduction.factor
        return -(factor @ (factor.T @ scores))


@dataclass(frozen=True)
class LowRankWindow(WindowCovariance):
    """The covariance of n points, with their kernel values (n, m) at the landmarks."""

    covariance: LowRankCovariance
    points: Points
    values: Array

    def gram(self) -> Array:
        """Return the covariances between the points; refuse too many points."""
        n, kernel = self.points.shape[0], self.covariance.kernel
        if n > LARGEST_WINDOW:
            raise ValueError(
                f"the window would have {n} labeled rows, expected at most {LARGEST_WINDOW}: learn "
                "smaller batches with partial_fit and set window, or set budget."
            )
        gram, reduction = kernel(self.points, self.points), self.covariance.reduction
        if reduction is None:
            return gram
        features = factors.times_upper(self.values, reduction.factor)
        check_reduction(kernel.diagonal(self.points), features)
        return gram - factors.symmetric_product(features)

    def landmark_part(self, coefficients: Array) -> Array:
        return self.covariance.smoothed(self.values.T @ coefficients)


def check_reduction(variances: Array, features: Array) -> None:
    """Refuse ``psi(x) . psi(x) > k(x, x)``: further batches would amplify such rounding errors."""
    check_variance(variances - row_norms_squared(features), variances)


def check_variance(rest: Array, variances: Array) -> None:
    """Refuse variances (n,) that are more negative than rounding can explain."""
    if not (rest >= -LARGEST_EXCESS * np.abs(variances)).all():
        raise too_large(variances)


def too_large(variances: Array) -> ValueError:
    """Return the error for variances (n,) at which smoothing is lost in rounding."""
    return ValueError(
        f"kernel values of up to {np.abs(variances).max():.3g} are too large for this smoothing in "
        "double precision, or the kernel is not positive semi-definite, expected a positive "
        "semi-definite kernel with smaller values: scale the features (for example with "
        "StandardScaler), lower beta, or correct the kernel."
    )


def reduction_factor(penalty_factor: Array, gram: Array) -> Array:
    """Return J, (n, r), with ``J J' = (I + P K)^{-1} P`` for a penalty ``P = R R'``.

    ``J J'`` is the matrix S of Theorem 2. The paper inverts P, which is singular. Here
    ``S = R (I + R'KR)^{-1} R'``. Negative eigenvalues of R'KR, if K is huge or indefinite, are set
    to zero.
    """
    product = penalty_factor.T @ gram @ penalty_factor
    product = 0.5 * (product + product.T)
    try:
        lower = factors.cholesky(product + np.eye(product.shape[0]))
    except LinAlgError:
        with factors.threads_to_factor(product.shape[0]):
            values, vectors = eigh(product)
        return np.asarray((penalty_factor @ vectors) / np.sqrt(1.0 + np.maximum(values, 0.0)))
    return np.asarray(solve_triangular(lower, penalty_factor.T, lower=True).T)


def fold_exactly(
    covariance: LowRankCovariance, points: Points, smoothness: Smoothness
) -> LowRankCovariance:
    """Return ``k_t = k_{t-1} - k_{t-1}(., X) S k_{t-1}(X, .)`` with X among the landmarks.

    With ``k_{t-1}(., X) = k(., X) - k(., Z) Q psi(X)'`` the new factor has the block columns
    (Q, 0) and (-Q psi(X)'J, J) on the landmarks (Z, X).
    """
    damp = reduction_factor(smoothness.factor(), covariance(points, points))
    kernel, old = covariance.kernel, covariance.reduction
    if old is None:
        return LowRankCovariance(kernel, Reduction(points, damp))
    lifted = -old.factor @ (old.features(kernel, points).T @ damp)
    corner = np.zeros((points.shape[0], old.factor.shape[1]))
    factor = np.block([[old.factor, lifted], [corner, damp]])
    return LowRankCovariance(kernel, Reduction(stack(old.landmarks, points), factor))


def discount(covariance: LowRankCovariance, forgetting: float) -> LowRankCovariance:
    """Return the covariance with its penalty scaled by ``forgetting`` in (0, 1].

    A penalty P on the landmarks gives ``S = Q Q'``. The eigenvalues of ``B = Q' K Q`` are below 1.
    With the forgetting factor g, the penalty ``g P`` gives ``S = g Q (I - (1 - g) B)^{-1} Q'``.
    """
    old = covariance.reduction
    if old is None or forgetting == 1.0:
        return covariance
    factor = old.factor
    gram = covariance.kernel(old.landmarks, old.landmarks)
    product = factor.T @ gram @ factor
    rest = np.eye(product.shape[0]) - 0.5 * (1.0 - forgetting) * (product + product.T)
    try:
        lower = factors.cholesky(rest)
    except LinAlgError:
        raise too_large(np.diagonal(gram)) from None
    scaled = np.sqrt(forgetting) * solve_triangular(lower, factor.T, lower=True).T
    return LowRankCovariance(covariance.kernel, Reduction(old.landmarks, scaled))


@dataclass(frozen=True)
class ExactRecursion(Recursion):
    """The covariance without approximation: all N points are landmarks, in O(N^2) memory."""

    covariance: LowRankCovariance

    capacity = None

    @property
    def landmarks(self) -> Points | None:
        reduction = self.covariance.reduction
        return None if reduction is None else reduction.landmarks

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        past = discount(self.covariance, forgetting)
        if smoothness is None:
            return FoldResult(ExactRecursion(past))
        before = 0 if self.landmarks is None else self.landmarks.shape[0]
        origin = np.append(np.arange(before), np.full(points.shape[0], -1))
        return FoldResult(ExactRecursion(fold_exactly(past, points, smoothness)), origin)

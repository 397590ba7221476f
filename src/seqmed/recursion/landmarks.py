"""The landmark recursion: smoothness is projected on m points, labels keep the exact kernel.

With features ``phi(x) = W' k(Z, x)`` that reproduce the kernel on the landmarks Z, the covariance
is ``k(x, x') - phi(x)' (I - G^{-1}) phi(x')`` and every batch adds its penalty to an m x m matrix:
``G = I + H``, ``H += Phi' P Phi``. The sum may be taken in any order, on many machines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from seqmed.arrays import Array, Points, stack, take_rows
from seqmed.graph import Smoothness, semidefinite_factor
from seqmed.kernels import Kernel
from seqmed.posterior import Covariance, Reduction
from seqmed.recursion.theorem import damping

# Directions of the landmarks' Gram matrix below this share of its largest eigenvalue are left out:
# they carry at most that share of any kernel value, and dividing by them would carry rounding.
EIGENVALUE_CUTOFF = 1e-10


@dataclass(frozen=True)
class Basis:
    """What is known on the landmarks.

    Parameters
    ----------
    landmarks : the points Z, (m, p).
    whitening : the matrix W, (m, r), with ``W' K_ZZ W = I``.
    penalty : the matrix H, (r, r).
    """

    landmarks: Points
    whitening: Array
    penalty: Array

    def features(self, kernel: Kernel, points: Points) -> Array:
        """Return phi of every row, (n, r)."""
        return kernel(points, self.landmarks) @ self.whitening

    def extend(self, kernel: Kernel, points: Points) -> Basis:
        """Return the basis with more landmarks; exact, since the old ones stay among them."""
        landmarks = stack(self.landmarks, points)
        whitening = whiten(kernel, landmarks)
        move = whitening.T @ kernel(landmarks, self.landmarks) @ self.whitening
        penalty = move @ self.penalty @ move.T
        return Basis(landmarks, whitening, 0.5 * (penalty + penalty.T))


@dataclass(frozen=True)
class LandmarkRecursion:
    """Carries the covariance in memory O(m^2 + m p), whatever the length of the stream.

    Parameters
    ----------
    covariance : the current covariance.
    n_landmarks : how many landmarks to grow to, from the points as they come.
    seed : entropy of the choice among the points of a batch that has more than are wanted.
    basis : what is known on the landmarks, None before the first batch.
    n_folds : batches folded in.
    """

    covariance: Covariance
    n_landmarks: int
    seed: int
    basis: Basis | None = None
    n_folds: int = 0

    def fold(self, points: Points, smoothness: Smoothness) -> LandmarkRecursion:
        """Return the recursion after one more batch."""
        kernel, basis = self.covariance.kernel, self._grown_basis(points)
        penalty = basis.penalty + smoothness.quadratic(basis.features(kernel, points))
        # I - G^{-1} = H (I + H)^{-1}: Theorem 2 once more, with the identity for a Gram matrix.
        damp = damping(semidefinite_factor(penalty), np.eye(penalty.shape[0]))
        reduction = Reduction(basis.landmarks, basis.whitening @ damp)
        return replace(
            self,
            covariance=Covariance(kernel, reduction),
            basis=replace(basis, penalty=penalty),
            n_folds=self.n_folds + 1,
        )

    def _grown_basis(self, points: Points) -> Basis:
        """Return the basis with landmarks from ``points``, as many as there is room for."""
        kernel = self.covariance.kernel
        if self.basis is None:
            landmarks = take_rows(points, self._choose(points.shape[0], self.n_landmarks))
            whitening = whiten(kernel, landmarks)
            rank = whitening.shape[1]
            return Basis(landmarks, whitening, np.zeros((rank, rank)))
        room = self.n_landmarks - self.basis.landmarks.shape[0]
        if room <= 0:
            return self.basis
        chosen = take_rows(points, self._choose(points.shape[0], room))
        return self.basis.extend(kernel, chosen)

    def _choose(self, n_points: int, wanted: int) -> np.ndarray:
        """Return sorted indices of at most ``wanted`` points, uniformly at random."""
        if n_points <= wanted:
            return np.arange(n_points)
        generator = np.random.default_rng((self.seed, self.n_folds))
        return np.sort(generator.choice(n_points, wanted, replace=False))


def whiten(kernel: Kernel, landmarks: Points) -> Array:
    """Return W, (m, r), with ``W' K W = I`` on the directions worth keeping."""
    values, vectors = eigh(kernel(landmarks, landmarks))
    kept = values > EIGENVALUE_CUTOFF * max(float(values[-1]), 0.0)
    return vectors[:, kept] / np.sqrt(values[kept])

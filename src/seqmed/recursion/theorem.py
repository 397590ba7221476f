"""Theorem 2: what one smoothness penalty does to a covariance."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, eigh

from seqmed import factoring
from seqmed.arrays import Array, Points, stack
from seqmed.factoring import cholesky, solve_lower
from seqmed.graph import Smoothness
from seqmed.posterior import Covariance, Reduction, check_variance


def damping(penalty_factor: Array, gram: Array) -> Array:
    """Return J, (n, r), with ``J J' = (I + P K)^{-1} P`` for a penalty ``P = R R'``.

    This is the matrix S of Theorem 2. The paper inverts P, which is singular; in
    ``S = R (I + R'KR)^{-1} R'`` only a matrix with eigenvalues >= 1 is factored. Where rounding of
    a huge K, or an indefinite one, spoils that, its negative eigenvalues count as zero; more than
    `factoring.LARGEST` rows are refused then.
    """
    product = penalty_factor.T @ gram @ penalty_factor
    product = 0.5 * (product + product.T)
    try:
        lower = cholesky(product + np.eye(product.shape[0]))
    except LinAlgError:
        if product.shape[0] > factoring.LARGEST:
            variances = np.diagonal(gram)
            check_variance(np.full_like(variances, -np.inf), variances)
        values, vectors = eigh(product)
        return (penalty_factor @ vectors) / np.sqrt(1.0 + np.maximum(values, 0.0))
    return solve_lower(lower, penalty_factor.T).T


def fold_exactly(covariance: Covariance, points: Points, smoothness: Smoothness) -> Covariance:
    """Return ``k_t = k_{t-1} - k_{t-1}(., X) S k_{t-1}(X, .)`` with X among the anchors.

    With ``k_{t-1}(., X) = k(., X) - k(., Z) Q psi(X)'`` the new factor has the block columns
    (Q, 0) and (-Q psi(X)'J, J) on the anchors (Z, X).
    """
    damp = damping(smoothness.factor(), covariance(points, points))
    kernel, old = covariance.kernel, covariance.reduction
    if old is None:
        return Covariance(kernel, Reduction(points, damp))
    lifted = -old.factor @ (old.features(kernel, points).T @ damp)
    corner = np.zeros((points.shape[0], old.factor.shape[1]))
    factor = np.block([[old.factor, lifted], [corner, damp]])
    return Covariance(kernel, Reduction(stack(old.anchors, points), factor))


def discount(covariance: Covariance, share: float) -> Covariance:
    """Return the covariance of a penalty scaled by ``share`` in (0, 1].

    With ``S = Q Q'`` of a penalty P on the anchors and ``B = Q' K Q``, whose eigenvalues are below
    1, that of ``share * P`` is ``share * Q (I - (1 - share) B)^{-1} Q'``.
    """
    old = covariance.reduction
    if old is None or share == 1.0:
        return covariance
    factor = old.factor
    product = factor.T @ covariance.kernel(old.anchors, old.anchors) @ factor
    rest = np.eye(product.shape[0]) - 0.5 * (1.0 - share) * (product + product.T)
    lower = cholesky(rest)
    scaled = np.sqrt(share) * solve_lower(lower, factor.T).T
    return Covariance(covariance.kernel, Reduction(old.anchors, scaled))

"""The spectral recursion: section 3.2 of the paper, with details that the paper leaves open.

From the third batch on, r pseudo-points represent earlier batches. They are running means, over
batches X_t, of the right singular vectors V, the singular values s, and the Laplacian values d.
Each value ``d_i = u_i' L u_i`` is the Rayleigh quotient of a left singular vector u_i. The prior
kernel is the base kernel smoothed by the penalty ``diag(B s^2 d)`` on V, where B is the sum of all
smoothness weights so far. The new batch is then folded in exactly. The first two batches are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import svd

from seqmed.margin.covariance.exact import (
    ExactRecursion,
    FoldResult,
    LowRankCovariance,
    Reduction,
    fold_exactly,
    reduction_factor,
)
from seqmed.margin.laplacian import Smoothness
from seqmed.numeric.arrays import Array, Points

EXACT_BATCHES = 2


@dataclass(frozen=True)
class Spectrum:
    """Running means over ``count`` batches: vectors (r, p), singular values and d, both (r,)."""

    vectors: Array
    singular_values: Array
    laplacian_values: Array
    count: int = 1

    @property
    def rank(self) -> int:
        """Number of pseudo-points."""
        return int(self.vectors.shape[0])

    def average(self, new: Spectrum, rank: int) -> Spectrum:
        """Return the leading ``rank`` means with one more batch.

        The vectors of the batch get the signs of the means.
        """
        vectors, others = self.vectors[:rank], new.vectors[:rank]
        signs = np.where(np.einsum("ij,ij->i", vectors, others) < 0, -1.0, 1.0)
        step = 1.0 / (self.count + 1)

        def averaged(means: Array, values: Array) -> Array:
            return means[:rank] + step * (values[:rank] - means[:rank])

        return Spectrum(
            averaged(vectors, signs[:, None] * others),
            averaged(self.singular_values, new.singular_values),
            averaged(self.laplacian_values, new.laplacian_values),
            self.count + 1,
        )


def spectrum_of(points: Points, smoothness: Smoothness) -> Spectrum:
    """Return the spectrum of one batch, of rank min(n, p)."""
    left, values, right = svd(points, full_matrices=False)
    # The sign of a singular vector is arbitrary, but kernel values depend on it. The data determine
    # the sign, independently of the order of the rows.
    projections = left * values
    signs = np.where(np.sum(projections * np.abs(projections), axis=0) < 0, -1.0, 1.0)
    right = signs[:, None] * right
    unit = replace(smoothness, weight=1.0)
    rayleigh = np.maximum(np.diagonal(unit.quadratic(left)), 0.0)
    return Spectrum(right, values, rayleigh)


@dataclass(frozen=True)
class SpectralRecursion(ExactRecursion):
    """The covariance in O(r p) memory plus the newest batch.

    Parameters
    ----------
    covariance : its landmarks are the pseudo-points and the rows of the newest batch.
    spectrum : running means over the batches so far, None before the first.
    penalty_weight : sum of the weights ``2 beta_t`` so far.
    n_folds : batches folded in.
    """

    spectrum: Spectrum | None = None
    penalty_weight: float = 0.0
    n_folds: int = 0

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        assert forgetting == 1.0  # running means give every batch the same weight
        if smoothness is None:
            return FoldResult(self)
        prior, past = self.covariance, self.spectrum
        if past is not None and self.n_folds >= EXACT_BATCHES:  # represented by pseudo-points
            scale = self.penalty_weight * past.laplacian_values
            factor = np.diag(past.singular_values * np.sqrt(scale))
            gram = prior.kernel(past.vectors, past.vectors)
            reduction = Reduction(past.vectors, reduction_factor(factor, gram))
            prior = LowRankCovariance(prior.kernel, reduction)
        covariance = fold_exactly(prior, points, smoothness)
        assert covariance.reduction is not None
        recursion = SpectralRecursion(
            covariance=covariance,
            spectrum=self._remember(spectrum_of(points, smoothness)),
            penalty_weight=self.penalty_weight + smoothness.weight,
            n_folds=self.n_folds + 1,
        )
        return FoldResult(recursion, np.full(covariance.reduction.landmarks.shape[0], -1))

    def _remember(self, new: Spectrum) -> Spectrum:
        """Return the running means with a batch added; a batch of smaller rank is left out.

        The rank is that of the smaller of the first two batches.
        """
        past = self.spectrum
        if past is None:
            return new
        rank = past.rank if self.n_folds >= EXACT_BATCHES else min(past.rank, new.rank)
        return past if new.rank < rank else past.average(new, rank)

"""The landmark recursion: smoothness is projected on m landmarks, labels use the exact kernel.

The first m points of the stream are landmarks. Later the landmarks are a uniform sample of all
points seen (a reservoir). Replacing landmarks is expensive, so it is deferred until the pending
points are a tenth of the stream. The penalty ``f' P f`` of a batch is projected on the landmarks,
and an m x m matrix is conditioned on it. If landmarks are replaced, the covariance of the remaining
landmarks is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from seqmed.margin.covariance.basis import Basis, empty_basis
from seqmed.margin.covariance.low_rank import LowRankCovariance
from seqmed.margin.covariance.protocol import FoldResult, Projection
from seqmed.margin.laplacian import Smoothness
from seqmed.numeric.arrays import Array, Indices, Points, take_rows

# Landmark replacement is deferred until the pending points are this fraction of the stream:
# replacing one landmark costs as much as replacing many.
DEFERRED = 0.1


@dataclass(frozen=True)
class LandmarkRecursion:
    """The covariance in O(m^2 + m p) memory, for streams of any length.

    Parameters
    ----------
    covariance : the current covariance.
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

    grows: ClassVar[bool] = True

    @property
    def landmarks(self) -> Points | None:
        return None if self.basis is None else self.basis.landmarks

    def project(self, points: Points, coefficients: Array) -> Projection:
        assert self.basis is not None
        return self.basis.project(self.covariance.kernel, points, coefficients)

    def residual_variances(self, points: Points) -> Array:
        assert self.basis is not None
        return self.basis.residual_variances(self.covariance.kernel, points)

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        """Return the recursion after one more batch; landmarks are added even without a penalty."""
        kernel, n = self.covariance.kernel, points.shape[0]
        basis, keys, factor = self._forgotten(points, forgetting)
        seen, pending = forgetting * self.n_seen + n, forgetting * self.n_pending + n
        represented = pending
        if basis.size == self.capacity:
            represented = replaced_now(n, pending, seen, self.capacity)
        origin, cost = None, 0.0
        draws = draw_keys(n, self.seed, self.n_folds, represented) if represented else np.zeros(0)
        chosen = largest(np.append(keys, draws), self.capacity)
        stays, enters = chosen[chosen < basis.size], chosen[chosen >= basis.size] - basis.size
        if enters.size:
            new = take_rows(points, enters)
            if stays.size == basis.size:
                basis = basis.extend(kernel, new)
            else:
                basis, cost = basis.replace_landmarks(kernel, stays, new, factor)
            origin = np.append(stays, np.full(enters.size, -1))
            keys = np.append(keys[stays], draws[enters])
        if smoothness is not None:
            basis = basis.observe(smoothness.observations(basis.features(kernel, points)))
        covariance = self.covariance  # the base kernel, before any penalty
        if basis.coefficient_covariance is not None:
            covariance = basis.covariance(kernel)
        folded = replace(
            self,
            covariance=covariance,
            basis=basis,
            keys=keys,
            n_folds=self.n_folds + 1,
            n_seen=seen,
            n_pending=pending - represented,
        )
        return FoldResult(folded, origin, cost)

    def _forgotten(self, points: Points, forgetting: float) -> tuple[Basis, Array, Array | None]:
        """Return the discounted basis, its keys, and its `Basis.factor` if it is known."""
        if self.basis is None or self.keys is None:
            return empty_basis(points), np.zeros(0), None
        if forgetting < 1:
            return self.basis.forget(forgetting), forgotten(self.keys, forgetting), None
        reduction = self.covariance.reduction
        return self.basis, self.keys, None if reduction is None else reduction.factor

    def add_labeled(self, points: Points) -> FoldResult:
        """Return the recursion unchanged: labels are learned with the exact kernel."""
        return FoldResult(self)


def replaced_now(n: int, pending: float, seen: float, n_landmarks: int) -> float:
    """Return how many pending points the last n points represent; 0 to defer the replacement.

    There are two reasons to replace now: the pending points are a large enough fraction of the
    stream, or the landmarks due for replacement need all n points. The remaining points stay
    pending.
    """
    due = n_landmarks * pending / seen
    # n points are enough for this expected number of replacements, plus three standard deviations
    most = max(n / 8, n - 3.0 * np.sqrt(n))
    if pending < DEFERRED * seen and due < most:
        return 0.0
    return float(max(n, pending * min(1.0, most / due)))


def draw_keys(n: int, seed: int, n_folds: int, represented: float) -> Array:
    """Return one negative key per point, (n,): the m largest of a stream are a uniform sample.

    If the n points represent ``represented > n`` points, they get the n largest of that many keys.
    Forgetting divides the keys of earlier points by the forgetting factor, see `forgotten`.
    """
    generator = np.random.default_rng((seed, n_folds))
    keys = np.log(generator.random(n))
    if represented == n:
        return keys
    # the largest of N uniform numbers is the N-th root of one; this repeats with N - 1, N - 2, ...
    return generator.permutation(np.cumsum(keys / (represented - np.arange(n))))


def forgotten(keys: Array, forgetting: float) -> Array:
    """Return the keys of earlier points divided by ``forgetting`` in (0, 1); they stay finite."""
    with np.errstate(over="ignore"):
        return np.maximum(keys / forgetting, np.finfo(np.float64).min)


def largest(keys: Array, wanted: int) -> Indices:
    """Return the sorted indices of the ``wanted`` largest keys, all of them if there are fewer."""
    if keys.size <= wanted:
        return np.arange(keys.size)
    return np.sort(np.argpartition(keys, keys.size - wanted)[keys.size - wanted :])

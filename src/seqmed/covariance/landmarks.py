"""The landmark recursion: smoothness is projected on m points, labels keep the exact kernel.

The landmarks are taken from the stream as it comes: all points until there are m, and then a
uniform sample of everything seen (a reservoir). Replacing landmarks is expensive, so it is deferred
until the pending points are a tenth of the stream. The penalty ``f' P f`` of a batch, as far
as landmarks express it, conditions an m x m matrix; replacing some of them keeps the covariance on
those that stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from seqmed.arrays import Array, Indices, Points, take_rows
from seqmed.covariance.basis import Basis, empty_basis
from seqmed.covariance.low_rank import LowRankCovariance
from seqmed.covariance.protocol import Folded, Projection
from seqmed.graph.laplacian import Smoothness

# Landmark replacement is deferred until the pending points are this share of the stream: replacing
# one landmark costs as much as replacing many.
DEFERRED = 0.1


@dataclass(frozen=True)
class LandmarkRecursion:
    """The covariance in memory O(m^2 + m p), for streams of any length.

    Parameters
    ----------
    covariance : the current covariance.
    capacity : how many landmarks to grow to.
    seed : entropy of the choice among points.
    basis : the landmarks and their covariance, None before the first batch.
    keys : (m,) random keys of the landmarks; those of the largest keys stay.
    n_folds : batches folded in.
    n_seen, n_pending : points seen, and those of them that have not been offered as landmarks yet,
        both with those of the past discounted by forgetting.
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

    def forget(self, share: float) -> LandmarkRecursion:
        """Return the recursion with every penalty so far scaled by ``share``.

        The covariance follows with the next fold; until then it is the base kernel.
        """
        if self.basis is None or self.keys is None:
            return self
        covariance = self.covariance
        if covariance.reduction is not None:
            covariance = LowRankCovariance(covariance.kernel)
        return replace(
            self,
            basis=self.basis.forget(share),
            keys=forgotten(self.keys, share),
            covariance=covariance,
            n_seen=share * self.n_seen,
            n_pending=share * self.n_pending,
        )

    def project(self, points: Points, coefficients: Array) -> Projection:
        assert self.basis is not None
        return self.basis.project(self.covariance.kernel, points, coefficients)

    def unexplained(self, points: Points) -> Array:
        assert self.basis is not None
        return self.basis.unexplained(self.covariance.kernel, points)

    def fold(self, points: Points, smoothness: Smoothness | None) -> Folded:
        """Return the recursion after one more batch; without a penalty, landmarks still grow."""
        kernel = self.covariance.kernel
        grown, origin, cost = self._with_landmarks_from(points)
        basis = grown.basis
        assert basis is not None
        if smoothness is not None:
            basis = basis.observe(smoothness.observations(basis.features(kernel, points)))
        covariance = (
            self.covariance if basis.coefficient_covariance is None else basis.covariance(kernel)
        )
        folded = replace(grown, basis=basis, covariance=covariance, n_folds=self.n_folds + 1)
        return Folded(folded, origin, cost)

    def add_labeled(self, points: Points) -> Folded:
        """Return the recursion itself: labels are learned with the whole kernel."""
        return Folded(self)

    def _with_landmarks_from(
        self, points: Points
    ) -> tuple[LandmarkRecursion, Indices | None, float]:
        """Return the recursion with the ``points`` of the largest keys among the landmarks."""
        kernel = self.covariance.kernel
        basis, keys = self.basis, self.keys
        if basis is None or keys is None:
            basis, keys = empty_basis(points), np.zeros(0)
        n = points.shape[0]
        seen, pending = self.n_seen + n, self.n_pending + n
        represented = pending
        if basis.size == self.capacity:
            represented = replaced_now(n, pending, seen, self.capacity)
        drawn = replace(self, n_seen=seen, n_pending=pending - represented)
        if not represented:
            return drawn, None, 0.0
        draws = draw_keys(n, self.seed, self.n_folds, represented)
        chosen = largest(np.append(keys, draws), self.capacity)
        stays, enters = chosen[chosen < basis.size], chosen[chosen >= basis.size] - basis.size
        if not enters.size:
            return drawn, None, 0.0
        new, cost = take_rows(points, enters), 0.0
        if stays.size == basis.size:
            basis = basis.extend(kernel, new)
        else:
            reduction = self.covariance.reduction
            factor = None if reduction is None else reduction.factor
            basis, cost = basis.exchange(kernel, stays, new, factor)
        origin = np.append(stays, np.full(enters.size, -1))
        grown = replace(drawn, basis=basis, keys=np.append(keys[stays], draws[enters]))
        return grown, origin, cost


def replaced_now(n: int, pending: float, seen: float, n_landmarks: int) -> float:
    """Return how many pending points the last n of them represent; 0 to defer the replacement.

    It is not deferred if pending points are a large enough share of the stream, or if their places
    among the landmarks are as many as n points can fill. The remaining points stay pending.
    """
    due = n_landmarks * pending / seen
    most = max(n / 8, n - 3.0 * np.sqrt(n))  # in number, or in the mean of a number, of places
    if pending < DEFERRED * seen and due < most:
        return 0.0
    return float(max(n, pending * min(1.0, most / due)))


def draw_keys(n: int, seed: int, n_folds: int, represented: float) -> Array:
    """Return one negative key per point, (n,): the m largest of a stream are a uniform sample.

    Where n points represent ``represented >= n``, each of the n largest keys of so many goes
    to one of the points. Keys of the past divided by ``forgetting`` at every step make it a sample
    that forgets.
    """
    generator = np.random.default_rng((seed, n_folds))
    keys = np.log(generator.random(n))
    if represented == n:
        return keys
    # the largest of N is the N-th root of one, the next largest that of the N - 1 below it
    return generator.permutation(np.cumsum(keys / (represented - np.arange(n))))


def forgotten(keys: Array, share: float) -> Array:
    """Return the keys of the past divided by ``share`` in (0, 1), finite."""
    with np.errstate(over="ignore"):
        return np.maximum(keys / share, np.finfo(np.float64).min)


def largest(keys: Array, wanted: int) -> Indices:
    """Return the sorted indices of the ``wanted`` largest keys, all of them if there are fewer."""
    if keys.size <= wanted:
        return np.arange(keys.size)
    return np.sort(np.argpartition(keys, keys.size - wanted)[keys.size - wanted :])

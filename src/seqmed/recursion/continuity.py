"""Graph continuity: new points are linked to kept ones.

The paper's graph falls into one piece per batch. Here points are kept from the past, and the graph
of a batch spans them and the new ones. Each point i says one thing, that its value is the mean of
its neighbours', ``r_i = f(x_i) - sum_j P_ij f(x_j)``, at the price ``strength * r_i^2``: an
observation of zero with variance ``1 / strength``. While a point is kept, its row is rewritten with
every batch, by its neighbours of that time; when it is dropped, its row has counted once more, and
a share of it may be committed for good.

The state is a Gaussian on the kept points Z, by its covariance S = cov f(Z): rows are conditioned
on, dropped points are left out of the matrix, new ones are added by the base kernel. All of it is
exact for the points that stay. Where nothing is committed, S is the base kernel's own matrix, and
the points are all there is to keep.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.arrays import (
    Array,
    Points,
    distinct_rows,
    found_among,
    no_indices,
    no_rows,
    positions_among,
    stack,
    take_rows,
)
from seqmed.graph import Smoothness
from seqmed.kernels import Expansion, Kernel
from seqmed.posterior import CovarianceFunction, Projection
from seqmed.recursion.basis import Basis, conditioned, relaxed, whiten_gram, whiten_points
from seqmed.recursion.landmarks import draw_keys, largest
from seqmed.sharing import shared


@dataclass(frozen=True)
class PointCovariance:
    """The covariance of a function known by a Gaussian on anchors Q, elsewhere by the base kernel.

    ``k_t(x, x') = k(x, x') - b(x)' (K - S) b(x')`` with ``b(x) = K^{-1} k(Q, x)``.

    Parameters
    ----------
    kernel : the base kernel.
    anchors : the points Q, (q, p), distinct.
    values : the matrix S, (q, q).
    basis : the whitened anchors while an update is at work; made anew when it is needed later, so
        that a model at rest does not hold it.
    """

    kernel: Kernel
    anchors: Points
    values: Array
    basis: Basis | None = None

    within_anchors: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """Kernel values to compute for one point."""
        return self.anchors.shape[0]

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of the function's values on two sets of rows."""
        rows = positions_among(left, self.anchors)
        columns = rows if left is right else positions_among(right, self.anchors)
        if (rows >= 0).all() and (columns >= 0).all():
            return self.values[np.ix_(rows, columns)]
        basis = self._whitened()
        features = basis.features(self.kernel, left)
        others = features if left is right else basis.features(self.kernel, right)
        reduced = features @ (self._taken(basis) @ others.T)
        if left is right:
            reduced = 0.5 * (reduced + reduced.T)
        return self.kernel(left, right) - reduced

    def diagonal(self, points: Points) -> Array:
        """Return the variance at every row, (n,), >= 0."""
        basis = self._whitened()
        features = basis.features(self.kernel, points)
        reduced = np.einsum("ij,ij->i", features @ self._taken(basis), features)
        return np.maximum(self.kernel.diagonal(points) - reduced, 0.0)

    def in_base_kernel(self, expansion: Expansion) -> tuple[Expansion, ...]:
        """Return ``sum_s k_t(., x_s) c_s`` as a sum of expansions in the base kernel."""
        heads = expansion.coefficients.shape[1]
        if not expansion.points.shape[0]:
            return (expansion, Expansion(self.anchors, np.zeros((self.width, heads))))
        inner = self.kernel(self.anchors, expansion.points) @ expansion.coefficients
        return (expansion, Expansion(self.anchors, self.smoothed(inner)))

    def smoothed(self, at_anchors: Array) -> Array:
        """Return what smoothness adds to a function, by its values at the anchors.

        Both are (q, heads): values in the base kernel, and coefficients of an expansion in it.
        """
        whitening = self._whitened().whitening
        weights = whitening @ (whitening.T @ at_anchors)
        return whitening @ (whitening.T @ (self.values @ weights)) - weights

    def _whitened(self) -> Basis:
        return self.basis or whiten_points(self.kernel, self.anchors)

    def _taken(self, basis: Basis) -> Array:
        """Return ``I - W'SW``, (q, q): what smoothness has taken, in whitened coordinates."""
        taken = -(basis.whitening.T @ self.values @ basis.whitening)
        taken[np.diag_indices_from(taken)] += basis.whitening.any(axis=0)
        return taken


@dataclass(frozen=True)
class ContinuousRecursion:
    """Carries the covariance on kept points: those of the window, and a sample of the others.

    Parameters
    ----------
    covariance : the current covariance; its anchors are the points of the last graph.
    memory : how many points to keep besides the pinned ones.
    commit : share in [0, 1] of what a dropped point said that goes on to count after its batch.
    seed : entropy of the choice among points.
    committed : (m, m) covariance of the function on the kept points, by all rows committed so far;
        None while there are none.
    keys : (q,) the draw by which each anchor holds its place, the largest stay; -inf for one whose
        row is committed, which cannot come back.
    kept : (m,) where the kept points stand among the anchors.
    anchors : the points of the last graph, (q, p); None before the first.
    origin : (q,) where each anchor stood before the last fold, -1 for a new one.
    n_folds : batches folded in.
    """

    covariance: CovarianceFunction
    memory: int
    commit: float
    seed: int
    committed: Array | None = None
    keys: Array = field(default_factory=lambda: np.zeros(0))
    kept: NDArray[np.intp] = field(default_factory=no_indices)
    anchors: Points | None = None
    origin: NDArray[np.intp] = field(default_factory=no_indices)
    n_folds: int = 0
    pins: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    replacement_cost: ClassVar[float] = 0.0

    def vertices(self, points: Points, labeled: Points) -> Points:
        """Return what a graph of the batch spans: the kept points, and those of the batch.

        A labeled point that was dropped before its label came takes part again, unless its row is
        committed and would count twice.
        """
        kept = no_rows(points) if self.anchors is None else take_rows(self.anchors, self.kept)
        if self.commit:
            labeled = no_rows(labeled)
        return union(kept, points, take_rows(labeled, distinct_rows(labeled)))

    def forget(self, share: float) -> ContinuousRecursion:
        """Return the recursion with every penalty committed so far scaled by ``share``.

        In whitened coordinates ``V = (I + H)^{-1}`` becomes ``(I + share H)^{-1}``.
        """
        lighter = replace(self, keys=self.keys / share)
        if self.committed is None:
            return lighter
        gram = self.covariance.kernel(*[take_rows(self.anchors, self.kept)] * 2)
        whitening = whiten_gram(gram)
        known = whitening.T @ self.committed @ whitening
        features = gram @ whitening
        committed = features @ relaxed(0.5 * (known + known.T), share) @ features.T
        return replace(lighter, committed=0.5 * (committed + committed.T))

    def project(self, points: Points, coefficients: Array) -> Projection:
        """Return the nearest expansion on the kept points, with zeros on the other anchors."""
        kernel = self.covariance.kernel
        basis = whiten_points(kernel, take_rows(self.anchors, self.kept))
        found = basis.project(kernel, points, coefficients)
        on_anchors = np.zeros((self.origin.size, coefficients.shape[1]))
        on_anchors[self.kept] = found.coefficients
        return found._replace(coefficients=on_anchors)

    def unexplained(self, points: Points) -> Array:
        """Return what projecting loses of each row, (n,)."""
        kernel = self.covariance.kernel
        return whiten_points(kernel, take_rows(self.anchors, self.kept)).unexplained(kernel, points)

    def fold(
        self,
        points: Points,
        smoothness: Smoothness | None,
        pinned: NDArray[np.bool_] | None = None,
    ) -> ContinuousRecursion:
        """Return the recursion after one more batch, with ``points`` from `vertices`."""
        kernel = self.covariance.kernel
        n, m = points.shape[0], self.kept.size
        keys = np.append(self.keys[self.kept], draw_keys(n - m, self.seed, self.n_folds))
        stays = self._staying(keys, np.zeros(n, dtype=bool) if pinned is None else pinned)
        kept = np.flatnonzero(stays)

        gram = kernel(points, points)
        basis = Basis(points, whiten_gram(gram))
        known = gram if self.committed is None else extended(self.committed, gram)
        committed = None if self.committed is None else known[np.ix_(kept, kept)]
        if smoothness is not None:
            rows = smoothness.scaled_rows()
            if self.commit > 0 and not stays.all():
                known = conditioned(known, np.sqrt(self.commit) * rows[~stays])
                committed = known[np.ix_(kept, kept)]
            shares = np.where(stays, 1.0, 1.0 - self.commit)  # what is not committed counts today
            known = conditioned(known, sp.csr_array(sp.diags_array(np.sqrt(shares)) @ rows))
        if committed is not None:
            keys = np.where(stays, keys, -np.inf)
        return replace(
            self,
            covariance=PointCovariance(kernel, points, known, basis),
            committed=committed,
            keys=keys,
            kept=kept,
            anchors=points,
            origin=np.append(self.kept, np.full(n - m, -1)),
            n_folds=self.n_folds + 1,
        )

    def reach(self, window: Points, n_new: int) -> ContinuousRecursion:
        """Return the recursion itself: labels are learned with the whole kernel."""
        return self

    def repin(self, pinned: Points) -> ContinuousRecursion:
        """Return the recursion with those of its anchors pinned; the others compete to stay."""
        if self.anchors is None:
            return self
        among = found_among(self.anchors, pinned) & (self.keys > -np.inf)
        kept = np.flatnonzero(self._staying(self.keys, among))
        if self.committed is None:
            return replace(self, kept=kept)
        places = np.searchsorted(self.kept, kept)
        dropped = np.setdiff1d(self.kept, kept)
        keys = self.keys.copy()
        keys[dropped] = -np.inf  # what is committed is known of those that stay, and no others
        committed = self.committed[np.ix_(places, places)]
        return replace(self, kept=kept, keys=keys, committed=committed)

    def _staying(self, keys: Array, pinned: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask (n,) of the pinned points and of those with the largest keys."""
        stays = pinned.copy()
        others = np.flatnonzero(~stays & (keys > -np.inf))
        stays[others[largest(keys[others], self.memory)]] = True
        return stays

    def at_rest(self) -> ContinuousRecursion:
        """Return the recursion without what can be made anew."""
        if isinstance(self.covariance, PointCovariance):
            return replace(self, covariance=replace(self.covariance, basis=None))
        return self


@shared
def union(kept: Points, points: Points, labeled: Points) -> Points:
    """Return the rows of all three, each of distinct rows, without those that came before."""
    spanned = points
    if kept.shape[0]:
        spanned = stack(kept, take_rows(points, ~found_among(points, kept)))
    missing = take_rows(labeled, ~found_among(labeled, spanned))
    return stack(spanned, missing) if missing.shape[0] else spanned


@shared
def extended(known: Array, gram: Array) -> Array:
    """Return the covariance (n, n) of a function on points, known (m, m) on the first m of them.

    ``gram`` (n, n) is the base kernel's. In whitened coordinates what is new in a point is
    independent of what is known.
    """
    m = known.shape[0]
    whitening = whiten_gram(gram[:m, :m])
    features = gram[m:, :m] @ whitening
    across = (known @ whitening) @ features.T
    corner = gram[m:, m:] - features @ (features.T - whitening.T @ across)
    return np.block([[known, across], [across.T, 0.5 * (corner + corner.T)]])

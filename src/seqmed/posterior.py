"""What is known after t batches: a Gaussian over functions, its mean and its spread.

The covariance carries everything the unlabeled data has said, the mean everything the labels have.
The recursions of smoothness produce a covariance of one form,

    k_t(x, x') = k(x, x') - psi(x) . psi(x'),      psi(x) = k(x, Z) Q,

the base kernel less what smoothness has already decided, with anchor points Z and a factor Q.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.arrays import Array, Points, take_rows
from seqmed.factoring import symmetric_product
from seqmed.graph import GraphRecipe, Smoothness
from seqmed.kernels import Expansion, Kernel, blocks, evaluate
from seqmed.triangular import times_upper

# Share of k(x, x) by which rounding may make its reduction exceed it.
LARGEST_EXCESS = 1e-6


@dataclass(frozen=True)
class Reduction:
    """What smoothness takes from the base kernel: anchors Z, (m, p), and a factor Q, (m, r)."""

    anchors: Points
    factor: Array

    def features(self, kernel: Kernel, points: Points) -> Array:
        """Return psi of every row, (n, r)."""
        return times_upper(kernel(points, self.anchors), self.factor)


@dataclass(frozen=True)
class Covariance:
    """The covariance function of a posterior: a base kernel and, once smoothed, its reduction."""

    kernel: Kernel
    reduction: Reduction | None = None

    within_anchors: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """Kernel values to compute for one point."""
        return 1 if self.reduction is None else self.reduction.anchors.shape[0]

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of the function's values on two sets of rows."""
        values = self.kernel(left, right)
        if self.reduction is None:
            return values
        features = self.reduction.features(self.kernel, left)
        if left is right:
            check_reduction(np.diagonal(values), features)
            return values - symmetric_product(features)
        return values - features @ self.reduction.features(self.kernel, right).T

    def diagonal(self, points: Points) -> Array:
        """Return the variance at every row, (n,), >= 0."""
        variances = self.kernel.diagonal(points)
        if self.reduction is not None:
            features = self.reduction.features(self.kernel, points)
            variances = variances - np.einsum("ij,ij->i", features, features)
        return np.maximum(variances, 0.0)

    def in_base_kernel(self, expansion: Expansion) -> tuple[Expansion, ...]:
        """Return ``sum_s k_t(., x_s) c_s`` as a sum of expansions in the base kernel."""
        if self.reduction is None:
            return (expansion,)
        anchors = self.reduction.anchors
        inner = self.kernel(expansion.points, anchors).T @ expansion.coefficients
        return (expansion, Expansion(anchors, self.smoothed(inner)))

    def smoothed(self, at_anchors: Array) -> Array:
        """Return what smoothness adds to a function, by its values at the anchors.

        Both are (m, heads): values in the base kernel, and coefficients of an expansion in it.
        """
        if self.reduction is None:
            return np.zeros_like(at_anchors)
        factor = self.reduction.factor
        return -(factor @ (factor.T @ at_anchors))


def check_reduction(variances: Array, features: Array) -> None:
    """Refuse to go on where the reduction exceeds what there was to reduce.

    In exact arithmetic ``psi(x) . psi(x) <= k(x, x)``. Kernel values so large that rounding breaks
    this would be amplified by every further batch.
    """
    check_variance(variances - np.einsum("ij,ij->i", features, features), variances)


def check_variance(rest: Array, variances: Array) -> None:
    """Refuse variances (n,) that smoothing has made negative by more than rounding does."""
    if not (rest >= -LARGEST_EXCESS * np.abs(variances)).all():
        raise ValueError(
            f"kernel values of up to {np.abs(variances).max():.3g} are too large for this "
            "smoothing in double precision, or the kernel is not positive semi-definite, expected "
            "one that is, with values nearer to 1: scale the features (for example with "
            "StandardScaler), lower beta, or mend the kernel."
        )


class CovarianceFunction(Protocol):
    """What a posterior asks of its covariance."""

    @property
    def kernel(self) -> Kernel:
        """The base kernel."""

    @property
    def width(self) -> int:
        """Kernel values to compute for one point."""

    @property
    def within_anchors(self) -> bool:
        """Whether ``k_t(., x)`` is a sum over anchors, and ``k(., z)`` itself at an anchor z."""

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of the function's values on two sets of rows."""

    def diagonal(self, points: Points) -> Array:
        """Return the variance at every row, (n,), >= 0."""

    def in_base_kernel(self, expansion: Expansion) -> tuple[Expansion, ...]:
        """Return ``sum_s k_t(., x_s) c_s`` in the base kernel.

        That is the expansion itself and a part on anchors, or the part alone, `within_anchors`.
        """

    def smoothed(self, at_anchors: Array) -> Array:
        """Return what smoothness adds to a function, by its values at the anchors.

        Both are (q, heads): values in the base kernel, and coefficients of an expansion in it.
        """


class Projection(NamedTuple):
    """An expansion brought to other points.

    Attributes
    ----------
    coefficients : (q, heads) on the anchors of a recursion.
    squared_error : (heads,) squared norm, in the base kernel's space, of what was lost.
    """

    coefficients: Array
    squared_error: Array


class Recursion(Protocol):
    """A way to carry the covariance from batch to batch (Theorem 2)."""

    @property
    def covariance(self) -> CovarianceFunction:
        """The covariance with every batch so far folded in."""

    @property
    def anchors(self) -> Points | None:
        """Points (q, p) that outlive a batch, on which expansions may be remembered; or None."""

    @property
    def origin(self) -> NDArray[np.intp]:
        """Where each anchor stood before the last fold, (q,); -1 for a new one."""

    @property
    def grows(self) -> bool:
        """Whether `fold` has a use for points without a penalty: it will project on some."""

    @property
    def replacement_cost(self) -> float:
        """Largest change, by replacing anchors in the last fold, of the variance at one that left.

        As a share of k(z, z).
        """

    def forget(self, share: float) -> Recursion:
        """Return the recursion with every penalty so far scaled by ``share`` in (0, 1).

        Its covariance need not follow before the next fold.
        """

    def fold(self, points: Points, smoothness: Smoothness | None) -> Recursion:
        """Return the recursion after one more batch.

        ``points`` are its distinct rows, ``smoothness`` is the penalty of their graph (None for
        none).
        """

    def reach(self, window: Points, n_new: int) -> Recursion:
        """Return the recursion with anchors for newly labeled points, if it learns on anchors.

        They are the last ``n_new`` of the window.
        """

    def project(self, points: Points, coefficients: Array) -> Projection:
        """Return the nearest function that lives on the lasting anchors."""

    def unexplained(self, points: Points) -> Array:
        """Return the squared norm, (n,), of what `project` loses of each row's kernel function."""


@dataclass(frozen=True)
class Terms:
    """Points that carry the mean.

    Parameters
    ----------
    points : (n, p).
    coefficients : (n, heads) in the current covariance.
    averages : (n, heads) of the averaged mean, in the base kernel; zeros without averaging.
    """

    points: Points
    coefficients: Array
    averages: Array

    @property
    def size(self) -> int:
        """Number of points."""
        return self.points.shape[0]

    def take(self, rows: NDArray[Any]) -> Self:
        """Return some of the rows, by a mask or by indices."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        arrays = {f.name: take_rows(getattr(self, f.name), rows) for f in fields(self)}
        return type(self)(**arrays)

    def mapped(self, transfer: Array) -> Self:
        """Return the terms with heads that are combinations of the old ones, (h, H)."""
        return replace(
            self,
            coefficients=self.coefficients @ transfer,
            averages=self.averages @ transfer,
        )

    @property
    def carrying(self) -> NDArray[np.bool_]:
        """Mask (n,) of the points with any coefficient."""
        return np.any(self.coefficients != 0, axis=1) | np.any(self.averages != 0, axis=1)


@dataclass(frozen=True)
class Watched(Terms):
    """Points of which it is known what settled labels say there.

    Parameters
    ----------
    settled : (n, heads) the sum of the frozen support vectors in the base kernel, coefficients
        those of the newest mean; NaN where it is not known.
    """

    settled: Array

    def mapped(self, transfer: Array) -> Self:
        """Return the terms with heads that are combinations of the old ones, (h, H)."""
        return replace(super().mapped(transfer), settled=self.settled @ transfer)


@dataclass(frozen=True)
class Window(Watched):
    """Labeled points whose multipliers are still to be optimised, oldest first.

    Parameters
    ----------
    signs : (n, heads) targets, each -1.0 or +1.0.
    bounds, shapes : (n,) multiplier bounds and slack shapes.
    weights : (n,) weights of the rows as they were given.
    discounted : (n,) the same, discounted by forgetting.
    batches : (n,) the number of the batch each came with.
    """

    signs: Array
    bounds: Array
    shapes: Array
    weights: Array
    discounted: Array
    batches: NDArray[np.intp]


@dataclass(frozen=True)
class Posterior:
    """The state of a stream learner; every update makes a new one.

    Parameters
    ----------
    recursion : carries the covariance.
    graph : how a batch becomes a graph, with the heat width once it has been measured.
    frozen : support vectors whose multipliers are settled, kept exactly.
    window : labeled points whose multipliers the next update will optimise again.
    on_anchors : coefficients of settled support vectors projected on the recursion's anchors, and
        of the averaged mean there; of the whole mean, if every function is a sum over anchors.
    mean_parts : the mean used for prediction as expansions in the base kernel, ready to evaluate.
    intercepts : (heads,) the bias of each head, that of the averaged mean if it is in use.
    biases : (heads,) the newest bias of each head.
    bias_means : (heads,) prior mean of the bias, before any label.
    settled_balances : (heads,) sum of the signed multipliers that are settled: a finite bias
        variance makes them part of the bias, a diffuse one asks the window to make up for them.
    solved : (heads,) how many updates have solved a dual of this head.
    projection_errors : (2, heads) bounds on how far projections so far have moved a score of the
        newest mean, and of the averaged one, at a point of k(x, x) = 1, the multipliers given.
    bias_variance : prior variance of the bias, inf for a diffuse one.
    n_batches : batches learned.
    """

    recursion: Recursion
    graph: GraphRecipe
    frozen: Terms
    window: Window
    on_anchors: Watched
    mean_parts: tuple[Expansion, ...]
    intercepts: Array
    biases: Array
    bias_means: Array
    settled_balances: Array
    solved: NDArray[np.intp]
    projection_errors: Array
    bias_variance: float
    n_batches: int

    @property
    def covariance(self) -> CovarianceFunction:
        """The current covariance function."""
        return self.recursion.covariance

    @property
    def size(self) -> int:
        """Rows of the largest set of points the mean is made of."""
        return max(part.points.shape[0] for part in self.mean_parts)

    @property
    def projection_error(self) -> Array:
        """Bound (heads,) on how far projections have moved any score of k(x, x) = 1.

        The multipliers are taken as given: what later updates made of the difference is not in it.
        """
        return self.projection_errors.max(axis=0)

    @property
    def support(self) -> Expansion:
        """All points with a coefficient in the current covariance, newest last."""
        if self.covariance.within_anchors:
            return loaded(self.on_anchors)
        kernel = self.covariance.kernel
        return reduce(kernel.join, (loaded(t) for t in (self.on_anchors, self.frozen, self.window)))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays the state consists of, each counted once."""
        return sum(array.nbytes for array in distinct_arrays(self, {}).values())

    def mean(self, points: Points) -> Array:
        """Return the mean score of every row under every head, bias included, (n, heads)."""
        return evaluate(self.covariance.kernel, self.mean_parts, points) + self.intercepts

    def spread(self, points: Points) -> Array:
        """Return the standard deviation of the score at every row, (n,).

        A finite bias variance is part of it; a diffuse one, being infinite everywhere, is not.
        """
        covariance = self.covariance
        variances = np.empty(points.shape[0])
        for rows in blocks(points.shape[0], covariance.width):
            variances[rows] = covariance.diagonal(points[rows])
        if np.isfinite(self.bias_variance):
            variances += self.bias_variance
        return np.sqrt(variances)


def loaded(terms: Terms) -> Expansion:
    """Return the points that carry a coefficient in the current covariance."""
    rows = np.any(terms.coefficients != 0, axis=1)
    if rows.all():
        return Expansion(terms.points, terms.coefficients)
    return Expansion(take_rows(terms.points, rows), terms.coefficients[rows])


def distinct_arrays(value: Any, found: dict[int, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    """Return all arrays within dataclasses, tuples and sparse matrices, by identity."""
    if isinstance(value, np.ndarray):
        owner = value if value.base is None else value.base
        found[id(owner)] = value if not isinstance(owner, np.ndarray) else owner
    elif sp.issparse(value):
        for array in (value.data, value.indices, value.indptr):
            distinct_arrays(array, found)
    elif is_dataclass(value):
        for part in fields(value):
            distinct_arrays(getattr(value, part.name), found)
    elif isinstance(value, tuple):
        for part in value:
            distinct_arrays(part, found)
    return found

"""The dual of one update.

One update of a maximum entropy discrimination classifier is the concave problem

    maximise   -1/2 a'YKYa + a'(1 - Y m) + sum_i e_i log(1 - a_i / C_i)
    subject to  y'a = t,  a >= 0,

with one multiplier ``a_i`` per labeled point. ``K`` is the prior covariance on these points, ``m``
the prior mean, ``C_i`` the bound of a multiplier and ``e_i`` the shape of its slack prior. A shape
of 1 is maximum entropy discrimination. A shape of 0 is the support vector machine, with the hard
box ``a_i <= C_i`` instead of the log term. The sum ``t`` is 0 unless there are frozen multipliers.
A finite prior variance ``v`` of the bias drops the equality and adds ``v`` to ``K``.

The code uses the *signed coefficients* ``c = Y a`` and the *implied bias*

    b_i = y_i (1 - e_i / (C_i - a_i)) - m_i - (K c)_i

of each point ``i``. At the optimum all free support vectors imply the same bias: the solution's
(`seqmed.margin.dual.certificate`). `seqmed.margin.theory.dual_objective` is the problem as one
equation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seqmed.numeric.arrays import Array, Indices, Mask

# Returns the places (m,) of the points of a mask, in any order, and their covariances (m, m) in
# single or double precision.
Block = Callable[[Mask], tuple[Indices, NDArray[np.floating]]]

# Twice the spacing of doubles at 1: one rounding of a multiplier and one of its bound.
ROUNDING = 2 * float(np.finfo(np.float64).eps)
# Largest |y'a|, as a fraction of the sum of the bounds of one class.
LARGEST_SUM = 0.5
# A sum y'a below this fraction of all bounds is treated as 0. If it were kept as the constraint, a
# point that needs no multiplier would become a support vector and determine the bias.
ZERO_SUM = 1e-12


def fits_single_precision(largest: float) -> bool:
    """Whether covariances up to this size can be stored in single precision."""
    return 1e-25 < largest < 1e25


class ComputedRows(Protocol):
    """Covariances whose rows are computed when the solver needs them."""

    def __getitem__(self, rows: Indices, /) -> Array:
        """Return the selected rows, (m, n)."""

    def __matmul__(self, coefficients: Array, /) -> Array:
        """Return the product with ``coefficients`` (n,)."""

    def diagonal(self) -> Array:
        """Return the diagonal, (n,)."""


@dataclass(frozen=True)
class DualProblem:
    """The data of one dual.

    Parameters
    ----------
    gram : (n, n) symmetric positive semi-definite prior covariance of the scores, an array or
        an object that computes its rows.
    signs : (n,) targets, each -1.0 or +1.0.
    prior_scores : (n,) prior mean of the scores; it includes the prior mean of a bias with finite
        variance.
    bounds : (n,) positive upper bounds ``C_i`` of the multipliers.
    shapes : (n,) slack shapes ``e_i >= 0``.
    bias_variance : prior variance of the bias in [0, inf]; ``inf`` is the equality ``y'a = t``.
    multiplier_sum : the value ``t`` of ``y'a`` under a diffuse bias, see `attainable_sum`.
    """

    gram: Array | ComputedRows
    signs: Array
    prior_scores: Array
    bounds: Array
    shapes: Array
    bias_variance: float = np.inf
    multiplier_sum: float = 0.0

    def take(self, rows: Indices | Mask) -> DualProblem:
        """Return the problem of the selected points; ``gram`` is still that of all points."""
        return replace(
            self,
            signs=self.signs[rows],
            prior_scores=self.prior_scores[rows],
            bounds=self.bounds[rows],
            shapes=self.shapes[rows],
        )


def feasible(problem: DualProblem, multipliers: Array) -> Array:
    """Return multipliers (n,) made feasible: within bounds and, for a diffuse bias, ``y'a = t``.

    Multipliers of one sign are scaled down. If that is not enough, multipliers of the other sign
    are raised.
    """
    highest = np.where(problem.shapes > 0, np.nextafter(problem.bounds, 0.0), problem.bounds)
    start = np.clip(multipliers, 0.0, highest)
    if np.isfinite(problem.bias_variance):
        return start
    positive = problem.signs > 0
    excess = float(problem.signs @ start) - problem.multiplier_sum
    lowered, raised = (positive, ~positive) if excess > 0 else (~positive, positive)
    total = float(start[lowered].sum())
    rest = total - abs(excess)
    start[lowered] *= max(rest, 0.0) / total if total > 0 else 1.0
    if rest < 0:
        distance = problem.bounds[raised] - start[raised]
        start[raised] = np.minimum(
            start[raised] - rest * distance / distance.sum(), highest[raised]
        )
    return start


def attainable_sum(signs: Array, bounds: Array, wanted: float) -> float:
    """Return the value of ``y'a`` nearest to ``wanted`` at which multipliers can still vary."""
    if abs(wanted) <= ZERO_SUM * float(bounds.sum()):
        return 0.0
    most = LARGEST_SUM * float(bounds[signs > 0].sum())
    least = -LARGEST_SUM * float(bounds[signs < 0].sum())
    return min(max(wanted, least), most)


def score_errors(problem: DualProblem, multipliers: Array) -> Array:
    """Return the errors ``y_i - m_i - (K c)_i`` of the scores without a bias, (n,)."""
    coefficients = problem.signs * multipliers
    return problem.signs - problem.prior_scores - problem.gram @ coefficients


# Memory of the row cache, and how many missing rows are computed at a time.
ROW_BYTES, ROWS_AT_A_TIME = 2**29, 16


class RowCache(NamedTuple):
    """A cache of rows of the covariance over the n active points, replaced by the clock algorithm.

    Attributes
    ----------
    source : (N, N) all covariances; (0, 0) if the caller computes rows.
    columns : (n,) the index of every point in ``source``.
    values : (slots, n) the cached rows.
    slots : (n,) the slot of the row of every point; -1 if it is not cached.
    owners : (slots,) the point whose row is in a slot; -1 for none.
    referenced : (slots,) whether a slot was used since the hand last passed it.
    hand : (1,) the slot to be replaced next, unless it was referenced.
    """

    source: Array
    columns: Indices
    values: NDArray[np.floating]
    slots: Indices
    owners: Indices
    referenced: Mask
    hand: Indices


def full_row_cache(values: NDArray[np.floating]) -> RowCache:
    """Return a cache that holds all rows, (n, n)."""
    own = np.arange(values.shape[0])
    return RowCache(
        source=np.empty((0, 0)),
        columns=own,
        values=values,
        slots=own,
        owners=own,
        referenced=np.zeros(own.size, dtype=np.bool_),
        hand=np.zeros(1, dtype=np.intp),
    )


def empty_row_cache(gram: Any, places: Indices) -> RowCache:
    """Return an empty cache for rows of the covariances, in single precision."""
    n = places.size
    slots = int(min(n, max(ROW_BYTES // (4 * n), 4 * ROWS_AT_A_TIME)))
    single = fits_single_precision(float(np.abs(gram.diagonal()).max()))
    values = np.empty((slots, n), dtype=np.float32 if single else np.float64)
    values[0] = 0.0  # a step of length zero uses this row
    return RowCache(
        source=gram if isinstance(gram, np.ndarray) else np.empty((0, 0)),
        columns=places,
        values=values,
        slots=np.full(n, -1),
        owners=np.full(slots, -1),
        referenced=np.zeros(slots, dtype=np.bool_),
        hand=np.zeros(1, dtype=np.intp),
    )

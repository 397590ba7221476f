"""The dual of one update.

One update of a maximum entropy discrimination classifier is the concave problem

    maximise   -1/2 a'YKYa + a'(1 - Y m) + sum_i e_i log(1 - a_i / C_i)
    subject to  y'a = t,  a >= 0,

with one multiplier ``a_i`` per labeled point. ``K`` is the prior covariance on these points, ``m``
the prior mean, ``C_i`` the bound of a multiplier and ``e_i`` the shape of its slack prior. A shape
of 1 is maximum entropy discrimination. A shape of 0 is the support vector machine, with the hard
box ``a_i <= C_i`` instead of the log term. The sum ``t`` is 0 unless there are frozen multipliers.
The equality belongs to a bias with a diffuse prior. If the bias is known, it is part of ``m``, and
there is no equality.

The code uses the *signed coefficients* ``c = Y a`` and the *implied bias*

    b_i = y_i (1 - e_i / (C_i - a_i)) - m_i - (K c)_i

of each point ``i``. At the optimum all free support vectors imply the same bias: the solution's
(`exact_bias`). The certificate of a solution is its KKT residuals, bias, duality gap and objective.
`seqmed.margin.theory.dual_objective` is the problem as one equation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

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
# A sum y'a below this fraction of all bounds is treated as 0: otherwise a point that needs no
# multiplier would become a support vector and determine the bias.
ZERO_SUM = 1e-12


def fits_single_precision(largest: float) -> bool:
    """Whether covariances up to this size can be stored in single precision."""
    return 1e-25 < largest < 1e25


class ComputedRows(Protocol):
    """Covariances (n, n) whose rows are computed when the solver needs them."""

    def __getitem__(self, rows: Indices, /) -> Array: ...

    def __matmul__(self, coefficients: Array, /) -> Array: ...


@dataclass(frozen=True)
class DualProblem:
    """The data of one dual.

    Parameters
    ----------
    gram : (n, n) prior covariance of the scores, symmetric and positive semi-definite.
    signs : (n,) targets, each -1.0 or +1.0.
    prior_scores : (n,) prior mean of the scores; it includes a known bias.
    bounds : (n,) positive upper bounds ``C_i`` of the multipliers.
    shapes : (n,) slack shapes ``e_i >= 0``.
    known_bias : whether the bias is known; otherwise there is the equality ``y'a = t``.
    multiplier_sum : the value ``t`` of ``y'a``, see `attainable_sum`.
    """

    gram: Array | ComputedRows
    signs: Array
    prior_scores: Array
    bounds: Array
    shapes: Array
    known_bias: bool = False
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
    """Return multipliers (n,) within their bounds, with ``y'a = t`` unless the bias is known."""
    highest = np.where(problem.shapes > 0, np.nextafter(problem.bounds, 0.0), problem.bounds)
    start = np.clip(multipliers, 0.0, highest)
    if problem.known_bias:
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


class DualSolution(NamedTuple):
    """The outcome of a solve, with its certificate.

    Attributes
    ----------
    multipliers : (n,) values in ``[0, C_i]``, below ``C_i`` when the slack shape is positive.
    bias : the exact bias; 0 if the bias is known and part of the prior scores.
    gap : duality gap, >= 0, an upper bound on the distance of either objective to the optimum.
    objective : value of the dual.
    violation : largest difference between two implied biases; at most ``tol`` if converged.
    status : "converged", "max_iter", or "rounding" (steps in double precision make no progress).
    n_iter : number of pair steps taken, and of Newton steps.
    """

    multipliers: Array
    bias: float
    gap: float
    objective: float
    violation: float
    status: str
    n_iter: int

    @property
    def relative_gap(self) -> float:
        """The gap divided by the larger absolute value of the two objectives."""
        size = max(abs(self.objective), abs(self.objective + self.gap))
        return self.gap / size if size > 0 else 0.0


class KKTResiduals(NamedTuple):
    """KKT residuals of the dual.

    Attributes
    ----------
    errors : (n,) see `score_errors`.
    implied_biases : (n,) the bias ``b_i`` that each point implies.
    rounding : (n,) change of an implied bias by rounding its multiplier; large near the bound.
    can_increase, can_decrease : (n,) masks of the signed coefficients.
    lowest, highest : the largest bias implied by a coefficient that can increase, and the smallest
        one implied by a coefficient that can decrease.
    """

    errors: Array
    implied_biases: Array
    rounding: Array
    can_increase: Mask
    can_decrease: Mask
    lowest: float
    highest: float

    @property
    def violation(self) -> float:
        """Largest difference between two implied biases; not positive at the optimum."""
        return self.lowest - self.highest

    @property
    def movable(self) -> Mask:
        """A mask (n,) of the points whose multiplier a step could change."""
        return (self.can_increase & (self.implied_biases > self.highest)) | (
            self.can_decrease & (self.implied_biases < self.lowest)
        )


def kkt_residuals(problem: DualProblem, multipliers: Array, errors: Array) -> KKTResiduals:
    """Return the KKT residuals of multipliers (n,) with score errors (n,)."""
    distance = problem.bounds - multipliers
    soft = problem.shapes > 0
    if soft.all():
        slope = problem.shapes / distance
        stiffness = slope / distance
    else:
        slope = np.divide(problem.shapes, distance, out=np.zeros_like(distance), where=soft)
        stiffness = np.divide(slope, distance, out=np.zeros_like(distance), where=soft)
    implied = errors - problem.signs * slope
    rounding = ROUNDING * problem.bounds * stiffness
    positive, above_zero, below_bound = problem.signs > 0, multipliers > 0, soft | (distance > 0)
    can_increase = np.where(positive, below_bound, above_zero)
    can_decrease = np.where(positive, above_zero, below_bound)
    lowest = float(np.where(can_increase, implied - rounding, -np.inf).max(initial=-np.inf))
    highest = float(np.where(can_decrease, implied + rounding, np.inf).min(initial=np.inf))
    if problem.known_bias:
        lowest, highest = max(lowest, 0.0), min(highest, 0.0)
    return KKTResiduals(errors, implied, rounding, can_increase, can_decrease, lowest, highest)


def exact_bias(problem: DualProblem, residuals: KKTResiduals, previous: float | None) -> float:
    """Return the multiplier of ``y'a = t``: the implied bias of every free support vector.

    Without a free support vector, it is the allowed value nearest to ``previous``, or the middle of
    the allowed interval, as in LIBSVM.
    """
    if problem.known_bias:
        return 0.0
    free = residuals.can_increase & residuals.can_decrease
    if free.any():
        weights = 1.0 / (1.0 + residuals.rounding[free] / ROUNDING)
        weights = weights / weights.max() if weights.any() else np.ones_like(weights)
        return float(weights @ residuals.implied_biases[free] / weights.sum())
    if previous is None:
        ends = [end for end in (residuals.lowest, residuals.highest) if np.isfinite(end)]
        return float(np.mean(ends))
    return float(min(max(previous, residuals.lowest), residuals.highest))


def duality_gap(problem: DualProblem, multipliers: Array, errors: Array, bias: float) -> float:
    """Return primal minus dual objective at ``multipliers`` and ``bias``, >= 0.

    The quadratic parts cancel exactly. A point with the slack ``s_i = 1 - y_i (score_i + bias)``
    adds the loss of ``s_i`` minus ``a_i s_i`` minus the log term: on the sloping part of the loss
    ``e_i (r - 1 - log r)``, with ``r = (C_i - a_i) s_i / e_i``.
    """
    slack = problem.signs * (errors - bias)
    distance = problem.bounds - multipliers
    hard = problem.shapes == 0
    terms = np.where(slack > 0, distance * slack, -multipliers * slack)
    if not hard.all():
        sloping = ~hard & (slack * problem.bounds > problem.shapes)
        flat = ~hard & ~sloping
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = distance * slack / problem.shapes
            terms = np.where(sloping, problem.shapes * (ratio - 1 - np.log(ratio)), terms)
            zero_cost = -multipliers * slack - problem.shapes * np.log1p(
                -multipliers / problem.bounds
            )
            terms = np.where(flat, zero_cost, terms)
    residue = 0.0
    if not problem.known_bias:
        residue = abs(bias * (float(problem.signs @ multipliers) - problem.multiplier_sum))
    return float(np.maximum(terms, 0.0).sum()) + residue


def certify(
    problem: DualProblem,
    multipliers: Array,
    *,
    tol: float,
    status: str,
    n_iter: int,
    previous_bias: float | None = None,
    residuals: KKTResiduals | None = None,
) -> DualSolution:
    """Return multipliers as a solution, with its bias, gap and violation.

    ``status`` is reported if the violation exceeds ``tol``.
    """
    if residuals is None:
        residuals = kkt_residuals(problem, multipliers, score_errors(problem, multipliers))
    bias = exact_bias(problem, residuals, previous_bias)
    coefficients, soft = problem.signs * multipliers, problem.shapes > 0
    # errors = linear - K c, hence c'linear - c'Kc / 2 = c'(linear + errors) / 2.
    linear = problem.signs - problem.prior_scores
    objective = 0.5 * float(coefficients @ (linear + residuals.errors))
    shrunk = np.log1p(-multipliers[soft] / problem.bounds[soft])
    return DualSolution(
        multipliers=multipliers,
        bias=bias,
        gap=duality_gap(problem, multipliers, residuals.errors, bias),
        objective=objective + float(problem.shapes[soft] @ shrunk),
        violation=max(residuals.violation, 0.0),
        status="converged" if residuals.violation <= tol else status,
        n_iter=n_iter,
    )


def with_bias(problem: DualProblem, solution: DualSolution, bias: float) -> DualSolution:
    """Return the solution with another bias and the corresponding gap."""
    errors = score_errors(problem, solution.multipliers)
    gap = duality_gap(problem, solution.multipliers, errors, bias)
    return solution._replace(bias=bias, gap=gap)

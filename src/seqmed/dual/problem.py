"""The dual of one update: its objective, its optimality conditions, its certificate.

One update of a maximum entropy discrimination classifier is the concave problem

    maximise   -1/2 a'YKYa + a'(1 - Y m) + sum_i e_i log(1 - a_i / C_i)
    subject to  y'a = t,  a >= 0,

with one multiplier ``a_i`` per labeled point. ``K`` is the prior covariance on these points, ``m``
the prior mean, ``C_i`` the bound of a multiplier and ``e_i`` the shape of its slack prior: 1 is
maximum entropy discrimination, 0 is the support vector machine, whose log term is the hard box
``a_i <= C_i``. The sum ``t`` is 0 unless it balances frozen multipliers. A finite
prior variance ``v`` of the bias drops the equality and adds ``v`` to ``K``.

Everything is written in the *signed coefficients* ``c = Y a`` and the *implied bias*

    demand_i = y_i (1 - e_i / (C_i - a_i)) - m_i - (K c)_i

of point ``i`` alone. At the optimum all support vectors imply the same bias, which is the bias.
`seqmed.theory.dual_objective` is the problem as one equation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from seqmed.arrays import Array, Indices, Mask

# Twice the spacing of doubles at 1: one rounding of a multiplier and one of its bound.
ROUNDING = 2 * float(np.finfo(np.float64).eps)
# Share of one side's bounds that a balance may ask for.
REACH = 0.5
# Share of all bounds below which a balance is what rounding left of a sum that is zero. Made up
# for, it would turn a point that nothing pulls into a support vector that fixes the bias.
NO_BALANCE = 1e-12


def is_moderate(largest: float) -> bool:
    """Whether covariances of up to this size can be held in single precision."""
    return 1e-25 < largest < 1e25


class ComputedRows(Protocol):
    """Covariances that are not in memory, as far as a solver needs them."""

    def __getitem__(self, rows: Indices, /) -> Array:
        """Return some rows, (m, n)."""

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
        something that computes its rows when they are asked for.
    signs : (n,) targets, each -1.0 or +1.0.
    prior_scores : (n,) prior mean of the scores, the prior mean of a finite bias included.
    bounds : (n,) positive upper bounds ``C_i`` of the multipliers.
    shapes : (n,) slack shapes ``e_i >= 0``.
    bias_variance : prior variance of the bias in [0, inf]; ``inf`` is the equality ``y'a = t``.
    balance : what ``y'a`` has to be under a diffuse bias, within what the bounds allow.
    """

    gram: Array | ComputedRows
    signs: Array
    prior_scores: Array
    bounds: Array
    shapes: Array
    bias_variance: float = np.inf
    balance: float = 0.0


class DualSolution(NamedTuple):
    """The outcome of a solve, with its certificate.

    Attributes
    ----------
    multipliers : (n,) values in ``[0, C_i]``, below ``C_i`` when the slack shape is positive.
    bias : the exact bias; under a finite variance its deviation from the prior mean.
    gap : duality gap, >= 0, an upper bound on the distance of either objective to the optimum.
    objective : value of the dual.
    violation : largest difference of two implied biases, to be below ``tol``.
    status : "converged", "max_iter", or "rounding" (no floating point step makes progress).
    n_iter : number of pair steps taken.
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
        """The gap over the larger of the two objectives' sizes."""
        size = max(abs(self.objective), abs(self.objective + self.gap))
        return self.gap / size if size > 0 else 0.0


def feasible(problem: DualProblem, multipliers: Array) -> Array:
    """Return multipliers (n,) moved into their bounds and, under a diffuse bias, to ``y'a = t``.

    The side that weighs too much is scaled down; only if that is not enough is the other raised.
    """
    highest = np.where(problem.shapes > 0, np.nextafter(problem.bounds, 0.0), problem.bounds)
    start = np.clip(multipliers, 0.0, highest)
    if np.isfinite(problem.bias_variance):
        return start
    positive = problem.signs > 0
    excess = float(problem.signs @ start) - problem.balance
    heavy, light = (positive, ~positive) if excess > 0 else (~positive, positive)
    weight = float(start[heavy].sum())
    left = weight - abs(excess)
    start[heavy] *= max(left, 0.0) / weight if weight > 0 else 1.0
    if left < 0:
        room = problem.bounds[light] - start[light]
        start[light] = np.minimum(start[light] - left * room / room.sum(), highest[light])
    return start


def attainable(signs: Array, bounds: Array, balance: float) -> float:
    """Return the ``y'a`` nearest to ``balance`` that leaves the multipliers room to move."""
    if abs(balance) <= NO_BALANCE * float(bounds.sum()):
        return 0.0
    most = REACH * float(bounds[signs > 0].sum())
    least = -REACH * float(bounds[signs < 0].sum())
    return min(max(balance, least), most)


def margins_left(problem: DualProblem, multipliers: Array) -> Array:
    """Return ``y_i - m_i - (K c)_i``, what is missing to a score of ``y_i`` before the bias."""
    coefficients = problem.signs * multipliers
    return problem.signs - problem.prior_scores - problem.gram @ coefficients


class KKTResiduals(NamedTuple):
    """KKT residuals of the dual.

    Attributes
    ----------
    left : (n,) what is missing to a score of ``y_i`` before the bias, see `margins_left`.
    demand : (n,) implied bias of each point.
    blur : (n,) change of the implied bias by rounding one multiplier. Close to its bound the last
        digit of a multiplier changes it much; no solver could reduce a violation of that size.
    may_grow, may_shrink : (n,) masks of the signed coefficients that may.
    lowest, highest : the bias that the conditions allow. Lowest is the largest demand among
        coefficients that could still grow, highest the smallest among those that could still
        shrink.
    """

    left: Array
    demand: Array
    blur: Array
    may_grow: Mask
    may_shrink: Mask
    lowest: float
    highest: float

    @property
    def violation(self) -> float:
        """Largest difference of two implied biases: not positive at the optimum."""
        return self.lowest - self.highest

    @property
    def contested(self) -> Mask:
        """A mask (n,) of the points whose implied bias violates another's.

        The others are at a bound and would only move beyond it: no step would change them.
        """
        return (self.may_grow & (self.demand > self.highest)) | (
            self.may_shrink & (self.demand < self.lowest)
        )


def kkt_residuals(
    problem: DualProblem, multipliers: Array, left: Array, total: float | None = None
) -> KKTResiduals:
    """Return the KKT residuals of multipliers (n,) with missing margins ``left`` (n,).

    ``total`` is ``y'a``, should there be other points.
    """
    room = problem.bounds - multipliers
    soft = problem.shapes > 0
    if soft.all():
        slope = problem.shapes / room
        stiffness = slope / room
    else:
        slope = np.divide(problem.shapes, room, out=np.zeros_like(room), where=soft)
        stiffness = np.divide(slope, room, out=np.zeros_like(room), where=soft)
    demand = left - problem.signs * slope
    blur = ROUNDING * problem.bounds * stiffness
    positive, above_zero, below_bound = problem.signs > 0, multipliers > 0, soft | (room > 0)
    may_grow = np.where(positive, below_bound, above_zero)
    may_shrink = np.where(positive, above_zero, below_bound)
    lowest = float(np.where(may_grow, demand - blur, -np.inf).max(initial=-np.inf))
    highest = float(np.where(may_shrink, demand + blur, np.inf).min(initial=np.inf))
    if np.isfinite(problem.bias_variance):
        own = problem.bias_variance * float(problem.signs @ multipliers if total is None else total)
        lowest, highest = max(lowest, own), min(highest, own)
    return KKTResiduals(left, demand, blur, may_grow, may_shrink, lowest, highest)


def exact_bias(
    problem: DualProblem, multipliers: Array, residuals: KKTResiduals, previous: float | None
) -> float:
    """Return the multiplier of ``y'a = t``: the implied bias of every free support vector.

    Where no free support vector fixes it, ``previous`` is moved as little as the optimality
    conditions ask; with no ``previous`` the middle of their interval is taken, as LIBSVM does.
    Under a finite variance the bias is the prior's response to ``y'a``.
    """
    if np.isfinite(problem.bias_variance):
        return problem.bias_variance * float(problem.signs @ multipliers)
    free = residuals.may_grow & residuals.may_shrink
    if free.any():
        trust = 1.0 / (1.0 + residuals.blur[free] / ROUNDING)
        trust = trust / trust.max() if trust.any() else np.ones_like(trust)
        return float(trust @ residuals.demand[free] / trust.sum())
    if previous is None:
        ends = [end for end in (residuals.lowest, residuals.highest) if np.isfinite(end)]
        return float(np.mean(ends))
    return float(min(max(previous, residuals.lowest), residuals.highest))


def duality_gap(problem: DualProblem, multipliers: Array, left: Array, bias: float) -> float:
    """Return primal minus dual objective at ``multipliers`` and ``bias``, >= 0.

    The quadratic parts cancel exactly, so the gap is a sum of one term per point: the loss of the
    slack ``s_i = 1 - y_i (score_i + bias)`` minus ``a_i s_i`` minus the log term. With
    ``r = (C_i - a_i) s_i / e_i`` a term on the sloping part of the loss is ``e_i (r - 1 - log r)``,
    which cannot come out negative. A rounding residue of the equality only ever enlarges the sum,
    and so does a bias other than the one a finite variance calls for.
    """
    slack = problem.signs * (left - bias)
    room = problem.bounds - multipliers
    hard = problem.shapes == 0
    terms = np.where(slack > 0, room * slack, -multipliers * slack)
    if not hard.all():
        sloping = ~hard & (slack * problem.bounds > problem.shapes)
        flat = ~hard & ~sloping
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = room * slack / problem.shapes
            terms = np.where(sloping, problem.shapes * (ratio - 1 - np.log(ratio)), terms)
            zero_cost = -multipliers * slack - problem.shapes * np.log1p(
                -multipliers / problem.bounds
            )
            terms = np.where(flat, zero_cost, terms)
    balance = float(problem.signs @ multipliers)
    variance = problem.bias_variance
    if not np.isfinite(variance):
        residue = abs(bias * (balance - problem.balance))
    elif variance > 0:
        residue = (bias - variance * balance) ** 2 / (2.0 * variance)
    else:
        residue = 0.0 if bias == 0 else np.inf
    return float(np.maximum(terms, 0.0).sum()) + residue


def dual_objective(problem: DualProblem, multipliers: Array, left: Array) -> float:
    """Return the value of the dual at ``multipliers``, (n,)."""
    coefficients = problem.signs * multipliers
    linear = problem.signs - problem.prior_scores
    # left = linear - K c, hence c'linear - c'Kc / 2 = c'(linear + left) / 2.
    value = 0.5 * float(coefficients @ (linear + left))
    soft = problem.shapes > 0
    shrunk = np.log1p(-multipliers[soft] / problem.bounds[soft])
    value += float(problem.shapes[soft] @ shrunk)
    if np.isfinite(problem.bias_variance):
        total = float(coefficients.sum())
        value -= 0.5 * problem.bias_variance * total * total
    return value


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
    """Turn multipliers into a solution: bias, gap and violation from one fresh product with K.

    ``status`` is what to report should the violation exceed ``tol``; ``residuals`` is how the
    multipliers stand, where it has just been computed.
    """
    if residuals is None:
        residuals = kkt_residuals(problem, multipliers, margins_left(problem, multipliers))
    bias = exact_bias(problem, multipliers, residuals, previous_bias)
    return DualSolution(
        multipliers=multipliers,
        bias=bias,
        gap=duality_gap(problem, multipliers, residuals.left, bias),
        objective=dual_objective(problem, multipliers, residuals.left),
        violation=max(residuals.violation, 0.0),
        status="converged" if residuals.violation <= tol else status,
        n_iter=n_iter,
    )


def with_bias(problem: DualProblem, solution: DualSolution, bias: float) -> DualSolution:
    """Return the solution with another bias, and the gap that goes with it."""
    left = margins_left(problem, solution.multipliers)
    gap = duality_gap(problem, solution.multipliers, left, bias)
    return solution._replace(bias=bias, gap=gap)

"""The dual of one update, handed to the generic interior-point solver clarabel.

    minimise   1/2 a'YKYa - a'(1 - Ym) - sum_i e_i log(1 - a_i / C_i)
    subject to  y'a = t,  a >= 0  (and a <= C where e_i = 0)

Nothing of `seqmed.margin.dual` is used but the plain fields of a problem: objectives and gap are
written out again here from their definitions.
"""

from __future__ import annotations

from typing import NamedTuple

import clarabel
import numpy as np
from scipy import sparse

# Stopping rules to try, tightest first: clarabel gives up on the first ones where rounding wins,
# and what it has then (AlmostSolved) is worse than a solution under the next rule.
TOLERANCES = (1e-13, 1e-12, 1e-11, 1e-10)
MOST_STEPS = 300
# Objectives under this are those of a solution with all multipliers zero: no scale to divide by.
LEAST_VALUE = 1e-9
# A multiplier this close to a bound, as a share of that bound, is on it.
ON_BOUND = 1e-7
# Steps of Newton's method from an answer of clarabel.
NEWTON_STEPS = 5


class ConvexSolution(NamedTuple):
    multipliers: np.ndarray
    bias: float
    objective: float
    gap: float


def dual_value(problem, multipliers):
    """The dual objective, straight from its definition."""
    coefficients = problem.signs * multipliers
    value = -0.5 * coefficients @ problem.gram @ coefficients
    value += multipliers @ (1.0 - problem.signs * problem.prior_scores)
    for shape, multiplier, bound in zip(problem.shapes, multipliers, problem.bounds, strict=True):
        if shape > 0:
            value += shape * np.log(1.0 - multiplier / bound)
    return float(value)


def loss(slack, bound, shape):
    """The hinge with a logarithmic corner, phi(s)."""
    if slack * bound <= shape:
        return 0.0
    if shape == 0:
        return bound * slack
    return bound * slack - shape + shape * np.log(shape / (bound * slack))


def primal_value(problem, multipliers, bias):
    """The primal objective at the function with these multipliers and at this bias.

    A sum t of the multipliers costs ``t b``.
    """
    coefficients = problem.signs * multipliers
    change = problem.gram @ coefficients
    value = 0.5 * coefficients @ change
    if problem.known_bias:
        assert bias == 0.0
    else:
        value += problem.multiplier_sum * bias
    slacks = 1.0 - problem.signs * (problem.prior_scores + change + bias)
    for slack, bound, shape in zip(slacks, problem.bounds, problem.shapes, strict=True):
        value += loss(slack, bound, shape)
    return float(value)


def solve_convex(problem):
    """Solve the dual under two scalings and return the answer with the smaller duality gap.

    The first divides the objective by its largest linear cost. The second divides it by the value
    the first one found, which is what clarabel's tolerances are made for.
    """
    linear_costs = problem.bounds * np.abs(1.0 - problem.signs * problem.prior_scores)
    answers = [solve_scaled(problem, max(1.0, float(linear_costs.max())))]
    value = abs(answers[0].objective) if answers[0] else 0.0
    if value > LEAST_VALUE:
        answers.append(solve_scaled(problem, value))
    solved = [answer for answer in answers if answer]
    if not solved:
        raise RuntimeError("clarabel did not solve the problem at any tolerance")
    best = min(solved, key=lambda answer: answer.gap)
    return min(best, polished(problem, best), key=lambda answer: answer.gap)


def polished(problem, answer):
    """Improve an answer by Newton's method on the points strictly between their bounds.

    How many digits clarabel gets right depends on the processor: the last ones are those of its
    linear solves. A Newton step on the optimality conditions of the free points restores them.
    """
    diffuse = not problem.known_bias
    signs, bounds, shapes = problem.signs, problem.bounds, problem.shapes
    hessian = signs[:, None] * problem.gram * signs[None, :]
    multipliers, bias = answer.multipliers.copy(), answer.bias if diffuse else 0.0
    multipliers[multipliers < ON_BOUND * bounds] = 0.0
    full = (shapes == 0) & (multipliers > (1.0 - ON_BOUND) * bounds)
    multipliers[full] = bounds[full]
    free = np.flatnonzero((multipliers > 0) & ~full)
    for _ in range(NEWTON_STEPS):
        distances = bounds[free] - multipliers[free]
        slopes = hessian[free] @ multipliers - 1.0 + (signs * problem.prior_scores)[free]
        slopes += shapes[free] / distances + bias * signs[free]
        system = np.zeros((free.size + diffuse,) * 2)
        system[: free.size, : free.size] = hessian[np.ix_(free, free)]
        system[: free.size, : free.size] += np.diag(shapes[free] / distances**2)
        if diffuse:
            system[-1, :-1] = system[:-1, -1] = signs[free]
            slopes = np.append(slopes, signs @ multipliers - problem.multiplier_sum)
        step = np.linalg.lstsq(system, -slopes, rcond=None)[0]
        changed = multipliers[free] + step[: free.size]
        if not ((changed > 0) & (changed < bounds[free])).all():
            break
        multipliers[free] = changed
        bias += step[-1] if diffuse else 0.0
    objective = dual_value(problem, multipliers)
    gap = abs(primal_value(problem, multipliers, bias) - objective)
    return ConvexSolution(multipliers, float(bias), objective, gap)


def solve_scaled(problem, scale):
    """Solve in the variables ``x = a / C`` with the objective divided by ``scale``."""
    n = problem.signs.size
    diffuse = not problem.known_bias
    soft = np.flatnonzero(problem.shapes > 0)
    hard = np.flatnonzero(problem.shapes == 0)
    signed_bounds = problem.signs * problem.bounds

    # The variables are x (n) and one t <= log(1 - x) for every soft point.
    total = n + soft.size
    quadratic = np.zeros((total, total))
    quadratic[:n, :n] = signed_bounds[:, None] * problem.gram * signed_bounds[None, :] / scale
    linear = -problem.bounds * (1.0 - problem.signs * problem.prior_scores)
    costs = np.concatenate([linear, -problem.shapes[soft]]) / scale

    # clarabel wants A z + s = r with s in the cones.
    identity = sparse.identity(total, format="csr")
    rows, right, cones = [], [], []
    if diffuse:
        largest = problem.bounds.max()
        padded = np.concatenate([signed_bounds / largest, np.zeros(soft.size)])
        rows.append(sparse.csr_matrix(padded))
        right.append(np.full(1, problem.multiplier_sum / largest))
        cones.append(clarabel.ZeroConeT(1))
    rows.append(-identity[:n])
    right.append(np.zeros(n))
    cones.append(clarabel.NonnegativeConeT(n))
    if hard.size:
        rows.append(identity[hard])
        right.append(np.ones(hard.size))
        cones.append(clarabel.NonnegativeConeT(hard.size))
    for place, point in enumerate(soft):
        # (t, 1, 1 - x) in the exponential cone: exp(t) <= 1 - x
        rows.extend([-identity[n + place], sparse.csr_matrix((1, total)), identity[int(point)]])
        right.append(np.array([0.0, 1.0, 1.0]))
        cones.append(clarabel.ExponentialConeT())

    data = (
        sparse.triu(sparse.csc_matrix(quadratic), format="csc"),
        costs,
        sparse.vstack(rows, format="csc"),
        np.concatenate(right),
        cones,
    )
    for tolerance in TOLERANCES:
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.max_iter = MOST_STEPS
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        # Refine every linear solve to the last digit: worth three digits of the solution.
        settings.iterative_refinement_reltol = 1e-16
        settings.iterative_refinement_abstol = 1e-18
        settings.iterative_refinement_max_iter = 50
        outcome = clarabel.DefaultSolver(*data, settings).solve()
        if outcome.status == clarabel.SolverStatus.Solved:
            break
    else:
        return None
    multipliers = np.clip(outcome.x[:n], 0.0, 1.0) * problem.bounds
    bias = outcome.z[0] * scale / largest if diffuse else 0.0
    objective = dual_value(problem, multipliers)
    gap = primal_value(problem, multipliers, bias) - objective
    return ConvexSolution(multipliers, float(bias), objective, abs(gap))

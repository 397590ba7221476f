"""The dual of one update, handed to the generic interior-point solver clarabel.

    minimise   1/2 a'YKYa - a'(1 - Ym) - sum_i e_i log(1 - a_i / C_i)
    subject to  y'a = 0,  a >= 0  (and a <= C where e_i = 0)

Nothing of `seqmed.dual` is used but the plain fields of a problem: the objective is written out
again here from the definition.
"""

from __future__ import annotations

from typing import NamedTuple

import clarabel
import numpy as np
from scipy import sparse

# As far as clarabel's own stopping rule can be pushed; most runs end before it is met.
TOLERANCES = (1e-13, 1e-12, 1e-11, 1e-10, 1e-9)
MOST_STEPS = 500


class ConvexSolution(NamedTuple):
    multipliers: np.ndarray
    bias: float
    objective: float
    tolerance: float


def dual_value(problem, multipliers):
    """The dual objective, straight from its definition."""
    coefficients = problem.signs * multipliers
    value = -0.5 * coefficients @ problem.gram @ coefficients
    value += multipliers @ (1.0 - problem.signs * problem.prior_scores)
    for shape, multiplier, bound in zip(problem.shapes, multipliers, problem.bounds, strict=True):
        if shape > 0:
            value += shape * np.log(1.0 - multiplier / bound)
    if np.isfinite(problem.bias_variance):
        value -= 0.5 * problem.bias_variance * coefficients.sum() ** 2
    return float(value)


def solve_convex(problem, scale=None):
    """Solve the dual in the variables ``x = a / C``, the objective divided by its own scale."""
    n = problem.signs.size
    diffuse = not np.isfinite(problem.bias_variance)
    soft = np.flatnonzero(problem.shapes > 0)
    hard = np.flatnonzero(problem.shapes == 0)
    signed_bounds = problem.signs * problem.bounds
    covariance = problem.gram if diffuse else problem.gram + problem.bias_variance
    quadratic = signed_bounds[:, None] * covariance * signed_bounds[None, :]
    linear = -problem.bounds * (1.0 - problem.signs * problem.prior_scores)
    scale = scale or max(1.0, float(np.abs(linear).max()))

    # The variables are x (n) and one t <= log(1 - x) for every soft point.
    total = n + soft.size
    objective = np.zeros((total, total))
    objective[:n, :n] = quadratic / scale
    costs = np.concatenate([linear, -problem.shapes[soft]]) / scale

    # clarabel wants A z + s = b with s in the cones.
    identity = sparse.identity(total, format="csr")
    rows, right, cones = [], [], []
    if diffuse:
        balance = sparse.csr_matrix(
            (signed_bounds / problem.bounds.max(), (np.zeros(n, int), np.arange(n))),
            shape=(1, total),
        )
        rows.append(balance)
        right.append(np.zeros(1))
        cones.append(clarabel.ZeroConeT(1))
    rows.append(-identity[:n])
    right.append(np.zeros(n))
    cones.append(clarabel.NonnegativeConeT(n))
    if hard.size:
        rows.append(identity[hard])
        right.append(np.ones(hard.size))
        cones.append(clarabel.NonnegativeConeT(hard.size))
    for place, point in enumerate(soft):
        # exp(t / 1) <= 1 - x
        rows.append(-identity[n + place])
        rows.append(sparse.csr_matrix((1, total)))
        rows.append(identity[int(point)])
        right.append(np.array([0.0, 1.0, 1.0]))
        cones.append(clarabel.ExponentialConeT())

    matrices = (
        sparse.triu(sparse.csc_matrix(objective), format="csc"),
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
        outcome = clarabel.DefaultSolver(*matrices, settings).solve()
        if outcome.status == clarabel.SolverStatus.Solved:
            break
    else:
        raise RuntimeError(f"clarabel ended with {outcome.status}")
    shares = np.asarray(outcome.x[:n])
    multipliers = np.clip(shares, 0.0, 1.0) * problem.bounds
    if diffuse:
        bias = outcome.z[0] * scale / problem.bounds.max()
    else:
        bias = problem.bias_variance * float(problem.signs @ multipliers)
    return ConvexSolution(multipliers, float(bias), dual_value(problem, multipliers), tolerance)

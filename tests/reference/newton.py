"""Primal-dual Newton solver for the dual: slow, plain, and independent of the pairwise one.

It inverts nothing and skips nothing, costs O(n^3) a step, and checks `seqmed.margin.dual.smo`.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from seqmed.margin.dual.problem import DualProblem, DualSolution, certify, with_bias

# Complementarity and stationarity at which the iteration ends, relative to the gradient's terms.
TARGET_RESIDUAL = 1e-14
# Share of the distance to the nearest bound that a step may use.
STEP_TO_BOUNDARY = 0.99

# Ratio of a multiplier to its bound's price under which it is taken to sit on that bound.
SNAP = 1e-9


def solve(
    problem: DualProblem,
    *,
    tol: float = 1e-9,
    max_iter: int = 300,
) -> DualSolution:
    """Solve the dual by an interior-point Newton method.

    Works on ``min 1/2 a'Qa - p'a - sum e log(1 - a/C)`` with multipliers ``z`` of ``a >= 0``,
    ``w`` of ``a <= C`` (hard box only) and ``b`` of ``y'a = t`` (diffuse bias only).
    """
    y, upper, shape = problem.signs, problem.bounds, problem.shapes
    diffuse = not problem.known_bias
    hessian = y[:, None] * problem.gram * y[None, :]
    linear = 1.0 - y * problem.prior_scores
    hard = shape == 0

    # The room C - a is carried beside a: recomputed, it would round to zero at a bound.
    a, room = 0.5 * upper, 0.5 * upper
    z = np.ones_like(a)
    w = np.where(hard, 1.0, 0.0)
    b = 0.0
    status, taken = "rounding", 0
    while True:
        slope, curvature = shape / room, shape / room**2
        stationarity = hessian @ a - linear + slope + b * y * diffuse - z + w
        balance = float(y @ a) - problem.multiplier_sum if diffuse else 0.0
        complementarity = float(a @ z + room @ w) / (a.size + hard.sum())
        scale = 1.0 + float((np.abs(hessian) @ a + np.abs(linear)).max())
        if max(complementarity, np.abs(stationarity).max()) <= TARGET_RESIDUAL * scale:
            break
        if taken == max_iter:
            status = "max_iter"
            break
        taken += 1
        centre = 0.1 * complementarity
        factor = cho_factor(hessian + np.diag(curvature + z / a + w / room))
        right = -stationarity + (centre / a - z) - np.where(hard, centre / room - w, 0.0)
        step = cho_solve(factor, right)
        bias_step = 0.0
        if diffuse:
            along = cho_solve(factor, y)
            bias_step = (balance + y @ step) / (y @ along)
            step = step - bias_step * along
        z_step = centre / a - z - z / a * step
        w_step = np.where(hard, centre / room - w + w / room * step, 0.0)

        length = 1.0
        for value, change in ((a, step), (room, -step), (z, z_step), (w, w_step)):
            shrinking = change < 0
            if shrinking.any():
                nearest = float((-value[shrinking] / change[shrinking]).min())
                length = min(length, STEP_TO_BOUNDARY * nearest)
        a, room = a + length * step, room - length * step
        z = z + length * z_step
        w = w + length * w_step
        b += length * bias_step

    # One of a and z goes to zero, the other does not: which, their ratio tells.
    multipliers = np.where(a < z * SNAP * upper, 0.0, a)
    multipliers = np.where(hard & (room < w * SNAP * upper), upper, multipliers)
    solution = certify(problem, multipliers, tol=tol, status=status, n_iter=taken)
    if not diffuse or not (multipliers > 0).any():
        return solution
    # The iteration's own multiplier of y'a = t: which multipliers are free, only rounding decides.
    return with_bias(problem, solution, b)

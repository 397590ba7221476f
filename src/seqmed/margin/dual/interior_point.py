"""Interior-point solver for duals on which pair steps make no progress.

Pair steps converge slowly if the covariance is badly conditioned, as with a linear kernel on
columns of very different scales. Newton's method does not depend on these scales. With
``Q = Y K Y`` and ``p = 1 - Y m`` the optimality conditions are, for ``mu = 0``,

    Q a - p + b y - z + u = 0,   a_i z_i = mu,   s_i u_i = max(e_i, mu),   s = C - a,   y'a = t.

Mehrotra's predictor and corrector reduce ``mu``. With a factor ``K = F F'`` of rank r, a step costs
``O(n r^2)``: ``diag(z / a + u / s) + Q`` is inverted by Woodbury's identity.

S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optim. 1992.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from seqmed.margin.dual.problem import DualProblem, DualSolution, certify, feasible, with_bias
from seqmed.numeric.arrays import Array
from seqmed.numeric.factors import semidefinite_factor

# Largest n r^2 for n points and a factor of rank r: about two seconds. Largest number of points
# whose covariance is factored.
LARGEST_WORK, LARGEST_FACTORED = 1000**3, 4000
LARGEST_NUMBER_OF_STEPS = 100
# The solve ends after this many steps without a smaller gap.
PATIENCE = 15
# Fraction of the distance to the nearest bound that a step may use.
STEP_TO_BOUNDARY = 0.995
# The second-order part of a step is left out if it leaves only this fraction of the step possible.
SHORT_STEP = 0.1
# Distance of the first multipliers from their bounds, as a fraction of the bound.
FIRST_DISTANCE = 1e-3


def solve_by_newton(problem: DualProblem, start: Array, tol: float) -> DualSolution | None:
    """Return the solution with the smallest duality gap found; None if the problem is too large."""
    n = problem.signs.size
    if n > LARGEST_FACTORED:
        return None
    factor = semidefinite_factor(np.asarray(problem.gram))
    if n * factor.shape[1] ** 2 > LARGEST_WORK:
        return None
    best: DualSolution | None = None
    stalled = 0
    with np.errstate(all="ignore"):
        for taken, (multipliers, bias) in enumerate(central_path(problem, factor, start), 1):
            found = certify(problem, multipliers, tol=tol, status="rounding", n_iter=taken)
            if not problem.known_bias:
                found = min(found, with_bias(problem, found, bias), key=lambda each: each.gap)
            stalled += 1
            if best is None or found.gap < best.gap:
                best, stalled = found, 0
            if found.status == "converged" or stalled > PATIENCE:
                break
    return best


def central_path(
    problem: DualProblem, factor: Array, start: Array
) -> Iterator[tuple[Array, float]]:
    """Yield multipliers (n,) and bias after every step; multipliers near a bound are set to it.

    The path ends if a step is not finite.
    """
    signs, bounds, shapes = problem.signs, problem.bounds, problem.shapes
    gram = np.asarray(problem.gram)
    diffuse, hard = not problem.known_bias, problem.shapes == 0
    rows = signs[:, None] * factor
    # Of a_i and z_i one vanishes. Their units are those of a multiplier and of the margin.
    units = np.maximum(gram.diagonal(), 1.0 / bounds)

    def gradient(a: Array) -> Array:
        return signs * (gram @ (signs * a) + problem.prior_scores) - 1.0

    def mean_product(point: Array) -> float:
        """Return the mean of ``a z``, and of ``s u`` at a hard bound: mu on the path."""
        a, s, z, u = point
        return float((a @ z + (s * u)[hard].sum()) / (a.size + int(hard.sum())))

    # The distance s to the upper bound is carried along; as a difference it would be rounded to 0.
    a = np.clip(start, FIRST_DISTANCE * bounds, (1.0 - FIRST_DISTANCE) * bounds)
    slope = gradient(a)
    b = -float(signs @ slope) / signs.size if diffuse else 0.0
    slope += b * signs
    price = float(np.abs(slope).mean()) + 1.0
    at = np.stack([a, bounds - a, np.maximum(slope, 0.0) + price, np.maximum(-slope, 0.0) + price])
    for _ in range(LARGEST_NUMBER_OF_STEPS):
        a, s, z, u = at
        residual = gradient(a) + b * signs - z + u
        excess = float(signs @ a) - problem.multiplier_sum if diffuse else None
        try:
            direction = newton_direction(at, rows, signs, residual, excess)
        except LinAlgError:
            return
        mu = mean_product(at)
        affine, _ = direction(-a * z, shapes - s * u)
        after = mean_product(at + longest_step(at, affine) * affine)
        mu *= min((after / mu) ** 3, 1.0) if mu > 0 else 0.0
        for second_order in (1.0, 0.0):
            step, bias_step = direction(
                mu - a * z - second_order * affine[0] * affine[2],
                np.maximum(shapes, mu) - s * u - second_order * affine[1] * affine[3],
            )
            length = longest_step(at, step)
            if length > SHORT_STEP:
                break
        length = min(1.0, STEP_TO_BOUNDARY * length)
        at, b = at + length * step, b + length * bias_step
        a, s, z, u = at
        if not (np.isfinite(a).all() and np.isfinite(b)):
            return
        found = np.where(a * units < z, 0.0, np.minimum(a, bounds))
        found = np.where(hard & (s * units < u), bounds, found)
        yield feasible(problem, found), b


def longest_step(at: Array, direction: Array) -> float:
    """Return the largest length in (0, 1] of a step that keeps a, s, z and u nonnegative."""
    return float(np.min(-at / direction, initial=1.0, where=direction < 0))


def newton_direction(
    at: Array, factor: Array, signs: Array, residual: Array, excess: float | None
) -> Callable[[Array, Array], tuple[Array, float]]:
    """Return a function that maps wanted changes of ``a z`` and ``s u`` to a Newton step.

    The step is one of a, s, z and u, the rows of ``at`` (4, n), and of the bias. ``factor`` is F,
    (n, r), in the matrix ``diag(z / a + u / s) + F F'``. ``residual`` (n,) is the left side of the
    first equation, and ``excess`` is ``y'a - t``, or None if the bias is known.
    """
    a, s, z, u = at
    roots = np.sqrt(z / a + u / s)
    scaled = factor / roots[:, None]
    inner = scaled.T @ scaled
    inner[np.diag_indices_from(inner)] += 1.0
    scales = 1.0 / np.sqrt(inner.diagonal())
    inner = scales[:, None] * inner * scales
    if not np.isfinite(inner).all():
        raise LinAlgError("the matrix is not finite")
    inner = cho_factor(inner, check_finite=False)

    def solve(values: Array) -> Array:
        values = values / roots
        inside = scales * cho_solve(inner, scales * (scaled.T @ values), check_finite=False)
        return np.asarray((values - scaled @ inside) / roots)

    along = None if excess is None else solve(signs)

    def direction(lower: Array, upper: Array) -> tuple[Array, float]:
        change, bias = solve(lower / a - upper / s - residual), 0.0
        if along is not None and excess is not None:
            bias = (excess + float(signs @ change)) / float(signs @ along)
            change = change - bias * along
        steps = [change, -change, (lower - z * change) / a, (upper + u * change) / s]
        return np.stack(steps), bias

    return direction

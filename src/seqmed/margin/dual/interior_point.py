"""Interior-point solver for duals on which pair steps make no progress.

Pair steps converge slowly if the covariance is badly conditioned, for example with a linear kernel
on columns of very different scales. Newton's method does not depend on these scales. With
``Q = Y K Y`` and ``p = 1 - Y m`` the optimality conditions are, for ``mu = 0``,

    Q a - p + b y - z + u = 0,   a_i z_i = mu,   s_i u_i = max(e_i, mu),   s = C - a,   y'a = t.

Mehrotra's predictor and corrector reduce ``mu``. With a factor ``K = F F'`` of rank r, a step costs
``O(n r^2)``: ``diag(z / a + u / s) + Q`` is inverted by Woodbury's identity. Its inner matrix is
scaled to a unit diagonal, so that the scales of the columns of F do not matter.

S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optimization
1992.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from seqmed.margin.dual.problem import DualProblem, DualSolution, certify, feasible, with_bias
from seqmed.numeric.arrays import Array, Mask
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
    """Return the solution with the smallest duality gap found; None if the problem is too large.

    ``start`` are multipliers (n,) within their bounds. The solve ends at a KKT violation of
    ``tol``.
    """
    n = problem.signs.size
    if not isinstance(problem.gram, np.ndarray) or n > LARGEST_FACTORED:
        return None
    factor = semidefinite_factor(problem.gram)
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


class Point(NamedTuple):
    """A point of the path, or a direction: a, s, z, u, (n,), and the bias b of the equations."""

    a: Array
    s: Array
    z: Array
    u: Array
    b: float

    def moved(self, direction: Point, length: float) -> Point:
        """Return the point after a step."""
        return Point(
            self.a + length * direction.a,
            self.s + length * direction.s,
            self.z + length * direction.z,
            self.u + length * direction.u,
            self.b + length * direction.b,
        )

    def longest(self, direction: Point) -> float:
        """Return the largest length in (0, 1] of a step that keeps a, s, z and u nonnegative."""
        length = 1.0
        for value, change in zip(self[:4], direction[:4], strict=True):
            length = float(np.min(-value / change, initial=length, where=change < 0))
        return length

    def mean_product(self, hard: Mask) -> float:
        """Return the mean of ``a z``, and of ``s u`` at a hard bound: mu on the path."""
        products = float(self.a @ self.z + (self.s * self.u)[hard].sum())
        return products / (self.a.size + int(hard.sum()))


def central_path(
    problem: DualProblem, factor: Array, start: Array
) -> Iterator[tuple[Array, float]]:
    """Yield multipliers (n,) and bias after every step; multipliers near a bound are set to it.

    The path ends if a step is not finite.
    """
    signs, bounds, shapes, gram = problem.signs, problem.bounds, problem.shapes, problem.gram
    diffuse, hard = not problem.known_bias, problem.shapes == 0
    rows = signs[:, None] * factor
    # Of a_i and z_i one vanishes. Their units are those of a multiplier and of the margin.
    units = np.maximum(gram.diagonal(), 1.0 / bounds)

    def gradient(a: Array) -> Array:
        """Return ``Q a - p``."""
        return signs * (gram @ (signs * a) + problem.prior_scores) - 1.0

    # The distance s to the upper bound is carried along; as a difference it would be rounded to 0.
    a = np.clip(start, FIRST_DISTANCE * bounds, (1.0 - FIRST_DISTANCE) * bounds)
    slope = gradient(a)
    b = -float(signs @ slope) / signs.size if diffuse else 0.0
    slope += b * signs
    price = float(np.abs(slope).mean()) + 1.0
    at = Point(a, bounds - a, np.maximum(slope, 0.0) + price, np.maximum(-slope, 0.0) + price, b)
    for _ in range(LARGEST_NUMBER_OF_STEPS):
        residual = gradient(at.a) + at.b * signs - at.z + at.u
        excess = float(signs @ at.a) - problem.multiplier_sum if diffuse else None
        try:
            system = NewtonSystem(at, rows, signs, residual, excess)
        except LinAlgError:
            return
        mu = at.mean_product(hard)
        affine = system.direction(-at.a * at.z, shapes - at.s * at.u)
        after = at.moved(affine, at.longest(affine)).mean_product(hard)
        mu *= min((after / mu) ** 3, 1.0) if mu > 0 else 0.0
        for second_order in (1.0, 0.0):
            step = system.direction(
                mu - at.a * at.z - second_order * affine.a * affine.z,
                np.maximum(shapes, mu) - at.s * at.u - second_order * affine.s * affine.u,
            )
            if at.longest(step) > SHORT_STEP:
                break
        at = at.moved(step, min(1.0, STEP_TO_BOUNDARY * at.longest(step)))
        if not (np.isfinite(at.a).all() and np.isfinite(at.b)):
            return
        found = np.where(at.a * units < at.z, 0.0, np.minimum(at.a, bounds))
        found = np.where(hard & (at.s * units < at.u), bounds, found)
        yield feasible(problem, found), at.b


class NewtonSystem:
    """The linear equations of a Newton step from a point, with ``diag(z / a + u / s) + F F'``.

    Parameters
    ----------
    point : the point.
    factor : F, (n, r).
    signs : (n,).
    residual : (n,) the left side of the first equation.
    excess : ``y'a - t``; None if the bias is known.
    """

    def __init__(
        self, point: Point, factor: Array, signs: Array, residual: Array, excess: float | None
    ) -> None:
        self.point, self.signs, self.residual, self.excess = point, signs, residual, excess
        self.roots = np.sqrt(point.z / point.a + point.u / point.s)
        self.scaled = factor / self.roots[:, None]
        inner = self.scaled.T @ self.scaled
        inner[np.diag_indices_from(inner)] += 1.0
        self.scales = 1.0 / np.sqrt(inner.diagonal())
        inner = self.scales[:, None] * inner * self.scales
        if not np.isfinite(inner).all():
            raise LinAlgError("the matrix is not finite")
        self.inner = cho_factor(inner, check_finite=False)
        self.along = self.solve(signs) if excess is not None else np.zeros_like(signs)

    def solve(self, values: Array) -> Array:
        """Return the product of the inverse with values (n,), by Woodbury's identity."""
        values = values / self.roots
        inside = self.scales * (self.scaled.T @ values)
        inside = self.scales * cho_solve(self.inner, inside, check_finite=False)
        solved: Array = (values - self.scaled @ inside) / self.roots
        return solved

    def direction(self, lower: Array, upper: Array) -> Point:
        """Return the step that changes the products ``a z`` by ``lower``, ``s u`` by ``upper``."""
        a, s, z, u, _ = self.point
        change, bias = self.solve(lower / a - upper / s - self.residual), 0.0
        if self.excess is not None:
            bias = (self.excess + float(self.signs @ change)) / float(self.signs @ self.along)
            change = change - bias * self.along
        return Point(change, -change, (lower - z * change) / a, (upper + u * change) / s, bias)

"""Random problems of the dual, their solutions by other solvers, and what a solution must meet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from seqmed.margin.dual.problem import DualProblem, kkt_residuals, score_errors
from seqmed.margin.dual.smo import solve
from tests.reference.convex import solve_convex

# Tolerance of every solve that is compared with another solver: two digits or more
# below the tolerances of the comparison.
TIGHT = 1e-10
# What the comparisons must meet (relative; absolute; relative to the bound).
OBJECTIVE_TOLERANCE = 1e-8
DECISION_TOLERANCE = 1e-6
MULTIPLIER_TOLERANCE = 1e-6
# Condition number of the kernel matrix up to which multipliers, not only functions, are compared.
WELL_CONDITIONED = 1e6
# "rounding" is an honest answer only where the violation is about what one rounding of each
# product in K c amounts to; sums of n of them come out a few times that.
ROUNDINGS = 8
EPSILON = np.finfo(float).eps


def kkt_violation(problem, multipliers):
    """Return the KKT violation of multipliers, >= 0, by a new product with K."""
    residuals = kkt_residuals(problem, multipliers, score_errors(problem, multipliers))
    return max(residuals.violation, 0.0)


@dataclass(frozen=True)
class Case:
    """The recipe of one random problem; equal recipes make equal problems.

    ``multiplier_sum`` is y'a, as a share of the largest (or, below zero, smallest) attainable one.
    """

    n: int
    C: float
    shape: float
    kernel: str = "narrow"
    prior: float = 0.0
    weighted: bool = False
    lone: bool = False
    known: bool = False
    multiplier_sum: float = 0.0

    def __str__(self):
        words = [f"n{self.n}", f"C{self.C:g}", f"shape{self.shape:g}", self.kernel]
        words += [f"prior{self.prior:g}"] if self.prior else []
        words += ["weighted"] if self.weighted else []
        words += ["lone"] if self.lone else []
        words += ["known"] if self.known else []
        words += [f"sum{self.multiplier_sum:g}"] if self.multiplier_sum else []
        return "-".join(words)


def kernel_matrix(name, points):
    """Kernels from well conditioned to singular; "repeated" has every row at least twice."""
    if name == "repeated":
        points = points[np.arange(len(points)) // 2]
    if name == "linear":
        return points[:, :3] @ points[:, :3].T
    return rbf_kernel(points, gamma=0.02 if name == "wide" else 0.25)


def make_problem(case):
    """Noisy labels on normal points, so that large bounds do matter."""
    generator = np.random.default_rng([case.n, int(100 * case.C), int(10 * case.shape)])
    points = generator.normal(size=(case.n, 8))
    signs = np.where(points[:, 0] + 0.7 * generator.normal(size=case.n) > 0, 1.0, -1.0)
    if case.lone:
        signs[:] = -1.0
    if abs(signs.sum()) == case.n:
        signs[case.n // 2] *= -1.0
    weights = generator.uniform(0.3, 3.0, case.n) if case.weighted else np.ones(case.n)
    bounds = case.C * weights
    return DualProblem(
        gram=kernel_matrix(case.kernel, points),
        signs=signs,
        prior_scores=case.prior * (1.0 + generator.normal(size=case.n)),
        bounds=bounds,
        shapes=case.shape * weights,
        known_bias=case.known,
        multiplier_sum=0.5
        * case.multiplier_sum
        * bounds[signs == np.sign(case.multiplier_sum)].sum(),
    )


def decision_values(problem, multipliers, bias):
    return problem.gram @ (problem.signs * multipliers) + problem.prior_scores + bias


def rounding_floor(problem, multipliers):
    """About the smallest violation floating point can show.

    The size of the terms of K c, rounded; and, close to its bound, how far the last digit of a
    multiplier moves its own slope e / (C - a).
    """
    terms = np.abs(problem.gram) @ multipliers + np.abs(problem.prior_scores) + 1.0
    soft = problem.shapes > 0
    distance = (problem.bounds - multipliers)[soft]
    stiffest = (np.spacing(problem.bounds[soft]) * problem.shapes[soft] / distance**2).max(
        initial=0.0
    )
    return ROUNDINGS * EPSILON * terms.max() + stiffest


def solve_tightly(problem, tol=TIGHT, **options):
    """Solve, and insist on an answer that is optimal as far as floating point can tell."""
    solution = solve(problem, tol=tol, **options)
    assert solution.status in ("converged", "rounding")
    if solution.status == "rounding":
        assert solution.violation <= rounding_floor(problem, solution.multipliers)
    assert_feasible(problem, solution)
    return solution


def assert_feasible(problem, solution):
    multipliers = solution.multipliers
    assert np.isfinite(multipliers).all()
    assert (multipliers >= 0).all()
    assert (multipliers <= problem.bounds).all()
    assert (multipliers < problem.bounds)[problem.shapes > 0].all()
    if not problem.known_bias:
        # Every step moves two multipliers by the same amount; only rounding is left.
        residue = abs(problem.signs @ multipliers - problem.multiplier_sum)
        assert residue <= 1e-12 * problem.bounds.max() * problem.signs.size
    assert np.isfinite([solution.bias, solution.gap, solution.objective, solution.violation]).all()
    assert solution.gap >= 0
    assert solution.violation >= 0


def allowed_biases(problem, multipliers):
    """The (lowest, highest) bias under which no optimality condition is violated, by a loop."""
    scores = decision_values(problem, multipliers, 0.0)
    lowest, highest = -np.inf, np.inf
    for i, sign in enumerate(problem.signs):
        a, bound, shape = multipliers[i], problem.bounds[i], problem.shapes[i]
        target = 1.0 - (shape / (bound - a) if shape > 0 else 0.0)
        bias = sign * target - scores[i]
        at_bound = shape == 0 and a >= bound
        # a = 0 allows a larger margin than the target, a at its bound a smaller one.
        if (sign > 0 and not at_bound) or (sign < 0 and a > 0):
            lowest = max(lowest, bias)
        if (sign < 0 and not at_bound) or (sign > 0 and a > 0):
            highest = min(highest, bias)
    return lowest, highest


CASES = [
    # tiny
    Case(2, 1.01, 0.0),
    Case(2, 1.01, 1.0),
    Case(2, 100.0, 0.1, known=True),
    Case(3, 1e4, 1.0, weighted=True),
    Case(5, 10.0, 0.0, "linear", known=True),
    Case(5, 10.0, 0.1, "repeated"),
    Case(8, 100.0, 1.0, prior=5.0),
    Case(8, 1e4, 0.0, lone=True),
    # small
    Case(20, 1.01, 1.0),
    Case(20, 1.01, 0.1, "linear", weighted=True),
    Case(20, 1.5, 1.0, weighted=True, known=True),
    Case(20, 10.0, 1.0, "linear"),
    Case(30, 10.0, 0.0, "repeated", weighted=True),
    Case(30, 10.0, 0.1, "wide", known=True),
    Case(40, 100.0, 0.0, weighted=True),
    Case(40, 100.0, 1.0, lone=True),
    Case(40, 100.0, 1.0, prior=-20.0, weighted=True),
    Case(40, 10.0, 0.1, prior=5.0, lone=True, known=True),
    Case(40, 1e3, 0.1, "repeated", weighted=True),
    Case(40, 1e4, 0.0, "repeated", known=True),
    Case(40, 1e4, 1.0, "wide"),
    # middle
    Case(60, 1.01, 0.0, "linear", prior=3.0),
    Case(60, 10.0, 1.0, "linear", prior=3.0, weighted=True),
    Case(80, 1.01, 0.1, lone=True),
    Case(80, 1.01, 1.0, prior=5.0, known=True),
    Case(80, 10.0, 0.0, "wide", weighted=True),
    Case(80, 100.0, 0.1, weighted=True, known=True),
    Case(80, 100.0, 1.0, "repeated", prior=2.0),
    Case(80, 1e3, 0.0, "linear", weighted=True),
    Case(80, 1e3, 1.0, "linear", known=True),
    Case(80, 1e3, 1.0, "wide", lone=True, weighted=True),
    Case(80, 1e4, 0.0, "wide", prior=10.0, known=True),
    Case(80, 1e4, 0.1, prior=10.0),
    Case(120, 10.0, 0.1, "repeated", lone=True, known=True),
    Case(120, 100.0, 1.0, weighted=True),
    Case(120, 1e4, 1.0, weighted=True, known=True),
    # large
    Case(200, 2.0, 1.0, "wide", weighted=True),
    Case(200, 1e3, 0.1, weighted=True),
    Case(200, 1e4, 0.0, "wide"),
    Case(300, 1.01, 0.0, weighted=True),
    Case(300, 1.01, 0.1),
    Case(300, 10.0, 0.0, "linear", known=True),
    Case(300, 10.0, 1.0, weighted=True, known=True),
    Case(300, 1e3, 0.0, "repeated", prior=4.0),
    Case(300, 1e4, 1.0),
    # a given sum of multipliers
    Case(2, 3.0, 1.0, multiplier_sum=0.5),
    Case(5, 10.0, 0.0, "repeated", multiplier_sum=-1.0),
    Case(8, 2.0, 0.1, prior=5.0, multiplier_sum=1.0),
    Case(20, 1.5, 1.0, weighted=True, multiplier_sum=-0.1),
    Case(30, 10.0, 0.0, multiplier_sum=0.3),
    Case(30, 10.0, 1.0, "linear", multiplier_sum=1.0),
    Case(40, 100.0, 1.0, lone=True, multiplier_sum=0.7),
    Case(40, 10.0, 0.1, prior=-20.0, weighted=True, multiplier_sum=-0.4),
    Case(80, 10.0, 1.0, "wide", multiplier_sum=-1.0),
    Case(80, 100.0, 0.0, "repeated", weighted=True, multiplier_sum=0.02),
    Case(120, 100.0, 1.0, prior=2.0, weighted=True, multiplier_sum=-0.01),
    Case(200, 1e3, 0.1, weighted=True, multiplier_sum=0.001),
    Case(300, 5.0, 1.0, multiplier_sum=0.2),
]


def is_small(case):
    """Small enough for the interpreter."""
    return case.n <= 40 and case.C <= 100


# Of the large problems, one of each bias runs by default.
LARGE_BY_DEFAULT = (
    Case(200, 1e3, 0.1, weighted=True),
    Case(300, 10.0, 1.0, weighted=True, known=True),
)


def marks_of(case):
    if is_small(case):
        return pytest.mark.nojit
    return pytest.mark.exhaustive if case.n >= 120 and case not in LARGE_BY_DEFAULT else ()


ALL_CASES = [pytest.param(case, id=str(case), marks=marks_of(case)) for case in CASES]


@cache
def outcome(case):
    """Problem, solution and reference of one case, computed once for all tests."""
    problem = make_problem(case)
    return problem, solve_tightly(problem), solve_convex(problem)


def multipliers_are_determined(case):
    """Only the function is unique at shape 0, and well determined under an ill conditioned K."""
    return case.shape > 0 and np.linalg.cond(make_problem(case).gram) <= WELL_CONDITIONED


def assert_same_objective(value, reference):
    assert abs(value - reference) <= OBJECTIVE_TOLERANCE * abs(reference)


def assert_same_decisions(problem, solution, reference):
    """Compare decision values; where the bias is an interval, the functions and that interval."""
    lowest, highest = allowed_biases(problem, solution.multipliers)
    unique = problem.known_bias or highest - lowest <= DECISION_TOLERANCE
    if unique:
        ours = decision_values(problem, solution.multipliers, solution.bias)
        theirs = decision_values(problem, reference.multipliers, reference.bias)
    else:
        ours = decision_values(problem, solution.multipliers, 0.0)
        theirs = decision_values(problem, reference.multipliers, 0.0)
        for bias in (solution.bias, reference.bias):
            assert lowest - DECISION_TOLERANCE <= bias <= highest + DECISION_TOLERANCE
    assert np.abs(ours - theirs).max() <= DECISION_TOLERANCE

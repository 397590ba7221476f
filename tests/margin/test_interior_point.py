"""Duals on which pair steps make no progress: Newton's method, and the end of a slow solve."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from seqmed import SeqMED
from seqmed.margin.dual import interior_point, smo
from seqmed.margin.dual.problem import DualProblem
from seqmed.margin.dual.smo import solve
from tests.reference.convex import solve_convex
from tests.support.dual_problems import (
    CASES,
    assert_feasible,
    assert_same_objective,
    make_problem,
)

# Steps of an ordinary solve of this size are a hundredth of this; before, it took ten million.
MOST_STEPS = 120_000
RELATIVE_GAP = 1e-6


def customers(n=200, seed=0):
    """Age, income and balance in their own units; three classes that do not depend on them."""
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 90, n)
    income, balance = generator.lognormal(10, 1, n), generator.normal(0, 50_000, n)
    return np.column_stack([age, income, balance]), generator.integers(0, 3, n)


def raw_problem(shape=1.0, known=False, seed=0, n=200):
    points, labels = customers(n, seed)
    return DualProblem(
        gram=points @ points.T,
        signs=np.where(labels == 0, 1.0, -1.0),
        prior_scores=np.full(n, -1.0 if known else 0.0),
        bounds=np.full(n, 10.0),
        shapes=np.full(n, shape),
        known_bias=known,
    )


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [1.0, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_columns_in_their_own_units_are_solved(shape, known, seed):
    problem = raw_problem(shape, known, seed)
    solution = solve(problem)
    assert solution.n_iter <= MOST_STEPS
    assert solution.relative_gap <= RELATIVE_GAP
    assert_feasible(problem, solution)


@pytest.mark.parametrize("known", [False, True])
def test_a_hard_box_ends_near_its_optimum(known):
    """Free multipliers have no curvature of their own, so rounding ends the solve earlier."""
    solution = solve(raw_problem(0.0, known))
    assert solution.n_iter <= MOST_STEPS
    assert solution.relative_gap <= 1e-3


def test_large_numbers_beside_text_are_solved():
    generator = np.random.default_rng(0)
    n = 300
    text = generator.random((n, 200)) * (generator.random((n, 200)) < 0.03)
    points = np.hstack([text, generator.lognormal(10, 1, (n, 2))])
    labels = generator.integers(0, 3, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SeqMED("linear").fit(points, labels)
    assert model.n_iter_ <= 3 * MOST_STEPS
    assert model.update_info_.relative_gap <= 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_rows_beyond_rounding_end_with_the_warning(seed):
    """Kernel values of 1e16 leave no digits of a score; the solve must end all the same."""
    points = 1e8 * np.random.default_rng(seed).normal(size=(5, 3))
    with pytest.warns(ConvergenceWarning, match=r"KKT violation .* duality gap .* raise tol"):
        model = SeqMED("linear").fit(points, np.arange(5))
    assert model.n_iter_ <= 5 * 3 * smo.SLOW


def test_a_budget_of_landmarks_ends_as_well():
    points, labels = customers(600)
    model = SeqMED("poly", budget=100, random_state=0).fit(points, labels)
    assert model.n_iter_ <= 3 * 3 * smo.SLOW
    assert model.update_info_.relative_gap <= RELATIVE_GAP


def two_classes(case):
    return not case.lone or case.known


@pytest.mark.parametrize("case", [case for case in CASES if two_classes(case)], ids=str)
def test_the_objective_is_that_of_clarabel(case):
    problem = make_problem(case)
    solution = interior_point.solve_by_newton(problem, np.zeros(case.n), 1e-8)
    assert_feasible(problem, solution)
    assert solution.gap <= 1e-4 * max(abs(solution.objective), 1.0)
    reference = solve_convex(problem)
    assert solution.objective == pytest.approx(reference.objective, rel=1e-4)
    if solution.relative_gap < 1e-10:
        assert_same_objective(solution.objective, reference.objective)


def test_problems_that_take_too_long_are_left_to_pair_steps(monkeypatch):
    problem = raw_problem()
    start = np.zeros(problem.signs.size)
    assert interior_point.solve_by_newton(problem, start, 1e-3) is not None
    monkeypatch.setattr(interior_point, "LARGEST_WORK", 200)
    assert interior_point.solve_by_newton(problem, start, 1e-3) is None
    monkeypatch.setattr(interior_point, "LARGEST_FACTORED", 199)
    assert interior_point.solve_by_newton(problem, start, 1e-3) is None


def test_a_solve_without_progress_ends_without_newton(monkeypatch):
    monkeypatch.setattr(interior_point, "LARGEST_FACTORED", 0)
    solution = solve(raw_problem())
    assert solution.status == "rounding"
    assert solution.n_iter <= 10 * smo.SLOW


def test_a_solve_with_slow_progress_goes_on(monkeypatch):
    """The gap falls from one check to the next, so that the solve does not end early."""
    monkeypatch.setattr(interior_point, "LARGEST_FACTORED", 0)
    monkeypatch.setattr(smo, "SLOW", 2000)
    monkeypatch.setattr(smo, "SLOW_PER_POINT", 0)
    generator = np.random.default_rng(0)
    points = generator.normal(size=(200, 3))
    problem = DualProblem(
        gram=np.exp(-((points[:, None] - points) ** 2).sum(axis=2)),
        signs=generator.choice([-1.0, 1.0], 200),
        prior_scores=np.zeros(200),
        bounds=np.full(200, 1e4),
        shapes=np.ones(200),
    )
    solution = solve(problem)
    assert solution.n_iter > 3 * smo.SLOW
    assert solution.status == "converged"


@pytest.mark.parametrize("max_iter", [0, 1000, smo.SLOW, smo.SLOW + 1])
def test_max_iter_is_kept(max_iter):
    problem = raw_problem()
    solution = solve(problem, max_iter=max_iter)
    if max_iter <= smo.SLOW:
        assert (solution.status, solution.n_iter) == ("max_iter", max_iter)
    else:  # Newton's solution is not thrown away
        assert solution.n_iter <= max_iter + interior_point.LARGEST_NUMBER_OF_STEPS
        assert solution.relative_gap <= RELATIVE_GAP


def test_values_that_overflow_end_the_path():
    huge = DualProblem(
        gram=1e300 * np.eye(4) + 1e299,
        signs=np.array([1.0, -1.0, 1.0, -1.0]),
        prior_scores=np.zeros(4),
        bounds=np.full(4, 1e10),
        shapes=np.ones(4),
    )
    assert solve(huge).status in ("converged", "rounding")
    interior_point.solve_by_newton(huge, np.zeros(4), 1e-3)

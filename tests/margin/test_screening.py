"""Solving a dual from a part of its points gives the same solution for every part."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from seqmed.margin.dual import smo
from seqmed.margin.dual.problem import feasible
from tests.support.dual_problems import (
    ALL_CASES,
    TIGHT,
    Case,
    assert_feasible,
    assert_same_decisions,
    assert_same_objective,
    kkt_violation,
    make_problem,
    outcome,
    rounding_floor,
)

PARTS = {
    "none": lambda problem, wanted: np.zeros_like(wanted),
    "the right ones": lambda problem, wanted: wanted,
    "the wrong ones": lambda problem, wanted: ~wanted,
    "every third": lambda problem, wanted: np.arange(wanted.size) % 3 == 0,
    "all": lambda problem, wanted: np.ones_like(wanted),
}
PRECISIONS = [np.float32, np.float64]


def blocks_of(problem, precision, asked):
    """Return covariances in an order of their own, and record the number of points."""

    def block(rows):
        places = np.flatnonzero(rows)[::-1]
        asked.append(places.size)
        return places, problem.gram[np.ix_(places, places)].astype(precision)

    return block


def solve_from(problem, rows, precision=np.float64, *, tol=TIGHT, start=None, **options):
    asked = []
    solution = smo.solve_screened(
        problem,
        rows,
        blocks_of(problem, precision, asked),
        start=feasible(problem, np.zeros(rows.size) if start is None else start),
        tol=tol,
        **options,
    )
    return solution, asked


def cases_parts_and_precisions():
    """All combinations; by default every pair of two of the three."""
    for place, ((case,), marks, name) in enumerate(ALL_CASES):
        for number, part in enumerate(PARTS):
            for other, precision in enumerate(PRECISIONS):
                rare = (place + number + other) % 2
                yield pytest.param(
                    case,
                    part,
                    precision,
                    marks=[*marks, *[pytest.mark.exhaustive] * rare],
                    id=f"{name}-{part}-{precision.__name__}",
                )


@pytest.mark.parametrize(("case", "part", "precision"), [*cases_parts_and_precisions()])
def test_any_part_leads_to_the_solution(case, part, precision):
    problem, whole, reference = outcome(case)
    rows = PARTS[part](problem, whole.multipliers > 0)
    solution, _ = solve_from(problem, rows, precision)
    assert_feasible(problem, solution)
    assert solution.status in ("converged", "rounding")
    if solution.status == "rounding":
        assert solution.violation <= rounding_floor(problem, solution.multipliers)
    assert_same_objective(solution.objective, reference.objective)
    assert_same_decisions(problem, solution, reference)


LARGE = Case(300, 5.0, 1.0)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_certificate_is_of_the_whole_problem(precision, tol):
    problem, whole, _ = outcome(LARGE)
    rows = np.arange(300) % 3 == 0
    solution, asked = solve_from(problem, rows, precision, tol=tol)
    assert solution.status == "converged"
    assert kkt_violation(problem, solution.multipliers) == pytest.approx(
        solution.violation, abs=1e-12
    )
    assert solution.violation <= tol
    assert solution.gap >= 0
    # primal and dual bracket the optimum
    assert solution.objective <= whole.objective + 1e-12
    assert solution.objective + solution.gap >= whole.objective - 1e-12
    assert solution.multipliers.shape == (300,)
    assert asked[0] == 100


def test_rows_of_points_beyond_their_margins_are_never_computed():
    problem, whole, _ = outcome(LARGE)
    wanted = whole.multipliers > 0
    solution, asked = solve_from(problem, wanted)
    assert asked == [wanted.sum()]
    np.testing.assert_array_equal(solution.multipliers[~wanted], 0.0)


def test_violating_points_are_added():
    problem, whole, _ = outcome(LARGE)
    wanted = np.flatnonzero(whole.multipliers > 0)
    rows = np.zeros(300, dtype=bool)
    rows[wanted[:-5]] = True
    solution, asked = solve_from(problem, rows)
    assert len(asked) >= 2
    assert asked[-1] < 300
    np.testing.assert_allclose(solution.multipliers, whole.multipliers, atol=1e-6)


def test_a_warm_start_at_the_solution_takes_no_step():
    problem, whole, _ = outcome(LARGE)
    solution, asked = solve_from(problem, np.zeros(300, dtype=bool), start=whole.multipliers)
    assert solution.n_iter == 0
    assert asked == []
    np.testing.assert_array_equal(solution.multipliers, whole.multipliers)


def test_points_with_a_start_multiplier_are_always_active():
    problem, whole, _ = outcome(LARGE)
    far = feasible(problem, np.full(300, 2.0))
    solution, asked = solve_from(problem, np.zeros(300, dtype=bool), start=far)
    assert asked[0] == 300
    np.testing.assert_allclose(solution.multipliers, whole.multipliers, atol=1e-6)


def test_a_limit_on_steps_is_kept():
    problem, whole, _ = outcome(LARGE)
    for allowed in (0, 1, 7):
        solution, _ = solve_from(problem, np.arange(300) % 2 == 0, max_iter=allowed)
        assert solution.n_iter <= allowed
        assert solution.status == "max_iter"
        assert_feasible(problem, solution)
        assert solution.objective + solution.gap >= whole.objective - 1e-9


def test_one_class_alone_is_given_the_others():
    problem, whole, _ = outcome(LARGE)
    solution, asked = solve_from(problem, problem.signs > 0)
    assert asked[0] == 300
    np.testing.assert_allclose(solution.multipliers, whole.multipliers, atol=1e-6)


def test_points_are_added_until_they_attain_the_multiplier_sum():
    problem = make_problem(Case(120, 100.0, 1.0, multiplier_sum=0.9))
    rows = np.zeros(120, dtype=bool)
    rows[[np.flatnonzero(problem.signs > 0)[0], np.flatnonzero(problem.signs < 0)[0]]] = True
    solution, asked = solve_from(problem, rows)
    assert asked[0] > 50
    assert problem.signs @ solution.multipliers == pytest.approx(problem.multiplier_sum, rel=1e-12)


def test_many_points_start_with_some_and_are_added_a_few_at_a_time(monkeypatch):
    problem, whole, _ = outcome(LARGE)
    monkeypatch.setattr(smo, "MOST_AT_FIRST", 20)
    solution, asked = solve_from(problem, np.ones(300, dtype=bool))
    assert asked[0] == 20
    assert all(after <= 2 * before for before, after in pairwise(asked))
    np.testing.assert_allclose(solution.multipliers, whole.multipliers, atol=1e-6)


def test_imprecise_covariances_are_replaced_by_double_precision(monkeypatch):
    """Covariances are wrong in the first digit; margins in double precision still end the solve."""
    problem, whole, _ = outcome(LARGE)
    noise = 1.0 + 0.5 * np.random.default_rng(0).random((300, 300))
    wrong = replace(problem, gram=problem.gram * np.sqrt(noise * noise.T))
    places = np.arange(300)
    solution = smo.solve_screened(
        problem,
        np.ones(300, dtype=bool),
        lambda rows: (places, wrong.gram.astype(np.float32)),
        start=np.zeros(300),
        tol=1e-8,
    )
    assert solution.status == "converged"
    np.testing.assert_allclose(solution.multipliers, whole.multipliers, atol=1e-6)
    monkeypatch.setattr(smo, "LARGEST_IN_DOUBLE", 10)
    unmended = smo.solve_screened(
        problem,
        np.ones(300, dtype=bool),
        lambda rows: (places, -wrong.gram.astype(np.float32)),
        start=np.zeros(300),
        tol=1e-8,
        max_iter=1000,
    )
    assert unmended.status != "converged"
    assert unmended.objective + unmended.gap >= whole.objective - 1e-9


def test_slow_progress_is_not_reported_as_rounding(monkeypatch):
    """A descent that ran out of steps does not count as stalled."""
    problem, whole, _ = outcome(LARGE)
    monkeypatch.setattr(smo, "STEPS_PER_POINT", 1)
    monkeypatch.setattr(smo, "LARGEST_IN_DOUBLE", 0)
    solution, _ = solve_from(problem, np.ones(300, dtype=bool), tol=1e-6)
    assert solution.status == "converged"
    np.testing.assert_allclose(solution.multipliers, whole.multipliers, atol=1e-4)

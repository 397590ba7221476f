"""The dual solver against clarabel, Newton, LIBSVM, closed forms and its own certificate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from seqmed.margin.dual import smo, steps
from seqmed.margin.dual.problem import (
    DualProblem,
    attainable_sum,
    duality_gap,
    exact_bias,
    feasible,
    kkt_residuals,
    score_errors,
)
from seqmed.margin.dual.smo import empty_row_cache, solve
from tests.reference import newton
from tests.reference.convex import dual_value, primal_value, solve_convex
from tests.support.dual_problems import (
    ALL_CASES,
    CASES,
    EPSILON,
    MULTIPLIER_TOLERANCE,
    TIGHT,
    Case,
    allowed_biases,
    assert_feasible,
    assert_same_decisions,
    assert_same_objective,
    decision_values,
    is_small,
    kkt_violation,
    make_problem,
    multipliers_are_determined,
    outcome,
    rounding_floor,
    solve_tightly,
)

# -- against clarabel and Newton -------------------------------------------------------------------


def test_the_cases_cover_all_shapes_sizes_and_bounds():
    assert len(CASES) >= 40
    assert {case.shape for case in CASES} == {0.0, 0.1, 1.0}
    assert min(case.n for case in CASES) == 2
    assert max(case.n for case in CASES) == 300
    assert min(case.C for case in CASES) == 1.01
    assert max(case.C for case in CASES) == 1e4
    compared = [case for case in CASES if multipliers_are_determined(case)]
    assert len(compared) >= 15
    with_sum = [case for case in CASES if case.multiplier_sum]
    assert {case.shape for case in with_sum} == {0.0, 0.1, 1.0}
    assert {np.sign(case.multiplier_sum) for case in with_sum} == {-1.0, 1.0}
    assert sum(multipliers_are_determined(case) for case in with_sum) >= 5
    assert len(set(map(str, CASES))) == len(CASES)


@pytest.mark.parametrize("case", ALL_CASES)
def test_the_solution_is_that_of_other_solvers(case):
    """Clarabel, and the Newton solver of the reference."""
    problem, solution, reference = outcome(case)
    # The reported objective is the definition's, to the rounding of the products in it.
    size = solution.multipliers @ (1.0 + np.abs(problem.prior_scores)) + 1.0
    assert abs(solution.objective - dual_value(problem, solution.multipliers)) <= 1e-12 * size
    for other in (reference, newton.solve(problem)):
        assert_same_objective(solution.objective, other.objective)
        assert_same_decisions(problem, solution, other)
        if multipliers_are_determined(case):
            difference = np.abs(solution.multipliers - other.multipliers) / problem.bounds
            assert difference.max() <= MULTIPLIER_TOLERANCE


# -- the certificate -------------------------------------------------------------------------------


def naive_gap(problem, multipliers, bias):
    """(primal minus dual objective, the size of what cancels in it), from the definitions."""
    primal = primal_value(problem, multipliers, bias)
    costs = np.abs(1.0 - problem.signs * problem.prior_scores)
    size = abs(primal) + float(multipliers @ costs) + abs(bias) * float(multipliers.sum()) + 1.0
    size += abs(bias * problem.multiplier_sum)
    return primal - dual_value(problem, multipliers), size


# Cancellation in the naive gap, as a share of its largest terms (sums of up to 300 * 300 products).
NAIVE_ROUNDING = 1e-12


@pytest.mark.parametrize("tol", [1.0, 1e-2, TIGHT])
@pytest.mark.parametrize("case", ALL_CASES)
def test_gap_is_primal_minus_dual_and_brackets_the_optimum(case, tol):
    problem, best, _ = outcome(case)
    solution = best if tol == TIGHT else solve(problem, tol=tol)
    assert_feasible(problem, solution)
    gap, size = naive_gap(problem, solution.multipliers, solution.bias)
    assert abs(solution.gap - gap) <= NAIVE_ROUNDING * size
    assert solution.objective <= best.objective + best.gap + NAIVE_ROUNDING * size
    assert best.objective <= solution.objective + solution.gap + NAIVE_ROUNDING * size


def feasible_point(problem, generator):
    """Multipliers inside the bounds, some of them zero, y'a as it has to be for a diffuse bias.

    The sum of multipliers is the same share of every bound on one side; the rest adds up to zero.
    """
    n = problem.signs.size
    multipliers = problem.bounds * generator.uniform(0.0, 0.999, n) * (generator.random(n) < 0.8)
    if problem.known_bias:
        return multipliers
    positive = problem.signs > 0
    asked = np.zeros(n)
    if problem.multiplier_sum:
        side = problem.signs == np.sign(problem.multiplier_sum)
        asked[side] = (
            abs(problem.multiplier_sum) * problem.bounds[side] / problem.bounds[side].sum()
        )
        multipliers[side] *= 1.0 - asked[side] / problem.bounds[side]
    sums = multipliers[positive].sum(), multipliers[~positive].sum()
    multipliers[positive] *= min(sums) / sums[0] if sums[0] > 0 else 0.0
    multipliers[~positive] *= min(sums) / sums[1] if sums[1] > 0 else 0.0
    return multipliers + asked


@pytest.mark.parametrize("case", ALL_CASES)
def test_gap_away_from_the_optimum(case):
    problem, best, _ = outcome(case)
    generator = np.random.default_rng(7)
    for _ in range(10):
        multipliers = feasible_point(problem, generator)
        bias = 0.0 if problem.known_bias else float(generator.normal(scale=3.0))
        gap = duality_gap(problem, multipliers, score_errors(problem, multipliers), bias)
        expected, size = naive_gap(problem, multipliers, bias)
        assert gap >= 0
        assert abs(gap - expected) <= NAIVE_ROUNDING * size
        assert dual_value(problem, multipliers) + gap >= best.objective - NAIVE_ROUNDING * size


@pytest.mark.parametrize("case", ALL_CASES)
def test_violation_is_the_largest_difference_of_implied_biases(case):
    problem, _, _ = outcome(case)
    generator = np.random.default_rng(8)
    for _ in range(5):
        multipliers = feasible_point(problem, generator)
        lowest, highest = allowed_biases(problem, multipliers)
        if problem.known_bias:
            lowest, highest = max(lowest, 0.0), min(highest, 0.0)
        expected = max(lowest - highest, 0.0)
        # At 999 thousandths of its bound a multiplier's slope is still good to nine digits.
        assert kkt_violation(problem, multipliers) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.nojit
def test_gap_is_never_negative_at_points_where_every_term_vanishes(shape):
    """At an exact optimum all terms are zero in exact arithmetic; rounding decides the sign."""
    for n in range(2, 12):
        problem = make_problem(Case(n, 10.0, shape))
        solution = solve(problem, tol=1e-13)
        assert_feasible(problem, solution)
        assert_certificate_follows_from_violation(problem, solution, 1e-13)


@pytest.mark.nojit
def test_relative_gap_is_the_gap_over_the_larger_objective():
    problem = make_problem(Case(20, 10.0, 1.0))
    solution = solve(problem, tol=1e-1)
    assert solution.gap > 0
    assert solution.relative_gap == solution.gap / (solution.objective + solution.gap)
    beyond = replace(problem, prior_scores=3.0 * problem.signs)
    assert solve(beyond).relative_gap == 0.0


# -- against LIBSVM --------------------------------------------------------------------------------


def noisy_svm_problem(n, features, gamma, C):
    generator = np.random.default_rng(n)
    points = generator.normal(size=(n, features))
    signs = np.where(points[:, 0] ** 2 + generator.normal(size=n) > 0.8, 1.0, -1.0)
    gram = rbf_kernel(points, gamma=gamma)
    return DualProblem(gram, signs, np.zeros(n), np.full(n, C), np.zeros(n))


def libsvm(problem):
    """LIBSVM's (multipliers, decision values) for a problem with one bound and no prior scores."""
    machine = SVC(C=problem.bounds[0], kernel="precomputed", tol=1e-8)
    machine.fit(problem.gram, problem.signs)
    multipliers = np.zeros(problem.signs.size)
    multipliers[machine.support_] = problem.signs[machine.support_] * machine.dual_coef_[0]
    return multipliers, machine.decision_function(problem.gram)


@pytest.mark.parametrize("C", [1.0, 10.0, 1e3])
@pytest.mark.parametrize("n", [200, 400])
def test_shape_zero_is_the_support_vector_machine(n, C):
    """On a kernel that LIBSVM's cache in float32 holds, it meets its tol of 1e-8.

    The ridge keeps the rounded matrix positive definite.
    """
    problem = noisy_svm_problem(n, 3, 0.5, C)
    rounded = (problem.gram + 1e-3 * np.eye(n)).astype(np.float32).astype(np.float64)
    problem = replace(problem, gram=rounded)
    ours = solve_tightly(problem)
    assert (ours.multipliers == C).any(), "noisy data, or the box would not matter"
    multipliers, expected = libsvm(problem)
    assert kkt_violation(problem, multipliers) <= 2e-8
    scores = decision_values(problem, ours.multipliers, ours.bias)
    assert np.abs(scores - expected).max() <= 1e-6


# -- warm starts, weights --------------------------------------------------------------------------

WARM_CASES = [
    pytest.param(case, id=str(case), marks=[pytest.mark.nojit] if is_small(case) else [])
    for case in [
        Case(30, 10.0, 0.0),
        Case(30, 10.0, 0.1, weighted=True),
        Case(40, 100.0, 1.0, prior=2.0),
        Case(40, 10.0, 1.0, known=True),
        Case(150, 1e3, 0.0, weighted=True, known=True),
        Case(150, 1e3, 1.0, weighted=True),
        Case(30, 10.0, 0.1, weighted=True, multiplier_sum=0.4),
        Case(40, 100.0, 1.0, prior=2.0, multiplier_sum=-0.1),
    ]
]


@pytest.mark.parametrize("case", WARM_CASES)
def test_warm_start_from_the_optimum_takes_no_step(case):
    problem = make_problem(case)
    cold = solve_tightly(problem)
    kept = cold.multipliers.copy()
    warm = solve(problem, tol=TIGHT, start=cold.multipliers)
    assert cold.n_iter > 0
    assert warm.n_iter == 0
    assert warm.status == "converged"
    np.testing.assert_array_equal(warm.multipliers, cold.multipliers)
    np.testing.assert_array_equal(cold.multipliers, kept, err_msg="the start was written to")
    assert warm.bias == cold.bias


@pytest.mark.parametrize("case", WARM_CASES)
def test_warm_start_from_elsewhere_ends_at_the_same_place(case):
    problem = make_problem(case)
    cold = solve_tightly(problem)
    generator = np.random.default_rng(3)
    far = feasible_point(problem, generator)
    near = 0.999 * cold.multipliers + 0.001 * far
    for start in (near, far):
        untouched = start.copy()
        warm = solve_tightly(problem, start=start)
        np.testing.assert_array_equal(start, untouched)
        np.testing.assert_allclose(
            decision_values(problem, warm.multipliers, warm.bias),
            decision_values(problem, cold.multipliers, cold.bias),
            rtol=0,
            atol=1e-8,
        )
        # K is well conditioned in all of these: the multipliers are determined too.
        difference = np.abs(warm.multipliers - cold.multipliers) / problem.bounds
        assert difference.max() <= 1e-8


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.nojit
def test_weight_two_is_a_repeated_row(shape, known):
    case = Case(25, 5.0, shape, known=known)
    plain = make_problem(case)
    copies = np.random.default_rng(11).integers(1, 4, plain.signs.size)
    rows = np.repeat(np.arange(plain.signs.size), copies)
    repeated = replace(
        plain,
        gram=plain.gram[np.ix_(rows, rows)],
        signs=plain.signs[rows],
        prior_scores=plain.prior_scores[rows],
        bounds=plain.bounds[rows],
        shapes=plain.shapes[rows],
    )
    weighted = replace(plain, bounds=plain.bounds * copies, shapes=plain.shapes * copies)
    one, other = solve_tightly(weighted), solve_tightly(repeated)

    sums = np.bincount(rows, weights=other.multipliers)
    np.testing.assert_allclose(one.multipliers, sums, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        decision_values(weighted, one.multipliers, one.bias)[rows],
        decision_values(repeated, other.multipliers, other.bias),
        rtol=0,
        atol=1e-8,
    )
    assert abs(one.objective - other.objective) <= 1e-10 * abs(one.objective)
    if shape > 0:
        # The problem is strictly concave, so copies have equal multipliers. At shape 0 only their
        # sum is determined.
        shares = (one.multipliers / copies)[rows]
        np.testing.assert_allclose(other.multipliers, shares, rtol=0, atol=1e-8)
    # Scaling the bounds alone is another problem: the shapes belong to the weights.
    if shape == 1.0:
        half = solve_tightly(replace(weighted, shapes=plain.shapes))
        assert np.abs(half.multipliers - one.multipliers).max() > 1e-2


# -- a given sum of multipliers --------------------------------------------------------------------


def boundaries(case):
    """A problem, and starts from zero to beyond the bounds."""
    problem = make_problem(case)
    generator = np.random.default_rng(4)
    random = problem.bounds * generator.uniform(-0.3, 1.3, case.n)
    positive, negative = problem.signs > 0, problem.signs < 0
    starts = [
        np.zeros(case.n), problem.bounds, random, np.where(positive, random, 0.0),
        np.where(negative, random, 0.0), np.where(positive, 2.0 * problem.bounds, -1.0),
        np.where(negative, 2.0 * problem.bounds, -1.0),
    ]  # fmt: skip
    return problem, starts


@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.parametrize("multiplier_sum", [-1.0, -0.3, -1e-9, 0.0, 1e-9, 0.3, 1.0])
@pytest.mark.parametrize("lone", [False, True])
@pytest.mark.nojit
def test_any_start_is_made_feasible(lone, multiplier_sum, shape):
    problem, starts = boundaries(
        Case(20, 10.0, shape, weighted=True, lone=lone, multiplier_sum=multiplier_sum)
    )
    highest = np.where(problem.shapes > 0, np.nextafter(problem.bounds, 0.0), problem.bounds)
    for start in starts:
        given = start.copy()
        found = feasible(problem, start)
        np.testing.assert_array_equal(start, given)
        assert (found >= 0).all()
        assert (found <= highest).all()
        # sums of 20 numbers of up to 30
        assert problem.signs @ found == pytest.approx(problem.multiplier_sum, abs=1e-12)
        # what is feasible stays, to rounding
        np.testing.assert_allclose(feasible(problem, found), found, rtol=0, atol=1e-12)
        solution = solve(problem, tol=1e-6, start=found)
        assert_feasible(problem, solution)
        assert solution.status == "converged"


@pytest.mark.nojit
def test_a_start_is_made_feasible_by_scaling_down_if_that_is_enough():
    """The multipliers of the larger sum are scaled down, the others are unchanged."""
    problem = replace(make_problem(Case(20, 10.0, 1.0)), multiplier_sum=3.0)
    positive = problem.signs > 0
    start = np.linspace(1.0, 4.0, 20)
    for heavy in (positive, ~positive):
        uneven = np.where(heavy, 2.0 * start, start)
        found = feasible(problem, uneven)
        scaled = found[heavy] / uneven[heavy]
        assert np.ptp(scaled) <= 1e-15
        assert 0 < scaled[0] < 1
        np.testing.assert_array_equal(found[~heavy], uneven[~heavy])
    # nothing to scale down: multipliers of the other sign are raised
    found = feasible(problem, np.zeros(20))
    np.testing.assert_array_equal(found[~positive], 0.0)
    assert found[positive].sum() == pytest.approx(3.0, abs=1e-14)
    assert (found[positive] > 0).all()


@pytest.mark.nojit
def test_the_attainable_sum_is_half_of_one_sides_bounds():
    signs, bounds = np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, 2.0, 3.0, 8.0])
    for asked, expected in {0.0: 0.0, 1.5: 1.5, 2.0: 2.0, 2.1: 2.0, 1e9: 2.0, np.inf: 2.0,
                            -1.5: -1.5, -5.0: -5.0, -5.1: -5.0, -1e9: -5.0}.items():  # fmt: skip
        assert attainable_sum(signs, bounds, asked) == expected
    # a class without points has no multipliers
    assert attainable_sum(np.ones(4), bounds, -1.0) == 0.0
    assert attainable_sum(-np.ones(4), bounds, 1.0) == 0.0
    assert attainable_sum(np.ones(0), np.ones(0), 1.0) == 0.0


@pytest.mark.parametrize("multiplier_sum", [0.0, 0.25])
@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.nojit
def test_two_points_have_a_closed_form(shape, multiplier_sum):
    """a = c + t: 2 - t K11 - d c = e / (C - c - t) + e / (C - c), by bisection."""
    gram, bound = np.array([[2.0, 0.3], [0.3, 1.0]]), 4.0
    problem = replace(
        two_points([0.0, 0.0], [1.0, 1.0], bound, shape), gram=gram, multiplier_sum=multiplier_sum
    )
    solution = solve(problem, tol=1e-13)
    low, high = 0.0, bound - multiplier_sum
    for _ in range(200):
        c = 0.5 * (low + high)
        a = c + multiplier_sum
        left = (1.0 - 2.0 * a + 0.3 * c) + (1.0 - 1.0 * c + 0.3 * a)
        price = shape / (bound - a) + shape / (bound - c) if shape else 0.0
        low, high = (c, high) if left > price else (low, c)
    np.testing.assert_allclose(
        solution.multipliers, [low + multiplier_sum, low], rtol=0, atol=1e-12
    )
    assert solution.n_iter == 1
    assert solution.gap <= 1e-12


# -- the bias --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.nojit
def test_every_free_support_vector_implies_the_same_bias(shape):
    problem = make_problem(Case(40, 10.0, shape, prior=1.0))
    solution = solve_tightly(problem)
    multipliers = solution.multipliers
    free = multipliers > 0
    if shape == 0:
        free &= multipliers < problem.bounds
    assert free.sum() >= 5
    target = np.ones(40) if shape == 0 else 1.0 - problem.shapes / (problem.bounds - multipliers)
    without_bias = decision_values(problem, multipliers, 0.0)
    implied = (problem.signs * target - without_bias)[free]
    assert np.ptp(implied) <= 2 * TIGHT
    assert implied.min() - EPSILON <= solution.bias <= implied.max() + EPSILON
    # A previous bias changes nothing where support vectors fix it.
    assert solve(problem, tol=TIGHT, previous_bias=100.0).bias == solution.bias


def two_points(scores, diagonal, bound, shape):
    """One point of each class, uncorrelated."""
    return DualProblem(
        gram=np.diag(diagonal).astype(float),
        signs=np.array([1.0, -1.0]),
        prior_scores=np.array(scores, dtype=float),
        bounds=np.full(2, bound),
        shapes=np.full(2, shape),
    )


@pytest.mark.parametrize(
    ("previous", "expected"),
    [(None, -0.2), (0.3, 0.3), (-0.9, -0.9), (0.5, 0.5), (2.0, 0.5), (-3.0, -0.9)],
)
@pytest.mark.nojit
def test_bias_without_a_free_support_vector(previous, expected):
    """Both at the bound 1/2: the scores 1/2 + b and -1/10 + b must stay inside the margin."""
    problem = two_points([0.0, 0.0], [1.0, 0.2], 0.5, 0.0)
    solution = solve(problem, tol=TIGHT, previous_bias=previous)
    np.testing.assert_array_equal(solution.multipliers, [0.5, 0.5])
    assert solution.bias == pytest.approx(expected, abs=1e-15)
    assert solution.gap <= 4 * EPSILON


@pytest.mark.parametrize("n_trusted", [0, 1])
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.nojit
def test_the_bias_where_every_multiplier_is_at_the_edge_of_rounding(n_trusted):
    """Distances to the bound that underflow when squared give all implied biases the same weight.

    A point far from its bound is then the only one to count.
    """
    problem = replace(
        two_points([0.3, -0.2], [1.0, 1.0], 1e-160, 1e-170), bounds=np.array([1e-160, 1e-160])
    )
    multipliers = np.array([1e-160 * (1 - 1e-15), 1e-160 * (1 - 1e-15)])
    if n_trusted:
        problem = replace(problem, bounds=np.array([1e-160, 1.0]))
    assert ((problem.bounds - multipliers) ** 2 == 0).sum() == 2 - n_trusted
    assert (multipliers < problem.bounds).all()
    residuals = kkt_residuals(problem, multipliers, score_errors(problem, multipliers))
    implied = residuals.implied_biases
    assert np.isfinite(implied).all()
    bias = exact_bias(problem, residuals, None)
    assert bias == pytest.approx(implied[1] if n_trusted else implied.mean(), rel=1e-14)


@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.parametrize("place", ["none", "inside", "above", "below"])
@pytest.mark.nojit
def test_bias_when_all_multipliers_are_zero(shape, place):
    """Prior scores 3 and -2 satisfy both margins (1, or 1 - 1/10 at shape 1) as they are."""
    problem = two_points([3.0, -2.0], [1.0, 1.0], 10.0, shape)
    margin = 1.0 - shape / 10.0
    lowest, highest = margin - 3.0, 2.0 - margin
    previous = {"none": None, "inside": 0.25, "above": 7.0, "below": -7.0}[place]
    expected = {
        "none": 0.5 * (lowest + highest), "inside": 0.25, "above": highest, "below": lowest,
    }[place]  # fmt: skip
    solution = solve(problem, tol=TIGHT, previous_bias=previous)
    np.testing.assert_array_equal(solution.multipliers, [0.0, 0.0])
    assert solution.n_iter == 0
    assert solution.objective == 0.0
    assert solution.gap <= 100 * EPSILON
    assert solution.bias == pytest.approx(expected, abs=1e-15)


# -- progress --------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.nojit
def test_dual_objective_never_falls(shape, known):
    problem = make_problem(Case(30, 20.0, shape, prior=1.0, known=known))
    tol = 1e-8
    full = solve(problem, tol=tol)
    assert full.status == "converged"
    assert full.n_iter > 40
    last = 0.0
    for allowed in range(1, full.n_iter + 5):
        solution = solve(problem, tol=tol, max_iter=allowed)
        assert_feasible(problem, solution)
        assert solution.n_iter <= allowed
        # Rounding of an objective computed anew each time.
        assert solution.objective >= last - 1e-14 * abs(full.objective)
        last = solution.objective
        assert (solution.status == "max_iter") == (solution.violation > tol)
        if allowed < full.n_iter // 2:
            assert solution.status == "max_iter"
            assert solution.n_iter == allowed
    assert last == pytest.approx(full.objective, rel=1e-14)


@pytest.mark.nojit
def test_no_steps_allowed_returns_the_start():
    problem = make_problem(Case(20, 10.0, 1.0))
    start = feasible_point(problem, np.random.default_rng(2))
    for given, expected in ((None, np.zeros(20)), (start, start)):
        solution = solve(problem, tol=1e-3, max_iter=0, start=given)
        assert solution.status == "max_iter"
        assert solution.n_iter == 0
        assert solution.violation > 1e-3
        np.testing.assert_array_equal(solution.multipliers, expected)
        assert_feasible(problem, solution)


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
@pytest.mark.nojit
def test_tolerance_is_met_and_looser_is_cheaper(tol):
    problem = make_problem(Case(40, 100.0, 1.0, "wide"))
    solution = solve(problem, tol=tol)
    assert solution.status == "converged"
    assert solution.violation <= tol
    assert solution.violation == pytest.approx(kkt_violation(problem, solution.multipliers))
    assert solution.n_iter < solve(problem, tol=tol / 10).n_iter


# -- a known bias ----------------------------------------------------------------------------------


def coordinate_ascent(problem, sweeps=20_000):
    """Maximise over one multiplier at a time by its closed form, without an equality."""
    covariance = problem.gram
    multipliers = np.zeros(problem.signs.size)
    for _ in range(sweeps):
        largest = 0.0
        for i, sign in enumerate(problem.signs):
            bound, shape, variance = problem.bounds[i], problem.shapes[i], covariance[i, i]
            coefficients = problem.signs * multipliers
            coefficients[i] = 0.0
            rest = 1.0 - sign * (problem.prior_scores[i] + covariance[i] @ coefficients)
            if rest * bound <= shape:
                best = 0.0
            else:
                root = np.sqrt((rest - variance * bound) ** 2 + 4.0 * shape * variance)
                best = 2.0 * (rest * bound - shape) / (rest + variance * bound + root)
            largest = max(largest, abs(best - multipliers[i]))
            multipliers[i] = best
        if largest <= 1e-14 * problem.bounds.max():
            return multipliers
    raise AssertionError("coordinate ascent did not converge")


@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("classes", ["both", "one"])
@pytest.mark.nojit
def test_a_known_bias_is_the_problem_without_equality(shape, classes):
    problem = make_problem(Case(15, 5.0, shape, prior=0.5, weighted=True, known=True))
    if classes == "one":
        problem = replace(problem, signs=np.ones(15), prior_scores=problem.prior_scores - 0.3)
    solution = solve_tightly(problem)
    reference = coordinate_ascent(problem)
    assert (reference > 0).sum() >= (5 if classes == "both" else 1)
    np.testing.assert_allclose(solution.multipliers, reference, rtol=0, atol=1e-8)
    assert solution.bias == 0.0


@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.nojit
def test_one_class_under_a_diffuse_bias_has_zero_multipliers(shape, sign):
    problem = replace(make_problem(Case(12, 10.0, shape)), signs=np.full(12, sign))
    solution = solve(problem, tol=TIGHT)
    assert_feasible(problem, solution)
    np.testing.assert_array_equal(solution.multipliers, np.zeros(12))
    assert solution.status == "converged"
    assert solution.n_iter == 0
    # The smallest bias with which all points satisfy their margin.
    assert solution.bias == pytest.approx(sign * (1.0 - shape / 10.0), abs=1e-15)
    assert solution.gap <= 100 * EPSILON


# -- tiny and degenerate ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("score", [-3.0, 0.0, 0.5, 4.0])
@pytest.mark.nojit
def test_a_single_point_has_a_closed_form(score, shape):
    for own in (0.0, 1.0):
        problem = DualProblem(
            np.array([[own]]), np.ones(1), np.array([score]), np.full(1, 3.0), np.full(1, shape),
            known_bias=True,
        )  # fmt: skip
        solution = solve(problem, tol=1e-12)
        assert_feasible(problem, solution)
        missing = 1.0 - score
        if missing * 3.0 <= shape:
            expected = 0.0
        elif own == 0:
            expected = 3.0 - shape / missing
        else:
            # (missing - own a)(3 - a) = shape, the smaller root
            roots = np.roots([own, -(missing + 3.0 * own), 3.0 * missing - shape])
            expected = min(roots.real)
        assert solution.multipliers[0] == pytest.approx(expected, abs=1e-11)
        assert solution.bias == 0.0


@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.nojit
def test_zero_kernel(shape, known):
    """Only the bias is learned: the slack prior alone limits each multiplier."""
    n, bound = 12, 5.0
    signs = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    problem = DualProblem(
        np.zeros((n, n)), signs, np.zeros(n), np.full(n, bound), np.full(n, shape), known
    )
    solution = solve_tightly(problem)
    assert solution.gap <= 1e-8
    if known:
        # Every point alone: maximise a + e log(1 - a / C).
        np.testing.assert_allclose(solution.multipliers, bound - shape, rtol=0, atol=1e-8)
    if not known and shape > 0:
        # Four points against eight. By symmetry 4 a = 8 c, and 1 - b = e / (C - a),
        # 1 + b = e / (C - c): add the two and solve for c by bisection.
        low, high = 0.0, bound / 2
        for _ in range(200):
            middle = 0.5 * (low + high)
            price = shape / (bound - 2 * middle) + shape / (bound - middle)
            low, high = (middle, high) if price < 2.0 else (low, middle)
        np.testing.assert_allclose(solution.multipliers[signs < 0], low, rtol=0, atol=1e-8)
        np.testing.assert_allclose(solution.multipliers[signs > 0], 2 * low, rtol=0, atol=1e-8)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("offset", [-1e6, 1e6])
@pytest.mark.nojit
def test_huge_prior_means(offset, shape, known):
    case = Case(20, 10.0, shape, prior=1.0, known=known)
    problem = make_problem(case)
    shifted = replace(problem, prior_scores=problem.prior_scores + offset)
    solution = solve_tightly(shifted, tol=1e-6)
    if not known:
        # A diffuse bias takes up any shift: only digits of the scores are lost (1e6 * 2e-16).
        same = solve(problem, tol=1e-6)
        assert solution.bias == pytest.approx(same.bias - offset, abs=1e-5)
        np.testing.assert_allclose(solution.multipliers, same.multipliers, rtol=0, atol=1e-4)
        # What y'a leaves after rounding is multiplied by a bias of 1e6.
        assert solution.gap <= 1e-4
    else:
        # Two million margins missing for one class: its multipliers are at their bound,
        # or as near as e / (C - a) = 1e6 asks for; the other class has none.
        wrong = problem.signs * offset < 0
        assert (solution.multipliers[wrong] >= problem.bounds[wrong] * (1 - 1e-5)).all()
        np.testing.assert_array_equal(solution.multipliers[~wrong], 0.0)
        assert solution.relative_gap <= 1e-12


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("scale", [1e4, 1e6])
@pytest.mark.nojit
def test_scattered_huge_prior_means(scale, shape, known):
    """Nearly every multiplier is at a bound; the certificate still holds within 2000 steps."""
    problem = make_problem(Case(20, 10.0, shape, prior=scale, known=known))
    solution = solve(problem, tol=1e-3, max_iter=2000)
    assert_feasible(problem, solution)
    assert solution.relative_gap <= 1e-10


@pytest.mark.parametrize(
    ("scores", "bound", "known"),
    [([-307625, 1349591, 192827], 10.0, False), ([-43824, 7730, -12113], 1e4, True)],
)
@pytest.mark.nojit
def test_steps_lost_in_rounding_end_the_solve(scores, bound, known):
    """Two multipliers within a few roundings of their bound, one that is not.

    The step that would remove the violation is smaller than the last digit of one of its two
    multipliers. Changing only the other multiplier would never end, and would move away from y'a =
    0.
    """
    problem = DualProblem(
        gram=np.eye(3),
        signs=np.array([1.0, -1.0, 1.0]),
        prior_scores=np.array(scores, dtype=float),
        bounds=np.full(3, bound),
        shapes=np.full(3, 0.1),
        known_bias=known,
    )
    solution = solve_tightly(problem, tol=1e-3, max_iter=20_000)
    assert solution.n_iter < 1000


@pytest.mark.parametrize("factor", [1e-8, 1e8])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [0.0, 0.1, 1.0])
@pytest.mark.nojit
def test_scale_of_the_kernel(shape, known, factor):
    case = Case(30, 10.0, shape, prior=0.5, known=known)
    problem = make_problem(case)
    scaled = replace(
        problem,
        gram=factor * problem.gram,
        bounds=problem.bounds / factor,
        shapes=problem.shapes / factor,
        known_bias=known,
    )
    one, other = solve_tightly(problem), solve_tightly(scaled)
    # (s K, C / s, e / s) is the same problem in the multipliers a / s.
    np.testing.assert_allclose(
        decision_values(scaled, other.multipliers, other.bias),
        decision_values(problem, one.multipliers, one.bias),
        rtol=0,
        atol=1e-8,
    )
    difference = np.abs(factor * other.multipliers - one.multipliers) / problem.bounds
    assert difference.max() <= 1e-8
    # Scaling the kernel alone gives another problem, which is also solved.
    alone = replace(problem, gram=factor * problem.gram)
    solution = solve(alone, tol=1e-6)
    assert_feasible(alone, solution)
    assert solution.status == "converged"
    assert_certificate_follows_from_violation(alone, solution, 1e-6)


def assert_certificate_follows_from_violation(problem, solution, tol):
    """Each loss is C-Lipschitz in its slack, so the gap is at most sum C times the violation."""
    slack = max(tol, rounding_floor(problem, solution.multipliers))
    residue = 0.0
    if not problem.known_bias:
        residue = abs(
            solution.bias * (problem.signs @ solution.multipliers - problem.multiplier_sum)
        )
    assert solution.gap <= 2 * problem.bounds.sum() * slack + residue


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.nojit
def test_small_problems_with_extreme_values_are_solved(seed):
    """Scales over sixteen decades, repeated points, one class, zero rows: always a certificate."""
    generator = np.random.default_rng(seed)
    solved = 0
    for _ in range(25):
        n = int(generator.integers(1, 7))
        rank = int(generator.integers(1, 4))
        points = generator.normal(size=(n, rank)) * (generator.random((n, 1)) < 0.9)
        points = points[generator.integers(0, n, n)] if generator.random() < 0.5 else points
        shape = float(generator.choice([0.0, 0.1, 1.0]))
        weights = 10.0 ** generator.uniform(-2, 2, n)
        problem = DualProblem(
            gram=10.0 ** generator.uniform(-8, 8) * (points @ points.T),
            signs=generator.choice([-1.0, 1.0], n),
            prior_scores=10.0 ** generator.uniform(-3, 6) * generator.normal(size=n),
            bounds=(1.01 + 10.0 ** generator.uniform(-2, 5)) * weights,
            shapes=shape * weights,
            known_bias=bool(generator.random() < 0.5),
        )
        solution = solve(problem, tol=1e-3, max_iter=3000)
        assert_feasible(problem, solution)
        if solution.status == "max_iter":
            assert solution.violation > 1e-3
            continue
        solved += 1
        assert_certificate_follows_from_violation(problem, solution, 1e-3)
    # Pair steps are slow where K is singular and huge; they must not be slow everywhere.
    assert solved >= 18


# -- points that no step would move ----------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch):
    """Points are left out as early as there are ten of them, and counted."""
    left_out, without_others = [], smo.without_others

    def counted(active, kept):
        left_out.append(int((~kept).sum()))
        return without_others(active, kept)

    monkeypatch.setattr(smo, "SHRINKABLE", 10)
    monkeypatch.setattr(smo, "without_others", counted)
    return left_out


@pytest.mark.parametrize("case", ALL_CASES)
def test_shrinking_does_not_change_the_solution(case, request):
    """The optimum is the same, also with a known bias."""
    problem, expected, _ = outcome(case)
    request.getfixturevalue("eager")
    solution = solve_tightly(problem)
    assert_same_objective(solution.objective, expected.objective)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_points_leave_the_active_set_and_return(shape, known, eager):
    problem = replace(noisy_svm_problem(500, 5, 0.3, 10.0), known_bias=known)
    problem = replace(problem, shapes=np.full(500, shape))
    solution = solve_tightly(problem)
    assert max(eager) > 100
    assert solution.status == "converged"
    wrongly = kkt_violation(problem, solution.multipliers)
    assert wrongly <= TIGHT
    largest = solve(problem, tol=1e-3)
    assert largest.violation <= 1e-3
    assert largest.gap >= solution.gap


@pytest.mark.parametrize("max_iter", [1, 20, 137, 400])
def test_max_iter_is_reached_with_a_shrunk_active_set(max_iter, eager):
    problem = noisy_svm_problem(300, 5, 0.3, 100.0)
    solution = solve(problem, tol=1e-9, max_iter=max_iter)
    assert solution.status == "max_iter"
    assert solution.n_iter == max_iter
    assert_feasible(problem, solution)
    # the report is about all points
    assert solution.violation == pytest.approx(kkt_violation(problem, solution.multipliers))


def test_rounding_is_reported_only_with_all_points_active(eager):
    """The tolerance is below the rounding of doubles: the solver stops and reports it."""
    problem = noisy_svm_problem(200, 5, 0.02, 1e4)
    solution = solve(problem, tol=1e-30, max_iter=300_000)
    assert solution.status in ("rounding", "max_iter")
    if solution.status == "rounding":
        assert solution.violation <= rounding_floor(problem, solution.multipliers)


def test_large_problems_are_solved_with_shrinking():
    """1200 points with the default constants, compared with LIBSVM."""
    problem = noisy_svm_problem(1200, 5, 0.3, 10.0)
    _, scores = libsvm(problem)
    solution = solve_tightly(problem, tol=1e-8)
    found = decision_values(problem, solution.multipliers, solution.bias)
    # LIBSVM keeps its kernel rows in float32
    np.testing.assert_allclose(found, scores, rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", ALL_CASES)
def test_a_small_cache_gives_the_same_optimum(case, request, monkeypatch):
    """With two rows at a time, nearly every step replaces rows."""
    problem, expected, _ = outcome(case)
    request.getfixturevalue("eager")
    monkeypatch.setattr(smo, "ROW_BYTES", 0)
    tol = 1e-6 * max(1.0, np.abs(problem.gram).max())
    solution = solve(problem, tol=tol)
    assert solution.violation <= tol
    assert_feasible(problem, solution)
    # the error of each slack is at most the violation
    largest = 2 * tol * problem.bounds.sum()
    assert expected.objective - largest <= solution.objective <= expected.objective + largest


def test_replaced_rows_are_those_not_referenced():
    """Rows that were not referenced are replaced first; the row in use is never replaced."""
    rows = empty_row_cache(np.eye(6), np.arange(6))._replace(
        owners=np.full(3, -1), referenced=np.zeros(3, dtype=bool)
    )
    for point in (0, 1, 2):
        steps.evict(tuple(rows), point, -1)
    rows.referenced[rows.slots[0]] = True
    assert steps.evict(tuple(rows), 3, -1) == 1
    assert rows.slots.tolist() == [0, -1, 2, 1, -1, -1]
    assert steps.evict(tuple(rows), 4, 2) == 0
    assert rows.slots.tolist() == [-1, -1, 2, 1, 4 - 4, -1]
    assert rows.owners.tolist() == [4, 3, 2]


@pytest.mark.parametrize("n", [60, 900])
@pytest.mark.parametrize("order", ["C", "F"])
def test_covariances_are_read_and_never_written(n, order):
    problem = noisy_svm_problem(n, 5, 0.3, 10.0)
    gram = np.array(problem.gram, order=order)
    gram.flags.writeable = False
    solution = solve(replace(problem, gram=gram), tol=1e-6)
    assert np.array_equal(gram, problem.gram)
    assert np.array_equal(solution.multipliers, solve(problem, tol=1e-6).multipliers)


@pytest.mark.parametrize("scale", [1e-60, 1e60])
@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.nojit
def test_gains_beyond_single_precision(scale, shape):
    """Covariances and bounds beyond the range of single precision: the same problem, scaled."""
    problem = noisy_svm_problem(30, 5, 0.3, 10.0)
    problem = replace(problem, shapes=np.full(30, shape))
    expected = solve(problem, tol=1e-8)
    scaled = replace(
        problem,
        gram=scale * problem.gram,
        bounds=problem.bounds / scale,
        shapes=problem.shapes / scale,
    )
    solution = solve(scaled, tol=1e-8)
    assert solution.status == "converged"
    assert solution.multipliers * scale == pytest.approx(expected.multipliers, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1e-10, 1e-19])
def test_a_first_guess_at_the_barrier_is_not_taken_for_convergence(scale):
    """C twice the slack shape, and hardly any curvature: Newton's first step ends at the bound."""
    ones = np.ones(2)
    problem = DualProblem(
        gram=scale * (np.ones((2, 2)) + 0.1 * np.eye(2)),
        signs=np.array([1.0, -1.0]),
        prior_scores=0.3 * ones,
        bounds=2.0 * ones,
        shapes=ones,
    )
    solution = solve(problem, tol=1e-9)
    reference = solve_convex(problem)
    assert solution.relative_gap <= 1e-6
    assert solution.objective == pytest.approx(reference.objective, rel=1e-6)

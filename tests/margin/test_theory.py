"""The equations of `seqmed.margin.theory`, each against the fast path that names it."""

import numpy as np
import pytest

from seqmed import SeqLapMED, SeqMED
from seqmed.margin import theory
from seqmed.margin.dual.problem import DualProblem
from seqmed.margin.dual.smo import solve
from tests.reference import naive, naive_graph

GAMMA = 0.4


def rows(n, seed, p=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)


def laplacian(X):
    return naive.batch_laplacian(
        X, n_neighbors=4, weights="heat", width=0.8, kind="normalized", power=1
    )


def smooth(batches, beta, lag, **options):
    model = SeqLapMED(
        gamma=GAMMA, beta=beta, n_neighbors=4, heat_width=0.8, recursion="exact", lag=lag,
        bias="exact", unlabeled=None, tol=1e-10, **options,
    )  # fmt: skip
    for X, y in batches:
        model.partial_fit(X, y)
    return model


@pytest.mark.parametrize("slack_shape", [0.0, 1.0])
def test_the_solver_maximises_the_dual_of_theorem_one(slack_shape):
    X, y = rows(30, 1)
    K, m, C = naive.rbf(GAMMA)(X, X), 0.3 * np.sin(X[:, 1]), np.full(30, 5.0)
    problem = DualProblem(K, y, m, C, np.full(30, slack_shape))
    a = solve(problem, tol=1e-10).multipliers
    best = theory.dual_objective(a, y, K, m, C, slack_shape)
    assert abs(y @ a) < 1e-9
    rng = np.random.default_rng(2)
    for _ in range(200):  # no feasible direction increases the objective
        direction = rng.normal(size=30)
        direction -= y * (y @ direction) / 30
        step = 1e-3 * np.maximum(a + direction, 0.0) + (1 - 1e-3) * a
        step -= y * (y @ step) / 30
        if (step >= 0).all() and (step < C).all():
            assert theory.dual_objective(step, y, K, m, C, slack_shape) <= best + 1e-9


@pytest.mark.parametrize("slack_shape", [0.0, 1.0])
def test_multipliers_of_theorem_one_meet_its_conditions(slack_shape):
    """The gradient of the dual is b y_i where 0 < a_i < C_i: the bias is its multiplier."""
    X, y = rows(40, 3)
    model = SeqMED(gamma=GAMMA, C=5.0, slack_shape=slack_shape, bias="exact", tol=1e-10, lag=1).fit(
        X, y.astype(int) + 5
    )
    a = model.update_info_.solutions[0].multipliers
    K, C = naive.rbf(GAMMA)(X, X), np.full(40, 5.0)

    def objective(values):
        return theory.dual_objective(values, y, K, np.zeros(40), C, slack_shape)

    free = np.flatnonzero((a > 1e-6) & (a < C - 1e-6))
    assert free.size > 3
    for i in free:
        step = 1e-5 * np.eye(40)[i]
        slope = (objective(a + step) - objective(a - step)) / 2e-5
        assert slope == pytest.approx(y[i] * model.intercept_[0], abs=1e-5)
    new, _ = rows(20, 4)
    expected = theory.posterior_mean(naive.rbf(GAMMA), new, X, y, a, model.intercept_[0])
    np.testing.assert_allclose(model.decision_function(new), expected, rtol=0, atol=1e-10)


def test_the_mean_after_two_batches_is_that_of_theorem_one_with_the_kernel_of_theorem_two():
    """At lag 1 the prior mean of the second batch is made of old multipliers and the new kernel."""
    first, second = rows(25, 5), rows(30, 6)
    beta, kernel = 0.5, naive.rbf(GAMMA)
    model = smooth([first], beta, lag=1)
    a = model.update_info_.solutions[0].multipliers
    k1 = theory.smoothed_kernel(kernel, first[0], laplacian(first[0]), beta)
    new, _ = rows(15, 7)
    expected = theory.posterior_mean(k1, new, *first, a, model.intercept_[0])
    np.testing.assert_allclose(model.decision_function(new), expected, rtol=0, atol=1e-9)

    model.partial_fit(*second)
    a2 = model.update_info_.solutions[0].multipliers
    k2 = theory.smoothed_kernel(k1, second[0], laplacian(second[0]), beta)
    X, y = np.vstack([first[0], second[0]]), np.append(first[1], second[1])
    both = theory.posterior_mean(k2, new, X, y, np.append(a, a2), model.intercept_[0])
    np.testing.assert_allclose(model.decision_function(new), both, rtol=0, atol=1e-9)

    prior = theory.posterior_mean(k2, second[0], *first, a, 0.0)
    problem = DualProblem(
        k2(second[0], second[0]), second[1], prior, np.full(30, 10.0), np.ones(30)
    )
    np.testing.assert_allclose(a2, solve(problem, tol=1e-10).multipliers, rtol=0, atol=1e-6)


def test_one_batch_after_the_other_is_one_block_formula():
    batches = [(X, laplacian(X), beta) for X, beta in ((rows(12, 8)[0], 0.5), (rows(9, 9)[0], 2.0))]
    kernel = naive.rbf(GAMMA)
    block = naive.unrolled_kernel(kernel, [naive.Smoothing(*batch) for batch in batches])
    recursive = kernel
    for batch in batches:
        recursive = theory.smoothed_kernel(recursive, *batch)
    left, right = rows(7, 10)[0], rows(6, 11)[0]
    np.testing.assert_allclose(recursive(left, right), block(left, right), rtol=0, atol=1e-12)


def test_the_graph_prior_penalises_differences_along_edges():
    """Conjugate gradients are compared with it in test_propagation.py."""
    X, alpha = rows(30, 12)[0], 0.9
    W = naive_graph.edges(naive_graph.euclidean(X, X), 5)
    precision = np.linalg.inv(naive_graph.graph_covariance(W, alpha))
    f = np.random.default_rng(13).normal(size=30)
    differences = 0.5 * sum(W[i, j] * (f[i] - f[j]) ** 2 for i in range(30) for j in range(30))
    expected = alpha * differences + (1 - alpha) * W.sum(axis=1) @ f**2
    assert f @ precision @ f == pytest.approx(expected, rel=1e-10)

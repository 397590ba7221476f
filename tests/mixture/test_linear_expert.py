"""The linear expert: fitted on the last labels, and weighted by evidence."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import log_softmax

from seqmed import SeqGraphMED
from seqmed.classes import Rows
from seqmed.mixture.linear_expert import WINDOW, balanced, no_linear_expert
from seqmed.mixture.mixture_state import ScoreRecord
from seqmed.mixture.record import choose
from tests.reference import naive_graph


def labeled_rows(n, n_classes=3, seed=0, p=4):
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    return Rows(
        rng.normal(size=(n, p)) * 7.0 + 100.0 + 9.0 * np.eye(n_classes, p)[codes],
        codes,
        rng.choice([0.5, 1.0, 2.0], n),
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_linear_expert_is_a_penalised_softmax_regression(n_classes):
    """Its cost is nearly the smallest one that a general optimiser finds."""
    recent = labeled_rows(40, n_classes)
    expert = no_linear_expert().fit(recent, n_classes)
    Z = recent.points - recent.points.mean(axis=0)
    scale = np.sqrt((Z**2).mean())
    Z = Z / scale

    def cost(flat):
        coef, intercept = np.split(flat, [n_classes * 4])
        coef = coef.reshape(n_classes, 4)
        logs = log_softmax(Z @ coef.T + intercept, axis=1)
        chosen = logs[np.arange(40), recent.codes]
        # two classes share one row of coefficients, w = coef[1] - coef[0] with coef[0] = -coef[1]
        penalty = np.sum(coef**2) * (2.0 if n_classes == 2 else 1.0)
        return -(recent.weights * chosen).sum() + 0.5 * penalty

    start = np.zeros(n_classes * 5)
    best = minimize(cost, start, method="BFGS", options={"gtol": 1e-8}).fun
    intercept = expert.intercept + expert.coef @ recent.points.mean(axis=0)
    found = cost(np.append((expert.coef * scale).ravel(), intercept))
    assert best <= found + 1e-6
    assert found <= 1.01 * best


def test_scores_do_not_depend_on_the_unit_of_the_rows():
    recent = labeled_rows(40)
    scores = no_linear_expert().fit(recent, 3).scores(recent.points)
    scaled = Rows(1024.0 * recent.points, recent.codes, recent.weights)
    other = no_linear_expert().fit(scaled, 3).scores(scaled.points)
    np.testing.assert_allclose(other, scores, atol=1e-6)


def test_sparse_rows_use_the_columns_that_occur():
    rng = np.random.default_rng(0)
    points = sp.random_array((30, 500), density=0.01, rng=rng, format="csr")
    codes = np.arange(30) % 2
    expert = no_linear_expert().fit(Rows(points, codes, np.ones(30)), 2)
    assert expert.columns.tolist() == np.unique(points.indices).tolist()
    assert expert.coef.shape == (2, expert.columns.size)
    expert.validate()
    dense = points.toarray()
    np.testing.assert_allclose(expert.scores(points), expert.scores(dense))


@pytest.mark.parametrize("value", [0.0, 1e200])
def test_rows_that_cannot_be_standardised_leave_the_expert_unfitted(value):
    points = np.full((4, 2), value)
    points[0, 0] = -value
    recent = Rows(points, np.array([0, 1, 0, 1]), np.ones(4))
    expert = no_linear_expert().fit(recent, 2)
    assert not expert.scores(points).any()
    one_class = Rows(np.eye(2), np.zeros(2, dtype=int), np.ones(2))
    assert not no_linear_expert().fit(one_class, 2).scores(np.eye(2)).any()


def test_many_classes_with_one_label_each_give_no_warning():
    """Warnings are errors in tests."""
    expert = no_linear_expert().fit(Rows(np.eye(40), np.arange(40), np.ones(40)), 40)
    assert (expert.scores(np.eye(40)).argmax(axis=1) == np.arange(40)).all()


def test_a_class_without_recent_labels_has_the_smallest_score():
    recent = labeled_rows(40, 2)
    expert = no_linear_expert().fit(recent, 3)
    scores = expert.scores(recent.points)
    np.testing.assert_array_equal(scores[:, 2], scores[:, :2].min(axis=1))
    moved = expert.with_classes(np.array([2, -1, 0]), 3)
    np.testing.assert_array_equal(moved.intercept[[2, 0]], expert.intercept[[0, 2]])
    assert moved.fitted.tolist() == [0.0, 0.0, 1.0]


def test_it_is_fitted_again_if_enough_labels_are_new():
    recent = labeled_rows(200)
    for used, n_needed in ((True, 15), (False, 45)):
        assert not no_linear_expert().wait(n_needed - 1).is_due(WINDOW, used=used)
        assert no_linear_expert().wait(n_needed).is_due(WINDOW, used=used)
    X, y, weights = recent.points, recent.codes, recent.weights
    factors = {0: 1.0, 1: 2.0, 2: 3.0}
    model = SeqGraphMED(forgetting=1.0, class_weight=factors, experts=(), random_state=0)
    before = model.partial_fit(X, y, sample_weight=weights)._state.linear
    used = slice(200 - WINDOW - before.n_new, 200 - before.n_new)
    scaled, totals = model._state.scaled(X[used]), (weights * (1 + y))[used]
    alone = no_linear_expert().fit(Rows(scaled, y[used], totals), 3)
    np.testing.assert_array_equal(before.coef, alone.coef)
    waiting = model.partial_fit(X[:1], y[:1])._state.linear
    assert waiting.n_new == before.n_new + 1
    np.testing.assert_array_equal(waiting.coef, before.coef)
    fitted = model.partial_fit(X[:45], y[:45])._state.linear
    assert fitted.n_new == 0


def test_balanced_classes_have_equal_weights():
    recent = labeled_rows(100, 2)
    rare = np.flatnonzero((recent.codes == 0) | (np.arange(100) % 9 == 0))
    recent = Rows(recent.points[rare], recent.codes[rare], np.ones(rare.size))
    weights = balanced(recent.codes, recent.weights, 2)
    np.testing.assert_allclose(np.bincount(recent.codes, weights), rare.size / 2)
    plain = no_linear_expert().fit(recent, 2)
    equal = no_linear_expert().fit(recent._replace(weights=weights), 2)
    found = [(each.scores(recent.points).argmax(axis=1) == 1).sum() for each in (plain, equal)]
    assert found[1] > found[0]


# -- its weight -----------------------------------------------------------------------------------


def record_with_linear(noise, n=80, seed=0):
    """A record of three experts, whose scores are the truth plus noise."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=n)
    scores = [np.eye(3)[codes] + size * rng.normal(size=(n, 3)) for size in noise]
    return ScoreRecord(
        margin=scores[0],
        graph=scores[1],
        linear=scores[2],
        counts=np.full((n, 3), 5.0),
        margin_scales=np.ones((n, 3)),
        graph_scales=np.ones(n),
        linear_scales=np.ones(n),
        probabilities=np.zeros((n, 0, 3)),
        codes=codes,
        weights=np.ones(n),
    )


def without_linear(record):
    return record._replace(linear=np.zeros((record.size, 3)))


def test_the_weight_of_the_linear_expert_is_a_posterior_mean():
    record = record_with_linear((2.0, 2.0, 0.5))
    choice = choose(record, False, None, False)
    pair = choose(without_linear(record), False, None, False)
    assert choice.linear > 0.5
    assert sum(choice.weights) == pytest.approx(1.0)
    first = (1.0 - pair.weight) * record.margin + pair.weight * record.graph
    costs = []
    for weight in naive_graph.WEIGHTS:
        mixed = (1.0 - weight) * first + weight * record.linear
        octaves = np.linspace(-6, 6, 2401)
        logs = log_softmax(2.0 ** octaves[:, None, None] * mixed, axis=2)
        rows = -logs[:, np.arange(record.size), record.codes].sum(axis=1)
        costs.append((rows + octaves**2).min())
    logs = -np.array(costs) - 2.0 * np.array(naive_graph.WEIGHTS)
    posterior = np.exp(logs - logs.max())
    expected = posterior @ naive_graph.WEIGHTS / posterior.sum()
    assert choice.linear == pytest.approx(expected, abs=2e-3)
    assert choice.weight == pytest.approx((1.0 - expected) * pair.weight, abs=2e-3)


def test_a_linear_expert_that_gains_nothing_changes_nothing():
    record = record_with_linear((0.5, 0.5, 5.0))
    choice = choose(record, False, None, False)
    alone = choose(without_linear(record), False, None, False)
    assert choice.linear == 0.0
    assert choice[:3] == alone[:3]


def test_a_linear_boundary_is_learned_by_the_linear_expert():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20))
    y = (X @ rng.normal(size=20) > 0).astype(int)
    labels = np.where(rng.random(3000) < 0.1, y, -1)
    models = {}
    for mixture in ("evidence", 0.3):
        models[mixture] = SeqGraphMED(mixture=mixture, experts=(), random_state=0)
        for start in range(0, 2000, 100):
            batch = slice(start, start + 100)
            models[mixture].partial_fit(X[batch], labels[batch])
    weights = models["evidence"].expert_weights_
    assert weights["linear"] > 0.3
    assert sum(weights.values()) == pytest.approx(1.0)
    assert models[0.3].expert_weights_ == {"margin": 0.7, "graph": 0.3, "linear": 0.0}
    scores = {name: model.score(X[2000:], y[2000:]) for name, model in models.items()}
    assert scores["evidence"] > scores[0.3] + 0.03


def test_retracted_labels_leave_the_linear_expert():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    wrong = np.append(y[:50], 1 - y[50:])
    model = SeqGraphMED(forgetting=1.0, experts=(), random_state=0)
    linear = model.partial_fit(X, wrong).retract(X[50:])._state.linear
    kept = no_linear_expert().fit(Rows(X[:50], y[:50], np.ones(50)), 2)
    np.testing.assert_allclose(linear.coef, kept.coef, rtol=1e-6)

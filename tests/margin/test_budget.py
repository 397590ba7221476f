"""Budget: bounded memory, and points beyond it projected on the landmarks."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED, SeqMED
from seqmed.kernels import RBF
from seqmed.margin import covariance, update
from seqmed.margin.laplacian import GraphParameters
from seqmed.margin.posterior import Window, prior_of, with_mean_parts
from seqmed.margin.update import MarginParameters
from tests.support.gaussian_streams import (
    GAMMA,
    NEIGHBOURS,
    TOL,
    UNLABELED,
    assert_close,
    dot,
    learn,
    make_batch,
    make_stream,
    marked,
    new_points,
    seq_lap,
    seq_med,
)
from tests.support.state import kept_rows
from tests.support.streaming_options import (
    papers,
    rbf,
    scores_of,
)


def square(left, right):
    """(x . x' + 1)^2 on two columns: a kernel of six dimensions, which six landmarks span."""
    return (dot(left, right) + 1.0) ** 2 / 4.0


def plane_stream(n_classes, seed, batches=9):
    return [make_batch(18, 9, n_classes, p=2, seed=100 * seed + t) for t in range(batches)]


BUDGETED = [
    pytest.param({}, 2, np.asarray, id="plain"),
    pytest.param({}, 3, sp.csr_array, id="plain-3-csr"),
    pytest.param({"averaging": True}, 2, np.asarray, id="averaging"),
    pytest.param({"forgetting": 0.7}, 3, np.asarray, id="forgetting-3"),
    pytest.param({"averaging": True, "forgetting": 0.7}, 3, np.asarray, id="both-3"),
    pytest.param({"averaging": True, "forgetting": 0.7}, 2, sp.csr_array, id="both-csr"),
]


@pytest.mark.parametrize(("options", "n_classes", "wrap"), BUDGETED)
@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_projecting_loses_nothing_where_landmarks_span_the_space(
    estimator, options, n_classes, wrap
):
    """12 landmarks, 12 points kept exactly, 81 labels: the bounded model is the unbounded one.

    The window keeps one batch of 9 labels, so the same multipliers are optimised in both.
    """
    stream = plane_stream(n_classes, seed=60)
    options = {"kernel": square, "tol": TOL, **options}
    unbounded = papers(estimator, **options)
    bounded = papers(estimator, budget=24, random_state=0, **options)
    if estimator is SeqLapMED:
        unbounded.set_params(recursion="exact", beta=0.5)
        bounded.set_params(beta=0.5)
    new = wrap(new_points(p=2))
    for rows in stream:
        learn(unbounded, [rows], wrap=wrap)
        learn(bounded, [rows], wrap=wrap)
        # coefficients of size 10 on kernel values of up to 100, through a Gram matrix of six
        # dimensions: 1e-16 times 1e3 per term, and the landmarks' condition on top
        assert_close(bounded.decision_function(new), unbounded.decision_function(new), 1e-7)
        assert_close(bounded.decision_std(new), unbounded.decision_std(new), 1e-7)
        posterior = bounded.posterior_
        assert posterior.frozen.size + posterior.window.size <= 12
        assert posterior.landmarks.size <= 12
    assert np.abs(posterior.landmarks.coefficients).max() > 0.1  # it was projected


def begun(kernel, n_landmarks, points):
    """Return the posterior of no batch, with landmarks."""
    carrier = covariance.make_recursion("landmarks", kernel, n_landmarks=n_landmarks, seed=0)
    graph_parameters = GraphParameters(n_neighbors=NEIGHBOURS)
    return prior_of(carrier, graph_parameters, points, False)


def learned(posterior, rows, parameters):
    labeled = np.flatnonzero(rows.labels != UNLABELED)
    signs = np.where(rows.labels[labeled] == 1, 1.0, -1.0)[:, None]
    weights, nothing = rows.weights[labeled], np.zeros_like(signs)
    bounds, shapes = parameters.C * weights, parameters.shape * weights
    numbers = np.full(labeled.size, posterior.n_batches)
    entering = Window(
        rows.points[labeled], nothing, nothing, nothing, signs, bounds, shapes, weights, weights,
        numbers,
    )  # fmt: skip
    return update.step(posterior, rows.points, entering, parameters)[0]


@pytest.mark.parametrize("averaging", [False, True])
@pytest.mark.parametrize("forgetting", [1.0, 0.7])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_all_points_as_landmarks_lose_nothing_to_projection(beta, forgetting, averaging):
    """An RBF kernel has a dimension per point: only with all points as landmarks is it lossless."""
    stream = make_stream(seed=61)
    parameters = MarginParameters(
        kernel=RBF(GAMMA), C=10.0, slack_shape=1.0, bias="exact", window=None, lag=1,
        averaging=averaging, forgetting=forgetting, budget=None, class_weight=None, tol=TOL,
        max_iter=-1, beta=beta, recursion="landmarks", most_landmarks=85,
    )  # fmt: skip
    within = replace(parameters, budget=24)
    assert within.capacity == 12
    unbounded = bounded = begun(RBF(GAMMA), 85, stream[0].points)
    for rows in stream:
        unbounded = learned(unbounded, rows, parameters)
        bounded = learned(bounded, rows, within)
        assert_close(bounded.mean(new_points()), unbounded.mean(new_points()))
        assert bounded.frozen.size + bounded.window.size <= 12
    assert bounded.recursion.basis.size == 85
    # 39 labels, at most 12 of them kept: the others are projected on the landmarks
    assert (np.abs(bounded.landmarks.coefficients) > 0.1).sum() > 10
    assert unbounded.frozen.size + unbounded.window.size > 25


@pytest.fixture
def projections(monkeypatch):
    """Posteriors before and after points beyond the budget are projected, call by call."""
    recorded, original = [], update.within_budget

    def recording(posterior, capacity):
        recorded.append((posterior, original(posterior, capacity)))
        return recorded[-1][1]

    monkeypatch.setattr(update, "within_budget", recording)
    return recorded


def ready(posterior, averaging):
    """Return the posterior with its mean, newest or averaged, as expansions."""
    newest = posterior.landmark_coefficients()
    return with_mean_parts(posterior, averaging, False, newest)


def lost(points, values, landmarks):
    """Return by hand c'(K_OO - K_OZ K_ZZ^{-1} K_ZO)c of every column of coefficients."""
    cross = rbf(points, landmarks)
    rest = rbf(points, points) - cross @ np.linalg.inv(rbf(landmarks, landmarks)) @ cross.T
    return np.einsum("ih,ij,jh->h", values, rest, values)


PROJECTED = {
    "unsmoothed": (SeqLapMED, {"beta": 0.0}),
    "landmarks": (SeqLapMED, {"beta": 0.5}),
    "forgetting": (SeqLapMED, {"beta": 0.5, "forgetting": 0.8}),
    "lag": (SeqLapMED, {"beta": 0.5, "lag": 3}),
    "lag-forgetting": (SeqLapMED, {"beta": 0.5, "lag": 3, "forgetting": 0.8}),
}


@pytest.mark.parametrize("averaging", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", PROJECTED)
def test_a_projection_changes_scores_by_no_more_than_its_residual(
    name, n_classes, averaging, projections
):
    """The norm of the residual, by hand, bounds the change of any score, because k(x, x) = 1."""
    estimator, options = PROJECTED[name]
    options = {**options, "averaging": averaging, "random_state": 0, "tol": TOL}
    model = papers(estimator, gamma=GAMMA, budget=24, **options)
    projected = 0
    for t in range(8):
        learn(model, [make_batch(18, 9, n_classes, seed=6200 + t)])
        before, after = projections[-1]
        kept = np.vstack([after.frozen.points, after.window.points]).tolist()
        parts = (before.frozen, before.window)
        points = np.vstack([part.points for part in parts])
        values = np.vstack([part.averages if averaging else part.coefficients for part in parts])
        gone = [row for row, point in enumerate(points.tolist()) if point not in kept]
        bound = np.sqrt(np.maximum(lost(points[gone], values[gone], after.landmarks.points), 0))
        every = np.vstack([new_points(200), points])
        scores = [ready(each, averaging).mean(every) for each in (before, after)]
        changes = np.abs(scores[1] - scores[0]).max(axis=0)
        assert (changes <= bound + 1e-7).all()
        assert (changes[bound > 0.01] > 0).all()
        projected += bool((bound > 0.01).any())
    assert projected >= 4


def test_the_heaviest_points_are_kept_and_the_cheapest_projected():
    model = seq_lap(beta=0.0, budget=24)
    for t in range(6):
        before = None if t == 0 else model.posterior_
        learn(model, [make_batch(18, 9, seed=6500 + t)])
        if t < 2:
            continue
        after = model.posterior_
        candidates = np.vstack([before.frozen.points, before.window.points])
        values = np.vstack([before.frozen.coefficients, before.window.coefficients])
        used = values[:, 0] != 0
        prices = values[:, 0] ** 2 * after.recursion.residual_variances(candidates)
        kept = np.array([point in after.frozen.points.tolist() for point in candidates.tolist()])
        assert kept.sum() == after.frozen.size
        assert prices[kept].min() >= prices[used & ~kept].max()


BOUNDED = {
    **PROJECTED,
    "SeqMED": (SeqMED, {}),
    "averaging": (SeqMED, {"averaging": True}),
    "linear": (SeqMED, {"kernel": "linear", "averaging": True}),
    "few-landmarks": (SeqLapMED, {"beta": 0.5, "n_landmarks": 5}),
    "landmarks-averaging": (SeqLapMED, {"beta": 0.5, "averaging": True}),
}


@pytest.mark.parametrize(("n_classes", "labeled"), [(2, 9), (3, 4)])
@pytest.mark.parametrize("name", BOUNDED)
def test_a_budget_bounds_points_and_bytes(name, n_classes, labeled):
    estimator, options = BOUNDED[name]
    model = papers(estimator, **{"gamma": GAMMA, "budget": 24, "random_state": 0, **options})
    sizes = []
    for t in range(16):
        learn(model, [make_batch(18, labeled, n_classes, seed=6600 + t)])
        posterior = model.posterior_
        assert len(kept_rows(posterior)) <= 24
        sizes.append(posterior.nbytes)
    assert sizes[8:] == [sizes[8]] * 8


def test_a_linear_kernel_stays_within_the_budget_too():
    model = learn(seq_med(kernel="linear", budget=10), [make_batch(40, 25, seed=6640)])
    assert len(kept_rows(model.posterior_)) <= 10


def test_a_batch_with_more_labels_than_the_budget_stays_within_the_budget():
    model = learn(seq_lap(n_landmarks=5, budget=10), [make_batch(40, 25, seed=6650)])
    assert len(kept_rows(model.posterior_)) <= 10


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_any_batch_stays_within_the_budget(estimator):
    model = estimator(budget=10, random_state=0)
    for t, labels in enumerate([25, 3, 0, 40, 1]):
        learn(model, [make_batch(40, labels, seed=6660 + t)])
        assert len(kept_rows(model.posterior_)) <= 10


def test_a_batch_with_four_times_as_many_labels_as_the_budget_is_learned_whole():
    """All of its multipliers are optimised; then the heaviest are kept, the others projected."""
    stream = [make_batch(40, 20, seed=6700), make_batch(40, 20, seed=6701)]
    bounded, unbounded = seq_lap(beta=0.0, budget=10), seq_med()
    learn(bounded, stream[:1])
    learn(unbounded, stream[:1])
    assert bounded.update_info_.n_window == 20
    first = [bounded.update_info_.solutions[0], unbounded.update_info_.solutions[0]]
    assert_close(first[0].multipliers, first[1].multipliers)
    posterior = bounded.posterior_
    assert posterior.window.size == 5
    assert posterior.frozen.size == 0
    heaviest = np.sort(np.abs(unbounded.dual_coef_[0]))[-5:]
    assert_close(np.sort(np.abs(posterior.window.coefficients[:, 0])), heaviest)
    learn(bounded, stream[1:])
    assert np.isfinite(bounded.decision_function(new_points())).all()


def test_a_budget_that_is_never_reached_costs_nothing():
    stream = make_stream(seed=68)
    for options in ({}, {"averaging": True, "forgetting": 0.8}):
        bounded = learn(seq_lap(beta=0.0, budget=200, **options), stream)
        unbounded = learn(seq_med(**options), stream)
        assert_close(scores_of(bounded), scores_of(unbounded), 1e-12)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["exact", "landmarks", "SeqMED"])
def test_equal_arrays_need_not_be_the_same_object(name, late):
    """A loaded model may hold equal arrays as separate objects; results must be the same."""
    options = {
        "exact": (SeqLapMED, {"beta": 0.5, "recursion": "exact"}),
        "landmarks": (SeqLapMED, {"beta": 0.5, "budget": 24}),
        "SeqMED": (SeqMED, {"budget": 24}),
    }
    estimator, chosen = options[name]
    scores = []
    for apart in (False, True):
        model = estimator(
            gamma=GAMMA, lag=1, averaging=True, forgetting=0.8, random_state=0, **chosen
        )
        learn(model, [make_batch(18, 9, seed=9900 + t) for t in range(3)])
        assert model.posterior_.landmarks.averages.any()
        if apart:
            posterior = model.posterior_
            landmarks = replace(posterior.landmarks, points=posterior.landmarks.points.copy())
            model._state = model._state._replace(posterior=replace(posterior, landmarks=landmarks))
        if name == "exact":
            model.set_params(beta=0.0)  # nothing is folded
        rows = make_batch(18, 9, seed=9903)
        if late:
            known = rows.labels != UNLABELED
            labels = marked(rows.labels, model)[known]
            model.partial_fit(rows.points[known], labels, new_points=False)
        else:
            learn(model, [rows])
        scores.append(scores_of(model))
    np.testing.assert_array_equal(*scores)

"""SeqMED within a budget: labels are learned within the span of landmarks."""

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqMED
from seqmed.kernels import RBF, Polynomial
from seqmed.margin import update
from seqmed.margin.covariance.nystroem import NystroemGram, NystroemRecursion, nystroem_covariance
from tests.support.gaussian_streams import (
    GAMMA,
    TOL,
    UNLABELED,
    Rows,
    assert_close,
    learn,
    make_batch,
    make_stream,
    marked,
    new_points,
    seq_med,
)

OPTIONS = {
    "plain": {},
    "lag": {"lag": 3},
    "averaging": {"averaging": True},
    "forgetting": {"forgetting": 0.8},
    "all": {"lag": 2, "averaging": True, "forgetting": 0.9},
    "machine per class": {"bias": "auto"},
    "machine per class, all": {"bias": "auto", "lag": 2, "averaging": True, "forgetting": 0.9},
    "median": {"bias": "median"},
    "support vector machine": {"slack_shape": 0.0},
}


def long_stream(n_classes, seed=0, batches=6):
    """The first batch has more labels than 12 landmarks, later ones a few."""
    sizes = [(30, 20)] + [(14, 6)] * (batches - 1)
    return [
        make_batch(n, labels, n_classes, seed=9000 + 100 * seed + t)
        for t, (n, labels) in enumerate(sizes)
    ]


def bounded(**options):
    return seq_med(**{"budget": 24, "random_state": 0, **options})


def landmarks_of(model):
    return model.posterior_.recursion.landmarks


# -- against equivalent formulations ---------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_a_linear_machine_on_the_features_of_its_landmarks(name, n_classes, wrap):
    """phi(x) = W' k(Z, x), with W from a plain Cholesky factorisation."""
    stream = long_stream(n_classes)
    options = OPTIONS[name]
    model = bounded(**options)
    learn(model, stream[:1], wrap=wrap)
    landmarks = landmarks_of(model)
    landmarks = landmarks.toarray() if sp.issparse(landmarks) else landmarks
    kernel = RBF(GAMMA)
    inverse = np.linalg.inv(np.linalg.cholesky(kernel(landmarks, landmarks))).T

    def features(points):
        return kernel(points, landmarks) @ inverse

    linear = seq_med(kernel="linear", budget=24, **options)
    for t, rows in enumerate(stream):
        if t:
            learn(model, [rows], wrap=wrap)
        learn(linear, [Rows(features(rows.points), rows.labels, rows.weights)])
        new = new_points()
        assert_close(
            model.decision_function(wrap(new)), linear.decision_function(features(new)), 1e-7
        )
        assert_close(model.intercept_, linear.intercept_, 1e-7)
    after = landmarks_of(model)
    after = after.toarray() if sp.issparse(after) else after
    np.testing.assert_array_equal(after, landmarks)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_nothing_is_lost_while_every_label_is_a_landmark(name, n_classes):
    stream = make_stream(n_classes, seed=71)
    options = OPTIONS[name]
    unbounded, model = seq_med(**options), bounded(budget=80, **options)
    for rows in stream:
        learn(unbounded, [rows])
        learn(model, [rows])
        assert_close(
            model.decision_function(new_points()), unbounded.decision_function(new_points()), 1e-7
        )
    assert landmarks_of(model).shape[0] == 39


@pytest.mark.parametrize("name", ["plain", "lag", "machine per class, all"])
def test_leaving_points_out_at_first_changes_nothing(name, monkeypatch):
    stream = long_stream(2, seed=2)
    few = learn(bounded(**OPTIONS[name]), stream)
    monkeypatch.setattr(update, "SPARE", np.inf)
    all_at_once = learn(bounded(**OPTIONS[name]), stream)
    assert_close(
        few.decision_function(new_points()), all_at_once.decision_function(new_points()), 1e-8
    )


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_and_solves_share_kernel_values(name, n_classes, monkeypatch):
    """The kernel values of new rows are computed once, for scores before the update and duals."""
    stream = long_stream(n_classes, seed=4)
    options = {"lag": 1, **OPTIONS[name]}
    shared = learn(bounded(**options), stream)
    posterior, points = shared.posterior_, new_points()
    geometry = posterior.covariance.on_window(points, posterior.landmarks.points)
    assert_close(posterior.mean(points, geometry), posterior.mean(points), 1e-12)
    step = update.step
    monkeypatch.setattr(update, "step", lambda *given: step(*given[:4]))
    apart = learn(bounded(**options), stream)
    assert_close(shared.decision_function(points), apart.decision_function(points), 1e-9)
    assert_close(shared.predict_proba(points), apart.predict_proba(points), 1e-9)


def test_points_beyond_their_margins_are_left_out(monkeypatch):
    asked = []
    original = NystroemGram.block

    def recording(gram, rows):
        asked.append((rows.sum(), rows.size))
        return original(gram, rows)

    monkeypatch.setattr(NystroemGram, "block", recording)
    rng = np.random.default_rng(0)
    model = SeqMED(gamma=0.1, lag=1, budget=100, random_state=0)
    for _ in range(4):
        X = rng.normal(size=(200, 3))
        model.partial_fit(X, X[:, 0] > 0)
    assert asked[0] == (200, 200)
    assert max(some for some, _ in asked[-2:]) < 120


# -- landmarks -------------------------------------------------------------------------------------


def test_landmarks_are_labeled_points_each_once():
    model, labeled = bounded(), []
    for t in range(4):
        rows = make_batch(10, 4, seed=9100 + t)
        twice = Rows(
            np.vstack([rows.points, rows.points[:3]]),
            np.append(rows.labels, rows.labels[:3]),
            np.ones(13),
        )
        learn(model, [twice, rows])
        labeled += rows.points[rows.labels != UNLABELED].tolist()
        found = landmarks_of(model).tolist()
        assert all(point in labeled for point in found)
        assert len(found) == len({tuple(point) for point in found}) == min(12, len(labeled))


def test_the_first_landmarks_stay_in_a_steady_stream():
    rng = np.random.default_rng(1)
    model = SeqMED(gamma=0.1, lag=1, budget=60, random_state=0)
    for t in range(12):
        X = rng.normal(size=(50, 3))
        model.partial_fit(X, X[:, 0] > 0)
        if t == 0:
            first = landmarks_of(model)
        assert landmarks_of(model) is first
    assert first.shape == (30, 3)


def test_a_region_never_seen_gets_landmarks():
    rng = np.random.default_rng(2)
    model = SeqMED(gamma=0.5, lag=1, budget=60, forgetting=0.9, random_state=0)
    for t in range(8):
        X = rng.normal(size=(50, 3)) + (0.0 if t < 4 else 8.0)
        model.partial_fit(X, X[:, 0] > (0.0 if t < 4 else 8.0))
        if t == 3:
            before = landmarks_of(model)
    after = landmarks_of(model)
    assert after.shape == before.shape == (30, 3)
    assert 3 <= (after[:, 0] > 4).sum() < 30
    X = rng.normal(size=(200, 3)) + 8.0
    assert model.score(X, X[:, 0] > 8.0) > 0.85


@pytest.mark.parametrize("averaging", [False, True])
def test_coefficients_of_replaced_landmarks_are_projected(averaging):
    """On the nearest function of the new span, in the norm of the kernel's space."""
    rng = np.random.default_rng(3)
    model = SeqMED(gamma=0.5, lag=1, budget=24, averaging=averaging, forgetting=0.9, random_state=0)
    for _ in range(3):
        X = rng.normal(size=(30, 2))
        model.partial_fit(X, X[:, 0] > 0)
    old = model.posterior_
    model.partial_fit(rng.normal(size=(30, 2)) + 6.0, np.arange(30) % 2 == 0)
    new = model.posterior_
    assert not np.array_equal(new.landmarks.points, old.landmarks.points)
    recursion = new.recursion
    values = np.hstack([old.landmarks.coefficients, old.landmarks.averages])
    found = recursion.project(old.landmarks.points, values)
    kernel = RBF(0.5)
    landmarks = recursion.landmarks
    by_hand = np.linalg.solve(
        kernel(landmarks, landmarks), kernel(landmarks, old.landmarks.points) @ values
    )
    assert_close(found, by_hand, 1e-7)


def test_unlabeled_rows_never_become_landmarks():
    model = bounded()
    learn(model, [make_batch(20, 0, seed=9200)])
    assert landmarks_of(model).shape[0] == 0
    learn(model, [make_batch(20, 4, seed=9201), make_batch(20, 0, seed=9202)])
    assert landmarks_of(model).shape[0] == 4


def test_forgetting_alone_replaces_no_landmark():
    rng = np.random.default_rng(4)
    model = SeqMED(gamma=0.1, lag=1, budget=60, forgetting=0.5, random_state=0)
    for t in range(6):
        X = rng.normal(size=(50, 3))
        model.partial_fit(X, X[:, 0] > 0)
        if t == 0:
            first = landmarks_of(model)
    assert landmarks_of(model) is first


@pytest.mark.parametrize("forgetting", [1.0, 0.98])
def test_one_unusual_batch_replaces_a_limited_fraction_of_landmarks(forgetting):
    rng = np.random.default_rng(5)
    model = SeqMED(gamma=0.5, lag=1, budget=60, forgetting=forgetting, random_state=0)
    for _ in range(60):
        X = rng.normal(size=(20, 2))
        model.partial_fit(X, X[:, 0] > 0)
    before = landmarks_of(model)
    X = rng.normal(size=(20, 2)) + 9.0
    model.partial_fit(X, X[:, 0] > 9.0)
    left = {tuple(point) for point in before} - {tuple(point) for point in landmarks_of(model)}
    # 1 of 61 batches, or, with forgetting, of about 35 that count: half a landmark, or one, of 30
    assert len(left) <= 2


@pytest.mark.parametrize("size", [1, 2, 5])
def test_small_batches_rarely_replace_landmarks(size):
    rng = np.random.default_rng(6)
    model = SeqMED(gamma=0.5, budget=100, random_state=0)
    full, changes = None, 0
    for _ in range(400 // size):
        X = rng.normal(size=(size, 2))
        model.partial_fit(X, X[:, 0] > 0, classes=[False, True])
        now = landmarks_of(model)
        if now.shape[0] == 50:
            changes += full is not None and now is not full
            full = now
    assert full is not None
    assert changes <= 5  # of up to 350 batches


def test_batches_without_labels_change_no_draw():
    scores = []
    for extra in (False, True):
        model = bounded()
        for t in range(3):
            learn(model, [make_batch(20, 9, seed=9600 + t)])
            if extra:
                learn(model, [make_batch(7, 0, seed=9700 + t)])
        scores.append(model.decision_function(new_points()))
    np.testing.assert_array_equal(*scores)


# -- other properties of a posterior ---------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_support_vectors_and_their_coefficients_give_the_scores(n_classes):
    model = learn(bounded(), long_stream(n_classes, seed=3))
    scores = RBF(GAMMA)(new_points(), model.support_vectors_) @ model.dual_coef_.T
    found = model.decision_function(new_points()).reshape(40, -1)
    assert_close(found, scores + model.intercept_, 1e-12)
    assert model.support_vectors_.shape[0] <= 12


def test_support_vectors_are_the_callers_own():
    model = learn(bounded(), long_stream(2, seed=3))
    before = model.decision_function(new_points())
    model.dual_coef_[:] = 0.0
    model.support_vectors_[:] = 0.0
    np.testing.assert_array_equal(model.decision_function(new_points()), before)


@pytest.mark.parametrize("lag", [2, None])
def test_the_prior_of_a_class_that_comes_later_is_as_without_a_budget(lag):
    stream = [
        make_batch(20, 9, 2, seed=9800), make_batch(20, 9, 3, seed=9801),
        make_batch(20, 9, 3, seed=9802),
    ]  # fmt: skip
    models = [seq_med(lag=lag), bounded(budget=90, lag=lag)]
    for model in models:
        learn(model, stream)
    assert_close(*(model.intercept_ for model in models), 1e-7)
    assert_close(*(model.decision_function(new_points()) for model in models), 1e-7)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("bias", ["auto", "exact"])
def test_rounding_of_retracted_labels_has_no_effect(seed, bias):
    """One column: points so close that coefficients are large, and cancel."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(30, 1)), np.array(["a", "b", "c"])[rng.integers(0, 3, 30)]
    options = {"gamma": 1.0, "tol": TOL, "bias": bias, "random_state": 0}
    models = [SeqMED(budget=size, **options) for size in (None, 400)]
    for model in models:
        model.partial_fit(X, y).retract(X[y != "c"])
    np.testing.assert_array_equal(*(model.posterior_.n_solved for model in models))
    assert_close(*(model.decision_function(X) for model in models), 1e-6)


def test_the_standard_deviation_is_that_of_the_kernel():
    model = learn(bounded(), long_stream(2, seed=4))
    assert_close(model.decision_std(new_points()), np.ones(40), 1e-14)


@pytest.mark.parametrize("lag", [2, None])
def test_labels_can_be_retracted(lag):
    """As if they had never been learned, except for the landmarks they added."""
    stream = make_stream(seed=72)
    without, model = bounded(budget=80, lag=lag), bounded(budget=80, lag=lag)
    for t, rows in enumerate(stream):
        last = t == len(stream) - 1
        learn(model, [rows])
        labels = np.full_like(rows.labels, UNLABELED) if last else rows.labels
        learn(without, [Rows(rows.points, labels, rows.weights)])
    known = rows.labels != UNLABELED
    if lag is None:
        model.retract(rows.points[known])
        expected = without.decision_function(new_points())
        assert_close(model.decision_function(new_points()), expected, 1e-7)
    else:
        some = np.flatnonzero(known)[:4]
        model.retract(rows.points[some])
        assert np.isfinite(model.decision_function(new_points())).all()


def test_all_labels_retracted_leave_nothing():
    rows = make_batch(20, 10, seed=9300)
    model = learn(bounded(), [rows])
    known = rows.labels != UNLABELED
    model.retract(rows.points[known])
    assert not model.posterior_.landmarks.coefficients.any()
    assert not model.intercept_.any()


def test_labels_that_come_late_bring_landmarks():
    rows = make_batch(20, 6, seed=9400)
    model = learn(bounded(), [rows])
    late = rows.labels == UNLABELED
    labels = np.where(np.arange(14) % 2 == 0, 0.0, 1.0)
    model.partial_fit(rows.points[late], labels, new_points=False)
    assert landmarks_of(model).shape[0] == 12
    assert model.posterior_.window.size == 12
    assert model.n_batches_ == 1


def test_a_class_that_comes_later_is_learned():
    model = bounded(lag=2)
    learn(model, long_stream(2, seed=5))
    rows = make_batch(20, 12, 3, seed=9500)
    learn(model, [rows, make_batch(20, 12, 3, seed=9501)])
    assert model.classes_.tolist() == [0.0, 1.0, 2.0]
    assert model.decision_function(new_points()).shape == (40, 3)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "single"), [(1.0, True), (1e-4, False)])
def test_single_precision_only_where_it_is_precise_enough(gamma, single):
    """The widest kernels make features of differences of nearly equal numbers."""
    points = new_points(60, seed=5)
    covariance = nystroem_covariance(RBF(gamma), points[:20])
    gram = covariance.on_window(points, covariance.landmarks)
    places, found = gram.block(np.arange(60) % 2 == 0)
    assert found.dtype == (np.float32 if single else np.float64)
    features = covariance.features(points)[places]
    assert_close(found, features @ features.T, 1e-5 if single else 1e-12)
    c = np.random.default_rng(0).normal(size=60)
    every = covariance.features(points)
    assert_close(gram @ c, every @ (every.T @ c), 1e-9)
    assert_close(gram[np.arange(3)], every[:3] @ every.T, 1e-9)


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 1e4, 1e9])
def test_kernel_values_far_from_one(scale):
    """The same stream in other units, the bounds in units of one over the kernel's."""
    stream = long_stream(2, seed=6)
    factor = scale**4
    plain = seq_med(kernel=Polynomial(1.0, 2, 1.0), budget=24, random_state=0, slack_shape=0.0)
    other = seq_med(
        kernel=Polynomial(1.0, 2, scale**2), budget=24, random_state=0, slack_shape=0.0,
        C=10.0 / factor,
    )  # fmt: skip
    learn(plain, stream)
    learn(other, [Rows(scale * rows.points, rows.labels, rows.weights) for rows in stream])
    assert_close(
        other.decision_function(scale * new_points()), plain.decision_function(new_points()), 1e-6
    )


def test_the_widest_kernel_converges():
    stream = long_stream(2, seed=7)
    model = SeqMED(gamma=1e-5, C=1e3, lag=1, budget=24, random_state=0, tol=TOL)
    for rows in stream:
        model.partial_fit(rows.points, marked(rows.labels, model))
        assert model.update_info_.solved[0].status in ("converged", "rounding")
        assert model.duality_gap_ >= 0


def test_a_projection_is_an_expansion_on_the_landmarks():
    points = new_points(30, seed=8)
    covariance = nystroem_covariance(RBF(GAMMA), points[:9])
    coefficients = np.random.default_rng(0).normal(size=(30, 2))
    found = covariance.on_window(points, covariance.landmarks).landmark_part(coefficients)
    features = covariance.features(points)
    new = new_points()
    expected = covariance.features(new) @ (features.T @ coefficients)
    assert_close(RBF(GAMMA)(new, covariance.landmarks) @ found, expected, 1e-10)
    left_over = covariance.residual_variances(points)
    assert_close(left_over[:9], np.zeros(9), 1e-12)
    assert (left_over[9:] > 0).all()
    alone = [
        nystroem_covariance(RBF(GAMMA), np.delete(points[:9], i, axis=0)).residual_variances(
            points[i : i + 1]
        )[0]
        for i in range(9)
    ]
    assert_close(covariance.leave_one_out_variances(), np.array(alone), 1e-10)


def test_points_without_labels_are_not_folded():
    recursion = NystroemRecursion(nystroem_covariance(RBF(GAMMA), new_points()[:0]), 5, 0)
    assert recursion.fold(new_points(), None).recursion == recursion

"""Probabilities: equal to a slow reference, consistent with predictions, calibrated on streams."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone

from seqmed import SeqLapMED, SeqMED
from seqmed.classes import no_classes
from seqmed.margin import calibration
from seqmed.margin.calibration import LABEL_NOISE, PRIOR_DEVIATION, PRIOR_MEAN, SLOPES


def counts_of(codes, n_classes):
    nothing = np.zeros(0, dtype=np.intp)
    counts = no_classes(per_class=False).with_classes(nothing, np.ones(n_classes, dtype=bool))
    return counts.add(np.array(codes, dtype=np.intp), np.ones(len(codes)))


def naive_probabilities(records, scores, n_classes):
    """Return one row's probabilities from (scores, class, weight) of scored rows; plain loops."""

    def likelihoods(row, slope):
        row = [0.0, row[0]] if n_classes == 2 else row
        parts = [math.exp(slope * (score - max(row))) for score in row]
        return [part / sum(parts) for part in parts]

    shares = []
    for slope in SLOPES:
        value = -0.5 * ((math.log2(slope) - PRIOR_MEAN) / PRIOR_DEVIATION) ** 2
        for row, label, weight in records:
            likelihood = (1 - LABEL_NOISE) * likelihoods(row, slope)[
                label
            ] + LABEL_NOISE / n_classes
            value += weight * math.log(likelihood)
        shares.append(value)
    shares = [math.exp(value - max(shares)) for value in shares]
    found = [0.0] * n_classes
    for slope, share in zip(SLOPES, shares, strict=True):
        for label, part in enumerate(likelihoods(scores, slope)):
            found[label] += share / sum(shares) * part
    return found


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_probabilities_are_those_of_the_reference(n_classes):
    rng = np.random.default_rng(n_classes)
    machines = 1 if n_classes == 2 else n_classes
    counts = counts_of(range(n_classes), n_classes)
    scores, labels = rng.normal(size=(40, machines)), rng.integers(0, n_classes, 40)
    weights = rng.uniform(0.2, 2, 40)
    record = calibration.record(calibration.Calibration(), counts, scores, labels, weights)
    expected = [
        naive_probabilities(
            list(zip(scores.tolist(), labels, weights, strict=True)), row, n_classes
        )
        for row in scores.tolist()
    ]
    found = calibration.probabilities(record, counts, counts.class_scores(scores))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)  # slopes of negligible weight


def test_a_record_is_a_sum_that_can_be_forgotten():
    rng = np.random.default_rng(0)
    counts = counts_of([0, 1], 2)
    parts = [(rng.normal(size=(9, 1)), rng.integers(0, 2, 9), rng.random(9)) for _ in range(3)]
    record = calibration.Calibration()
    for part in parts:
        record = calibration.record(record.forget(0.7), counts, *part)
    alone = [calibration.record(calibration.Calibration(), counts, *part) for part in parts]
    shares = [0.49, 0.7, 1.0]
    expected = sum(s * a.log_likelihoods for s, a in zip(shares, alone, strict=True))
    np.testing.assert_allclose(record.log_likelihoods, expected, rtol=1e-12)
    assert record.n_scored == pytest.approx(sum(s * a.n_scored for s, a in zip(shares, alone)))  # noqa: B905


@given(
    st.integers(1, 5).flatmap(
        lambda k: st.tuples(
            st.just(k),
            arrays(
                float,
                (6, 1 if k <= 2 else k),
                elements=st.one_of(
                    st.floats(-1e3, 1e3),
                    st.sampled_from([0.0, -0.0, 1e-320, -1e-320, 1e-17, 1.0, 1.0 + 2**-52, 745.0]),
                ),
            ),
            st.lists(st.booleans(), min_size=k, max_size=k).filter(any),
            st.floats(0, 300),
        )
    )
)
def test_the_largest_probability_is_that_of_the_class_predicted(case):
    """Ties, scores that differ in the last bit, denormal ones, classes without an example."""
    k, scores, seen, labels_scored = case
    counts = counts_of(np.flatnonzero(seen), k)
    record = calibration.Calibration()
    if counts.seen.sum() > 1 and labels_scored:
        weights = np.full(6, labels_scored)
        codes = np.resize(np.flatnonzero(counts.seen), 6)
        record = calibration.record(record, counts, scores, codes, weights)
    of_classes = counts.class_scores(scores)
    found = calibration.probabilities(record, counts, of_classes)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert np.array_equal(found.argmax(axis=1), counts.best(of_classes))


def make_stream(n_batches, size=60, n_classes=2, noise=0.15, seed=0, distance=2.0):
    """Yield rows around class centres, a random fraction of them labeled."""
    rng = np.random.default_rng(seed)
    centres = distance * np.random.default_rng(5).normal(size=(n_classes, 4))
    for _ in range(n_batches):
        y = rng.integers(0, n_classes, size)
        X = centres[y] + rng.normal(size=(size, 4))
        yield X, np.where(rng.random(size) < noise, rng.integers(0, n_classes, size), y)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "estimator", [SeqMED(), SeqMED(averaging=True, lag=1), SeqLapMED(n_landmarks=40)]
)
def test_probabilities_are_calibrated_on_the_next_batch(estimator, n_classes):
    """In each of five groups, a fraction p of the rows with predicted probability p is correct.

    The classes overlap, so that rows near a boundary are uncertain.
    """
    model = clone(estimator).set_params(random_state=0)
    confidences, right = [], []
    for number, (X, y) in enumerate(make_stream(40, 60, n_classes, 0.0, distance=1.0)):
        if number >= 10:
            found = model.predict_proba(X)
            confidences.append(found.max(axis=1))
            right.append(model.predict(X) == y)
        model.partial_fit(X, y)
    confidences, right = np.concatenate(confidences), np.concatenate(right)
    for rows in np.array_split(np.argsort(confidences), 5):
        # two standard deviations of a share of 360 rows, and .03 for what a slope cannot express
        limit = 2 * 0.5 / np.sqrt(rows.size) + 0.03
        assert abs(confidences[rows].mean() - right[rows].mean()) < limit


def test_few_labels_give_moderate_probabilities():
    """Before any label was scored, a row on the margin has a moderate probability."""
    (X, y), *rest = make_stream(12, noise=0.0, seed=1)
    model = SeqMED().fit(X, y)
    scores = model.decision_function(X)
    found = model.predict_proba(X)
    assert np.array_equal(found[:, 1] > 0.5, scores > 0)
    near = np.abs(np.abs(scores) - 1) < 0.2
    assert (found[near].max(axis=1) < 0.95).all()
    assert model._state.calibration.n_scored == 0
    stream = SeqMED().partial_fit(X, y)
    slopes = [stream._state.calibration.slope]
    for batch in rest:
        stream.partial_fit(*batch)
        slopes.append(stream._state.calibration.slope)
    assert slopes[-1] > 1.2 * slopes[0]


def test_probabilities_follow_drift_with_the_same_forgetting():
    """If labels become random, the slope decreases sooner with forgetting."""
    models = [SeqMED(forgetting=share, lag=3) for share in (1.0, 0.7)]
    for X, y in make_stream(15, noise=0.0):
        for model in models:
            model.partial_fit(X, y)
    before = [model._state.calibration.slope for model in models]
    for X, y in make_stream(6, noise=1.0, seed=2):
        for model in models:
            model.partial_fit(X, y)
    kept, forgotten = (model._state.calibration.slope for model in models)
    assert forgotten < 0.5 * kept
    assert kept < before[0]


@pytest.mark.parametrize("bias", ["auto", "exact"])
def test_one_outlier_has_little_effect_on_the_record(bias):
    """Its score is unbounded, but its effect on the likelihood of a slope is bounded."""
    batches = list(make_stream(10, noise=0.0, seed=3))
    model = SeqMED("linear", bias=bias)
    for X, y in batches[:5]:
        model.partial_fit(X, y)
    before = model.predict_proba(batches[5][0]).max(axis=1).mean()
    far = 1e4 * model.coef_[-1:] / np.linalg.norm(model.coef_[-1])
    model.partial_fit(far, [0])
    model.retract(far)
    for X, y in batches[5:]:
        model.partial_fit(X, y)
    assert model.predict_proba(batches[5][0]).max(axis=1).mean() > before - 0.02


def test_labels_one_by_one_forget_no_more_than_at_once():
    batches = list(make_stream(4, seed=4))
    at_once, one_by_one = SeqMED(forgetting=0.8, lag=None), SeqMED(forgetting=0.8, lag=None)
    for model in (at_once, one_by_one):
        for X, y in batches[:3]:
            model.partial_fit(X, y)
        model.partial_fit(batches[3][0], np.full(60, np.nan))
    X, y = batches[3]
    at_once.partial_fit(X, y, new_points=False)
    for row in range(60):
        one_by_one.partial_fit(X[row : row + 1], y[row : row + 1], new_points=False)
    a, b = at_once._state.calibration, one_by_one._state.calibration
    assert a.n_scored == pytest.approx(b.n_scored) == pytest.approx(0.8 * (60 * 0.8 + 60) + 60)


def test_small_margins_have_probabilities_too():
    """With C close to slack_shape a diffuse bias has small scores, and slopes must be steep."""
    model = SeqMED(C=1.02, bias="exact", slack_shape=1.0)
    for X, y in make_stream(20, noise=0.0, distance=6.0, seed=5):
        model.partial_fit(X, y)
    assert np.abs(model.decision_function(X)).max() < 0.5
    assert model.score(X, y) == 1.0
    assert model.predict_proba(X).max(axis=1).mean() > 0.95


def test_a_declared_class_has_the_share_of_laplaces_rule():
    X, y = next(make_stream(1, size=20))
    model = SeqMED().partial_fit(X, y, classes=[0, 1, 2, 3])
    found = model.predict_proba(X)
    np.testing.assert_allclose(found[:, 2:], 1 / 24)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    one = SeqMED().partial_fit(X[y == 0], y[y == 0], classes=[0, 1])
    n = np.sum(y == 0)
    np.testing.assert_allclose(
        one.predict_proba(X), np.tile([(n + 1) / (n + 2), 1 / (n + 2)], (20, 1))
    )
    only = SeqMED().fit(X[y == 0], y[y == 0])
    np.testing.assert_array_equal(only.predict_proba(X), np.ones((20, 1)))


def test_rows_of_a_class_not_seen_before_are_not_scored():
    batches = list(make_stream(3, n_classes=2))
    model = SeqMED()
    for X, y in batches[:2]:
        model.partial_fit(X, y)
    before = model._state.calibration
    model.partial_fit(batches[2][0], np.full(60, 7))
    after = model._state.calibration
    assert after.n_scored == before.n_scored == 60
    assert model.predict_proba(batches[0][0]).shape == (60, 3)


def test_unlabeled_rows_and_predictions_leave_the_record_alone():
    batches = list(make_stream(4))
    model = SeqLapMED(random_state=0)
    for X, y in batches[:3]:
        model.partial_fit(X, y)
    before = model._state.calibration
    model.predict_proba(batches[3][0])
    model.partial_fit(batches[3][0], np.full(60, -1))
    np.testing.assert_array_equal(model._state.calibration.log_likelihoods, before.log_likelihoods)
    assert model._state.calibration.n_scored == before.n_scored


def test_weights_count_in_the_record():
    batches = list(make_stream(2))
    twice, weighted = SeqMED(gamma=0.3), SeqMED(gamma=0.3)
    for X, y in batches:
        twice.partial_fit(np.vstack([X, X]), np.append(y, y))
        weighted.partial_fit(X, y, sample_weight=np.full(60, 2.0))
    a, b = twice._state.calibration, weighted._state.calibration
    assert a.n_scored == b.n_scored == 120
    np.testing.assert_allclose(a.log_likelihoods, b.log_likelihoods, rtol=1e-3)


def test_string_labels_log_probabilities_and_pickles():
    batches = list(make_stream(3, n_classes=3))
    names = np.array(["low", "mid", "top"])
    model = SeqMED()
    for X, y in batches:
        model.partial_fit(X, names[y])
    found = model.predict_proba(X)
    assert np.array_equal(names[found.argmax(axis=1)], model.predict(X))
    np.testing.assert_array_equal(model.predict_log_proba(X), np.log(found))
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict_proba(X), found)

"""Late and retracted labels give the model of the stream without delay or error."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from seqmed import SeqLapMED, SeqMED
from seqmed.margin.dual.problem import DualProblem, certify
from tests.support.gaussian_streams import (
    TOL,
    UNLABELED,
    assert_close,
    learn,
    make_batch,
    new_points,
    seq_lap,
    seq_med,
)

# Landmarks fewer than the points, so that what is carried is an approximation too.
MODELS = {
    "SeqMED": lambda **o: seq_med(**o),
    "linear": lambda **o: seq_med(kernel="linear", **o),
    "exact": lambda **o: seq_lap(recursion="exact", **o),
    "landmarks": lambda **o: seq_lap(recursion="landmarks", n_landmarks=30, **o),
    "spectral": lambda **o: seq_lap(recursion="spectral", **o),
}


def make_stream(n_classes=2, seed=0):
    return [make_batch(20, 8, n_classes, seed=100 * seed + t) for t in range(5)]


def hidden(rows):
    return replace(rows, labels=np.full(rows.labels.size, UNLABELED))


def as_labels(model, rows):
    """Return labels with the marker of the model, which is NaN for SeqMED."""
    labels = rows.labels.astype(float)
    return np.where(labels == UNLABELED, np.nan, labels)


def learn_late(model, rows):
    return model.partial_fit(rows.points, as_labels(model, rows), new_points=False)


def retract(model, rows, y=True):
    known = rows.labels != UNLABELED
    return model.retract(rows.points[known], rows.labels[known] if y else None)


def assert_same_model(found, expected):
    assert_close(found.decision_function(new_points()), expected.decision_function(new_points()))
    assert_close(found.decision_std(new_points()), expected.decision_std(new_points()))
    assert found.classes_.tolist() == expected.classes_.tolist()
    assert found.n_batches_ == expected.n_batches_


# -- late ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_labels_of_the_last_batch_may_come_late(name, n_classes):
    """After any batch, and the stream goes on the same."""
    stream = make_stream(n_classes)
    model, late = (MODELS[name](lag=None) for _ in range(2))
    for rows in stream:
        learn(model, [rows])
        learn(late, [hidden(rows)])
        learn_late(late, rows)
        assert_same_model(late, model)


@pytest.mark.parametrize("name", MODELS)
def test_labels_may_come_batches_late(name):
    """All of batch 1 comes after batch 3: the same from the next fold on."""
    stream = make_stream(3)
    model = learn(MODELS[name](lag=None), stream)
    late = learn(MODELS[name](lag=None), [stream[0], hidden(stream[1]), stream[2], stream[3]])
    learn_late(late, stream[1])
    learn(late, stream[4:])
    assert_same_model(late, model)


def test_some_labels_in_time_and_some_late():
    stream = make_stream()
    model = learn(seq_lap(lag=None), stream)
    late = learn(seq_lap(lag=None), stream[:2])
    rows = stream[2]
    known = np.flatnonzero(rows.labels != UNLABELED)
    first, second = rows.labels.copy(), rows.labels.copy()
    first[known[:3]] = second[known[3:]] = UNLABELED
    learn(late, [replace(rows, labels=first)])
    learn_late(late, replace(rows, labels=second))
    learn(late, stream[3:])
    assert_same_model(late, model)


@pytest.mark.parametrize("lag", [1, 2])
@pytest.mark.parametrize("name", ["SeqMED", "linear"])
def test_without_a_graph_labels_of_the_last_batch_may_come_late_at_any_lag(name, lag):
    stream = make_stream()
    model, late = (MODELS[name](lag=lag, forgetting=0.8) for _ in range(2))
    for rows in stream:
        learn(model, [rows])
        learn(late, [hidden(rows)])
        learn_late(late, rows)
        assert_same_model(late, model)


@pytest.mark.parametrize("lag", [1, 2, 3])
@pytest.mark.parametrize("name", ["SeqMED", "exact", "landmarks"])
def test_late_labels_at_a_finite_lag_are_within_the_stated_bound(name, lag):
    """Two settings of the same multipliers' problem differ by what their duality gaps allow.

    The dual of all labels is concave with the covariance for curvature, so the function of any
    multipliers is within ``sqrt(2 gap)`` of the best one in the norm of the covariance, and two of
    them within the sum. The bias is known.
    """
    stream, known = make_stream(seed=3), {"lag": lag, "bias": "auto"}
    model = learn(MODELS[name](**known), stream)
    late = learn(MODELS[name](**known), [stream[0], hidden(stream[1]), *stream[2:]])
    learn_late(late, stream[1])
    points = new_points()
    scores, late_scores = (each.posterior_.mean(points)[:, 1] for each in (model, late))
    difference = np.abs(late_scores - scores)
    spread = model.decision_std(points)
    assert_close(spread, late.decision_std(points))
    bound = spread * (np.sqrt(2 * full_gap(model, stream)) + np.sqrt(2 * full_gap(late, stream)))
    assert difference.max() > 1e-6  # there is something to bound
    assert (difference <= bound + 1e-9).all()


def full_gap(model, stream):
    """Return the duality gap of a model's multipliers in the problem of all labels at once."""
    rows = np.concatenate([each.points[each.labels != UNLABELED] for each in stream])
    labels = np.concatenate([each.labels[each.labels != UNLABELED] for each in stream])
    signs = np.where(labels == 1, 1.0, -1.0)
    state = model.posterior_
    support = state.support
    coefficients = np.zeros(len(rows))
    places = [rows.tolist().index(point) for point in support.points.tolist()]
    coefficients[places] = support.coefficients[:, 1]
    problem = DualProblem(
        gram=state.covariance(rows, rows),
        signs=signs,
        prior_scores=np.full(len(rows), -1.0),
        bounds=np.full(len(rows), 10.0),
        shapes=np.ones(len(rows)),
        known_bias=True,
    )
    return certify(problem, signs * coefficients, tol=TOL, status="given", n_iter=0).gap


def test_a_late_label_counts_no_batch_and_moves_no_graph():
    model = learn(SeqLapMED(random_state=0, n_landmarks=20), [hidden(r) for r in make_stream()])
    spread = model.decision_std(new_points())
    with pytest.raises(NotFittedError, match="has learned no label"):
        model.predict(new_points())
    learn_late(model, make_stream()[-1])
    assert model.n_batches_ == 5
    assert np.array_equal(model.decision_std(new_points()), spread)
    assert model.update_info_.n_labeled == 8
    assert model.duality_gap_ >= 0


def test_late_labels_may_bring_a_class():
    stream = make_stream(3)
    model = learn(seq_lap(lag=None), stream[:2])
    late = seq_lap(lag=None)
    two = [replace(r, labels=np.where(r.labels == 2, UNLABELED, r.labels)) for r in stream[:2]]
    learn(late, two)
    assert late.classes_.tolist() == [0, 1]
    for rows in stream[:2]:
        learn_late(late, replace(rows, labels=np.where(rows.labels == 2, 2, UNLABELED)))
    assert_close(late.decision_function(new_points()), model.decision_function(new_points()))


def test_late_labels_are_scored_before_they_are_learned():
    stream = make_stream()
    model = learn(seq_med(), stream[:3])
    late = learn(seq_med(), [*stream[:2], hidden(stream[2])])
    learn_late(late, stream[2])
    ours, theirs = late._state.calibration, model._state.calibration
    assert_close(ours.log_likelihoods, theirs.log_likelihoods, 1e-12)


# -- retraction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_retracted_labels_are_as_if_never_learned(name, n_classes):
    """Of the newest batch, at once; and the stream goes on the same."""
    stream = make_stream(n_classes, seed=1)
    options = {"lag": None}
    model = learn(MODELS[name](**options), [*stream[:2], hidden(stream[2])])
    other = learn(MODELS[name](**options), stream[:3])
    retract(other, stream[2])
    assert_same_model(other, model)
    for each in (model, other):
        learn(each, stream[3:])
    assert_same_model(other, model)


@pytest.mark.parametrize("name", MODELS)
def test_labels_can_be_retracted_several_batches_later(name):
    stream = make_stream(3, seed=2)
    wrong = replace(stream[1], labels=np.where(stream[1].labels == 0, 2, UNLABELED))
    model = learn(MODELS[name](lag=None), [stream[0], hidden(wrong), *stream[2:]])
    other = learn(MODELS[name](lag=None), [stream[0], wrong, *stream[2:]])
    retract(other, wrong)
    assert_same_model(other, model)


def test_a_label_is_corrected():
    """A label that is retracted and corrected gives the model of the correct stream."""
    stream = make_stream(seed=4)
    model = learn(seq_lap(lag=None), stream)
    other = seq_lap(lag=None)
    known = stream[2].labels != UNLABELED
    flipped = replace(stream[2], labels=np.where(known, 1 - stream[2].labels, UNLABELED))
    learn(other, [*stream[:2], flipped, *stream[3:]])
    retract(other, flipped)
    learn_late(other, stream[2])
    assert_same_model(other, model)


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("make", [seq_med, seq_lap])
def test_a_class_without_labels_left_disappears(make, before):
    """From any number of classes: of three, two, one there were before."""
    rows = make_batch(20, 20, 3, seed=9)
    stray = make_batch(3, 0, seed=10)
    first = replace(rows, labels=np.where(rows.labels <= before, rows.labels, UNLABELED))
    model, other = make(lag=None), make(lag=None)
    labels = as_labels(model, first)
    for each in (model, other):
        each.partial_fit(rows.points, labels)
    model.partial_fit(stray.points, np.full(3, np.nan))
    other.partial_fit(stray.points, [9.0, np.nan, 9.0])
    assert other.classes_.tolist() == [*range(before + 1), 9]
    other.retract(stray.points[[2, 0]])
    assert other.classes_.tolist() == list(range(before + 1))
    assert_same_model(other, model)
    assert other.predict(rows.points).tolist() == model.predict(rows.points).tolist()


def test_a_declared_class_stays_without_examples():
    rows = make_batch(20, 20, 3, seed=9)
    model = SeqMED(lag=None, tol=TOL).partial_fit(rows.points, rows.labels, classes=[0, 1, 2])
    model.retract(rows.points[rows.labels == 2])
    assert model.classes_.tolist() == [0, 1, 2]
    assert set(model.predict(rows.points)) == {0, 1}
    other = SeqMED(lag=None, tol=TOL)
    other.partial_fit(
        rows.points, np.where(rows.labels == 2, np.nan, rows.labels), classes=[0, 1, 2]
    )
    assert_close(model.decision_function(new_points()), other.decision_function(new_points()))


def test_a_declared_class_stays_after_batches_that_do_not_declare_it():
    rows, more = make_batch(20, 20, 3, seed=9), make_batch(10, 10, 3, seed=10)
    model = SeqMED(lag=None).partial_fit(rows.points, rows.labels, classes=[0, 1, 2])
    model.partial_fit(more.points, more.labels)
    for each in (rows, more):
        model.retract(each.points[each.labels == 2])
    assert model.classes_.tolist() == [0, 1, 2]


def test_all_labels_can_be_retracted():
    rows = make_batch(20, 20, 2, seed=9)
    model = SeqMED(lag=None).partial_fit(rows.points, rows.labels)
    model.retract(rows.points, rows.labels)
    assert model.classes_.size == 0
    with pytest.raises(NotFittedError, match="has learned no label"):
        model.predict(rows.points)
    model.partial_fit(rows.points, np.where(rows.labels == 0, "no", "yes"))
    other = SeqMED(lag=None).partial_fit(rows.points, np.where(rows.labels == 0, "no", "yes"))
    assert np.array_equal(model.predict(rows.points), other.predict(rows.points))


def test_a_repeated_row_is_retracted_once_per_occurrence():
    rows = make_batch(12, 12, 2, seed=11)
    row, label = rows.points[:1], rows.labels[:1]
    three = SeqMED(lag=None, tol=TOL).partial_fit(
        np.vstack([rows.points, row, row]), [*rows.labels, *label, *label]
    )
    three.retract(np.vstack([row, row]), [*label, *label])
    once = SeqMED(lag=None, tol=TOL, gamma=three.posterior_.covariance.kernel.gamma)
    once.partial_fit(rows.points, rows.labels)
    assert_close(three.decision_function(new_points()), once.decision_function(new_points()))
    three.retract(row)
    with pytest.raises(ValueError, match="row 0 of X is not among"):
        three.retract(row)


def test_of_equal_rows_the_one_with_that_label():
    rows = make_batch(12, 12, 2, seed=12)
    X, y = np.vstack([rows.points, rows.points]), np.append(rows.labels, 1 - rows.labels)
    model = SeqMED(lag=None, tol=TOL, gamma=0.4).partial_fit(X, y)
    model.retract(rows.points, 1 - rows.labels)
    other = SeqMED(lag=None, tol=TOL, gamma=0.4).partial_fit(rows.points, rows.labels)
    assert_close(model.decision_function(new_points()), other.decision_function(new_points()))


def test_weights_leave_with_their_rows():
    rows = make_batch(20, 20, 2, seed=13)
    weights = np.linspace(0.3, 3, 20)
    model = SeqMED(lag=None).partial_fit(rows.points, rows.labels, sample_weight=weights)
    model.retract(rows.points[:7])
    registry = model._state.counts
    expected = [weights[7:][rows.labels[7:] == label].sum() for label in (0, 1)]
    np.testing.assert_allclose(registry.weights, expected)
    assert registry.counts.tolist() == [np.sum(rows.labels[7:] == label) for label in (0, 1)]


def test_rows_are_found_but_for_rounding():
    """A transformer gives a single row other last digits than the same row in a batch."""
    rows = make_batch(20, 20, 2, seed=14)
    model = SeqMED(lag=None).partial_fit(1e6 * rows.points, rows.labels)
    model.retract(1e6 * rows.points[:4] * (1 + 1e-14), rows.labels[:4])
    assert model.posterior_.window.size == 16
    with pytest.raises(ValueError, match="row 0 of X is not among"):
        model.retract(1e6 * rows.points[5:6] * (1 + 1e-6))


def test_a_large_value_does_not_hide_a_small_one():
    X = np.array([[1e12, 0.0], [1e12, 5.0], [1e12, -3.0], [1e12, 7.0]])
    model = SeqMED(lag=None, gamma=1e-3).partial_fit(X, ["a", "b", "a", "b"])
    model.retract(X[:1])
    assert model.posterior_.window.points[:, 1].tolist() == [5.0, -3.0, 7.0]
    with pytest.raises(ValueError, match="row 0 of X is not among"):
        model.retract([[1e12, 4.0]])


def test_sparse_rows_are_found():
    rows = make_batch(20, 20, 2, seed=14)
    X = sp.csr_array(np.where(np.abs(rows.points) > 0.5, rows.points, 0.0))
    model = SeqMED(lag=None).partial_fit(X, rows.labels)
    model.retract(X[:4].toarray(), rows.labels[:4])
    assert model.posterior_.window.size == 16
    wide = X[4:8].copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    model.retract(wide, rows.labels[4:8])
    assert model.posterior_.window.size == 12


# -- refused ---------------------------------------------------------------------------------------


def assert_refused(model, call, message):
    before = model.__dict__.copy()
    with pytest.raises(ValueError, match=message):
        call()
    assert model.__dict__.keys() == before.keys()
    assert all(model.__dict__[name] is before[name] for name in before)


def test_refused_late_labels():
    stream = make_stream()
    fresh = SeqMED()
    assert_refused(fresh, lambda: learn_late(fresh, stream[0]), "new_points=False in its first")
    model = learn(SeqLapMED(random_state=0), stream[:2])
    assert_refused(model, lambda: learn_late(model, hidden(stream[2])), "no labeled row among 20")
    assert_refused(
        model,
        lambda: model.partial_fit(stream[2].points, stream[2].labels, new_points="no"),
        "new_points='no'",
    )
    narrow = replace(stream[2], points=stream[2].points[:, :2])
    assert_refused(model, lambda: learn_late(model, narrow), "features")
    given = stream[2].labels
    assert_refused(
        model,
        lambda: model.partial_fit(stream[2].points, given, classes=[0], new_points=False),
        "expected one of classes",
    )


def test_refused_retractions():
    stream = make_stream()
    fresh = SeqMED()
    with pytest.raises(NotFittedError):
        retract(fresh, stream[0])
    model = learn(SeqLapMED(random_state=0, lag=2), stream)
    known = stream[-1].labels != UNLABELED
    points, labels = stream[-1].points[known], stream[-1].labels[known]
    assert_refused(model, lambda: retract(model, stream[0]), r"\(window=500, lag=2\)")
    assert_refused(model, lambda: model.retract(points, 1 - labels), "row 0 of X has another")
    assert_refused(model, lambda: model.retract(points, labels[1:]), "7 labels for 8 rows")
    assert_refused(model, lambda: model.retract(stream[-1].points[~known]), "row 0 of X is not")
    assert_refused(model, lambda: model.retract(points, np.full(8, 5)), "row 0 of X has another")
    both = np.vstack([points[:1], points[:1]])
    assert_refused(model, lambda: model.retract(both), "row 1 of X equals earlier")
    assert_refused(model, lambda: model.retract(points[:, :2]), "features")
    gram = np.full((4, 4), 2.0) + np.eye(4)
    given = SeqMED("precomputed").fit(gram, [0, 1, 0, 1])
    assert_refused(given, lambda: given.retract(gram[:1]), "kernel='precomputed'")
    bounded = learn(SeqLapMED(budget=6, lag=None, random_state=0), stream)
    assert_refused(bounded, lambda: retract(bounded, stream[0]), "budget=6, window=500, lag=None")
    averaged = learn(SeqMED(averaging=True), stream)
    assert_refused(averaged, lambda: retract(averaged, stream[-1]), "running mean")
    model.set_params(gamma=3.0)
    assert_refused(model, lambda: retract(model, stream[-1]), "gamma was changed")


def test_a_bounded_model_retracts_labels_of_its_window():
    stream = make_stream()
    model = learn(SeqLapMED(budget=30, lag=None, random_state=0), stream)
    window = model.posterior_.window
    model.retract(window.points[-3:])
    assert model.posterior_.window.size == window.size - 3
    assert np.isfinite(model.decision_function(new_points())).all()

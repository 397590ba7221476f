"""``averaging="auto"``: the running mean of the posterior means since a label left the window."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

import seqmed
from seqmed import SeqGraphMED, SeqLapMED, SeqMED
from tests.reference.running_mean import NaiveRunningMean
from tests.support.gaussian_streams import (
    TOL,
    UNLABELED,
    Rows,
    assert_close,
    learn,
    make_batch,
    new_points,
)
from tests.support.streaming_options import CARRIERS, make, scores_of

WINDOW = 20


def noisy_stream(n_batches, n_classes=2, *, change=None, seed=0):
    """Batches of 7 labels and some unlabeled rows; from batch ``change`` on classes are moved."""
    stream = []
    for t in range(n_batches):
        rows = make_batch(11, 7, n_classes, seed=1000 * seed + t)
        labels = rows.labels
        if change is not None and t >= change:
            labels = np.where(labels == UNLABELED, UNLABELED, (labels + 1) % n_classes)
        stream.append(Rows(rows.points, labels, rows.weights))
    return stream


def follow(stream, carrier=None, wrap=np.asarray, **options):
    """Yield the model and the reference after every batch."""
    options = {"window": WINDOW, "lag": None, "bias": "auto", **options}
    plain, model = (make(carrier, averaging=each, **options) for each in (False, "auto"))
    reference = NaiveRunningMean(WINDOW, stream[0].points.shape[1])
    for rows in stream:
        learn(plain, [rows], wrap=wrap)
        learn(model, [rows], wrap=wrap)
        known = rows.labels != UNLABELED
        if known.any() or carrier is not None:
            reference.learn(copy.deepcopy(plain), wrap(rows.points[known]), rows.labels[known])
        yield model, plain, reference


def assert_as_reference(model, reference):
    assert_close(scores_of(model), reference.decision_function(new_points()))
    running = model.posterior_.running
    assert (running is not None) == reference.begun
    if running is not None:
        assert running.n_means == len(reference.models)
        assert running.lead == sum(reference.signs)
        assert running.n_compared == len(reference.signs)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize(("n_classes", "bias"), [(2, "auto"), (2, "exact"), (3, "auto")])
def test_predictions_are_those_of_the_reference(carrier, n_classes, bias):
    stream = noisy_stream(12, n_classes, seed=1)
    stream.insert(6, make_batch(9, 0, n_classes, seed=5))
    for model, _, reference in follow(stream, carrier, bias=bias):
        assert_as_reference(model, reference)
    assert reference.begun


def test_the_running_mean_gives_way_and_starts_again_after_a_change():
    used, sizes = [], []
    for model, _, reference in follow(noisy_stream(24, 3, change=12, seed=2)):
        assert_as_reference(model, reference)
        used.append(reference.lead >= 1.5)
        sizes.append(len(reference.models))
    assert any(used[12:])  # the newest mean predicted for a while
    assert min(sizes[13:]) == 1 < max(sizes[4:12])  # and the running mean started again


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_linear_kernel_has_the_mean_of_the_weights(wrap):
    weights = []
    for model, plain, reference in follow(noisy_stream(9, seed=3), wrap=wrap, kernel="linear"):
        weights.append(plain.coef_)
        used = weights[-1:] if reference.lead >= 1.5 else weights[-len(reference.models) :]
        assert_close(model.coef_, np.mean(used, axis=0))
    assert reference.begun


@pytest.mark.parametrize("options", [{}, {"budget": 16}, {"kernel": "linear"}], ids=str)
@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_nothing_changes_before_a_label_leaves(estimator, options):
    stream = noisy_stream(6, seed=4)
    for window in (42, None):
        models = [
            learn(estimator(averaging=each, window=window, random_state=0, **options), stream)
            for each in ("auto", False)
        ]
        found, expected = (model.decision_function(new_points()) for model in models)
        assert np.array_equal(found, expected)
        assert models[0].posterior_.running is None
        learn(models[0], noisy_stream(1, seed=14))
        assert (models[0].posterior_.running is None) == (window is None)


@pytest.mark.parametrize("options", [{"lag": 1}, {"lag": 2}, {"forgetting": 0.9}], ids=str)
def test_only_the_size_of_the_window_begins_it(options):
    """With a lag it is the lag that lets labels go; with forgetting the mean would be late."""
    models = [
        learn(SeqMED(averaging=each, window=WINDOW, **options), noisy_stream(8, seed=6))
        for each in ("auto", False)
    ]
    found, expected = (model.decision_function(new_points()) for model in models)
    assert np.array_equal(found, expected)


def test_a_window_smaller_than_the_lag_begins_it():
    model = learn(SeqMED(lag=3, window=WINDOW), noisy_stream(8, seed=6))
    assert model.posterior_.running.n_means > 1


def test_forgetting_ends_it():
    models = [
        learn(SeqMED(averaging=each, window=WINDOW, tol=TOL), noisy_stream(8, seed=7))
        for each in ("auto", False)
    ]
    assert models[0].posterior_.running is not None
    for model in models:
        learn(model.set_params(forgetting=0.9), noisy_stream(1, seed=8))
    assert models[0].posterior_.running is None
    assert not models[0].posterior_.window.averages.any()
    assert_close(*(scores_of(model) for model in models))


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_retracted_label_leaves_the_running_mean(carrier):
    stream = noisy_stream(9, seed=9)
    *_, (model, plain, reference) = follow(stream[:8], carrier)
    assert len(reference.models) > 1
    retracted = plain.posterior_.window.points[-6:-4]
    for each in (model, plain):
        each.retract(retracted)
    reference.retract(copy.deepcopy(plain), retracted, restarts=carrier is not None)
    assert_as_reference(model, reference)
    assert (len(reference.models) > 1) == (carrier is None)
    if carrier is not None:
        assert_close(scores_of(model), scores_of(plain))
    for each in (model, plain):
        learn(each, stream[8:])
    known = stream[8].labels != UNLABELED
    reference.learn(copy.deepcopy(plain), stream[8].points[known], stream[8].labels[known])
    assert_as_reference(model, reference)
    with pytest.raises(ValueError, match=r"is not among the 20 labeled rows in the window"):
        model.retract(stream[0].points[:1])


def test_a_new_class_starts_it_again():
    stream = noisy_stream(7, 2, seed=10)
    stream += [make_batch(11, 7, 3, seed=90 + t, classes=[0, 1, 2]) for t in range(4)]
    for t, (model, plain, reference) in enumerate(follow(stream)):
        if t > 0:
            assert_as_reference(model, reference)
        if t == 7:
            assert model.posterior_.running.n_means == 1
            assert_close(scores_of(model), scores_of(plain))
    declared = SeqMED(window=WINDOW, tol=TOL, gamma=model.gamma_)
    learn(declared, stream, classes=[0, 1, 2])
    assert_close(scores_of(declared), scores_of(model))


@pytest.mark.filterwarnings("ignore:the error rate rose")
@pytest.mark.parametrize("change", [None, 8])
@pytest.mark.parametrize("make_model", [
    lambda: SeqMED(window=WINDOW),
    lambda: SeqLapMED(window=WINDOW, n_landmarks=12, random_state=0),
    lambda: SeqMED(window=WINDOW, budget=60, random_state=0),
    lambda: SeqGraphMED(SeqMED(window=WINDOW), experts=(), random_state=0),
])  # fmt: skip
def test_a_loaded_model_goes_on_to_the_bit(make_model, change, tmp_path):
    stream = noisy_stream(11, 3, change=change, seed=12)
    model = learn(make_model(), stream[:9])
    margin = model.estimator_ if isinstance(model, SeqGraphMED) else model
    assert margin.posterior_.running is not None
    seqmed.save(model, tmp_path / "model")
    loaded = seqmed.load(tmp_path / "model")
    for each in (model, loaded):
        learn(each, stream[9:])
    assert np.array_equal(*(each.predict_proba(new_points()) for each in (model, loaded)))


def test_many_labels_of_a_noisy_stream_are_predicted_better():
    """Bayes' error is 16 %; the window is 1/40 of the labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    X = rng.normal(size=(4000, 4)) + y[:, None]
    scores = []
    for averaging in ("auto", False):
        model = SeqMED(averaging=averaging, window=50)
        for start in range(0, 2000, 20):
            model.partial_fit(X[start : start + 20], y[start : start + 20])
        scores.append(model.score(X[2000:], y[2000:]))
    assert scores[0] > scores[1] + 0.01

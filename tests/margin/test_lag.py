"""Fixed lag and window: multipliers of several batches optimised together."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED, SeqMED
from seqmed.margin import update
from tests.reference import naive
from tests.support.gaussian_streams import (
    GAMMA,
    TOL,
    UNLABELED,
    assert_close,
    awkward_stream,
    kernels_over_time,
    labeled_batches,
    learn,
    make_batch,
    make_stream,
    marked,
    new_points,
    seq_lap,
    seq_med,
    smoothings,
    three_class_stream,
)
from tests.support.streaming_options import (
    BOUNDS,
    CARRIERS,
    LAGS,
    kernels_of,
    learn_with,
    make,
    rbf,
    scores_of,
)


def test_the_faster_kernel_is_the_slow_one():
    left, right = new_points(7), new_points(9, seed=1)
    np.testing.assert_allclose(rbf(left, right), naive.rbf(GAMMA)(left, right), rtol=1e-14)


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("carrier", [*CARRIERS, "spectral"])
def test_a_lagged_stream_is_that_of_the_reference(carrier, lag):
    """No labels, one class, one row, one label, another C in every batch: all of it."""
    stream = awkward_stream(seed=30)
    if carrier == "spectral":
        batches = smoothings(stream, [0.5] * len(stream))
        kernels = kernels_over_time("spectral", rbf, batches)
    else:
        kernels = kernels_of(carrier, stream)
    expected = naive.learn_steps(labeled_batches(stream, BOUNDS), kernels, lag=lag)
    model = make(carrier, lag=lag)
    for known, _ in zip(expected, learn_with(model, stream, C=BOUNDS), strict=True):
        assert_close(model.decision_function(new_points()), known.scores(new_points()))
        assert_close(model.intercept_[0], known.bias)


@pytest.mark.parametrize("options", [{"slack_shape": 0.3}, {"bias": "median"}])
def test_slack_shape_and_the_papers_bias_go_with_a_lag(options):
    stream = make_stream(seed=31)
    kernels = kernels_of("exact", stream)
    given = {"bias_rule" if name == "bias" else name: value for name, value in options.items()}
    expected = naive.learn_steps(labeled_batches(stream, 10.0), kernels, lag=2, **given)
    model = make("exact", lag=2, **options)
    for known, _ in zip(expected, learn_with(model, stream), strict=True):
        assert_close(model.decision_function(new_points()), known.scores(new_points()))


@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_lag_may_change_between_batches(carrier):
    """A longer lag lets the window grow again; frozen points do not return."""
    stream = awkward_stream(seed=32)
    lags = [2, 1, 3, None, None, 2, 1]
    expected = naive.learn_steps(
        labeled_batches(stream, 10.0), kernels_of(carrier, stream), lag=lags
    )
    model = make(carrier)
    for known, _ in zip(expected, learn_with(model, stream, lag=lags), strict=True):
        assert_close(model.decision_function(new_points()), known.scores(new_points()))


@pytest.mark.parametrize(
    ("lag", "wrap"),
    [(1, np.asarray), (2, np.asarray), (2, sp.csr_array), (None, np.asarray)],
    ids=["1-dense", "2-dense", "2-csr", "None-dense"],
)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_classes_that_come_late_are_those_of_the_reference(carrier, lag, wrap):
    """A machine learns nothing before the first label of its class."""
    stream = three_class_stream(33)
    kernels = kernels_of(carrier, stream)
    expected = [
        naive.learn_steps(labeled_batches(stream, 10.0, positive=label), kernels, lag=lag)
        for label in range(3)
    ]
    model = make(carrier, lag=lag)
    for t, _ in enumerate(learn_with(model, stream, wrap=wrap)):
        scores = model.decision_function(wrap(new_points()))
        if t == 0:
            assert_close(scores, expected[1][0].scores(new_points()))
            continue
        for label in range(3):
            assert_close(scores[:, label], expected[label][t].scores(new_points()))
            assert_close(model.intercept_[label], expected[label][t].bias)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "bias",
    [{"bias": "exact"}, {"bias": "auto"}],
    ids=["diffuse", "auto"],
)
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_without_smoothing_all_multipliers_are_those_of_one_fit(estimator, kernel, bias, n_classes):
    stream = make_stream(n_classes=n_classes, seed=35)
    options = {"kernel": kernel, "gamma": GAMMA, "degree": 2, "coef0": 1.0, "tol": TOL}
    options |= {**bias, "lag": None, "window": None}
    if estimator is SeqLapMED:
        options["beta"] = 0.0
    model = learn(estimator(**options), stream)
    points = np.vstack([rows.points for rows in stream])
    labels = np.concatenate([marked(rows.labels, model) for rows in stream])
    once = estimator(**options).fit(points, labels)
    assert_close(model.decision_function(new_points()), once.decision_function(new_points()))
    assert_close(model.intercept_, once.intercept_)


@pytest.fixture
def multiplier_sums(monkeypatch):
    """The frozen sum and the multiplier sum of every dual."""
    recorded = []
    attainable_sum = update.attainable_sum

    def recording(signs, bounds, wanted):
        recorded.append((wanted, attainable_sum(signs, bounds, wanted)))
        return recorded[-1][1]

    monkeypatch.setattr(update, "attainable_sum", recording)
    return recorded


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_window_balances_the_sum_of_frozen_multipliers(carrier, lag, multiplier_sums):
    model = learn(make(carrier, lag=lag), make_stream(seed=37))
    assert all(abs(asked - given) <= 1e-9 for asked, given in multiplier_sums)
    if lag in (2, 3):
        assert max(abs(asked) for asked, _ in multiplier_sums) > 0.5
        assert abs(model.dual_coef_.sum()) <= 1e-12


@pytest.mark.parametrize("forgetting", [1.0, 0.8])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_all_multipliers_sum_to_zero_under_a_diffuse_bias(carrier, n_classes, forgetting):
    stream = make_stream(n_classes=n_classes, seed=36)
    model = make(carrier, lag=2, forgetting=forgetting)
    largest = 0.0
    for _ in learn_with(model, stream, classes=range(n_classes)):
        posterior = model.posterior_
        assert_close(model.dual_coef_.sum(axis=1), 0.0, 1e-12)
        found = posterior.frozen.coefficients.sum(axis=0)
        assert_close(posterior.frozen_sums, found, 1e-12)
        largest = max(largest, np.abs(found).max())
    assert largest > 0.1


@pytest.mark.parametrize("seed", range(6))
def test_rounding_in_a_frozen_sum_is_ignored(seed):
    """A batch that is right by more than the margin leaves multipliers at zero, and the bias alone.

    The multipliers of the first batch sum to zero but for rounding, which must not become a
    support vector of the second: it would fix the bias.
    """
    first = make_batch(40, 40, seed=4600 + seed)
    model = seq_med().fit(first.points, first.labels)
    scores, bias = scores_of(model), model.intercept_.copy()
    beyond = np.abs(model.decision_function(first.points)) > 1.05
    right = beyond & (model.predict(first.points) == first.labels)
    assert set(first.labels[right]) == {0, 1}
    learn(model, [first.part(right)])
    assert not model.update_info_.solutions[0].multipliers.any()
    assert np.array_equal(model.intercept_, bias)
    assert_close(scores_of(model), scores, 1e-12)


def test_the_sum_of_a_window_is_at_most_half_of_its_bounds(multiplier_sums):
    """Points of class 1 in the midst of class 0, all at their bounds, against a batch that leaves.

    The next batch has no labels of class 1 to balance the frozen sum. Later batches balance the
    rest.
    """
    wrong = make_batch(16, 6, seed=4501, classes=[0])
    stream = [
        make_batch(22, 10, seed=4500),
        replace(wrong, labels=np.where(wrong.labels == 0, 1, wrong.labels)),
        make_batch(18, 8, seed=4502, classes=[0]),
        make_batch(20, 12, seed=4503),
    ]
    bounds, options = [10.0, 1.0, 10.0, 10.0], {"slack_shape": 0.1, "lag": 2}
    kernels = kernels_of("exact", stream)
    expected = naive.learn_steps(labeled_batches(stream, bounds), kernels, **options)
    model = make("exact", **options)
    totals = []
    for known, _ in zip(expected, learn_with(model, stream, C=bounds), strict=True):
        assert_close(scores_of(model)[:, 0], known.scores(new_points()))
        totals.append(model.dual_coef_.sum())
    asked, given = multiplier_sums[2]
    assert given == 0.5 * 6 * bounds[1]
    assert asked > given + 0.5
    assert totals == pytest.approx([0.0, 0.0, given - asked, 0.0], abs=1e-12)


def test_the_window_is_the_last_batches_with_labels():
    stream = awkward_stream(seed=37)
    labels = [int((rows.labels != UNLABELED).sum()) for rows in stream]
    assert labels == [10, 0, 7, 1, 1, 12, 8]
    for lag, sizes in {1: [10, 10, 7, 1, 1, 12, 8], 2: [10, 10, 17, 8, 2, 13, 20]}.items():
        model = seq_lap(lag=lag)
        found = [model.update_info_.n_window for _ in learn_with(model, stream)]
        assert found == sizes
        assert model.posterior_.window.size == sizes[-1]


def test_a_lag_makes_a_difference():
    # the identities above would hold of a model that had no lag, were the reference without one too
    stream = make_stream(seed=38)
    scores = [learn(seq_lap(lag=lag), stream).decision_function(new_points()) for lag in LAGS]
    for first in range(4):
        for second in range(first):
            assert np.abs(scores[first] - scores[second]).max() > 0.01


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_warm_start_finds_what_a_cold_one_finds(carrier, monkeypatch):
    stream = make_stream(seed=39)
    warm = learn(make(carrier, lag=None), stream)
    monkeypatch.setattr(update, "feasible", lambda problem, start: np.zeros_like(problem.bounds))
    cold = learn(make(carrier, lag=None), stream)
    assert_close(warm.decision_function(new_points()), cold.decision_function(new_points()))
    assert warm.n_iter_ != cold.n_iter_

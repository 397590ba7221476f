"""Fixed lag, averaging, forgetting and budget: each against a slow reference, or an identity."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED, SeqMED, covariance, dual, duals, mean, update
from seqmed.graph.laplacian import GraphRecipe
from seqmed.kernels import RBF
from seqmed.settings import Settings
from seqmed.update import Batch
from tests.reference import naive
from tests.support.gaussian_streams import (
    GAMMA,
    NEIGHBOURS,
    TOL,
    UNLABELED,
    Rows,
    assert_close,
    awkward_stream,
    dot,
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

LAGS = [1, 2, 3, None]
# Landmarks that are all points are exact, and take another path through the code.
CARRIERS = [None, "exact", "landmarks"]
BOUNDS = [10.0, 4.0, 7.0, 20.0, 3.0, 10.0, 5.0]


def rbf(left, right):
    """naive.rbf(GAMMA) without its loops: these tests ask for many kernel values."""
    differences = left[:, None, :] - right[None, :, :]
    return np.exp(-GAMMA * (differences**2).sum(axis=2))


def test_the_faster_kernel_is_the_slow_one():
    left, right = new_points(7), new_points(9, seed=1)
    np.testing.assert_allclose(rbf(left, right), naive.rbf(GAMMA)(left, right), rtol=1e-14)


def make(carrier, **options):
    """Return SeqMED, or SeqLapMED with the named recursion."""
    return seq_med(**options) if carrier is None else seq_lap(recursion=carrier, **options)


def papers(estimator, **options):
    """Return an estimator of the paper's recursion but for the options."""
    return estimator(**{"lag": 1, "bias": "exact", **options})


def own_graph(**options):
    """Return SeqLapMED with a graph of each batch alone."""
    return SeqLapMED(**options)


def kernels_of(carrier, stream, forgetting=None):
    """Return the kernel after every batch, old penalties discounted by ``forgetting`` (list)."""
    if carrier is None:
        return [rbf] * len(stream)
    batches = smoothings(stream, [0.5] * len(stream))
    shares = [1.0] * len(stream) if forgetting is None else forgetting
    return [
        naive.unrolled_kernel(rbf, naive.discounted(batches[: t + 1], shares))
        for t in range(len(stream))
    ]


def learn_with(model, stream, *, wrap=np.asarray, classes=None, **changing):
    """Yield the model after every batch; ``changing`` gives parameters their value per batch."""
    for t, rows in enumerate(stream):
        model.set_params(**{name: values[t] for name, values in changing.items()})
        yield learn(model, [rows], wrap=wrap, classes=classes)


# -- lag -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("bias_variance", [np.inf, 0.7])
@pytest.mark.parametrize("carrier", [*CARRIERS, "spectral"])
def test_a_lagged_stream_is_that_of_the_reference(carrier, bias_variance, lag):
    """No labels, one class, one row, one label, another C in every batch: all of it."""
    stream = awkward_stream(seed=30)
    if carrier == "spectral":
        batches = smoothings(stream, [0.5] * len(stream))
        kernels = kernels_over_time("spectral", rbf, batches)
    else:
        kernels = kernels_of(carrier, stream)
    expected = naive.learn_steps(
        labeled_batches(stream, BOUNDS), kernels, bias_variance=bias_variance, lag=lag
    )
    model = make(carrier, bias_variance=bias_variance, lag=lag)
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
def test_the_lag_may_change_in_mid_stream(carrier):
    """A longer lag lets the window grow again; what is settled does not come back."""
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
    """A head is one stream against the rest, in which it learns nothing before its class comes."""
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


@pytest.mark.parametrize(("lag", "declared"), [(2, True), (None, True), (None, False)])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_late_classes_under_a_finite_bias(carrier, lag, declared):
    """Declared, a class learns from the first batch; discovered, from the window, if it holds all.

    One that is discovered when something has been settled cannot know what it was not.
    """
    stream = three_class_stream(34)
    kernels = kernels_of(carrier, stream)
    model = make(carrier, lag=lag, bias_variance=0.7)
    for _ in learn_with(model, stream, classes=[0, 1, 2] if declared else None):
        pass
    scores = model.decision_function(new_points())
    for label in range(3):
        known = naive.learn_stream(
            labeled_batches(stream, 10.0, positive=label), kernels, lag=lag, bias_variance=0.7
        )
        assert_close(scores[:, label], known.scores(new_points()))
        assert_close(model.intercept_[label], 0.7 * sum(known.balances))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "bias",
    [{"bias": "exact", "bias_variance": variance} for variance in (np.inf, 0.0, 0.7)]
    + [{"bias": "auto"}],
    ids=["diffuse", "none", "finite", "auto"],
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


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("forgetting", [1.0, 0.8])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_bias_counts_every_multiplier_once(n_classes, forgetting, lag):
    stream = make_stream(n_classes=n_classes, seed=36)
    model = seq_lap(lag=lag, forgetting=forgetting, bias_variance=0.7)
    for _ in learn_with(model, stream, classes=range(n_classes)):
        assert_close(model.intercept_, 0.7 * model.dual_coef_.sum(axis=1), 1e-12)


@pytest.fixture
def balances(monkeypatch):
    """What every dual was asked to make up for, and what it was given to reach."""
    recorded = []
    attainable = dual.attainable

    def recording(signs, bounds, balance):
        recorded.append((balance, attainable(signs, bounds, balance)))
        return recorded[-1][1]

    monkeypatch.setattr(dual, "attainable", recording)
    return recorded


# A bias of size 1 costs 1 / (2 variance), and moves multipliers by as much. The sums that make up
# the bias are of some tens times the variance, and so is their rounding: 1e-8 at 1e6, 1e-6 at 1e8.
# The duals are solved to ten times that, and their scores are compared with another ten.
@pytest.mark.parametrize(("variance", "tol"), [(1e6, 1e-7), (1e8, 1e-5)])
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_diffuse_bias_is_the_limit_of_a_large_variance(carrier, lag, variance, tol, balances):
    """Also where settled batches have a sum other than zero: the window makes up for it."""
    stream = make_stream(seed=37)
    diffuse = learn(make(carrier, lag=lag), stream)
    assert all(abs(asked - given) <= 1e-9 for asked, given in balances)
    if lag in (2, 3):
        assert max(abs(asked) for asked, _ in balances) > 0.5
        whole = diffuse.dual_coef_.sum()
        assert abs(whole) <= 1e-12
    finite = learn(make(carrier, lag=lag, bias_variance=variance, tol=tol), stream)
    assert_close(scores_of(diffuse), scores_of(finite), 10 * tol)


@pytest.mark.parametrize("forgetting", [1.0, 0.8])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_all_multipliers_together_balance_under_a_diffuse_bias(carrier, n_classes, forgetting):
    stream = make_stream(n_classes=n_classes, seed=36)
    model = make(carrier, lag=2, forgetting=forgetting)
    settled = 0.0
    for _ in learn_with(model, stream, classes=range(n_classes)):
        posterior = model.posterior_
        assert_close(model.dual_coef_.sum(axis=1), 0.0, 1e-12)
        found = posterior.frozen.coefficients.sum(axis=0)
        assert_close(posterior.frozen_sums, found, 1e-12)
        settled = max(settled, np.abs(found).max())
    assert settled > 0.1


@pytest.mark.parametrize("seed", range(6))
def test_rounding_in_a_settled_sum_is_nothing_to_make_up_for(seed):
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


def test_a_window_makes_up_for_half_of_its_bounds_at_most(balances):
    """Points of class 1 in the midst of class 0, all at their bounds, against a batch that leaves.

    The next batch has none of class 1 to share the burden. What is left over, later ones take.
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
    asked, given = balances[2]
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
    monkeypatch.setattr(
        duals.dual, "feasible", lambda problem, start: np.zeros_like(problem.bounds)
    )
    cold = learn(make(carrier, lag=None), stream)
    assert_close(warm.decision_function(new_points()), cold.decision_function(new_points()))
    assert warm.n_iter_ != cold.n_iter_


# -- averaging -------------------------------------------------------------------------------------


def scores_of(model, wrap=np.asarray):
    """Return decision values (n, heads)."""
    return model.decision_function(wrap(new_points())).reshape(40, -1)


def averaged(newest, solved, forgetting):
    """Return the running mean of scores (n, heads) over time, every head with its own count.

    ``solved`` says of every step and head whether the step solved a dual of the head. Until the
    first that did, the mean is the newest.
    """
    means, counts = [], np.zeros(newest[0].shape[1], dtype=int)
    mean = np.zeros_like(newest[0])
    for t, scores in enumerate(newest):
        mean = mean.copy()
        for head in range(scores.shape[1]):
            if solved[t][head]:
                counts[head] += 1
                step = max(1.0 / counts[head], 1.0 - forgetting[t])
                mean[:, head] += step * (scores[:, head] - mean[:, head])
            elif counts[head] == 0:
                mean[:, head] = scores[:, head]
        means.append(mean)
    return means


AVERAGED = [
    pytest.param(
        carrier, lag, forgetting, n_classes, id=f"{carrier}-{lag}-{forgetting}-{n_classes}"
    )
    for carrier in CARRIERS
    for lag, forgetting, n_classes in [(1, 1.0, 3), (1, 0.8, 2), (3, 1.0, 2), (3, 0.8, 3)]
]


def late_stream(n_classes, seed):
    """One class, then two, no labels, then all, one class, all: heads begin at different times."""
    last = n_classes - 1
    shapes = [
        (14, 8, [0]), (16, 9, [0, last]), (15, 0, None), (16, 10, None), (12, 6, [0]),
        (18, 9, None), (13, 0, None), (15, 9, None),
    ]  # fmt: skip
    return [
        make_batch(n, n_labeled, n_classes, seed=100 * seed + t, classes=classes)
        for t, (n, n_labeled, classes) in enumerate(shapes)
    ]


@pytest.mark.parametrize(("carrier", "lag", "forgetting", "n_classes"), AVERAGED)
def test_the_averaged_mean_is_the_mean_of_the_means(carrier, lag, forgetting, n_classes):
    stream = late_stream(n_classes, seed=40)
    options = {"lag": lag, "forgetting": forgetting}
    plain, running = make(carrier, **options), make(carrier, averaging=True, **options)
    newest, solved, found, intercepts, biases = [], [], [], [], []
    for rows in stream:
        for model in (plain, running):
            learn(model, [rows], classes=range(n_classes))
        newest.append(scores_of(plain))
        found.append(scores_of(running))
        biases.append(plain.intercept_[None, :])
        intercepts.append(running.intercept_[None, :])
        solved.append([each is not None for each in plain.update_info_.solutions])
    assert solved[0] == [False] * len(solved[0])
    if n_classes == 3:
        assert solved[1] == [True, False, True]
    for means, averages in ((newest, found), (biases, intercepts)):
        expected = averaged(means, solved, [forgetting] * 8)
        for one, other in zip(averages, expected, strict=True):
            assert_close(one, other)
    assert np.abs(found[-1] - newest[-1]).max() > 0.01
    # multipliers are the same: averaging is about predictions, not about what is learned
    assert_close(running.dual_coef_, plain.dual_coef_, 1e-12)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_linear_kernel_averages_its_weights(estimator, n_classes, wrap):
    stream = make_stream(n_classes=n_classes, seed=41)
    options = {"kernel": "linear", "tol": TOL, "lag": 2, "bias": "exact"}
    plain, running = estimator(**options), estimator(averaging=True, **options)
    weights = []
    for rows in stream:
        learn(plain, [rows], wrap=wrap)
        learn(running, [rows], wrap=wrap)
        weights.append(np.hstack([plain.coef_, plain.intercept_[:, None]]))
        found = np.hstack([running.coef_, running.intercept_[:, None]])
        assert_close(found, np.mean(weights, axis=0))
        by_hand = np.hstack([new_points(), np.ones((40, 1))]) @ found.T
        assert_close(scores_of(running, wrap), by_hand, 1e-12)
    assert np.abs(found - weights[-1]).max() > 1e-3


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("order", [[[0, 1], [0, 1, 2]], [[1], [0, 1], [0, 1, 2]], [[2], [0, 1, 2]]])
def test_averages_follow_classes_that_are_discovered(carrier, order):
    """The mean of a head is the same function whether its class was declared or came later."""
    stream = [
        Rows(rows.points, np.where(rows.labels == UNLABELED, UNLABELED, rows.labels + 2), None)
        for t, classes in enumerate([*order, [0, 1, 2], [0, 1, 2]])
        for rows in [make_batch(16, 10, 3, seed=4200 + t, classes=classes)]
    ]
    declared = learn(make(carrier, averaging=True), stream, classes=[2, 3, 4])
    discovered = learn(make(carrier, averaging=True), stream)
    assert_close(scores_of(discovered), scores_of(declared))
    assert np.array_equal(discovered.posterior_.solved, declared.posterior_.solved)


def test_averaging_without_smoothing_counts_only_batches_that_teach():
    stream = awkward_stream(seed=43)
    model = learn(seq_med(averaging=True), stream)
    # without labels nothing is to be solved again, and one class teaches nothing
    assert model.posterior_.solved.tolist() == [3]


# -- forgetting ------------------------------------------------------------------------------------

SHARES = [0.9, 0.7, 1.0, 0.5, 0.8, 0.3, 0.95]


@pytest.mark.parametrize("carrier", ["exact", "landmarks"])
@pytest.mark.parametrize("forgetting", [[0.6] * 7, SHARES], ids=["constant", "changing"])
def test_forgetting_discounts_the_unrolled_kernel(carrier, forgetting):
    stream = awkward_stream(seed=50)
    kernels = kernels_of(carrier, stream, forgetting)
    model = make(carrier)
    left, right = new_points(), new_points(seed=998)
    # exact to rounding; the landmarks' Gram matrix has a condition of 1e6 or so
    tolerance = 1e-10 if carrier == "exact" else 1e-8
    for kernel, _ in zip(kernels, learn_with(model, stream, forgetting=forgetting), strict=True):
        found = model.posterior_.covariance(left, right)
        np.testing.assert_allclose(found, kernel(left, right), rtol=0, atol=tolerance)
        variances = np.diagonal(kernel(left, left))
        np.testing.assert_allclose(model.decision_std(left) ** 2, variances, rtol=0, atol=tolerance)


@pytest.mark.parametrize("carrier", ["exact", "landmarks"])
def test_a_batch_without_smoothing_forgets_too(carrier):
    stream = make_stream(seed=51)
    model = make(carrier, forgetting=0.5)
    shares = [0.5] * 4
    batches = smoothings(stream, [0.5, 0.0, 2.0, 0.0])
    for t, _ in enumerate(learn_with(model, stream, beta=[0.5, 0.0, 2.0, 0.0])):
        kernel = naive.unrolled_kernel(rbf, naive.discounted(batches[: t + 1], shares))
        variances = np.diagonal(kernel(new_points(), new_points()))
        np.testing.assert_allclose(
            model.decision_std(new_points()) ** 2, variances, rtol=0, atol=1e-8
        )


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("bias_variance", [np.inf, 0.7])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_stream_that_forgets_is_that_of_the_reference(carrier, bias_variance, lag):
    stream = awkward_stream(seed=52)
    expected = naive.learn_steps(
        labeled_batches(stream, BOUNDS),
        kernels_of(carrier, stream, SHARES),
        bias_variance=bias_variance,
        lag=lag,
        forgetting=SHARES,
    )
    model = make(carrier, bias_variance=bias_variance, lag=lag)
    steps = learn_with(model, stream, C=BOUNDS, forgetting=SHARES)
    for known, _ in zip(expected, steps, strict=True):
        assert_close(model.decision_function(new_points()), known.scores(new_points()))
        assert_close(model.intercept_[0], known.bias)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_several_classes_forget_as_one_against_the_rest(carrier, wrap):
    stream = three_class_stream(53)
    kernels = kernels_of(carrier, stream, [0.6] * 4)
    teaching = naive.teaching_steps(
        [rows.labels[rows.labels != UNLABELED] for rows in stream], [2] * 4
    )
    model = make(carrier, lag=2, forgetting=0.6)
    for _ in learn_with(model, stream, wrap=wrap):
        pass
    scores = model.decision_function(wrap(new_points()))
    for label in range(3):
        known = naive.learn_stream(
            labeled_batches(stream, 10.0, positive=label),
            kernels,
            lag=2,
            forgetting=0.6,
            teaching=teaching,
        )
        assert_close(scores[:, label], known.scores(new_points()))


def test_what_is_settled_fades_and_what_is_in_the_window_weighs_less():
    stream = [make_batch(20, 10, seed=5400 + t) for t in range(5)]
    model = seq_med(lag=2, forgetting=0.5, C=8.0)
    history = []
    for rows in stream:
        learn(model, [rows])
        history.append(
            {
                tuple(point): value
                for point, value in zip(model.support_vectors_, model.dual_coef_[0], strict=True)
            }
        )
    # batch 0 was optimised last at step 1, batch 1 at step 2
    for batch, last in ((0, 1), (1, 2)):
        points = {tuple(point) for point in stream[batch].points}
        settled = {point: value for point, value in history[last].items() if point in points}
        assert len(settled) > 3
        for point, value in settled.items():
            assert history[-1][point] == pytest.approx(0.5 ** (4 - last) * value, rel=1e-14)
    window = model.posterior_.window
    assert window.bounds.tolist() == [4.0] * 10 + [8.0] * 10
    assert window.shapes.tolist() == [0.5] * 10 + [1.0] * 10


def test_settled_points_that_have_faded_are_dropped_and_not_missed():
    stream = [make_batch(12, 8, seed=5500 + t) for t in range(14)]
    model = seq_med(forgetting=0.05)
    sizes = []
    for _ in learn_with(model, stream):
        sizes.append(model.posterior_.frozen.size + model.posterior_.window.size)
    # 0.05^7 < 1e-9: of 14 batches of 8 labels, 7 settled ones are left and the newest; points are
    # compared with the largest of all, so a batch of larger coefficients than the next lasts longer
    assert sizes[5] > 30
    assert max(sizes) <= 9 * 8
    known = naive.learn_stream(labeled_batches(stream, 10.0), [rbf] * 14, forgetting=0.05)
    # what was dropped is 1e-9 of some tens of coefficients of size 10
    assert_close(model.decision_function(new_points()), known.scores(new_points()), 1e-7)


def test_points_of_the_window_that_have_faded_are_dropped():
    """Multipliers of the seventh batch before the last are at most 10 * 0.05^7, and dropped.

    All that is left is in the window, so that a stream that began seven batches ago is the same.
    """
    stream = [make_batch(12, 8, seed=5500 + t) for t in range(14)]
    # multipliers near bounds of 1e-8 are too stiff to agree to the usual 1e-10
    options = {"forgetting": 0.05, "lag": None, "tol": 1e-7}
    model, late = seq_med(**options), seq_med(**options)
    sizes = [each.posterior_.window.size for each in learn_with(model, stream)]
    assert sizes[:7] == [8 * (t + 1) for t in range(7)]
    assert sizes[7:] == [56] * 7
    assert not model.posterior_.frozen.size
    learn(late, stream[-7:])
    # two solves to 1e-7, through the curvature of the dual as elsewhere
    assert_close(scores_of(model), scores_of(late), 1e-5)


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("bias_variance", [np.inf, 0.7])
@pytest.mark.parametrize("options", [{}, {"averaging": True}, {"budget": 24}], ids=str)
def test_batches_without_labels_are_no_reason_to_forget(options, bias_variance, lag):
    model = seq_med(
        forgetting=0.95, lag=lag, bias_variance=bias_variance, random_state=0, tol=1e-6, **options
    )
    learn(model, [make_batch(12, 6, seed=5600 + t) for t in range(20)])
    learned = [scores_of(model), model.intercept_, model.dual_coef_]
    for t in range(100):
        learn(model, [make_batch(6, 0, seed=5700 + t)])
    found = [scores_of(model), model.intercept_, model.dual_coef_]
    if "budget" not in options:
        assert all(np.array_equal(*pair) for pair in zip(found, learned, strict=True))
    else:
        # landmarks move on, and what stood on those that left is projected
        changes = np.abs(found[0] - learned[0])
        assert (changes <= model.posterior_.projection_error + 1e-12).all()
        assert np.array_equal(found[1], learned[1])
        window = model.posterior_.window
        assert window.bounds.max() == 10.0


@pytest.mark.parametrize("options", [{}, {"averaging": True}], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_of_one_class_are_no_reason_to_forget(n_classes, options):
    """At lag 1 under a diffuse bias they pose no dual, and teach nothing."""
    model = seq_med(forgetting=0.95, **options)
    learn(model, [make_batch(12, 9, n_classes, seed=5800 + t) for t in range(20)])
    learned = scores_of(model), model.intercept_
    for t in range(30):
        learn(model, [make_batch(8, 5, n_classes, seed=5900 + t, classes=[t % n_classes])])
        assert not model.update_info_.solved
    # points that have left the window are added up in another order
    assert_close(scores_of(model), learned[0], 1e-13)
    assert np.array_equal(model.intercept_, learned[1])


def test_labels_of_one_class_are_one_under_a_finite_bias():
    model = seq_med(forgetting=0.5, bias_variance=0.7)
    stream = [make_batch(12, 9, seed=5850), make_batch(8, 5, seed=5851, classes=[0])]
    learn(model, stream)
    known = naive.learn_stream(
        labeled_batches(stream, 10.0), [rbf] * 2, forgetting=0.5, bias_variance=0.7
    )
    assert_close(scores_of(model)[:, 0], known.scores(new_points()))
    unforgotten = learn(seq_med(bias_variance=0.7), stream)
    assert np.abs(scores_of(model) - scores_of(unforgotten)).max() > 0.01


@pytest.mark.parametrize("carrier", ["exact", "landmarks"])
def test_smoothness_is_forgotten_without_labels_too(carrier):
    stream = [make_batch(20, 10, seed=5860), *(make_batch(12, 0, seed=5861 + t) for t in range(3))]
    kernels = kernels_of(carrier, stream, [0.6] * 4)
    model = make(carrier, forgetting=0.6)
    for kernel, _ in zip(kernels, learn_with(model, stream), strict=True):
        found = model.posterior_.covariance(new_points(), new_points())
        np.testing.assert_allclose(found, kernel(new_points(), new_points()), rtol=0, atol=1e-8)
        assert model.posterior_.window.bounds.tolist() == [10.0] * 10


def test_forgetting_nothing_is_not_forgetting():
    stream = make_stream(seed=56)
    for carrier in CARRIERS:
        one, other = make(carrier), make(carrier, forgetting=1)
        scores = [scores_of(learn(model, stream)) for model in (one, other)]
        assert np.array_equal(*scores)


# -- budget ----------------------------------------------------------------------------------------


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
    pytest.param({"bias": "exact", "bias_variance": 0.7}, 2, np.asarray, id="finite-bias"),
    pytest.param(
        {"bias": "exact", "bias_variance": 0.7, "averaging": True},
        3,
        np.asarray,
        id="finite-bias-3",
    ),
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
    # cost is the root of a difference of numbers of some hundreds that is rounding
    assert (bounded.posterior_.projection_error < 1e-3).all()


def begun(kernel, n_landmarks, points, bias_variance=np.inf):
    """Return the posterior of no batch, with landmarks."""
    carrier = covariance.initial("landmarks", kernel, n_landmarks=n_landmarks, seed=0)
    recipe = GraphRecipe(n_neighbors=NEIGHBOURS)
    return update.initial(carrier, recipe, points, update.BiasPrior(0.0, bias_variance))


def as_batch(rows):
    labeled = np.flatnonzero(rows.labels != UNLABELED)
    signs = np.where(rows.labels[labeled] == 1, 1.0, -1.0)[:, None]
    weights = rows.weights[labeled]
    return Batch(rows.points, labeled, signs, weights, np.ones(weights.size))


@pytest.mark.parametrize("averaging", [False, True])
@pytest.mark.parametrize("forgetting", [1.0, 0.7])
@pytest.mark.parametrize("bias_variance", [np.inf, 0.7])
@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_all_points_as_landmarks_lose_nothing_to_projection(
    smoothing, bias_variance, forgetting, averaging
):
    """An RBF kernel has a dimension per point: only with all points as landmarks is it lossless."""
    stream = make_stream(seed=61)
    settings = Settings(
        bound=10.0, smoothing=smoothing, tol=TOL, averaging=averaging, forgetting=forgetting
    )
    unbounded = bounded = begun(RBF(GAMMA), 85, stream[0].points, bias_variance)
    for rows in stream:
        unbounded, _ = update.step(unbounded, as_batch(rows), settings)
        bounded, info = update.step(bounded, as_batch(rows), replace(settings, capacity=12))
        assert_close(bounded.mean(new_points()), unbounded.mean(new_points()))
        assert bounded.frozen.size + bounded.window.size <= 12
        assert (info.projection_cost < 1e-5).all()  # the root of rounding
    assert bounded.recursion.basis.size == 85
    # 39 labels, at most 12 of them kept: the others are remembered by the landmarks alone
    assert (np.abs(bounded.landmarks.coefficients) > 0.1).sum() > 10
    assert unbounded.frozen.size + unbounded.window.size > 25


@pytest.fixture
def projections(monkeypatch):
    """What these were given and returned, call by call."""
    recorded = {"with_recursion": [], "within_budget": []}

    def record(name):
        original = getattr(mean, name)

        def recording(posterior, *given):
            result = original(posterior, *given)
            recorded[name].append((posterior, result))
            return result

        monkeypatch.setattr(mean, name, recording)

    for name in recorded:
        record(name)
    return recorded


def ready(posterior, averaging):
    """Return the posterior with its mean, newest or averaged, as expansions."""
    newest = posterior.landmark_coefficients()
    return mean.with_mean_parts(posterior, averaging, False, newest)


def lost(points, values, anchors):
    """Return by hand c'(K_OO - K_OZ K_ZZ^{-1} K_ZO)c of every column of coefficients."""
    cross = rbf(points, anchors)
    rest = rbf(points, points) - cross @ np.linalg.inv(rbf(anchors, anchors)) @ cross.T
    return np.einsum("ih,ij,jh->h", values, rest, values)


def without(points, others):
    """Return the positions of the rows that are not among others."""
    others = others.tolist()
    return [i for i, point in enumerate(points.tolist()) if point not in others]


def both_means(terms):
    return np.hstack([terms.coefficients, terms.averages])


PROJECTED = {
    "unsmoothed": (SeqLapMED, {"beta": 0.0}),
    "landmarks": (SeqLapMED, {"beta": 0.5}),
    "forgetting": (SeqLapMED, {"beta": 0.5, "forgetting": 0.8}),
    "lag": (SeqLapMED, {"beta": 0.5, "lag": 3}),
    "lag-forgetting": (SeqLapMED, {"beta": 0.5, "lag": 3, "forgetting": 0.8}),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", PROJECTED)
def test_the_cost_of_a_projection_is_the_norm_of_what_was_lost(name, n_classes, projections):
    """In the space of the base kernel, by hand, for both means: by anchors that were dropped, and
    by points beyond the budget.
    """
    estimator, options = PROJECTED[name]
    model = papers(estimator, gamma=GAMMA, budget=24, random_state=0, tol=TOL, **options)
    spent = 0
    for t in range(8):
        learn(model, [make_batch(18, 9, n_classes, seed=6200 + t)])
        past, followed = projections["with_recursion"][-2]
        before, after = projections["within_budget"][-1]
        costs = after.projection_errors - before.projection_errors
        drops = followed.projection_errors - past.projection_errors
        # sums of errors of size 1
        np.testing.assert_allclose(
            model.update_info_.projection_cost, (drops + costs).max(axis=0), rtol=0, atol=1e-12
        )
        carrier = after.recursion
        anchors, old = carrier.landmarks, past.landmarks
        left = without(old.points, anchors)
        # roots of differences of numbers near 1: right to 1e-15 before the root
        np.testing.assert_allclose(
            drops.ravel() ** 2,
            lost(old.points[left], both_means(old)[left], anchors),
            rtol=0,
            atol=1e-9,
        )
        assert not costs[1].any()  # the averaged mean is not in use
        cost = costs[0]
        # the labeled points before, which are those of the window and of the frozen ones
        old = np.vstack([before.frozen.points, before.window.points])
        values = np.vstack([before.frozen.coefficients, before.window.coefficients])
        gone = without(old, np.vstack([after.frozen.points, after.window.points]))
        if t == 0:
            assert not gone
        np.testing.assert_allclose(cost**2, lost(old[gone], values[gone], anchors), atol=1e-9)
        spent += bool((cost > 0.01).any())
        # and it bounds what any score changes by, k(x, x) being 1
        points = np.vstack([new_points(200), old])
        scores = [ready(each, averaging=False).mean(points) for each in (before, after)]
        changes = np.abs(scores[1] - scores[0]).max(axis=0)
        assert (changes <= cost + 1e-9).all()
        if (cost > 0.01).any():
            assert (changes[cost > 0.01] > 0).all()
    assert spent >= 4


def test_the_cost_bounds_what_averaged_scores_change_by(projections):
    """A point may have lost its multiplier in a later update, and still carry the average."""
    model = seq_lap(beta=0.0, budget=24, lag=2, averaging=True)
    for t in range(8):
        learn(model, [make_batch(18, 4, seed=12100 + t)])
        before, after = projections["within_budget"][-1]
        cost = after.projection_errors[1] - before.projection_errors[1]
        assert (cost <= model.update_info_.projection_cost + 1e-12).all()
        points = np.vstack([new_points(200), before.frozen.points])
        scores = [ready(each, averaging=True).mean(points) for each in (before, after)]
        assert (np.abs(scores[1] - scores[0]).max(axis=0) <= cost + 1e-9).all()


@pytest.mark.parametrize("forgetting", [1.0, 0.5])
def test_the_error_so_far_adds_up_all_costs(forgetting):
    """Those of landmarks that are replaced are among them."""
    model = seq_lap(beta=0.0, budget=24, forgetting=forgetting)
    error = np.zeros(1)
    for t in range(10):
        learn(model, [make_batch(18, 9, seed=6400 + t)])
        expected = forgetting * error + model.update_info_.projection_cost
        error = model.posterior_.projection_error
        assert_close(error, expected, 1e-12)
        assert not model.posterior_.projection_errors[1].any()  # nothing is averaged
    assert error[0] > 0.05


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("forgetting", [1.0, 0.5])
def test_the_error_of_the_averaged_mean_is_bounded_under_forgetting(forgetting, seed, projections):
    """An average of past means does not fade as the newest one does; nor does its error.

    The means without any projection, from the multipliers of the bounded model: each batch is
    optimised once, and fades from then on.
    """
    model = seq_lap(beta=0.0, averaging=True, forgetting=forgetting, budget=8)
    points = new_points(200)
    newest = running = np.zeros(len(points))
    last, binding = np.zeros((2, 1)), False
    for t in range(12):
        rows = make_batch(9, 4 if t < 6 else 2, seed=6420 + 100 * seed + t)
        learn(model, [rows])
        known = rows.labels != UNLABELED
        signs = np.where(rows.labels[known] == 1, 1.0, -1.0)
        multipliers = model.update_info_.solutions[0].multipliers
        newest = forgetting * newest + rbf(points, rows.points[known]) @ (signs * multipliers)
        step = max(1.0 / (t + 1), 1.0 - forgetting)
        running = running + step * (newest - running)
        posterior = model.posterior_
        found = model.decision_function(points) - model.intercept_[0]
        errors = posterior.projection_errors
        assert errors.shape == (2, 1)
        assert np.array_equal(posterior.projection_error, errors.max(axis=0))
        assert np.abs(found - running).max() <= errors[1, 0] + 1e-9
        plain = ready(posterior, averaging=False).mean(points)[:, 0] - posterior.biases[0]
        assert np.abs(plain - newest).max() <= errors[0, 0] + 1e-9
        # what was there before is averaged with the newest, and not scaled by forgetting as well
        past, followed = projections["with_recursion"][-2]
        before, after = projections["within_budget"][-1]
        drops = followed.projection_errors - past.projection_errors
        costs = after.projection_errors - before.projection_errors
        started, average = forgetting * last[0] + drops[0], last[1] + drops[1]
        assert_close(errors[0], started + costs[0], 1e-12)
        assert_close(errors[1], average + step * (started - average) + costs[1], 1e-12)
        binding = binding or errors[1, 0] > errors[0, 0] + 1e-3
        last = errors
    assert errors.min() > 0.01
    if forgetting < 1:
        assert binding


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
        prices = values[:, 0] ** 2 * after.recursion.unexplained(candidates)
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


def points_kept(posterior):
    """Return the distinct points of a state that outlive the batch they came with."""
    carrier = posterior.recursion
    parts = [posterior.window.points]
    if not posterior.covariance.kernel.compact:  # else what is frozen is a vector of weights
        parts.append(posterior.frozen.points)
    if carrier.landmarks is not None:
        parts.append(carrier.landmarks)
    return len({tuple(point) for part in parts for point in part.tolist()})


@pytest.mark.parametrize(("n_classes", "labeled"), [(2, 9), (3, 4)])
@pytest.mark.parametrize("name", BOUNDED)
def test_a_budget_bounds_points_and_bytes(name, n_classes, labeled):
    estimator, options = BOUNDED[name]
    model = papers(estimator, **{"gamma": GAMMA, "budget": 24, "random_state": 0, **options})
    sizes = []
    for t in range(16):
        learn(model, [make_batch(18, labeled, n_classes, seed=6600 + t)])
        posterior = model.posterior_
        assert points_kept(posterior) <= 24
        sizes.append(posterior.nbytes)
    assert sizes[8:] == [sizes[8]] * 8


def test_a_linear_kernel_stays_within_the_budget_too():
    model = learn(seq_med(kernel="linear", budget=10), [make_batch(40, 25, seed=6640)])
    assert points_kept(model.posterior_) <= 10


def test_a_batch_with_more_labels_than_room_stays_within_the_budget():
    model = learn(seq_lap(n_landmarks=5, budget=10), [make_batch(40, 25, seed=6650)])
    assert points_kept(model.posterior_) <= 10


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_any_batch_stays_within_the_budget(estimator):
    model = estimator(budget=10, random_state=0)
    for t, labels in enumerate([25, 3, 0, 40, 1]):
        learn(model, [make_batch(40, labels, seed=6660 + t)])
        assert points_kept(model.posterior_) <= 10


def test_a_batch_with_four_times_as_many_labels_as_room_is_learned_whole():
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
        assert not bounded.posterior_.projection_error.any()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["exact", "landmarks", "SeqMED"])
def test_which_points_are_one_array_makes_no_difference(name, late):
    """A tool that keeps models may keep equal arrays apart: nothing may hang on their identity."""
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
            anchors = replace(posterior.landmarks, points=posterior.landmarks.points.copy())
            model._stream = model._stream._replace(posterior=replace(posterior, landmarks=anchors))
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


# -- what cannot be --------------------------------------------------------------------------------

TWO = [make_batch(20, 10, seed=7000 + t) for t in range(2)]

REFUSED = {
    "spectral averaging": ({"recursion": "spectral", "averaging": True}, "averaging=True"),
    "spectral forgetting": ({"recursion": "spectral", "forgetting": 0.9}, "forgetting=0.9"),
    "spectral budget": ({"recursion": "spectral", "budget": 20}, "budget=20"),
    "exact budget": ({"recursion": "exact", "budget": 20}, "budget=20"),
}


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_recursion_cannot_do_is_refused_with_the_reason(name, method):
    options, got = REFUSED[name]
    model = seq_lap(**options)
    before = vars(model).copy()
    with pytest.raises(ValueError, match="expected") as refusal:
        getattr(model, method)(TWO[0].points, TWO[0].labels)
    text = str(refusal.value)
    assert f"got {got}" in text
    assert "Use recursion='landmarks'" in text
    assert vars(model) == before
    # the remedy that is named works
    learn(seq_lap(**{**options, "recursion": "landmarks"}), TWO)


WRONG = {
    "lag": [0, -1, 1.5, "all"],
    "averaging": [2, "yes", None],
    "forgetting": [0.0, -0.5, 1.1, None, "slow"],
    "budget": [1, 0, -3, 2.5, "small"],
    "laplacian": ["random-walk", "auto", "rows", 1],
}


@pytest.mark.parametrize(
    ("estimator", "name", "value"),
    [
        (estimator, name, value)
        for name, values in WRONG.items()
        for value in values
        for estimator in (SeqMED, SeqLapMED)
        if name in estimator().get_params()
    ],
)
def test_values_out_of_range_are_refused(estimator, name, value):
    model = learn(estimator(), TWO[:1])
    before = vars(model).copy()
    model.set_params(**{name: value})
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=f"'{name}' parameter") as refusal:
            method(TWO[0].points, marked(TWO[0].labels, model))
        assert repr(value) in str(refusal.value)
        assert {**vars(model), name: before[name]} == before


FIXED = {"averaging": True, "budget": 50}


@pytest.mark.parametrize(
    ("estimator", "name"),
    [(kind, name) for kind in (SeqMED, SeqLapMED) for name in FIXED],
)
def test_averaging_and_budget_cannot_change_in_mid_stream(estimator, name):
    changed, untouched = (learn(estimator(), TWO[:1]) for _ in range(2))
    before = getattr(changed, name)
    changed.set_params(**{name: FIXED[name]})
    with pytest.raises(ValueError, match=f"{name} was changed from .* in mid-stream") as refusal:
        learn(changed, TWO[1:])
    assert f"set {name}={before!r} again" in str(refusal.value)
    assert changed.n_batches_ == 1
    learn(changed.set_params(**{name: before}), TWO[1:])
    learn(untouched, TWO[1:])
    assert np.array_equal(scores_of(changed), scores_of(untouched))


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize(("name", "value"), [("lag", 3), ("lag", None), ("forgetting", 0.5)])
def test_lag_and_forgetting_may_change_in_mid_stream(estimator, name, value):
    changed, untouched = (learn(estimator(lag=1), TWO[:1]) for _ in range(2))
    learn(changed.set_params(**{name: value}), TWO[1:])
    learn(untouched, TWO[1:])
    assert np.abs(scores_of(changed) - scores_of(untouched)).max() > 1e-3

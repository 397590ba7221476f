"""Averaging: predictions with the running mean of the posterior means."""

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED, SeqMED
from tests.support.gaussian_streams import (
    TOL,
    UNLABELED,
    Rows,
    assert_close,
    awkward_stream,
    learn,
    make_batch,
    make_stream,
    new_points,
    seq_med,
)
from tests.support.streaming_options import CARRIERS, make, scores_of


def averaged(newest, solved, forgetting):
    """Return the running mean of scores (n, machines) over time, every machine with its own count.

    ``solved`` is, for every step and machine, whether the step solved its dual. Before the first
    solved dual, the mean is the newest one.
    """
    means, counts = [], np.zeros(newest[0].shape[1], dtype=int)
    mean = np.zeros_like(newest[0])
    for t, scores in enumerate(newest):
        mean = mean.copy()
        for machine in range(scores.shape[1]):
            if solved[t][machine]:
                counts[machine] += 1
                step = max(1.0 / counts[machine], 1.0 - forgetting[t])
                mean[:, machine] += step * (scores[:, machine] - mean[:, machine])
            elif counts[machine] == 0:
                mean[:, machine] = scores[:, machine]
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
    """One class, two, no labels, all, one class, all: machines start at different times."""
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
    # the multipliers are the same: averaging changes predictions only
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
    """The mean of a machine is the same function whether its class was declared or came later."""
    stream = [
        Rows(rows.points, np.where(rows.labels == UNLABELED, UNLABELED, rows.labels + 2), None)
        for t, classes in enumerate([*order, [0, 1, 2], [0, 1, 2]])
        for rows in [make_batch(16, 10, 3, seed=4200 + t, classes=classes)]
    ]
    declared = learn(make(carrier, averaging=True), stream, classes=[2, 3, 4])
    discovered = learn(make(carrier, averaging=True), stream)
    assert_close(scores_of(discovered), scores_of(declared))
    assert np.array_equal(discovered.posterior_.n_solved, declared.posterior_.n_solved)


def test_averaging_without_smoothing_counts_only_batches_with_a_dual():
    stream = awkward_stream(seed=43)
    model = learn(seq_med(averaging=True), stream)
    # without labels, or with labels of one class, there is no dual to solve
    assert model.posterior_.n_solved.tolist() == [3]

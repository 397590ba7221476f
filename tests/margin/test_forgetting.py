"""Forgetting: earlier batches count less."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.reference import naive
from tests.support.gaussian_streams import (
    UNLABELED,
    assert_close,
    awkward_stream,
    labeled_batches,
    learn,
    make_batch,
    make_stream,
    new_points,
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
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_stream_that_forgets_is_that_of_the_reference(carrier, lag):
    stream = awkward_stream(seed=52)
    expected = naive.learn_steps(
        labeled_batches(stream, BOUNDS),
        kernels_of(carrier, stream, SHARES),
        lag=lag,
        forgetting=SHARES,
    )
    model = make(carrier, lag=lag)
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


def test_frozen_coefficients_shrink_and_window_points_weigh_less():
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
        frozen = {point: value for point, value in history[last].items() if point in points}
        assert len(frozen) > 3
        for point, value in frozen.items():
            assert history[-1][point] == pytest.approx(0.5 ** (4 - last) * value, rel=1e-14)
    window = model.posterior_.window
    assert window.bounds.tolist() == [4.0] * 10 + [8.0] * 10
    assert window.shapes.tolist() == [0.5] * 10 + [1.0] * 10


def test_frozen_points_of_negligible_coefficients_are_dropped():
    stream = [make_batch(12, 8, seed=5500 + t) for t in range(14)]
    model = seq_med(forgetting=0.05)
    sizes = []
    for _ in learn_with(model, stream):
        sizes.append(model.posterior_.frozen.size + model.posterior_.window.size)
    # 0.05^7 < 1e-9: of 14 batches of 8 labels, 7 frozen ones are left and the newest; points are
    # compared with the largest of all, so a batch of larger coefficients than the next lasts longer
    assert sizes[5] > 30
    assert max(sizes) <= 9 * 8
    known = naive.learn_stream(labeled_batches(stream, 10.0), [rbf] * 14, forgetting=0.05)
    # what was dropped is 1e-9 of some tens of coefficients of size 10
    assert_close(model.decision_function(new_points()), known.scores(new_points()), 1e-7)


def test_points_of_the_window_with_negligible_bounds_are_dropped():
    """Multipliers of the seventh batch before the last are at most 10 * 0.05^7, and dropped.

    Only points of the window remain, so a stream that began seven batches ago gives the same model.
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
@pytest.mark.parametrize("options", [{}, {"averaging": True}, {"budget": 24}], ids=str)
def test_batches_without_labels_do_not_discount_labels(options, lag):
    model = seq_med(forgetting=0.95, lag=lag, random_state=0, tol=1e-6, **options)
    learn(model, [make_batch(12, 6, seed=5600 + t) for t in range(20)])
    learned = [scores_of(model), model.intercept_, model.dual_coef_]
    for t in range(100):
        learn(model, [make_batch(6, 0, seed=5700 + t)])
    found = [scores_of(model), model.intercept_, model.dual_coef_]
    assert all(np.array_equal(*pair) for pair in zip(found, learned, strict=True))
    if "budget" in options:
        window = model.posterior_.window
        assert window.bounds.max() == 10.0


@pytest.mark.parametrize("options", [{}, {"averaging": True}], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_of_one_class_do_not_discount_under_a_diffuse_bias(n_classes, options):
    """At lag 1 under a diffuse bias there is no dual, and nothing is learned."""
    model = seq_med(forgetting=0.95, **options)
    learn(model, [make_batch(12, 9, n_classes, seed=5800 + t) for t in range(20)])
    learned = scores_of(model), model.intercept_
    for t in range(30):
        learn(model, [make_batch(8, 5, n_classes, seed=5900 + t, classes=[t % n_classes])])
        assert not model.update_info_.solved
    # points that have left the window are added up in another order
    assert_close(scores_of(model), learned[0], 1e-13)
    assert np.array_equal(model.intercept_, learned[1])


@pytest.mark.parametrize("carrier", ["exact", "landmarks"])
def test_smoothness_is_forgotten_without_labels_too(carrier):
    stream = [make_batch(20, 10, seed=5860), *(make_batch(12, 0, seed=5861 + t) for t in range(3))]
    kernels = kernels_of(carrier, stream, [0.6] * 4)
    model = make(carrier, forgetting=0.6)
    for kernel, _ in zip(kernels, learn_with(model, stream), strict=True):
        found = model.posterior_.covariance(new_points(), new_points())
        np.testing.assert_allclose(found, kernel(new_points(), new_points()), rtol=0, atol=1e-8)
        assert model.posterior_.window.bounds.tolist() == [10.0] * 10


def test_a_forgetting_factor_of_one_changes_nothing():
    stream = make_stream(seed=56)
    for carrier in CARRIERS:
        one, other = make(carrier), make(carrier, forgetting=1)
        scores = [scores_of(learn(model, stream)) for model in (one, other)]
        assert np.array_equal(*scores)

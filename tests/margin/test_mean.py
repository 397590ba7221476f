"""Cached scores of the frozen expansion at landmarks and in the window, against new ones."""

from dataclasses import replace

import numpy as np
import pytest

from seqmed import SeqLapMED, SeqMED
from seqmed.kernels import FromFunction, evaluate
from seqmed.margin.posterior import freeze
from tests.support.configurations import POSTERIORS, make_batch, over

# Of values whose sums have a few hundred terms of up to 100.
ROUNDING = 1e-10

unbounded_cases = over(
    {name: case for name, case in POSTERIORS.items() if not name.startswith("budget")}
)


def frozen_scores(posterior, terms):
    """Return the scores of the frozen support vectors at some points, computed anew."""
    return evaluate(posterior.covariance.kernel, (posterior.frozen.expansion,), terms.points)


def assert_cached_scores_are_right(model):
    """Expect every cached score to be the one that computing it anew gives."""
    posterior = model.posterior_
    for terms in (posterior.window, posterior.landmarks):
        size = max(1.0, np.abs(posterior.frozen.coefficients).max(initial=0.0))
        np.testing.assert_allclose(
            terms.frozen_scores, frozen_scores(posterior, terms), rtol=0, atol=ROUNDING * size
        )


@unbounded_cases
def test_cached_scores_are_those_of_the_frozen_points(case):
    model = case.model(lag=2)
    for seed in range(6):
        X, y, weights = make_batch(seed, case.format)
        y = np.where(y == 2, np.nan, y) if seed < 2 else y  # a class comes later
        model.partial_fit(X, y, sample_weight=weights)
        assert_cached_scores_are_right(model)
    assert model.budget or model.posterior_.frozen.size


@pytest.mark.parametrize("forgetting", [0.1, 0.5])
def test_points_of_negligible_coefficients_leave_the_cached_scores(forgetting):
    case = POSTERIORS["landmarks-rbf-dense"]
    model = case.model(lag=1, forgetting=forgetting)
    sizes = []
    for seed in range(int(3 + np.log(1e-9) / np.log(forgetting))):
        X, y, _ = make_batch(seed)
        model.partial_fit(X, y)
        assert_cached_scores_are_right(model)
        sizes.append(model.posterior_.frozen.size)
    assert (np.diff(sizes) < 10).any()  # some are dropped, while 16 labels are added


def test_cached_scores_after_late_and_retracted_labels():
    case = POSTERIORS["landmarks-rbf-dense"]
    model = case.model(lag=2)
    for seed in range(4):
        X, y, _ = make_batch(seed)
        late = np.where(np.arange(20) % 2 == 0, np.nan, y)
        model.partial_fit(X, late)
        model.partial_fit(X[::2], y[::2], new_points=False)
        assert_cached_scores_are_right(model)
        model.retract(X[1:2])
        assert_cached_scores_are_right(model)


def test_cached_scores_after_batches_without_labels():
    case = POSTERIORS["SeqLapMED-defaults-dense"]
    model = case.model(lag=1)
    for seed in range(5):
        X, y, _ = make_batch(seed)
        model.partial_fit(X, np.full_like(y, np.nan) if seed in (2, 3) else y)
        assert_cached_scores_are_right(model)


def test_projected_points_leave_the_cached_scores():
    model = SeqLapMED(n_landmarks=10, budget=20, lag=2, random_state=0)
    for seed in range(6):
        X, y, _ = make_batch(seed)
        model.partial_fit(X, y)
        assert_cached_scores_are_right(model)
    assert model.posterior_.landmarks.coefficients.any()


@pytest.mark.parametrize(
    "begin",
    [
        lambda kernel: SeqMED(kernel, lag=2),
        lambda kernel: SeqLapMED(kernel, n_landmarks=12, lag=2, random_state=0),
    ],
    ids=["SeqMED", "landmarks"],
)
def test_frozen_points_are_only_evaluated_at_new_points(begin):
    """Kernel values among old points are not computed again."""
    computed = []

    def linear(left, right):
        computed.append((left.shape[0], right.shape[0]))
        return left @ right.T + 1.0

    model = begin(FromFunction(linear))
    for seed in range(12):
        X, y, _ = make_batch(seed)
        frozen = model.posterior_.frozen.expansion.points.shape[0] if seed else 0
        computed.clear()
        model.partial_fit(X, y)
    assert frozen > 60
    # rows with as many others as are frozen: the batch's 16 labels, when they are scored and when
    # they are learned, and new landmarks
    rows = sum(min(shape) for shape in computed if max(shape) >= frozen)
    assert 16 <= rows <= 16 + 16 + 12


def test_freezing_points_without_coefficients_changes_nothing():
    model = SeqMED(lag=1).fit(*make_batch(0)[:2])
    posterior = model.posterior_
    empty = posterior.window.take(np.zeros(0, dtype=np.intp))
    assert freeze(posterior, empty) is posterior
    without = replace(
        posterior.window,
        coefficients=np.zeros_like(posterior.window.coefficients),
    )
    assert freeze(posterior, without).frozen is posterior.frozen

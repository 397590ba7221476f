"""Cached scores of the frozen expansion at landmarks and in the window, against new ones."""

from dataclasses import replace

import numpy as np
import pytest

from seqmed import SeqLapMED, SeqMED, mean, window
from seqmed.kernels import FromFunction, evaluate
from tests.support.configurations import POSTERIORS, make_batch, over

# Of values whose sums have a few hundred terms of up to 100.
ROUNDING = 1e-10

unbounded_cases = over(
    {name: case for name, case in POSTERIORS.items() if not name.startswith("budget")}
)


def said(posterior, terms):
    return evaluate(posterior.covariance.kernel, (posterior.frozen.expansion,), terms.points)


def assert_carried(model):
    """Expect every cached score to be the one that computing it anew gives."""
    posterior = model.posterior_
    for terms in (posterior.window, posterior.landmarks):
        size = max(1.0, np.abs(posterior.frozen.coefficients).max(initial=0.0))
        np.testing.assert_allclose(
            terms.frozen_scores, said(posterior, terms), rtol=0, atol=ROUNDING * size
        )


@unbounded_cases
def test_values_are_those_of_the_frozen_points(case):
    model = case.model(lag=2)
    for seed in range(6):
        X, y, weights = make_batch(seed, case.format)
        y = np.where(y == 2, np.nan, y) if seed < 2 else y  # a class comes later
        model.partial_fit(X, y, sample_weight=weights)
        assert_carried(model)
    assert model.budget or model.posterior_.frozen.size


@pytest.mark.parametrize("forgetting", [0.1, 0.5])
def test_points_that_have_faded_are_not_heard_any_more(forgetting):
    case = POSTERIORS["landmarks-rbf-dense"]
    model = case.model(lag=1, forgetting=forgetting)
    sizes = []
    for seed in range(int(3 + np.log(1e-9) / np.log(forgetting))):
        X, y, _ = make_batch(seed)
        model.partial_fit(X, y)
        assert_carried(model)
        sizes.append(model.posterior_.frozen.size)
    assert (np.diff(sizes) < 10).any()  # some are gone, with what 16 labels bring


def test_late_labels_and_labels_taken_back():
    case = POSTERIORS["landmarks-rbf-dense"]
    model = case.model(lag=2)
    for seed in range(4):
        X, y, _ = make_batch(seed)
        late = np.where(np.arange(20) % 2 == 0, np.nan, y)
        model.partial_fit(X, late)
        model.partial_fit(X[::2], y[::2], new_points=False)
        assert_carried(model)
        model.retract(X[1:2])
        assert_carried(model)


def test_batches_without_labels_leave_new_anchors_for_later():
    case = POSTERIORS["SeqLapMED-defaults-dense"]
    model = case.model(lag=1)
    for seed in range(5):
        X, y, _ = make_batch(seed)
        model.partial_fit(X, np.full_like(y, np.nan) if seed in (2, 3) else y)
        assert_carried(model)


def test_what_is_projected_is_not_said_any_more():
    model = SeqLapMED(n_landmarks=10, budget=20, lag=2, random_state=0)
    for seed in range(6):
        X, y, _ = make_batch(seed)
        model.partial_fit(X, y)
        assert_carried(model)
    assert model.posterior_.landmarks.coefficients.any()


@pytest.mark.parametrize(
    "begin",
    [
        lambda kernel: SeqMED(kernel, lag=2),
        lambda kernel: SeqLapMED(kernel, n_landmarks=12, lag=2, random_state=0),
    ],
    ids=["SeqMED", "landmarks"],
)
def test_what_is_frozen_is_only_looked_at_from_new_points(begin):
    """The kernel is not asked again for values between old points and old ones."""
    asked = []

    def linear(left, right):
        asked.append((left.shape[0], right.shape[0]))
        return left @ right.T + 1.0

    model = begin(FromFunction(linear))
    for seed in range(12):
        X, y, _ = make_batch(seed)
        frozen = model.posterior_.frozen.expansion.points.shape[0] if seed else 0
        asked.clear()
        model.partial_fit(X, y)
    assert frozen > 60
    # rows with as many others as are frozen: the batch's 16 labels, when they are scored and when
    # they are learned, and new landmarks
    rows = sum(min(shape) for shape in asked if max(shape) >= frozen)
    assert 16 <= rows <= 16 + 16 + 12


def test_nothing_changes_where_nobody_carries():
    model = SeqMED(lag=1).fit(*make_batch(0)[:2])
    posterior = model.posterior_
    empty = window.as_terms(posterior.window.take(np.zeros(0, dtype=np.intp)))
    assert mean.freeze(posterior, empty) is posterior
    unloaded = replace(
        window.as_terms(posterior.window),
        coefficients=np.zeros_like(posterior.window.coefficients),
    )
    assert mean.freeze(posterior, unloaded).frozen is posterior.frozen

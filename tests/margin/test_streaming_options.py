"""Lag, averaging, forgetting and budget: values that are refused, and the reason."""

import numpy as np
import pytest

from seqmed import SeqLapMED, SeqMED
from tests.support.gaussian_streams import (
    learn,
    make_batch,
    marked,
    seq_lap,
)
from tests.support.streaming_options import scores_of

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
def test_averaging_and_budget_cannot_change_between_batches(estimator, name):
    changed, untouched = (learn(estimator(), TWO[:1]) for _ in range(2))
    before = getattr(changed, name)
    changed.set_params(**{name: FIXED[name]})
    with pytest.raises(
        ValueError, match=f"{name} was changed from .* after the first batch"
    ) as refusal:
        learn(changed, TWO[1:])
    assert f"set {name}={before!r} again" in str(refusal.value)
    assert changed.n_batches_ == 1
    learn(changed.set_params(**{name: before}), TWO[1:])
    learn(untouched, TWO[1:])
    assert np.array_equal(scores_of(changed), scores_of(untouched))


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize(("name", "value"), [("lag", 3), ("lag", None), ("forgetting", 0.5)])
def test_lag_and_forgetting_may_change_between_batches(estimator, name, value):
    changed, untouched = (learn(estimator(lag=1), TWO[:1]) for _ in range(2))
    learn(changed.set_params(**{name: value}), TWO[1:])
    learn(untouched, TWO[1:])
    assert np.abs(scores_of(changed) - scores_of(untouched)).max() > 1e-3

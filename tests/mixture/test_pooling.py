"""The pool: temperatures, weights by evidence, and its probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from seqmed.mixture.pooling import (
    GRAPH,
    Recorded,
    choose_pool,
    independent_share,
    late_counts,
    log_probabilities,
    no_pool,
    pooled,
)
from tests.reference import naive_pool


def recorded(noise, n=60, n_classes=3, seed=0, weights=None, repeats=1):
    """A record of members whose log-odds are the truth plus noise of some size.

    Of ``repeats`` rows, one after the other, all are equal.
    """
    if repeats > 1:
        once = recorded(noise, n // repeats, n_classes, seed)
        return Recorded(*(np.repeat(each, repeats, axis=0) for each in once))
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    logs = np.stack(
        [np.eye(n_classes)[codes] + size * rng.normal(size=(n, n_classes)) for size in noise],
        axis=1,
    )
    found = np.exp(2.0 * logs)
    found /= found.sum(axis=2, keepdims=True)
    known = np.ones((n, n_classes), dtype=bool)
    return Recorded(found, known, codes, np.ones(n) if weights is None else weights)


NAMES = ["core", "graph", "logistic", "random_forest"]
CASES = {
    "alike": ((0.5, 0.5, 0.5), {}),
    "one is better": ((1.0, 1.0, 0.3, 1.0), {}),
    "two classes": ((0.5, 1.0, 0.4), {"n_classes": 2}),
    "few rows": ((0.5, 1.0, 0.4), {"n": 5}),
    "weights": ((0.5, 1.0, 0.4), {"weights": np.random.default_rng(1).choice([0.1, 2.0], 60)}),
    "small weights": ((0.5, 1.0, 0.4, 0.4), {"weights": np.full(60, 0.05)}),
    "certain": ((0.01, 0.02, 0.05), {}),
    "rows in groups": ((0.5, 1.0, 0.4), {"repeats": 6}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_pool_is_that_of_the_slow_reference(name):
    noise, options = CASES[name]
    record = recorded(noise, **options)
    n_classes = record.probabilities.shape[2]
    names = NAMES[: len(noise)]
    found = choose_pool(
        record, n_classes, late_counts(names, sparse=False), np.ones(len(noise), dtype=bool)
    )
    members = record.probabilities.transpose(1, 0, 2)
    weights, temperatures, last = naive_pool.pool(
        members, names, record.codes, record.weights, n_classes
    )
    np.testing.assert_allclose(found.weights, weights, atol=5e-3)
    np.testing.assert_allclose(np.log2(found.temperatures), np.log2(temperatures), atol=0.02)
    assert abs(np.log2(found.temperature / last)) < 0.03
    shown = pooled(record.probabilities, found)
    expected = sum(
        weight * naive_pool.sharpened(each, temperature)
        for weight, each, temperature in zip(
            found.weights, members, found.temperatures, strict=True
        )
    )
    np.testing.assert_allclose(shown, naive_pool.sharpened(expected, found.temperature), atol=1e-9)
    np.testing.assert_allclose(shown.sum(axis=1), 1.0)


def test_an_empty_record_favours_the_graph_and_a_long_one_the_better_member():
    empty = recorded((1.0, 1.0, 1.0), n=0)
    every = np.ones(3, dtype=bool)
    first = choose_pool(empty, 3, np.zeros(3), every)
    np.testing.assert_allclose(first.weights, [0.5 / 5.5, 4.5 / 5.5, 0.5 / 5.5])
    assert first.temperature == 1.0
    graphs = [
        choose_pool(recorded((0.3, 1.5, 1.5), n=n), 3, np.zeros(3), every).weights[GRAPH]
        for n in (2, 10, 100)
    ]
    assert first.weights[GRAPH] > graphs[0] > graphs[1] > graphs[2]
    assert graphs[2] < 0.1


def share_of(record):
    return independent_share(log_probabilities(record), record.codes)


def test_rows_that_repeat_count_as_fewer():
    noise = (0.5, 1.0, 0.4)
    shares = [share_of(recorded(noise, n=300, seed=seed)) for seed in range(20)]
    assert np.mean(shares) > 0.8  # 1 but for the noise of the estimate
    assert max(shares) <= 1.0
    shares = [share_of(recorded(noise, n=300, repeats=6, seed=seed)) for seed in range(20)]
    assert 1 / 6 - 0.05 < np.mean(shares) < 1 / 6 + 0.15
    once, repeated = recorded(noise, n=50), recorded(noise, n=300, repeats=6)
    every, late = np.ones(3, dtype=bool), np.zeros(3)
    weights = [choose_pool(each, 3, late, every).weights for each in (once, repeated)]
    np.testing.assert_allclose(weights[1], weights[0], atol=0.05)
    assert share_of(recorded(noise, n=9)) == 1.0
    equal = recorded((0.5,), n=40)
    assert share_of(equal) == 1.0  # members do not differ


def test_a_member_without_a_fit_has_no_weight():
    record = recorded((1.0, 1.0, 0.1))
    found = choose_pool(record, 3, np.zeros(3), np.array([True, True, False]))
    assert found.weights[2] == 0.0
    assert found.weights.sum() == pytest.approx(1.0)


def test_weights_do_not_depend_on_a_uniform_member_of_a_class_unknown_then():
    """Rows recorded before a class was known count with the classes known then."""
    record = recorded((0.5, 1.0), n_classes=3)
    known = record.known.copy()
    early = np.flatnonzero(record.codes != 2)[:10]
    known[early, 2] = False
    found = choose_pool(record._replace(known=known), 3, np.zeros(2), np.ones(2, dtype=bool))
    assert np.isfinite(found.weights).all()
    assert np.isfinite(found.temperatures).all()


def test_members_of_weight_zero_are_not_used():
    pool = no_pool(3)._replace(weights=np.array([0.0, 0.4, 0.6]))
    record = recorded((0.5, 1.0, 0.4))
    altered = record.probabilities.copy()
    altered[:, 0] = np.nan
    np.testing.assert_array_equal(pooled(altered, pool), pooled(record.probabilities, pool))

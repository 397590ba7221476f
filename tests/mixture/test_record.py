"""The weight of the graph: a posterior mean over a grid."""

import numpy as np
import pytest

from seqmed.mixture import record as mixture_record
from seqmed.mixture.mixture_state import PRIOR_EXPONENTS, ScoreRecord, empty_record
from seqmed.mixture.record import choose, mean_weight


def record_of(margin_right: int, graph_right: int, n: int) -> ScoreRecord:
    """Return n rows of two classes, of which each expert scores the first few well."""
    codes = np.arange(n) % 2
    truth = np.where(np.eye(2)[codes] > 0, 1.0, -1.0)

    def scores(right):
        return np.where(np.arange(n)[:, None] < right, truth, -truth)

    return ScoreRecord(
        margin=scores(margin_right),
        graph=scores(graph_right),
        refitted=np.zeros((n, 0, 2)),
        counts=np.full((n, 2), 5.0),
        margin_scales=np.ones((n, PRIOR_EXPONENTS.size)),
        graph_scales=np.ones(n),
        refitted_scales=np.zeros((n, 0)),
        codes=codes,
        weights=np.ones(n),
    )


def weight_of(record: ScoreRecord) -> float:
    return choose(record, by_counts=True, weight=None, class_prior=True).weight


def test_equal_costs_leave_the_prior():
    grid = mixture_record.WEIGHTS
    prior = np.exp(-mixture_record.WEIGHT_PRIOR * grid)
    expected = prior @ grid / prior.sum()
    assert mean_weight(np.full(grid.size, 7.0)) == pytest.approx(expected)
    assert weight_of(empty_record(0)) == pytest.approx(expected)


@pytest.mark.parametrize(("best", "expected"), [(0, 0.0), (-1, 1.0)])
def test_a_decisive_record_overrules_the_prior(best, expected):
    costs = np.full(mixture_record.WEIGHTS.size, 1e4)
    costs[best] = 0.0
    assert mean_weight(costs) == expected


def test_weight_follows_the_better_expert_and_the_length_of_the_record():
    first = weight_of(empty_record(0))
    for n in (4, 40, 200):
        assert weight_of(record_of(n // 2, n, n)) > first > weight_of(record_of(n, n // 2, n))
    assert weight_of(record_of(100, 200, 200)) > weight_of(record_of(2, 4, 4))


def test_a_small_weight_is_zero():
    costs = 100.0 * mixture_record.WEIGHTS
    assert mean_weight(costs) == 0.0


def test_temperature_is_that_of_the_chosen_weight():
    record = record_of(30, 36, 40)
    chosen = choose(record, by_counts=True, weight=None, class_prior=True)
    fixed = choose(record, by_counts=True, weight=chosen.weight, class_prior=True)
    assert fixed.weight == chosen.weight
    assert np.log2(chosen.temperature) == pytest.approx(np.log2(fixed.temperature), abs=0.1)


def test_scores_beyond_the_range_of_doubles_are_no_evidence():
    """Their cost is infinite, and the graph gets no weight."""
    from seqmed.mixture import evidence

    cost, _, _ = evidence.cost(np.full((1, 2), np.nan), np.ones(1), 0.0)
    assert cost == np.inf
    assert mean_weight(np.full(mixture_record.WEIGHTS.size, cost)) == 0.0

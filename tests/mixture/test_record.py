"""The record: scales of scores, evidence, weights, temperature and class priors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmed import SeqMED
from seqmed.mixture import record as mixture_record
from seqmed.mixture.mixture_state import (
    PRIOR_EXPONENTS,
    Choice,
    ScoreRecord,
    ScoreScales,
    class_factors,
    empty_record,
    mix,
)
from seqmed.mixture.record import choose, mean_weight
from tests.reference import naive_graph


def pair_scores(margin, graph):
    """The scores of two experts, and zeros of the linear expert."""
    return np.stack([margin, graph, np.zeros_like(graph)], axis=1)


def no_members(scores):
    """The probabilities of no members of a pool."""
    return np.zeros((scores.shape[0], 0, scores.shape[2]))


def pair_scales(counts):
    """ScoreScales of the experts."""
    return ScoreScales(np.asarray(counts, dtype=float), np.ones(3), 1.0, 1.0)


# The margin expert of `pair_scores` sums nothing; the graph has shares of 1.
NO_SIZES = np.array([0.0, 1.0, 0.0])
# Nats by which a cost at a temperature within 1e-3 octaves of the best may be above the lowest.
COST_PRECISION = 2e-3
# Octaves that the temperature may differ by: the cost is flat around its minimum.
OCTAVE_PRECISION = 0.02
# Costs that are off by their precision move the posterior mean of the weight by less than this.
WEIGHT_PRECISION = 2e-3


def random_pairs(
    rng, n_rows, n_classes, *, noise=(1.0, 1.0), new_class_at=None, uneven=False, weights=False
):
    """A record: the margin's and the graph's scores are the truth plus noise."""
    chances = np.arange(1, n_classes + 1.0) ** 2 if uneven else np.ones(n_classes)
    pairs = []
    for row in range(n_rows):
        known = n_classes - (new_class_at is not None and row < new_class_at)
        counts = np.zeros(n_classes)
        p = chances[:known] / chances[:known].sum()
        counts[:known] = 1.0 + rng.multinomial(3 * row, p)
        code = int(rng.choice(known, p=p))
        raw = []
        for size in noise:
            scores = np.eye(n_classes)[code] + size * rng.normal(size=n_classes)
            probes = np.eye(n_classes)[rng.integers(known, size=20)]
            raw.append((scores, probes + size * rng.normal(size=probes.shape)))
        pairs.append(
            naive_graph.Pair(
                margin=raw[0][0],
                graph=raw[1][0],
                counts=counts,
                code=code,
                weight=float(rng.choice([0.5, 1.0, 2.0])) if weights else 1.0,
                probes=(raw[0][1], raw[1][1]),
            )
        )
    return pairs


def record_of(pairs, n_classes):
    """The same record as the package keeps it, one row at a time."""
    places = np.arange(0)
    record = empty_record(0).with_classes(places, n_classes)
    for pair in pairs:
        scales = mixture_record.measured_score_scales(
            pair_scores(*pair.probes), pair.counts, True, NO_SIZES
        )
        scores = pair_scores(pair.margin[None, :], pair.graph[None, :])
        members, weights = no_members(scores), np.array([pair.weight])
        record = record.add(scores, members, scales, np.array([pair.code]), weights)
    return record


CASES = {
    "few rows": (6, 3, {}),
    "two classes": (30, 2, {}),
    "many classes": (40, 8, {}),
    "the graph is better": (60, 3, {"noise": (3.0, 0.3)}),
    "the margin is better": (60, 3, {"noise": (0.3, 3.0)}),
    "the margin is far better": (150, 3, {"noise": (0.3, 30.0)}),
    "both say nothing": (50, 4, {"noise": (30.0, 30.0)}),
    "both are certain": (40, 3, {"noise": (0.05, 0.05)}),
    "a new class in mid-stream": (40, 4, {"new_class_at": 20}),
    "rare classes": (80, 4, {"uneven": True, "noise": (1.0, 2.0)}),
    "weights": (40, 3, {"weights": True, "uneven": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_evidence_and_choice_equal_the_naive_ones(name):
    n_rows, n_classes, options = CASES[name]
    for seed in range(2):
        rng = np.random.default_rng((seed, n_rows, n_classes))
        pairs = random_pairs(rng, n_rows, n_classes, **options)
        record, table = record_of(pairs, n_classes), naive_graph.evidence_table(pairs)
        assert record.size == n_rows
        factors = class_factors(record.counts, by_counts=True)
        graph = record.graph / record.graph_scales[:, None]
        for place, delta in enumerate(naive_graph.EXPONENTS):
            margin = record.margin * factors[place] / record.margin_scales[:, place, None]
            scores = mixture_record.mixed(margin, graph, mixture_record.WEIGHTS)
            costs, _ = mixture_record.best_temperatures(scores, record)
            expected = [table[w, delta][0] for w in naive_graph.WEIGHTS]
            np.testing.assert_allclose(costs, expected, atol=COST_PRECISION)
        found = choose(record, by_counts=True, weight=None, class_prior=True)
        weight, temperature, delta = naive_graph.choose(table)
        assert found.weight == pytest.approx(weight, abs=WEIGHT_PRECISION)
        assert PRIOR_EXPONENTS[found.exponent] == delta
        assert abs(np.log2(found.temperature / temperature)) < OCTAVE_PRECISION


def test_the_cases_cover_all_kinds_of_choices():
    """Otherwise agreement would say little."""
    chosen = []
    for n_rows, n_classes, options in CASES.values():
        pairs = random_pairs(
            np.random.default_rng((0, n_rows, n_classes)), n_rows, n_classes, **options
        )
        chosen.append(choose(record_of(pairs, n_classes), True, None, True))
    assert {choice.weight for choice in chosen} >= {0.0}
    assert max(choice.weight for choice in chosen) > 0.5
    assert {choice.exponent > 0 for choice in chosen} == {True, False}


@settings(max_examples=60)
@given(
    st.integers(0, 10_000),
    st.sampled_from([1e-4, 1e-3, 1e-2, 0.1, 1.0, 1e2, 1e4]),
    st.sampled_from([0.3, 1, 3, 10]),
    st.sampled_from([1, 10, 60, 300]),
    st.integers(2, 4),
)
def test_the_temperature_is_the_global_minimum(seed, size, signal, rows, n_classes):
    """Scores in any unit: the cost is that of a fine grid.

    Small scores of many rows that predict well have two minima.
    """
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=rows)
    scores = size * signal * np.eye(n_classes)[codes]
    scores += size * rng.normal(size=scores.shape)
    scales = pair_scales(np.ones(n_classes))
    record = empty_record(0).with_classes(np.arange(0), n_classes)
    both = pair_scores(scores, scores)
    record = record.add(both, no_members(both), scales, codes, np.ones(rows))
    cost, octave = mixture_record.best_temperatures(scores[None], record)

    def naive_cost(octaves):
        logs = 2.0 ** octaves[:, None, None] * scores[None]
        top = logs.max(axis=2)
        sums = np.log(np.exp(logs - top[:, :, None]).sum(axis=2)) + top
        return (sums - logs[:, np.arange(rows), codes]).sum(axis=1) + octaves**2

    grid = np.linspace(-12, 12, 481)
    costs = naive_cost(grid)
    assert cost[0] <= costs.min() + COST_PRECISION
    np.testing.assert_allclose(cost[0], naive_cost(octave)[0], rtol=1e-9, atol=1e-9)


def test_a_short_record_keeps_the_weight_near_the_prior_and_a_long_one_does_not():
    """The graph is better: its weight grows with the record, from the mean of the prior."""
    prior = np.exp(-2.0 * np.arange(11) / 10)
    mean = float(prior @ np.arange(11) / 10 / prior.sum())
    assert pytest.approx(mean) == mixture_record.FIRST_WEIGHT
    weights = []
    for n_rows in (2, 15, 60, 200):
        pairs = random_pairs(np.random.default_rng(3), n_rows, 3, noise=(3.0, 0.3))
        weights.append(choose(record_of(pairs, 3), True, None, False).weight)
    assert mean < weights[0] < weights[1] < weights[2] < weights[3]
    assert weights[3] > 0.8


def test_an_empty_record_gives_the_first_choice():
    empty, first = empty_record(0), mixture_record.FIRST_WEIGHT
    assert choose(empty, True, None, True) == Choice(first, 1.0, 0, 0.0)
    assert choose(empty, True, 0.65, True) == Choice(0.65, 1.0, 0, 0.0)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_fixed_weight_is_kept_and_its_temperature_fitted(weight):
    pairs = random_pairs(np.random.default_rng(5), 40, 3)
    chosen = choose(record_of(pairs, 3), True, weight, False)
    assert chosen.weight == weight
    expected = naive_graph.evidence(pairs, weight)[1]
    assert abs(np.log2(chosen.temperature / expected)) < OCTAVE_PRECISION


def test_class_priors_are_used_only_if_allowed():
    n_rows, n_classes, options = CASES["rare classes"]
    pairs = random_pairs(np.random.default_rng(1), n_rows, n_classes, **options)
    record = record_of(pairs, n_classes)
    assert choose(record, True, None, True).exponent > 0
    assert choose(record, True, None, False).exponent == 0
    assert choose(record, False, None, True).exponent == 0


def test_rows_of_classes_without_a_label_or_a_rival_are_not_compared():
    assert not pair_scales([4.0, 0.0]).compared.any()
    assert pair_scales([4.0, 1.0, 0.0]).compared.tolist() == [True, True, False]


def test_the_record_holds_the_last_three_hundred_rows():
    record = empty_record(0).with_classes(np.arange(0), 2)
    scales = pair_scales(np.ones(2))
    for value in range(0, 700, 7):
        scores = np.tile(np.arange(value, value + 7.0)[:, None], (1, 2))
        codes = np.zeros(7, dtype=int)
        both = pair_scores(scores, -scores)
        record = record.add(both, no_members(both), scales, codes, np.ones(7))
    assert record.size == 300
    np.testing.assert_array_equal(record.margin[:, 0], np.arange(400, 700))
    np.testing.assert_array_equal(record.graph[:, 1], -np.arange(400.0, 700))


def test_the_record_forgets_by_weight():
    pairs = random_pairs(np.random.default_rng(2), 30, 3)
    record = record_of(pairs, 3)
    assert record.forget(1.0) is record
    np.testing.assert_allclose(record.forget(0.5).weights, 0.5)
    for pair in pairs:
        pair.weight *= 0.01
    chosen = choose(record.forget(0.01), True, None, True)
    weight, temperature, delta = naive_graph.choose(naive_graph.evidence_table(pairs))
    assert chosen.weight == pytest.approx(weight, abs=WEIGHT_PRECISION)
    assert PRIOR_EXPONENTS[chosen.exponent] == delta
    assert abs(np.log2(chosen.temperature / temperature)) < OCTAVE_PRECISION


def test_columns_of_the_record_move_with_their_classes():
    """A class that sorts before the others, and one that is forgotten with its rows."""
    pairs = random_pairs(np.random.default_rng(4), 30, 3)
    record = record_of(pairs, 3)
    moved = record.with_classes(np.array([1, 2, 3]), 4)
    np.testing.assert_array_equal(moved.margin[:, 1:], record.margin)
    np.testing.assert_array_equal(moved.codes, record.codes + 1)
    assert not (moved.counts > 0)[:, 0].any()
    before, after = (choose(each, True, None, True) for each in (record, moved))
    np.testing.assert_allclose(after[:3], before[:3], rtol=1e-6)
    fewer = record.with_classes(np.array([0, -1, 1]), 2)
    kept = np.flatnonzero(record.codes != 1)
    np.testing.assert_array_equal(fewer.graph, record.graph[np.ix_(kept, [0, 2])])
    np.testing.assert_array_equal(fewer.codes, record.codes[kept] // 2)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=6))
def test_class_factors_are_roots_of_counts_and_powers_of_priors(counts):
    counts = np.array(counts, dtype=float)
    factors = class_factors(counts, by_counts=True)
    assert np.isfinite(factors).all()
    known = counts > 0
    assert not factors[:, ~known].any()
    if not known.any():
        return
    for factor, delta in zip(factors, naive_graph.EXPONENTS, strict=True):
        expected = counts[known] ** -0.5 * naive_graph.class_priors(counts)[known] ** delta
        np.testing.assert_allclose(factor[known] / factor[known][0], expected / expected[0])


def test_class_factors_of_a_class_of_weight_zero_are_finite():
    factors = class_factors(np.array([500.0, 5e-324, 3.0]), by_counts=True)
    assert np.isfinite(factors).all()


def test_mixed_scores_are_those_of_the_formula():
    rng = np.random.default_rng(6)
    counts = np.array([5.0, 0.0, 2.0, 40.0])
    probes, scores = (pair_scores(rng.normal(size=(n, 4)), rng.random((n, 4))) for n in (50, 7))
    scales = mixture_record.measured_score_scales(probes, counts, True, NO_SIZES)
    known = counts > 0
    for weight in (0.0, 0.35, 1.0):
        for place, delta in enumerate(naive_graph.EXPONENTS):
            found = mix(scores, scales, Choice(weight, 3.0, place, 0.0), by_counts=True)
            margin = naive_graph.margin_scores(scores[:, 0], counts, delta)
            margin /= naive_graph.sigma(naive_graph.margin_scores(probes[:, 0], counts, delta))
            graph = scores[:, 1, known] / naive_graph.sigma(probes[:, 1, known])
            expected = 3.0 * ((1 - weight) * margin + weight * graph)
            np.testing.assert_allclose(found[:, known], expected, rtol=1e-12, atol=1e-12)
            assert not found[:, ~known].any()


def test_equal_scores_have_the_scale_one():
    assert mixture_record.scale_of(np.zeros((0, 3)), 0.0, 1e-9) == 1.0
    assert mixture_record.scale_of(np.full((5, 3), 7.0), 0.0, 1e-9) == 1.0
    assert mixture_record.scale_of(np.array([[1.0, -1.0]]), 0.0, 1e-9) == 1.0
    assert mixture_record.scale_of(np.array([[4.0, 0.0]]), 0.0, 1e-9) == 2.0


def test_scores_that_are_rounding_errors_have_the_scale_one():
    noise = np.array([[1e-16, -1e-16]])
    assert mixture_record.scale_of(noise, 0.0, 1e-9) == pytest.approx(1e-16)
    assert mixture_record.scale_of(noise, 2e-16, 1e-9) == 1.0
    assert mixture_record.scale_of(0.7 + noise, 0.0, 1e-9) == 1.0  # errors of the scores themselves


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-6, 1.0])
def test_rounding_errors_of_scaled_scores_are_bounded(size):
    """An error of ``rounding`` in a score is at most the largest error after scaling."""
    rounding = 1e-15
    scale = mixture_record.scale_of(size * np.array([[1.0, -1.0]]), rounding, 1e-9)
    assert rounding / scale <= 1e-9 * (1 + 1e-12)
    assert scale == pytest.approx(max(size, 1e-6))


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("bias", ["auto", "exact"])
def test_the_sizes_of_summed_terms_are_bounds(kernel, bias):
    """As computed term by term, with the products of coefficients and kernel values."""
    generator = np.random.default_rng(0)
    X, probes = generator.normal(size=(60, 3)), generator.normal(size=(9, 3))
    model = SeqMED(kernel, bias=bias, window=20)
    for start in (0, 20, 40):
        model.partial_fit(X[start : start + 20], np.arange(20) % 3)
    posterior = model.posterior_
    expansion = posterior.window.expansion if kernel == "linear" else posterior.support
    values = np.abs(posterior.covariance.kernel(probes, expansion.points))
    terms = values @ np.abs(expansion.coefficients) + np.abs(posterior.intercepts)
    sizes = posterior.summed_sizes(probes)
    assert (sizes >= terms.max(axis=1)).all()
    if kernel != "linear":  # whose terms are those of every row, not of their sum
        assert (sizes <= 100 * terms.max(axis=1)).all()


# -- the weight of the graph -----------------------------------------------------------------------


def simple_record(margin_right: int, graph_right: int, n: int) -> ScoreRecord:
    """Return n rows of two classes, of which each expert scores the first few well."""
    codes = np.arange(n) % 2
    truth = np.where(np.eye(2)[codes] > 0, 1.0, -1.0)

    def scores(right):
        return np.where(np.arange(n)[:, None] < right, truth, -truth)

    return ScoreRecord(
        margin=scores(margin_right),
        graph=scores(graph_right),
        linear=np.zeros((n, 2)),
        counts=np.full((n, 2), 5.0),
        margin_scales=np.ones((n, PRIOR_EXPONENTS.size)),
        graph_scales=np.ones(n),
        linear_scales=np.ones(n),
        probabilities=np.zeros((n, 0, 2)),
        codes=codes,
        weights=np.ones(n),
    )


def weight_of(record: ScoreRecord) -> float:
    return choose(record, by_counts=True, weight=None, class_prior=True).weight


def test_equal_costs_leave_the_prior():
    costs = np.full(mixture_record.WEIGHTS.size, 7.0)
    assert mean_weight(costs) == pytest.approx(mixture_record.FIRST_WEIGHT)


@pytest.mark.parametrize(("best", "expected"), [(0, 0.0), (-1, 1.0)])
def test_a_decisive_record_overrules_the_prior(best, expected):
    costs = np.full(mixture_record.WEIGHTS.size, 1e4)
    costs[best] = 0.0
    assert mean_weight(costs) == expected


def test_weight_follows_the_better_expert_and_the_length_of_the_record():
    first = weight_of(empty_record(0))
    for n in (4, 40, 200):
        assert (
            weight_of(simple_record(n // 2, n, n)) > first > weight_of(simple_record(n, n // 2, n))
        )
    assert weight_of(simple_record(100, 200, 200)) > weight_of(simple_record(2, 4, 4))


def test_a_small_weight_is_zero():
    costs = 100.0 * mixture_record.WEIGHTS
    assert mean_weight(costs) == 0.0


def test_temperature_is_that_of_the_chosen_weight():
    record = simple_record(30, 36, 40)
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

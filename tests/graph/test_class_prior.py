"""Known class proportions: the factors of the classes, when they change, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import seqmed
from seqmed import GraphPropagation
from seqmed.classes import Rows
from seqmed.graph import kept_rows, metrics, propagation
from tests.reference import naive_graph

NEIGHBORS = 10


def clouds(seed, n=150, shares=(0.7, 0.25, 0.05), n_labels=12, n_far=0):
    """Overlapping clouds of three classes, a few of them labeled; some rows far from all others."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(len(shares), n, p=shares)
    rows = rng.normal(size=(n, 3)) + 1.8 * np.eye(len(shares), 3)[codes]
    rows[n - n_far :] += 1e4
    shown = np.full(n, -1)
    shown[len(shares) : n_labels] = codes[len(shares) : n_labels]
    for code in range(len(shares)):  # a label of every class at least
        shown[np.flatnonzero(codes == code)[0]] = code
    return rows, shown, codes


def graph_of(rows, shown, n_classes=3, capacity=400, proportions=None):
    kept = kept_rows.no_kept_rows(metrics.make_metric("euclidean", rows), NEIGHBORS)
    state = propagation.GraphState(kept, capacity, 0.97, 0).with_classes(np.arange(0), n_classes)
    weights = np.ones(len(rows))
    state, _, _ = propagation.learn_graph(
        state, Rows(rows, shown, weights), proportions=proportions
    )
    return state


def naive_factors(state, given):
    rows = state.rows.take(np.arange(state.rows.size)).rows.astype(float)
    distances = naive_graph.euclidean(rows, rows)
    np.fill_diagonal(distances, np.inf)
    n_classes = state.influence.shape[1]
    labels = naive_graph.one_hot(state.codes, state.label_weights, n_classes)
    influence = state.influence.astype(float)
    return naive_graph.proportion_factors(distances, influence, labels, given, NEIGHBORS)


# -- the factors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_labels", [5, 120])
@pytest.mark.parametrize("n_far", [0, 40])
def test_factors_are_the_naive_ones(seed, n_labels, n_far):
    """Over unlabeled rows, over all rows if few are unlabeled, and with rows without influence."""
    rows, shown, _ = clouds(seed, n_labels=n_labels, n_far=n_far)
    state = graph_of(rows, shown)
    for given in ([0.7, 0.25, 0.05], [1 / 3, 1 / 3, 1 / 3], [0.001, 0.001, 0.998]):
        found = propagation.proportion_factors(state, np.array(given))
        np.testing.assert_allclose(found, naive_factors(state, np.array(given)), rtol=1e-3)


def test_mean_scores_are_half_way_to_the_proportions():
    rows, shown, _ = clouds(1)
    given = np.array([0.2, 0.2, 0.6])
    state = graph_of(rows, shown, proportions=given)
    unlabeled = np.flatnonzero(state.codes < 0)
    lists = state.rows.lists.take(unlabeled)
    before = replace(state, class_factors=np.ones(3)).scores(lists).mean(axis=0)
    target = np.sqrt(before * given)
    np.testing.assert_allclose(state.scores(lists).mean(axis=0), target / target.sum(), atol=1e-5)


def test_proportions_that_cannot_be_reached_give_the_largest_factors():
    """Every row has influence of one class only."""
    scores = np.repeat(np.eye(2), 30, axis=0)
    factors = propagation.sinkhorn_factors(scores, np.array([0.9, 0.1]))
    np.testing.assert_array_equal(factors, [50.0, 1 / 50])


def test_a_class_without_a_label_takes_no_part():
    rows, shown, _ = clouds(2)
    shown[shown == 2] = -1
    state = graph_of(rows, shown)
    found = propagation.proportion_factors(state, np.array([0.3, 0.1, 0.6]))
    assert found[2] == 1.0
    two = propagation.proportion_factors(state.with_classes(np.array([0, 1, -1]), 2),
                                         np.array([0.75, 0.25]))  # fmt: skip
    np.testing.assert_allclose(found[:2], two)


@pytest.mark.parametrize("shown", [[-1] * 60, [0] + [-1] * 59])
def test_fewer_than_two_classes_have_factors_of_one(shown):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    state = graph_of(rows, np.array(shown), proportions=np.array([0.1, 0.2, 0.7]))
    np.testing.assert_array_equal(state.class_factors, np.ones(3))


def test_rows_that_no_label_reaches_stay_uniform():
    rows, shown, _ = clouds(3, n_far=40)
    state = graph_of(rows, shown, proportions=np.array([0.98, 0.01, 0.01]))
    assert state.class_factors.max() > 2 * state.class_factors.min()
    scores = state.scores(state.search(np.full((2, 3), 1e4)))
    np.testing.assert_array_equal(scores, np.full((2, 3), 1 / 3))


def test_scores_without_proportions_are_those_without_factors():
    rows, shown, _ = clouds(4)
    state = graph_of(rows, shown)
    found = state.search(rows[:20])
    values = state.mean_influence(found).astype(np.float64)
    values /= values.sum(axis=1)[:, None]
    np.testing.assert_array_equal(state.scores(found), values)


# -- when they are computed ------------------------------------------------------------------------


def expect_current(model, given):
    """Expect the factors to be those of the kept rows and labels of now."""
    state = model._state.graph
    expected = propagation.proportion_factors(state, None if given is None else np.array(given))
    np.testing.assert_array_equal(state.class_factors, expected)
    assert given is None or (expected != 1.0).any()


def test_factors_are_computed_again_after_every_update():
    rows, shown, codes = clouds(5, n=400, n_labels=20)
    prior, given = {0: 0.1, 1: 0.2, 2: 0.7}, [0.1, 0.2, 0.7]
    model = GraphPropagation(graph_memory=200, class_prior=prior, random_state=0)
    for start in range(0, 400, 100):  # later batches have no label
        model.partial_fit(rows[start:][:100], shown[start:][:100])
        expect_current(model, given)
    one_row = model._state.graph.class_factors  # too few for another solution
    model.partial_fit(rows[:1] + 0.5, [-1])
    assert model.n_iter_ == 0 or not np.array_equal(one_row, model._state.graph.class_factors)
    expect_current(model, given)
    model.partial_fit(rows[380:], codes[380:], new_points=False)
    expect_current(model, given)
    model.retract(rows[:1], codes[:1] * 0 + shown[:1])
    expect_current(model, given)
    before = model._state.graph.class_factors
    model.set_params(class_prior={0: 0.7, 1: 0.2, 2: 0.1})
    np.testing.assert_array_equal(model._state.graph.class_factors, before)
    model.partial_fit(rows[:5], [-1] * 5)
    expect_current(model, [0.7, 0.2, 0.1])
    model.set_params(class_prior=None).partial_fit(rows[:5], [-1] * 5)
    expect_current(model, None)


def test_factors_are_computed_again_when_columns_are_scaled():
    rows, shown, _ = clouds(6)
    given = np.array([0.1, 0.2, 0.7])
    state = graph_of(rows, shown, proportions=given)
    scaled, _ = propagation.rescaled_graph(state, np.array([4.0, 1.0, 0.25]), given)
    np.testing.assert_array_equal(
        scaled.class_factors, propagation.proportion_factors(scaled, given)
    )
    assert not np.allclose(scaled.class_factors, state.class_factors)


def test_a_saved_model_predicts_the_same(tmp_path):
    rows, shown, _ = clouds(7)
    model = GraphPropagation(class_prior={0: 0.1, 1: 0.2, 2: 0.7}, random_state=0)
    model.fit(rows, shown)
    seqmed.save(model, tmp_path / "model")
    loaded = seqmed.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    assert loaded.class_prior == model.class_prior


def test_sparse_rows_have_factors_too():
    rows, shown, _ = clouds(8)
    rows = sp.csr_array(np.maximum(rows, 0.0))
    without = GraphPropagation(random_state=0).fit(rows, shown).predict_proba(rows)
    prior = {0: 0.05, 1: 0.05, 2: 0.9}
    model = GraphPropagation(class_prior=prior, random_state=0).fit(rows, shown)
    assert model.predict_proba(rows)[:, 2].mean() > without[:, 2].mean() + 0.1


def test_known_proportions_raise_accuracy_with_one_label_per_class():
    gains = []
    for seed in range(6):
        rows, shown, codes = clouds(seed, n=1000, shares=(0.9, 0.08, 0.02), n_labels=3)
        found = [
            GraphPropagation(class_prior=prior, random_state=0).fit(rows, shown).predict(rows)
            for prior in (None, {0: 0.9, 1: 0.08, 2: 0.02})
        ]
        gains.append((found[1] == codes).mean() - (found[0] == codes).mean())
    assert np.mean(gains) > 0.05


# -- the parameter ---------------------------------------------------------------------------------


def learned(prior, labels=("ant", "bee"), classes=None):
    model = GraphPropagation(class_prior=prior, random_state=0)
    rows = np.random.default_rng(0).normal(size=(60, 2))
    y = np.full(60, None, dtype=object)
    y[: len(labels)] = labels
    return model.partial_fit(rows, y, classes=classes)


REFUSED = {
    "no number": ({"ant": 0.5, "bee": "half"}, "the proportion 'half' of the class 'bee'"),
    "zero": ({"ant": 1.0, "bee": 0}, "the proportion 0 of the class 'bee'"),
    "negative": ({"ant": 1.5, "bee": -0.5}, "the proportion -0.5 of the class 'bee'"),
    "not finite": ({"ant": 0.5, "bee": np.nan}, "the proportion nan of the class 'bee'"),
    "true": ({"ant": 0.5, "bee": True}, "the proportion True of the class 'bee'"),
    "sum": ({"ant": 0.5, "bee": 0.52}, "proportions with the sum 1.02"),
    "empty": ({}, "proportions with the sum 0"),
    "missing": ({"ant": 1.0}, "no proportion of the class 'bee'"),
    "type": ({"ant": 0.5, "bee": 0.4, 3: 0.1}, "the key 3"),
    "none": ({"ant": 0.5, "bee": 0.4, None: 0.1}, "the key None"),
    "list": ([0.5, 0.5], "class_prior"),
    "text": ("uniform", "class_prior"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_proportions_are_refused_by_name(name):
    prior, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        learned(prior)


def test_a_refused_change_changes_nothing():
    model = learned({"ant": 0.5, "bee": 0.5})
    rows = np.random.default_rng(1).normal(size=(5, 2))
    before = model.predict_proba(rows)
    model.set_params(class_prior={"ant": 0.5, "be": 0.5})
    for update in (
        lambda: model.partial_fit(rows, ["ant", None, None, "bee", None]),
        lambda: model.retract(np.random.default_rng(0).normal(size=(60, 2))[:1]),
    ):
        with pytest.raises(ValueError, match="no proportion of the class 'bee'"):
            update()
    np.testing.assert_array_equal(model.predict_proba(rows), before)
    assert model.n_batches_ == 1


def test_a_key_may_name_a_class_that_comes_later():
    prior = {"ant": 0.2, "bee": 0.3, "cicada": 0.5}
    model = learned(prior)
    two = learned({"ant": 0.4, "bee": 0.6})
    np.testing.assert_allclose(model._state.graph.class_factors, two._state.graph.class_factors)
    model.partial_fit([[1.0, 1.0]], ["cicada"])
    assert (model._state.graph.class_factors != 1.0).all()
    with pytest.raises(ValueError, match="no proportion of the class 'dragonfly'"):
        model.partial_fit([[2.0, 2.0]], ["dragonfly"])
    assert model.classes_.tolist() == ["ant", "bee", "cicada"]


def test_a_key_that_is_no_declared_class_is_refused():
    prior = {"ant": 0.2, "bee": 0.3, "cicada": 0.5}
    with pytest.raises(ValueError, match=r"the key 'cicada', expected .*\['ant', 'bee'\]"):
        learned(prior, classes=["ant", "bee"])
    model = learned(prior, classes=["ant", "bee", "cicada"])
    assert model._state.graph.class_factors[2] == 1.0  # declared, without a label
    with pytest.raises(ValueError, match="no proportion of the class 'cicada'"):
        learned({"ant": 0.4, "bee": 0.6}, classes=["ant", "bee", "cicada"])


def test_rows_without_labels_may_come_first():
    model = learned({"ant": 0.4, "bee": 0.6}, labels=())
    model.partial_fit(np.random.default_rng(2).normal(size=(4, 2)), ["ant", "bee", None, None])
    assert (model._state.graph.class_factors != 1.0).all()


def test_keys_are_labels_as_in_y():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    y = np.full(60, -1)
    y[:4] = [0, 1, 0, 1]
    factors = [
        GraphPropagation(class_prior=prior, random_state=0).fit(rows, y)._state.graph.class_factors
        for prior in ({0: 0.2, 1: 0.8}, {np.int64(1): 0.8, 0.0: 0.2}, {0: 0.2, 1: 0.805})
    ]
    np.testing.assert_array_equal(factors[0], factors[1])
    np.testing.assert_allclose(factors[0], factors[2], rtol=0.01)

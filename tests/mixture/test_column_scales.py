"""ScoreScales of the columns: when they are used, and what stays exact when they change."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

import seqmed
from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.margin import margin_state
from seqmed.mixture import column_scales
from seqmed.mixture import learning as mixture_update
from tests.reference import naive_graph


def units(n=600, seed=0, share=0.2):
    """Two classes, and columns of very different units."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = (X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4).astype(int)
    labels = np.where(rng.random(n) < share, y, -1)
    return X * np.array([1e-3, 1.0, 1e4, 50.0]) + 7.0, y, labels


def learned(model, X, labels, size=60, stop=None):
    for start in range(0, stop or len(X), size):
        model.partial_fit(X[start : start + size], labels[start : start + size])
    return model


def test_scales_are_deviations_and_change_by_powers_of_two():
    X, _, _ = units()
    scales = column_scales.first_column_scales(X)
    np.testing.assert_allclose(scales, X.std(axis=0), rtol=0.05)
    other = X * np.array([1.0, 30.0, 1.0, 0.001])
    factors = column_scales.measured_column_scales(other, scales) / scales
    assert factors.tolist() == [1.0, 32.0, 1.0, 2.0**-10]


def test_deviations_ignore_outliers_and_count_rare_values_by_their_size():
    rng = np.random.default_rng(0)
    column = rng.normal(size=1000)
    spoiled = np.where(np.arange(1000) % 100 == 0, 1e9, column)
    rare = np.where(np.arange(1000) % 50 == 0, 3.0, 0.0)
    columns = np.column_stack([column, spoiled, rare, np.full(1000, 5.0)])
    sizes, dense = column_scales.column_deviations(columns)
    assert sizes[0] == pytest.approx(1.0, rel=0.1)
    assert sizes[1] == pytest.approx(1.0, rel=0.2)
    assert sizes[2] == pytest.approx(3.0)
    assert sizes[3] == 0.0
    assert dense.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    "columns",
    [np.ones(30), 10.0 ** np.linspace(-0.4, 0.4, 30), np.append(np.ones(29), 1e6)],
    ids=["equal", "within a factor of ten", "one column differs"],
)
def test_columns_of_similar_scales_are_left_as_they_are(columns):
    X = np.random.default_rng(0).normal(size=(200, 30)) * columns
    assert (column_scales.measured_column_scales(X, np.ones(30)) == 1.0).all()


def test_columns_of_zeros_and_ones_are_never_scaled():
    """They are in the unit of distances, whatever their share of ones."""
    rng = np.random.default_rng(0)
    binary = rng.random((400, 3)) < np.array([0.5, 0.2, 0.02])
    X = np.column_stack([100.0 * rng.normal(size=(400, 2)), binary])
    assert column_scales.first_column_scales(X)[2:].tolist() == [1.0, 1.0, 1.0]
    assert column_scales.measured_column_scales(X, np.ones(5))[2:].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("share", "scaled"), [(0.5, True), (0.02, False)])
def test_columns_are_scaled_sooner_beside_ones_that_are_often_one(share, scaled):
    """A column of rare ones, such as a rare word, is no reason to scale the others."""
    rng = np.random.default_rng(0)
    X = np.column_stack([5.0 * rng.normal(size=(400, 2)), rng.random(400) < share])
    assert (column_scales.first_column_scales(X)[0] > 1.0) == scaled


def test_images_and_counts_of_words_are_not_scaled():
    X, _ = load_digits(return_X_y=True)
    deviations = X.std(axis=0)
    standardised = (X - X.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    chances = 1.0 / np.arange(1, 801)
    words = np.random.default_rng(0).multinomial(15, chances / chances.sum(), 2000)
    for rows in (X, standardised, words.astype(float)):
        assert (column_scales.measured_column_scales(rows, np.ones(rows.shape[1])) == 1.0).all()


def test_rare_values_of_a_scaled_table_have_the_size_of_its_other_values():
    X, _, _ = units()
    rare = np.where(np.arange(600) % 30 == 0, 1e5, 0.0)
    scales = column_scales.measured_column_scales(np.column_stack([X, rare]), np.ones(5))
    assert scales[4] == 2.0**17


def test_few_rows_and_small_changes_keep_the_scales():
    X, _, _ = units()
    assert (column_scales.measured_column_scales(X[:49], np.ones(4)) == 1.0).all()
    assert (column_scales.first_column_scales(X[:49]) == 1.0).all()
    scales = column_scales.first_column_scales(X)
    np.testing.assert_array_equal(column_scales.measured_column_scales(1.3 * X, scales), scales)
    np.testing.assert_array_equal(
        column_scales.measured_column_scales(8.0 * X, scales), 8.0 * scales
    )
    constant = np.where(np.arange(4) == 2, 5.0, X)
    assert column_scales.measured_column_scales(8.0 * constant, scales)[2] == scales[2]


def test_the_units_of_the_columns_do_not_matter():
    """The same predictions, to the bit, in other units that are powers of two."""
    X, y, labels = units()
    other = X * np.array([2.0**30, 2.0**-20, 1.0, 2.0**7])
    first, second = (
        learned(SeqGraphMED(experts=(), random_state=0), each, labels) for each in (X, other)
    )
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(other))
    plain = learned(SeqGraphMED(scale=None, experts=(), random_state=0), X, labels)
    assert (plain.scale_ == 1.0).all()
    assert first.score(X, y) > plain.score(X, y) + 0.1


@pytest.mark.parametrize(
    ("options", "sparse"),
    [
        ({"scale": None}, False),
        ({"metric": "cosine"}, False),
        ({"estimator": SeqMED(gamma=0.1)}, False),
        ({"estimator": SeqLapMED(kernel="poly")}, False),
        ({}, True),
    ],
    ids=["none", "cosine", "given gamma", "another kernel", "sparse"],
)
def test_rows_are_scaled_only_if_no_parameter_depends_on_their_unit(options, sparse):
    X, _, labels = units(120)
    model = SeqGraphMED(random_state=0, **options)
    model.partial_fit(sp.csr_array(X) if sparse else X, labels, classes=[0, 1])
    np.testing.assert_array_equal(model.scale_, np.ones(4))


def growing(n=800):
    """Columns two and three are constant at first."""
    X, y, labels = units(n, share=0.3)
    X = X.copy()
    X[: n // 2, 2:] = 7.0
    return X, y, labels


def test_a_column_that_becomes_alive_is_measured_at_once():
    X, _, labels = growing()
    model = learned(SeqGraphMED(random_state=0), X, labels, size=100, stop=400)
    assert (model.scale_[2:] == 1.0).all()
    model.partial_fit(X[400:500], labels[400:500])
    ratios = model.scale_ / X[400:].std(axis=0)
    assert (ratios > 0.3).all()
    assert (ratios < 3.0).all()


def test_a_rescaled_graph_equals_one_from_scratch():
    """Kept rows and neighbour lists equal those of rows that were divided first."""
    X, _, labels = growing()
    model = learned(SeqGraphMED(random_state=0), X, labels, size=100)
    rows = model._state.graph.rows
    stored = rows.metric.store(X / model.scale_).rows
    kept = rows.take(np.arange(rows.size)).rows
    assert {row.tobytes() for row in kept} == {row.tobytes() for row in stored}
    distances = naive_graph.euclidean(kept.astype(float), kept.astype(float))
    np.fill_diagonal(distances, np.inf)
    for slot, row in enumerate(distances):
        assert set(rows.lists.slots[slot, :10]) == set(naive_graph.nearest(row, 10))


def test_the_margin_expert_is_the_one_that_learns_the_kept_rows_in_one_batch():
    X, _, labels = growing()
    model = learned(SeqGraphMED(random_state=0), X, labels, size=100, stop=400)
    state = model._state
    scale = 4.0 * state.column_scale
    parameters = model._parameters(model.classes_, state.counts.declared)
    after, _ = mixture_update.rescaled(state, scale, parameters)
    expected = SeqMED(random_state=model.random_state)
    rows = mixture_update.kept_rows(state, state.column_scale / scale)
    expected.partial_fit(rows.points, rows.codes)
    assert rows.labeled.sum() == (labels[:400] >= 0).sum()
    counts, scores = after.margin.counts, margin_state.machine_scores(after.margin, X / scale)
    np.testing.assert_allclose(
        counts.compared(counts.class_scores(scores)), expected.decision_function(X / scale)
    )


def test_the_margin_expert_begins_again_with_the_discounted_weights_of_labels():
    """Otherwise labels that were forgotten would count in full after a change of scales."""
    X, _, labels = growing()
    model = learned(SeqGraphMED(forgetting=0.5, random_state=0), X, labels, size=100, stop=300)
    rows = mixture_update.kept_rows(model._state, np.ones(4))
    numbers = np.repeat([0, 1, 2], [np.sum(labels[i : i + 100] >= 0) for i in (0, 100, 200)])
    np.testing.assert_allclose(np.sort(rows.weights[rows.labeled]), 0.5 ** (2 - numbers))


def test_late_labels_and_retractions_find_their_rows_after_a_change_of_scales():
    X, y, labels = growing()
    model = learned(SeqGraphMED(forgetting=1.0, random_state=0), X, labels, size=100)
    assert (model.scale_[2:] > 1.0).all()
    unlabeled = np.flatnonzero(labels < 0)[:5]
    n_labeled = (model._state.graph.codes >= 0).sum()
    assert model._state.labels.size == n_labeled
    model.partial_fit(X[unlabeled], y[unlabeled], new_points=False)
    assert model.n_kept_ == 800
    assert (model._state.graph.codes >= 0).sum() == n_labeled + 5
    labeled = np.flatnonzero(labels >= 0)
    model.retract(X[labeled[:3]]).retract(X[labeled[-3:]])
    assert (model._state.graph.codes >= 0).sum() == n_labeled - 1
    assert model._state.labels.size == n_labeled - 1


def test_a_saved_model_keeps_its_scales(tmp_path):
    X, _, labels = growing()
    model = learned(SeqGraphMED(random_state=0), X, labels, size=100, stop=400)
    seqmed.save(model, tmp_path / "model")
    loaded = seqmed.load(tmp_path / "model")
    for each in (model, loaded):
        learned(each, X[400:], labels[400:], size=100)
    np.testing.assert_array_equal(loaded.scale_, model.scale_)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_rows_without_labels_are_rescaled_too():
    X, y, labels = growing()
    model = learned(SeqGraphMED(random_state=0), X, np.full(800, -1), size=100)
    assert (model.scale_[2:] > 1.0).all()
    labeled = labels >= 0
    model.partial_fit(X[labeled], y[labeled], new_points=False)
    assert model.score(X, y) > 0.75


def test_scale_may_not_change_between_batches():
    X, _, labels = units(200)
    model = SeqGraphMED(random_state=0).partial_fit(X, labels)
    with pytest.raises(ValueError, match="scale"):
        model.set_params(scale=None).partial_fit(X, labels)


def test_graph_propagation_does_not_scale():
    assert "scale" not in GraphPropagation().get_params()

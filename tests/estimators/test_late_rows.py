"""Late labels are counted by what is known of their rows; what is wrong is refused or warned of."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import seqmed
from seqmed import (
    GraphPropagation,
    PrequentialSearch,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
)
from seqmed.late_rows import equal_rows
from tests.support.state import assert_same_bits, snapshot, state_bits

KEEPS_NO_UNLABELED = {
    "SeqMED": lambda: SeqMED(),
    "SeqLapMED": lambda: SeqLapMED(random_state=0),
}
KEEPS_UNLABELED = {
    "GraphPropagation": lambda: GraphPropagation(random_state=0),
    "SeqGraphMED": lambda: SeqGraphMED(random_state=0),
    "SeqGraphMED-SeqLapMED": lambda: SeqGraphMED(SeqLapMED(random_state=0), random_state=0),
}
MODELS = KEEPS_NO_UNLABELED | KEEPS_UNLABELED


def rows(n, seed=0):
    """Rows of two classes, their labels, and labels of every third row only."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = generator.normal(size=(n, 3)) + 3.0 * y[:, None]
    return X, y, np.where(np.arange(n) % 3 == 0, y, -1)


def learned(make):
    """A model of 30 rows, of which 10 are labeled; the rows, their labels, and labeled rows."""
    X, y, few = rows(30)
    return make().partial_fit(X, few, classes=[0, 1, 2]), X, y, few >= 0


@pytest.mark.parametrize("name", MODELS)
def test_late_labels_are_counted(name):
    model, X, y, labeled = learned(MODELS[name])
    assert model.update_info_.late_labels is None
    model.partial_fit(X[:12], y[:12], new_points=False)
    counts = model.update_info_.late_labels
    kept = name in KEEPS_UNLABELED
    assert counts.n_already_known == labeled[:12].sum() == 4
    assert (counts.n_found, counts.n_not_found) == ((8, 0) if kept else (0, 8))
    assert model._state.counts.counts.sum() == 18
    model.partial_fit(X[18:] + 0.1, np.full(12, -1))
    assert model.update_info_.late_labels is None


@pytest.mark.parametrize("name", MODELS)
def test_a_label_that_is_known_changes_nothing(name, tmp_path):
    model, X, y, _ = learned(MODELS[name])
    model.partial_fit(X[:12], y[:12], new_points=False)
    state, before = state_bits(model._state), model._state
    for _ in range(2):
        model.partial_fit(X[:12], y[:12], new_points=False)
        assert model._state is before
        assert state_bits(model._state) == state
        assert model.update_info_.late_labels == (0, 0, 12)
    seqmed.save(model, tmp_path / "model")
    assert_same_bits(seqmed.load(tmp_path / "model"), model)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("label", [1, 2])
def test_another_label_is_refused_until_the_first_is_retracted(name, label):
    model, X, y, _ = learned(MODELS[name])
    before = snapshot(model)
    weights = np.array([1.0, 0.0, 1.0, 1.0])
    asked = np.vstack([X[1:3], X[2:3], X[:1]])  # the last one is labeled 0
    given = [y[1], 0, y[2], label]
    with pytest.raises(ValueError, match="row 3 of X was learned with the label 0") as refusal:
        model.partial_fit(asked, given, sample_weight=weights, new_points=False)
    assert f"got {label} " in str(refusal.value)
    assert "retract it first" in str(refusal.value)
    assert_same_bits(model, before)
    model.retract(X[:1], [0]).partial_fit(asked, given, sample_weight=weights, new_points=False)
    assert model._state.counts.counts.sum() == 12


@pytest.mark.parametrize("name", KEEPS_UNLABELED)
def test_a_row_that_is_not_found_although_all_are_kept_causes_a_warning(name):
    model, X, y, _ = learned(MODELS[name])
    before = snapshot(model)
    scaled = np.vstack([X[1:3], 10.0 * X[4:6], 10.0 * X[7:8]])
    labels = [*y[1:3], *y[4:6], y[7]]
    with pytest.raises(UserWarning, match="3 of 5 late labels"):  # an error in our tests
        model.partial_fit(scaled, labels, new_points=False)
    assert_same_bits(model, before)
    with pytest.warns(UserWarning, match="another scaling"):
        model.partial_fit(scaled, labels, new_points=False)
    assert model.update_info_.late_labels == (2, 3, 0)
    assert model.n_kept_ == 33  # they enter the graph as labeled rows
    assert model._state.counts.counts.sum() == 15


@pytest.mark.parametrize("name", KEEPS_UNLABELED)
def test_in_a_long_stream_rows_that_are_not_found_are_normal(name):
    model = MODELS[name]().set_params(graph_memory=20)
    X, y, few = rows(60)
    for start in range(0, 60, 15):
        part = slice(start, start + 15)
        model.partial_fit(X[part], few[part], classes=[0, 1])
    model.partial_fit(X[1::3], y[1::3], new_points=False)
    counts = model.update_info_.late_labels
    assert counts.n_found > 0
    assert counts.n_not_found > 0
    assert sum(counts) == 20
    assert model._state.counts.counts.sum() == 40
    assert model.n_kept_ == 20
    assert 0 < np.count_nonzero(model._state.graph.codes >= 0) <= 10


@pytest.mark.parametrize("name", KEEPS_UNLABELED)
def test_a_row_without_a_label_is_found_beside_an_equal_row_with_one(name):
    """Rows of counts and categories are often equal, and their labels may differ."""
    X, _, few = rows(30)
    X[1] = X[2] = X[0]
    model = MODELS[name]().partial_fit(X, few, classes=[0, 1])
    model.partial_fit(X[:1], [1], new_points=False)
    assert model.update_info_.late_labels == (1, 0, 0)
    model.partial_fit(X[:1], [0], new_points=False)
    assert model.update_info_.late_labels == (1, 0, 0)
    for label in (0, 1):
        model.partial_fit(X[:1], [label], new_points=False)
        assert model.update_info_.late_labels == (0, 0, 1)


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_the_caller_has_identified_are_not_searched_for(name):
    model, X, _, _ = learned(MODELS[name])
    model.partial_fit(X[:1], [1], new_points=False, find_rows=False)
    model.partial_fit(10.0 * X[:1], [1], new_points=False, find_rows=False)
    assert model.update_info_.late_labels is None
    assert model._state.counts.counts.sum() == 12
    with pytest.raises(ValueError, match="retract it first"):
        model.partial_fit(X[3:4], [0], new_points=False)


@pytest.mark.parametrize("name", ["SeqMED", "SeqGraphMED"])
def test_labels_through_a_pipeline_and_a_search(name):
    X, y, few = rows(30)
    pipeline = StreamPipeline([("scale", StandardScaler()), ("model", MODELS[name]())])
    for model in (pipeline, PrequentialSearch(MODELS[name](), [{}])):
        model.partial_fit(1e3 * X, few)
        for row in range(12):  # a single row may be rounded differently from a batch
            model.partial_fit(1e3 * X[row : row + 1], y[row : row + 1], new_points=False)
        with pytest.raises(ValueError, match="retract it first"):
            model.partial_fit(1e3 * X[:3], 1 - y[:3], new_points=False)
        final = getattr(model, "best_estimator_", None) or model.named_steps["model"]
        assert final._state.counts.counts.sum() == 18


def test_rows_of_the_window_are_known_but_for_rounding():
    X, y, _ = rows(30)
    model = SeqMED().partial_fit(1e6 * X, y)
    model.partial_fit(1e6 * X * (1 + 1e-14), y, new_points=False)
    assert model.update_info_.late_labels == (0, 0, 30)
    model.partial_fit(1e6 * X[:4] * (1 + 1e-6), y[:4], new_points=False)
    assert model.update_info_.late_labels == (0, 4, 0)


@pytest.mark.parametrize("kind", [SeqMED, GraphPropagation, SeqGraphMED])
def test_sparse_rows_are_known(kind):
    X, y, few = rows(30)
    X = sp.csr_array(np.where(np.abs(X) > 1, X, 0.0))
    model = kind().partial_fit(X, few)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows of zeros are equal
        model.partial_fit(X[3:6].toarray(), y[3:6], new_points=False)
    assert model.update_info_.late_labels.n_already_known == 1


def test_late_labels_after_the_columns_were_scaled_again():
    X, y, few = rows(400)
    X = X * [1.0, 1e3, 1e-3]
    model = SeqGraphMED(random_state=0).partial_fit(X[:60], few[:60])
    model.partial_fit(X[60:] * [1.0, 100.0, 1.0], few[60:])
    assert (model.scale_ != 1).any()
    model.partial_fit(X[:60], y[:60], new_points=False)
    assert model.update_info_.late_labels == (40, 0, 20)


@given(st.integers(0, 1000), st.integers(1, 4), st.sampled_from([1e-3, 1.0, 1e8]))
def test_equal_rows_are_those_found_one_by_one(seed, p, size):
    generator = np.random.default_rng(seed)
    kept = size * generator.integers(0, 3, (25, p)).astype(float)
    points = kept[generator.integers(0, 25, 8)] * (1 + 1e-13 * generator.integers(0, 2, (8, p)))
    points = np.vstack([points, size * generator.random((3, p))])
    for point, found in zip(points, equal_rows(kept, points), strict=True):
        exact = (kept == point).all(axis=1)
        allowed = np.maximum(1e-10 * abs(point), 1e-14 * abs(point).max())
        expected = exact if exact.any() else (abs(kept - point) <= allowed).all(axis=1)
        assert found.tolist() == np.flatnonzero(expected).tolist()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_every_row_of_a_large_graph_is_found(form):
    """In several blocks, and among rows with the same values in other columns."""
    generator = np.random.default_rng(0)
    X = generator.integers(-2, 3, (2500, 8)) * generator.random(8)
    X = np.vstack([X, X[:, ::-1]])
    X = X[np.unique(X.astype(np.float32), axis=0, return_index=True)[1]]
    model = GraphPropagation(metric="cosine", random_state=0)
    y = np.arange(len(X)) % 3
    model.partial_fit(form(X), np.where(np.arange(len(X)) < 9, y, -1))
    model.partial_fit(form(X), y, new_points=False)
    assert model.update_info_.late_labels == (len(X) - 9, 0, 9)

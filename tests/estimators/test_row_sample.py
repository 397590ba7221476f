"""`fit` learns a sample of a large table, the same to the bit however the table is divided."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from seqmed import (
    GraphPropagation,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
    make_stream_pipeline,
)
from seqmed.estimators import graph_propagation, row_sample, seqmed
from seqmed.estimators.row_sample import SamplePlan, merge, summarise
from tests.reference.row_sample import sampled_numbers
from tests.support.state import assert_same_bits

N_ROWS = 400
PLAN = SamplePlan(seed=5, unlabeled=30, labeled=20, marker=-1, signs=False)


def numbers_and_labels(n=N_ROWS, seed=0):
    """Rows of three classes, one of five labeled, and one row of a fourth class."""
    rng = np.random.default_rng(seed)
    own = rng.integers(3, size=n)
    y = np.where(rng.random(n) < 0.2, own, -1)
    y[n // 3] = 3
    return rng.normal(size=(n, 4)) + 2.0 * np.eye(4)[own], y


def frame_of(X):
    """A table with a column of numbers with missing cells, and one of categories."""
    levels = pd.Categorical(np.where(X[:, 3] > 1, "high", "low"))
    columns = {"a": X[:, 0], "b": np.where(X[:, 1] > 2, np.nan, X[:, 1]), "c": levels}
    return pd.DataFrame(columns)


FORMS = {
    "array": lambda X: X,
    "fortran": np.asfortranarray,
    "integers": lambda X: np.round(10 * X).astype(np.int32),
    "csr": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "pandas": frame_of,
    "polars": lambda X: pl.DataFrame(frame_of(X).astype({"c": str})),
    "arrow": lambda X: pa.table(frame_of(X)),
    "records": lambda X: frame_of(X).astype({"c": str}).to_dict("records"),
    "columns": lambda X: frame_of(X).astype({"c": str}).to_dict("list"),
}


def part_of(X, first, last):
    """Some consecutive rows of a table in any form."""
    if isinstance(X, dict):
        return {name: column[first:last] for name, column in X.items()}
    if isinstance(X, pa.Table):
        return X.slice(first, last - first)
    return X.iloc[first:last] if isinstance(X, pd.DataFrame) else X[first:last]


def parts_of(plan, X, y, cuts, weights=None):
    """The summaries of a table that is cut at some rows."""
    n = row_sample.number_of_rows(X)
    borders = [0, *sorted(cuts), n]
    return [
        summarise(
            plan,
            part_of(X, first, last),
            y[first:last],
            None if weights is None else weights[first:last],
            first=first,
        )
        for first, last in pairwise(borders)
    ]


def merged(plan, parts, rng):
    """The parts merged on a random tree."""
    parts = list(parts)
    while len(parts) > 1:
        one = parts.pop(int(rng.integers(len(parts))))
        other = parts.pop(int(rng.integers(len(parts))))
        parts.insert(int(rng.integers(len(parts) + 1)), merge(plan, one, other))
    return parts[0]


def assert_same_summary(one, other):
    """Refuse summaries that differ in a bit."""
    for name in ("numbers", "kinds", "labels", "weights", "n_seen"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, name)
    assert (one.first, one.signs) == (other.first, other.signs)
    left, right = one.rows, other.rows
    if sp.issparse(left):
        left, right = left.toarray(), right.toarray()
    if isinstance(left, pd.DataFrame):
        pd.testing.assert_frame_equal(left.reset_index(drop=True), right.reset_index(drop=True))
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    elif isinstance(left, pl.DataFrame | pa.Table):
        assert left.equals(right)
    else:
        pd.testing.assert_frame_equal(pd.DataFrame(left), pd.DataFrame(right))


@pytest.fixture
def small_samples(monkeypatch):
    """Let all classifiers learn at most 60 unlabeled and 40 labeled rows."""
    monkeypatch.setattr(graph_propagation, "MOST_ROWS", 60)
    monkeypatch.setattr(seqmed, "MOST_UNLABELED", 60)
    monkeypatch.setattr(seqmed, "MOST_LABELED", 40)


# -- which rows ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.sampled_from([None, None, None, 0, 1, 2, 3]), min_size=1, max_size=80),
    seed=st.integers(0, 2**31 - 2),
    sizes=st.tuples(st.integers(0, 12), st.integers(1, 12)),
    data=st.data(),
)
def test_the_sample_is_that_of_sorted_keys_however_the_table_is_cut(labels, seed, sizes, data):
    n = len(labels)
    weights = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=n, max_size=n))
    )
    cuts = data.draw(st.lists(st.integers(0, n), max_size=6))
    plan = SamplePlan(seed, *sizes, -1, False)
    y = np.array(labels, dtype=object)
    parts = parts_of(plan, np.arange(n)[:, None], y, cuts, weights)
    found = merged(plan, parts, np.random.default_rng(data.draw(st.integers(0, 99))))
    wanted = sampled_numbers(labels, weights, seed, *sizes)
    assert found.numbers.tolist() == wanted
    assert found.rows.ravel().tolist() == wanted
    assert found.y.tolist() == [labels[number] for number in wanted]
    assert found.weights.tolist() == weights[wanted].tolist()


@pytest.mark.parametrize("form", FORMS)
def test_parts_in_any_form_and_order_merge_to_the_bit(form):
    X, y = numbers_and_labels()
    table, rng = FORMS[form](X), np.random.default_rng(1)
    whole = summarise(PLAN, table, y)
    assert 40 < whole.size < 60
    for cuts in ([200], [0, 0, 17, 400], range(10, N_ROWS, 37)):
        assert_same_summary(merged(PLAN, parts_of(PLAN, table, y, cuts), rng), whole)


def test_equal_keys_are_ordered_by_number(monkeypatch):
    monkeypatch.setattr(row_sample, "random_keys", lambda numbers, seed: np.zeros(numbers.size))
    X, y = numbers_and_labels()
    whole = merged(PLAN, parts_of(PLAN, X, y, [50, 300]), np.random.default_rng(0))
    unlabeled = np.flatnonzero(y < 0)[:30]
    assert whole.numbers[whole.kinds == row_sample.MISSING].tolist() == unlabeled.tolist()


def test_every_class_keeps_a_row():
    X = np.zeros((5000, 1))
    y = np.zeros(5000, dtype=int)
    y[[17, 4321]] = 1, 2
    whole = merged(PLAN, parts_of(PLAN, X, y, [1000, 4000]), np.random.default_rng(0))
    assert set(whole.y) == {0, 1, 2}
    assert whole.size <= PLAN.labeled + 2


def test_a_seed_gives_other_rows():
    X, y = numbers_and_labels()
    other = PLAN._replace(seed=6)
    assert summarise(PLAN, X, y).numbers.tolist() != summarise(other, X, y).numbers.tolist()


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ([1, 2], [3, -1], [1, 2, 3, None]),
        ([1, 2], [3.0, np.nan], [1.0, 2.0, 3.0, None]),
        (["a", None], ["long", ""], ["a", None, "long", None]),
        ([True, None], [False, True], [True, None, False, True]),
        ([None, None], ["nan", "a"], [None, None, "nan", "a"]),
        (None, [1, 2], [None, None, 1, 2]),
    ],
)
def test_labels_of_parts_get_one_type(left, right, wanted):
    X = np.zeros((2, 1))
    one, other = summarise(PLAN, X, left), summarise(PLAN, X, right, first=2)
    for found in (merge(PLAN, one, other), merge(PLAN, other, one)):
        assert found.y.tolist() == wanted
        assert [type(each) for each in found.y] == [type(each) for each in wanted]


def test_labels_of_mixed_types_are_refused():
    X = np.zeros((2, 1))
    with pytest.raises(ValueError, match="mixes label types"):
        merge(PLAN, summarise(PLAN, X, [1, 2]), summarise(PLAN, X, ["a", "b"], first=2))


SIGNS = [
    ([[1, -1, 1], [-1, -1, 1], [None, -1, 1]], [-1, 1]),
    ([[1, -1, 1], [-1, -1, -1], [2, -1, 1]], [1, 2]),
    ([[-1, -1], [1, 2], [-1, -1]], [1, 2]),
    ([["1", "-1"], ["-1", "-1"], [None, "1"]], ["-1", "1"]),
]


@pytest.mark.parametrize(("labels", "classes"), SIGNS)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_minus_one_is_a_class_as_in_fit(labels, classes, order):
    """`SeqMED.fit` takes -1 for a class if there is no label but +1 in the whole table."""
    y = [label for part in labels for label in part]
    X = np.arange(len(y), dtype=float)[:, None]
    model, cuts = SeqMED(random_state=0), np.cumsum([len(part) for part in labels])[:-1]
    plan = model._sample_plan()
    parts = [parts_of(plan, X, y, cuts)[place] for place in order]
    found = merge(plan, merge(plan, parts[0], parts[1]), parts[2])
    fitted = SeqMED(random_state=0)._fit_summary(plan, found)
    assert fitted.classes_.tolist() == classes
    assert_same_bits(fitted, SeqMED(random_state=0).fit(X, y))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_minus_one_is_sampled_as_other_classes(share, small_samples):
    """-1 and +1 share the places of labeled rows, whichever is rare."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(N_ROWS) < share, 1, -1)
    X = rng.normal(size=(N_ROWS, 3)) + y[:, None]
    whole, model = SeqMED(random_state=3).fit(X, y), SeqMED(random_state=3)
    plan = model._sample_plan()
    found = merged(plan, parts_of(plan, X, y, [90, 200]), rng)
    assert_same_bits(model._fit_summary(plan, found), whole)
    assert whole.classes_.tolist() == [-1, 1]
    pipelines = [make_stream_pipeline(SeqMED(random_state=3)) for _ in range(2)]
    pipelines[0]._fit_summary(plan, found)
    assert_same_bits(*(each.fit(X, y) if each is pipelines[1] else each for each in pipelines))


# -- learning --------------------------------------------------------------------------------------


CLASSIFIERS = {
    "GraphPropagation": lambda: GraphPropagation(random_state=3),
    "SeqMED": lambda: SeqMED(random_state=3),
    "SeqMED-budget": lambda: SeqMED(budget=20, random_state=3),
    "SeqLapMED": lambda: SeqLapMED(random_state=3),
    "SeqGraphMED": lambda: SeqGraphMED(random_state=3, experts=()),
    "SeqGraphMED-SeqLapMED": lambda: SeqGraphMED(SeqLapMED(), random_state=3, experts=()),
}


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("form", ["array", "fortran", "csr"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_fit_learns_what_merged_parts_give(name, form):
    make, (X, y) = CLASSIFIERS[name], numbers_and_labels()
    table, rng = FORMS[form](X), np.random.default_rng(2)
    weights = np.where(rng.random(N_ROWS) < 0.1, 0.0, rng.uniform(0.5, 2.0, N_ROWS))
    whole = make().fit(table, y, sample_weight=weights)
    for cuts in ([], [7, 7, 200], range(50, N_ROWS, 50)):
        model = make()
        plan = model._sample_plan()
        summary = merged(plan, parts_of(plan, table, y, cuts, weights), rng)
        assert summary.size < N_ROWS / 2
        assert_same_bits(model._fit_summary(plan, summary), whole)


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("form", ["pandas", "polars", "arrow", "records", "columns"])
def test_a_pipeline_samples_the_raw_table(form):
    X, y = numbers_and_labels()
    labels = np.array(["low", "middle", "high", "rare", None], dtype=object)[y]
    table, rng = FORMS[form](X), np.random.default_rng(2)

    def make():
        return make_stream_pipeline(CLASSIFIERS["SeqGraphMED"]())

    whole = make().fit(table, labels)
    assert whole.classes_.tolist() == ["high", "low", "middle", "rare"]
    for cuts in ([], [100], range(30, N_ROWS, 90)):
        model = make()
        plan = model._sample_plan()
        summary = merged(plan, parts_of(plan, table, labels, cuts), rng)
        assert_same_bits(model._fit_summary(plan, summary), whole)
    only = summarise(plan, table, labels)
    sample = make().fit(only.rows, only.y)
    assert_same_bits(sample["table"].encoding_, whole["table"].encoding_)


@pytest.mark.usefixtures("small_samples")
def test_a_table_that_fits_is_learned_whole(monkeypatch):
    """The sample has all rows: the model is that of `fit` without any choice of rows."""
    X, y = numbers_and_labels(60)
    found = [make().fit(X, y) for make in CLASSIFIERS.values()]
    monkeypatch.setattr(
        SamplePlan, "chosen", lambda self, numbers, kinds, labels: np.arange(numbers.size)
    )
    for make, model in zip(CLASSIFIERS.values(), found, strict=True):
        assert_same_bits(make().fit(X, y), model)


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("name", ["GraphPropagation", "SeqGraphMED"])
def test_unlabeled_rows_that_are_left_out_are_counted(name):
    """Later batches enter the graph with the probability of a reservoir of all rows."""
    X, y = numbers_and_labels()
    model = CLASSIFIERS[name]().fit(X, y)
    assert model._state.graph.n_unlabeled == np.count_nonzero(y < 0)
    model.partial_fit(X, np.full(N_ROWS, -1))
    assert model._state.graph.n_unlabeled == np.count_nonzero(y < 0) + N_ROWS
    assert model.n_kept_ == 60


@pytest.mark.usefixtures("small_samples")
def test_a_generator_gives_the_rows_that_its_first_number_gives():
    X, y = numbers_and_labels()
    drawn = int(np.random.RandomState(8).randint(np.iinfo(np.int32).max))
    model = SeqGraphMED(random_state=np.random.RandomState(8), experts=())
    assert model._sample_plan().seed == drawn
    model = SeqGraphMED(random_state=np.random.RandomState(8), experts=())
    other = SeqGraphMED(random_state=np.random.RandomState(8), experts=())
    plan = other._sample_plan()
    other._fit_summary(plan, summarise(plan, X, y))
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), other.predict_proba(X))


@pytest.mark.usefixtures("small_samples")
def test_weights_of_other_steps_are_those_of_the_sample():
    X, y = numbers_and_labels()
    weights = np.random.default_rng(0).uniform(1.0, 2.0, N_ROWS)
    steps = [("scale", StandardScaler()), ("model", GraphPropagation(random_state=0))]
    fitted = StreamPipeline(steps).fit(X, y, scale__sample_weight=weights)
    plan = StreamPipeline(steps)._sample_plan()
    rows = summarise(plan, X, y).numbers
    assert rows.size < N_ROWS
    wanted = StandardScaler().fit(X[rows], sample_weight=weights[rows])
    np.testing.assert_array_equal(fitted["scale"].mean_, wanted.mean_)


def test_other_classifiers_learn_all_rows():
    X, y = numbers_and_labels()
    pipeline = StreamPipeline([("model", SGDClassifier(random_state=0))]).fit(X, y)
    np.testing.assert_array_equal(
        pipeline.decision_function(X), SGDClassifier(random_state=0).fit(X, y).decision_function(X)
    )
    with pytest.raises(TypeError, match="expected a classifier of seqmed"):
        pipeline._sample_plan()


def test_a_precomputed_kernel_has_no_sample(monkeypatch):
    monkeypatch.setattr(seqmed, "MOST_LABELED", 10)
    X, y = numbers_and_labels()
    model = SeqMED(kernel="precomputed", unlabeled=None).fit(X @ X.T, y)
    assert model.posterior_.window.points.shape[0] == N_ROWS
    plan = model._sample_plan()
    with pytest.raises(ValueError, match="kernel='precomputed'"):
        model._fit_summary(plan, summarise(plan, X @ X.T, y))


# -- refused ---------------------------------------------------------------------------------------


def test_a_table_without_rows_is_refused_and_the_model_unchanged():
    X, y = numbers_and_labels()
    model = SeqMED().fit(X, y)
    before = vars(model).copy()
    plan = model._sample_plan()
    with pytest.raises(ValueError, match="no row with a positive sample_weight"):
        model._fit_summary(plan, summarise(plan, X, y, np.zeros(N_ROWS)))
    pipeline = make_stream_pipeline(SeqMED())
    with pytest.raises(ValueError, match="no row with a positive sample_weight"):
        pipeline.fit(frame_of(X), y, sample_weight=np.zeros(N_ROWS))
    assert vars(model) == before


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (np.zeros((2, 2)), np.zeros((2, 3)), "some rows have 2 columns, others have 3"),
        (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"b": [1, 2]}), "column 'a' is in some parts"),
        (pa.table({"a": [1, 2]}), pa.table({"a": ["x", "y"]}), "a column has several types"),
        (pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": ["x", "y"]}), "has several types"),
        (pl.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]}), "are of the types DataFrame"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(left, right, message):
    with pytest.raises(ValueError, match=message):
        merge(PLAN, summarise(PLAN, left, None), summarise(PLAN, right, None, first=2))


def test_labels_for_other_rows_are_refused():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        summarise(PLAN, np.zeros((3, 1)), [1, 2])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make_stream_pipeline(SeqMED()).fit(
            pd.DataFrame({"a": [1.0, 2.0, 3.0]}), [1, 2], sample_weight=[1, 0]
        )


def test_columns_in_another_order_and_categories_of_their_own():
    one = pd.DataFrame({"a": [1, 2], "b": pd.Categorical(["x", "y"])})
    other = pd.DataFrame({"b": pd.Categorical(["w", "x"]), "a": [1.5, np.nan]})
    parts = [summarise(PLAN, one, [0, 1]), summarise(PLAN, other, None, first=2)]
    for found in (merge(PLAN, *parts), merge(PLAN, *parts[::-1])):
        assert found.rows.columns.tolist() == ["a", "b"]
        assert found.rows["b"].tolist() == ["x", "y", "w", "x"]
        assert found.rows["b"].cat.categories.tolist() == ["w", "x", "y"]

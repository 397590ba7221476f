"""TableEncoder: the same features for the same cells, whatever holds them."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from seqmed import TableEncoder, make_stream_pipeline
from seqmed.tables import TableError
from seqmed.tables.kinds import TableWarning
from tests.reference.table_cells import features_of
from tests.support.raw_tables import ALL_STORAGES, STORAGES, mixed_rows

ROWS = mixed_rows()
pytestmark = pytest.mark.filterwarnings("ignore:columns that are not used")


def dense(features):
    return features.toarray() if sp.issparse(features) else features


def without(rows, *names):
    return [{name: cell for name, cell in row.items() if name not in names} for row in rows]


@pytest.fixture(scope="module")
def encoder():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TableEncoder(text_size=128).fit(ROWS)


def test_kinds_of_the_mixed_table(encoder):
    kinds = {each.name: each.kind for each in encoder.encoding_.columns}
    assert kinds == {
        "whole": "numeric", "real": "numeric", "flag": "categorical", "colour": "categorical",
        "code": "hashed", "when": "date", "note": "text", "id": "drop",
    }  # fmt: skip
    assert encoder.needed_ == ("whole", "real", "flag", "colour", "code", "when", "note")
    assert encoder.transform(ROWS).shape == (120, encoder.encoding_.n_features)
    assert len(set(encoder.get_feature_names_out())) == encoder.encoding_.n_features


# -- storage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ALL_STORAGES)
def test_features_do_not_depend_on_storage(encoder, storage):
    later = mixed_rows(40, seed=1)
    expected = dense(encoder.transform(later))
    np.testing.assert_array_equal(dense(encoder.transform(ALL_STORAGES[storage](later))), expected)


@pytest.mark.parametrize("storage", STORAGES)
def test_fitting_does_not_depend_on_storage(encoder, storage):
    other = TableEncoder(text_size=128).fit(STORAGES[storage](ROWS))
    assert other.encoding_.columns == encoder.encoding_.columns
    later = mixed_rows(40, seed=1)
    np.testing.assert_array_equal(dense(other.transform(later)), dense(encoder.transform(later)))


def test_features_are_those_of_the_reference(encoder):
    rows = without(ROWS, "note")
    other = TableEncoder().fit(rows)
    later = [*mixed_rows(40, seed=1), dict.fromkeys(ROWS[0])]
    expected = np.array([features_of(other.encoding_, row) for row in later])
    np.testing.assert_allclose(other.transform(later), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_a_row_does_not_depend_on_the_others(encoder, data):
    rows = mixed_rows(30, seed=2)
    order = data.draw(st.permutations(range(30)))[: data.draw(st.integers(1, 30))]
    names = data.draw(st.permutations(list(ROWS[0])))
    storage = data.draw(st.sampled_from(sorted(ALL_STORAGES)))
    chosen = [{name: rows[place][name] for name in names} for place in order]
    features = dense(encoder.transform(ALL_STORAGES[storage](chosen)))
    np.testing.assert_array_equal(features, dense(encoder.transform(rows))[list(order)])


CELL = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from(["1", "1.0", "NA", "true", "2024-01-01", "a b c d", "nan", "inf", "1e999"]),
)  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(CELL, min_size=2, max_size=12))
def test_any_cells_are_encoded_or_refused_by_name(column):
    table = {"x": column, "y": list(range(len(column)))}
    try:
        fitted = TableEncoder().fit(table)
    except TableError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "'x'" in refusal or "no column" in refusal
        return
    features = dense(fitted.transform(table))
    assert np.isfinite(features).all()
    one_by_one = [dense(fitted.transform({"x": [x], "y": [y]})) for y, x in enumerate(column)]
    np.testing.assert_array_equal(features, np.vstack(one_by_one))


def test_arrays_hold_all_columns_or_those_that_are_used():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(50, 4))
    X[:, 1] = 3.0
    X[::5, 2] = np.nan
    fitted = TableEncoder().fit(X)
    assert fitted.needed_ == ("x0", "x2", "x3")
    expected = fitted.transform({f"x{place}": X[:, place] for place in range(4)})
    for given_rows in (X, X[:, [0, 2, 3]], X.tolist(), X.astype(object), np.asfortranarray(X)):
        np.testing.assert_array_equal(fitted.transform(given_rows), expected)
    np.testing.assert_array_equal(
        fitted.transform(X.astype(np.float32)), fitted.transform(X.astype(np.float32).astype(float))
    )
    with pytest.raises(ValueError, match="X has 2 features, but TableEncoder is expecting 4"):
        fitted.transform(X[:, :2])
    X[3, 0] = np.inf
    with pytest.raises(TableError, match="row 3, column 'x0': inf is not finite or too large"):
        fitted.transform(X)


# -- scikit-learn's transformers ------------------------------------------------------------------


def test_the_same_by_a_column_transformer():
    """Where scikit-learn defines the same thing, the features are the same."""
    frame = pd.DataFrame(without(ROWS, "flag", "when", "note", "id"))
    fitted = TableEncoder().fit(frame)
    encoding = fitted.encoding_
    levels = [*encoding.one_hot[0].levels]
    text = FunctionTransformer(lambda X: X.apply(lambda column: column.str.strip()))
    hashed = FunctionTransformer(
        lambda X: (
            FeatureHasher(256, input_type="string")
            .transform([[each] if isinstance(each, str) else [] for each in X["code"]])
            .toarray()
        )
    )
    one_hot = OneHotEncoder(
        categories=[[*levels, np.nan]], handle_unknown="ignore", sparse_output=False
    )
    numbers = SimpleImputer(strategy="median", add_indicator=True)
    frame = frame.assign(colour=frame["colour"].str.strip().replace("2.50", "2.5"))
    transformer = make_column_transformer(
        (numbers, ["whole", "real"]), (make_pipeline(text, one_hot), ["colour"]), (hashed, ["code"])
    ).fit(frame)
    expected = transformer.transform(frame)
    expected[:, :2] -= encoding.numbers.medians
    expected[:, :2] /= encoding.numbers.scales
    np.testing.assert_array_equal(encoding.numbers.medians, np.nanmedian(
        frame[["whole", "real"]].to_numpy(float), axis=0))  # fmt: skip
    other = 4 + len(levels) + 1
    features = fitted.transform(frame)
    np.testing.assert_array_equal(features[:, other], 0.0)
    np.testing.assert_allclose(np.delete(features, other, axis=1), expected, rtol=1e-14)


def test_rare_levels_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    column = generator.choice(list("abcdefgh"), p=[0.5, 0.25, 0.2] + [0.01] * 5, size=2000)
    later = np.array([*"abcdefgh", "new"])
    fitted = TableEncoder().fit({"x": column})
    least = 0.01 * 2000
    theirs = OneHotEncoder(
        min_frequency=int(least), handle_unknown="infrequent_if_exist", sparse_output=False
    ).fit(column[:, None])
    np.testing.assert_array_equal(fitted.transform({"x": later}), theirs.transform(later[:, None]))


def test_words_are_those_of_scikit_learn():
    texts = [row["note"] for row in ROWS]
    fitted = TableEncoder({"x": "text"}, text_size=4096).fit({"x": texts})
    hashing = HashingVectorizer(
        n_features=4096,
        ngram_range=(1, 2),
        alternate_sign=False,
        norm=None,
        dtype=np.float64,
        token_pattern=r"(?u)\w+|[^\w\s]",
    )
    weights = TfidfTransformer(sublinear_tf=True).fit(hashing.transform(texts))
    later = ["free prize, call now! £9 a day", "", "unknown words only", *texts[:5]]
    expected = weights.transform(hashing.transform(later)).toarray()
    np.testing.assert_allclose(fitted.transform({"x": later}).toarray(), expected, rtol=1e-13)
    counts = TableEncoder({"x": "text"}, text_size=4096, text_weights="counts").fit({"x": texts})
    hashing.set_params(ngram_range=(1, 1))
    np.testing.assert_array_equal(
        counts.transform({"x": later}).toarray(), hashing.transform(later).toarray()
    )


def test_text_beside_other_columns_has_a_similar_length():
    fitted = TableEncoder(text_size=2**12).fit(ROWS)
    features = fitted.transform(ROWS)
    n_dense = fitted.encoding_.n_dense
    lengths = sp.linalg.norm(features[:, :n_dense], axis=1)
    assert 0.5 < np.median(lengths) < 2
    np.testing.assert_allclose(sp.linalg.norm(features[:, n_dense:], axis=1), 1.0)


# -- later tables ---------------------------------------------------------------------------------


def test_later_tables_may_lack_values_and_have_more_columns(encoder):
    empty = {name: [None, None] for name in encoder.needed_}
    assert np.isfinite(dense(encoder.transform(empty))).all()
    for storage in (pd.DataFrame, pa.table, pl.DataFrame):
        np.testing.assert_array_equal(
            dense(encoder.transform(storage(empty))), dense(encoder.transform(empty))
        )
    more = [{**row, "new": object.__name__, "nested": [1, 2]} for row in ROWS[:5]]
    np.testing.assert_array_equal(
        dense(encoder.transform(more)), dense(encoder.transform(ROWS[:5]))
    )
    levels = [{**row, "colour": "violet", "code": "k999"} for row in ROWS[:5]]
    names = encoder.get_feature_names_out().tolist()
    assert dense(encoder.transform(levels))[:, names.index("colour_other")].all()


def test_empty_tables_and_single_rows(encoder):
    width = encoder.encoding_.n_features
    none = {name: [] for name in encoder.needed_}
    for table in (none, pd.DataFrame(none), pa.table(ALL_STORAGES["arrow"](ROWS)).slice(0, 0)):
        assert encoder.transform(table).shape == (0, width)
    assert encoder.transform(ROWS[0:1]).shape == (1, width)
    assert TableEncoder({"x": "numeric"}).fit({"x": [5]}).transform({"x": ["7"]}).tolist() == [
        [2.0]
    ]


def test_booleans_stored_as_numbers():
    fitted = TableEncoder().fit({"x": [True, False, None, True]})
    expected = fitted.transform({"x": [True, False, None]})
    for column in ([1, 0, None], ["1", "0", ""], [1.0, 0.0, np.nan], ["TRUE", "False", "NA"]):
        np.testing.assert_array_equal(fitted.transform({"x": column}), expected)
    np.testing.assert_array_equal(
        TableEncoder({"x": "numeric"}).fit({"x": [True, False]}).transform({"x": ["true", 0]}),
        TableEncoder({"x": "numeric"}).fit({"x": [1, 0]}).transform({"x": [1, "false"]}),
    )


def test_dates_in_the_order_of_the_rows_are_a_clock():
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=place) for place in range(100)]
    names = TableEncoder().fit({"x": days}).get_feature_names_out()
    assert names.tolist() == ["x_week_sin", "x_week_cos", "x_year_sin", "x_year_cos"]
    late = [days[place ^ 3] for place in range(100)]
    assert "x" not in TableEncoder().fit({"x": late}).get_feature_names_out()
    assert "x" not in TableEncoder().fit({"x": days[::-1]}).get_feature_names_out()
    shuffled = np.random.default_rng(0).permutation(days).tolist()
    assert "x" in TableEncoder().fit({"x": shuffled}).get_feature_names_out()


def test_a_pipeline_hashes_texts_to_as_many_features_as_it_is_told():
    texts = {"body": ["a short message", "another one"] * 2}
    for options, size in (({}, 2**18), ({"text_size": 50}, 50)):
        model = make_stream_pipeline(kinds={"body": "text"}, random_state=0, **options)
        model.partial_fit(texts, ["a", "b", "a", "b"])
        assert model["table"].transform(texts).shape == (4, size)
    with pytest.raises(ValueError, match="The 'text_size' parameter"):
        make_stream_pipeline(text_size=0).partial_fit(texts, ["a", "b", "a", "b"])


def test_a_numeric_id_changes_nothing():
    rows = [{**row, "id": place} for place, row in enumerate(without(ROWS, "note"))]
    y = np.array(
        [None if place % 3 else bool(row["flag"]) for place, row in enumerate(rows)], object
    )
    models = [make_stream_pipeline(random_state=0) for _ in range(2)]
    for part in (slice(0, 60), slice(60, 120)):
        models[0].partial_fit(rows[part], y[part])
        models[1].partial_fit(without(rows[part], "id"), y[part])
    np.testing.assert_array_equal(models[0].predict_proba(rows), models[1].predict_proba(rows))


# -- errors ---------------------------------------------------------------------------------------

BAD_CELLS = {
    "text": ("whole", "many", r"row 2, column 'whole': 'many' is not a number"),
    "infinite": ("real", np.inf, r"row 2, column 'real': inf is not finite or too large"),
    "large": ("real", "1e80", r"row 2, column 'real': '1e80' is not finite or too large"),
    "date": ("when", "soon", r"row 2, column 'when': 'soon' is not a date"),
    "number": ("when", 5, r"row 2, column 'when': .*5.* is not a date"),
    "day": ("when", "2024-02-30", r"row 2, column 'when': '2024-02-30' is not a date"),
    "long": ("whole", "x\n" * 5000, r"row 2, column 'whole': '(x\\n)+x?\\?\.\.\. is not a number"),
    "moment": ("whole", dt.datetime(2024, 1, 1), r"row 2, column 'whole': .* is not a number"),
}


@pytest.mark.parametrize("case", BAD_CELLS)
@pytest.mark.parametrize("storage", ["dicts", "pandas objects"])
def test_bad_cells_are_named_with_a_remedy(encoder, case, storage):
    name, cell, message = BAD_CELLS[case]
    rows = copy.deepcopy(ROWS[:5])
    rows[2][name] = cell
    before = pickle.dumps(encoder)
    table = ALL_STORAGES[storage](rows)
    with pytest.raises(TableError, match=message) as refusal:
        encoder.transform(table)
    assert "correct it, add it to missing_values, or choose another kind" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300
    typed, bad = encoder._typed_rows(table)
    assert [*bad] == [2]
    assert bad[2].column == name
    assert typed.column(name)[2].as_py() in (None, np.nan) or np.isnan(
        typed.column(name)[2].as_py()
    )
    assert pickle.dumps(encoder) == before


def test_the_first_bad_cell_of_a_row_is_named(encoder):
    rows = [{**ROWS[0], "when": "z", "real": "y"}]
    assert encoder._typed_rows(rows)[1] == {0: ("not a number", "real", "'y'", None)}


def test_a_failed_fit_changes_nothing():
    fitted = TableEncoder().fit({"x": [1.5, 2.5, 3.0]})
    before = fitted.encoding_
    with pytest.raises(TableError, match=r"row 3, column 'x': 'a' is not a number"):
        fitted.fit({"x": [1.5, 2.5, 3.0, "a"]})
    with pytest.raises(TableError, match=r"no column of the first batch .* can be used"):
        fitted.fit({"x": [None]})
    assert fitted.encoding_ is before
    pipeline = make_stream_pipeline(random_state=0).partial_fit({"x": [1.5, 2.5, 9.0]}, [0, 0, 1])
    state = pickle.dumps(pipeline)
    with pytest.raises(TableError, match="row 0, column 'x': 'a' is not a number"):
        pipeline.partial_fit({"x": ["a"]}, [0])
    assert pickle.dumps(pipeline) == state


def test_the_remedies_work():
    rows = [{"x": place / 3, "y": place % 4} for place in range(20)] + [{"x": "none", "y": 1}]
    with pytest.raises(TableError, match="'none' is not a number"):
        TableEncoder().fit(rows)
    for options in ({"missing_values": ["none"]}, {"kinds": {"x": "categorical"}},
                    {"kinds": {"x": "drop"}}):  # fmt: skip
        assert np.isfinite(TableEncoder(**options).fit_transform(rows)).all()
    days = [dt.datetime(1900, 1, 1), *(dt.datetime(2024, 1, 1 + day) for day in range(9))]
    marked = TableEncoder(missing_values=["1900-01-01"]).fit({"x": days})
    assert "x_missing" in marked.get_feature_names_out()


NOT_TABLES = {
    "none": (None, "X is a NoneType, expected a data frame"),
    "text": ("abc", "X is a str, expected a data frame"),
    "series": (pd.Series([1, 2]), "X is a Series, expected a data frame"),
    "vector": (np.ones(3), "Reshape your data"),
    "cube": (np.ones((2, 2, 2)), r"X is an array of shape \(2, 2, 2\)"),
    "complex": (np.ones((2, 2)) * 1j, "Complex data not supported"),
    "sparse": (sp.csr_array(np.eye(2)), "X is a sparse matrix"),
    "ragged": ([[1, 2], [3]], "rows of different lengths"),
    "lengths": ({"a": [1, 2], "b": [1]}, "columns have different lengths"),
    "scalar": ({"a": 1}, "a column is 1, expected a list"),
    "string": ({"a": "abc"}, "a column is 'abc', expected a list"),
    "lazy": (pl.LazyFrame({"a": [1]}), "X is a LazyFrame, expected a data frame"),
    "twice": (pa.table([pa.array([1]), pa.array([2])], ["a", "a"]), "two columns are named 'a'"),
    "twice in pandas": (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), "same name"),
    "twice as text": ({1: [1], "1": [2]}, "two columns are named '1'"),
    "no rows": ({"a": []}, "the first batch has no rows"),
    "no columns": ({}, r"0 feature\(s\)"),
}


@pytest.mark.parametrize("case", NOT_TABLES)
def test_what_is_no_table_is_refused(case):
    table, message = NOT_TABLES[case]
    with pytest.raises(TableError, match=message):
        TableEncoder().fit(table)


def test_missing_columns_and_similar_names(encoder):
    with pytest.raises(TableError, match="the table has no column 'whole': did you mean 'Whole'"):
        encoder.transform([{**row, "Whole": 1, "whole": 1} for row in without(ROWS, "whole")][:0] or
                          pd.DataFrame(ROWS).rename(columns={"whole": "Whole"}))  # fmt: skip
    with pytest.raises(TableError, match="the table has no column 'note': it has 'whole', 'real'"):
        encoder.transform(without(ROWS, "note"))
    nested = [{**row, "whole": [1]} for row in ROWS]
    with pytest.raises(TableError, match=r"column 'whole': it holds list.*convert or drop it"):
        encoder.transform(nested)


@pytest.mark.parametrize(("options", "message"), [
    ({"kinds": {"x": "number"}}, "kinds has 'x': 'number', expected a column name and one of"),
    ({"kinds": {1: "numeric"}}, "kinds has 1: 'numeric', expected"),
    ({"kinds": {"z": "numeric"}}, "the table has no column 'z'"),
    ({"features": "x"}, "The 'features' parameter"),
    ({"features": ["z"]}, "the table has no column 'z'"),
    ({"missing_values": [1]}, "expected a list of strings"),
    ({"label": "x", "features": ["x"]}, "is the column of labels and cannot be a feature"),
    ({"scale": 3}, "The 'scale' parameter"),
    ({"text_size": 0}, "The 'text_size' parameter"),
    ({"text_weights": "bm25"}, "The 'text_weights' parameter"),
])  # fmt: skip
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(**options).fit({"x": [1, 2], "y": [3.5, 2]})


def test_columns_that_are_left_out_are_named():
    table = {
        "number": list(range(40)), "key": [f"k{place}" for place in range(40)], "same": ["a"] * 40,
        "none": [None] * 40, "list": [[1]] * 40, "bytes": [b"\xff"] * 20 + [b"\xfe"] * 20,
        "x": [place % 7 for place in range(40)],
    }  # fmt: skip
    with pytest.warns(TableWarning) as caught:
        fitted = TableEncoder().fit(table)
    (warning,) = caught
    for name, reason in {
        "number": "a different value in every row", "key": "a different value in every row",
        "same": "all cells are equal", "none": "no cell has a value",
        "list": "lists or other nested values", "bytes": "lists or other nested values",
    }.items():  # fmt: skip
        assert f"'{name}' ({reason})" in str(warning.message)
    assert fitted.needed_ == ("x",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder(dict.fromkeys([*table][:-1], "drop")).fit(table)
        TableEncoder(features=["x"], missing_values=np.array(["?", "!"])).fit(table)
    assert TableEncoder({"number": "numeric"}).fit(table).needed_ == ("number", "x")


def test_the_column_of_labels_is_no_feature():
    fitted = TableEncoder(label="y").fit({"x": [1, 2, 4], "y": [0, 1, 1]})
    assert fitted.feature_names_in_.tolist() == ["x"]
    assert fitted.n_features_in_ == 1
    np.testing.assert_array_equal(fitted.transform({"x": [1]}), fitted.transform([[1]]))


# -- conventions of scikit-learn ------------------------------------------------------------------


def test_conventions(encoder):
    copied = clone(encoder)
    assert copied.get_params() == encoder.get_params()
    assert not hasattr(copied, "needed_")
    assert not hasattr(copied, "feature_names_in_")
    for method in ("transform", "_typed_rows"):
        with pytest.raises(NotFittedError):
            getattr(copied, method)(ROWS)
    with pytest.raises(NotFittedError):
        copied.get_feature_names_out()
    assert repr(TableEncoder({"a": "text"}, scale=False)) == (
        "TableEncoder(kinds={'a': 'text'}, scale=False)"
    )
    assert copied.set_params(scale=False).scale is False
    loaded = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(dense(loaded.transform(ROWS)), dense(encoder.transform(ROWS)))


def test_named_output():
    frame = pd.DataFrame(without(ROWS, "note"), index=range(500, 620))
    fitted = TableEncoder().set_output(transform="pandas").fit(frame)
    features = fitted.transform(frame)
    assert features.index.equals(frame.index)
    assert features.columns.tolist() == fitted.get_feature_names_out().tolist()
    assert isinstance(
        TableEncoder().set_output(transform="polars").fit_transform(frame), pl.DataFrame
    )


def test_names_that_are_no_strings():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=[0, ("a", 1)])
    fitted = TableEncoder().fit(frame)
    assert fitted.needed_ == ("0", "('a', 1)")
    np.testing.assert_array_equal(fitted.transform(frame), fitted.transform(frame.to_numpy()))

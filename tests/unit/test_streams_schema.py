"""Columns, labels, words and scales: decided with the first rows, and the same ever after."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.preprocessing import StandardScaler, normalize

from seqmed import SeqMED
from seqmed.streams import Columns, Schema, Stream, StreamError, StreamWarning, likely_typo
from tests.support.stream_files import joined, make_columns, read, write

COLUMNS = make_columns(23)
MATRIX = np.array([COLUMNS[name] for name in ("x0", "x1", "x2")]).T


def write_csv(path, content):
    path.write_text(content)
    return path


def labels_of(paths, **options):
    return joined(read(paths, **options)[0])[1]


# -- features -------------------------------------------------------------------------------------


def test_columns_of_numbers_are_features_and_others_are_named(tmp_path):
    content = "id,a,city,b,empty,y\n" + "".join(f"{i},1.5,Rome,{i}e0,,p\n" for i in range(5))
    with pytest.warns(StreamWarning) as caught:
        _, stream = read(write_csv(tmp_path / "a.csv", content))
    assert stream.schema.features == ("id", "a", "b")
    assert stream.schema.ignored == ("city", "empty")
    (message,) = [str(each.message) for each in caught]
    assert "'city' (for example 'Rome'), 'empty' (empty)" in message
    assert "--drop" in message
    assert "--text" in message
    columns = Columns(label="y", drop=("id", "city", "empty"))
    assert read(tmp_path / "a.csv", columns=columns)[1].schema.features == ("a", "b")
    columns = Columns(label="y", features=("b", "a"))
    batches, stream = read(tmp_path / "a.csv", columns=columns)
    assert batches[0].X[2].tolist() == [2, 1.5]


def test_a_few_bad_cells_do_not_make_a_column_another_kind(tmp_path):
    content = "a,y\n" + "".join(f"{cell},p\n" for cell in ("1", "oops", "2", "3", ""))
    _, stream = read(write_csv(tmp_path / "a.csv", content), on_error="skip")
    assert stream.schema.features == ("a",)
    assert stream.skipped.total == 2


def test_what_a_column_is_is_told_by_its_first_hundred_rows(tmp_path):
    late = "a,b,y\n" + "1,,p\n" * 100 + "1,2,p\n" * 100
    with pytest.warns(StreamWarning, match=r"'b' \(empty\)"):
        assert read(write_csv(tmp_path / "a.csv", late))[1].schema.features == ("a",)
    early = "a,b,y\n" + "1,,p\n" * 99 + "1,2,p\n" * 100
    _, stream = read(write_csv(tmp_path / "a.csv", early), on_error="skip")
    assert stream.schema.features == ("a", "b")
    assert stream.skipped.total == 99


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(label="z"), r"has no column 'z' \(it has 'x0', 'x1', 'x2', 'y'\)"),
        (Columns(label="Y"), "did you mean 'y'"),
        (Columns(features=("x0", "x9")), "has no column 'x9'"),
        (Columns(drop=("x9",)), "has no column 'x9'"),
        (Columns(text="words"), "has no column 'words'"),
        (Columns(drop=("x0", "x1", "x2", "y")), "has no column of numbers"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_columns_that_are_not_there(tmp_path, kind, columns, message):
    with pytest.raises(StreamError, match=message):
        read(write(tmp_path / f"a.{kind}", COLUMNS), columns=columns)


@pytest.mark.parametrize("option", ["batch_by", "keep"])
def test_other_columns_that_are_not_there(tmp_path, option):
    value = "day" if option == "batch_by" else ["day"]
    with pytest.raises(StreamError, match="has no column 'day'"):
        read(write(tmp_path / "a.csv", COLUMNS), **{option: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "a", "drop": ("a",)}, "'a' is named twice"),
        ({"label": "a", "text": "a"}, "'a' is named twice"),
        ({"features": ("a", "b", "a")}, "'a' is named twice"),
        ({"features": "abc"}, "single name"),
        ({"label_type": "float"}, "label_type='float'"),
        ({"text_method": "magic"}, "text_method='magic'"),
        ({"text_weights": "tfidf"}, "text_weights='tfidf'"),
        ({"text_size": 0}, "text_size=0"),
    ],
)
def test_choices_that_cannot_be(options, message):
    with pytest.raises(StreamError, match=message):
        Columns(**options)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "feather", "npz"])
def test_later_files_must_have_the_columns_of_the_first(tmp_path, kind):
    first = write(tmp_path / "a.csv", COLUMNS)
    less = {name: column for name, column in COLUMNS.items() if name != "x2"}
    with pytest.raises(StreamError, match=rf"b\.{kind} has no column 'x2'"):
        read([first, write(tmp_path / f"b.{kind}", less)])
    if kind != "npz":
        more = COLUMNS | {"x3": COLUMNS["x0"]}
        with pytest.warns(StreamWarning, match=rf"b\.{kind}: .* ignored.*x3"):
            batches, _ = read([first, write(tmp_path / f"b.{kind}", more)])
        assert joined(batches)[0].tobytes() == MATRIX.tobytes() * 2


def test_new_columns_are_named_once_and_known_ones_never(tmp_path):
    for place in range(4):
        extra = {"name": ["p"] * 23} | ({"new": COLUMNS["x0"]} if place else {})
        write(tmp_path / f"{place}.csv", COLUMNS | extra)
    with pytest.warns(StreamWarning) as caught:
        read(tmp_path)
    assert len(caught) == 2


def test_numbers_stored_as_texts_are_refused_in_typed_files(tmp_path):
    first = write(tmp_path / "a.csv", COLUMNS)
    texts = COLUMNS | {"x1": [str(value) for value in COLUMNS["x1"]]}
    with pytest.raises(StreamError, match=r"b\.parquet: column 'x1' holds .*expected numbers"):
        read([first, write(tmp_path / "b.parquet", texts)])
    with pytest.raises(StreamError, match=r"b\.jsonl, line 1: not a number in column 'x1'"):
        read([first, write(tmp_path / "b.jsonl", texts)])


def test_a_file_without_labels_is_refused_or_unlabeled(tmp_path):
    first = write(tmp_path / "a.csv", COLUMNS)
    bare = {name: column for name, column in COLUMNS.items() if name != "y"}
    for kind in ("csv", "parquet"):
        second = write(tmp_path / f"b.{kind}", bare)
        with pytest.raises(StreamError, match=rf"b\.{kind} has no column 'y'"):
            read([first, second])
        assert labels_of([first, second], label_required=False) == COLUMNS["y"] + [None] * 23
    second = write(tmp_path / "b.jsonl", bare)
    with pytest.warns(StreamWarning, match=r"b\.jsonl: the first rows have no 'y'"):
        assert labels_of([first, second]) == COLUMNS["y"] + [None] * 23


def test_columns_that_are_kept_come_as_they_are(tmp_path):
    content = "id,x,t,y\n007,1.50,ä,p\n,2,,q\n"
    path = write_csv(tmp_path / "a.csv", content)
    columns = Columns(label="y", drop=("id", "t"))
    (batch,), _ = read(path, columns=columns, keep=["id", "x", "t", "y"])
    assert batch.kept == {"id": ["007", ""], "x": ["1.50", "2"], "t": ["ä", ""], "y": ["p", "q"]}
    assert batch.X.tolist() == [[1.5], [2]]
    (batch,), _ = read(write(tmp_path / "a.npz", COLUMNS), keep=["x1"])
    assert batch.kept == {"x1": COLUMNS["x1"]}


# -- labels ---------------------------------------------------------------------------------------


def test_a_class_is_the_same_however_it_is_written(tmp_path):
    """1, "1", 1.0 and "1.0", as text, number or float with gaps, in every format."""
    write_csv(tmp_path / "a.csv", "x,y\n1,1\n2,2.0\n3,\n4, 1 \n")
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"x": 1, "y": y}) + "\n" for y in (1, "1", 1.0, "1.0", None, 2))
    )
    for name, y in (("c", [1, 2]), ("d", [1.0, None]), ("e", ["1", "2.0"])):
        parquet.write_table(pa.table({"x": [1.0, 2.0], "y": y}), tmp_path / f"{name}.parquet")
    np.savez(tmp_path / "f.npz", X=[[1.0], [2.0]], y=[1.0, np.nan])
    paths = [
        tmp_path / name for name in ("a.csv", "b.jsonl", "c.parquet", "d.parquet", "e.parquet")
    ]
    expected = [1, 2, None, 1, 1, 1, 1, 1, None, 2, 1, 2, 1, None, 1, 2]
    for batch_size in (1, 100):
        found = labels_of(paths, batch_size=batch_size)
        assert found == expected
        assert {type(label) for label in found} == {int, type(None)}
    as_texts = labels_of(paths, columns=Columns(label="y", label_type="string"))
    assert as_texts == [None if label is None else str(label) for label in expected]


@pytest.mark.parametrize(
    ("cells", "kind", "labels"),
    [
        (["0", "1", "-5", "+7"], "integer", [0, 1, -5, 7]),
        (["true", "False", "TRUE", ""], "boolean", [True, False, True, None]),
        (["spam", "ham", " spam "], "string", ["spam", "ham", "spam"]),
        (["1", "2", "spam"], "string", ["1", "2", "spam"]),
        (["01", "02", "1"], "string", ["01", "02", "1"]),
        (["9223372036854775808", "1"], "string", ["9223372036854775808", "1"]),
        (["9223372036854775807", "1"], "integer", [2**63 - 1, 1]),
        (["true", "0", "1"], "boolean", [True, False, True]),
        (["true", "2"], "string", ["true", "2"]),
        (["1" * 5000, "1"], "string", ["1" * 5000, "1"]),
        (["", "NA", "None"], None, [None, None, None]),
    ],
)
def test_the_type_of_labels_is_that_of_the_first(tmp_path, cells, kind, labels):
    content = "x,y\n" + "".join(f"1,{cell}\n" for cell in cells)
    batches, stream = read(write_csv(tmp_path / "a.csv", content))
    found = joined(batches)[1]
    assert found == labels
    assert [type(label) for label in found] == [type(label) for label in labels]
    assert stream.schema.label_type == kind


def test_labels_that_come_late_decide_the_type_late(tmp_path):
    content = "x,y\n" + "1,\n" * 250 + "1,3\n" + "1,\n" * 50 + "1,4.0\n"
    batches, stream = read(write_csv(tmp_path / "a.csv", content), batch_size=100)
    assert [batch.schema.label_type for batch in batches] == [None, None, "integer", "integer"]
    assert [label for label in joined(batches)[1] if label is not None] == [3, 4]
    assert stream.schema.label_type == "integer"


def test_numbers_with_fractions_are_no_classes(tmp_path):
    path = write_csv(tmp_path / "a.csv", "x,y\n1,0.5\n2,1.5\n")
    with pytest.raises(StreamError, match=r"column 'y' holds numbers like '0.5', expected classes"):
        read(path)
    assert labels_of(path, columns=Columns(label="y", label_type="string")) == ["0.5", "1.5"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_boolean_labels(tmp_path, kind):
    columns = {"x": [1.0, 2.0, 3.0, 4.0], "y": [True, False, None, True]}
    path = write(tmp_path / f"a.{kind}", columns)
    (batch,), _ = read(path)
    assert batch.y.tolist() == [True, False, None, True]
    model = SeqMED().partial_fit(batch.X, batch.y)
    assert model.classes_.tolist() == [False, True]
    zeros = write(tmp_path / f"b.{kind}", columns | {"y": [1, 0, None, 1]})
    assert labels_of([path, zeros]) == [True, False, None, True] * 2
    assert labels_of([zeros, path], batch_size=4) == [1, 0, None, 1] * 2


def test_what_marks_unlabeled_rows(tmp_path):
    cells = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "-1", "none", "?"]
    path = write_csv(tmp_path / "a.csv", "x,y\n" + "".join(f"1,{cell}\n" for cell in cells))
    assert labels_of(path) == [None] * 10 + ["none", "?"]
    columns = Columns(label="y", unlabeled="?")
    assert labels_of(path, columns=columns) == [None] * 9 + ["-1", "none", None]
    assert labels_of(path, columns=Columns(label="y", unlabeled="")) == [None, *cells[1:]]
    for marker in (-1, "-1", "-1.0"):
        path = write_csv(tmp_path / "b.csv", "x,y\n1,-1\n1,2\n1,\n1,-1.0\n")
        assert labels_of(path, columns=Columns(label="y", unlabeled=marker)) == [
            None,
            2,
            None,
            None,
        ]
    frame = {"x": [1.0, 2.0, 3.0], "y": [-1, 0, 1]}
    columns = Columns(label="y", unlabeled=-1)
    assert labels_of(write(tmp_path / "c.parquet", frame), columns=columns) == [None, 0, 1]


@pytest.mark.parametrize(
    ("label", "known", "meant"),
    [
        ("versicolour", ["setosa", "versicolor"], "versicolor"),
        ("setoas", ["setosa"], "setosa"),
        ("setos", ["setosa"], "setosa"),
        ("Setosa ", ["setosa"], "setosa"),
        ("a", ["A"], "A"),
        ("setose", ["setosa"], "setosa"),
        ("cat", ["car"], None),
        ("class1", ["class2"], None),
        ("class12", ["class1"], None),
        ("class21", ["class12"], None),
        ("setosa", ["setosa"], None),
        ("virginica", ["setosa", 3, None], None),
        (12, [11, 13], None),
        ("abcd", ["badc"], None),
    ],
)
def test_classes_that_are_a_slip_apart(label, known, meant):
    assert likely_typo(label, known) == meant


# -- batches by a column --------------------------------------------------------------------------


def test_batches_by_the_value_of_a_column(tmp_path):
    days = [1, 1, 1, 2, 3, 3, 3, 3, 3, 4]
    columns = {"day": days, "x": list(range(10)), "y": ["p"] * 10}
    first = {name: column[:6] for name, column in columns.items()}
    rest = {name: column[6:] for name, column in columns.items()}
    for kind in ("csv", "parquet", "jsonl"):
        paths = [write(tmp_path / f"a.{kind}", first), write(tmp_path / f"b.{kind}", rest)]
        batches, stream = read(paths, batch_by="day")
        assert [batch.X.ravel().tolist() for batch in batches] == [
            [0, 1, 2],
            [3],
            [4, 5, 6, 7, 8],
            [9],
        ]
        assert stream.schema.features == ("x",)
        for place, batch in enumerate(batches, 1):
            options = {"schema": batch.schema, "position": batch.position, "batch_by": "day"}
            found = [each.X.tolist() for each in read(paths, **options)[0]]
            assert found == [each.X.tolist() for each in batches[place:]]
        sizes = [batch.row.size for batch in read(paths, batch_by="day", batch_size=2)[0]]
        assert sizes == [2, 1, 1, 2, 2, 1, 1]
    columns = Columns(label="y", features=("x", "day"))
    assert read(paths, columns=columns, batch_by="day")[0][1].X.tolist() == [[3, 2]]


def test_a_value_that_comes_back_begins_another_batch_and_is_named(tmp_path):
    columns = {"day": ["mon", "mon", "tue", "mon", "tue"], "x": [1, 2, 3, 4, 5], "y": ["p"] * 5}
    with pytest.warns(StreamWarning, match="'mon' occurs again in column 'day'") as caught:
        batches, _ = read(write(tmp_path / "a.csv", columns), batch_by="day")
    assert [batch.row.size for batch in batches] == [2, 1, 1, 1]
    assert len(caught) == 1


# -- scale and words ------------------------------------------------------------------------------


def test_scales_are_frozen_with_the_first_batch(tmp_path):
    columns = COLUMNS | {"x2": [0.1] * 23}  # whose mean is rounded
    path = write(tmp_path / "a.csv", columns)
    batches, stream = read(path, columns=Columns(label="y", scale=True), batch_size=10)
    X = np.array([columns[name] for name in ("x0", "x1", "x2")]).T
    expected = StandardScaler().fit(X[:10]).transform(X)
    assert np.allclose(joined(batches)[0], expected, rtol=1e-12, atol=1e-12)
    assert stream.schema.deviations[2] == 1.0
    rest, _ = read(path, columns=None, schema=batches[0].schema, position=batches[0].position)
    assert joined(rest)[0].tobytes() == joined(batches[1:])[0].tobytes()
    with pytest.raises(StreamError, match="first batch of one row"):
        read(path, columns=Columns(label="y", scale=True), batch_size=1)


WORDS = ["the cat sat", "The dog, the dog!", "", "a größe 日本語 cat", "new words only"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("weights", ["unit", "counts"])
def test_words_are_features(tmp_path, kind, weights):
    columns = {"words": WORDS, "x": [1.0, 2.0, 3.0, 4.0, 5.0], "y": ["p", "q", "p", "q", None]}
    path = write(tmp_path / f"a.{kind}", columns)
    options = {"label": "y", "text": "words", "text_weights": weights}
    batches, _ = read(path, columns=Columns(**options, text_size=64), batch_size=3)
    counts = HashingVectorizer(n_features=64, alternate_sign=False, norm=None).transform(WORDS)
    check_words(batches, columns["x"], counts, weights)
    choice = Columns(**options, text_method="vocabulary")
    batches, stream = read(path, columns=choice, batch_size=3)
    counter = CountVectorizer().fit(WORDS[:3])
    check_words(batches, columns["x"], counter.transform(WORDS), weights)
    assert stream.schema.vocabulary == ("cat", "dog", "sat", "the")
    assert stream.schema.n_features == 5
    rest, _ = read(
        path, columns=choice, schema=stored(batches[0].schema), position=batches[0].position
    )
    assert (rest[0].X != batches[1].X).nnz == 0
    SeqMED(kernel="linear").partial_fit(batches[0].X, batches[0].y)


def check_words(batches, numbers, counts, weights):
    found = sp.vstack([batch.X for batch in batches])
    words = normalize(counts.astype(float)) if weights == "unit" else counts
    expected = sp.hstack([np.array(numbers)[:, None], words])
    assert all(batch.X.format == "csr" for batch in batches)
    assert abs(found - expected).max() < 1e-15


def test_words_alone(tmp_path):
    path = write(tmp_path / "a.csv", {"words": WORDS, "y": ["p", "q"] * 2 + ["p"]})
    batches, stream = read(
        path, columns=Columns(label="y", text="words", text_size=2**10, scale=True)
    )
    assert batches[0].X.shape == (5, 1024) == (5, stream.schema.n_features)
    path = write(tmp_path / "b.csv", {"words": ["", "", "a b"], "y": ["p"] * 3})
    columns = Columns(label="y", text="words", text_method="vocabulary")
    with pytest.raises(StreamError, match="'words' holds no words in the first batch of 2 rows"):
        read(path, columns=columns, batch_size=2)


# -- schemas as data ------------------------------------------------------------------------------


def stored(schema):
    """A schema as it comes back from a file: plain values by way of JSON, and arrays."""
    data = schema.to_dict()
    arrays = {name: data.pop(name) for name in ("means", "deviations")}
    return Schema.from_dict(json.loads(json.dumps(data)) | arrays)


def full_schema(tmp_path):
    columns = Columns(
        label="y", drop=("x2",), text="words", text_method="vocabulary", scale=True, unlabeled="?"
    )
    path = write(tmp_path / "a.jsonl", make_columns(5) | {"words": WORDS})
    return read(path, columns=columns)[1].schema


def test_a_schema_comes_back_as_it_was(tmp_path):
    schema = full_schema(tmp_path)
    again = stored(schema)
    assert again.columns == schema.columns
    assert again.features == ("x0", "x1")
    assert again.vocabulary == schema.vocabulary
    assert again.means.tobytes() == schema.means.tobytes()
    assert json.dumps(stored(again).to_dict(), default=list) == json.dumps(
        schema.to_dict(), default=list
    )


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("features", []), ("features", ["x0", "x0"]), ("features", ["x0", 1]), ("features", "x0"),
        ("features", ["x0", "y"]), ("features", ["x0", "words"]), ("features", ["x0", "x2"]),
        ("features", ["x0"]), ("label_type", "float"), ("label_type", 1),
        ("means", None), ("means", np.zeros(3)), ("means", np.zeros(2, dtype=np.float32)),
        ("means", np.array([np.nan, 0.0])), ("means", [0.0, 0.0]), ("deviations", np.zeros(2)),
        ("deviations", np.array([-1.0, 1.0])), ("deviations", np.array([np.inf, 1.0])),
        ("deviations", None),
        ("vocabulary", []), ("vocabulary", ["a", "a"]), ("vocabulary", [1]), ("ignored", None),
        ("ignored", ["x0"]), ("columns", None), ("columns", {}), ("more", 1),
    ],
)  # fmt: skip
def test_a_damaged_schema_is_refused(tmp_path, place, value):
    data = full_schema(tmp_path).to_dict()
    data[place] = value
    with pytest.raises(StreamError, match=r"the stored (schema|columns) has"):
        Schema.from_dict(data)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("label", 1), ("label", "x0"), ("features", "x0"), ("drop", None), ("drop", ["x0"]),
        ("text", 3),
        ("unlabeled", 1), ("label_type", "float"), ("scale", 1), ("scale", False), ("text_size", 0),
        ("text_size", True), ("text_size", 2), ("text_method", "hashing"), ("text_method", None),
        ("text_weights", "x"), ("text", None), ("features", ["x1", "x0"]),
    ],
)  # fmt: skip
def test_damaged_choices_are_refused(tmp_path, place, value):
    data = full_schema(tmp_path).to_dict()
    data["columns"][place] = value
    with pytest.raises(StreamError):
        Schema.from_dict(data)


@pytest.mark.parametrize("data", [None, [], {}, {"columns": 1}])
def test_what_is_no_schema_is_refused(data):
    with pytest.raises(StreamError, match="the stored schema"):
        Schema.from_dict(data)


def test_choices_may_be_repeated_but_not_changed(tmp_path):
    schema = full_schema(tmp_path)
    path = tmp_path / "a.jsonl"
    for columns in (schema.columns, Columns(label="y"), Columns(scale=True, drop=("x2",)), None):
        assert Stream(path, columns, schema=schema).schema is schema
    for columns, option in (
        (Columns(label="x0"), "--label"),
        (Columns(features=("x0",)), "--features"),
        (Columns(text_size=5), "--text-size"),
        (Columns(unlabeled="-1"), "--unlabeled"),
    ):
        with pytest.raises(
            StreamError, match=f"the model was made with.* {option}.*, or start a new model"
        ):
            Stream(path, columns, schema=schema)

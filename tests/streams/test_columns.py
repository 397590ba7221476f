"""Columns and labels: decided with the first batch, and the same ever after."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from seqmed import SeqMED
from seqmed.streams import (
    EncoderCheck,
    LabelColumn,
    Stream,
    StreamError,
    StreamWarning,
    delimited,
)
from seqmed.streams import stream as stream_module
from seqmed.streams.jsonlines import JsonLines
from seqmed.tables import TableEncoder, TableError, cells, kinds
from seqmed.tables.cells import cell_text
from seqmed.tables.messages import likely_typo
from tests.support.stream_files import (
    FORMATS,
    NumberCheck,
    joined,
    make_columns,
    read,
    same_rows,
    write,
)

COLUMNS = make_columns(23)
MATRIX = np.array([COLUMNS[name] for name in ("x0", "x1", "x2")]).T


def write_csv(path, content):
    path.write_text(content)
    return path


def labels_of(paths, **options):
    return joined(read(paths, **options)[0])[1]


# -- raw columns ----------------------------------------------------------------------------------


def test_cells_of_texts_are_texts_and_others_have_their_types(tmp_path):
    path = write_csv(tmp_path / "a.csv", "n,t,y\n1, x ,p\n1.50,NA,q\n,,p\n")
    (batch,) = Stream(path, label=LabelColumn("y"))
    assert batch.table.to_pydict() == {"n": ["1", "1.50", None], "t": [" x ", "NA", None]}
    lines = [{"n": 1, "t": "2020-01-01", "b": True}, {"n": 2**60 + 1, "t": None, "b": False}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (batch,) = Stream(tmp_path / "a.jsonl")
    assert batch.table.to_pylist() == lines
    assert batch.y is None
    table = pa.table({"day": pa.array([1, None], pa.date32()), "n": pa.array([1, 2], pa.int8())})
    parquet.write_table(table, tmp_path / "a.parquet")
    (batch,) = Stream(tmp_path / "a.parquet")
    assert batch.table == table


@pytest.mark.parametrize("n", [3, 3000])
def test_json_cells_of_several_types_become_texts(tmp_path, n):
    values = [1, 1.5, "x", True, None, 10**30] + ["y"] * n
    lines = "".join(json.dumps({"a": value, "b": 2**53 + 1}) + "\n" for value in values)
    (tmp_path / "a.jsonl").write_text(lines)
    batches = list(Stream(tmp_path / "a.jsonl", batch_size=10_000))
    expected = ["1", "1.5", "x", "true", None, str(10**30)] + ["y"] * n
    assert batches[0].table.column("a").to_pylist() == expected
    assert set(batches[0].table.column("b").to_pylist()) == {2**53 + 1}


def test_json_rows_read_together_and_alone_are_the_same(tmp_path, monkeypatch):
    """Types that change from block to block, large integers, dates, missing keys, duplicates."""
    generator = np.random.default_rng(0)
    values = ["1", "2.5", '"x"', '"2020-01-01"', "null", "true", str(2**53 + 1), str(2**70), "-0",
              "NaN", '"\\u00e4"', '"\\ud83d\\ude00"', '"ü"', "1e3",
              "123456789012345678.0"]  # fmt: skip
    strange = np.repeat(["", "1", "2"], 100)
    lines = []
    for kind in strange:
        chosen = generator.choice(values) if kind == "2" else ("1" if kind else "0.5")
        lines.append(f'{{"a": {chosen}, "b": "t", "y": 1}}')
    lines[7] = '{"a": 1, "a": 2, "b": "t"}'
    lines[9] = '{"b": "t", "c": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")

    def cells(block):
        monkeypatch.setattr("seqmed.streams.inputs.BLOCK", block)
        batches = list(Stream(tmp_path / "a.jsonl", batch_size=1))
        rows = [row for batch in batches for row in batch.table.to_pylist()]
        return [
            {name: cell_text(value) for name, value in row.items() if name != "c"} for row in rows
        ]

    expected = cells(2**20)
    assert all(each == expected for each in map(cells, (64, 500, 3000)))
    monkeypatch.setattr("seqmed.streams.jsonlines.JsonLines._read_at_once", lambda *_: None)
    assert cells(500) == expected


def test_json_rows_of_known_types_are_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("seqmed.streams.inputs.BLOCK", 500)
    rows = [{"a": row + 0.5, "empty": None, "t": f"é {row}", "b": row > 9} for row in range(99)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    method, pieces = JsonLines._read_each, []

    def read_each(self, piece, wanted):
        pieces.append(piece)
        return method(self, piece, wanted)

    monkeypatch.setattr(JsonLines, "_read_each", read_each)
    batches = list(Stream(tmp_path / "a.jsonl", batch_size=30))
    assert [row for batch in batches for row in batch.table.to_pylist()] == rows
    assert len(pieces) == 1


# -- the first batch ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("block", [64, 2**20])
def test_the_first_batch_has_enough_rows_across_files(tmp_path, monkeypatch, kind, block):
    monkeypatch.setattr("seqmed.streams.inputs.BLOCK", block)
    for place in range(5):
        part = {name: column[4 * place : 4 * place + 4] for name, column in COLUMNS.items()}
        write(tmp_path / f"{place}.{kind}", part)
    batches, stream = read(tmp_path, batch_size=3, first_batch_size=10)
    assert [batch.row.size for batch in batches] == [10, 3, 3, 3, 1]
    assert [table.num_rows for table in stream.check.decided] == [10]
    assert stream.check.decided[0].column_names == ["x0", "x1", "x2"]
    assert joined(batches)[0].tobytes() == MATRIX[:20].tobytes()
    for place, batch in enumerate(batches, 1):
        options = {"label": batch.label, "check": batch.check, "position": batch.position}
        rest, later = read(tmp_path, batch_size=3, first_batch_size=10, **options)
        assert same_rows(rest, batches[place:])
        assert later.position == stream.position


def test_the_first_batch_is_opened_parsed_and_typed_once(tmp_path, monkeypatch):
    """Kinds are inferred once, and no cell is converted again by `fit` or `transform`."""
    rows = "".join(f"{row / 7},w{row % 3},31.12.{2000 + row % 20},{row % 2}\n" for row in range(40))
    path = write_csv(tmp_path / "a.csv", "a,t,d,y\n" + rows + "bad,w1,31.12.2000,0\n")
    counts = Counter()

    def counted(owner, name):
        real = getattr(owner, name)

        def call(*arguments, **named):
            counts[name] += 1
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    counted(stream_module, "opened")
    counted(delimited.Delimited, "cells")
    counted(kinds, "infer")
    counted(cells, "parsed_numbers")
    counted(kinds, "date_cells")
    encoder = TableEncoder(label="y")
    stream = Stream(
        path, label=LabelColumn("y"), check=EncoderCheck(lambda: encoder), on_error="skip",
        label_required=True,
    )  # fmt: skip
    (batch,) = stream
    features = encoder.fit(batch.table).transform(batch.table)
    # the numbers of each of three columns are parsed to infer their kinds, and of one to be typed
    assert counts == {
        "opened": 1, "cells": 1, "infer": 3, "parsed_numbers": 4, "date_cells": 1,
    }  # fmt: skip
    assert stream.skipped.counts == {"not a number": 1}
    raw = pa.Table.from_pylist(
        [dict(zip("atd", row.split(","), strict=False)) for row in rows.split()]
    )
    expected = TableEncoder().fit(raw)
    assert encoder.encoding_.columns == expected.encoding_.columns
    np.testing.assert_array_equal(features, expected.transform(raw))


def test_a_table_is_typed_for_one_encoder_only(tmp_path):
    """Another encoder, or one with other parameters, converts the cells itself."""
    rows = [{"a": str(row % 7), "t": f"w{row % 3}"} for row in range(40)]
    first = TableEncoder()
    table, _ = first._typed_rows(rows, first._decided_kinds(rows))
    assert table.schema.field("a").type == pa.float64()
    for other in (TableEncoder({"a": "categorical"}), TableEncoder(features=["t"])):
        names = other.fit(table).get_feature_names_out().tolist()
        assert names == other.fit(rows).get_feature_names_out().tolist()
    changed = table.set_column(0, "a", pa.array(["x"] * 40))
    with pytest.raises(TableError, match="'x' is not a number"):
        first.fit(table).transform(changed)


def test_a_row_with_bad_cells_in_used_and_other_columns_is_bad(tmp_path):
    """The first batch is read before its columns are chosen: no fault hides another."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"t,a,y\n" + b"k,1,p\n" * 40 + b"\xff,\xff,p\n\xff,2,q\n")
    batches, stream = read(path, on_error="skip")
    assert joined(batches)[3] == [*range(1, 41), 42]
    (bad,) = stream.skipped.examples["invalid UTF-8"]
    assert (bad.fault.column, bad.fault.line) == ("a", 42)


def test_a_larger_batch_is_not_made_smaller_and_few_rows_are_enough(tmp_path):
    path = write(tmp_path / "a.csv", COLUMNS)
    sizes = [batch.row.size for batch in read(path, batch_size=15, first_batch_size=4)[0]]
    assert sizes == [15, 8]
    assert [batch.row.size for batch in read(path, first_batch_size=1000)[0]] == [23]


def test_the_first_batch_has_whole_groups(tmp_path):
    days = [1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 4, 5]
    path = write(tmp_path / "a.csv", {"day": days, "x": list(range(12)), "y": ["p"] * 12})
    for first, sizes in ((4, [4, 5, 2, 1]), (5, [9, 2, 1]), (1, [3, 1, 5, 2, 1]), (50, [12])):
        batches, stream = read(path, batch_by="day", first_batch_size=first)
        assert [batch.row.size for batch in batches] == sizes
        assert stream.check.decided[0].num_rows == sizes[0]


def test_rows_after_the_first_batch_are_checked_by_the_chosen_columns_only(tmp_path):
    """As after an interruption, when the columns are known from the beginning."""
    rows = [b"1,x,p"] * 5 + [b"2,\xff,q"] * 5 + [b"\xff,x,q"]
    (tmp_path / "a.csv").write_bytes(b"a,t,y\n" + b"\n".join(rows) + b"\n")
    batches, stream = read(tmp_path / "a.csv", batch_size=2, on_error="skip")
    assert joined(batches)[3] == list(range(1, 11))
    assert stream.skipped.counts == {"invalid UTF-8": 1}


def test_a_column_of_lists_is_left_out_unless_it_is_needed(tmp_path):
    table = pa.table({"a": [1.0, 2.0], "list": [[1], [2, 3]], "y": [0, 1]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.warns(StreamWarning, match="lists or records are not used: 'list'"):
        batches, _ = read(tmp_path / "a.parquet")
    assert batches[0].table.column_names == ["a"]
    with pytest.raises(StreamError, match="'list' holds lists or records"):
        read(tmp_path / "a.parquet", features=["list"])
    (tmp_path / "a.jsonl").write_text('{"a": 1, "list": [1], "y": 0}\n{"a": 2, "y": 1}\n')
    assert read(tmp_path / "a.jsonl")[0][0].X.tolist() == [[1], [2]]
    with pytest.raises(StreamError, match="not a single value in column 'list'"):
        read(tmp_path / "a.jsonl", features=["list"])


# -- columns of several files ---------------------------------------------------------------------


def test_a_few_bad_cells_do_not_make_a_column_another_kind(tmp_path):
    content = "a,y\n" + "".join(f"{cell},p\n" for cell in ("1", "oops", "2", "3", ""))
    _, stream = read(write_csv(tmp_path / "a.csv", content), on_error="skip")
    assert stream.check.features == ("a",)
    assert stream.skipped.total == 1


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_columns_that_are_not_there(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", COLUMNS)
    with pytest.raises(StreamError, match=r"has no column 'q' \(it has 'x0', 'x1', 'x2', 'y'\)"):
        read(path, features=("x0", "q"))
    with pytest.raises(StreamError, match="has no column 'X0': did you mean 'x0'"):
        read(path, features=("X0",))
    with pytest.raises(StreamError, match="has no column 'Y': did you mean 'y'"):
        read(path, label="Y")


@pytest.mark.parametrize("option", ["batch_by", "keep"])
def test_other_columns_that_are_not_there(tmp_path, option):
    value = "day" if option == "batch_by" else ["day"]
    with pytest.raises(StreamError, match="has no column 'day'"):
        read(write(tmp_path / "a.csv", COLUMNS), **{option: value})


@pytest.mark.parametrize("batch_size", [5, 500])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "feather"])
def test_later_files_must_have_the_columns_of_the_first(tmp_path, kind, batch_size):
    first = write(tmp_path / "a.csv", COLUMNS)
    less = {name: column for name, column in COLUMNS.items() if name != "x2"}
    if kind == "jsonl":
        with pytest.warns(StreamWarning, match="the first rows have no 'x2'"):
            batches, _ = read([first, write(tmp_path / "b.jsonl", less)], batch_size=batch_size)
        assert np.isnan(joined(batches)[0][23:, 2]).all()
    else:
        with pytest.raises(StreamError, match=rf"b\.{kind} has no column 'x2'"):
            read([first, write(tmp_path / f"b.{kind}", less)], batch_size=batch_size)
    more = COLUMNS | {"x3": COLUMNS["x0"]}
    if kind != "jsonl":
        with pytest.warns(StreamWarning, match=rf"b\.{kind}: .* ignored.*x3"):
            batches, _ = read([first, write(tmp_path / f"b.{kind}", more)], batch_size=batch_size)
        assert joined(batches)[0].tobytes() == MATRIX.tobytes() * 2


def test_new_columns_are_named_once_and_known_ones_never(tmp_path):
    for place in range(4):
        extra = {"name": ["p"] * 23} | ({"new": COLUMNS["x0"]} if place else {})
        write(tmp_path / f"{place}.csv", COLUMNS | extra)
    with pytest.warns(StreamWarning, match="'new'") as caught:
        read(tmp_path)
    assert len(caught) == 1


def test_numbers_stored_as_texts_are_numbers(tmp_path):
    first = write(tmp_path / "a.csv", COLUMNS)
    texts = COLUMNS | {"x1": [str(value) for value in COLUMNS["x1"]]}
    for kind in ("parquet", "jsonl"):
        batches, _ = read([first, write(tmp_path / f"b.{kind}", texts)])
        assert joined(batches)[0].tobytes() == MATRIX.tobytes() * 2


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_file_without_the_label_column_is_unlabeled(tmp_path, kind):
    first = write(tmp_path / "a.csv", COLUMNS)
    bare = {name: column for name, column in COLUMNS.items() if name != "y"}
    second = write(tmp_path / f"b.{kind}", bare)
    for paths, labels in (
        ([first, second], COLUMNS["y"] + [None] * 23),
        ([second, first], [None] * 23 + COLUMNS["y"]),
        ([second], [None] * 23),
    ):
        for batch_size in (7, 500):
            with pytest.warns(StreamWarning, match=rf"b\.{kind}: no column 'y'.*unlabeled"):
                assert labels_of(paths, batch_size=batch_size) == labels


def test_a_misspelled_label_column_is_not_taken_for_a_missing_one(tmp_path):
    path = write_csv(tmp_path / "a.csv", "x,Class,sub_class\n1,p,q\n")
    with pytest.raises(StreamError, match="has no column 'class': did you mean 'Class'"):
        read(path, label="class")
    first = write_csv(tmp_path / "b.csv", "x,classes\n1,q\n")
    with pytest.raises(StreamError, match="has no column 'class': did you mean 'classes'"):
        read(first, label="class")
    labeled = write_csv(tmp_path / "c.csv", "x,class,classes\n1,p,q\n")
    with pytest.warns(StreamWarning, match="no column 'class'"):  # 'classes' is another column
        batches, _ = read([labeled, first], label="class", check=NumberCheck(["x"]))
    assert joined(batches)[1] == ["p", None]


def test_a_single_column_that_has_the_name_of_the_labels_in_it_was_not_separated(tmp_path):
    path = write_csv(tmp_path / "a.csv", "x class size\n1 p 3\n2 q 4\n")
    with pytest.raises(StreamError, match=r"the single column 'x class size': choose .* with sep"):
        read(path, label="class")


def test_a_required_label_column_must_be_in_the_first_file(tmp_path):
    bare = write_csv(tmp_path / "a.csv", "x\n1\n")
    labeled = write_csv(tmp_path / "b.csv", "x,class\n1,p\n")
    with pytest.raises(StreamError, match=r"a\.csv has no column 'class'.*label_required=False"):
        read([bare, labeled], label="class", label_required=True)
    with pytest.warns(StreamWarning, match="no column 'class'"):
        batches, _ = read([labeled, bare], label="class", label_required=True)
    assert joined(batches)[1] == ["p", None]


def test_columns_that_are_kept_come_as_they_are(tmp_path):
    content = "id,x,t,y\n007,1.50,ä,p\n,2,,q\n"
    path = write_csv(tmp_path / "a.csv", content)
    (batch,), _ = read(path, features=["x"], keep=["id", "x", "t", "y"])
    assert batch.kept == {
        "id": ["007", None],
        "x": ["1.50", "2"],
        "t": ["ä", None],
        "y": ["p", "q"],
    }
    assert batch.X.tolist() == [[1.5], [2]]
    (batch,), _ = read(write(tmp_path / "a.parquet", COLUMNS), keep=["x1"])
    assert batch.kept == {"x1": COLUMNS["x1"]}


# -- labels ---------------------------------------------------------------------------------------


def test_missing_words_are_those_of_cells_but_signs_may_be_classes(tmp_path):
    words = [word for word in cells.MISSING_WORDS if word]
    rows = "".join(f"1,{word}\n" for word in (*words, *cells.MISSING_SIGNS))
    path = write_csv(tmp_path / "a.csv", "x,y\n" + rows)
    assert labels_of(path) == [None] * len(words) + ["?", "-", "."]


def test_a_class_is_the_same_however_it_is_written(tmp_path):
    """1, "1", 1.0 and "1.0", as text, number or float with gaps, in every format."""
    write_csv(tmp_path / "a.csv", "x,y\n1,1\n2,2.0\n3,\n4, 1 \n")
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"x": 1, "y": y}) + "\n" for y in (1, "1", 1.0, "1.0", None, 2))
    )
    for name, y in (("c", [1, 2]), ("d", [1.0, None]), ("e", ["1", "2.0"])):
        parquet.write_table(pa.table({"x": [1.0, 2.0], "y": y}), tmp_path / f"{name}.parquet")
    paths = [
        tmp_path / name for name in ("a.csv", "b.jsonl", "c.parquet", "d.parquet", "e.parquet")
    ]
    expected = [1, 2, None, 1, 1, 1, 1, 1, None, 2, 1, 2, 1, None, 1, 2]
    for batch_size in (1, 100):
        found = labels_of(paths, batch_size=batch_size)
        assert found == expected
        assert {type(label) for label in found} == {int, type(None)}
    as_texts = labels_of(paths, label_type="string")
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
    assert stream.label.type == kind


def test_labels_that_come_late_decide_the_type_late(tmp_path):
    content = "x,y\n" + "1,\n" * 250 + "1,3\n" + "1,\n" * 50 + "1,4.0\n"
    batches, stream = read(write_csv(tmp_path / "a.csv", content), batch_size=100)
    assert [batch.label.type for batch in batches] == [None, None, "integer", "integer"]
    assert [label for label in joined(batches)[1] if label is not None] == [3, 4]
    assert stream.label.type == "integer"


def test_numbers_with_fractions_are_no_classes(tmp_path):
    path = write_csv(tmp_path / "a.csv", "x,y\n1,0.5\n2,1.5\n")
    with pytest.raises(StreamError, match=r"column 'y' holds numbers like '0.5', expected classes"):
        read(path)
    assert labels_of(path, label_type="string") == ["0.5", "1.5"]


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
    assert labels_of(path, unlabeled="?") == [None] * 9 + ["-1", "none", None]
    assert labels_of(path, unlabeled="") == [None, *cells[1:]]
    for marker in (-1, "-1", "-1.0"):
        path = write_csv(tmp_path / "b.csv", "x,y\n1,-1\n1,2\n1,\n1,-1.0\n")
        assert labels_of(path, unlabeled=marker) == [
            None,
            2,
            None,
            None,
        ]
    frame = {"x": [1.0, 2.0, 3.0], "y": [-1, 0, 1]}
    assert labels_of(write(tmp_path / "c.parquet", frame), unlabeled=-1) == [None, 0, 1]


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
        assert stream.check.features == ("x",)
        for place, batch in enumerate(batches, 1):
            options = {"label": batch.label, "check": batch.check, "position": batch.position}
            options["batch_by"] = "day"
            found = [each.X.tolist() for each in read(paths, **options)[0]]
            assert found == [each.X.tolist() for each in batches[place:]]
        sizes = [batch.row.size for batch in read(paths, batch_by="day", batch_size=2)[0]]
        assert sizes == [2, 1, 1, 2, 2, 1, 1]
    assert read(paths, features=("x", "day"), batch_by="day")[0][1].X.tolist() == [[3, 2]]


def test_a_value_that_comes_back_begins_another_batch(tmp_path):
    columns = {"day": ["mon", "mon", "tue", "mon", None], "x": [1, 2, 3, 4, 5], "y": ["p"] * 5}
    batches, _ = read(write(tmp_path / "a.csv", columns), batch_by="day")
    assert [batch.row.size for batch in batches] == [2, 1, 1, 1]


# -- saved label columns --------------------------------------------------------------------------


def test_a_label_column_comes_back_as_it_was():
    for column in (LabelColumn("y"), LabelColumn("y", "?", "string"), LabelColumn("y", -1)):
        assert LabelColumn.from_dict(json.loads(json.dumps(column.to_dict()))) == column


@pytest.mark.parametrize(
    "data",
    [
        None, {}, [], {"name": "y"}, {"name": 1, "unlabeled": None, "type": None},
        {"name": "y", "unlabeled": None, "type": "float"},
        {"name": "y", "unlabeled": 3.5, "type": None, "more": 1},
    ],
)  # fmt: skip
def test_what_is_no_label_column_is_refused(data):
    with pytest.raises(StreamError, match="the stored label column"):
        LabelColumn.from_dict(data)


def test_a_label_column_may_be_repeated_but_not_changed():
    column = LabelColumn("y", "?", "string")
    for same in (column, LabelColumn("y"), LabelColumn("y", "?")):
        column.check_same(same)
    for other, option in (
        (LabelColumn("z"), "--label"),
        (LabelColumn("y", "-1"), "--unlabeled"),
        (LabelColumn("y", None, "integer"), "--label-type"),
    ):
        with pytest.raises(StreamError, match=f"the model was made with {option}.*a new model"):
            column.check_same(other)
    with pytest.raises(StreamError, match="without --unlabeled, which cannot be added"):
        LabelColumn("y").check_same(LabelColumn("y", "?"))
    with pytest.raises(StreamError, match="the label type is 'float'"):
        LabelColumn("y", None, "float")

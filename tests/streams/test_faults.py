"""Bad rows: found, named by their line, and passed over alone."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from seqmed.streams import StreamError, inputs
from tests.support.stream_files import (
    BINARIES,
    joined,
    make_columns,
    open_stream,
    read,
    write,
)

GOOD = '1,2,p\n3,"4",q\n'

# a bad row, the reason, the column, what is shown of it
CSV_ROWS = [
    (b"x,5,p\n", "not a number", "a", "'x'"),
    (b"5,0x10,p\n", "not a number", "b", "'0x10'"),
    (b"5,1_000,p\n", "not a number", "b", "'1_000'"),
    (b'5,"1,5",p\n', "not a number", "b", "'1,5'"),
    (b"inf,5,p\n", "not a number", "a", "'inf'"),
    (b"5,-1e400,p\n", "not finite or too large", "b", "'-1e400'"),
    (b"5,1e71,p\n", "not finite or too large", "b", "'1e71'"),
    (b"5,6\n", "wrong number of fields", None, "2 for 3 columns: '5,6\\n'"),
    (b"5,6,p,q\n", "wrong number of fields", None, "4 for 3 columns: '5,6,p,q\\n'"),
    (b"   \n", "wrong number of fields", None, "1 for 3 columns: '   \\n'"),
    (b"5,6,\xff\xfe\n", "invalid UTF-8", "y", "'\ufffd\ufffd'"),
    (b"\xff,6,p\n", "invalid UTF-8", "a", "'\ufffd'"),
    (b'5,6,"p"q\n', "broken quotes or line end", None, "'5,6,\"p\"q\\n'"),
    (b"5,6\r,p\n", "broken quotes or line end", None, "'5,6\\r,p\\n'"),
    (b"5,6," + b"z" * 99 + b",7\n", "wrong number of fields", None,
     f"4 for 3 columns: '5,6,{'z' * 35}..."),
]  # fmt: skip

JSON_ROWS = [
    (b'{"a": "x", "b": 6}\n', "not a number", "a", "'x'"),
    (b'{"a": [5], "b": 6}\n', "not a single value", "a", "[5]"),
    (b'{"a": -Infinity, "b": 6}\n', "not finite or too large", "a", "-inf"),
    (b'{"a": 5, "b": 1e99}\n', "not finite or too large", "b", "1e+99"),
    (b'{"a": 5, "b": 6\n', "broken JSON", None, "'{\"a\": 5, \"b\": 6\\n'"),
    (b'{"a": 5, "b": 6}}\n', "broken JSON", None, "'{\"a\": 5, \"b\": 6}}\\n'"),
    (b"[5, 6]\n", "broken JSON", None, "'[5, 6]\\n'"),
    (b"5\n", "broken JSON", None, "'5\\n'"),
    (b"[" * 100_000 + b"\n", "broken JSON", None, "'" + "[" * 39 + "..."),
    (b'{"a": 5, "b": 6, "y": "\xff"}\n', "invalid UTF-8", None,
     "'{\"a\": 5, \"b\": 6, \"y\": \"\ufffd\"}\\n'"),
    (b'{"a": 5, "b": 6, "y": "\\ud800"}\n', "invalid UTF-8", "y", "'\ufffd\ufffd\ufffd'"),
    (b'{"a": 5, "b": 6, "y": {"p": 1}}\n', "not a single value", "y", "{'p': 1}"),
]  # fmt: skip


def csv_file(tmp_path, bad, before=3, after=60):
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,b,y\n" + GOOD.encode() * before + bad + GOOD.encode() * after)
    return path


@pytest.mark.parametrize(("bad", "reason", "column", "got"), CSV_ROWS)
@pytest.mark.parametrize("before", [3, 200])
def test_bad_rows_of_a_csv(tmp_path, bad, reason, column, got, before):
    path = csv_file(tmp_path, bad, before)
    where = "" if column is None else f" in column {column!r}"
    with pytest.raises(StreamError) as caught:
        read(path)
    expected = f"{path}, line {2 * before + 2}: {reason}{where}, got {got}, expected "
    assert str(caught.value).startswith(expected)
    assert "on_error='skip'" in str(caught.value)
    assert "\n" not in str(caught.value)
    batches, stream = read(path, on_error="skip", batch_size=7)
    X, y, _, rows = joined(batches)
    assert X.tolist() == [[1, 2], [3, 4]] * (before + 60)
    assert y == ["p", "q"] * (before + 60)
    assert rows == [*range(1, 2 * before + 1), *range(2 * before + 2, 2 * before + 122)]
    assert stream.skipped.counts == {reason: 1}
    assert stream.skipped.examples[reason][0].row == 2 * before + 1


@pytest.mark.parametrize(("bad", "reason", "column", "got"), JSON_ROWS)
def test_bad_rows_of_json_lines(tmp_path, bad, reason, column, got):
    good = b'{"a": 1, "b": 2.5, "y": "p"}\n{"b": 1, "a": 3, "y": null}\n'
    path = tmp_path / "data.jsonl"
    path.write_bytes(good * 3 + b"\n" + bad + good * 50)
    where = "" if column is None else f" in column {column!r}"
    with pytest.raises(StreamError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 8: {reason}{where}, got {got}, expected ")
    batches, stream = read(path, on_error="skip", batch_size=7)
    assert joined(batches)[0].tolist() == [[1, 2.5], [3, 1]] * 53
    assert joined(batches)[1] == ["p", None] * 53
    assert stream.skipped.counts == {reason: 1}


@pytest.mark.parametrize("kind", BINARIES)
@pytest.mark.parametrize("value", [np.inf, -1e300])
def test_bad_rows_of_binary_formats(tmp_path, kind, value):
    columns = make_columns(11)
    columns["x1"][6] = value
    path = write(tmp_path / f"data.{kind}", columns)
    reason, got = "not finite or too large", f"{value}"
    with pytest.raises(StreamError) as caught:
        read(path)
    assert str(caught.value).startswith(
        f"{path}, row 7: {reason} in column 'x1', got {got}, expected "
    )
    batches, stream = read(path, on_error="skip", batch_size=4)
    assert joined(batches)[3] == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert [batch.skipped for batch in batches] == [0, 1, 1]
    assert stream.skipped.counts == {reason: 1}


def test_texts_of_binary_formats_that_are_no_texts(tmp_path):
    labels = pa.array([b"p", b"\xff\xfe", None, b"q"]).view(pa.string())
    parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0, 4.0], "y": labels}), tmp_path / "a.parquet")
    with pytest.raises(StreamError, match=r"row 2: invalid UTF-8 in column 'y'"):
        read(tmp_path / "a.parquet")
    batches, stream = read(tmp_path / "a.parquet", on_error="skip")
    assert joined(batches)[1] == ["p", None, "q"]
    assert stream.skipped.total == 1


def test_labels_of_another_type_are_bad_rows(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,y\n1,0\n2,1\n3,\n4,spam\n5,1.0\n6,2.5\n7,2\n")
    message = r"line 5: label of another type in column 'y', got 'spam'.*type='string'"
    for batch_size, first in ((2, [1, 2]), (3, [1, 2, 3])):
        stream, _ = open_stream(path, batch_size=batch_size)
        batches = iter(stream)
        assert next(batches).row.tolist() == first
        with pytest.raises(StreamError, match=message):
            list(batches)
    batches, stream = read(path, on_error="skip", batch_size=2)
    assert joined(batches)[1] == [0, 1, None, 1, 2]
    assert [batch.row.tolist() for batch in batches] == [[1, 2], [3, 5], [7]]
    assert stream.skipped.counts == {"label of another type": 2}
    assert [bad.fault.line for bad in stream.skipped.examples["label of another type"]] == [5, 7]
    together, stream = read(path, on_error="skip")
    assert joined(together)[1] == ["0", "1", None, "spam", "1", "2.5", "2"]


def test_whole_batches_before_a_bad_row_are_given_out(tmp_path):
    """Where a stream stops does not depend on the blocks it was read in."""
    path = csv_file(tmp_path, b"x,5,p\n", before=5)
    stream, check = open_stream(path, batch_size=4)
    taken = []
    with pytest.raises(StreamError, match="line 12"):
        taken.extend(iter(stream))
    taken = []
    stream, check = open_stream(path, batch_size=4)
    with pytest.raises(StreamError, match="line 12"):  # noqa: PT012
        for batch in stream:
            taken.append(batch.row.size)
    assert taken == [4, 4]
    assert stream.position.files[0].rows == 8
    position = stream.position
    rest, _ = read(path, label=stream.label, check=check, position=position, on_error="skip")
    assert joined(rest)[3][:3] == [9, 10, 12]


def test_bad_rows_are_counted_with_examples(tmp_path):
    path = tmp_path / "data.csv"
    # more than half of the first batch are numbers
    rows = ["1,0", "x,0", "1e99,1", "2,1", "y,0", "z,0", "w,0", "3", "4,1", "5,0", "6,1"]
    path.write_text("a,y\n" + "\n".join(rows * 20) + "\n")
    _, stream = read(path, on_error="skip", batch_size=5)
    expected = {"not a number": 80, "not finite or too large": 20, "wrong number of fields": 20}
    assert stream.skipped.counts == expected
    assert stream.skipped.total == 120
    found = [
        (bad.row, bad.fault.line, bad.fault.got) for bad in stream.skipped.examples["not a number"]
    ]
    assert found == [(2, 3, "'x'"), (5, 6, "'y'"), (6, 7, "'z'")]
    assert str(stream.skipped.examples["not finite or too large"][0]) == (
        f"{path}, line 4: not finite or too large in column 'a', got '1e99'"
    )


def test_columns_that_are_not_used_may_hold_anything(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,junk,y\n1,\xff\xfe,p\n2,,q\n3,inf,p\n")
    batches, _ = read(path)
    assert joined(batches)[0].tolist() == [[1], [2], [3]]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"a": 1, "junk": junk}) + "\n" for junk in ({}, [1], None)))
    batches, _ = read(path, label=None)
    assert batches[0].X.tolist() == [[1], [1], [1]]
    assert batches[0].y is None


def test_a_stream_of_bad_rows_alone(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,y\nx,0\ny,0\n")
    batches, stream = read(path, features=("a",), on_error="skip")
    assert batches == []
    assert stream.skipped.total == 2
    assert stream.position.files[0].rows == 2
    assert stream.position.files[0].finished


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "feather"])
def test_several_cells_of_a_column_are_too_long(tmp_path, monkeypatch, kind):
    """All of them are skipped, and the other rows are read."""
    words = ["p", "z" * 30, "q", "z" * 40, "z" * 50]
    path = write(tmp_path / f"data.{kind}", {"a": [1.0, 2.0, 3.0, 4.0, 5.0], "y": words})
    monkeypatch.setattr(inputs, "CELL_BYTES", 20)
    batches, stream = read(path, on_error="skip")
    X, y, *_ = joined(batches)
    assert (X[:, 0].tolist(), list(y)) == ([1.0, 3.0], ["p", "q"])
    assert stream.skipped.counts == {"cell too long": 3}
    assert [bad.fault.got for bad in stream.skipped.examples["cell too long"]] == [
        "30 bytes", "40 bytes", "50 bytes",
    ]  # fmt: skip

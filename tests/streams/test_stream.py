"""Files of every format become the same batches, whatever their bytes look like."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from seqmed import SeqLapMED, SeqMED
from seqmed.streams import LabelColumn, Stream, StreamError, StreamWarning, delimited, inputs
from tests.support.stream_files import (
    FORMATS,
    TEXTS,
    as_bytes,
    joined,
    make_columns,
    read,
    same_rows,
    write,
)

COLUMNS = make_columns(23)
MATRIX = np.array([COLUMNS[name] for name in ("x0", "x1", "x2")]).T


def read_text(tmp_path, content, name="data.csv", **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path, **options)


def set_block(monkeypatch, block):
    """Let files be read in blocks of this many bytes."""
    monkeypatch.setattr(inputs, "BLOCK", block)
    monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)


# -- every format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("batch_size", [1, 5, 7, 23, 100])
def test_every_format_gives_the_rows_as_they_were_written(tmp_path, kind, batch_size):
    batches, stream = read(write(tmp_path / f"data.{kind}", COLUMNS), batch_size=batch_size)
    X, y, files, rows = joined(batches)
    assert X.dtype == np.float64
    assert X.tobytes() == MATRIX.tobytes()
    assert y == COLUMNS["y"]
    assert {type(label) for label in y} == {int, type(None)}
    assert files == [0] * 23
    assert rows == list(range(1, 24))
    sizes = [batch.row.size for batch in batches]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    assert 1 <= sizes[-1] <= batch_size
    assert stream.resumable
    assert stream.skipped.total == 0
    assert stream.fraction == 1.0


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("kind", FORMATS)
def test_blocks_make_no_difference(tmp_path, monkeypatch, kind, block):
    # small blocks are many, also of few rows; large ones need many rows to be several
    path = write(tmp_path / f"data.{kind}", make_columns(60 if block < 64 else 300))
    for features in (("x0", "x1", "x2"), None):
        expected, _ = read(path, features=features, batch_size=40)
        with monkeypatch.context() as patch:
            set_block(patch, block)
            assert same_rows(read(path, features=features, batch_size=40)[0], expected)


@pytest.mark.parametrize("model", [SeqMED(), SeqLapMED(unlabeled=None, random_state=0)])
def test_estimators_learn_the_batches(tmp_path, model):
    for batch in read(write(tmp_path / "data.parquet", make_columns(60)), batch_size=20)[0]:
        model.partial_fit(batch.X, batch.y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.n_batches_ == 3


@pytest.mark.parametrize("kind", TEXTS)
def test_the_fraction_that_was_read_grows_with_every_batch(tmp_path, kind):
    stream = Stream(write(tmp_path / f"data.{kind}", make_columns(20)), batch_size=5)
    shares = [stream.fraction for _ in stream]
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert stream.fraction == 1.0


def test_files_follow_one_another_in_one_stream(tmp_path):
    """A folder is read in the order of names, batches go on from file to file, formats mix."""
    order = ["a.csv", "b.parquet", "c.jsonl.gz", "d.arrow"]
    for place, name in reversed(list(enumerate(order))):
        part = {key: column[5 * place : 5 * place + 5] for key, column in COLUMNS.items()}
        write(tmp_path / name, part)
    for hidden in (".hidden.csv", "_SUCCESS"):
        (tmp_path / hidden).write_text("not for reading")
    batches, stream = read(tmp_path, batch_size=8)
    X, y, files, rows = joined(batches)
    assert X.tobytes() == MATRIX[:20].tobytes()
    assert y == COLUMNS["y"][:20]
    assert [batch.row.size for batch in batches] == [8, 8, 4]
    assert [Path(name).name for name in stream.names] == order
    assert files == np.repeat(range(4), 5).tolist()
    assert rows == [1, 2, 3, 4, 5] * 4
    paths = [tmp_path / name for name in order]
    assert same_rows(read(paths, batch_size=8)[0], batches)


def test_other_files_in_a_folder_are_left_out_and_named(tmp_path):
    write(tmp_path / "a.csv", COLUMNS)
    (tmp_path / "notes.txt").write_text("remember")
    (tmp_path / "more").mkdir()
    with pytest.warns(StreamWarning, match=r"not read: more, notes\.txt"):
        batches, _ = read(tmp_path)
    assert joined(batches)[3] == list(range(1, 24))


def test_columns_may_come_in_another_order(tmp_path):
    turned = {name: COLUMNS[name] for name in ("x2", "y", "x0", "x1")}
    write(tmp_path / "a.csv", COLUMNS)
    for name in ("b.csv", "c.jsonl", "d.feather"):
        write(tmp_path / name, turned)
    X, y, _, _ = joined(read(tmp_path)[0])
    assert X.tobytes() == MATRIX.tobytes() * 4
    assert y == COLUMNS["y"] * 4


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", FORMATS)
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, kind):
    """Fifteen times as many rows, and no more memory than for a few small blocks."""
    set_block(monkeypatch, 2**14)
    peaks = []
    for n in (4_000, 60_000):
        path = write(tmp_path / f"{n}.{kind}", make_columns(n), chunk=1000)
        pool = pa.default_memory_pool()
        before, largest = pool.bytes_allocated(), 0
        tracemalloc.start()
        for _ in Stream(path, label=LabelColumn("y"), batch_size=100):
            largest = max(largest, pool.bytes_allocated() - before)
        peaks.append(tracemalloc.get_traced_memory()[1] + largest)
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2**19  # the numbers alone are three times that


# -- texts ----------------------------------------------------------------------------------------


def test_quotes_line_ends_marks_and_unicode(tmp_path):
    content = (
        '\ufeff"a, b",größe,"say ""hi""",y\r\n'
        '1,"2",3,"two\r\nlines, ""quoted"""\r\n'
        "\r\n"
        "4,5,6,日本\r\n"
        '7, 8 ,+9.5e0,5" pipe\r\n'
        '.5,-1.,"1e3",""\r\n'
    )
    batches, stream = read_text(tmp_path, content)
    X, y, _, rows = joined(batches)
    assert stream.check.features == ("a, b", "größe", 'say "hi"')
    assert X.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9.5], [0.5, -1, 1000]]
    assert y == ['two\r\nlines, "quoted"', "日本", '5" pipe', None]
    assert rows == [1, 2, 3, 4]


def test_a_final_row_without_a_line_end_is_a_row(tmp_path):
    for content, name in (
        ("a,y\n1,p\n2,q", "a.csv"),
        ('{"a":1,"y":"p"}\n{"a":2,"y":"q"}', "b.jsonl"),
    ):
        assert joined(read_text(tmp_path, content, name, final=True)[0])[1] == ["p", "q"]


def test_blank_lines_are_no_rows(tmp_path):
    content = "\n\na,y\n\n1,p\n\n\n2,q\n\n"
    assert joined(read_text(tmp_path, content)[0])[3] == [1, 2]
    assert joined(read_text(tmp_path, content.replace("\n", "\r\n"))[0])[3] == [1, 2]
    content = '\n{"a": 1, "y": "p"}\n  \n\n{"a": 2, "y": "q"}\n\n'
    with pytest.raises(StreamError, match="line 3: broken JSON"):
        read_text(tmp_path, content, "data.jsonl")
    assert joined(read_text(tmp_path, content.replace("  ", ""), "data.jsonl")[0])[3] == [1, 2]


def test_true_and_false_are_one_and_zero_in_every_format(tmp_path):
    columns = {"a": [True, False, True], "b": [1.5, 2.5, 3.5], "y": [0, 1, 0]}
    expected = [[1, 1.5], [0, 2.5], [1, 3.5]]
    for kind in ("csv", "tsv", "jsonl", "parquet", "feather"):
        path = write(tmp_path / f"data.{kind}", columns)
        assert joined(read(path)[0])[0].tolist() == expected
    assert joined(read_text(tmp_path, "a,y\nTRUE,0\n0.5,1\n true,0\n")[0])[0].tolist() == [
        [1],
        [0.5],
        [1],
    ]


def test_integers_beyond_every_integer_type(tmp_path):
    big = 10**30
    columns = {"a": [1.0, float(big), 2.0], "y": [0, 1, 0]}
    expected = joined(read(write(tmp_path / "data.parquet", columns))[0])[0]
    lines = [json.dumps({"a": value, "y": 0}) for value in (1, big, 2)]
    for content, name in (
        (f"a,y\n1,0\n{big},0\n2,0\n", "b.csv"),
        ("\n".join([*lines, ""]), "b.jsonl"),
    ):
        assert joined(read_text(tmp_path, content, name)[0])[0].tobytes() == expected.tobytes()
    unsigned = pa.table({"a": pa.array([2**64 - 1, 1], pa.uint64()), "y": [0, 1]})
    parquet.write_table(unsigned, tmp_path / "c.parquet")
    assert joined(read(tmp_path / "c.parquet")[0])[0].tolist() == [[2.0**64], [1.0]]
    with pytest.raises(StreamError, match="line 2: not finite or too large in column 'a'"):
        read_text(
            tmp_path, json.dumps({"a": 1, "y": 0}) + '\n{"a": ' + "9" * 400 + "}\n", "d.jsonl"
        )


def test_typed_columns_of_arrow_files(tmp_path):
    """Narrow, decimal, dictionary and null types; dates as labels."""
    table = pa.table(
        {
            "small": pa.array([1, 2, 3], pa.int8()),
            "half": pa.array(np.array([0.5, 1.5, 2.5], dtype=np.float16)),
            "decimal": pa.array([1, 2, 3]).cast(pa.decimal128(25, 2)),
            "coded": pa.array([7.5, 8.5, 7.5]).dictionary_encode(),
            "y": pa.array(["p", None, "q"]).dictionary_encode(),
            "day": pa.array([1, 2, 3], pa.date32()),
        }
    )
    parquet.write_table(table, tmp_path / "data.parquet")
    feather.write_feather(table, tmp_path / "data.feather")
    for name in ("data.parquet", "data.feather"):
        X, y, _, _ = joined(read(tmp_path / name)[0])
        assert X.tolist() == [[1, 0.5, 1, 7.5], [2, 1.5, 2, 8.5], [3, 2.5, 3, 7.5]]
        assert y == ["p", None, "q"]
        labels = joined(read(tmp_path / name, label="day")[0])[1]
        assert labels == ["1970-01-02", "1970-01-03", "1970-01-04"]


def test_a_compressed_text_may_consist_of_several_members(tmp_path):
    data = as_bytes(COLUMNS, "csv")
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(data[:100]) + gzip.compress(data[100:]))
    assert joined(read(tmp_path / "data.csv.gz")[0])[0].tobytes() == MATRIX.tobytes()


# -- fast and slow --------------------------------------------------------------------------------

CELLS = (
    "1", "-2.5", "3e-5", " 4 ", "+5", ".5", "6.", '"7"', '" 8"', "true", "False", "", "NA", "nan",
    "inf", "-Infinity", "1e400", "0x1f", "1_0", "oops", '"a,b"', '"a\nb"', '"say ""x"""', '5"',
    "\u0661",
    "1\r", "\x00", '"open', 'a"b"c', '"a"b', "nan(1)", "\xa01", "1e80", "-0", "007", "1,2", "1\t2",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(120))
def test_rows_come_out_the_same_alone_and_together(tmp_path, monkeypatch, seed):
    """Read by pyarrow in blocks, or one by one: the same rows, the same faults, the same lines."""
    generator = np.random.default_rng(seed)
    strange = generator.choice([0.002, 0.05, 0.5])
    cells = np.where(generator.random((120, 4)) < strange, generator.choice(CELLS, (120, 4)), "1.5")
    end = generator.choice(["\n", "\r\n"])
    content = ("a,b,t,y\n" + "".join(",".join(row) + end for row in cells)).encode()
    (tmp_path / "data.csv").write_bytes(content)

    def rows():
        batches, stream = read(
            tmp_path / "data.csv",
            features=("a", "b"),
            label_type="string",
            batch_size=10,
            on_error="skip",
            keep=["t"],
        )
        kept = [value for batch in batches for value in batch.kept["t"]]
        return joined(batches), kept, stream.skipped

    (X, *rest), kept, skipped = rows()
    for alone, block in ((True, 2**20), (False, 100), (True, 100)):
        monkeypatch.setattr(inputs, "BLOCK", block)
        monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)
        if alone:
            monkeypatch.setattr(delimited.Grammar, "are_regular", lambda *_: False)
        (again, *others), kept_again, skipped_again = rows()
        assert again.tobytes() == X.tobytes()
        assert others == rest
        assert kept_again == kept
        assert skipped_again == skipped
        monkeypatch.undo()
    assert X.shape[0] + skipped.total >= 1


def test_a_mark_within_a_text_is_no_part_of_a_number(tmp_path, monkeypatch):
    """As it comes when files are put together; also where a block begins with it."""
    content = "a,y\n" + "1,p\n" * 5 + "\ufeff2,q\n" + "3,p\n" * 40
    for block in range(1, 40):
        set_block(monkeypatch, block)
        batches, stream = read_text(tmp_path, content, features=["a"], on_error="skip")
        assert stream.skipped.counts == {"not a number": 1}
        assert len(joined(batches)[1]) == 45


# -- pipes ----------------------------------------------------------------------------------------

SCRIPT = """
from seqmed.streams import LabelColumn, Stream
stream = Stream("-", label=LabelColumn("y"), batch_size=10)
for batch in stream:
    print(batch.table.to_pydict(), batch.y.tolist(), batch.row.tolist(), len(batch.position.files))
print(stream.resumable, stream.fraction)
"""


@pytest.fixture
def piped(monkeypatch):
    """A function that lets standard input be a pipe with this content."""
    with contextlib.ExitStack() as opened:

        def pipe(content):
            reader, writer = os.pipe()
            monkeypatch.setattr(sys, "stdin", opened.enter_context(open(reader)))
            with open(writer, "wb") as file:
                file.write(content)  # less than a pipe holds

        yield pipe


@pytest.mark.parametrize(("kind", "named"), [("csv", None), ("jsonl", None), ("tsv", "tsv")])
def test_standard_input(tmp_path, piped, kind, named):
    piped(as_bytes(COLUMNS, kind))
    stream = Stream("-", label=LabelColumn("y"), batch_size=10, file_format=named)
    batches = list(stream)
    expected, _ = read(write(tmp_path / f"data.{kind}", COLUMNS), batch_size=10)
    assert [batch.table.to_pydict() for batch in batches] == [
        batch.table.to_pydict() for batch in expected
    ]
    for name in ("y", "row"):
        assert [getattr(batch, name).tolist() for batch in batches] == [
            getattr(batch, name).tolist() for batch in expected
        ]
    assert [len(batch.position.files) for batch in batches] == [0] * len(expected)
    assert not stream.resumable
    assert stream.fraction is None


@pytest.mark.parametrize("kind", ["parquet", "csv.gz"])
def test_what_cannot_come_through_a_pipe_is_refused(tmp_path, piped, kind):
    piped(write(tmp_path / f"data.{kind}", COLUMNS).read_bytes())
    with pytest.raises(StreamError, match=r"^standard input is"):
        list(Stream("-", label=LabelColumn("y"), batch_size=10))


def test_a_pipe_hands_on_rows_before_it_ends():
    """A batch comes as soon as its rows are there, while the writer is still at work."""
    process = subprocess.Popen(
        [sys.executable, "-uc", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        process.stdin.write(as_bytes(make_columns(100), "csv"))
        process.stdin.flush()
        lines = [process.stdout.readline() for _ in range(10)]  # returns only if they are there
        process.stdin.close()
        assert all(line.endswith(b" 0\n") for line in lines)
        assert process.stdout.read() == b"False None\n"


def test_a_named_pipe_is_read_among_files(tmp_path):
    """Its rows come in turn; the files keep their positions, the pipe has none."""
    pipe, data = tmp_path / "pipe", as_bytes(COLUMNS, "jsonl")
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(data))
    writer.start()
    batches, stream = read([write(tmp_path / "a.csv", COLUMNS), pipe], batch_size=10)
    writer.join()
    assert joined(batches)[0].tobytes() == MATRIX.tobytes() * 2
    assert joined(batches)[2] == [0] * 23 + [1] * 23
    assert not stream.resumable
    assert [Path(each.path).name for each in stream.position.files] == ["a.csv"]


# -- nothing there, or not what it seems ----------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_files_without_rows_have_no_batches(tmp_path, kind):
    write(tmp_path / f"a.{kind}", {name: [] for name in COLUMNS})
    batches, stream = read(tmp_path)
    assert batches == []
    assert stream.check.features is None
    assert stream.position.files[0].finished
    write(tmp_path / f"b.{kind}", COLUMNS)
    assert joined(read(tmp_path)[0])[0].tobytes() == MATRIX.tobytes()


def test_empty_texts(tmp_path):
    for name in ("a.csv", "b.tsv", "c.jsonl"):
        assert read_text(tmp_path, b"", name)[0] == []
        assert read_text(tmp_path, b"\n\r\n\n", name)[0] == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"1.5,2,3\n4,5,6\n", "holds numbers .*add a header line"),
        ("a.csv", b"a,b,a\n1,2,3\n", "two columns named 'a'"),
        ("a.csv", b"a,b,y\r1,2,3\r", "carriage return"),
        ("a.csv", "a,y\n1,2\n".encode("utf-16-le"), "encoding='utf-16-le'"),
        ("a.csv", b"\xff\xfd,b\n1,2\n", "expected column names in UTF-8"),
        ("a.csv", b'"a,b\n1,2\n', "expected column names"),
        ("a.csv.gz", b"a,b\n1,2\n", "cannot be read as text"),
        ("a.jsonl", b'[{"a": 1}]', "begins with '\\['"),
        ("a.jsonl", b'{"\\ud800": 1, "y": 1}\n', "not UTF-8"),
        ("a.parquet", b"a,b\n1,2\n", "cannot be read as Parquet"),
        ("a.feather", b"a,b\n1,2\n", "cannot be read as Arrow"),
        ("a.dat", b"a,b\n1,2\n", "ends in '.dat'"),
        ("a.parquet.gz", b"", "ends in '.gz'"),
    ],
)
def test_files_that_are_not_what_their_names_say(tmp_path, name, content, message):
    with pytest.raises(StreamError, match=message) as caught:
        read_text(tmp_path, content, name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_must_be_single_values(tmp_path):
    table = pa.table({"a": [1.0, 2.0], "y": [[1], [2, 3]]})
    parquet.write_table(table, tmp_path / "data.parquet")
    with pytest.raises(StreamError, match=r"column 'y' holds list.*expected single values"):
        read(tmp_path / "data.parquet")


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(StreamError, match="does not exist: check the path"):
        read(tmp_path / "none.csv")
    with pytest.raises(StreamError, match="holds no file that can be read"):
        read(tmp_path)
    with pytest.raises(StreamError, match="no input is given"):
        read([])
    with pytest.raises(StreamError, match="cannot be opened"):
        read(tmp_path / ("n" * 300 + ".csv"))
    path = write(tmp_path / "a.csv", COLUMNS)
    with pytest.raises(StreamError, match="is given twice"):
        read([path, tmp_path])
    with pytest.raises(StreamError, match="format='xls' is not known"):
        read(path, file_format="xls")
    with pytest.raises(StreamError, match="on_error='ignore'"):
        read(path, on_error="ignore")
    with pytest.raises(StreamError, match="batch_size=0"):
        read(path, batch_size=0)


def test_a_format_can_be_named(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(as_bytes(COLUMNS, "tsv"))
    assert joined(read(path, file_format="tsv")[0])[0].tobytes() == MATRIX.tobytes()
    assert joined(read(tmp_path, file_format="tsv")[0])[0].tobytes() == MATRIX.tobytes()


def test_a_stream_is_read_once(tmp_path):
    _, stream = read(write(tmp_path / "a.csv", COLUMNS))
    with pytest.raises(StreamError, match="read only once"):
        next(iter(stream))


def test_rows_without_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "ROW_BYTES", 1000)
    monkeypatch.setattr(inputs, "BLOCK", 64)
    monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)
    with pytest.raises(StreamError, match="line 3: no line end in 1000 bytes"):
        read_text(tmp_path, "a,y\n1,p\n" + "1" * 5000)
    batches, _ = read_text(tmp_path, "a,y\n1,p\n" + "\n" * 5000 + "2,q\n")
    assert joined(batches)[1] == ["p", "q"]
    batches, _ = read_text(tmp_path, "a,y\n" + "\n" * 5000 + "1,p\n", features=["a"])
    assert joined(batches)[0].tolist() == [[1]]


@pytest.mark.parametrize("block", [64, 2**20])
def test_a_quote_that_is_never_closed_costs_its_own_line(tmp_path, monkeypatch, block):
    monkeypatch.setattr(inputs, "ROW_BYTES", 1000)
    monkeypatch.setattr(inputs, "BLOCK", block)
    monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)
    lines = [
        "a,y",
        *(f"{row},p" for row in range(50)),
        '50,"p',
        *(f"{row},q" for row in range(500)),
    ]
    batches, stream = read_text(tmp_path, "\n".join(lines) + "\n", on_error="skip")
    assert joined(batches)[0].ravel().tolist() == [*range(50), *range(500)]
    assert stream.skipped.counts == {"broken quotes or line end": 1}
    assert stream.skipped.examples["broken quotes or line end"][0].fault.line == 52


@pytest.mark.parametrize("kind", TEXTS)
def test_fraction_grows_to_one(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", make_columns(20_000))
    stream = Stream(path, label=LabelColumn("y"))
    fractions = [stream.fraction for _ in stream]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < 1
    assert stream.fraction == 1.0

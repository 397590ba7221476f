"""Going on where reading stopped: nothing twice, nothing left out, nothing but the same files."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import time

import numpy as np
import pytest

from seqmed.streams import LabelColumn, Position, Stream, StreamError, StreamWarning
from tests.support.stream_files import (
    BINARIES,
    FORMATS,
    TEXTS,
    as_bytes,
    joined,
    make_columns,
    read,
    same_rows,
    write,
)

COLUMNS = make_columns(11)
LONGER = {name: COLUMNS[name] + column for name, column in make_columns(6, seed=1).items()}


def stored(position):
    """A position as it comes back from a file."""
    return Position.from_dict(json.loads(json.dumps(position.to_dict())))


def go_on(paths, batch, **options):
    options = {"batch_size": 2} | options
    position = stored(batch.position)
    return read(paths, label=batch.label, check=batch.check, position=position, **options)


def state_of(stream):
    """What a caller saves at the end, shaped like a batch."""
    state = {"label": stream.label, "check": stream.check, "position": stream.position}
    return type("State", (), state)


def part_of(columns, first, last=None):
    return {name: column[first:last] for name, column in columns.items()}


# -- where it stopped -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_reading_goes_on_after_every_batch(tmp_path, kind, batch_size):
    path = write(tmp_path / f"data.{kind}", COLUMNS)
    expected, whole = read(path, batch_size=batch_size)
    for place, batch in enumerate(expected, 1):
        rest, stream = go_on(path, batch, batch_size=batch_size)
        assert same_rows(rest, expected[place:])
        assert stream.position == whole.position
        assert stream.label.type == "integer"


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_reading_goes_on_after_every_row_of_a_difficult_text(tmp_path, kind):
    """A mark, line ends of two bytes, blank lines, quoted line ends and bad rows."""
    if kind == "csv":
        head, rows = (
            "\ufeffa,b,y\r\n",
            ['1,2,"p\r\nq"\r\n', "\r\n", "3,4,\r\n", "x,5,p\r\n", "6,7,q\r\n"],
        )
    else:
        head = "\ufeff"
        objects = [
            {"a": 1, "b": 2, "y": "ä"},
            {"a": 3, "b": 4},
            {"a": "x", "b": 5},
            {"a": 6, "b": 7},
        ]
        rows = ["\r\n", *(json.dumps(each, ensure_ascii=False) + "\r\n" for each in objects)]
    path = tmp_path / f"data.{kind}"
    path.write_bytes((head + "".join(rows * 5)).encode())
    expected, whole = read(path, batch_size=1, on_error="skip")
    assert [int(batch.row[0]) for batch in expected[:4]] == [1, 2, 4, 5]
    for place, batch in enumerate(expected, 1):
        rest, stream = go_on(path, batch, batch_size=1, on_error="skip")
        assert same_rows(rest, expected[place:])
        assert stream.position == whole.position
        assert stream.skipped.total == whole.skipped.total - batch.skipped
        bad = [row.fault.line for row in stream.skipped.examples.get("not a number", ())]
        assert all(line in {row * 6 + 6 for row in range(5)} for line in bad if kind == "csv")


def test_reading_goes_on_in_the_middle_of_several_files(tmp_path):
    for place, kind in enumerate(("csv", "parquet", "jsonl", "arrow", "feather")):
        write(tmp_path / f"{place}.{kind}", part_of(LONGER, 3 * place, 3 * place + 3))
    expected, whole = read(tmp_path, batch_size=4)
    assert [batch.row.size for batch in expected] == [4, 4, 4, 3]
    for place, batch in enumerate(expected, 1):
        rest, stream = go_on(tmp_path, batch, batch_size=4)
        assert same_rows(rest, expected[place:])
        assert stream.position == whole.position


@pytest.mark.parametrize("kind", TEXTS)
def test_a_finished_text_is_not_read_again_even_if_touched(tmp_path, kind):
    path = write(tmp_path / f"data.{kind}", COLUMNS)
    for seconds in (0, 100):  # too fresh to be trusted, and not
        os.utime(path, (time.time() - seconds,) * 2)
        _, stream = read(path)
        (file,) = stream.position.files
        assert file.finished
        assert (file.modified > 0) == (seconds > 0)
        assert go_on(path, state_of(stream))[0] == []
        os.utime(path, (1, 1))
        again, stream = go_on(path, state_of(stream))
        assert again == []
        assert stream.position.files[0].finished


@pytest.mark.parametrize("kind", BINARIES)
def test_a_binary_file_is_identified_by_its_size_and_time(tmp_path, kind):
    path = write(tmp_path / f"data.{kind}", COLUMNS)
    batches, stream = read(path, batch_size=4)
    status = path.stat()
    assert stream.position.files[0].modified == status.st_mtime_ns
    assert go_on(path, state_of(stream))[0] == []
    path.touch()
    message = r"has changed within the first 4 rows.*restore it with its modification time"
    with pytest.raises(StreamError, match=message):
        go_on(path, batches[0])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert joined(go_on(path, batches[0])[0])[3] == list(range(5, 12))


def test_an_untouched_finished_file_is_not_even_opened(tmp_path, monkeypatch):
    path = write(tmp_path / "data.csv", COLUMNS)
    os.utime(path, (1000, 1000))
    _, stream = read(path)
    monkeypatch.setattr("seqmed.streams.inputs.io.FileIO", None)
    assert go_on(path, state_of(stream))[0] == []


def test_a_file_that_comes_new_is_read_and_the_others_are_not(tmp_path):
    write(tmp_path / "b.csv", COLUMNS)
    _, stream = read(tmp_path)
    write(tmp_path / "a.csv", part_of(LONGER, 11))
    batches, stream = go_on(tmp_path, state_of(stream))
    assert (
        joined(batches)[0].tolist() == np.array([LONGER[f"x{i}"][11:] for i in range(3)]).T.tolist()
    )
    assert {each.finished for each in stream.position.files} == {True}
    assert go_on(tmp_path / "b.csv", state_of(stream))[0] == []


# -- files that grow ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("stop", [1, 4, None])
def test_a_text_that_has_grown_is_continued(tmp_path, kind, stop):
    path = write(tmp_path / f"data.{kind}", COLUMNS)
    batches, stream = read(path, batch_size=2)
    data = as_bytes(LONGER, kind, start=11)
    with path.open("ab") as file:
        file.write(gzip.compress(data) if kind.endswith("gz") else data)
    state = state_of(stream) if stop is None else batches[stop - 1]
    done = 11 if stop is None else 2 * stop
    found = joined(go_on(path, state)[0])
    expected = joined(read(write(tmp_path / f"whole.{kind}", LONGER))[0])
    assert found[0].tobytes() == expected[0][done:].tobytes()
    assert found[1] == expected[1][done:]
    assert found[3] == list(range(done + 1, 18))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_was_empty_and_has_grown_is_read(tmp_path, kind):
    path = write(tmp_path / f"data.{kind}", {name: [] for name in COLUMNS})
    _, stream = read(path)
    write(path, COLUMNS)
    assert joined(go_on(path, state_of(stream))[0])[3] == list(range(1, 12))


# -- a last line that has no end ------------------------------------------------------------------


def test_an_incomplete_last_line_is_left_until_it_is_complete(tmp_path):
    path = tmp_path / "data.csv"
    for cut in ("3", "3,", "3,4", '3,4,"q', "-,4,p", '3,4,"q"', '3,4,"q"\r', '3,4,"q\nr'):
        path.write_text("a,b,y\n1,2,p\n1,2,q\n" + cut, newline="")
        for _ in range(2):  # said again, as long as it is left
            with pytest.warns(StreamWarning, match="line 4: the last line has no line end"):
                batches, stream = read(path)
        assert joined(batches)[0].tolist() == [[1, 2], [1, 2]]
        assert stream.skipped.total == 0
        more = "-3,4,p\n" if cut[0] == "-" else '3,4,"q"\n'
        if "r" in cut:
            more = '3,4,"q\nr"\n'
        path.write_text("a,b,y\n1,2,p\n1,2,q\n" + more)
        rest, stream = go_on(path, state_of(stream))
        assert joined(rest)[3] == [3]
        assert stream.position.files[0].offset == path.stat().st_size


def test_a_bad_row_before_a_stray_end_is_not_an_incomplete_one(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,y\n1,p\n2,p\nx,q\n\r")
    batches, stream = read(path, on_error="skip")
    assert joined(batches)[3] == [1, 2]
    assert stream.skipped.counts == {"not a number": 1}
    assert stream.position.files[0].offset == path.stat().st_size


def test_an_incomplete_line_of_json(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"a": 1, "y": "p"}\n{"a": 2, "y"')
    with pytest.warns(StreamWarning, match="line 2: the last line"):
        batches, stream = read(path)
    assert joined(batches)[3] == [1]
    path.write_text('{"a": 1, "y": "p"}\n{"a": 2, "y": "q"}')
    with pytest.warns(StreamWarning, match="line 2: the last line"):
        rest, stream = go_on(path, state_of(stream))
    assert not rest
    for more in ("", "", "\n"):
        path.write_text('{"a": 1, "y": "p"}\n{"a": 2, "y": "q"}' + more)
        rest, stream = go_on(path, state_of(stream), final=True)
        assert [batch.y.tolist() for batch in rest] == [["q"]][: len(rest)]
        path.touch()
    assert stream.position.files[0].rows == 2


@pytest.mark.parametrize("name", ["data.csv", "data.jsonl", "data.csv.gz"])
def test_nothing_is_learned_or_decided_by_a_file_that_is_only_begun(tmp_path, name):
    """The columns are those of the first complete rows, wherever they are."""
    text = {"data.jsonl": ['{"a": 1', '{"a": "x", "y": 1}'], "data.csv": ["a,", "a,y\nx,1"]}
    for begun in text[name.removesuffix(".gz")]:
        content = begun.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        (tmp_path / "other.csv").write_text("a,y\n1,0\n2,1\n")
        with pytest.warns(StreamWarning, match=r"data.*, line [12]: the last line has no line end"):
            batches, stream = read([tmp_path / name, tmp_path / "other.csv"])
        assert joined(batches)[0].tolist() == [[1], [2]]
        assert stream.check.features == ("a",)
        assert stream.position.files[0].rows == 0


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_complete_last_line_may_get_its_line_end_later(tmp_path, end):
    path = tmp_path / "data.csv"
    path.write_bytes(f"a,y{end}1,p{end}2,q".encode())
    batches, stream = read(path, final=True)
    assert joined(batches)[3] == [1, 2]
    for more in (end[:1], end, f"{end}3,p", f"{end}3,p{end}"):
        path.write_bytes(f"a,y{end}1,p{end}2,q{more}".encode())
        rest, later = go_on(path, state_of(stream), final=True)
        assert joined(rest)[3] == ([3] if "3" in more else [])
        assert later.position.files[0].rows == 2 + len(rest)


def test_a_last_line_that_was_read_and_then_became_longer_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,y\n1,0\n2,1")
    _, stream = read(path, final=True)
    path.write_text("a,y\n1,0\n2,12\n3,0\n")
    with pytest.raises(StreamError, match=r"has changed within the first 2 rows"):
        go_on(path, state_of(stream))


def test_in_a_pipe_nothing_can_come_later():
    """An incomplete last line is a bad row there: see test_stream for pipes as such."""
    import io
    import sys

    class Input:
        buffer = io.BufferedReader(io.BytesIO(b"a,y\n1,0\n2"))

    before, sys.stdin = sys.stdin, Input()
    try:
        with pytest.raises(StreamError, match="standard input, line 3: wrong number of fields"):
            read("-")
    finally:
        sys.stdin = before


# -- files that are not what they were ------------------------------------------------------------


def change_a_value(path, columns):
    write(path, columns | {"x1": [columns["x1"][0] + 1.0, *columns["x1"][1:]]})


def change_a_label(path, columns):
    write(path, columns | {"y": [2 if columns["y"][0] != 2 else 1, *columns["y"][1:]]})


def cut_rows(path, columns):
    write(path, part_of(columns, 0, 3))


def put_a_row_before(path, columns):
    write(path, {name: [0 if name == "y" else 9.0, *column] for name, column in columns.items()})


def replace_it(path, columns):
    write(path, make_columns(30, seed=9))


def empty_it(path, columns):
    write(path, {name: [] for name in columns})


CHANGES = [change_a_value, change_a_label, cut_rows, put_a_row_before, replace_it, empty_it]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("finished", [True, False])
def test_a_file_that_has_changed_is_refused(tmp_path, kind, change, finished):
    path = write(tmp_path / f"data.{kind}", COLUMNS)
    batches, stream = read(path, batch_size=4)
    state, rows = (state_of(stream), 11) if finished else (batches[0], 4)
    change(path, COLUMNS)
    message = rf"{path} has changed within the first {rows} rows, which have been read"
    with pytest.raises(StreamError, match=message):
        go_on(path, state)


@pytest.mark.parametrize("kind", TEXTS)
def test_rows_of_a_text_that_have_not_been_read_may_change(tmp_path, kind):
    path = write(tmp_path / f"data.{kind}", COLUMNS)
    batches, _ = read(path, batch_size=4)
    write(path, COLUMNS | {"x1": [*COLUMNS["x1"][:10], 7.0]})
    assert joined(go_on(path, batches[0])[0])[0][-1, 1] == 7.0


def test_a_file_with_other_columns_is_refused_as_changed(tmp_path):
    path = write(tmp_path / "data.parquet", COLUMNS)
    batches, _ = read(path, batch_size=4)
    write(path, {"other": COLUMNS["x0"]})
    with pytest.raises(StreamError, match="has changed"):
        go_on(path, batches[0])


# -- files that were moved, copied or linked -----------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_was_moved_is_a_new_one(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", COLUMNS)
    _, stream = read(path)
    path.rename(tmp_path / f"z.{kind}")
    batches, _ = go_on(tmp_path, state_of(stream))
    assert joined(batches)[3] == list(range(1, 12))
    path.parent.joinpath(f"z.{kind}").rename(path)
    assert go_on(tmp_path, state_of(stream))[0] == []


def test_a_copy_is_another_file(tmp_path):
    """Two files of one content are both read, interrupted or not."""
    write(tmp_path / "a.csv", COLUMNS)
    shutil.copy(tmp_path / "a.csv", tmp_path / "b.csv")
    expected, _ = read(tmp_path, batch_size=4)
    assert len(joined(expected)[1]) == 22
    for place, batch in enumerate(expected, 1):
        assert same_rows(go_on(tmp_path, batch, batch_size=4)[0], expected[place:])
    _, stream = read(tmp_path / "a.csv")
    assert joined(go_on(tmp_path, state_of(stream))[0])[3] == list(range(1, 12))


def test_a_log_that_was_rotated_is_refused(tmp_path):
    write(tmp_path / "log.csv", COLUMNS)
    _, stream = read(tmp_path)
    (tmp_path / "log.csv").rename(tmp_path / "log.1.csv")
    write(tmp_path / "log.csv", part_of(LONGER, 11))
    with pytest.raises(StreamError, match=r"log\.csv has changed"):
        go_on(tmp_path, state_of(stream))


def test_a_file_is_the_same_however_it_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "data.csv", COLUMNS)
    (tmp_path / "link.csv").symlink_to(path)
    batches, _ = read(path, batch_size=4)
    monkeypatch.chdir(tmp_path)
    for name in ("data.csv", "./data.csv", "link.csv"):
        assert joined(go_on(name, batches[0])[0])[3] == list(range(5, 12))
    with pytest.raises(StreamError, match=r"link\.csv is given twice"):
        read([path, "link.csv"])


# -- again ----------------------------------------------------------------------------------------


def test_again_reads_finished_files_once_more_and_survives_interruptions(tmp_path):
    for place, kind in enumerate(("csv", "parquet")):
        write(tmp_path / f"{place}.{kind}", COLUMNS)
    first, stream = read(tmp_path, batch_size=4)
    second, _ = go_on(tmp_path, state_of(stream), batch_size=4, again=True)
    assert same_rows(second, first)
    for place, batch in enumerate(second[:-1], 1):  # the same command, after an interruption
        rest, later = go_on(tmp_path, batch, batch_size=4, again=True)
        assert same_rows(rest, second[place:])
    for done in (second[-1], state_of(later)):
        assert same_rows(go_on(tmp_path, done, batch_size=4, again=True)[0], first)


def test_again_takes_new_and_changed_files_as_they_are(tmp_path):
    write(tmp_path / "a.csv", COLUMNS)
    _, stream = read(tmp_path)
    write(tmp_path / "b.csv", COLUMNS)
    batches, _ = go_on(tmp_path, state_of(stream), again=True)
    assert len(joined(batches)[1]) == 22
    change_a_value(tmp_path / "a.csv", COLUMNS)
    batches, _ = go_on(tmp_path / "a.csv", state_of(stream), again=True)
    assert len(joined(batches)[1]) == 11


# -- positions as data ----------------------------------------------------------------------------


def test_nothing_of_a_batch_that_was_not_completed_is_in_the_position(tmp_path):
    """A file may end in the middle of a batch: it is finished when the batch is."""
    write(tmp_path / "a.csv", part_of(COLUMNS, 0, 3))
    write(tmp_path / "b.csv", part_of(COLUMNS, 3, 8))
    stream = Stream(tmp_path, label=LabelColumn("y"), batch_size=2)
    seen = []
    for batch in stream:
        assert stream.position is batch.position
        seen.append([(each.rows, each.finished) for each in batch.position.files])
    assert seen == [
        [(2, False), (0, False)],
        [(3, True), (1, False)],
        [(3, True), (3, False)],
        [(3, True), (5, False)],
    ]
    assert [(each.rows, each.finished) for each in stream.position.files] == [(3, True), (5, True)]


def test_a_position_needs_the_columns_of_its_rows(tmp_path):
    path = write(tmp_path / "data.csv", COLUMNS)
    batches, _ = read(path)
    with pytest.raises(StreamError, match="the columns have not been chosen"):
        read(path, position=batches[0].position)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("path", ""), ("path", 3), ("path", "a\0b"), ("rows", -1), ("rows", 1.0), ("rows", True),
        ("rows", 2**70), ("offset", None), ("digest", "abc"), ("digest", "G" * 64), ("size", "1"),
        ("finished", 1), ("finished", None), ("modified", -5), ("more", 1),
    ],
)  # fmt: skip
def test_a_damaged_position_is_refused(tmp_path, place, value):
    _, stream = read(write(tmp_path / "data.csv", COLUMNS))
    data = stream.position.to_dict()
    assert stored(stream.position) == stream.position
    data["files"][0][place] = value
    with pytest.raises(StreamError, match="the stored position"):
        Position.from_dict(data)


@pytest.mark.parametrize("data", [None, [], {}, {"files": {}}, {"files": [None]}, {"files": [{}]}])
def test_what_is_no_position_is_refused(data):
    with pytest.raises(StreamError, match="the stored position"):
        Position.from_dict(data)


def test_a_position_with_a_file_twice_is_refused(tmp_path):
    _, stream = read(write(tmp_path / "data.csv", COLUMNS))
    data = stream.position.to_dict()
    data["files"] *= 2
    with pytest.raises(StreamError, match="the stored position"):
        Position.from_dict(data)

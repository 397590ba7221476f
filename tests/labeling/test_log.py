"""The label log: nothing confirmed is lost, and replaying it gives the same state."""

from __future__ import annotations

import csv
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import (
    Event,
    LabelingError,
    LabelLog,
    RowKey,
    as_cells,
    checked_label,
    checked_name,
    event_of,
    line,
    read_lines,
)
from seqmed.tables.cells import read_safe_cell, safe_cell

TIME = "2026-01-01T00:00:00.000+00:00"


def event(kind, row=1, person="Ada", label="", why="", guess="", probability=None):
    digest = f"r{row:016x}"
    return Event(
        kind, TIME, person, "rows.csv", row, digest, f"r{row}", label, why, guess, probability
    )


EVENTS = [
    event("label", 1, label="cat", why="random", guess="dog", probability=0.75),
    event("skip", 2, why="uncertain"),
    event("label", 3, label='with, comma and "quotes"', why="unlike"),
    event("change", 1, label="dog"),
    event("withdraw", 3),
    event("label", 1, person="Émile", label="cat"),
    event("settle", 1, person="Émile", label="cat"),
]


def test_events_are_read_as_they_were_written(tmp_path):
    with LabelLog(tmp_path / "log.csv", "id", "kind") as log:
        for each in EVENTS:
            log.append(each)
    with LabelLog(tmp_path / "log.csv", "id", "kind") as log:
        assert log.events == EVENTS
        assert not log.repaired
    assert (tmp_path / "log.csv").read_text().splitlines()[0].split(",")[6:8] == ["id", "kind"]


def test_a_log_that_ends_anywhere_keeps_all_whole_lines(tmp_path):
    path = tmp_path / "log.csv"
    with LabelLog(path) as log:
        sizes = [path.stat().st_size]
        for each in EVENTS:
            log.append(each)
            sizes.append(path.stat().st_size)
    content = path.read_bytes()
    for end in sorted({*range(0, len(content), 11), *sizes, *range(sizes[-2], sizes[-1])}):
        for zeros in (b"", b"\x00" * 5):
            path.write_bytes(content[:end] + zeros)
            with LabelLog(path) as log:
                whole = sum(size <= end for size in sizes[1:])
                # a line that lacks only its end has all its fields, and is kept
                assert log.events[:whole] == EVENTS[:whole]
                assert len(log.events) - whole <= 1
                kept = len(log.events)
                log.append(event("label", 99, label="new"))
            with LabelLog(path) as log:
                assert len(log.events) == kept + 1
                assert log.events[-1].row == 99
                assert not log.repaired


def test_a_spreadsheet_may_save_the_log(tmp_path):
    path = tmp_path / "log.csv"
    with LabelLog(path) as log:
        for each in EVENTS:
            log.append(each)
    text = path.read_text()
    path.write_bytes(b"\xef\xbb\xbf" + text.strip().replace("\n", "\r\n").encode())
    with LabelLog(path) as log:
        assert log.events == EVENTS


def test_a_failed_write_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    with LabelLog(path) as log:
        log.append(EVENTS[0])
        before = path.read_bytes()

        def full(descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                log.append(EVENTS[1])
        assert path.read_bytes() == before
        assert log.events == EVENTS[:1]
        log.append(EVENTS[1])
        assert log.events == EVENTS[:2]


@pytest.mark.parametrize("label", [" x", "a\nb", ""])
def test_an_event_that_could_not_be_read_is_not_written(tmp_path, label):
    with LabelLog(tmp_path / "log.csv") as log:
        before = log.path.read_bytes()
        with pytest.raises(LabelingError):
            log.append(event("label", label=label))
        assert log.path.read_bytes() == before
        assert log.events == []


def test_every_event_is_synced(tmp_path, monkeypatch):
    synced, path = [], tmp_path / "log.csv"
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(path.stat().st_size), sync(file)))
    with LabelLog(path) as log:
        synced.clear()
        log.append(EVENTS[0])
        assert synced == [path.stat().st_size]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("label,t,Ada,rows.csv,0,D,,cat,,,", "row is '0'"),
        ("label,t,Ada,rows.csv,1,,,cat,,,", "digest is ''"),
        ("label,t,Ada,rows.csv,1,0123456789abcdef,,cat,,,", "digest is '0123456789abcdef'"),
        ("label,t,Ada,rows.csv,1,D,,,,,", "the label has 0 characters"),
        ("labeled,t,Ada,rows.csv,1,D,,cat,,,", "event is 'labeled'"),
        ("skip,t,Ada,rows.csv,1,D,,cat,,,", "skip has the label"),
        ("label,t,Ada,rows.csv,1,D,,cat", "8 fields"),
        ("label,t,Ada,rows.csv,1,D,,cat,,,1.5", "probability is '1.5'"),
        ("label,t,Ada,rows.csv,1,D,,cat,fun,,", "why is 'fun'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, reason):
    line = line.replace("D", "r0123456789abcdef")
    path = tmp_path / "log.csv"
    LabelLog(path).close()
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(LabelingError, match=f"line 2: .*{reason}"):
        LabelLog(path)
    assert path.read_text().endswith(f"{line}\n")


@pytest.mark.parametrize("text", ["a,b\n1,2\n3", "a,b", "event,time,person,x"])
def test_another_file_is_not_touched(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(LabelingError, match="expected event, time, person, file"):
        LabelLog(path)
    assert path.read_text() == text


def test_columns_of_the_data_may_not_be_those_of_the_log(tmp_path):
    with pytest.raises(LabelingError, match="another column 'row'"):
        LabelLog(tmp_path / "log.csv", "row")


@pytest.mark.parametrize("text", ["", " ", "x" * 201, "a\nb", "a\x00b", "a\u2028b", "a\ud800"])
def test_labels_and_names_are_single_lines(text):
    for check in (checked_label, checked_name):
        if check is checked_name and text in ("a\nb", "a\u2028b"):
            continue  # spaces in a name are made single
        with pytest.raises(LabelingError):
            check(text)


def test_usual_labels_are_accepted():
    assert [checked_label(text) for text in ("-1", " spam ", "=1+1", "日本")] == [
        "-1", "spam", "=1+1", "日本",
    ]  # fmt: skip


# -- the ledger ------------------------------------------------------------------------------------


def test_the_label_of_a_row():
    ledger = Ledger()
    key = RowKey("rows.csv", 1, "r0000000000000001")
    steps = [
        (event("label", label="cat"), "cat"),
        (event("label", person="Bo", label="cat"), "cat"),
        (event("change", person="Bo", label="dog"), None),  # they disagree
        (event("settle", person="Bo", label="dog"), "dog"),
        (event("change", label="cow"), None),  # after a change, the settlement is void
        (event("withdraw", person="Bo"), "cow"),
        (event("undo"), None),
    ]
    before = None
    for each, after in steps:
        assert ledger.apply(each) == (before, after)
        before = after
    assert ledger.n_labeled == 0
    assert ledger.returned["Ada"] == [key]


def test_rows_are_told_apart_by_their_cells():
    one, other = event("label", label="cat"), event("label", label="dog")
    other = other._replace(digest="rffffffffffffffff")  # the file has changed since
    ledger = Ledger([one, other])
    assert [row.label for row in ledger.rows.values()] == ["cat", "dog"]


@pytest.mark.parametrize(
    "each",
    [
        event("label", 1, label="dog"),
        event("skip", 1),
        event("change", 2, label="dog"),
        event("withdraw", 2),
        event("undo", 2),
        event("settle", 1, label="dog"),
        event("change", 1, person="Bo", label="dog"),
    ],
)
def test_impossible_events_change_nothing(each):
    ledger = Ledger([event("label", 1, label="cat")])
    digest = ledger.digest
    with pytest.raises(LabelingError):
        ledger.apply(each)
    assert ledger.digest == digest
    assert ledger.n_events == 1


kinds = st.sampled_from(["label", "change", "withdraw", "undo", "skip", "settle"])
steps = st.tuples(kinds, st.integers(1, 3), st.sampled_from("AB"), st.sampled_from("xy"))


@given(st.lists(steps, max_size=30))
def test_replay_gives_the_same_state(found):
    ledger, events = Ledger(), []
    for kind, row, person, label in found:
        label = label if kind in ("label", "change", "settle") else ""
        each = event(kind, row, person, label, "random" if kind in ("label", "skip") else "")
        try:
            ledger.apply(each)
        except LabelingError:
            continue
        events.append(each)
    lines = b"".join(line(as_cells(each)) for each in events)
    again = Ledger(map(event_of, read_lines(lines)))
    assert again.digest == ledger.digest
    assert again.rows == ledger.rows
    assert +again.classes == +ledger.classes
    assert (again.returned, again.answers) == (ledger.returned, ledger.answers)
    # every person has each row that they answered once
    for person, keys in ledger.answers.items():
        assert sorted(keys) == sorted(k for k, row in ledger.rows.items() if person in row.people)
    # the counts are those of the labels
    labels = [row.label for row in ledger.rows.values() if row.label is not None]
    assert dict(+ledger.classes) == {label: labels.count(label) for label in set(labels)}


cells = st.text("=+-@\t\r'1.5ex ,\"\n", max_size=6)


@given(cells)
def test_a_cell_is_no_formula_and_is_read_back(text):
    cell = safe_cell(text)
    assert read_safe_cell(cell) == text
    assert cell[:1] not in ("=", "@", "\t", "\r")
    if cell[:1] in ("+", "-"):
        float(cell)
    if text[:1] not in ("=", "+", "-", "@", "\t", "\r", "'"):
        assert cell == text


@pytest.mark.parametrize("text", ["+1", "-3.5", "-1e-3", "+.5", "'tis", "", "'", "1=1", "-", "a"])
def test_numbers_and_usual_texts_are_written_as_they_are(text):
    assert safe_cell(text) == ("'-" if text == "-" else text)


def test_the_log_is_no_formula_in_any_cell_and_is_read_back(tmp_path):
    odd = ["=1+1", "+x", "-x", "@x", "'=x", "''@x", "-1", "+1.5", "'tis"]
    events = [
        event("label", row, label="cat", why="random", guess=text, probability=0.5)._replace(
            file=f"{text}.csv", id=text, label=text
        )
        for row, text in enumerate(odd, 1)
    ]
    path = tmp_path / "log.csv"
    with LabelLog(path, "=id") as log:
        for each in events:
            log.append(each)
    with path.open(newline="") as file:
        for row in csv.reader(file):
            assert not any(cell[:1] in ("=", "+", "@") for cell in row if cell != "+1.5")
            assert {cell for cell in row if cell[:1] == "-"} <= {"-1"}
    with LabelLog(path, "=id") as log:
        assert log.events == events
        assert log.header[6] == "=id"


def test_current_labels_have_one_line_per_row(tmp_path: Path):
    with LabelLog(tmp_path / "log.csv", "id", "kind") as log:
        ledger = Ledger(EVENTS)
        where = {key: ("now.csv", key.row + 6) for key in ledger.rows}
        found = current_labels(log.header, ledger, where)
        lines = b"".join(found).decode().splitlines()
    assert lines == ["file,row,digest,id,kind", "now.csv,7,r0000000000000001,r1,cat"]

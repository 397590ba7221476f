"""Cells are numbers, levels and dates by what they are, whatever they are stored as."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmed.tables import cells, dates
from seqmed.tables.cells import TableError
from tests.reference import table_cells as reference

CELLS = [
    "1", "1.0", "+1", "-0", "1.", ".5", "1e3", "1E+3", "1e400", "1e-400", "inf", "-Infinity", "nan",
    "NAN", "-nan", "nan(1)", "NaN", "NA", "", "  ", " 2 ", "\t3\n", "\u00a04", "007", "0x10", "1_0",
    "1,5", "true", "True", "FALSE", "tru", "abc", "1 2", "12abc", "--1", "1e", "e5", ".", "-", "?",
    "\u0661", "½", "2.50", "0.10", "9007199254740993", "123456789012345678901234567890", "\x00",
    "null",
    "2024-01-31", "2024-01-31 00:00:00", "2024-01-31T10:00:00Z", "20240131", "24-01-31",
]  # fmt: skip


def single(function, cell, *arguments):
    """The value of one cell in a column of its own; BAD for a bad cell."""
    values, bad = function(pa.array([cell], pa.string()), *arguments)
    return reference.BAD if bad else (None if np.isnan(values[0]) else float(values[0]))


@pytest.mark.parametrize("cell", CELLS)
def test_numbers_are_those_of_the_reference(cell):
    assert single(cells.numbers, cell) == reference.number_of(cell)


@pytest.mark.parametrize("cell", CELLS)
def test_levels_are_those_of_the_reference(cell):
    found = cells.levels(pa.array([cell]))
    assert [*found.texts, None][found.codes[0]] == reference.level_of(cell)


@pytest.mark.parametrize("cell", CELLS)
def test_dates_are_those_of_the_reference(cell):
    assert single(dates.date_cells, cell) == reference.date_of(cell)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(CELLS), min_size=1, max_size=12))
def test_a_cell_does_not_depend_on_the_others(column):
    array = pa.array(column)
    for function in (cells.numbers, dates.date_cells):
        values, bad = function(array)
        for place, cell in enumerate(column):
            alone, alone_bad = function(pa.array([cell]))
            np.testing.assert_array_equal(values[place], alone[0])
            assert bad.get(place) == alone_bad.get(0)
    found = cells.levels(array)
    texts = [*found.texts, None]
    assert [texts[code] for code in found.codes] == [reference.level_of(cell) for cell in column]


TYPED = {
    "1": [1, 1.0, np.float32(1), Decimal("1.00"), "1", "1.0", "+1", b"1"],
    "0.1": [0.1, Decimal("0.10"), "0.1", "0.10", "1e-1"],
    "true": [True, "true", "True", "TRUE"],
    "9007199254740993": [2**53 + 1, "9007199254740993", Decimal(2**53 + 1)],
    "2024-01-31": [dt.date(2024, 1, 31), dt.datetime(2024, 1, 31), "2024-01-31",
                   "2024-01-31T00:00:00Z", np.datetime64("2024-01-31", "s"),
                   np.datetime64("2024-01-31", "ns"),
                   dt.datetime(2024, 1, 31, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))],
    "2024-01-31 10:30:00.500000": [dt.datetime(2024, 1, 31, 10, 30, 0, 500_000),
                                   "2024-01-31 10:30:00.5", "2024-01-31T10:30:00.500000Z",
                                   np.datetime64("2024-01-31T10:30:00.5", "ms")],
    "10:30:00": [dt.time(10, 30), "10:30:00"],
}  # fmt: skip


@pytest.mark.parametrize("level", TYPED)
def test_one_cell_has_one_meaning_in_every_type(level):
    columns = [pa.array([value]) for value in TYPED[level]]
    numbers = {np.asarray(cells.numbers(column)[0]).tobytes() for column in columns}
    times = {np.asarray(dates.date_cells(column, "%H:%M:%S")[0]).tobytes() for column in columns}
    assert [cells.levels(column).texts for column in columns] == [[level]] * len(columns)
    assert [cells.strings(column) for column in columns] == [[level]] * len(columns)
    assert len(numbers) == len(times) == 1


def test_decimals_are_rounded_as_their_digits_are():
    generator = np.random.default_rng(0)
    exact = [Decimal(int(each)).scaleb(-9) for each in generator.integers(-(10**17), 10**17, 2000)]
    values, bad = cells.numbers(pa.array(exact))
    assert not bad
    assert values.tolist() == [float(each) for each in exact]


def test_nanoseconds_are_cut_off_as_in_texts():
    moments = np.array([-1, 1, 999, -1001, 1_700_000_000_123_456_789], dtype="datetime64[ns]")
    values, _ = dates.date_cells(pa.array(moments))
    expected = [moments[place].astype("datetime64[us]").astype(int) / 1e6 for place in range(5)]
    assert values.tolist() == expected


def test_durations_are_seconds():
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array([np.timedelta64(90, "s").astype(f"m8[{unit}]"), None])
        np.testing.assert_array_equal(cells.numbers(column)[0], [90.0, np.nan])


@pytest.mark.parametrize("form", dates.FORMATS)
def test_formats_of_dates(form):
    moments = [dt.datetime(y, m, d, h, 5, 7) for y in (1969, 2024, 2068) for m in (1, 2, 9, 12)
               for d in (1, 12, 28) for h in (0, 11, 12, 23)]  # fmt: skip
    texts = [moment.strftime(form) for moment in moments]
    texts += ["", None, "abc", "31.02.2024", "02/30/2024", "13/13/2024", "25:00", "10:61", "1.1.1"]
    texts += ["13:05 PM", "0:05 am"]
    values, bad = dates.date_cells(pa.array(texts), form)
    for place, text in enumerate(texts):
        expected = reference.date_of(text, form)
        if text == "1.1.1":
            expected = reference.BAD  # strptime takes it for the year 1
        found = reference.BAD if place in bad else values[place]
        assert found == expected or (expected is None and np.isnan(found)), (text, found, expected)


def test_names_of_months_do_not_depend_on_the_locale():
    texts = ["Sep 5, 2024", "sept. 5, 2024", "SEPTEMBER 5, 2024", "Okt 5, 2024"]
    values, bad = dates.date_cells(pa.array(texts), "%b %d, %Y")
    assert values[:3].tolist() == [reference.date_of("2024-09-05")] * 3
    assert [*bad] == [3]


def test_marks_of_missing_cells_apply_to_every_type():
    marked = (" -999 ", "unknown", "1900-01-01")
    for column in ([-999, 1], [-999.0, 1.0], ["-999", "1"], ["-999.0", "1"], [Decimal("-999"), 1]):
        array = pa.array(column, from_pandas=True)
        np.testing.assert_array_equal(cells.numbers(array, marked)[0], [np.nan, 1.0])
        for marks in (marked, ("-999.0",)):
            assert cells.levels(array, marks).codes.tolist() == [-1, 0]
    assert cells.strings(pa.array(["unknown", " unknown", "Unknown"]), marked) == [
        "",
        "",
        "Unknown",
    ]
    for column in (["1900-01-01", "2024-01-01"], [dt.date(1900, 1, 1), dt.date(2024, 1, 1)]):
        times, bad = dates.date_cells(pa.array(column), "", marked)
        assert np.isnan(times).tolist() == [True, False]
        assert not bad


TYPES = (
    pa.string(), pa.float64(), pa.timestamp("us"), pa.null(), pa.decimal128(9, 2),
    pa.dictionary(pa.int8(), pa.string()),
)  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_columns_without_cells(kind):
    for column in (pa.array([], kind), pa.chunked_array([], kind)):
        assert cells.numbers(column)[0].shape == dates.date_cells(column)[0].shape == (0,)
        assert cells.levels(column).texts == cells.strings(column) == []
    column = pa.nulls(3, kind)
    assert np.isnan(cells.numbers(column)[0]).all()
    assert (cells.levels(column).codes < 0).all()


def test_cells_that_are_no_single_values_are_refused():
    for column in (pa.array([[1], [2]]), pa.array([{"a": 1}]), pa.array([b"\xff\xfe"])):
        with pytest.raises(TableError, match=r"expected single values: convert or drop it"):
            cells.plain(column)

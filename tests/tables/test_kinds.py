"""Kinds of columns, inferred from the first batch."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from seqmed.tables import kinds
from seqmed.tables.frames import as_column, as_table
from seqmed.tables.kinds import ColumnKind, infer

N = 60
DAY = dt.datetime(2024, 1, 1)
GENERATOR = np.random.default_rng(0)


def repeated(*values):
    return [values[place % len(values)] for place in range(N)]


COLUMNS = {
    "integers": (repeated(1, 2, 5), "numeric"),
    "zeros and ones": (repeated(0, 1), "numeric"),
    "nullable integers": (pd.array(repeated(1, 2, None), dtype="Int64"), "numeric"),
    "reals": ([place / 7 for place in range(N)], "numeric"),
    "numbers as texts": (repeated("1", "2.5", ""), "numeric"),
    "mostly numbers": (repeated("1", "2.5", "x"), "numeric"),
    "distinct numbers and a word": ([*map(str, range(N - 1)), "x"], "numeric"),
    "decimals": (repeated(Decimal("1.5"), Decimal("2")), "numeric"),
    "huge integers": (repeated(2**70, 1, 2), "numeric"),
    "timedeltas": (pd.to_timedelta(repeated(1, 2, 3), unit="h"), "numeric"),
    "words and numbers": (repeated("1", "a", "b"), "categorical"),
    "booleans": (repeated(True, False), "categorical"),
    "booleans with missing": (repeated(True, False, None), "categorical"),
    "nullable booleans": (pd.array(repeated(True, None, False), dtype="boolean"), "categorical"),
    "booleans as texts": (repeated("TRUE", "false", "NA"), "categorical"),
    "booleans and numbers": (repeated("true", "1", "0"), "numeric"),
    "words": (repeated("a", "b", None), "categorical"),
    "one level or missing": (repeated("a", None), "categorical"),
    "bytes": (repeated(b"a", b"b"), "categorical"),
    "declared categories": (pd.Categorical(repeated(1, 2, 3)), "categorical"),
    "intervals": (pd.cut(pd.Series(GENERATOR.normal(size=N)), 3), "categorical"),
    "few sentences": (repeated("very good indeed", "not so good"), "categorical"),
    "many levels": ([f"v{place % 55}" for place in range(N)], "hashed"),
    "declared ids": (pd.Categorical([f"v{place}" for place in range(N)]), "hashed"),
    "sentences": ([f"this is the text {place}" for place in range(N)], "text"),
    "days": ([(DAY + dt.timedelta(days=place)).date() for place in range(N)], "date"),
    "moments": ([DAY + dt.timedelta(hours=place) for place in range(N)], "date"),
    "zoned": (pd.date_range(DAY, periods=N, tz="Europe/Berlin"), "date"),
    "periods": (pd.period_range("2024-01-01", periods=N, freq="D"), "date"),
    "iso texts": ([f"{DAY + dt.timedelta(hours=place)}Z" for place in range(N)], "date"),
    "texts of days": ([f"{1 + place % 28}.{1 + place % 12}.2024" for place in range(N)], "date"),
    "times": (repeated("10:30", "11:45", ""), "date"),
    "typed times": (repeated(dt.time(10, 30), dt.time(11)), "date"),
    "integer id": (list(range(N)), "id"),
    "real id": ([float(place) for place in range(N)], "id"),
    "id with a missing cell": ([None, *range(N - 1)], "id"),
    "large id": ([2**53 + place for place in range(N)], "id"),
    "huge id": ([2**70 + place for place in range(N)], "id"),
    "text id": ([f"id-{place}" for place in range(N)], "id"),
    "numbers as text id": ([str(place) for place in range(N)], "id"),
    "constant": (repeated(3), "constant"),
    "constant text": (repeated("a"), "constant"),
    "constant in two notations": (repeated("1", "1.0"), "constant"),
    "constant date": (repeated(DAY), "constant"),
    "nothing": (repeated(None), "empty"),
    "no numbers": (repeated(np.nan), "empty"),
    "marks": (repeated("NA", "", "nan"), "empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", COLUMNS)
def test_kinds(case):
    values, expected = COLUMNS[case]
    found = infer("x", as_table({"x": values}).column("x"))
    assert expected in (found.kind, found.reason)


@pytest.mark.parametrize("case", [case for case in COLUMNS if "declared" not in case])
def test_kinds_do_not_depend_on_storage(case):
    column = as_column(COLUMNS[case][0])
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    expected = infer("x", array)
    half = len(array) // 2
    assert infer("x", pa.chunked_array([array.slice(0, half), array.slice(half)])) == expected
    if pa.types.is_duration(array.type) or pa.types.is_dictionary(array.type):
        return
    texts = array.cast(pa.string())
    form = expected.form or ("%H:%M:%S" if pa.types.is_time(array.type) else "")
    assert infer("x", texts).kind == expected.kind
    assert infer("x", texts).reason == expected.reason
    for kind in (pa.large_string(), pa.string_view()):
        assert infer("x", texts.cast(kind)) == infer("x", texts)
    assert form in ("", infer("x", texts).form)
    frames = [pd.DataFrame({"x": texts.to_pandas()}), pl.DataFrame({"x": texts.to_pylist()})]
    for frame in frames:
        assert infer("x", as_table(frame).column("x")) == infer("x", texts)


def test_few_rows_are_no_ids():
    assert infer("x", pa.array(range(29))).kind == "numeric"
    assert infer("x", pa.array([f"k{place}" for place in range(29)])).kind == "categorical"


@pytest.mark.filterwarnings("ignore:column 'x'. dates are read as")
@pytest.mark.parametrize(("texts", "form"), [
    (["2024-01-31", "2024-02-01"], ""),
    (["2024-01-31T10:00:00+02:00", "2024-02-01T10:00:00Z"], ""),
    (["2024/01/31", "2024/02/01"], "%Y/%m/%d"),
    (["31.01.2024", "01.02.2024"], "%d.%m.%Y"),
    (["31.01.24", "01.02.24"], "%d.%m.%y"),
    (["01/31/2024", "02/01/2024"], "%m/%d/%Y"),
    (["31/01/2024", "01/02/2024"], "%d/%m/%Y"),
    (["01/02/2024", "03/04/2024"], "%m/%d/%Y"),
    (["1/31/24 5:30 pm", "2/1/24 6:30 AM"], "%m/%d/%y %I:%M %p"),
    (["Jan 31, 2024", "Feb 1, 2024"], "%b %d, %Y"),
    (["31-Jan-2024", "01-Feb-2024"], "%d-%b-%Y"),
    (["10:30", "23:59"], "%H:%M"),
])  # fmt: skip
def test_formats_of_dates(texts, form):
    assert infer("x", pa.array(texts)) == ColumnKind("x", "date", form=form)
    assert kinds.chosen("x", "date", pa.array(texts)) == ColumnKind("x", "date", form=form)


def test_chosen_kinds():
    column = pa.array([f"{place}" for place in range(60)])
    assert kinds.chosen("x", "numeric", column) == ColumnKind("x", "numeric")
    assert kinds.chosen("x", "categorical", column) == ColumnKind("x", "hashed")
    assert kinds.chosen("x", "categorical", column.slice(0, 9)) == ColumnKind("x", "categorical")
    assert kinds.chosen("x", "text", column) == ColumnKind("x", "text")
    assert kinds.chosen("x", "drop", column) == ColumnKind("x", "drop", "chosen")
    whole = kinds.chosen("x", "date", pa.array([20240131, 20240201]))
    assert whole == ColumnKind("x", "date")

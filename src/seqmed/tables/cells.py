"""Cells of a raw column: numbers, levels, dates and texts.

A cell may be stored as a string or as a typed value. "1", 1 and 1.0 are the same cell. Strings such
as "" and "NA" are missing cells, and so are null and NaN. All functions take a column of pyarrow
and return arrays of the same length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from seqmed.arrays import Array, Mask
from seqmed.estimators.validation import LARGEST_FEATURE

# Strings that mark a missing cell.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
BOOLEANS = {"true": 1.0, "false": 0.0}
NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,18}))(?:\.0*)?")
# Type of dates: microseconds since 1970, without a time zone (UTC).
MICROSECONDS = pa.timestamp("us")
# Reasons why a cell is bad.
NOT_A_NUMBER = "not a number"
NOT_FINITE = "not finite or too large"
NOT_A_DATE = "not a date"


class TableError(ValueError):
    """A table is refused."""


class Levels(NamedTuple):
    """A column of levels.

    Attributes
    ----------
    texts : distinct levels, in order of their first cell.
    codes : (n,) index of the level of each cell, -1 for a missing cell.
    """

    texts: list[str]
    codes: NDArray[np.intp]


def cell_text(value: Any) -> str | None:
    """Return a value as text, the same for every type of storage; None for a missing value.

    1, 1.0 and "1" have the same text, and so do True and "true".
    """
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def whole(text: str) -> str:
    """Return a whole number in its usual notation, and any other text unchanged."""
    match = WHOLE.fullmatch(text)
    return str(int(match[1])) if match else text


def level_text(text: str) -> str:
    """Return a level in its usual notation: whole numbers, true and false."""
    return text.lower() if text.lower() in BOOLEANS else whole(text)


def plain(column: Any) -> Any:
    """Return a column as one array of strings, numbers, booleans or dates."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # too large for one array, or without chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if types.is_string(kind) or is_number_type(kind) or is_date_type(kind):
        return array
    if types.is_nested(kind):
        raise TableError(f"a column holds {kind}, expected single values: convert or drop it.")
    return array.cast(pa.string())


def is_number_type(kind: Any) -> bool:
    """Whether a column of this type holds numbers, booleans or only missing cells."""
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def is_date_type(kind: Any) -> bool:
    """Whether a column of this type holds dates."""
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def cleaned(strings: Any, missing: Sequence[str]) -> Any:
    """Return strings without surrounding spaces; missing cells are null."""
    trimmed = compute.utf8_trim_whitespace(strings)
    words = pa.array([*MISSING_WORDS, *missing], pa.string())
    return compute.if_else(compute.is_in(trimmed, words), pa.scalar(None, pa.string()), trimmed)


def numbers(column: Any, missing: Sequence[str] = ()) -> tuple[Array, dict[int, str]]:
    """Return cells as numbers, NaN if missing, and the reasons of bad cells by their index."""
    array = plain(column)
    if types.is_string(array.type):
        values, bad = parsed_numbers(array, missing)
    elif is_date_type(array.type):
        values, bad = np.full(len(array), np.nan), dict.fromkeys(range(len(array)), NOT_A_NUMBER)
    else:
        values, bad = floats(array), {}
    with np.errstate(invalid="ignore"):
        large = np.abs(values) > LARGEST_FEATURE
    if large.any():
        bad = bad | dict.fromkeys(np.flatnonzero(large).tolist(), NOT_FINITE)
    return values, bad


def floats(array: Any) -> Array:
    """Return numbers as an array, NaN if missing."""
    if array.type != pa.float64():
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def parsed_numbers(strings: Any, missing: Sequence[str]) -> tuple[Array, dict[int, str]]:
    """Return the numbers in strings, and the reasons of bad cells."""
    if not missing:
        try:
            return floats(strings), {}
        except pa.ArrowInvalid:
            pass
    strings = cleaned(strings, missing)
    try:
        return floats(strings), {}
    except pa.ArrowInvalid:
        pass
    written = compute.fill_null(
        compute.match_substring_regex(strings, f"^(?:{NUMBER.pattern})$"), False
    )
    unsigned = compute.utf8_ltrim(strings, "+")
    values = floats(compute.if_else(written, unsigned, pa.scalar(None, pa.string()))).copy()
    bad: dict[int, str] = {}
    others = compute.and_(compute.invert(written), compute.is_valid(strings))
    for place in np.flatnonzero(others.to_numpy(zero_copy_only=False)).tolist():
        word = BOOLEANS.get(strings[place].as_py().lower())
        if word is None:
            bad[place] = NOT_A_NUMBER
        else:
            values[place] = word
    return values, bad


def levels(column: Any, missing: Sequence[str] = ()) -> Levels:
    """Return the levels of a column."""
    array = plain(column)
    if is_date_type(array.type):
        array = array.cast(pa.string())
    coded = array.dictionary_encode()
    absent = {*MISSING_WORDS, *missing}
    texts: dict[str, int] = {}
    codes = []
    for value in coded.dictionary.to_pylist():
        text = cell_text(value)
        text = None if text is None or text in absent else level_text(text)
        codes.append(-1 if text is None else texts.setdefault(text, len(texts)))
    places = np.asarray(compute.fill_null(coded.indices, len(codes)).to_numpy())
    return Levels(list(texts), np.array([*codes, -1], dtype=np.intp)[places])


def strings(column: Any, missing: Sequence[str] = ()) -> list[str]:
    """Return cells as texts, empty if missing."""
    array = plain(column)
    if not types.is_string(array.type):
        array = pa.array([cell_text(value) for value in array.to_pylist()], pa.string())
    absent = {*MISSING_WORDS, *missing}
    found = (text and text.strip() for text in array.to_pylist())
    return ["" if text is None or text in absent else text for text in found]


def dates(column: Any, form: str = "", missing: Sequence[str] = ()) -> tuple[Array, dict[int, str]]:
    """Return cells as seconds since 1970 in UTC, NaN if missing, and the reasons of bad cells.

    Parameters
    ----------
    column : the column.
    form : format of strings as in `strptime`; empty for ISO 8601.
    missing : further strings that mark a missing cell.
    """
    array = plain(column)
    if is_date_type(array.type):
        return seconds(array.cast(MICROSECONDS, safe=False)), {}
    if not types.is_string(array.type):
        values = floats(array)
        return np.full(len(array), np.nan), dict.fromkeys(
            np.flatnonzero(~np.isnan(values)).tolist(), NOT_A_DATE
        )
    array = cleaned(array, missing)
    times: Array = iso_dates(array) if not form else parsed_dates(array, form)
    bad = np.isnan(times) & array.is_valid().to_numpy(zero_copy_only=False)
    return times, dict.fromkeys(np.flatnonzero(bad).tolist(), NOT_A_DATE)


def seconds(array: Any) -> Array:
    """Return timestamps in microseconds as seconds, NaN if missing."""
    return floats(array.cast(pa.int64())) / 1e6


def parsed_dates(array: Any, form: str) -> Array:
    """Return strings of one format as seconds, NaN for all others."""
    return seconds(compute.strptime(array, form, "us", error_is_null=True))


def iso_dates(array: Any) -> Array:
    """Return strings in ISO 8601 as seconds, NaN for all others."""
    try:
        return seconds(array.cast(MICROSECONDS))
    except pa.ArrowInvalid:
        coded = array.dictionary_encode()
        known = [iso_date(text) for text in coded.dictionary.to_pylist()]
        places = np.asarray(compute.fill_null(coded.indices, len(known)).to_numpy())
        times: Array = np.array([*known, np.nan])[places]
        return times


def iso_date(text: str) -> float:
    """Return a text in ISO 8601 as seconds, NaN for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return moment.timestamp()
    except (OverflowError, ValueError):
        return math.nan


def missing_cells(column: Any, missing: Sequence[str] = ()) -> Mask:
    """Return a mask of the missing cells."""
    array = plain(column)
    if types.is_string(array.type):
        array = cleaned(array, missing)
    elif types.is_floating(array.type):
        return np.isnan(floats(array))
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))

"""Cells of a raw column: numbers, levels and texts.

A cell may be stored as a string or as a typed value. "1", 1 and 1.0 are the same cell. Strings such
as "" and "NA" are missing cells, and so are null and NaN. All functions take a column of pyarrow
and return arrays of the same length, except those of single values at the end. A result depends on
the cell only, not on the type of storage or on the other cells.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from seqmed.estimators.validation import LARGEST_FEATURE
from seqmed.numeric.arrays import Array, Indices, Mask

# Words that mark a missing cell or label, and signs that mark a missing cell but may be labels.
MISSING_WORDS = (
    "", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "-nan", "-NaN", "null", "NULL", "None",
    "<NA>", "NaT",
)  # fmt: skip
MISSING_SIGNS = ("?", "-", ".")
# Codes, such as 01234, which are not numbers.
CODE = "^0[0-9]+$"
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
POINT, COMMA = ".", ","
# Characters between groups of three digits.
THOUSANDS = (COMMA, POINT, " ", "'")
# Currencies, which may stand before a number, and units after it. Two spaces do not break a line.
CURRENCY = "[€$£¥₹]|EUR|USD|GBP|CHF|JPY|SEK|NOK|DKK|PLN|kr"
UNIT = (
    f"{CURRENCY}|[%‰]|°[CF]?|[kcmµn]?m[²³]?|km/h|m/s|mph|[kmµ]?g|lbs?|[mc]?l|[kM]?Wh?|[km]?V|"
    "[km]?A|[mµn]?s|min|h|[kMG]?Hz|dB|h?Pa|[kMGT]i?B"
)
SPACE = "[ \u00a0\u202f]"
# Cells that a spreadsheet runs, with any apostrophes before them. It runs no numbers.
FORMULA = re.compile(r"'*[=+\-@\t\r]")
INFINITY = "[+-]?inf(?:inity)?"
BOOLEANS = {"true": 1.0, "false": 0.0}
# Whole numbers and other numbers as levels. Codes with leading zeros, such as 007, are no numbers.
WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,300}))(?:\.0*)?")
DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?")
ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?")
EPOCH = datetime(1970, 1, 1)
# Type of dates: microseconds since 1970, without a time zone (UTC).
MICROSECONDS = pa.timestamp("us")
# Reasons why a cell is bad.
NOT_A_NUMBER = "not a number"
NOT_FINITE = "not finite or too large"


class TableError(ValueError):
    """A table is refused."""


class Levels(NamedTuple):
    """The levels of a column, and the code of the level of every cell (n,), -1 if missing."""

    texts: list[str]
    codes: NDArray[np.intp]

    @property
    def counts(self) -> NDArray[np.intp]:
        """The number of cells of each level."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))


@lru_cache(maxsize=64)
def marks(missing: tuple[str, ...]) -> frozenset[str]:
    """Return the marks of missing cells, as they are and in the notation of levels.

    These are the usual ones, and further strings.
    """
    words = {*MISSING_WORDS, *MISSING_SIGNS, *map(str.strip, missing)}
    return frozenset(words | set(map(level_text, words)))


# -- columns of few types -------------------------------------------------------------------------


def plain(column: Any) -> Any:
    """Return a column as one array of strings, integers, floats, booleans or `MICROSECONDS`.

    Decimal numbers become strings, which are rounded correctly when they are read. Durations become
    seconds, and times of the day become strings.
    """
    array = column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if types.is_dictionary(kind):
        return plain(array.dictionary.take(array.indices))
    if types.is_string(kind) or is_number_type(kind):
        return array
    if types.is_duration(kind):
        unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        return compute.divide(array.cast(pa.int64()).cast(pa.float64(), safe=False), unit)
    if types.is_nested(kind):
        raise TableError(f"it holds {kind}, expected single values: convert or drop it.")
    if types.is_date(kind) or types.is_timestamp(kind):
        try:
            if getattr(kind, "unit", None) == "ns":  # shorter units than microseconds are cut off
                array = compute.floor_temporal(array.cast(pa.timestamp("ns")), unit="microsecond")
            return array.cast(MICROSECONDS)
        except pa.ArrowInvalid:
            raise TableError("it holds dates beyond the year 290000: correct or drop it.") from None
    try:
        texts = array.cast(pa.string())
    except pa.ArrowException:
        raise TableError(
            f"it holds {kind} that is not text in UTF-8, expected single values: convert or drop "
            "it."
        ) from None
    return compute.replace_substring_regex(texts, r"\.0+$", "") if types.is_time(kind) else texts


def is_number_type(kind: Any) -> bool:
    """Whether a column of this type holds numbers or booleans."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def cleaned(strings: Any, missing: tuple[str, ...]) -> Any:
    """Return strings without surrounding spaces; missing cells are null."""
    trimmed = compute.utf8_trim_whitespace(strings)
    marked = compute.is_in(trimmed, pa.array(marks(missing), pa.string()))
    return compute.if_else(marked, pa.scalar(None, pa.string()), trimmed)


def seconds(array: Any) -> Array:
    """Return dates in microseconds as seconds, NaN if missing."""
    return floats(array.cast(pa.int64())) / 1e6


# -- numbers --------------------------------------------------------------------------------------


def numbers(
    column: Any, missing: tuple[str, ...] = (), unit: str = ""
) -> tuple[Array, dict[int, str]]:
    """Return cells as numbers, NaN if missing or bad, and the reasons of bad cells by index.

    The unit may stand before or after a number, and may be left out.
    """
    array = plain(column)
    if types.is_string(array.type):
        values, bad = parsed_numbers(without_unit(array, unit) if unit else array, missing)
    elif types.is_timestamp(array.type):
        values, bad = np.full(len(array), np.nan), np.flatnonzero(valid(array))
    else:
        values, bad = floats(array), np.zeros(0, dtype=np.intp)
    reasons = dict.fromkeys(bad.tolist(), NOT_A_NUMBER)
    for word in map(str.strip, missing):
        if NUMBER.fullmatch(word):
            values = np.where(values == float(word), np.nan, values)
    if values.size and not np.nanmax(np.abs(values), initial=0.0) <= LARGEST_FEATURE:
        large = np.abs(values) > LARGEST_FEATURE
        values = np.where(large, np.nan, values)
        reasons |= dict.fromkeys(np.flatnonzero(large).tolist(), NOT_FINITE)
    return values, reasons


def floats(array: Any) -> Array:
    """Return numbers as an array, NaN if missing."""
    if array.type != pa.float64():
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def valid(array: Any) -> Mask:
    """Return a mask of the cells that are not null."""
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def parsed_numbers(strings: Any, missing: tuple[str, ...]) -> tuple[Array, Indices]:
    """Return the numbers in strings, and the indices of bad cells."""
    for clean in (False, True):
        array = cleaned(strings, missing) if clean else strings
        try:
            values = floats(array)
        except pa.ArrowInvalid:
            continue
        if np.count_nonzero(np.isnan(values)) == array.null_count:  # else spellings of NaN
            return values, np.zeros(0, dtype=np.intp)
    lower = compute.utf8_lower(array)
    written = compute.match_substring_regex(lower, f"^(?:{NUMBER.pattern}|{INFINITY})$")
    found = compute.if_else(written, lower, pa.scalar(None, pa.string())).cast(pa.float64())
    words = compute.index_in(lower, pa.array(["false", "true"])).cast(pa.float64())
    values = floats(compute.coalesce(found, words))
    return values, np.flatnonzero(np.isnan(values) & valid(array))


@lru_cache(maxsize=32)
def number_pattern(decimal: str, thousands: str) -> str:
    """Return the pattern of a whole cell that is a number, with or without a unit.

    The first group is the unit before the number, and the second one the unit after it.
    """
    between = SPACE if thousands == " " else re.escape(thousands)
    group = f"(?:[1-9][0-9]{{0,2}}(?:{between}[0-9]{{3}})+|[0-9]+)"
    digits, point = group if thousands else "[0-9]+", re.escape(decimal)
    number = f"(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    around = f"[ \t]*[+-]?(?:({CURRENCY}){SPACE}?[+-]?)?{number}(?:{SPACE}?({UNIT}))?[ \t]*"
    return f"^{around}$"


def usual_numbers(column: Any, decimal: str, thousands: str) -> Any:
    """Return a column of texts with numbers in the usual notation: 1.234,5 becomes 1234.5.

    Only cells that are wholly a number, with or without a unit, are changed. The column is a
    pyarrow array of strings.
    """
    written = compute.match_substring_regex(column, number_pattern(decimal, thousands))
    usual = column
    if thousands:
        between = SPACE if thousands == " " else re.escape(thousands)
        usual = compute.replace_substring_regex(column, f"([0-9]){between}([0-9])", r"\1\2")
    usual = compute.replace_substring(usual, decimal, POINT)
    return compute.if_else(written, usual, column)


def common_unit(texts: Iterable[str]) -> str:
    """Return the most common unit of numbers in the usual notation, empty if there is none."""
    pattern = re.compile(number_pattern(POINT, ""))
    found = Counter(
        unit for text in texts if (match := pattern.match(text)) for unit in match.groups() if unit
    )
    return found.most_common(1)[0][0] if found else ""


def without_unit(strings: Any, unit: str) -> Any:
    """Return strings without a unit before or after a number."""
    own = re.escape(unit)
    before = f"^([ \t]*[+-]?){own}{SPACE}?([+-]?[0-9.])"
    after = f"([0-9.]){SPACE}?{own}[ \t]*$"
    bare = compute.replace_substring_regex(strings, before, r"\1\2")
    return compute.replace_substring_regex(bare, after, r"\1")


# -- levels and texts -----------------------------------------------------------------------------


def levels(column: Any, missing: tuple[str, ...] = ()) -> Levels:
    """Return the levels of a column."""
    array = plain(column)
    if types.is_timestamp(array.type):  # as `date_text`
        array = compute.replace_substring_regex(array.cast(pa.string()), r"\.0+$", "")
        array = compute.replace_substring(array, " 00:00:00", "")
    values, places = distinct_values(array)
    absent = marks(missing)
    texts: dict[str, int] = {}
    codes = []
    for value in values:
        text = cell_text(value)
        text = None if text is None else level_text(text)
        codes.append(-1 if text is None or text in absent else texts.setdefault(text, len(texts)))
    return Levels(list(texts), np.array([*codes, -1], dtype=np.intp)[places])


def distinct_values(array: Any) -> tuple[list[Any], NDArray[np.int32]]:
    """Return the distinct values of a column, and the index (n,) of each cell; -1 for null."""
    coded = array.dictionary_encode()
    return coded.dictionary.to_pylist(), compute.fill_null(coded.indices, -1).to_numpy()


def strings(column: Any, missing: tuple[str, ...] = ()) -> list[str]:
    """Return cells as texts, empty if missing."""
    found = levels(column, missing)
    texts = [*found.texts, ""]
    return [texts[code] for code in found.codes.tolist()]


# -- single values ---------------------------------------------------------------------------------


def cell_text(value: Any) -> str | None:
    """Return a value as text, the same for every type of storage; None for a missing value.

    1, 1.0 and "1" have the same text, and so do True and "true".
    """
    if isinstance(value, str):
        return value.strip() or None
    if value is None or value != value:  # NaN, NaT
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").strip() or None
    if isinstance(value, float | np.floating):
        return whole_or_float(float(value))
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return date_text(moment)
    return str(value)


def whole_or_float(value: float) -> str:
    """Return a number as text: a whole number without a decimal point."""
    return str(int(value)) if value.is_integer() else repr(value)


def date_text(moment: datetime) -> str:
    """Return a date as text, without a time if it is midnight."""
    text = moment.isoformat(" ")
    return text.removesuffix(" 00:00:00")


def level_text(text: str) -> str:
    """Return a level in its usual notation: numbers, true and false, and dates in ISO 8601."""
    if text[:1] in "tTfF" and text.lower() in BOOLEANS:
        return text.lower()
    if not text or text[0] not in "+-.0123456789":
        return text
    match = WHOLE.fullmatch(text)
    if match:
        return str(int(match[1]))
    if DECIMAL.fullmatch(text) and any(map(str.isdigit, text)):
        value = float(text)
        return whole_or_float(value) if math.isfinite(value) else text
    if ISO_DATE.fullmatch(text):
        try:
            return date_text(EPOCH + timedelta(microseconds=round(iso_date(text) * 1e6)))
        except (OverflowError, ValueError):  # NaN, or beyond the years 1 to 9999
            return text
    return text


def iso_date(text: str) -> float:
    """Return a text in ISO 8601 as seconds since 1970, NaN for any other text."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (OverflowError, ValueError):
        return math.nan


def safe_cell(text: str) -> str:
    """Return a cell of a CSV that no spreadsheet runs; `read_safe_cell` gives the text back.

    A text that begins with =, +, -, @, a tab or a carriage return gets a leading apostrophe, unless
    it is a number. So does such a text after apostrophes, which would else be read as another one.
    """
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def read_safe_cell(cell: str) -> str:
    """Return the text of a cell that `safe_cell` has written."""
    return cell[1:] if cell[:1] == "'" and FORMULA.match(cell) else cell

"""Kinds of columns, inferred from the cells of the first batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from seqmed.numeric.arrays import Array
from seqmed.numeric.expectations import expect
from seqmed.tables import cells
from seqmed.tables.cells import BOOLEANS, Levels
from seqmed.tables.dates import FORMATS, date_format

NUMERIC, CATEGORICAL, TEXT, DATE, DROP = CHOICES = (
    "numeric", "categorical", "text", "date", "drop",
)  # fmt: skip
"""Kinds that a user can choose."""
HASHED = "hashed"
# Prefix of the kind of a column of dates whose format is chosen, such as "date:%d/%m/%Y".
FORMATTED = "date:"
# Numbers with a currency or another unit.
WITH_UNIT = re.compile(
    r"[€$£¥] ?[+-]?[0-9][0-9.,' ]*"
    r"|[+-]?[0-9][0-9.,' ]*(?:%|[€$£¥]|°[CF]?|EUR|USD|GBP|CHF|[kmc]?m|[km]?g|k?Wh?|m?s|h|V|A)"
)

# Categories with more levels than this are hashed.
MOST_LEVELS = 50
# A column is numeric, or of dates, if more than this fraction of its cells are.
MAJORITY = 0.5
# Strings are texts if they have at least this many words on average, and are mostly distinct.
WORDS, DISTINCT = 3.0, 0.5
# Smallest number of rows in which distinct values are taken for an id, and equal ones for a
# constant.
ENOUGH_ROWS = 30
# Integers of this size and more are rounded by floats.
LARGEST_INTEGER = 2.0**53
# Names that pandas gives to the index of a data frame.
ROW_NUMBERS = ("__index_level_0__", "", "Unnamed: 0")


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column.

    Parameters
    ----------
    name : the column.
    kind : "numeric", "categorical", "hashed", "date", "text", or "drop".
    reason : why the column was left out: "empty", "constant", "id", "chosen"; empty otherwise.
    form : format of dates; empty for ISO 8601 and for other kinds.
    """

    name: str
    kind: str
    reason: str = ""
    form: str = ""

    def validate(self) -> None:
        """Raise a ValueError if the kind or the format, a regular expression, is unknown."""
        expect(self.kind in (*CHOICES, HASHED), "a known kind")
        expect(self.form in ("", *FORMATS), "a known format")

    @property
    def description(self) -> str:
        """The kind in words."""
        if self.kind == DROP:
            return f"not used ({self.reason})"
        if self.kind == HASHED:
            return "categorical, hashed"
        return f"{self.kind}, {self.form}" if self.form else self.kind


def infer(name: str, column: Any, missing: Sequence[str] = ()) -> ColumnKind:
    """Return the kind of a column of the first batch.

    Parameters
    ----------
    name : the column.
    column : its cells.
    missing : further strings that mark a missing cell.
    """
    array = cells.plain(column)
    if types.is_dictionary(column.type):  # declared by the data frame
        return of_levels(name, cells.levels(array, missing), declared=True)
    numeric = not types.is_timestamp(array.type) and not has_only_booleans(array, missing)
    if numeric and not has_codes(array):
        values, bad = cells.numbers(array, missing)
        n_known = np.count_nonzero(~np.isnan(values))
        if not bad or n_known > MAJORITY * (n_known + len(bad)):
            return of_numbers(name, exact(array, values, missing), bad)
    found = cells.levels(array, missing)
    kind = of_levels(name, found, declared=BOOLEANS.keys() >= {*found.texts})
    if kind.kind == DROP and kind.reason != "id":
        return kind
    if types.is_timestamp(array.type):
        return ColumnKind(name, DATE)
    form = date_format(found.texts, found.counts, MAJORITY * found.counts.sum())
    return kind if form is None else ColumnKind(name, DATE, form=form)


def has_only_booleans(array: Any, missing: Sequence[str]) -> bool:
    """Whether all cells of a column are true, false or missing, and at least one is not missing."""
    if not types.is_string(array.type):
        return bool(types.is_boolean(array.type))
    lower = compute.utf8_lower(compute.utf8_trim_whitespace(array))
    words = compute.is_in(lower, pa.array([*BOOLEANS]))
    if not compute.any(words).as_py():
        return False
    return BOOLEANS.keys() >= {*cells.levels(array, missing).texts}


def has_codes(array: Any) -> bool:
    """Whether a column of texts has a number with a leading zero, such as 01234."""
    if not types.is_string(array.type):
        return False
    trimmed = compute.utf8_trim_whitespace(array)
    return bool(compute.any(compute.match_substring_regex(trimmed, cells.CODE)).as_py())


def is_choice(kind: Any) -> bool:
    """Whether a user can choose this kind."""
    if not isinstance(kind, str):
        return False
    return kind in CHOICES or (kind.startswith(FORMATTED) and kind[len(FORMATTED) :] in FORMATS)


def number_with_unit(column: Any, missing: Sequence[str]) -> str | None:
    """Return a cell of a column in which most cells are numbers with a unit; None for others."""
    array = cells.plain(column)
    if not types.is_string(array.type):
        return None
    texts = cells.levels(array, missing).texts
    found = [text for text in texts if WITH_UNIT.fullmatch(text)]
    return found[0] if len(found) > MAJORITY * len(texts) else None


def exact(array: Any, values: Array, missing: Sequence[str]) -> Array:
    """Return numbers; codes of the levels if some are integers that a float would round."""
    known = values[~np.isnan(values)]
    if np.abs(known).max(initial=0.0) < LARGEST_INTEGER or (known != np.floor(known)).any():
        return values
    codes = cells.levels(array, missing).codes
    return np.where(codes < 0, np.nan, codes)


def of_numbers(name: str, values: Array, bad: Mapping[int, str]) -> ColumnKind:
    """Return the kind of a column of numbers, NaN for missing and bad cells."""
    known = values[~np.isnan(values)]
    if not known.size:
        return ColumnKind(name, DROP, "empty")
    if known.size == values.size >= ENOUGH_ROWS and (known == known[0]).all():
        return ColumnKind(name, DROP, "constant")
    if not bad and is_id(name, known):
        return ColumnKind(name, DROP, "id")
    return ColumnKind(name, NUMERIC)


def is_id(name: str, known: Array) -> bool:
    """Whether a column holds a different whole number in every row with a value."""
    if known.size < ENOUGH_ROWS and name not in ROW_NUMBERS:
        return False
    return bool((known == np.floor(known)).all()) and np.unique(known).size == known.size


def of_levels(name: str, found: Levels, *, declared: bool) -> ColumnKind:
    """Return the kind of a column of levels: categories, unless they are texts or an id.

    Parameters
    ----------
    name : the column.
    found : its cells.
    declared : whether they are known to be categories.
    """
    present = int((found.codes >= 0).sum())
    if not present:
        return ColumnKind(name, DROP, "empty")
    if len(found.texts) == 1 and present == found.codes.size >= ENOUGH_ROWS:
        return ColumnKind(name, DROP, "constant")
    if declared:
        return category(name, found)
    words = np.mean([len(text.split()) for text in found.texts])
    if words >= WORDS and len(found.texts) > max(DISTINCT * present, 1):
        return ColumnKind(name, TEXT)
    if len(found.texts) == present >= ENOUGH_ROWS:
        return ColumnKind(name, DROP, "id")
    return category(name, found)


def category(name: str, found: Levels) -> ColumnKind:
    """Return the kind of a column of categories."""
    return ColumnKind(name, CATEGORICAL if len(found.texts) <= MOST_LEVELS else HASHED)


def chosen(name: str, kind: str, column: Any, missing: Sequence[str] = ()) -> ColumnKind:
    """Return a column whose kind the user chose."""
    if kind == DROP:
        return ColumnKind(name, DROP, "chosen")
    if kind.startswith(FORMATTED):
        return ColumnKind(name, DATE, form=kind[len(FORMATTED) :])
    if kind == CATEGORICAL:
        return category(name, cells.levels(column, missing))
    if kind == DATE:
        found = cells.levels(column, missing)
        return ColumnKind(name, DATE, form=date_format(found.texts, found.counts, 0.0) or "")
    return ColumnKind(name, kind)

"""Kinds of columns, inferred from the cells of the first batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyarrow import types

from seqmed.tables import cells
from seqmed.tables.cells import Levels

NUMERIC, CATEGORICAL, TEXT, DATE, DROP = CHOICES = (
    "numeric", "categorical", "text", "date", "drop",
)  # fmt: skip
"""Kinds that a user can choose."""
HASHED = "hashed"

# Categories with more levels than this are hashed.
MOST_LEVELS = 50
# A column is numeric, or of dates, if more than this fraction of its cells are.
MAJORITY = 0.5
# Strings are texts if they have at least this many words on average, and are mostly distinct.
WORDS, DISTINCT = 3.0, 0.5
# Smallest number of rows in which distinct values are taken for an id.
ENOUGH_ROWS = 30
# Names that pandas gives to the index of a data frame.
ROW_NUMBERS = ("__index_level_0__", "", "Unnamed: 0")
# Formats of dates besides ISO 8601, each also with hours and minutes, and with seconds.
DATE_FORMATS = (
    "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%b %d, %Y", "%d %b %Y",
)  # fmt: skip
TIME_FORMATS = ("", " %H:%M", " %H:%M:%S")


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
    found = cells.levels(array, missing)
    present = int((found.codes >= 0).sum())
    if not present:
        return ColumnKind(name, DROP, "empty")
    if len(found.texts) == 1 and present == found.codes.size:
        return ColumnKind(name, DROP, "constant")
    if types.is_dictionary(column.type):  # declared by the data frame
        return category(name, found)
    if types.is_boolean(array.type) or {text.lower() for text in found.texts} <= {*cells.BOOLEANS}:
        return category(name, found)
    values, _ = cells.numbers(array, missing)
    known = values[~np.isnan(values)]
    if known.size > MAJORITY * present:
        return (
            ColumnKind(name, DROP, "id") if is_id(name, known, found) else ColumnKind(name, NUMERIC)
        )
    form = date_format(array, present, missing)
    if form is not None:
        return ColumnKind(name, DATE, form=form)
    words = np.mean([len(text.split()) for text in found.texts])
    if words >= WORDS and len(found.texts) > max(DISTINCT * present, 1):
        return ColumnKind(name, TEXT)
    if len(found.texts) == found.codes.size >= ENOUGH_ROWS:
        return ColumnKind(name, DROP, "id")
    return category(name, found)


def is_id(name: str, known: Any, found: Levels) -> bool:
    """Whether a column holds a different whole number in every row."""
    distinct = known.size == found.codes.size and np.unique(known).size == known.size
    if not distinct or not (known == np.floor(known)).all():
        return False
    return known.size >= ENOUGH_ROWS or name in ROW_NUMBERS


def category(name: str, found: Levels) -> ColumnKind:
    """Return the kind of a column of categories."""
    return ColumnKind(name, CATEGORICAL if len(found.texts) <= MOST_LEVELS else HASHED)


def date_format(array: Any, present: int, missing: Sequence[str]) -> str | None:
    """Return the format of a column of dates; None if it holds none."""
    best, most = None, MAJORITY * present
    for form in formats(array):
        times, _ = cells.dates(array, form, missing)
        known = int((~np.isnan(times)).sum())
        if known > most:
            best, most = form, known
        if known == present:
            break
    return best


def formats(array: Any) -> Sequence[str]:
    """Return the formats to try: all if the cells are strings with digits."""
    if not types.is_string(array.type):
        return ("",)
    sample = [text for text in array.slice(0, 100).to_pylist() if text]
    if not any(character.isdigit() for text in sample for character in text):
        return ()
    return ("", *all_formats())


def all_formats() -> list[str]:
    """Return all formats of dates except ISO 8601."""
    return [date + time for date in DATE_FORMATS for time in TIME_FORMATS]


def chosen(name: str, kind: str, column: Any, missing: Sequence[str] = ()) -> ColumnKind:
    """Return a column whose kind the user chose."""
    if kind == DROP:
        return ColumnKind(name, DROP, "chosen")
    if kind == CATEGORICAL:
        return category(name, cells.levels(column, missing))
    if kind == DATE:
        array = cells.plain(column)
        present = int((~cells.missing_cells(array, missing)).sum())
        return ColumnKind(name, DATE, form=date_format(array, present, missing) or "")
    return ColumnKind(name, kind)

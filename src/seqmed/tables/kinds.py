"""Kinds of columns, chosen or inferred from the first batch, and cells with the types of kinds.

`column_kinds` decides by the first batch. `typed` converts the cells of any batch, and finds those
that cannot be converted.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from seqmed.numeric.arrays import Array
from seqmed.numeric.expectations import expect
from seqmed.numeric.words import in_words
from seqmed.tables import cells
from seqmed.tables.cells import BOOLEANS, Levels, TableError
from seqmed.tables.dates import FORMATS, date_cells, date_format, other_order
from seqmed.tables.messages import listed, quoted, shown, similar_name

NUMERIC, CATEGORICAL, TEXT, DATE, DROP = CHOICES = (
    "numeric", "categorical", "text", "date", "drop",
)  # fmt: skip
HASHED = "hashed"
# All kinds that a user can choose. The kind of dates may have a format, such as "date:%d/%m/%Y".
CHOOSABLE = (*CHOICES, *(f"{DATE}:{form}" for form in FORMATS))
# Names of the row numbers that pandas writes and reads, if they have no other name.
INDEX = re.compile(r"(?:Unnamed: [0-9]+(?:\.[0-9]+)?)?")
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


class TableWarning(UserWarning):
    """A warning about the columns of a table."""


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column."""

    name: str
    kind: str  # one of CHOICES, or HASHED
    reason: str = ""  # why it is left out: "empty", "constant", "id", "index", "nested", "chosen"
    form: str = ""  # format of dates, empty for ISO 8601; unit of numbers, empty for none

    def validate(self) -> None:
        """Raise a ValueError if the kind, the format or the unit is unknown."""
        expect(self.kind in (*CHOICES, HASHED), "a known kind")
        unit = self.kind == NUMERIC and re.fullmatch(cells.UNIT, self.form)
        expect(bool(unit) or self.form in ("", *FORMATS), "a known format or unit")

    @property
    def description(self) -> str:
        """The kind in words."""
        if self.kind == DROP:
            return f"not used ({self.reason})"
        if self.kind == HASHED:
            return "categorical, hashed"
        return f"{self.kind}, {self.form}" if self.form else self.kind


class Choices(NamedTuple):
    """The user's choices; see the parameters of `TableEncoder`."""

    kinds: Mapping[str, str]
    features: tuple[str, ...] | None
    label: str | None
    scale: Any
    missing_values: tuple[str, ...]
    text_size: int
    text_weights: str


def column_kinds(table: pa.Table, choices: Choices) -> tuple[ColumnKind, ...]:
    """Return the kind of every column of the first batch, chosen or inferred."""
    names = [name for name in table.column_names if name != choices.label]
    refuse_missing([*choices.kinds, *(choices.features or ())], names)
    found = []
    for name in names:
        column, missing = table.column(name), choices.missing_values
        if name in choices.kinds:
            with naming(name):
                kind = chosen(name, choices.kinds[name], column, missing)
        elif choices.features is not None and name not in choices.features:
            kind = ColumnKind(name, DROP, "chosen")
        else:
            try:
                kind = infer(name, column, missing)
            except TableError:
                kind = ColumnKind(name, DROP, "nested")
        found.append(kind)
    if all(each.kind == DROP for each in found):
        reasons = listed([f"{each.name!r} ({each.reason})" for each in found])
        none = f"0 feature(s) (shape=({table.num_rows}, 0)) while a minimum of 1 is required"
        raise TableError(
            f"no column of the first batch (n_samples={table.num_rows}) can be used: "
            f"{reasons or none}. Choose the kind of a column: "
            + in_words(
                "--numeric, --categorical, --text or --date COLUMN.",
                "kinds={'column': 'numeric'}, 'categorical', 'text' or 'date'.",
            )
        )
    return tuple(found)


@contextmanager
def naming(column: str) -> Iterator[None]:
    """Name a column in errors."""
    try:
        yield
    except TableError as error:
        raise TableError(f"column {column!r}: {error}") from None


def refuse_missing(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a table in which columns are missing; suggest a similar name."""
    known = set(names)
    for name in wanted:
        if name not in known:
            meant = similar_name(name, names)
            others = listed(list(map(repr, names)))
            found = f"did you mean {meant!r}?" if meant else f"it has {others}."
            raise TableError(f"the table has no column {name!r}: {found}")


# -- chosen ----------------------------------------------------------------------------------------


def chosen(name: str, choice: str, column: Any, missing: tuple[str, ...] = ()) -> ColumnKind:
    """Return a column whose kind the user chose, one of `CHOOSABLE`."""
    kind, _, form = choice.partition(":")
    if kind == CATEGORICAL:
        return category(name, cells.levels(column, missing))
    if choice == DATE:
        return of_dates(name, cells.levels(column, missing), 0.0) or ColumnKind(name, DATE)
    if kind == NUMERIC and types.is_string(cells.plain(column).type):
        form = cells.common_unit(cells.levels(column, missing).texts)
    return ColumnKind(name, kind, "chosen" if kind == DROP else "", form)


def category(name: str, found: Levels) -> ColumnKind:
    """Return the kind of a column of categories."""
    return ColumnKind(name, CATEGORICAL if len(found.texts) <= MOST_LEVELS else HASHED)


# -- inferred --------------------------------------------------------------------------------------


def infer(name: str, column: Any, missing: tuple[str, ...] = ()) -> ColumnKind:
    """Return the kind of a column of the first batch."""
    array = cells.plain(column)
    if types.is_dictionary(column.type):  # declared by the data frame
        return of_levels(name, cells.levels(array, missing), declared=True)
    has_dates = types.is_timestamp(array.type)
    if not has_dates and not has_only_booleans(array, missing) and not has_codes(array):
        values, bad = cells.numbers(array, missing)
        n_known = np.count_nonzero(~np.isnan(values))
        if not bad or n_known > MAJORITY * (n_known + len(bad)):
            return of_numbers(name, exact(array, values, missing), bad)
    found = cells.levels(array, missing)
    unit = "" if has_dates else cells.common_unit(found.texts)
    if unit and not cells.numbers(array, missing, unit)[1]:
        return ColumnKind(name, NUMERIC, form=unit)
    kind = of_levels(name, found, declared=BOOLEANS.keys() >= {*found.texts})
    if kind.kind == DROP and kind.reason != "id":
        return kind
    if has_dates:
        return ColumnKind(name, DATE)
    dates = of_dates(name, found, MAJORITY * found.counts.sum())
    if unit and dates is None:
        warn_of_units(name, unit, found.texts)
    if dates is None:
        warn_of_commas(name, found.texts)
    return dates or kind


def has_only_booleans(array: Any, missing: tuple[str, ...]) -> bool:
    """Whether all cells of a column are true, false or missing, and at least one is not missing."""
    if not types.is_string(array.type):
        return bool(types.is_boolean(array.type))
    known = compute.utf8_lower(cells.cleaned(array, missing).drop_null())
    return len(known) > 0 and compute.all(compute.is_in(known, pa.array([*BOOLEANS]))).as_py()


def has_codes(array: Any) -> bool:
    """Whether a column of texts has a number with a leading zero, such as 01234."""
    if not types.is_string(array.type):
        return False
    trimmed = compute.utf8_trim_whitespace(array)
    return bool(compute.any(compute.match_substring_regex(trimmed, cells.CODE)).as_py())


def exact(array: Any, values: Array, missing: tuple[str, ...]) -> Array:
    """Return numbers; codes of the levels if some are integers that a float would round."""
    known = values[~np.isnan(values)]
    if np.abs(known).max(initial=0.0) < LARGEST_INTEGER or (known != np.floor(known)).any():
        return values
    codes = cells.levels(array, missing).codes
    return np.where(codes < 0, np.nan, codes)


def of_numbers(name: str, values: Array, bad: Mapping[int, str]) -> ColumnKind:
    """Return the kind of a column of numbers, NaN for missing and bad cells.

    A different whole number in every row with a value is an id. Whole numbers in a column without
    a name are the row numbers of a data frame.
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return ColumnKind(name, DROP, "empty")
    if known.size == values.size >= ENOUGH_ROWS and (known == known[0]).all():
        return ColumnKind(name, DROP, "constant")
    whole = not bad and (known == np.floor(known)).all()
    if whole and known.size == values.size and INDEX.fullmatch(name):
        return ColumnKind(name, DROP, "index")
    if whole and known.size >= ENOUGH_ROWS and np.unique(known).size == known.size:
        return ColumnKind(name, DROP, "id")
    return ColumnKind(name, NUMERIC)


def of_levels(name: str, found: Levels, *, declared: bool) -> ColumnKind:
    """Return the kind of a column of levels: categories, unless they are texts or an id.

    Levels that are declared as categories are neither.
    """
    present = int((found.codes >= 0).sum())
    if not present:
        return ColumnKind(name, DROP, "empty")
    if len(found.texts) == 1 and present == found.codes.size >= ENOUGH_ROWS:
        return ColumnKind(name, DROP, "constant")
    if not declared:
        words = np.mean([len(text.split()) for text in found.texts])
        if words >= WORDS and len(found.texts) > max(DISTINCT * present, 1):
            return ColumnKind(name, TEXT)
        if len(found.texts) == present >= ENOUGH_ROWS:
            return ColumnKind(name, DROP, "id")
    return category(name, found)


def of_dates(name: str, found: Levels, least: float) -> ColumnKind | None:
    """Return the kind of a column with more than ``least`` dates; None for others."""
    form = date_format(found.texts, found.counts, least)
    other = form and other_order(found.texts, form)
    if other:
        warnings.warn(
            f"column {name!r}: dates are read as {form}, and could be {other}. To choose, use "
            + in_words(
                f"--date {quoted(f'{name}={other}')}.", f"kinds={{{name!r}: 'date:{other}'}}."
            ),
            TableWarning,
            stacklevel=2,
        )
    return None if form is None else ColumnKind(name, DATE, form=form)


def warn_of_units(name: str, unit: str, texts: Sequence[str]) -> None:
    """Warn of a column that is not used as numbers, although most levels are, with a unit."""
    values, bad = cells.numbers(pa.array(texts, pa.string()), (), unit)
    if len(bad) < (1 - MAJORITY) * values.size:
        other = min(texts[place] for place in bad)
        kind = in_words(f"--numeric {quoted(name)}", f"kinds={{{name!r}: 'numeric'}}")
        style = in_words("--decimal or --thousands", "decimal or thousands")
        warnings.warn(
            f"column {name!r} has numbers with the unit {unit} and other cells, such as "
            f"{shown(other)}, and is not used as numbers: choose its kind with {kind} and correct "
            f"the other cells, or set {style}.",
            TableWarning,
            stacklevel=2,
        )


def warn_of_commas(name: str, texts: Sequence[str]) -> None:
    """Warn of a column that is not used as numbers, although most levels have decimal commas."""
    example = next((text for text in texts if "," in text), None)
    if example is None:
        return
    usual = cells.usual_numbers(pa.array(texts, pa.string()), ",", ".")
    _, bad = cells.numbers(usual, (), cells.common_unit(usual.to_pylist()))
    if len(bad) < (1 - MAJORITY) * len(texts):
        style = in_words("--decimal ,", "decimal=','")
        kind = in_words(f"--categorical {quoted(name)}", f"kinds={{{name!r}: 'categorical'}}")
        warnings.warn(
            f"column {name!r} has cells such as {shown(example)}, and is not used as numbers. If "
            f"they are numbers with decimal commas, set {style}; to hide this warning, choose its "
            f"kind, for example {kind}.",
            TableWarning,
            stacklevel=2,
        )


# -- cells with the types of their columns ---------------------------------------------------------


class Fault(NamedTuple):
    """Why a row is bad: the reason, and the bad value, shortened.

    There is no column if the whole row is bad, and no line (the first one of the row, from 1) in
    formats without lines.
    """

    reason: str
    column: str | None
    got: str
    line: int | None = None


def typed(
    columns: Sequence[ColumnKind], missing: tuple[str, ...], table: pa.Table
) -> tuple[pa.Table, dict[int, Fault]]:
    """Return a table with its used columns typed, and the first bad cell of each bad row.

    Numbers become floats, dates become timestamps, other columns are unchanged. Bad cells are null.
    Cells that have their types already are not changed.
    """
    used = [each for each in columns if each.kind != DROP]
    refuse_missing([each.name for each in used], table.column_names)
    arrays = dict(zip(table.column_names, table.columns, strict=True))
    bad: dict[int, Fault] = {}
    for each in used:
        raw = arrays[each.name]
        with naming(each.name):
            arrays[each.name], faults = typed_column(each, raw, missing)
        for row, reason in faults.items():
            if row not in bad:
                unit = f" (the unit is {each.form})" if each.form and each.kind == NUMERIC else ""
                bad[row] = Fault(reason, each.name, shown_cell(raw[row]) + unit)
    return pa.table(arrays), bad


def typed_column(
    column: ColumnKind, raw: Any, missing: tuple[str, ...]
) -> tuple[Any, dict[int, str]]:
    """Return a column with its type, and the reasons of bad cells by index."""
    if column.kind == NUMERIC:
        values, faults = cells.numbers(raw, missing, column.form)
        return pa.array(values), faults
    if column.kind == DATE and (raw.type != cells.MICROSECONDS or missing):
        values, faults = date_cells(raw, column.form, missing)
        moments = np.rint(np.nan_to_num(values) * 1e6).astype(np.int64)
        return pa.array(moments, mask=np.isnan(values)).cast(cells.MICROSECONDS), faults
    return cells.plain(raw), {}


def shown_cell(cell: Any) -> str:
    """Return a cell of pyarrow for a message."""
    try:
        return shown(cell.as_py())
    except (ValueError, OverflowError):  # dates beyond those of Python
        return shown(str(cell))

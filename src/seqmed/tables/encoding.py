"""Encoding of a raw table: what became of every column, and the features of rows.

`fit_encoding` measures the first batch. `typed` converts cells, and finds those that cannot be
converted. `encode` returns features, in this order: numbers and their indicators of missing cells,
dates, one-hot levels, hashed levels, words.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from seqmed.arrays import Array, Points
from seqmed.tables import cells, kinds
from seqmed.tables.categories import HashedColumn, OneHotColumn
from seqmed.tables.cells import TableError
from seqmed.tables.date_formats import dates
from seqmed.tables.dates import DateColumn
from seqmed.tables.kinds import ColumnKind
from seqmed.tables.numbers import NumberColumns
from seqmed.tables.words import COUNTS, WordColumn

# Number of names in a message, and characters of a cell.
LISTED, SHOWN = 10, 40


class Choices(NamedTuple):
    """The user's choices; see the parameters of `TableEncoder`."""

    kinds: Mapping[str, str]
    features: Sequence[str] | None
    label: str | None
    scale: bool
    missing_values: Sequence[str]
    text_size: int
    text_weights: str


class BadCell(NamedTuple):
    """A cell that cannot be encoded: the reason, its column, and its text, shortened."""

    reason: str
    column: str
    got: str


@dataclass(frozen=True, eq=False)
class Encoding:
    """The encoding of a table, fixed by the first batch.

    Parameters
    ----------
    columns : the kind of every column of the first batch, in its order.
    missing_values : further strings that mark a missing cell.
    numbers : all columns of numbers.
    dates, one_hot, hashed, words : the other columns, by kind.
    weight : factor of all features except words. If there are words, a row without them has a
        length of about 1, as the words of a text have.
    """

    columns: tuple[ColumnKind, ...]
    missing_values: tuple[str, ...]
    numbers: NumberColumns
    dates: tuple[DateColumn, ...]
    one_hot: tuple[OneHotColumn, ...]
    hashed: tuple[HashedColumn, ...]
    words: tuple[WordColumn, ...]
    weight: float

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that every table must have, in the order of the first batch."""
        return tuple(each.name for each in self.columns if each.kind != kinds.DROP)

    @property
    def feature_names(self) -> list[str]:
        """The names of the features, each once."""
        parts: list[Any] = [*self.dense, *self.words]
        return distinct([name for each in parts for name in each.feature_names])

    @property
    def dense(self) -> list[Any]:
        """The encoded columns except words, in the order of their features."""
        return [self.numbers, *self.dates, *self.one_hot, *self.hashed]

    @property
    def n_dense(self) -> int:
        """The number of features except words."""
        return sum(each.width for each in self.dense)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.n_dense + sum(each.size for each in self.words)


def distinct(names: Sequence[str]) -> list[str]:
    """Return names; a name that occurs again gets a number."""
    found: dict[str, None] = {}
    for name in names:
        free = name
        for number in count(2):
            if free not in found:
                break
            free = f"{name}_{number}"
        found[free] = None
    return list(found)


def listed(names: Sequence[str]) -> str:
    """Return quoted names separated by commas, shortened if there are many."""
    more = f" and {len(names) - LISTED} others" if len(names) > LISTED else ""
    return ", ".join(map(repr, names[:LISTED])) + more


def column_kinds(table: pa.Table, choices: Choices) -> tuple[ColumnKind, ...]:
    """Return the kind of every column of the first batch, chosen or inferred."""
    names = [name for name in table.column_names if name != choices.label]
    refuse_missing([*choices.kinds, *(choices.features or ())], names)
    found = []
    for name in names:
        column, missing = table.column(name), choices.missing_values
        if name in choices.kinds:
            with naming(name):
                kind = kinds.chosen(name, choices.kinds[name], column, missing)
        elif choices.features is not None and name not in choices.features:
            kind = ColumnKind(name, kinds.DROP, "chosen")
        else:
            try:
                kind = kinds.infer(name, column, missing)
            except TableError:
                kind = ColumnKind(name, kinds.DROP, "nested")
        found.append(kind)
    if all(each.kind == kinds.DROP for each in found):
        reasons = ", ".join(f"{each.name!r} ({each.reason})" for each in found[:LISTED])
        raise TableError(
            f"no column of the first batch (n_samples={table.num_rows}) can be used: "
            f"{reasons or '0 feature(s) were given'}. "
            "Choose the kind of a column: --numeric, --categorical, --text or --date at the "
            "command line, kinds={'column': kind} in Python."
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
            folded = {each.casefold(): each for each in names}
            close = difflib.get_close_matches(name.casefold(), folded, 1)
            meant = f"did you mean {folded[close[0]]!r}?" if close else f"it has {listed(names)}."
            raise TableError(f"the table has no column {name!r}: {meant}")


def fit_encoding(columns: tuple[ColumnKind, ...], table: pa.Table, choices: Choices) -> Encoding:
    """Return the encoding of a stream whose first batch is a table from `typed`."""
    missing, column = tuple(choices.missing_values), table.column

    def names(kind: str) -> tuple[str, ...]:
        return tuple(each.name for each in columns if each.kind == kind)

    numbers, size, weights = names(kinds.NUMERIC), choices.text_size, choices.text_weights
    forms = {each.name: each.form for each in columns}
    return Encoding(
        columns=columns,
        missing_values=missing,
        numbers=NumberColumns.fit(numbers, number_matrix(table, numbers), scale=choices.scale),
        dates=tuple(
            DateColumn.fit(name, forms[name], cells.seconds(column(name)))
            for name in names(kinds.DATE)
        ),
        one_hot=tuple(
            OneHotColumn.fit(name, cells.levels(column(name), missing))
            for name in names(kinds.CATEGORICAL)
        ),
        hashed=tuple(map(HashedColumn, names(kinds.HASHED))),
        words=tuple(
            WordColumn.fit(name, cells.strings(column(name), missing), size, weights)
            for name in names(kinds.TEXT)
        ),
        weight=weight_beside_words(columns, weights),
    )


def weight_beside_words(columns: Sequence[ColumnKind], text_weights: str) -> float:
    """Return the factor of all features except words: a length of about 1 if there are words."""
    found = [each.kind for each in columns if each.kind != kinds.DROP]
    others = sum(kind != kinds.TEXT for kind in found)
    combined = 0 < others < len(found) and text_weights != COUNTS
    return float(others**-0.5) if combined else 1.0


def number_matrix(table: pa.Table, names: Sequence[str]) -> Array:
    """Return columns of floats, (n, p), NaN for missing cells."""
    matrix = np.empty((table.num_rows, len(names)))
    for place, name in enumerate(names):
        matrix[:, place] = cells.floats(table.column(name))
    return matrix


def typed(
    columns: Sequence[ColumnKind], missing: Sequence[str], table: pa.Table
) -> tuple[pa.Table, dict[int, BadCell]]:
    """Return the used columns with their types, and the first bad cell of each bad row.

    Numbers become floats, dates become timestamps, other columns are unchanged. Bad cells are null.
    """
    used = [each for each in columns if each.kind != kinds.DROP]
    refuse_missing([each.name for each in used], table.column_names)
    arrays, bad = [], {}
    for each in used:
        raw = table.column(each.name)
        array = raw
        faults: dict[int, str] = {}
        with naming(each.name):
            if each.kind == kinds.NUMERIC:
                values, faults = cells.numbers(raw, missing)
                array = pa.array(values)
            elif each.kind == kinds.DATE:
                values, faults = dates(raw, each.form, missing)
                moments = np.rint(np.nan_to_num(values) * 1e6).astype(np.int64)
                array = pa.array(moments, mask=np.isnan(values)).cast(cells.MICROSECONDS)
            else:
                array = cells.plain(raw)
        for row, reason in faults.items():
            if row not in bad:
                bad[row] = BadCell(reason, each.name, shown(raw[row]))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, [each.name for each in used]), bad


def shown(cell: Any) -> str:
    """Return a cell of pyarrow for a message: on one line, and shortened."""
    try:
        value = cell.as_py()
    except (ValueError, OverflowError):  # dates beyond those of Python
        value = str(cell)
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN + 2 else f"{text[:SHOWN]}..."


def encode_numbers(encoding: Encoding, numbers: Array) -> Array:
    """Return the features of (n, p) numbers, if all columns are numbers."""
    features = np.zeros((numbers.shape[0], encoding.n_dense))
    encoding.numbers.encode(numbers, features)
    return features


def encode(encoding: Encoding, table: pa.Table) -> Points:
    """Return the features of a table from `typed`: an array, or a CSR array if there are words."""
    missing = encoding.missing_values
    features = np.zeros((table.num_rows, encoding.n_dense))
    begin = 0
    for part, found in zip(encoding.dense, dense_cells(encoding, table), strict=True):
        end = begin + part.width
        part.encode(found, features[:, begin:end])
        begin = end
    if not encoding.words:
        return features
    words = [
        each.encode(cells.strings(table.column(each.name), missing)) for each in encoding.words
    ]
    parts = [sp.csr_array(features * encoding.weight)] if features.shape[1] else []
    return sp.csr_array(sp.hstack([*parts, *words], format="csr"))


def dense_cells(encoding: Encoding, table: pa.Table) -> Iterator[Any]:
    """Yield the cells of all encoded columns except words, in their order."""
    yield number_matrix(table, encoding.numbers.names)
    for date in encoding.dates:
        yield cells.seconds(table.column(date.name))
    categories: list[OneHotColumn | HashedColumn] = [*encoding.one_hot, *encoding.hashed]
    for category in categories:
        yield cells.levels(table.column(category.name), encoding.missing_values)

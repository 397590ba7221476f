"""Encoding of a raw table: what became of every column, and the features of rows.

`typed` converts cells to the types of their columns, and finds those that cannot be converted.
`Encoding.fit` measures the first batch. `Encoding.encode` returns features, in this order: numbers
and their indicators of missing cells, dates, one-hot levels, hashed levels, words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from seqmed.numeric.arrays import Array, Points
from seqmed.tables import cells, kinds
from seqmed.tables.columns import (
    COUNTS,
    DateColumn,
    HashedColumn,
    NumberColumns,
    OneHotColumn,
    WordColumn,
)
from seqmed.tables.dates import date_cells
from seqmed.tables.kinds import Choices, ColumnKind
from seqmed.tables.messages import shown


class BadCell(NamedTuple):
    """A cell that cannot be encoded: the reason, its column, and its text, shortened."""

    reason: str
    column: str
    got: str


def typed(
    columns: Sequence[ColumnKind], missing: tuple[str, ...], table: pa.Table
) -> tuple[pa.Table, dict[int, BadCell]]:
    """Return a table with its used columns typed, and the first bad cell of each bad row.

    Numbers become floats, dates become timestamps, other columns are unchanged. Bad cells are null.
    Cells that have their types already are not changed.
    """
    used = [each for each in columns if each.kind != kinds.DROP]
    kinds.refuse_missing([each.name for each in used], table.column_names)
    arrays = dict(zip(table.column_names, table.columns, strict=True))
    bad: dict[int, BadCell] = {}
    for each in used:
        raw = arrays[each.name]
        with kinds.naming(each.name):
            arrays[each.name], faults = typed_column(each, raw, missing)
        for row, reason in faults.items():
            if row not in bad:
                bad[row] = BadCell(reason, each.name, shown_cell(raw[row]))
    return pa.table(arrays), bad


def typed_column(
    column: ColumnKind, raw: Any, missing: tuple[str, ...]
) -> tuple[Any, dict[int, str]]:
    """Return a column with its type, and the reasons of bad cells by index."""
    if column.kind == kinds.NUMERIC:
        values, faults = cells.numbers(raw, missing)
        return pa.array(values), faults
    if column.kind == kinds.DATE and (raw.type != cells.MICROSECONDS or missing):
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

    @classmethod
    def fit(cls, columns: tuple[ColumnKind, ...], table: pa.Table, choices: Choices) -> Self:
        """Return the encoding of a stream whose first batch is a table from `typed`."""
        missing, weights = choices.missing_values, choices.text_weights

        def cells_of(kind: str) -> list[tuple[str, Any]]:
            names = [each.name for each in columns if each.kind == kind]
            return [(name, table.column(name)) for name in names]

        names = tuple(name for name, _ in cells_of(kinds.NUMERIC))
        forms = {each.name: each.form for each in columns}
        return cls(
            columns=columns,
            missing_values=missing,
            numbers=NumberColumns.fit(names, number_matrix(table, names), scale=choices.scale),
            dates=tuple(
                DateColumn.fit(name, forms[name], column) for name, column in cells_of(kinds.DATE)
            ),
            one_hot=tuple(
                OneHotColumn.fit(*named, missing) for named in cells_of(kinds.CATEGORICAL)
            ),
            hashed=tuple(HashedColumn(name) for name, _ in cells_of(kinds.HASHED)),
            words=tuple(
                WordColumn.fit(*named, missing, size=choices.text_size, weights=weights)
                for named in cells_of(kinds.TEXT)
            ),
            weight=weight_beside_words(columns, weights),
        )

    def encode(self, table: pa.Table) -> Points:
        """Return the features of a table from `typed`: an array, or a CSR array with words."""
        features = self.encode_numbers(number_matrix(table, self.numbers.names))
        begin = len(self.numbers.feature_names)
        for part in self.dense[1:]:
            end = begin + len(part.feature_names)
            column = table.column(part.name)
            part.encode(column, self.missing_values, features[:, begin:end])
            begin = end
        if not self.words:
            return features
        words = [each.encode(table.column(each.name), self.missing_values) for each in self.words]
        parts = [sp.csr_array(features * self.weight)] if features.shape[1] else []
        return sp.csr_array(sp.hstack([*parts, *words], format="csr"))

    def encode_numbers(self, numbers: Array) -> Array:
        """Return features (n, n_dense) with those of numbers (n, p); all others are 0."""
        features = np.zeros((numbers.shape[0], self.n_dense))
        self.numbers.encode(numbers, features[:, : len(self.numbers.feature_names)])
        return features

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that every table must have, in the order of the first batch."""
        return tuple(each.name for each in self.columns if each.kind != kinds.DROP)

    @property
    def feature_names(self) -> list[str]:
        """The names of the features, each once: a name that occurs again gets a number."""
        found: dict[str, None] = {}
        parts: list[Any] = [*self.dense, *self.words]
        for name in (name for each in parts for name in each.feature_names):
            numbered = (f"{name}_{number}" for number in count(2))
            free = name
            while free in found:
                free = next(numbered)
            found[free] = None
        return list(found)

    @property
    def dense(self) -> list[Any]:
        """The encoded columns except words, in the order of their features."""
        return [self.numbers, *self.dates, *self.one_hot, *self.hashed]

    @property
    def n_dense(self) -> int:
        """The number of features except words."""
        return sum(len(each.feature_names) for each in self.dense)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.n_dense + sum(each.size for each in self.words)


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

"""Encoding of a raw table: what became of every column, and the features of rows.

`fit_encoding` measures the first batch. `typed` converts cells, and finds those that cannot be
converted; a table from it says so in its metadata, and is not converted again. `encode` returns
features, in this order: numbers and their indicators of missing cells, dates, one-hot levels,
hashed levels, words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from sklearn.impute import SimpleImputer

from seqmed.mixture.column_scales import column_deviations
from seqmed.numeric.arrays import Array, Mask, Points
from seqmed.numeric.expectations import expect, expect_shape
from seqmed.tables import cells, kinds
from seqmed.tables.categories import HashedColumn, OneHotColumn
from seqmed.tables.cells import TableError
from seqmed.tables.dates import DateColumn, date_cells
from seqmed.tables.kinds import ColumnKind
from seqmed.tables.messages import LISTED, listed, shown, similar_name
from seqmed.tables.words import COUNTS, WordColumn

# Standardised numbers are clipped at this size: a wrong unit in one cell is no reason to overflow.
LARGEST_SCORE = 1e6
# Metadata of tables from `typed`, and from `typed_first` besides.
TYPED, FIRST = b"seqmed.typed", b"seqmed.first"


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
class NumberColumns:
    """All columns of numbers.

    Parameters
    ----------
    names : the p columns.
    medians : (p,) medians of the first batch, which replace missing cells.
    scales : (p,) robust standard deviations of the first batch, or 1.
    flagged : (p,) mask of the columns with an additional indicator of missing cells.
    centred : whether the medians are subtracted.
    """

    names: tuple[str, ...]
    medians: Array
    scales: Array
    flagged: Mask
    centred: bool

    def validate(self) -> None:
        """Raise a ValueError if numbers cannot be scaled."""
        expect_shape(self, (len(self.names),), "medians", "scales", "flagged")
        expect((self.scales > 0).all(), "scales > 0")

    @classmethod
    def fit(cls, names: tuple[str, ...], cells: Array, *, scale: bool) -> Self:
        """Measure the columns of the first batch, (n, p) with NaN for missing cells.

        Scales are root mean squares of the deviations from the median, outliers clipped. The
        interquartile range of RobustScaler is 0 if more than half of the cells are equal.
        """
        absent = np.isnan(cells)
        if not names:
            return cls(names, np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool), scale)
        imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(cells)
        medians = np.asarray(imputer.statistics_, dtype=np.float64)
        scales = np.ones(medians.size)
        if scale:
            sizes, _ = column_deviations(np.where(absent, medians, cells))
            scales = np.where(sizes > 0, sizes, 1.0)
        return cls(names, medians, scales, np.asarray(absent.any(axis=0)), scale)

    def encode(self, cells: Array, features: Array) -> None:
        """Write the features of cells (n, p), then the indicators, (n, width)."""
        p, absent = len(self.names), np.isnan(cells)
        numbers = features[:, :p]
        numbers[:] = cells
        if absent.any():
            np.copyto(numbers, self.medians, where=absent)
        if self.centred:
            numbers -= self.medians
            with np.errstate(over="ignore"):
                numbers /= self.scales
            np.clip(numbers, -LARGEST_SCORE, LARGEST_SCORE, out=numbers)
        features[:, p:] = absent[:, self.flagged]

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.names) + int(np.count_nonzero(self.flagged))

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        flagged = [name for name, flag in zip(self.names, self.flagged, strict=True) if flag]
        return [*self.names, *(f"{name}_missing" for name in flagged)]


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
            meant = similar_name(name, names)
            found = f"did you mean {meant!r}?" if meant else f"it has {quoted(names)}."
            raise TableError(f"the table has no column {name!r}: {found}")


def quoted(names: Sequence[str]) -> str:
    """Return quoted names separated by commas, shortened if there are many."""
    return listed(list(map(repr, names)))


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


# -- cells with their types ------------------------------------------------------------------------


def typed(
    columns: Sequence[ColumnKind], missing: Sequence[str], table: pa.Table
) -> tuple[pa.Table, dict[int, BadCell]]:
    """Return the used columns with their types, and the first bad cell of each bad row.

    Numbers become floats, dates become timestamps, other columns are unchanged. Bad cells are null.
    """
    used = [each for each in columns if each.kind != kinds.DROP]
    names = [each.name for each in used]
    refuse_missing(names, table.column_names)
    mark = str(hash((tuple(columns), tuple(missing)))).encode()
    table = table.select(names)
    if (table.schema.metadata or {}).get(TYPED) == mark and have_types(used, table):
        return table, {}
    arrays = []
    bad: dict[int, BadCell] = {}
    for each in used:
        array, faults = typed_column(each, table.column(each.name), missing)
        for row, reason in faults.items():
            if row not in bad:
                bad[row] = BadCell(reason, each.name, shown_cell(table.column(each.name)[row]))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, names, metadata={TYPED: mark}), bad


def typed_first(
    columns: Sequence[ColumnKind], choices: Choices, table: pa.Table
) -> tuple[pa.Table, dict[int, BadCell]]:
    """Return a first batch with all its columns, those that are used as from `typed`.

    `known_kinds` returns the kinds of its columns.
    """
    found, bad = typed(columns, choices.missing_values, table)
    for name in found.column_names:
        table = table.set_column(table.column_names.index(name), name, found.column(name))
    first = json.dumps([*deciding(choices), list(map(asdict, columns))])
    return table.replace_schema_metadata({**found.schema.metadata, FIRST: first}), bad


def known_kinds(table: pa.Table, choices: Choices) -> tuple[ColumnKind, ...] | None:
    """Return the kinds of the columns of a table from `typed_first`; None for other tables."""
    first = (table.schema.metadata or {}).get(FIRST)
    if first is None:
        return None
    *decided, columns = json.loads(first)
    same = decided == json.loads(json.dumps(deciding(choices)))
    return tuple(ColumnKind(**each) for each in columns) if same else None


def deciding(choices: Choices) -> list[Any]:
    """Return the choices that decide the kinds of columns."""
    return [dict(choices.kinds), choices.features, choices.label, choices.missing_values]


def have_types(columns: Sequence[ColumnKind], table: pa.Table) -> bool:
    """Whether numbers are floats and dates are timestamps."""
    types = {kinds.NUMERIC: pa.float64(), kinds.DATE: cells.MICROSECONDS}
    return all(types.get(each.kind) in (None, table.field(each.name).type) for each in columns)


def typed_column(
    column: ColumnKind, raw: Any, missing: Sequence[str]
) -> tuple[Any, dict[int, str]]:
    """Return a column with its type, and the reasons of bad cells by index."""
    with naming(column.name):
        if column.kind == kinds.NUMERIC:
            values, faults = cells.numbers(raw, missing)
            return pa.array(values), faults
        if column.kind == kinds.DATE:
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


# -- features --------------------------------------------------------------------------------------


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

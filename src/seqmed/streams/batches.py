"""Rows that are learned or predicted together: where a batch ends, and its parts as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from seqmed.streams import inputs
from seqmed.streams.label_column import TextLabels
from seqmed.streams.pieces import coded, column_of
from seqmed.streams.positions import Position
from seqmed.tables.cells import cell_text


class StreamBatch(NamedTuple):
    """Rows to be learned or predicted together.

    Parameters
    ----------
    table : pyarrow table of raw columns, (n rows), without the label column. Cells of CSV are
        texts, null if empty; those of other formats have their types.
    y : (n,) object array of labels of one type, None for unlabeled rows; None without a label
        column.
    file, row : (n,) the origin of each row: an index in `Stream.names`, and the number of the row
        in the file, from 1, without the header.
    kept : the columns of ``keep`` by name, n values each.
    position : position after the batch; save it with the model to resume.
    skipped : bad rows skipped so far.
    """

    table: Any
    y: NDArray[np.object_] | None
    file: NDArray[np.intp]
    row: NDArray[np.int64]
    kept: dict[str, list[Any]]
    position: Position
    skipped: int

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """A mask (n,) of the rows that have a label."""
        if self.y is None:
            return np.zeros(self.row.size, dtype=bool)
        return np.array([label is not None for label in self.y], dtype=bool)


class Part(NamedTuple):
    """Good rows of one piece for the next batch; ``file`` is one number. See `StreamBatch`."""

    table: Any
    kept: dict[str, list[Any]]
    labels: TextLabels | None
    file: int
    rows: NDArray[np.int64]


# -- borders ---------------------------------------------------------------------------------------


class Borders:
    """Cuts rows into batches of at most ``batch_size`` rows, as in the parameters of `Stream`.

    The first batch has at least ``first`` rows. With a ``batch_size``, a batch of several rows has
    at most `inputs.BATCH_BYTES`: small files may have large rows that share a text. The caller
    counts the rows of the current batch in ``held``.
    """

    def __init__(self, batch_by: str | None, batch_size: int | None, first: int):
        self._batch_by, self._batch_size, self._first = batch_by, batch_size, first
        self._last: str | None = None
        self.held = self._bytes = 0

    def next_batch(self) -> None:
        """Begin another batch."""
        self.held = self._first = self._bytes = 0

    def cut(
        self, table: Any, good: NDArray[np.intp], sizes: NDArray[np.int64]
    ) -> Iterator[NDArray[np.intp] | None]:
        """Yield the good rows of a table for the current batch, and None where it is complete.

        ``sizes`` are the sizes (n,) of all rows in bytes.
        """
        for run, key in self._runs(table, good):
            if key != self._last and self.held and self.held >= self._first:
                yield None
            self._last = key
            while run.size:
                free = run.size
                if self._batch_size is not None:
                    free = max(self._batch_size, self._first) - self.held
                    ends = self._bytes + np.cumsum(sizes[run[:free]])
                    free = int(np.searchsorted(ends, inputs.BATCH_BYTES, side="right"))
                    if not free and self.held:
                        yield None
                        continue
                    free = max(free, 1)
                    self._bytes = int(ends[free - 1])
                rows, run = run[:free], run[free:]
                yield rows
                if self._batch_size and self.held >= max(self._batch_size, self._first):
                    yield None

    def _runs(
        self, table: Any, good: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], str | None]]:
        """Yield the good rows with the value of the column, split where it changes."""
        if self._batch_by is None or not good.size:
            yield good, None
            return
        codes, values = coded(column_of(table, self._batch_by, table.num_rows))
        keys = np.array([cell_text(value) for value in values], dtype=object)[codes[good]]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        for start, stop in pairwise([*starts.tolist(), good.size]):
            yield good[start:stop], keys[start]


# -- tables ----------------------------------------------------------------------------------------


def table_bytes(table: Any) -> int:
    """Return the memory that a table takes, in bytes, about."""
    return int(table.nbytes + inputs.COLUMN_BYTES * table.num_columns)


def selected_rows(table: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows of a table, without a copy if they follow one another."""
    if rows.size and rows[-1] - rows[0] + 1 == rows.size:
        return table.slice(int(rows[0]), rows.size)
    return table.take(pa.array(rows))


def stacked(tables: Sequence[Any]) -> Any:
    """Return the rows of some tables as one.

    The columns are those of all tables, null where a table does not have them. A column of several
    types gets a common type, such as floats for integers and floats, or becomes one of texts.
    Metadata are those of the first table.
    """
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        names = dict.fromkeys(name for table in tables for name in table.column_names)
        mixed = [name for name in names if not have_common_type(name, tables)]
    return pa.concat_tables(
        [with_texts(table, mixed) for table in tables], promote_options="permissive"
    )


def have_common_type(name: str, tables: Sequence[Any]) -> bool:
    """Whether the cells of a column in some tables can be stored as one type."""
    kinds = [pa.schema([each.schema.field(name)]) for each in tables if name in each.column_names]
    try:
        pa.unify_schemas(kinds, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def with_texts(table: Any, names: Sequence[str]) -> Any:
    """Return a table in which some columns are texts; see `cell_text`."""
    for name in set(names).intersection(table.column_names):
        codes, values = coded(column_of(table, name, table.num_rows))
        texts = pa.array([cell_text(value) for value in values], pa.string())
        place = table.column_names.index(name)
        table = table.set_column(place, name, compute.take(texts, pa.array(codes)))
    return table

"""Parquet, Feather and Arrow files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet, types

from seqmed.arrays import Array
from seqmed.streams.errors import INVALID_TEXT, Fault, StreamError, refusing, shown
from seqmed.streams.tables import (
    BLOCK,
    SAMPLE,
    Piece,
    Start,
    Wanted,
    check_column_names,
    piece_of_values,
    rows_at_once,
)

# Strings are read as bytes: in a damaged file they may not be UTF-8.
AS_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
BYTES = tuple(AS_BYTES.values())


class Store(NamedTuple):
    """An open file.

    Parameters
    ----------
    names : its columns.
    batches : function from column indices to record batches of pyarrow, each with the fraction of
        the file that has been read, 0 to 1.
    """

    names: Sequence[str]
    batches: Callable[[list[int]], Iterator[tuple[Any, float]]]


class Columnar:
    """A file of a columnar format; see `Table`. Its name and format are for messages."""

    complete = True
    deferred = False

    def __init__(self, store: Store, name: str, kind: str):
        self.names = check_column_names(store.names, name)
        self._store, self._name, self._kind = store, name, kind
        self._fraction = 0.0

    def sample(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {name: [] for name in self.names}
        taken = 0
        for batch in self._read(self.names, SAMPLE):
            batch = batch.slice(0, SAMPLE - taken)
            taken += batch.num_rows
            with refusing(self._name, self._kind):
                for name in self.names:
                    columns[name] += sampled_values(batch.column(name))
            if taken == SAMPLE:
                break
        return columns

    def has_rows(self) -> bool:
        return next(self._read(self.names[:1], 1), None) is not None

    def pieces(self, wanted: Wanted, start: Start) -> Iterator[Piece]:
        present = [name for name in wanted.values if name in self.names]
        seen = 0
        for batch in self._read((*wanted.numbers, *present), rows_at_once(len(wanted.numbers))):
            first = max(start.rows - seen, 0)
            seen += batch.num_rows
            if first >= batch.num_rows:
                continue
            batch = batch.slice(first)
            numbers = np.empty((batch.num_rows, len(wanted.numbers)))
            values = {name: [None] * batch.num_rows for name in wanted.values}
            faults: dict[int, Fault] = {}
            with refusing(self._name, self._kind):
                for place, name in enumerate(wanted.numbers):
                    numbers[:, place] = self._numbers(batch.column(name), name)
                for name in present:
                    values[name] = self._values(batch.column(name), name, faults)
            yield piece_of_values(numbers, values, faults, wanted)

    def fraction(self) -> float:
        return self._fraction

    def _read(self, names: Sequence[str], size: int) -> Iterator[Any]:
        """Yield the rows, at most ``size`` at once."""
        batches = self._store.batches(sorted({self.names.index(name) for name in names}))
        while True:
            with refusing(self._name, self._kind):
                batch, fraction = next(batches, (None, 1.0))
            if batch is None:
                return
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)
            self._fraction = fraction

    def _numbers(self, column: Any, name: str) -> Array:
        """Return a column as numbers, NaN if missing."""
        column = sound(column)
        if not is_numeric(column.type):
            raise StreamError(
                f"{self._name}: column {name!r} holds {column.type}, expected numbers: convert it."
            )
        return float_array(column)

    def _values(self, column: Any, name: str, faults: dict[int, Fault]) -> list[Any]:
        """Return a column as Python values; texts that are not UTF-8 are added to the faults."""
        column = sound(column)
        if column.type in BYTES:
            values: list[Any] = column.to_pylist()
            for place, value in enumerate(values):
                try:
                    values[place] = None if value is None else value.decode()
                except UnicodeDecodeError:
                    values[place] = None
                    faults[place] = Fault(INVALID_TEXT, name, shown(value))
            return values
        if is_numeric(column.type) and not types.is_decimal(column.type):
            return list(column.to_pylist())
        if types.is_nested(column.type):
            raise StreamError(
                f"{self._name}: column {name!r} holds {column.type}, expected single values: "
                "convert it."
            )
        return list(column.cast(pa.string()).to_pylist())


def sound(column: Any) -> Any:
    """Return a valid column, with strings as bytes; refuse a damaged one."""
    column.validate()
    if column.type in AS_BYTES:
        column = column.cast(AS_BYTES[column.type])
    column.validate(full=True)
    return sound(column.dictionary_decode()) if types.is_dictionary(column.type) else column


def is_numeric(kind: Any) -> bool:
    """Whether a column of this type holds numbers, booleans or only missing values."""
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def float_array(column: Any) -> Array:
    """Return a numeric column as an array, NaN if missing."""
    if column.type != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def sampled_values(column: Any) -> list[Any]:
    """Return a column as numbers and texts, None if missing."""
    column = sound(column)
    if is_numeric(column.type):
        return [None if value != value else value for value in float_array(column).tolist()]
    if column.type in BYTES:
        return [value and value.decode("utf-8", "replace") for value in column.to_pylist()]
    return [str(column.type)] * len(column)


@contextmanager
def open_parquet(path: Path, name: str) -> Iterator[Columnar]:
    """Open a Parquet file; columns are buffered, not read as a whole."""
    with refusing(name, "Parquet"):
        file = parquet.ParquetFile(
            pa.OSFile(os.fsencode(path)), buffer_size=BLOCK // 16, pre_buffer=False
        )
    with file:
        names = file.schema_arrow.names

        def batches(chosen: list[int]) -> Iterator[tuple[Any, float]]:
            columns, seen = [names[place] for place in chosen], 0
            size = rows_at_once(len(columns))
            for batch in file.iter_batches(size, columns=columns, use_threads=False):
                seen += batch.num_rows
                yield batch, seen / file.metadata.num_rows

        yield Columnar(Store(names, batches), name, "Parquet")


@contextmanager
def open_feather(path: Path, name: str) -> Iterator[Columnar]:
    """Open a Feather or Arrow file, or an Arrow stream in a file; one record batch at a time."""
    with refusing(name, "Feather"):
        file = pa.OSFile(os.fsencode(path))
    with file:

        def reader(chosen: list[int] | None) -> Any:
            file.seek(0)
            is_file = file.read(6) == b"ARROW1"
            file.seek(0)
            options = ipc.IpcReadOptions(use_threads=False, included_fields=chosen)
            return (ipc.open_file if is_file else ipc.open_stream)(file, options=options)

        def batches(chosen: list[int]) -> Iterator[tuple[Any, float]]:
            found = reader(chosen)
            if not isinstance(found, ipc.RecordBatchFileReader):
                yield from ((batch, file.tell() / max(file.size(), 1)) for batch in found)
                return
            for place in range(found.num_record_batches):
                yield found.get_batch(place), (place + 1) / found.num_record_batches

        with refusing(name, "Feather"):
            names = reader(None).schema.names
        yield Columnar(Store(names, batches), name, "Feather")

"""Parquet and Arrow: record batches of pyarrow, checked and cut into pieces.

Rows of these formats are not hashed: a file is identified by its size and modification time.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, ipc, parquet, types

from seqmed.streams import inputs
from seqmed.streams.faults import Fault, StreamError, notice, refusing
from seqmed.streams.inputs import Allowance, Bytes, check_limit, counting, read_exactly
from seqmed.streams.pieces import Cells, Piece, Start, Wanted, check_column_names, decoded_texts
from seqmed.tables.messages import listed, shown

# First bytes of an Arrow file, and of a stream of record batches.
FILE_MARK, CONTINUES = b"ARROW1\0\0", b"\xff\xff\xff\xff"
# Strings are read as bytes: in a damaged file they may not be UTF-8.
AS_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
VIEWS = (pa.string_view(), pa.binary_view())
# Bytes of a view: a length and a place.
VIEW = 16
# Bytes that are counted for each row besides its values.
ROW = 8


class Columnar:
    """A file of a columnar format; see `Table`.

    Parameters
    ----------
    names : its columns.
    batches : record batches of pyarrow, each with the fraction of the file that has been read.
    kind : its format in messages.
    allowance : counts the decoded bytes; with the name of the file.
    """

    complete = True
    deferred = False

    def __init__(
        self,
        names: Sequence[str],
        batches: Iterator[tuple[Any, float]],
        kind: str,
        allowance: Allowance,
    ):
        self._name, self._kind, self._allowance = allowance.source, kind, allowance
        self.names = check_column_names(names, self._name)
        self._batches = batches
        self._fraction = 0.0
        self._told = False

    def pieces(self, start: Start) -> Iterator[Piece]:
        seen = 0
        for batch in self._slices():
            first = max(start.rows - seen, 0)
            seen += batch.num_rows
            if first < batch.num_rows:
                yield self._piece(batch.slice(first))

    def fraction(self) -> float:
        return self._fraction

    def _slices(self) -> Iterator[Any]:
        """Yield the rows, as many at once as decode to one block."""
        while True:
            with refusing(self._name, self._kind):
                batch, fraction = next(self._batches, (None, 1.0))
                if batch is None:
                    return
                sizes = self._row_sizes(batch)
            ends, start = np.cumsum(sizes), 0
            while start < batch.num_rows:
                before = ends[start - 1] if start else 0
                stop = int(np.searchsorted(ends, before + inputs.BLOCK, side="right"))
                stop = min(max(stop, start + 1), start + inputs.MOST)
                yield batch.slice(start, stop - start)
                start = stop
            self._fraction = fraction

    def _row_sizes(self, batch: Any) -> NDArray[np.int64]:
        """Return the decoded bytes of every row; refuse rows or expansion above the limits."""
        self._allowance.spend(ROW * batch.num_rows)
        sizes = np.full(batch.num_rows, ROW, dtype=np.int64)
        sizes += sum(cell_sizes(column) for column in batch.columns)
        if sizes.size:
            largest = int(sizes.max()) - ROW
            check_limit("a row of {} bytes", largest, inputs.ROW_BYTES, self._name)
        self._allowance.spend(int(sizes.sum()))
        return sizes

    def _piece(self, batch: Any) -> Piece:
        """Return rows as a piece."""
        columns: dict[str, Any] = {}
        faults: list[tuple[int, Fault]] = []
        with refusing(self._name, self._kind):
            for name, column in zip(self.names, batch.columns, strict=True):
                if is_single(column.type):
                    column, bad = readable(sound(column), name)
                    columns[name] = column
                    faults += bad
        ends = np.zeros(batch.num_rows, dtype=np.int64)
        return Piece(partial(self._cells, columns, faults), b"", ends)

    def _cells(
        self, columns: dict[str, Any], faults: list[tuple[int, Fault]], wanted: Wanted
    ) -> Cells:
        """Return the wanted columns among those of a piece; columns of lists are left out."""
        names = wanted.of(self.names)
        nested = [name for name in names if name not in columns]
        for name in nested:
            if wanted.columns is not None or name in wanted.others:
                raise StreamError(
                    f"{self._name}: column {name!r} holds lists or records, expected single "
                    "values: convert it."
                )
        if nested and not self._told:
            self._told = True
            notice(
                f"{self._name}: columns of lists or records are not used: "
                f"{listed([shown(name) for name in nested])}."
            )
        chosen = [name for name in names if name in columns]
        found = [(row, fault) for row, fault in faults if fault.column in chosen]
        return Cells(pa.table([columns[name] for name in chosen], names=chosen), found)


# -- values ----------------------------------------------------------------------------------------


def readable(column: Any, name: str) -> tuple[Any, list[tuple[int, Fault]]]:
    """Return a column with its bytes as texts, and its bad cells, which are null."""
    return decoded_texts(column, name) if types.is_binary(column.type) else (column, [])


def has_width(kind: Any) -> bool:
    """Whether the cells of a type have the same number of bytes, stored one by one."""
    return bool(
        (types.is_primitive(kind) and not types.is_boolean(kind))
        or types.is_decimal(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_single(kind: Any) -> bool:
    """Whether a type holds single values that can be read."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_single(kind.storage_type)
    if types.is_dictionary(kind):
        return is_single(kind.value_type) and not types.is_dictionary(kind.value_type)
    others = (types.is_boolean, types.is_null, types.is_binary, types.is_large_binary)
    texts = kind in AS_BYTES or kind in VIEWS
    return (
        texts
        or (has_width(kind) and not types.is_interval(kind))
        or any(test(kind) for test in others)
    )


def cell_sizes(column: Any) -> Any:
    """Return the decoded bytes of every cell, before anything is decoded."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return cell_sizes(column.storage)
    column.validate()
    if types.is_dictionary(kind):
        sizes = np.zeros(len(column.dictionary), dtype=np.int64) + cell_sizes(column.dictionary)
        places = np.asarray(column.indices.fill_null(0)).astype(np.int64)
        present = np.asarray(column.indices.is_valid())
        if present.any() and not (0 <= places[present].min() <= places[present].max() < sizes.size):
            raise ValueError("an index outside a dictionary")
        return np.where(present, sizes[np.where(present, places, 0)], 0) if sizes.size else 0
    if kind in VIEWS:
        views = np.frombuffer(column.buffers()[1] or b"", np.uint8)
        views = views[VIEW * column.offset :][: VIEW * len(column)].reshape(-1, VIEW)
        lengths = views[:, :4].copy().view(np.int32).ravel().astype(np.int64)
    elif kind in AS_BYTES or types.is_binary(kind) or types.is_large_binary(kind):
        lengths = np.asarray(compute.binary_length(column).fill_null(0)).astype(np.int64)
    else:
        return kind.byte_width if has_width(kind) else 1
    if lengths.size and lengths.min() < 0:
        raise ValueError("a text of negative length")
    return lengths


def as_valid_bytes(column: Any) -> Any:
    """Return a column with strings as bytes, without a copy; refuse a damaged one."""
    column.validate()
    if column.type in AS_BYTES:
        column = column.cast(AS_BYTES[column.type])
    column.validate(full=True)
    return column


def sound(column: Any) -> Any:
    """Return a valid column of plain values, with strings as bytes; refuse a damaged one."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    column.validate()
    if types.is_dictionary(column.type):
        return sound(as_valid_bytes(column.dictionary).take(as_valid_bytes(column.indices)))
    column = as_valid_bytes(column)
    kind = column.type
    if types.is_large_binary(kind) or kind in VIEWS or types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    return column


# -- files -----------------------------------------------------------------------------------------


@contextmanager
def open_parquet(path: Path, name: str) -> Iterator[Columnar]:
    """Open a Parquet file; columns are buffered, not read as a whole.

    Strings are read as dictionaries, because a dictionary can expand to any size.
    """
    with refusing(name, "Parquet"):
        metadata, texts = checked_metadata(path, name)
        file = parquet.ParquetFile(
            pa.OSFile(os.fsencode(path)),
            metadata=metadata,
            buffer_size=inputs.BLOCK // 16,
            pre_buffer=False,
            read_dictionary=texts,
        )
    with file:
        names = file.schema_arrow.names

        def batches() -> Iterator[tuple[Any, float]]:
            seen = 0
            size = min(max(inputs.BLOCK // (8 * max(len(names), 1)), 1), inputs.MOST)
            for batch in file.iter_batches(size, use_threads=False):
                seen += batch.num_rows
                yield batch, seen / max(file.metadata.num_rows, 1)

        allowance = Allowance(name, path.stat().st_size)
        yield Columnar(names, batches(), "Parquet", allowance)


def checked_metadata(path: Path, name: str) -> tuple[Any, list[str]]:
    """Return the metadata of a Parquet file, and its columns of strings; refuse too large ones."""
    with parquet.ParquetFile(pa.OSFile(os.fsencode(path))) as file:
        metadata = file.metadata
        check_limit("{} columns", metadata.num_columns, inputs.COLUMNS, name)
        groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
        decoded = sum(abs(group.total_byte_size) for group in groups)
        Allowance(name, path.stat().st_size).spend(decoded)
        texts = (*AS_BYTES, *AS_BYTES.values())
        return metadata, [field.name for field in file.schema_arrow if field.type in texts]


@contextmanager
def open_arrow(content: Bytes, name: str, size: int | None) -> Iterator[Columnar]:
    """Open an Arrow or Feather file or stream; one record batch is in memory at a time.

    A file is a stream with a mark before it, and is read as one. A compressed record batch is
    decompressed before its size is known.

    Parameters
    ----------
    content : the file or pipe.
    name : its name in messages.
    size : bytes of the file; None for a pipe.
    """
    allowance = Allowance(name, size or 0)
    read = content.read if size is not None else counting(content.read, allowance.store)
    with refusing(name, "Arrow"):
        if content.start.startswith(FILE_MARK[:6]):
            read_exactly(read, len(FILE_MARK))
        source = pa.PythonFile(Exactly(read), "r")
        reader = ipc.open_stream(source, options=ipc.IpcReadOptions(use_threads=False))
        names = reader.schema.names

    def batches() -> Iterator[tuple[Any, float]]:
        for batch in reader:
            yield batch, content.fraction()

    yield Columnar(names, batches(), "Arrow", allowance)


class Exactly(io.RawIOBase):
    """A file of which as many bytes are read as are asked for, if it has them."""

    def __init__(self, read: Callable[[int], bytes]):
        self._read = read

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes, fewer at the end."""
        return read_exactly(self._read, size)

"""Parquet and Arrow: record batches of pyarrow, checked and cut into pieces.

Rows of these formats are not hashed: a file is identified by its size and modification time.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, ipc, parquet, types

from seqmed.streams import inputs
from seqmed.streams.faults import LONG_CELL, Fault, StreamError, refusing
from seqmed.streams.inputs import START, Bytes, check_limit
from seqmed.streams.pieces import Cells, Piece, Table, Wanted, check_column_names, decoded_texts
from seqmed.streams.positions import Cursor

# First bytes of an Arrow file, and of a stream of record batches.
FILE_MARK, CONTINUES = b"ARROW1\0\0", b"\xff\xff\xff\xff"
ARROW_STARTS = (FILE_MARK[:START], CONTINUES)
# Bytes that a compressed record batch may take, or times its size, whichever is larger.
EXPANDED, EXPANSION = 2**28, 100
# Strings are read as bytes: in a damaged file they may not be UTF-8.
AS_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
BYTES = (*AS_BYTES, *AS_BYTES.values())
VIEWS = (pa.string_view(), pa.binary_view())


class Columnar(Table):
    """A file of a columnar format; see `Table`.

    Each record batch of pyarrow comes with the fraction of the file that has been read.
    """

    def __init__(self, schema: Any, batches: Iterator[tuple[Any, float]], kind: str, name: str):
        check_column_names(schema.names, name)
        self.names = tuple(each.name for each in schema if is_single(each.type))
        self.nested = tuple(each.name for each in schema if not is_single(each.type))
        self._batches, self._kind, self._name = batches, kind, name

    def pieces(self, cursor: Cursor) -> Iterator[Piece]:
        """Yield the rows, as many at once as have about one block of values."""
        skipped = cursor.rows
        while True:
            with refusing(self._name, self._kind):
                batch, fraction = next(self._batches, (None, 1.0))
                if batch is None:
                    return
                batch.validate()
            start = min(skipped, batch.num_rows)
            skipped -= start
            while start < batch.num_rows:
                part = batch.slice(start, inputs.MOST)
                with refusing(self._name, self._kind):
                    columns = [part.column(name) for name in self.names]
                    sizes = np.ones(part.num_rows) + sum(map(cell_bytes, columns))
                ends = np.cumsum(sizes).astype(np.int64)
                part = part.slice(0, max(int(np.searchsorted(ends, inputs.BLOCK)), 1))
                start += part.num_rows
                ends = ends[: part.num_rows]
                yield Piece(ends, batch=part, fraction=fraction)

    def cells(self, piece: Piece, wanted: Wanted) -> Cells:
        columns, faults = {}, list[tuple[int, Fault]]()
        batch, chosen = piece.batch, set(wanted.of(self.names))
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name not in chosen:
                continue
            with refusing(self._name, self._kind):
                column, bad = without_long_values(column, name)
                faults += bad
                column = plain_values(column)
            if types.is_binary(column.type):
                column, bad = decoded_texts(column, name)
                faults += bad
            columns[name] = column
        return Cells(pa.table(columns), faults)


def cell_bytes(column: Any) -> Any:
    """Return the sizes (n,) of cells as plain values; one number if all have the same."""
    if isinstance(column.type, pa.BaseExtensionType):
        return cell_bytes(column.storage)
    if types.is_dictionary(column.type) and column.type.value_type in BYTES:
        codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        lengths = text_lengths(column.dictionary)
        return lengths[codes] if lengths.size else 0
    if column.type in BYTES:
        return text_lengths(column)
    return 8 if types.is_null(column.type) else max(column.type.bit_width // 8, 1)


def text_lengths(column: Any) -> Any:
    """Return the lengths (n,) of texts in bytes, 0 for null; they may not be UTF-8."""
    column = column.cast(AS_BYTES.get(column.type, column.type))
    if column.type not in VIEWS:
        return compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    sizes = np.frombuffer(column.buffers()[1] or b"", np.int32)[::4]
    return np.where(column.is_null(), 0, sizes[column.offset : column.offset + len(column)])


def is_single(kind: Any) -> bool:
    """Whether a type holds single values that can be read."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_single(kind.storage_type)
    if types.is_dictionary(kind):
        return is_single(kind.value_type) and not types.is_dictionary(kind.value_type)
    tests = (types.is_primitive, types.is_decimal, types.is_fixed_size_binary, types.is_null)
    return kind in BYTES or (any(test(kind) for test in tests) and not types.is_interval(kind))


def without_long_values(column: Any, name: str) -> tuple[Any, list[tuple[int, Fault]]]:
    """Return a column of codes with null for distinct texts that are too long, and the faults.

    Decoded, one long text could take a thousand times its memory.
    """
    values = column.dictionary if types.is_dictionary(column.type) else None
    if values is None or values.type not in BYTES:
        return column, []
    column.indices.validate(full=True)
    values.cast(AS_BYTES.get(values.type, values.type)).validate(full=True)
    lengths = text_lengths(values)
    long = lengths > inputs.CELL_BYTES
    if not long.any():
        return column, []
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    bad = (codes >= 0) & long[codes]
    rows = np.flatnonzero(bad).tolist()
    faults = [(row, Fault(LONG_CELL, name, f"{lengths[codes[row]]} bytes")) for row in rows]
    indices = compute.if_else(pa.array(bad), None, column.indices)
    return pa.DictionaryArray.from_arrays(indices, column.dictionary), faults


def plain_values(column: Any) -> Any:
    """Return a column of plain values, with strings as bytes; refuse a damaged one."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if types.is_dictionary(column.type):
        values = plain_values(column.dictionary)
        column.indices.validate(full=True)
        return values.take(column.indices)
    kind = column.type
    if kind in AS_BYTES:
        column = column.cast(AS_BYTES[kind])
    column.validate(full=True)
    if kind in BYTES or types.is_fixed_size_binary(kind):
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

    Strings are read as dictionaries, which take little memory if values occur again.
    """
    with refusing(name, "Parquet"):
        with parquet.ParquetFile(pa.OSFile(os.fsencode(path))) as file:
            metadata, schema = file.metadata, file.schema_arrow
        check_limit("{} columns", metadata.num_columns, inputs.COLUMNS, name)
        groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
        size = sum(abs(group.total_byte_size) for group in groups)
        file = parquet.ParquetFile(
            pa.OSFile(os.fsencode(path)),
            metadata=metadata,
            buffer_size=inputs.BLOCK // 16,
            pre_buffer=False,
            read_dictionary=[field.name for field in schema if field.type in BYTES],
        )
    rows = max(metadata.num_rows, 1)

    def batches() -> Iterator[tuple[Any, float]]:
        seen, at_once = 0, min(max(inputs.BLOCK * rows // max(size, 1), 1), inputs.MOST)
        for batch in file.iter_batches(at_once, use_threads=False):
            seen += batch.num_rows
            yield batch, seen / rows

    with file:
        yield Columnar(schema, batches(), "Parquet", name)


@contextmanager
def open_arrow(content: Bytes, name: str) -> Iterator[Columnar]:
    """Open an Arrow or Feather file or stream; one record batch is in memory at a time.

    A file is a stream with a mark before it, and is read as one.
    """
    with refusing(name, "Arrow"):
        if content.start.startswith(ARROW_STARTS[0]):
            ExactReads(content.read).read(len(FILE_MARK))
        file = CheckedMessages(content.read, name)
        options = ipc.IpcReadOptions(use_threads=False)
        reader = ipc.open_stream(pa.PythonFile(file, "r"), options=options)
    batches = ((batch, content.fraction()) for batch in reader)
    yield Columnar(reader.schema, batches, "Arrow", name)


class CheckedMessages(io.RawIOBase):
    """The messages of an Arrow stream; one that is too large when decompressed is refused.

    pyarrow takes the memory that a compressed buffer claims, before it decompresses it.
    Dictionaries are kept, so their sizes add up.
    """

    def __init__(self, read: Callable[[int], bytes], name: str):
        self._name, self._rest = name, pa.py_buffer(b"")
        self._messages = ipc.MessageReader.open_stream(pa.PythonFile(ExactReads(read), "r"))
        self._kept = np.zeros(2, dtype=np.int64)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> Any:
        """Return the next ``size`` bytes, fewer at the end of a message."""
        if not self._rest.size:
            message = next(self._messages, None)
            if message is None:
                return b""
            self._check(message)
            self._rest = message.serialize()
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _check(self, message: Any) -> None:
        body = message.body.size if message.body else 0
        sizes = self._kept + np.array([expanded_bytes(message), body])
        if message.type == "dictionary":
            self._kept = sizes
        expanded, stored = sizes.tolist()
        if expanded > max(EXPANDED, EXPANSION * stored):
            raise StreamError(
                f"{self._name} has a compressed record batch of {expanded} bytes in {stored}, "
                f"expected at most {EXPANDED} bytes, or {EXPANSION} times as many: write it with "
                "smaller record batches, or without compression."
            )


def expanded_bytes(message: Any) -> int:
    """Return the number of bytes that the buffers of a message take when decompressed.

    Metadata are in the FlatBuffers format, as in Message.fbs of Arrow; pyarrow has verified them.
    The first 8 bytes of a compressed buffer are its length when decompressed, or -1.
    """
    data = message.metadata
    header = flat_target(data, int.from_bytes(data[:4], "little"), 2)
    if message.type == "dictionary":
        header = flat_target(data, header, 1)
    elif message.type != "record batch":
        return 0
    if not flat_field(data, header, 3):  # not compressed
        return 0
    buffers = flat_target(data, header, 2)
    (count,) = struct.unpack_from("<I", data, buffers)
    places = np.frombuffer(data, "<i8", 2 * count, buffers + 4).reshape(-1, 2)
    starts = [start for start, length in places.tolist() if length >= 8]
    return sum(max(*struct.unpack_from("<q", message.body, start), 0) for start in starts)


def flat_field(data: Any, table: int, number: int) -> int:
    """Return where a field of a FlatBuffers table is, 0 if it is missing."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * number
    if entry >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    (offset,) = struct.unpack_from("<H", data, fields + entry)
    return table + int(offset) if offset else 0


def flat_target(data: Any, table: int, number: int) -> int:
    """Return where the table or vector of a field begins."""
    place = flat_field(data, table, number)
    return place + int(struct.unpack_from("<I", data, place)[0])


class ExactReads(io.RawIOBase):
    """A file of which as many bytes are read as are asked for, if it has them.

    What is not there takes no memory.
    """

    def __init__(self, read: Callable[[int], bytes]):
        self._read = read

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes, fewer at the end."""
        blocks = []
        while size > 0 and (block := self._read(min(size, inputs.BLOCK))):
            blocks.append(block)
            size -= len(block)
        return b"".join(blocks)

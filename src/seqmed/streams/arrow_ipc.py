"""Arrow and Feather files, and streams of record batches from files and pipes.

A file of the IPC format is a stream with a mark before it, and is read as one. Each message is
checked before pyarrow decodes it: compressed buffers state how large they become.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from seqmed.streams.columnar import Columnar
from seqmed.streams.errors import refusing
from seqmed.streams.files import Bytes, counted, read_exactly
from seqmed.streams.limits import Allowance, Limits

FILE_MARK = b"ARROW1\0\0"
CONTINUES = b"\xff\xff\xff\xff"
# Kinds of messages, and places of fields in the tables of the format (Message.fbs, Schema.fbs).
SCHEMA, DICTIONARY, RECORDS = 1, 2, 3
HEADER_TYPE, HEADER, BODY = 1, 2, 3
FIELDS, DATA, BUFFERS, COMPRESSION = 1, 1, 2, 3
BYTES_OF_A_BUFFER = 16


class Flat:
    """A table of the FlatBuffers format.

    Parameters
    ----------
    data : the whole message.
    place : where the table begins.
    """

    def __init__(self, data: bytes, place: int):
        self._data, self._place = data, place
        (back,) = struct.unpack_from("<i", data, place)
        self._fields = place - back
        if self._fields < 0:
            raise ValueError("a damaged message")
        (self._size,) = struct.unpack_from("<H", data, self._fields)

    def place(self, field: int) -> int | None:
        """Return where the value of a field is, None if the field is missing."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._fields + entry)
        return self._place + offset if offset else None

    def value(self, field: int, form: str) -> int:
        """Return a number, 0 if the field is missing."""
        place = self.place(field)
        return 0 if place is None else int(struct.unpack_from(form, self._data, place)[0])

    def target(self, field: int) -> int | None:
        """Return where the table or vector of a field begins, None if the field is missing."""
        place = self.place(field)
        if place is None:
            return None
        return place + int(struct.unpack_from("<I", self._data, place)[0])


class CheckedMessages(io.RawIOBase):
    """The bytes of a stream of messages, each checked before any of it is returned.

    Parameters
    ----------
    read : returns at most the given number of bytes, none at the end.
    allowance : counts the decompressed bytes.
    """

    def __init__(self, read: Callable[[int], bytes], allowance: Allowance):
        self._read, self._allowance = read, allowance
        self._ready, self._ended = b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of checked messages, at most ``size``."""
        while not self._ready and not self._ended:
            self._load()
        if size < 0 or size >= len(self._ready):
            taken, self._ready = self._ready, b""
        else:
            taken, self._ready = self._ready[:size], self._ready[size:]
        while 0 <= len(taken) < size and not self._ended:
            more = self.read(size - len(taken))
            if not more:
                break
            taken += more
        return taken

    def _load(self) -> None:
        """Read and check the next message."""
        start = read_exactly(self._read, 4)
        if start == CONTINUES:
            start += read_exactly(self._read, 4)
        size = struct.unpack("<i", start[-4:])[0] if len(start) in (4, 8) else 0
        if size <= 0:
            self._ready, self._ended = start, True
            return
        message = read_exactly(self._read, size)
        if len(message) < size:
            raise ValueError("the file ends within a message")
        header, kind, body_size = self._header(message)
        body = read_exactly(self._read, body_size)
        if kind == SCHEMA:
            self._check_schema(message, header)
        elif kind in (DICTIONARY, RECORDS):
            self._check_records(message, header, kind, body)
        self._ready = start + message + body

    def _header(self, message: bytes) -> tuple[Flat, int, int]:
        """Return the header of a message, its kind, and the size of its body."""
        (root,) = struct.unpack_from("<I", message, 0)
        table = Flat(message, root)
        place, size = table.target(HEADER), table.value(BODY, "<q")
        if place is None or size < 0:
            raise ValueError("a damaged message")
        return Flat(message, place), table.value(HEADER_TYPE, "<B"), size

    def _check_schema(self, message: bytes, schema: Flat) -> None:
        place = schema.target(FIELDS)
        count = 0 if place is None else struct.unpack_from("<I", message, place)[0]
        self._allowance.limits.check("columns", self._allowance.source, count)

    def _check_records(self, message: bytes, header: Flat, kind: int, body: bytes) -> None:
        """Count the bytes that compressed buffers say they expand to."""
        if kind == DICTIONARY:
            place = header.target(DATA)
            if place is None:
                return
            header = Flat(message, place)
        place = header.target(BUFFERS)
        if header.place(COMPRESSION) is None or place is None:
            return
        (count,) = struct.unpack_from("<I", message, place)
        for number in range(count):
            at = place + 4 + BYTES_OF_A_BUFFER * number
            offset, length = struct.unpack_from("<qq", message, at)
            if length >= 8 and 0 <= offset <= len(body) - 8:
                (expanded,) = struct.unpack_from("<q", body, offset)
                if expanded > 0:
                    self._allowance.spend(expanded)


@contextmanager
def open_arrow(content: Bytes, name: str, size: int | None, limits: Limits) -> Iterator[Columnar]:
    """Open an Arrow or Feather file or stream; one record batch is in memory at a time.

    Parameters
    ----------
    content : the file or pipe.
    name : its name in messages.
    size : bytes of the file; None for a pipe.
    limits : limits on columns, rows and expansion.
    """
    allowance = Allowance(limits, name, size or 0)
    read = content.read if size is not None else counted(content.read, allowance.store)
    with refusing(name, "Arrow"):
        if content.start.startswith(FILE_MARK[:6]):
            read_exactly(read, len(FILE_MARK))
        messages = CheckedMessages(read, allowance)
        options = ipc.IpcReadOptions(use_threads=False)
        reader = ipc.open_stream(pa.PythonFile(messages, "r"), options=options)
        names = reader.schema.names

    def batches() -> Iterator[tuple[Any, float]]:
        for batch in reader:
            yield batch, content.fraction()

    # The messages were counted when compressed, and the rows are counted again when decoded.
    rows = allowance if size is None else Allowance(limits, name, size)
    yield Columnar(names, batches(), "Arrow", rows)

"""Arrow and Feather files, and streams of record batches from files and pipes.

A file of the IPC format is a stream with a mark before it, and is read as one. Each message is
checked before pyarrow decodes it: compressed buffers state how large they become.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from seqmed.streams.columnar import Columnar, Store
from seqmed.streams.errors import refusing
from seqmed.streams.files import Bytes
from seqmed.streams.limits import Allowance, Limits
from seqmed.streams.tables import BLOCK

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
    content : the file or pipe.
    limits : limit on columns.
    allowance : counts the decompressed bytes.
    name : name of the input in messages.
    """

    def __init__(self, content: Bytes, limits: Limits, allowance: Allowance, name: str):
        self._content, self._limits = content, limits
        self._allowance, self._name = allowance, name
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
        start = exactly(self._content, 4)
        if start == CONTINUES:
            start += exactly(self._content, 4)
        size = struct.unpack("<i", start[-4:])[0] if len(start) in (4, 8) else 0
        if size <= 0:
            self._ready, self._ended = start, True
            return
        message = exactly(self._content, size)
        if len(message) < size:
            raise ValueError("the file ends within a message")
        header, kind, body_size = self._header(message)
        body = exactly(self._content, body_size)
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
        self._limits.check("columns", self._name, count)

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


def exactly(content: Bytes, size: int) -> bytes:
    """Return the next ``size`` bytes, fewer at the end; what is not there takes no memory."""
    blocks, rest = [], size
    while rest > 0 and (block := content.read(min(rest, BLOCK))):
        blocks.append(block)
        rest -= len(block)
    return b"".join(blocks)


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
    if size is None:
        content = content._replace(read=stored(content.read, allowance))
    with refusing(name, "Arrow"):
        content = whole_reads(content)
        if content.start.startswith(FILE_MARK[:6]):
            exactly(content, len(FILE_MARK))
        messages = CheckedMessages(content, limits, allowance, name)
        options = ipc.IpcReadOptions(use_threads=False)
        reader = ipc.open_stream(pa.PythonFile(messages, "r"), options=options)
        names = reader.schema.names

    def batches() -> Iterator[tuple[Any, float]]:
        for batch in reader:
            yield batch, content.fraction()

    # The messages were counted when compressed, and the rows are counted again when decoded.
    rows = Allowance(limits, name, size or 0)
    if size is None:
        rows = allowance
    yield Columnar(Store(names, batches()), name, "Arrow", limits, rows)


def whole_reads(content: Bytes) -> Bytes:
    """Return a file or pipe that never returns more bytes than were asked for."""
    rest = b""

    def read(size: int) -> bytes:
        nonlocal rest
        block = rest or content.read(size)
        rest = block[size:]
        return block[:size]

    return content._replace(read=read)


def stored(read: Any, allowance: Allowance) -> Any:
    """Return a function like ``read`` that counts the bytes that came through a pipe."""

    def read_and_count(size: int) -> bytes:
        block: bytes = read(size)
        allowance.store(len(block))
        return block

    return read_and_count

"""Rows of an input, piece by piece: the interface of all formats, and the records of a text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from seqmed.streams import inputs
from seqmed.streams.faults import (
    INVALID_TEXT,
    LONG_CELL,
    Fault,
    StreamError,
    notice,
    refusing,
)
from seqmed.streams.inputs import Bytes, check_limit, encodable
from seqmed.tables.messages import shown

# Rows that are read first, to detect the dialect or the columns.
SAMPLE = 100
STRAY_RETURN = re.compile(rb"\r(?!\n)")
MARK = b"\xef\xbb\xbf"  # byte order mark

Ends = NDArray[np.int64]
Split = Callable[[bytes, bool], Ends]
"""Function of bytes and a flag that returns the end of each record, without blank lines. The flag
means that no bytes follow; an incomplete last record is then included."""


class Wanted(NamedTuple):
    """The columns to read.

    Parameters
    ----------
    columns : raw columns; None for all.
    others : the label column, the border column and the columns to keep: their cells stay as they
        are written.
    """

    columns: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()

    def of(self, names: Sequence[str]) -> list[str]:
        """Return the wanted columns among some, in their order."""
        if self.columns is None:
            return list(names)
        chosen = {*self.columns, *self.others}
        return [name for name in names if name in chosen]


class Start(NamedTuple):
    """Where to begin in a file: rows, bytes and lines before it; see `FilePosition`."""

    rows: int = 0
    offset: int = 0
    lines: int = 0


class Cells(NamedTuple):
    """The values of consecutive rows.

    Parameters
    ----------
    table : pyarrow table of the wanted columns that the file has, (n rows). A bad cell is null, and
        so are all cells of a row that is bad as a whole.
    faults : rows of bad cells and bad rows, in 0..n-1, with the fault. A row may have several.
    """

    table: Any
    faults: list[tuple[int, Fault]]


class Piece(NamedTuple):
    """Consecutive rows of a file, including bad ones.

    Parameters
    ----------
    read : function from the wanted columns to the values of the rows.
    raw : the bytes that are hashed to recognise the rows of a text; none in binary formats.
    ends : (n,) the end of every row in ``raw``; bytes after the last one belong to no row.
    line_of : returns the first line of a row, None in formats without lines.
    """

    read: Callable[[Wanted], Cells]
    raw: bytes
    ends: NDArray[np.int64]
    line_of: Callable[[int], int | None] = lambda place: None

    def part(self, first: int, last: int) -> memoryview:
        """Return the bytes of rows ``first`` to ``last - 1``, with those after the last row."""
        start = self.ends[first - 1] if first else 0
        stop = len(self.raw) if last == self.ends.size else self.ends[last - 1]
        return memoryview(self.raw)[start:stop]


class Table(Protocol):
    """An open file or pipe.

    Parameters
    ----------
    names : its columns, in order.
    complete : whether these are all columns; JSON lines may have others later.
    deferred : whether a last row without a line end was left for the next run.
    """

    names: tuple[str, ...]
    complete: bool

    @property
    def deferred(self) -> bool: ...

    def pieces(self, start: Start) -> Iterator[Piece]:
        """Yield the rows from ``start`` to the end; nothing if the file has no row. Called once."""

    def fraction(self) -> float:
        """Return the approximate fraction of the file that has been read, 0 to 1."""


def column_of(table: Any, name: str, size: int) -> Any:
    """Return a column as one array, of nulls if the table does not have it."""
    if name not in table.column_names:
        return pa.nulls(size)
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def coded(column: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """Return the code of every cell, (n,), and the distinct values; the last one is None."""
    if types.is_null(column.type):
        return np.zeros(len(column), dtype=np.intp), [None]
    if types.is_temporal(column.type):
        column = column.cast(pa.string())
    encoded = column.dictionary_encode()
    values = [*encoded.dictionary.to_pylist(), None]
    codes = np.asarray(encoded.indices.fill_null(len(values) - 1)).astype(np.intp)
    return codes, values


def decoded_texts(column: Any, name: str) -> tuple[Any, list[tuple[int, Fault]]]:
    """Return a column of bytes as texts, null where they are too long or not UTF-8, and the faults.

    Parameters
    ----------
    column : pyarrow array of binary values.
    name : its name.
    """
    bad: dict[int, Fault] = {}
    lengths = compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(lengths > inputs.CELL_BYTES).tolist():
        bad[row] = Fault(LONG_CELL, name, f"{lengths[row]} bytes")
    try:
        texts = column.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(column.to_pylist()):
            try:
                None if value is None else value.decode()
            except UnicodeDecodeError:
                bad.setdefault(row, Fault(INVALID_TEXT, name, shown(value)))
    if bad:
        mask = np.zeros(len(column), dtype=bool)
        mask[list(bad)] = True
        texts = compute.if_else(pa.array(mask), None, column).cast(pa.string())
    return texts, list(bad.items())


def check_column_names(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the column names of a file; refuse duplicates and names that are not UTF-8."""
    check_limit("{} columns", len(names), inputs.COLUMNS, source)
    seen: set[str] = set()
    for name in names:
        if not encodable(name):
            raise StreamError(
                f"{source} has a column named {shown(name)}, which is not UTF-8: rename it."
            )
        if name in seen:
            raise StreamError(
                f"{source} has two columns named {shown(name)}, expected every name once: rename "
                "one of them."
            )
        seen.add(name)
    return tuple(names)


# -- records of a text -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole records.

    Parameters
    ----------
    raw : the bytes, including blank lines.
    ends : (n,) the end of every record in ``raw``.
    line : number of the first line, from 1.
    """

    raw: bytes
    ends: Ends
    line: int

    def record(self, place: int) -> bytes:
        """Return a record with its line end, without blank lines before it."""
        start = int(self.ends[place - 1]) if place else 0
        return self.raw[start : int(self.ends[place])].lstrip(b"\r\n")

    def line_of(self, place: int) -> int:
        """Return the number of the first line of a record."""
        start = int(self.ends[place]) - len(self.record(place))
        return self.line + int(np.searchsorted(self._line_ends, start))

    @cached_property
    def _line_ends(self) -> Ends:
        return places(self.raw, "\n")


class Text:
    """A buffered reader of records.

    A record is at most `inputs.ROW_BYTES` long. Only a file without line ends, or with a quote that
    is never closed, has longer ones.

    Parameters
    ----------
    source : the open file, in UTF-8.
    name : name of the file in messages.
    grows : whether more may be written to the file. Then a last record without a line end may be
        incomplete, and is left for the next run.

    Attributes
    ----------
    deferred : whether a last record was left for the next run.
    """

    def __init__(self, source: Bytes, name: str, grows: bool):
        self.name = name
        self.deferred = False
        self._grows = grows
        self.buffer = b""
        self.at_end = False
        self._source = source
        while len(self.buffer) < len(MARK) and not self.at_end:
            self.fill()
        self.mark = self.take(len(MARK) if self.buffer.startswith(MARK) else 0)

    def fill(self) -> None:
        """Read another block; as much as is buffered, so that long rows are read in linear time."""
        with refusing(self.name, "text"):
            block = self._source.read(min(max(inputs.BLOCK, len(self.buffer)), inputs.ROW_BYTES))
        self.at_end = not block
        self.buffer += block

    def take(self, size: int) -> bytes:
        """Remove the first bytes from the buffer and return them."""
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def jump(self, offset: int) -> None:
        """Continue at another offset."""
        with refusing(self.name, "text"):
            self._source.seek(offset)
        self.buffer, self.at_end = b"", False

    def peek(self, split: Split, count: int) -> Chunk:
        """Return the first records, at most ``count``, and leave them in the buffer."""
        while True:
            chunk = self.buffered(split, count)
            if chunk.ends.size == count or self.at_end or self._full:
                return chunk
            self.fill()

    def buffered(self, split: Split, count: int) -> Chunk:
        """Return the first records that are in the buffer, at most ``count``."""
        last = self._ended or self._full
        blank = self._blank
        ends = split(self.buffer[blank : max(inputs.ROW_BYTES, blank)], last)[:count] + blank
        return Chunk(self.buffer[: ends[-1] if ends.size else 0], ends, 1)

    @property
    def _blank(self) -> int:
        """The size of the blank lines at the beginning of the buffer."""
        size = len(self.buffer) - len(self.buffer.lstrip(b"\r\n"))
        stray = STRAY_RETURN.search(self.buffer, 0, size) if size else None
        return stray.start() if stray else size

    @property
    def _full(self) -> bool:
        """Whether the buffer holds as much as a row may."""
        return len(self.buffer) >= inputs.ROW_BYTES

    def has_records(self, split: Split) -> bool:
        """Return whether there is a record, or more bytes than are buffered."""
        if self.peek(split, 1).ends.size or not self.at_end:
            return True
        if not self._ended:
            self._defer(1)
        return False

    @property
    def _ended(self) -> bool:
        """Whether the buffer holds all of the remaining text."""
        last_line = self.buffer[self.buffer.rfind(b"\n") + 1 :] if self.at_end else b""
        return self.at_end and not (self._grows and last_line.strip(b"\r"))

    def _defer(self, line: int) -> None:
        """Leave the rest of the text, from that line on, for the next run."""
        line += self.buffer[: -len(self.buffer.lstrip(b"\r\n"))].count(b"\n")
        self.deferred, self.buffer = True, b""
        notice(
            f"{self.name}, line {line}: the last line has no line end and may be incomplete: it "
            "was left for the next run. Read it with --final."
        )

    def chunks(self, split: Split, line: int) -> Iterator[Chunk]:
        """Yield the remaining records, from line number ``line`` on.

        A record that is too long is cut at the end of its first line.
        """
        longest = inputs.ROW_BYTES
        while self.buffer or not self.at_end:
            blank = self._blank
            if blank > inputs.BLOCK:
                raw = self.take(blank)
                yield Chunk(raw, np.zeros(0, dtype=np.int64), line)
                line += raw.count(b"\n")
                continue
            self._refuse_endless(line)
            ends, size = self._next_ends(split), len(self.buffer)
            if (ends[0] if ends.size else size) > longest:
                ends = split(self.buffer[:longest], True)[:1]
                size = int(ends[-1]) if ends.size else longest
            elif ends.size and not (self._ended and size <= 2 * inputs.BLOCK):
                size = int(ends[-1])
            elif not self._ended:
                if self.at_end:
                    self._defer(line)
                else:
                    self.fill()
                continue
            raw = self.take(size)
            yield Chunk(raw, ends, line)
            line += raw.count(b"\n")

    def _refuse_endless(self, line: int) -> None:
        """Refuse a text whose next line is longer than a row may be, before it is split."""
        longest = inputs.ROW_BYTES
        if len(self.buffer) > longest and self.buffer.find(b"\n", 0, longest) < 0:
            raise StreamError(
                f"{self.name}, line {line}: no line end in {longest} bytes, expected rows: check "
                "the format, or convert the line ends."
            )

    def _next_ends(self, split: Split) -> Ends:
        """Return the ends of the next records: of one block, if it holds any."""
        if len(self.buffer) > 2 * inputs.BLOCK:
            ends = split(self.buffer[: inputs.BLOCK], False)
            if ends.size:
                return ends
        return split(self.buffer, self._ended)

    def fraction(self) -> float:
        """Return the fraction of the text that has been read, 0 to 1."""
        return self._source.fraction()


class TextTable(ABC):
    """Base class of tables in a text; see `Table`.

    Parameters
    ----------
    text : the text from its beginning.
    split : function from bytes to records.
    """

    def __init__(self, text: Text, split: Split):
        self._text, self._split = text, split
        self._head = text.mark  # the bytes before the first row

    @abstractmethod
    def _cells(self, chunk: Chunk, wanted: Wanted) -> Cells:
        """Return the values of some records."""

    def pieces(self, start: Start) -> Iterator[Piece]:
        if not self._text.has_records(self._split):
            return
        head, lines = self._head, self._head.count(b"\n")
        if start.offset:
            self._text.jump(start.offset)
            head, lines = b"", start.lines
        for chunk in self._text.chunks(self._split, lines + 1):
            ends = chunk.ends + len(head)
            yield Piece(partial(self._cells, chunk), head + chunk.raw, ends, chunk.line_of)
            head = b""

    @property
    def deferred(self) -> bool:
        return self._text.deferred

    def fraction(self) -> float:
        return self._text.fraction()


def line_ends(raw: bytes, final: bool) -> Ends:
    """Return the ends of lines that are not blank."""
    return without_blank(raw, places(raw, "\n") + 1, final)


def places(raw: bytes, character: str) -> NDArray[np.int64]:
    """Return the positions of an ASCII character in some bytes."""
    return np.flatnonzero(np.frombuffer(raw, np.uint8) == ord(character))


def without_blank(raw: bytes, ends: Ends, final: bool) -> Ends:
    """Return the ends of records that are not blank; with ``final`` the rest is a record too."""
    if final and len(raw) > (ends[-1] if ends.size else 0):
        ends = np.append(ends, len(raw))
    sizes = np.diff(ends, prepend=0)
    short = np.flatnonzero(sizes <= 2)
    if not short.size:
        return ends
    view = np.frombuffer(raw, np.uint8)
    last, first = view[ends[short] - 1], view[ends[short] - sizes[short]]
    breaks = (ord("\n"), ord("\r"))
    return np.delete(ends, short[np.isin(last, breaks) & np.isin(first, breaks)])

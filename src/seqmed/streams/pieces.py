"""Rows of an input, piece by piece: the interface of all formats, and the records of a text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from seqmed.numeric.words import in_words
from seqmed.streams import inputs
from seqmed.streams.faults import INVALID_TEXT, LONG_CELL, Fault, StreamError, notice, refusing
from seqmed.streams.inputs import Bytes, check_limit
from seqmed.streams.positions import Cursor, changed
from seqmed.tables.messages import shown

# Rows that are read first, to detect the dialect or the columns, and bytes in which they are
# looked for.
SAMPLE, LITTLE = 100, 2**16
MARK = b"\xef\xbb\xbf"  # byte order mark
BLANK = re.compile(rb"(?:\r?\n)++")
HEAD = re.compile(rb"(?:\xef\xbb\xbf)?+(?:\r?\n)*+")

Ends = NDArray[np.int64]
NO_ROWS: Ends = np.zeros(0, dtype=np.int64)
Split = Callable[[bytes, bool], Ends]
"""Function of bytes and a flag that returns the end of each record, without blank lines. The flag
means that no bytes follow; an incomplete last record is then included."""


class Wanted(NamedTuple):
    """The columns to read: raw columns, None for all, and others whose cells stay as written.

    Others are the label column, the border column and the columns to keep.
    """

    columns: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()

    def of(self, names: Sequence[str]) -> list[str]:
        """Return the wanted columns among some, in their order."""
        if self.columns is None:
            return list(names)
        chosen = {*self.columns, *self.others}
        return [name for name in names if name in chosen]


class Cells(NamedTuple):
    """The values of n consecutive rows, and the faults of bad cells and bad rows by row.

    The pyarrow table has the wanted columns that the file has. A bad cell is null, and so are all
    cells of a row that is bad as a whole. A row may have several faults.
    """

    table: Any
    faults: list[tuple[int, Fault]]


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows of a file, including bad ones."""

    ends: Ends  # (n,) sums of the sizes of rows: their ends in raw; bytes after them are of no row
    raw: bytes = b""  # bytes of a text, including blank lines
    line: int | None = None  # number of the first line, from 1; None in binary formats
    batch: Any = None  # record batch of pyarrow; None for a text
    fraction: float = 0.0  # of the file that has been read after it, about

    @property
    def sizes(self) -> Ends:
        """Return the size (n,) of every row in bytes."""
        return np.diff(self.ends, prepend=0)

    def part(self, first: int, last: int) -> memoryview:
        """Return the bytes of rows ``first`` to ``last - 1``, with those after the last row."""
        start = self.ends[first - 1] if first else 0
        stop = len(self.raw) if last == self.ends.size else self.ends[last - 1]
        return memoryview(self.raw)[start:stop]

    def record(self, place: int) -> bytes:
        """Return a row of a text with its line end, without blank lines before it."""
        start = int(self.ends[place - 1]) if place else 0
        return self.raw[start : int(self.ends[place])].lstrip(b"\r\n")

    def records(self) -> list[bytes]:
        """Return all rows of a text; see `record`."""
        return [self.record(place) for place in range(self.ends.size)]

    def line_of(self, place: int) -> int | None:
        """Return the number of the first line of a row, None in binary formats."""
        if self.line is None:
            return None
        start = int(self.ends[place]) - len(self.record(place))
        return self.line + int(np.searchsorted(self._line_ends, start))

    @cached_property
    def _line_ends(self) -> Ends:
        return places(self.raw, "\n")


class Table(ABC):
    """An open file or pipe, with its columns in order. Columns of lists or records are not read.

    The columns are ``complete``, except in JSON lines, which may have others later. A last row
    without a line end may be ``deferred``: left for the next run.
    """

    names: tuple[str, ...]
    nested: tuple[str, ...] = ()
    complete = True
    deferred = False

    @abstractmethod
    def pieces(self, cursor: Cursor) -> Iterator[Piece]:
        """Yield the rows after a cursor, which the caller moves. Called once."""

    @abstractmethod
    def cells(self, piece: Piece, wanted: Wanted) -> Cells:
        """Return the values of a piece."""


# -- columns ---------------------------------------------------------------------------------------


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
    """Return an array of bytes as texts, null where they are too long or not UTF-8, and faults."""
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
        try:
            name.encode()
        except UnicodeEncodeError:  # JSON allows such names
            raise StreamError(
                f"{source} has a column named {shown(name)}, which is not UTF-8: rename it."
            ) from None
        if name in seen:
            raise StreamError(
                f"{source} has two columns named {shown(name)}, expected every name once: rename "
                "one of them."
            )
        seen.add(name)
    return tuple(names)


# -- records of a text -----------------------------------------------------------------------------


class Text:
    """A buffered reader of records.

    A record is at most `inputs.ROW_BYTES` long. Only a file without line ends, or with a quote that
    is never closed, has longer ones. If the file grows, a last record without a line end may be
    incomplete. It is left for the next run, and ``deferred`` is set.

    ``buffer`` has the bytes that were read and not taken, ``head`` of which are before the first
    row: a byte order mark, blank lines and a header. ``block`` is the number of bytes read at once.
    """

    def __init__(self, content: Bytes, name: str, grows: bool):
        self.name, self._grows = name, grows
        self._read, self._fraction = content.read, content.fraction
        self.buffer, self.at_end, self.deferred = b"", False, False
        self.head, self.block = 0, inputs.BLOCK
        while len(self.buffer) - self.head < len(MARK) and not self.at_end:
            check_limit("blank lines of {} bytes", self.head, inputs.ROW_BYTES, name)
            self.fill()
            head = HEAD.match(self.buffer)
            self.head = head.end() if head else 0

    def fill(self) -> None:
        """Read another block; as much as is buffered, so that long rows are read in linear time."""
        with refusing(self.name, "text"):
            block = self._read(min(max(self.block, len(self.buffer)), inputs.ROW_BYTES))
        self.at_end = not block
        self.buffer += block

    def take(self, size: int) -> bytes:
        """Remove the first bytes from the buffer and return them."""
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def first(self, split: Split, count: int) -> Piece:
        """Return the first records after the head, at most ``count``, and leave them in the buffer.

        Reads on until there is one. If there are two in the first `LITTLE` bytes, no others are
        returned.
        """
        raw, ends = self._records(split, self.head, LITTLE, 1, least=2)
        ends = ends[:count]
        return Piece(ends, raw[: ends[-1]] if ends.size else b"", 1)

    def _records(
        self, split: Split, start: int, size: int, line: int, least: int = 1
    ) -> tuple[bytes, Ends]:
        """Return bytes of the buffer from ``start``, and the ends of the records in them.

        There are ``size`` bytes, or more if they hold fewer than ``least`` records, but not more
        than a row may have. A record that is longer ends with its first line, and a longer line is
        refused. Reads on until there is a record; there is none at the end of the text.
        """
        while True:
            raw = self.buffer[start : start + size]
            final = self._is_whole and start + size >= len(self.buffer)
            ends = split(raw, final) if final or b"\n" in raw else NO_ROWS
            more = len(raw) == size < inputs.ROW_BYTES
            if ends.size >= (least if more else 1):
                return raw, ends
            if more:
                size = min(4 * size, inputs.ROW_BYTES)
            elif len(raw) == inputs.ROW_BYTES:
                end = raw.find(b"\n") + 1
                if end:
                    return raw, np.array([end])
                raise StreamError(
                    f"{self.name}, line {line}: no line end in {inputs.ROW_BYTES} bytes, expected "
                    "rows: check the format, or convert the line ends."
                )
            elif self.at_end:
                return raw, NO_ROWS
            else:
                self.fill()

    def skip(self, cursor: Cursor) -> int | None:
        """Read past the rows before a cursor, and return the number of lines.

        None if the text has changed there: it has other bytes, is shorter, or its last line, which
        had no line end, has become longer.
        """
        rest, lines, last = cursor.offset, 0, b"\n"
        while rest and (self.buffer or not self.at_end):
            block = self.take(rest)
            cursor.content.update(block)
            rest, lines, last = rest - len(block), lines + block.count(b"\n"), block[-1:] or last
            if not self.buffer:
                self.fill()
        longer = last != b"\n" and self.buffer[:1] not in (b"", b"\r", b"\n")
        same = not rest and not longer and cursor.content.hexdigest() == cursor.digest
        return lines if same else None

    @property
    def _is_whole(self) -> bool:
        """Whether the buffer holds all of the remaining text."""
        last_line = self.buffer[self.buffer.rfind(b"\n") + 1 :] if self.at_end else b""
        return self.at_end and not (self._grows and last_line.strip(b"\r"))

    def pieces(self, split: Split, line: int) -> Iterator[Piece]:
        """Yield the remaining records, from line number ``line`` on."""
        while self.buffer or not self.at_end:
            if len(self.buffer) < 2 and not self.at_end:  # "\r" may begin a blank line
                self.fill()
                continue
            if blank := BLANK.match(self.buffer):
                raw, ends = blank[0], NO_ROWS
            else:
                size = min(2 * self.block, inputs.ROW_BYTES)
                raw, ends = self._records(split, 0, size, line)
                if len(raw) > size:
                    ends = ends[:1]  # a long record is a piece of its own
                if ends.size:
                    raw = raw[: ends[-1]]
                elif not self._is_whole:
                    self.deferred, self.buffer = True, b""
                    notice(
                        f"{self.name}, line {line}: the last line has no line end and may be "
                        "incomplete: it was left for the next run. Read it with "
                        + in_words("--final.", "final=True.")
                    )
                    return
            self.buffer = self.buffer[len(raw) :]
            yield Piece(ends, raw, line, fraction=self._fraction())
            line += raw.count(b"\n")


class TextTable(Table):
    """Base class of tables in a text; ``split`` finds the ends of its records."""

    def __init__(self, text: Text, split: Split):
        self._text, self._split = text, split

    def pieces(self, cursor: Cursor) -> Iterator[Piece]:
        if cursor.rows:
            lines = self._text.skip(cursor)
            if lines is None:
                raise changed(cursor.source, cursor.rows)
        else:
            head = self._text.take(self._text.head)
            lines = head.count(b"\n")
            yield Piece(NO_ROWS, head, 1)
        yield from self._text.pieces(self._split, lines + 1)
        self.deferred = self._text.deferred


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

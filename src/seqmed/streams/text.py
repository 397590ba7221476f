"""Records of a text, read block by block."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from seqmed.streams.errors import StreamError, notice, refusing
from seqmed.streams.files import Bytes
from seqmed.streams.limits import BLOCK, Limits, option
from seqmed.streams.tables import Cells, Piece, Start, Wanted

# Rows that are read first, to detect the dialect or the columns.
SAMPLE = 100
STRAY_RETURN = re.compile(rb"\r(?!\n)")
MARK = b"\xef\xbb\xbf"  # byte order mark

Ends = NDArray[np.int64]
Split = Callable[[bytes, bool], Ends]
"""Function of bytes and a flag that returns the end of each record, without blank lines. The flag
means that no bytes follow; an incomplete last record is then included."""


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

    Parameters
    ----------
    source : the open file, in UTF-8.
    name : name of the file in messages.
    limits : the limit on the bytes of a row. Only a file without line ends, or with a quote that is
        never closed, has longer rows.
    grows : whether more may be written to the file. Then a last record without a line end may be
        incomplete, and is left for the next run.

    Attributes
    ----------
    deferred : whether a last record was left for the next run.
    """

    def __init__(self, source: Bytes, name: str, limits: Limits, grows: bool):
        self.name, self.limits = name, limits
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
            block = self._source.read(min(max(BLOCK, len(self.buffer)), self.limits.row_bytes))
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
        ends = split(self.buffer[blank : max(self.limits.row_bytes, blank)], last)[:count] + blank
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
        return len(self.buffer) >= self.limits.row_bytes

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
        longest = self.limits.row_bytes
        while self.buffer or not self.at_end:
            blank = self._blank
            if blank > BLOCK:
                raw = self.take(blank)
                yield Chunk(raw, np.zeros(0, dtype=np.int64), line)
                line += raw.count(b"\n")
                continue
            self._refuse_endless(line)
            ends, size = self._next_ends(split), len(self.buffer)
            if (ends[0] if ends.size else size) > longest:
                ends = split(self.buffer[:longest], True)[:1]
                size = int(ends[-1]) if ends.size else longest
            elif ends.size and not (self._ended and size <= 2 * BLOCK):
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
        longest = self.limits.row_bytes
        if len(self.buffer) > longest and self.buffer.find(b"\n", 0, longest) < 0:
            raise StreamError(
                f"{self.name}, line {line}: no line end in {longest} bytes, expected rows: check "
                "the format, convert the line ends, or raise the limit with "
                f"{option('row_bytes')}."
            )

    def _next_ends(self, split: Split) -> Ends:
        """Return the ends of the next records: of one block, if it holds any."""
        if len(self.buffer) > 2 * BLOCK:
            ends = split(self.buffer[:BLOCK], False)
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

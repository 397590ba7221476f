"""Texts as records: bytes read block by block, and cut where a record ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array
from seqmed.streams.errors import Fault, StreamError, notice, refusing
from seqmed.streams.files import Bytes
from seqmed.streams.tables import BLOCK, SAMPLE, Piece, Start

# Bytes of a row at most. Only a file without line ends, or with a quote that is never closed,
# has longer ones.
LONGEST_ROW = 2**24
MARK = b"\xef\xbb\xbf"  # which some programs put before UTF-8

Ends = NDArray[np.int64]
Split = Callable[[bytes, bool], Ends]
"""Where records end in some bytes, blank lines not counted. The flag says that nothing follows, or
that nothing more can be waited for: then what is left is cut into records somehow."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole records.

    Parameters
    ----------
    raw : the bytes, blank lines included.
    ends : (n,) where every record ends in them.
    line : the number of the first line, from 1.
    open : whether the last record has no line end; then it is the last of the text.
    """

    raw: bytes
    ends: Ends
    line: int
    open: bool = False

    def record(self, place: int) -> bytes:
        """Return a record with its line end, without blank lines before it."""
        start = int(self.ends[place - 1]) if place else 0
        return self.raw[start : int(self.ends[place])].lstrip(b"\r\n")

    def line_of(self, place: int) -> int:
        """Return the number of the line on which a record begins."""
        start = int(self.ends[place]) - len(self.record(place))
        return self.line + int(np.searchsorted(self._line_ends, start))

    @cached_property
    def _line_ends(self) -> Ends:
        return places(self.raw, "\n")


class Cells(NamedTuple):
    """The rows of a chunk, as in `Piece`."""

    numbers: Array
    values: dict[str, list[Any]]
    faults: dict[int, Fault]


class Text:
    """The bytes of a text that have been read and not been taken yet.

    Parameters
    ----------
    source : the open file.
    name : of the file, for messages.
    """

    def __init__(self, source: Bytes, name: str):
        self.name = name
        self.buffer = b""
        self.at_end = False
        self._source = source
        while len(self.buffer) < len(MARK) and not self.at_end:
            self.fill()
        if self.buffer.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise StreamError(f"{name} is in UTF-16, expected UTF-8: convert it, say with iconv.")
        self.mark = self.take(len(MARK) if self.buffer.startswith(MARK) else 0)

    def fill(self) -> None:
        """Read another block."""
        with refusing(self.name, "text"):
            block = self._source.read(BLOCK)
        self.at_end = not block
        self.buffer += block

    def take(self, size: int) -> bytes:
        """Return the first bytes and let go of them."""
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def jump(self, offset: int) -> None:
        """Go on at another place."""
        with refusing(self.name, "text"):
            self._source.seek(offset)
        self.buffer, self.at_end = b"", False

    def peek(self, split: Split, count: int = SAMPLE) -> Chunk:
        """Return the first records, at most ``count``, without taking them.

        However the bytes come in, the records are the same.
        """
        while True:
            last = self.at_end or len(self.buffer) >= LONGEST_ROW
            ends = split(self.buffer[:LONGEST_ROW], last)[:count]
            if last or ends.size == count:
                return Chunk(self.buffer[: ends[-1] if ends.size else 0], ends, 1)
            self.fill()

    def has_records(self, split: Split) -> bool:
        """Return whether there is a record, or at least more than can be looked at."""
        return self.peek(split, 1).ends.size > 0 or not self.at_end

    def chunks(self, split: Split, line: int) -> Iterator[Chunk]:
        """Yield all records that are left; the first line has the number ``line``.

        A record that is too long ends with its first line.
        """
        while self.buffer or not self.at_end:
            ends, size = split(self.buffer, self.at_end), len(self.buffer)
            if (ends[0] if ends.size else size) > LONGEST_ROW:
                if b"\n" not in self.buffer[:LONGEST_ROW]:
                    raise StreamError(
                        f"{self.name}, line {line}: no line end in {LONGEST_ROW} bytes, expected "
                        "rows: check the format, or convert the line ends."
                    )
                ends = split(self.buffer[:LONGEST_ROW], True)[:1]
                size = int(ends[-1]) if ends.size else LONGEST_ROW
            elif not self.at_end:
                if not ends.size:
                    self.fill()
                    continue
                size = int(ends[-1])
            raw = self.take(size)
            unfinished = bool(ends.size) and ends[-1] == size and not raw.endswith(b"\n")
            yield Chunk(raw, ends, line, unfinished)
            line += raw.count(b"\n")

    def pieces(
        self, split: Split, parse: Callable[[Chunk], Cells], head: bytes, start: Start, grows: bool
    ) -> Iterator[Piece]:
        """Yield all rows that are left.

        Parameters
        ----------
        split, parse : how a text becomes records, and records rows.
        head : what has been taken of the text before, if it is not begun elsewhere.
        start : where to begin.
        grows : whether rows may be added later. A last row that has no line end and is bad may
            then be one that is still being written: it is left for the next time.
        """
        if start.offset:
            self.jump(start.offset)
            head, lines = b"", start.lines
        else:
            lines = head.count(b"\n")
        for chunk in self.chunks(split, lines + 1):
            numbers, values, faults = parse(chunk)
            raw, ends, last = chunk.raw, chunk.ends, chunk.ends.size - 1
            if grows and chunk.open and last in faults:
                notice(
                    f"{self.name}, line {chunk.line_of(last)}: the last line has no line end and "
                    f"is not complete ({faults.pop(last).reason}): it was left for the next time."
                )
                numbers, ends = numbers[:last], ends[:last]
                values = {name: column[:last] for name, column in values.items()}
                raw = raw[: ends[-1] if last else 0]
            yield Piece(numbers, values, faults, head + raw, ends + len(head), chunk.line_of)
            head = b""

    def fraction(self) -> float:
        """Return how much of the text has been read, 0 to 1."""
        return self._source.fraction()


def line_ends(raw: bytes, final: bool) -> Ends:
    """Return where lines end; blank lines are no records."""
    return without_blank(raw, places(raw, "\n") + 1, final)


def places(raw: bytes, character: str) -> NDArray[np.int64]:
    """Return where an ASCII character stands in some bytes."""
    return np.flatnonzero(np.frombuffer(raw, np.uint8) == ord(character)).astype(np.int64)


def without_blank(raw: bytes, ends: Ends, final: bool) -> Ends:
    """Return the ends of records that are not blank; the rest is one too, if nothing follows."""
    if final and len(raw) > (ends[-1] if ends.size else 0):
        ends = np.append(ends, len(raw))
    sizes = np.diff(ends, prepend=0)
    view = np.frombuffer(raw, np.uint8)
    breaks = (view == ord("\n")) | (view == ord("\r"))
    short = np.flatnonzero(sizes <= 2)
    blank = breaks[ends[short] - 1] & breaks[ends[short] - sizes[short]]
    return np.delete(ends, short[blank])

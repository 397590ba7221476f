"""Interface of all formats: consecutive rows of raw columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seqmed.streams.dialects import Dialect
from seqmed.streams.encodings import encodable
from seqmed.streams.errors import Fault, StreamError, shown
from seqmed.streams.limits import Limits


@dataclass(frozen=True)
class ReadOptions:
    """How inputs are read.

    Parameters
    ----------
    dialect : separators, decimal character and encoding that the user has chosen.
    limits : limits on rows, cells and expansion.
    final : whether a last line without a line end is complete. The last line of a pipe always is.
    tell : receives a line about each input whose detected dialect is not the default.
    """

    dialect: Dialect = field(default_factory=Dialect)
    limits: Limits = field(default_factory=Limits)
    final: bool = False
    tell: Callable[[str], None] = field(default=lambda line: None)


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
    faults : faults of bad rows, by their index in 0..n-1.
    """

    table: Any
    faults: dict[int, Fault]


class Piece(NamedTuple):
    """Consecutive rows of a file, including bad ones.

    Parameters
    ----------
    read : function from the wanted columns to the values of the rows. It may be called again with
        other columns.
    raw : the bytes that are hashed to recognise the rows.
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


def check_column_names(names: Sequence[str], source: str, limits: Limits) -> tuple[str, ...]:
    """Return the column names of a file; refuse duplicates and names that are not UTF-8."""
    limits.check("columns", source, len(names))
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

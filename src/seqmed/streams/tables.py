"""Interface of all formats: tables with named columns, read piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array
from seqmed.estimators.validation import LARGEST_FEATURE
from seqmed.streams.errors import MISSING, NOT_FINITE, Fault, StreamError, shown
from seqmed.streams.values import cell_text, encodable

# Number of rows from which column types are inferred; small, so that a pipe is not delayed.
SAMPLE = 100
# Bytes read at once, of a text or of the numbers in a binary format; smallest and largest number of
# rows.
BLOCK, FEWEST, MOST = 2**20, 64, 2**13


class Wanted(NamedTuple):
    """The columns to read.

    Parameters
    ----------
    numbers : columns read as numbers, in this order.
    values : columns read unchanged; a column that a file does not have is None in every row.
    hashed : those of ``values`` that are hashed with the rows of binary formats.
    """

    numbers: tuple[str, ...]
    values: tuple[str, ...]
    hashed: tuple[str, ...]


class Start(NamedTuple):
    """Where to begin in a file: rows, bytes and lines before it; see `FilePosition`."""

    rows: int = 0
    offset: int = 0
    lines: int = 0


class Piece(NamedTuple):
    """Consecutive rows of a file, including bad ones.

    Parameters
    ----------
    numbers : (n, p) the columns read as numbers; NaN in bad rows.
    values : the other columns by name, n values each.
    faults : faults of bad rows, by their index in 0..n-1.
    raw : the bytes that are hashed to recognise the rows.
    ends : (n,) the end of every row in ``raw``; bytes after the last one belong to no row.
    line_of : returns the first line of a row, None in formats without lines.
    """

    numbers: Array
    values: dict[str, list[Any]]
    faults: dict[int, Fault]
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

    def sample(self) -> dict[str, list[Any]]:
        """Return the values of all columns in the first rows, None if missing.

        Called before `pieces`, which still yields these rows.
        """

    def has_rows(self) -> bool:
        """Return whether there is any row; called before `pieces`."""

    def pieces(self, wanted: Wanted, start: Start) -> Iterator[Piece]:
        """Yield the rows from ``start`` to the end. Called once."""

    def fraction(self) -> float:
        """Return the approximate fraction of the file that has been read, 0 to 1."""


def check_column_names(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the column names of a file; refuse duplicates and names that are not UTF-8."""
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


def rows_at_once(n_columns: int) -> int:
    """Return the number of rows of a binary format that are read at once."""
    return min(max(BLOCK // (8 * max(n_columns, 1)), FEWEST), MOST)


def bad_numbers(numbers: Array) -> NDArray[np.intp]:
    """Return the rows of an (n, p) array with a value that is missing, not finite or too large."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(~(np.abs(numbers) <= LARGEST_FEATURE).all(axis=1))


def number_faults(numbers: Array, names: Sequence[str]) -> dict[int, Fault]:
    """Return the faults of rows that were stored as numbers, by their index."""
    faults = {}
    for row in bad_numbers(numbers).tolist():
        column = int(np.flatnonzero(~(np.abs(numbers[row]) <= LARGEST_FEATURE))[0])
        value = float(numbers[row, column])
        reason = MISSING if np.isnan(value) else NOT_FINITE
        faults[row] = Fault(reason, names[column], "nothing" if np.isnan(value) else f"{value:g}")
    return faults


def piece_of_values(
    numbers: Array, values: dict[str, list[Any]], faults: dict[int, Fault], wanted: Wanted
) -> Piece:
    """Return rows of a binary format as a piece, hashed by their values.

    Values are hashed as `cell_text`, so that the hash does not depend on the stored type: pandas
    stores integers as floats once a value is missing.
    """
    keys = zip(*(map(cell_text, values[name]) for name in wanted.hashed), strict=True)
    rows = [row.tobytes() for row in np.ascontiguousarray(numbers)]
    if wanted.hashed:
        rows = [
            row + repr(key).encode("utf-8", "surrogatepass")
            for row, key in zip(rows, keys, strict=True)
        ]
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    return Piece(
        numbers, values, number_faults(numbers, wanted.numbers) | faults, b"".join(rows), ends
    )

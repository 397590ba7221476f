"""Arrays that numpy has saved: X, and y if there are labels, in an .npz file.

The columns of X are called x0, x1, ..., and the labels y. Rows are read one after another, so that
arrays need not fit in memory, unless X is stored column by column (in Fortran order).
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from seqmed.streams.cells import encodable
from seqmed.streams.errors import INVALID_TEXT, Fault, StreamError, refusing, shown
from seqmed.streams.tables import (
    BLOCK,
    SAMPLE,
    Piece,
    Start,
    Wanted,
    piece_of_values,
    rows_at_once,
)

KIND = "a numpy archive"
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class Saved:
    """One array of an archive, read from the first row to the last.

    Parameters
    ----------
    handle : its bytes.
    size : how many there are, header included.
    """

    def __init__(self, handle: IO[bytes], size: int):
        version = npy.read_magic(handle)
        self.shape, by_column, self.dtype = HEADERS[version](handle)
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        if self.dtype.hasobject or not self.shape or min(self.shape) < 0 or row == 0:
            raise ValueError(f"an array of type {self.dtype} and shape {self.shape}")
        if self.shape[0] * row != size - handle.tell():
            raise ValueError(f"{size} bytes for shape {self.shape}")
        self._handle, self._row, self._read = handle, row, 0
        self._whole: NDArray[Any] | None = None
        if by_column and len(self.shape) > 1:
            flat = self.read(self.shape[0]).reshape(-1)
            self._whole, self._read = flat.reshape(self.shape, order="F"), 0

    def read(self, count: int) -> NDArray[Any]:
        """Return the next rows."""
        first, self._read = self._read, self._read + count
        if self._whole is not None:
            return self._whole[first : self._read]
        rest, blocks = count * self._row, []
        while rest:
            block = self._handle.read(min(rest, BLOCK))
            if not block:
                raise ValueError("the file ends too early")
            blocks.append(block)
            rest -= len(block)
        return np.frombuffer(b"".join(blocks), self.dtype).reshape(count, *self.shape[1:])


class Archive:
    """Arrays X (n, p) and y (n,) in a file; see `Table`.

    Parameters
    ----------
    file : the open archive.
    name : of the file, for messages.
    """

    complete = True
    deferred = False

    def __init__(self, file: zipfile.ZipFile, name: str):
        self._file, self._name = file, name
        self._done = 0
        members = file.namelist()
        if "X.npy" not in members:
            raise StreamError(
                f"{name} holds {shown(members)}, expected arrays X and y: save them with "
                "numpy.savez(path, X=X, y=y)."
            )
        points = self._open("X")
        if len(points.shape) != 2 or points.dtype.kind not in "fiub":
            raise StreamError(
                f"{name}: X is of type {points.dtype} and shape {points.shape}, expected a table "
                "of numbers: convert it."
            )
        self._size, width = points.shape
        self._numbers = tuple(f"x{place}" for place in range(width))
        self.names = self._numbers
        if "y.npy" in members:
            self.names = (*self._numbers, "y")
            labels = self._open("y")
            if labels.shape != (self._size,) or labels.dtype.kind not in "fiubUS":
                raise StreamError(
                    f"{name}: y is of type {labels.dtype} and shape {labels.shape}, expected a "
                    f"label for each of {self._size} rows: leave missing ones NaN or empty."
                )

    def _open(self, member: str) -> Saved:
        with refusing(self._name, KIND):
            info = self._file.getinfo(f"{member}.npy")
            return Saved(self._file.open(info), info.file_size)

    def _blocks(self, size: int) -> Iterator[tuple[NDArray[np.float64], NDArray[Any] | None]]:
        """Yield rows of X and y, at most ``size`` at once."""
        points = self._open("X")
        labels = self._open("y") if "y" in self.names else None
        self._done = 0
        while self._done < self._size:
            size = min(size, self._size - self._done)
            self._done += size
            with refusing(self._name, KIND):
                rows = points.read(size).astype(np.float64)
                marks = None if labels is None else labels.read(size)
            yield rows, marks

    def sample(self) -> dict[str, list[Any]]:
        points, labels = next(self._blocks(SAMPLE), (np.zeros((0, len(self._numbers))), None))
        columns = [[None if cell != cell else cell for cell in each] for each in points.T.tolist()]
        if "y" in self.names:
            columns.append([] if labels is None else labels.tolist())
        return dict(zip(self.names, columns, strict=True))

    def has_rows(self) -> bool:
        return self._size > 0

    def pieces(self, wanted: Wanted, start: Start) -> Iterator[Piece]:
        chosen = [self._numbers.index(name) for name in wanted.numbers]
        for points, labels in self._blocks(rows_at_once(len(self._numbers))):
            first = max(start.rows - (self._done - points.shape[0]), 0)
            if first >= points.shape[0]:
                continue
            values: dict[str, list[Any]] = {}
            faults: dict[int, Fault] = {}
            for name in wanted.values:
                if name == "y" and labels is not None:
                    values[name] = as_values(labels[first:], faults)
                elif name in self._numbers:
                    values[name] = points[first:, self._numbers.index(name)].tolist()
                else:
                    values[name] = [None] * (points.shape[0] - first)
            yield piece_of_values(points[first:, chosen], values, faults, wanted)

    def fraction(self) -> float:
        return self._done / max(self._size, 1)


def as_values(labels: NDArray[Any], faults: dict[int, Fault]) -> list[Any]:
    """Return labels as Python values; what is no text is added to the faults."""
    if labels.dtype.kind == "f":
        labels = labels.astype(np.float64)
    values = labels.tolist()
    if labels.dtype.kind in "US":
        for place, value in enumerate(values):
            text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
            values[place] = text
            if not encodable(text):
                values[place] = None
                faults[place] = Fault(INVALID_TEXT, "y", shown(text))
    return values


@contextmanager
def open_archive(path: Path, name: str) -> Iterator[Archive]:
    """Open an .npz file."""
    with refusing(name, KIND):
        file = zipfile.ZipFile(path)
    with file:
        yield Archive(file, name)

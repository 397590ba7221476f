"""Arrays X and y (optional) in an .npz file.

The columns of X are named x0, x1, ..., and the labels y. Arrays are read row by row and need not
fit in memory, unless X is in Fortran order.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from seqmed.streams.columnar import Columnar, Store
from seqmed.streams.errors import StreamError, refusing, shown
from seqmed.streams.tables import BLOCK, rows_at_once

KIND = "a numpy archive"
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class Saved:
    """An array of an archive, read from the first row to the last.

    Parameters
    ----------
    handle : the open member of the archive.
    size : its number of bytes, including the header.
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


@contextmanager
def open_archive(path: Path, name: str) -> Iterator[Columnar]:
    """Open an .npz file with arrays X (n, p) and y (n,)."""
    with refusing(name, KIND):
        file = zipfile.ZipFile(path)
    with file:
        yield Columnar(open_store(file, name), name, KIND)


def open_store(file: zipfile.ZipFile, name: str) -> Store:
    """Return the arrays X and y of an archive as columns."""
    members = file.namelist()
    if "X.npy" not in members:
        raise StreamError(
            f"{name} holds {shown(members)}, expected arrays X and y: save them with "
            "numpy.savez(path, X=X, y=y)."
        )

    def opened(member: str) -> Saved:
        with refusing(name, KIND):
            info = file.getinfo(f"{member}.npy")
            return Saved(file.open(info), info.file_size)

    points = opened("X")
    if len(points.shape) != 2 or points.dtype.kind not in "fiub":
        raise StreamError(
            f"{name}: X is of type {points.dtype} and shape {points.shape}, expected a table "
            "of numbers: convert it."
        )
    size, width = points.shape
    names = [f"x{place}" for place in range(width)]
    if "y.npy" in members:
        names.append("y")
        labels = opened("y")
        if labels.shape != (size,) or labels.dtype.kind not in "fiubUS":
            raise StreamError(
                f"{name}: y is of type {labels.dtype} and shape {labels.shape}, expected a "
                f"label for each of {size} rows: leave missing ones NaN or empty."
            )

    def batches(chosen: list[int]) -> Iterator[tuple[Any, float]]:
        points = opened("X")
        labels = opened("y") if "y" in names and width in chosen else None
        done = 0
        while done < size:
            count = min(rows_at_once(width), size - done)
            done += count
            numbers = np.ascontiguousarray(points.read(count).T, dtype=np.float64)
            columns = [pa.array(numbers[place]) for place in chosen if place < width]
            if labels is not None:
                columns.append(label_column(labels.read(count)))
            batch = pa.RecordBatch.from_arrays(columns, [names[place] for place in chosen])
            yield batch, done / size

    return Store(names, batches)


def label_column(labels: NDArray[Any]) -> Any:
    """Return labels as a column of pyarrow, texts as bytes, which may not be UTF-8."""
    if labels.dtype.kind == "U":
        texts = [text.encode("utf-8", "surrogatepass") for text in labels.tolist()]
        return pa.array(texts, pa.binary())
    if labels.dtype.kind == "S":
        return pa.array(labels.tolist(), pa.binary())
    kind = np.float64 if labels.dtype.kind == "f" else labels.dtype.newbyteorder("=")
    return pa.array(labels.astype(kind))

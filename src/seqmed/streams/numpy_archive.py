"""Arrays X and y (optional) in an .npz file.

The columns of X are named x0, x1, ..., and the labels y. Arrays are read row by row and need not
fit in memory. An array in Fortran order is copied to a temporary file first.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from seqmed.streams.columnar import Columnar, Store
from seqmed.streams.errors import StreamError, refusing, shown
from seqmed.streams.limits import Allowance, Limits
from seqmed.streams.tables import BLOCK, MOST

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
        self.shape, self.by_column, self.dtype = HEADERS[version](handle)
        self.row = math.prod(self.shape[1:]) * self.dtype.itemsize
        if self.dtype.hasobject or not self.shape or min(self.shape) < 0 or self.row == 0:
            raise ValueError(f"an array of type {self.dtype} and shape {self.shape}")
        if self.shape[0] * self.row != size - handle.tell():
            raise ValueError(f"{size} bytes for shape {self.shape}")
        self._handle, self._read = handle, 0
        self.by_column = self.by_column and len(self.shape) == 2 and min(self.shape) > 1

    def copy_to(self, file: IO[bytes]) -> None:
        """Copy the values of an array in Fortran order to a temporary file, to be read there."""
        shutil.copyfileobj(self._handle, file, BLOCK)
        if file.tell() != self.shape[0] * self.row:
            raise ValueError("the file ends too early")
        self._handle = file

    def read(self, count: int) -> NDArray[Any]:
        """Return the next rows."""
        first, self._read = self._read, self._read + count
        if self.by_column:
            return self._by_column(first, count)
        data = exactly(self._handle, count * self.row)
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])

    def _by_column(self, first: int, count: int) -> NDArray[Any]:
        rows, width = self.shape
        found = np.empty((width, count), dtype=self.dtype)
        for column in range(width):
            self._handle.seek((column * rows + first) * self.dtype.itemsize)
            data = exactly(self._handle, count * self.dtype.itemsize)
            found[column] = np.frombuffer(data, self.dtype)
        return found.T


def exactly(handle: IO[bytes], size: int) -> bytes:
    """Return the next ``size`` bytes; what is not there takes no memory."""
    blocks = []
    while size:
        block = handle.read(min(size, BLOCK))
        if not block:
            raise ValueError("the file ends too early")
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


@contextmanager
def open_archive(path: Path, name: str, limits: Limits) -> Iterator[Columnar]:
    """Open an .npz file with arrays X (n, p) and y (n,)."""
    with refusing(name, KIND):
        file = zipfile.ZipFile(path)
    with file, ExitStack() as stack:
        allowance = Allowance(limits, name, path.stat().st_size)

        def opened(member: str) -> Saved:
            with refusing(name, KIND):
                info = file.getinfo(f"{member}.npy")
                allowance.spend(info.file_size)
                array = Saved(stack.enter_context(file.open(info)), info.file_size)
            width = array.shape[1] if len(array.shape) == 2 else 1
            limits.check("columns", name, width)
            limits.check("cell_bytes", name, array.dtype.itemsize)
            limits.check("row_bytes", name, array.row)
            if array.by_column:
                with refusing(name, KIND):
                    array.copy_to(stack.enter_context(tempfile.TemporaryFile()))
            return array

        store = open_store(file.namelist(), opened, name)
        yield Columnar(store, name, KIND, limits, Allowance(limits, name, path.stat().st_size))


def open_store(members: list[str], opened: Callable[[str], Saved], name: str) -> Store:
    """Return the arrays X and y of an archive as columns."""
    if "X.npy" not in members:
        raise StreamError(
            f"{name} holds {shown(members)}, expected arrays X and y: save them with "
            "numpy.savez(path, X=X, y=y)."
        )
    points, labels = opened("X"), None
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
    return Store(names, rows_of(points, labels, names))


def rows_of(points: Saved, labels: Saved | None, names: list[str]) -> Iterator[tuple[Any, float]]:
    """Yield the rows of both arrays as record batches."""
    size, done = points.shape[0], 0
    row = points.row + (labels.row if labels else 0)
    at_once = min(max(BLOCK // row, 1), MOST)
    while done < size:
        count = min(at_once, size - done)
        done += count
        numbers = np.ascontiguousarray(native(points.read(count)).T)
        columns = [pa.array(column) for column in numbers]
        if labels is not None:
            columns.append(label_column(labels.read(count)))
        yield pa.RecordBatch.from_arrays(columns, names), done / size


def native(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in a type of pyarrow: in native byte order, floats of 32 or 64 bits."""
    kind = numbers.dtype.newbyteorder("=")
    if kind.kind == "f" and kind.itemsize not in (4, 8):
        kind = np.dtype(np.float32 if kind.itemsize < 4 else np.float64)
    return numbers.astype(kind, copy=False)


def label_column(labels: NDArray[Any]) -> Any:
    """Return labels as a column of pyarrow, texts as bytes, which may not be UTF-8."""
    if labels.dtype.kind == "U":
        texts = [text.encode("utf-8", "surrogatepass") for text in labels.tolist()]
        return pa.array(texts, pa.binary())
    if labels.dtype.kind == "S":
        return pa.array(labels.tolist(), pa.binary())
    return pa.array(native(labels))

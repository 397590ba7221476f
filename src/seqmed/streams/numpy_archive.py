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

from seqmed.streams.columnar import Columnar
from seqmed.streams.errors import StreamError, refusing, shown
from seqmed.streams.files import read_exactly
from seqmed.streams.limits import BLOCK, MOST, Allowance, Limits

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
        self._copy: NDArray[Any] | None = None
        self.by_column = self.by_column and len(self.shape) == 2 and min(self.shape) > 1

    def copy_to(self, file: IO[bytes]) -> None:
        """Copy the values of an array in Fortran order to a temporary file, to be read there."""
        shutil.copyfileobj(self._handle, file, BLOCK)
        if file.tell() != self.shape[0] * self.row:
            raise ValueError("the file ends too early")
        self._copy = np.memmap(file, self.dtype, "r", shape=self.shape, order="F")

    def read(self, count: int) -> NDArray[Any]:
        """Return the next rows."""
        first, self._read = self._read, self._read + count
        if self._copy is not None:
            return self._copy[first : first + count]
        data = read_exactly(self._handle.read, count * self.row)
        if len(data) < count * self.row:
            raise ValueError("the file ends too early")
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])


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

        points, labels = open_arrays(file.namelist(), opened, name)
        names = [f"x{place}" for place in range(points.shape[1])] + ["y"] * (labels is not None)
        decoded = Allowance(limits, name, path.stat().st_size)
        yield Columnar(names, record_batches(points, labels, names), KIND, decoded)


def open_arrays(
    members: list[str], opened: Callable[[str], Saved], name: str
) -> tuple[Saved, Saved | None]:
    """Return the arrays X and y of an archive; refuse other types and shapes."""
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
    size = points.shape[0]
    if "y.npy" in members:
        labels = opened("y")
        if labels.shape != (size,) or labels.dtype.kind not in "fiubUS":
            raise StreamError(
                f"{name}: y is of type {labels.dtype} and shape {labels.shape}, expected a "
                f"label for each of {size} rows: leave missing ones NaN or empty."
            )
    return points, labels


def record_batches(
    points: Saved, labels: Saved | None, names: list[str]
) -> Iterator[tuple[Any, float]]:
    """Yield the rows of both arrays as record batches, each with the fraction that was read."""
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

"""Codes of rows in binary formats, by which a file is recognised.

The code of a row is the sum over its cells of a 64-bit hash of column name and value. It depends
neither on the order of columns, nor on the storage of integers as floats, nor on how a file is
divided. A missing cell adds nothing.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

Codes = NDArray[np.uint64]

# Larger integers are not exact as floats; they are hashed as integers.
EXACT = 2**53
GOLDEN, FIRST, SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def row_codes(columns: dict[str, Any], size: int) -> Codes:
    """Return the codes of rows, (size,).

    Parameters
    ----------
    columns : arrays of pyarrow by name, of single values, not encoded as dictionaries.
    size : the number of rows.
    """
    total = np.zeros(size, dtype=np.uint64)
    for name, column in columns.items():
        if not types.is_null(column.type):
            total += cell_codes(column, name_code(name))
    return total


@lru_cache(maxsize=2**17)
def name_code(name: str) -> np.uint64:
    """Return the code of a column name."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def cell_codes(column: Any, salt: np.uint64) -> Codes:
    """Return the code of every cell, 0 if it is missing."""
    kind = column.type
    if types.is_string(kind) or types.is_binary(kind):
        codes = text_codes(column)
    else:
        numbers = as_numbers(column)
        codes = np.ascontiguousarray(numbers).view(np.uint64).copy()
    codes = mixed(codes ^ salt)
    if column.null_count:
        codes[np.asarray(column.is_null())] = 0
    if types.is_floating(kind) or types.is_decimal(kind):
        codes[np.isnan(numbers)] = 0
    return codes


def as_numbers(column: Any) -> NDArray[Any]:
    """Return a column as 64-bit numbers: floats where they are exact, otherwise integers."""
    kind = column.type
    if types.is_temporal(kind):
        if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
            column = column.cast(in_microseconds(kind), safe=False)
        column = column.cast(pa.int32() if types.is_date32(kind) else pa.int64())
    if types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    column = column.fill_null(0) if column.null_count else column
    if types.is_floating(column.type) or types.is_decimal(column.type):
        numbers = np.asarray(column.cast(pa.float64(), safe=False), dtype=np.float64)
        return numbers + 0.0  # -0 becomes 0
    integers = np.asarray(column)
    numbers = integers.astype(np.float64)
    large = np.abs(numbers) > EXACT
    if large.any():
        numbers[large] = integers[large].astype(np.int64, casting="unsafe").view(np.float64)
    return numbers


def in_microseconds(kind: Any) -> Any:
    """Return a type of times with a resolution of microseconds."""
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if types.is_duration(kind) else pa.time64("us")


def text_codes(column: Any) -> Codes:
    """Return a hash of every text: the sum of its bytes, each times a weight of its place."""
    size = len(column)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: size + 1]
    offsets = offsets.astype(np.int64)
    data = column.buffers()[2]
    lengths = np.diff(offsets)
    total = np.zeros(size, dtype=np.uint64)
    filled = np.flatnonzero(lengths)
    if filled.size and data is not None:
        values = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        starts = offsets[:-1][filled] - offsets[0]
        longest = 1 << max(int(lengths.max()) - 1, 1).bit_length()  # few sizes, to be cached
        within = np.arange(values.size) - np.repeat(starts, lengths[filled])
        weighted = (values.astype(np.uint64) + np.uint64(1)) * weights(longest)[within]
        total[filled] = np.add.reduceat(weighted, starts)
    return total + lengths.astype(np.uint64)


@lru_cache(maxsize=4)
def weights(size: int) -> Codes:
    """Return the weights of the first places of a text, odd numbers of 64 bits."""
    return mixed(np.arange(1, size + 1, dtype=np.uint64)) | np.uint64(1)


def mixed(codes: Codes) -> Codes:
    """Return codes with all bits mixed (splitmix64)."""
    codes = codes + GOLDEN
    codes = (codes ^ (codes >> np.uint64(30))) * FIRST
    codes = (codes ^ (codes >> np.uint64(27))) * SECOND
    return codes ^ (codes >> np.uint64(31))

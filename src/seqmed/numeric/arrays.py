"""Operations on rows of data, dense or CSR."""

from __future__ import annotations

import itertools
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Single = NDArray[np.float32]
Slots = NDArray[np.int32]
Float = TypeVar("Float", bound=np.floating)
Points = Any
"""Rows of data: an (n, p) array or CSR array."""


def row_norms_squared(points: Points) -> Array:
    """Return the squared Euclidean norm of every row, (n,)."""
    if sp.issparse(points):
        return np.asarray(points.multiply(points).sum(axis=1)).ravel()
    with np.errstate(over="ignore"):
        return np.asarray(np.einsum("ij,ij->i", points, points))


def take_rows(points: Points, rows: NDArray[Any]) -> Points:
    """Return a copy of the rows selected by a mask or by indices."""
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    return points[rows]


def check_overflow(values: NDArray[np.floating]) -> None:
    """Refuse rows on which the kernel overflows."""
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values.reshape(values.shape[0], -1)).all(axis=1))[0])
        raise ValueError(
            f"the kernel overflows on row {row} of X, expected finite values: scale the features "
            "as in the batches the model has learned."
        )


def canonical(points: Points) -> Points:
    """Return rows as a dense array, or as a CSR array without duplicate entries."""
    if not sp.issparse(points):
        return points
    rows = sp.csr_array(points)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def stack(*parts: Points) -> Points:
    """Return the rows of all arrays stacked, as CSR if one of them is CSR."""
    if any(map(sp.issparse, parts)):
        return sp.csr_array(sp.vstack(parts, format="csr"))
    return np.vstack(parts)


def no_rows(like: Points) -> Points:
    """Return an empty set of rows in the format and width of ``like``."""
    return like[:0].copy()


def no_indices() -> NDArray[np.intp]:
    """Return an empty array of indices."""
    return np.zeros(0, dtype=np.intp)


def distinct_rows(points: Points) -> NDArray[np.intp]:
    """Return the index of the first occurrence of every distinct row, in order of appearance."""
    first_at: dict[Any, int] = {}
    for position, key in enumerate(row_keys(points)):
        first_at.setdefault(key, position)
    return np.fromiter(first_at.values(), dtype=np.intp, count=len(first_at))


def found_among(points: Points, others: Points) -> NDArray[np.bool_]:
    """Return a mask (n,) of the rows of ``points`` that equal a row of ``others``."""
    known = set(row_keys(others))
    return np.fromiter((key in known for key in row_keys(points)), bool, points.shape[0])


def bit_sums(rows: Points) -> NDArray[np.uint64]:
    """Return a number (n,) that is the same for rows of equal values in single precision."""
    if sp.issparse(rows):
        rows = canonical(rows)
        sums = np.zeros(rows.data.size + 1, dtype=np.uint64)
        np.cumsum((rows.data + 0).view(np.uint32), out=sums[1:])
        return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])
    return np.asarray((rows + 0).view(np.uint32).sum(axis=1, dtype=np.uint64))


def row_keys(points: Points) -> list[Any]:
    """Return a hashable key of every row; rows of equal values have equal keys."""
    if not sp.issparse(points):
        # adding zero turns -0.0 into 0.0, which compares equal but has different bytes
        return [row.tobytes() for row in np.ascontiguousarray(points + 0)]
    rows = canonical(points).copy()
    rows.eliminate_zeros()
    return [
        (rows.indices[a:b].astype(np.int64).tobytes(), rows.data[a:b].tobytes())
        for a, b in itertools.pairwise(rows.indptr)
    ]


def random_keys(numbers: NDArray[np.integer], seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random key for every number (n,), by splitmix64."""
    keys: NDArray[np.uint64] = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys += np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    return keys ^ (keys >> np.uint64(31))


def bytes_of(value: Any) -> int:
    """Return the total size in bytes of all nested arrays, each array counted once."""
    return sum(array.nbytes for array in distinct_arrays(value, {}).values())


def distinct_arrays(value: Any, found: dict[int, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    """Return all arrays nested in dataclasses, tuples and sparse matrices, by their id."""
    if isinstance(value, np.ndarray):
        owner = value if value.base is None else value.base
        found[id(owner)] = value if not isinstance(owner, np.ndarray) else owner
    elif sp.issparse(value):
        for array in (value.data, value.indices, value.indptr):
            distinct_arrays(array, found)
    elif is_dataclass(value):
        for part in fields(value):
            distinct_arrays(getattr(value, part.name), found)
    elif isinstance(value, tuple):
        for part in value:
            distinct_arrays(part, found)
    return found

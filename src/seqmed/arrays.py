"""Rows of data, dense or CSR, behind the few operations the library needs of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Points = Any
"""Rows of data: an (n, p) array or CSR array."""


class _Alias:
    """The memory of an array, as one that may be written to."""

    def __init__(self, array: Array) -> None:
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def writable(array: Array) -> Array:
    """Return the same doubles, row by row, in an array that may be written to.

    Compiled code knows arrays that may be written to and others as two types; with one there is
    less to compile. Only what is not in row order already is copied.
    """
    array = np.require(array, np.float64, "C")
    return array if array.flags.writeable else np.asarray(_Alias(array))


def row_norms_squared(points: Points) -> Array:
    """Return the squared Euclidean norm of every row, (n,)."""
    if sp.issparse(points):
        return np.asarray(points.multiply(points).sum(axis=1)).ravel()
    with np.errstate(over="ignore"):
        return np.einsum("ij,ij->i", points, points)


def take_rows(points: Points, rows: NDArray[Any]) -> Points:
    """Return a copy of the rows selected by a mask or by indices."""
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    return points[rows]


def canonical(points: Points) -> Points:
    """Return rows in one of the library's two formats, dense or CSR with each entry once.

    What was passed in is not changed.
    """
    if not sp.issparse(points):
        return points
    rows = sp.csr_array(points)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def stack(first: Points, second: Points) -> Points:
    """Return the rows of both, as CSR if either is."""
    if sp.issparse(first) or sp.issparse(second):
        return sp.csr_array(sp.vstack([first, second], format="csr"))
    return np.vstack([first, second])


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
    """Return a mask (n,) of the rows of ``points`` that equal some row of ``others``."""
    known = set(row_keys(others))
    return np.fromiter((key in known for key in row_keys(points)), bool, points.shape[0])


def row_keys(points: Points) -> list[Any]:
    """Return a hashable key of every row; rows of equal values have equal keys."""
    if not sp.issparse(points):
        # adding zero turns -0.0 into 0.0, which compares equal but has other bytes
        return [row.tobytes() for row in np.ascontiguousarray(points + 0)]
    rows = canonical(points).copy()
    rows.eliminate_zeros()
    return [
        (rows.indices[a:b].astype(np.int64).tobytes(), rows.data[a:b].tobytes())
        for a, b in itertools.pairwise(rows.indptr)
    ]

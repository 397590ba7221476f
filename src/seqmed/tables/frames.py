"""Tables of any library as tables of pyarrow, with the cells unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from seqmed.tables.cells import TableError, cell_text

ACCEPTED = (
    "a data frame of pandas or polars, a table of pyarrow, a list of dictionaries, a dictionary of "
    "columns, or an array of numbers"
)


def as_table(X: Any, names: Sequence[str] | None = None) -> pa.Table:
    """Return rows as a table of pyarrow.

    Parameters
    ----------
    X : a data frame of pandas or polars, a table or record batch of pyarrow, a list of
        dictionaries, a dictionary of columns, or an (n, p) array of numbers.
    names : names of the columns of an array; by default x0, x1, ...
    """
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    if isinstance(X, pa.Table):
        return checked(X)
    if isinstance(X, Mapping):
        return from_columns(dict(X))
    if isinstance(X, list | tuple) and X and all(isinstance(row, Mapping) for row in X):
        keys = dict.fromkeys(name for row in X for name in row)
        return from_columns({name: [row.get(name) for row in X] for name in keys})
    if isinstance(X, np.ndarray | list | tuple) or sp.issparse(X):
        return from_array(X, names)
    return from_frame(X)


def from_frame(X: Any) -> pa.Table:
    """Return a data frame of any library that narwhals knows."""
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError:
        raise TableError(f"X is a {type(X).__name__}, expected {ACCEPTED}: convert it.") from None
    columns = {name: frame.get_column(name) for name in frame.columns}
    return from_columns({name: series_values(column) for name, column in columns.items()})


def series_values(series: Any) -> Any:
    """Return a column of narwhals as an array of pyarrow, or as a list of mixed values."""
    try:
        return series.to_arrow()
    except (pa.ArrowException, TypeError, OverflowError):
        return series.to_list()


def from_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """Return a table of named columns."""
    named = {str(name): as_column(values) for name, values in columns.items()}
    sizes = {name: len(column) for name, column in named.items()}
    if len(set(sizes.values())) > 1:
        raise TableError(f"columns have different lengths, {sizes}: expected one cell per row.")
    if len(named) < len(columns):
        raise TableError("two columns have the same name: rename one of them.")
    return pa.table(named)


def as_column(values: Any) -> Any:
    """Return values as a column of pyarrow; mixed values become texts."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "to_list"):  # a column of pandas or polars
        import narwhals as nw

        values = series_values(nw.from_native(values, series_only=True))
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
    if np.ndim(values) == 0:
        raise TableError(f"a column is {values!r:.50}, expected a cell for every row.")
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError, ValueError):
        return pa.array([cell_text(present(value)) for value in values], pa.string())


def present(value: Any) -> Any:
    """Return a value; None for the missing values of pandas."""
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def from_array(X: Any, names: Sequence[str] | None) -> pa.Table:
    """Return an array of numbers as a table."""
    if sp.issparse(X):
        raise TableError(f"X is a sparse matrix, expected {ACCEPTED}: convert it.")
    array = np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise TableError(
            f"X is an array of type {array.dtype} and shape {array.shape}, expected {ACCEPTED}: "
            "convert it."
        )
    names = [f"x{place}" for place in range(array.shape[1])] if names is None else list(names)
    columns = [pa.array(np.ascontiguousarray(array[:, place])) for place in range(len(names))]
    return pa.Table.from_arrays(columns, names)


def checked(table: pa.Table) -> pa.Table:
    """Return a table; refuse two columns with the same name."""
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f"two columns are named {twice!r}: rename one of them.")
    return table

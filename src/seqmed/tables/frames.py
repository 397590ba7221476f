"""Tables of any library as tables of pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.tables.cells import TableError, cell_text

ACCEPTED = (
    "a data frame of pandas or polars, a table of pyarrow, a list of dictionaries, a dictionary of "
    "columns, or an array"
)


def as_table(X: Any, names: Sequence[str] | None = None) -> pa.Table:
    """Return rows as a table of pyarrow.

    Parameters
    ----------
    X : a data frame of pandas or polars, a table or record batch of pyarrow, a list of
        dictionaries, a dictionary of columns, or an (n, p) array.
    names : names of the columns of an array; by default x0, x1, ...
    """
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    if isinstance(X, pa.Table):
        refuse_twice(X.column_names)
        return X
    if is_array(X):
        return from_array(X, names)
    if isinstance(X, Mapping):
        return from_columns(dict(X))
    if isinstance(X, list | tuple):
        keys = dict.fromkeys(name for row in X for name in row)
        return from_columns({name: [row.get(name) for row in X] for name in keys})
    return from_frame(X)


def is_array(X: Any) -> bool:
    """Whether rows are an array, or a list of rows without names."""
    if isinstance(X, list | tuple):
        return not X or not all(isinstance(row, Mapping) for row in X)
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return True
    return hasattr(X, "__array__") and not hasattr(X, "columns") and not hasattr(X, "to_frame")


def from_frame(X: Any) -> pa.Table:
    """Return a data frame of any library that narwhals knows."""
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError:
        raise TableError(f"X is a {type(X).__name__}, expected {ACCEPTED}: convert it.") from None
    except nw.exceptions.DuplicateError:
        raise TableError("two columns have the same name: rename one of them.") from None
    names = list(frame.columns)
    refuse_twice(list(map(str, names)))
    columns = [series_values(frame.get_column(name)) for name in names]
    return pa.Table.from_arrays([as_column(each) for each in columns], list(map(str, names)))


def series_values(series: Any) -> Any:
    """Return a column of narwhals or pandas as an array of pyarrow, or a list of mixed values."""
    if str(series.dtype).lower() == "object":  # pyarrow would take numbers among dates for dates
        return list(series)
    try:
        array = series.to_arrow() if hasattr(series, "to_arrow") else pa.array(series)
    except (pa.ArrowException, TypeError, OverflowError, ValueError, NotImplementedError):
        return list(series)
    inner = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    strange = isinstance(inner, pa.BaseExtensionType) or pa.types.is_struct(inner)
    return list(series) if strange else array  # periods and intervals of pandas


def from_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """Return a table of named columns."""
    names = list(map(str, columns))
    refuse_twice(names)
    named = {name: as_column(values) for name, values in zip(names, columns.values(), strict=True)}
    sizes = {name: len(column) for name, column in named.items()}
    if len(set(sizes.values())) > 1:
        raise TableError(f"columns have different lengths, {sizes}: expected one cell per row.")
    return pa.table(named)


def as_column(values: Any) -> Any:
    """Return values as a column of pyarrow; mixed values become texts."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "dtype") and not isinstance(values, np.ndarray):  # of pandas or polars
        import narwhals as nw

        values = series_values(nw.from_native(values, series_only=True, pass_through=True))
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise TableError(f"a column is {values!r:.50}, expected a list with a cell for every row.")
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind == "c":
            raise TableError(
                f"a column is an array of type {values.dtype} and shape {values.shape}, expected "
                "one cell for every row: convert it."
            )
        if values.dtype.kind in "biufMm" and values.dtype.isnative:
            return pa.array(values, from_pandas=True)
        values = values.tolist()
    values = [None if is_absent(value) else value for value in values]
    if len({*map(type, values)} - {type(None)}) > 1:  # pyarrow would round or refuse some of them
        return pa.array([cell_text(value) for value in values], pa.string())
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError, ValueError):
        return pa.array([cell_text(value) for value in values], pa.string())


def is_absent(value: Any) -> bool:
    """Whether a value is None, NaN, or a missing value of pandas."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def from_array(X: Any, names: Sequence[str] | None) -> pa.Table:
    """Return an array as a table."""
    array = as_array(X)
    names = [f"x{place}" for place in range(array.shape[1])] if names is None else list(names)
    columns = [as_column(np.ascontiguousarray(array[:, place])) for place in range(len(names))]
    return pa.Table.from_arrays(columns, names)


def as_array(X: Any) -> NDArray[Any]:
    """Return a matrix, or a list of rows, as an array."""
    if sp.issparse(X):
        raise TableError(f"X is a sparse matrix, expected {ACCEPTED}: convert it.")
    try:
        array = np.asarray(X)
        if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
            array = np.asarray(X, dtype=object)  # mixed cells of a list of rows
    except ValueError:
        raise TableError(f"X has rows of different lengths, expected {ACCEPTED}.") from None
    if array.dtype.kind == "c":
        raise TableError("Complex data not supported: X is complex, expected real numbers.")
    if array.ndim != 2:
        raise TableError(
            f"X is an array of shape {array.shape}, expected {ACCEPTED}, (rows, columns). Reshape "
            "your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) is one row."
        )
    return array


def refuse_twice(names: Sequence[str]) -> None:
    """Refuse two columns with the same name."""
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise TableError(f"two columns are named {twice!r}: rename one of them.")

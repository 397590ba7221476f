"""Tables of any library as tables of pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.estimators.labels import is_missing_value
from seqmed.tables.cells import TableError, cell_text

ACCEPTED = (
    "a data frame of pandas or polars, a table of pyarrow, a list of dictionaries, a dictionary of "
    "columns, or an array"
)


def as_table(X: Any) -> pa.Table:
    """Return rows in a form of `ACCEPTED` as a table; columns of an array are x0, x1, ..."""
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    names, columns = named_columns(X)
    found = list(map(str, names))
    if len(set(found)) < len(found):
        twice = Counter(found).most_common(1)[0][0]
        raise TableError(f"two columns are named {twice!r}: rename one of them.")
    if isinstance(X, pa.Table):
        return X
    arrays = [as_column(values) for values in columns]
    try:
        return pa.Table.from_arrays(arrays, found)
    except pa.ArrowInvalid as error:
        raise TableError(f"columns have different lengths: {error}.") from None


def named_columns(X: Any) -> tuple[Sequence[Any], Iterable[Any]]:
    """Return the names and the columns of rows in any form."""
    if isinstance(X, pa.Table):
        return X.column_names, X.columns
    if is_array(X):
        array = as_array(X)
        return [f"x{place}" for place in range(array.shape[1])], array.T
    if isinstance(X, list | tuple):
        keys = dict.fromkeys(name for row in X for name in row)
        X = {name: [row.get(name) for row in X] for name in keys}
    if isinstance(X, Mapping):
        return list(X), X.values()
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError:
        raise TableError(f"X is a {type(X).__name__}, expected {ACCEPTED}: convert it.") from None
    except nw.exceptions.DuplicateError:
        raise TableError("two columns have the same name: rename one of them.") from None
    return frame.columns, frame.iter_columns()


def is_array(X: Any) -> bool:
    """Whether rows are an array, or a list of rows without names."""
    if isinstance(X, list | tuple):
        return not X or not all(isinstance(row, Mapping) for row in X)
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return True
    return hasattr(X, "__array__") and not hasattr(X, "columns") and not hasattr(X, "to_frame")


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


def as_column(values: Any) -> Any:
    """Return values as a column of pyarrow; mixed values become texts."""
    if hasattr(values, "dtype") and not isinstance(values, np.ndarray):  # of pandas or polars
        import narwhals as nw

        values = series_values(nw.from_native(values, series_only=True, pass_through=True))
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise TableError(f"a column is {values!r:.50}, expected a list with a cell for every row.")
    if isinstance(values, np.ndarray):
        if values.ndim == 1 and values.dtype.kind in "biufMm" and values.dtype.isnative:
            return pa.array(values, from_pandas=True)
        values = values.tolist()
    values = [None if is_missing_value(value) and value != "" else value for value in values]
    if len({*map(type, values)} - {type(None)}) < 2:  # pyarrow would round or refuse mixed values
        try:
            return pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, OverflowError, ValueError):
            pass
    return pa.array([cell_text(value) for value in values], pa.string())


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

"""Columns of pyarrow tables: distinct values, and tables of several files as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from seqmed.tables.texts import cell_text


def column_of(table: Any, name: str, size: int) -> Any:
    """Return a column as one array, of nulls if the table does not have it."""
    if name not in table.column_names:
        return pa.nulls(size)
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def levels(column: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """Return the code of every cell, (n,), and the distinct values; the last one is None."""
    if types.is_null(column.type):
        return np.zeros(len(column), dtype=np.intp), [None]
    if types.is_temporal(column.type):
        column = column.cast(pa.string())
    encoded = column.dictionary_encode()
    values = [*encoded.dictionary.to_pylist(), None]
    codes = np.asarray(encoded.indices.fill_null(len(values) - 1)).astype(np.intp)
    return codes, values


def rows_of(table: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows of a table, without a copy if they follow one another."""
    if rows.size and rows[-1] - rows[0] + 1 == rows.size:
        return table.slice(int(rows[0]), rows.size)
    return table.take(pa.array(rows))


def stacked(tables: Sequence[Any]) -> Any:
    """Return the rows of some tables as one.

    The columns are those of all tables, null where a table does not have them. A column of
    integers and floats is one of floats; other columns of several types become texts.
    """
    first = tables[0].schema
    if all(table.schema.equals(first) for table in tables[1:]):
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    kinds: dict[str, set[Any]] = {name: set() for name in names}
    for table in tables:
        for field in table.schema:
            if not types.is_null(field.type):
                kinds[field.name].add(field.type)
    columns = []
    for name in names:
        kind = common_type(kinds[name])
        arrays = [
            as_type(chunk, kind)
            for table in tables
            for chunk in (
                table.column(name).chunks
                if name in table.column_names
                else [pa.nulls(table.num_rows)]
            )
        ]
        columns.append(pa.chunked_array(arrays, kind))
    return pa.table(columns, names=list(names))


def common_type(kinds: set[Any]) -> Any:
    """Return the type of a column that has cells of some types."""
    if len(kinds) <= 1:
        return next(iter(kinds), pa.null())
    if all(types.is_integer(kind) for kind in kinds) and pa.uint64() not in kinds:
        return pa.int64()
    if all(types.is_floating(kind) or types.is_integer(kind) for kind in kinds):
        return pa.float64()  # large integers are rounded
    return pa.string()


def as_type(column: Any, kind: Any) -> Any:
    """Return a column in the common type of several; see `cell_text` for texts."""
    if column.type == kind:
        return column
    if types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if not types.is_string(kind):
        return column.cast(kind, safe=False)
    codes, values = levels(column)
    texts = pa.array([cell_text(value) for value in values], pa.string())
    return compute.take(texts, pa.array(codes))

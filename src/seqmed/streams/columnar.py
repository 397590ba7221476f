"""Tables of binary formats: record batches of pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types

from seqmed.streams.errors import (
    INVALID_TEXT,
    LONG_CELL,
    Fault,
    StreamError,
    listed,
    notice,
    refusing,
    shown,
)
from seqmed.streams.limits import BLOCK, MOST, Allowance
from seqmed.streams.row_codes import row_codes
from seqmed.streams.tables import Cells, Piece, Start, Wanted, check_column_names

# Strings are read as bytes: in a damaged file they may not be UTF-8.
AS_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
VIEWS = (pa.string_view(), pa.binary_view())
# Bytes of a view: a length and a place.
VIEW = 16
# Bytes that are counted for each row besides its values.
ROW = 8


class Columnar:
    """A file of a columnar format; see `Table`.

    Parameters
    ----------
    names : its columns.
    batches : record batches of pyarrow, each with the fraction of the file that has been read.
    kind : its format in messages.
    allowance : counts the decoded bytes; with the limits and the name of the file.
    """

    complete = True
    deferred = False

    def __init__(
        self,
        names: Sequence[str],
        batches: Iterator[tuple[Any, float]],
        kind: str,
        allowance: Allowance,
    ):
        self._name, self._limits = allowance.source, allowance.limits
        self._kind, self._allowance = kind, allowance
        self.names = check_column_names(names, self._name, self._limits)
        self._batches = batches
        self._fraction = 0.0
        self._told = False

    def pieces(self, start: Start) -> Iterator[Piece]:
        seen = 0
        for batch in self._slices():
            first = max(start.rows - seen, 0)
            seen += batch.num_rows
            if first < batch.num_rows:
                yield self._piece(batch.slice(first))

    def fraction(self) -> float:
        return self._fraction

    def _slices(self) -> Iterator[Any]:
        """Yield the rows, as many at once as decode to one block."""
        while True:
            with refusing(self._name, self._kind):
                batch, fraction = next(self._batches, (None, 1.0))
                if batch is None:
                    return
                sizes = self._row_sizes(batch)
            ends, start = np.cumsum(sizes), 0
            while start < batch.num_rows:
                before = ends[start - 1] if start else 0
                stop = int(np.searchsorted(ends, before + BLOCK, side="right"))
                stop = min(max(stop, start + 1), start + MOST)
                yield batch.slice(start, stop - start)
                start = stop
            self._fraction = fraction

    def _row_sizes(self, batch: Any) -> NDArray[np.int64]:
        """Return the decoded bytes of every row; refuse rows or expansion above the limits."""
        self._allowance.spend(ROW * batch.num_rows)
        sizes = np.full(batch.num_rows, ROW, dtype=np.int64)
        sizes += sum(cell_sizes(column) for column in batch.columns)
        if sizes.size:
            self._limits.check("row_bytes", self._name, int(sizes.max()) - ROW)
        self._allowance.spend(int(sizes.sum()))
        return sizes

    def _piece(self, batch: Any) -> Piece:
        """Return rows as a piece, hashed by the codes of all columns."""
        columns: dict[str, Any] = {}
        faults: list[tuple[int, Fault]] = []
        with refusing(self._name, self._kind):
            for name, column in zip(self.names, batch.columns, strict=True):
                if is_single(column.type):
                    columns[name] = self._readable(sound(column), name, faults)
            codes = row_codes(columns, batch.num_rows)
        ends = np.arange(1, batch.num_rows + 1, dtype=np.int64) * codes.itemsize
        return Piece(partial(self._cells, columns, faults), codes.tobytes(), ends)

    def _cells(
        self, columns: dict[str, Any], faults: list[tuple[int, Fault]], wanted: Wanted
    ) -> Cells:
        """Return the wanted columns among those of a piece; columns of lists are left out."""
        names = wanted.of(self.names)
        nested = [name for name in names if name not in columns]
        for name in nested:
            if wanted.columns is not None or name in wanted.others:
                raise StreamError(
                    f"{self._name}: column {name!r} holds lists or records, expected single "
                    "values: convert it."
                )
        if nested and not self._told:
            self._told = True
            notice(
                f"{self._name}: columns of lists or records are not used: "
                f"{listed([shown(name) for name in nested])}."
            )
        chosen = [name for name in names if name in columns]
        found: dict[int, Fault] = {}
        for row, fault in faults:
            if fault.column in chosen:
                found.setdefault(row, fault)
        return Cells(pa.table([columns[name] for name in chosen], names=chosen), found)

    def _readable(self, column: Any, name: str, faults: list[tuple[int, Fault]]) -> Any:
        """Return a column with its bytes as texts; bad cells are null and added to the faults."""
        if not types.is_binary(column.type):
            return column
        bad: dict[int, Fault] = {}
        lengths = compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(lengths > self._limits.cell_bytes).tolist():
            bad[row] = Fault(LONG_CELL, name, f"{lengths[row]} bytes")
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            texts = None
            for row, value in enumerate(column.to_pylist()):
                try:
                    None if value is None else value.decode()
                except UnicodeDecodeError:
                    bad.setdefault(row, Fault(INVALID_TEXT, name, shown(value)))
        if bad:
            faults += bad.items()
            mask = np.zeros(len(column), dtype=bool)
            mask[list(bad)] = True
            column = compute.if_else(pa.array(mask), pa.scalar(None, pa.binary()), column)
            texts = column.cast(pa.string())
        return texts


def has_width(kind: Any) -> bool:
    """Whether the cells of a type have the same number of bytes, stored one by one."""
    return bool(
        (types.is_primitive(kind) and not types.is_boolean(kind))
        or types.is_decimal(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_single(kind: Any) -> bool:
    """Whether a type holds single values that can be read."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_single(kind.storage_type)
    if types.is_dictionary(kind):
        return is_single(kind.value_type) and not types.is_dictionary(kind.value_type)
    others = (types.is_boolean, types.is_null, types.is_binary, types.is_large_binary)
    texts = kind in AS_BYTES or kind in VIEWS
    return (
        texts
        or (has_width(kind) and not types.is_interval(kind))
        or any(test(kind) for test in others)
    )


def cell_sizes(column: Any) -> Any:
    """Return the decoded bytes of every cell, before anything is decoded."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return cell_sizes(column.storage)
    column.validate()
    if types.is_dictionary(kind):
        sizes = np.zeros(len(column.dictionary), dtype=np.int64) + cell_sizes(column.dictionary)
        places = np.asarray(column.indices.fill_null(0)).astype(np.int64)
        present = np.asarray(column.indices.is_valid())
        if present.any() and not (0 <= places[present].min() <= places[present].max() < sizes.size):
            raise ValueError("an index outside a dictionary")
        return np.where(present, sizes[np.where(present, places, 0)], 0) if sizes.size else 0
    if kind in VIEWS:
        views = np.frombuffer(column.buffers()[1] or b"", np.uint8)
        views = views[VIEW * column.offset :][: VIEW * len(column)].reshape(-1, VIEW)
        lengths = views[:, :4].copy().view(np.int32).ravel().astype(np.int64)
    elif kind in AS_BYTES or types.is_binary(kind) or types.is_large_binary(kind):
        lengths = np.asarray(compute.binary_length(column).fill_null(0)).astype(np.int64)
    else:
        return kind.byte_width if has_width(kind) else 1
    if lengths.size and lengths.min() < 0:
        raise ValueError("a text of negative length")
    return lengths


def valid(column: Any) -> Any:
    """Return a column with strings as bytes, without a copy; refuse a damaged one."""
    column.validate()
    if column.type in AS_BYTES:
        column = column.cast(AS_BYTES[column.type])
    column.validate(full=True)
    return column


def sound(column: Any) -> Any:
    """Return a valid column of plain values, with strings as bytes; refuse a damaged one."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    column.validate()
    if types.is_dictionary(column.type):
        return sound(valid(column.dictionary).take(valid(column.indices)))
    column = valid(column)
    kind = column.type
    if types.is_large_binary(kind) or kind in VIEWS or types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    return column

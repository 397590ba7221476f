"""JSON lines: an object on every line.

pyarrow reads many rows at once, with the types of the rows before them. Rows of other types, and
rows that pyarrow would read differently from the json module, are read one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyarrow import json as arrow_json

from seqmed.streams import inputs
from seqmed.streams.faults import INVALID_TEXT, JSON, LONG_CELL, NESTED, Fault, StreamError
from seqmed.streams.inputs import check_limit, encodable
from seqmed.streams.pieces import (
    SAMPLE,
    Cells,
    Piece,
    Text,
    TextTable,
    Wanted,
    check_column_names,
    line_ends,
)
from seqmed.tables.cells import cell_text
from seqmed.tables.messages import shown

# Larger integers are not exact as floats.
EXACT = 2**53
# Largest number of cells in a block of rows with different keys.
CELLS = 2**24


class JsonLines(TextTable):
    """A text of JSON lines; see `Table`. Its columns are the keys in its first rows."""

    complete = False

    def __init__(self, text: Text):
        super().__init__(text, line_ends)
        first = text.first(line_ends, SAMPLE)
        if text.buffer[text.head :].lstrip(b"\r\n").startswith(b"["):
            raise StreamError(
                f"{text.name} begins with '[', expected an object on every line: convert the "
                "array, for example with jq -c '.[]'."
            )
        keys = dict.fromkeys(
            key for found, _ in map(read_object, records_of(first)) for key in found
        )
        self.names = check_column_names(list(keys), text.name)
        self._types: dict[str, Any] = {}

    def cells(self, piece: Piece, wanted: Wanted) -> Cells:
        table = self._read_at_once(piece, wanted)
        if table is not None:
            return Cells(table, [])
        cells = self._read_each(piece, wanted)
        for field in cells.table.schema:
            both = {field.type, self._types.get(field.name, field.type)}
            wide = pa.float64() if both == {pa.int64(), pa.float64()} else field.type
            if field.type != pa.null() or field.name not in self._types:
                self._types[field.name] = wide
        return cells

    def _read_at_once(self, piece: Piece, wanted: Wanted) -> Any:
        """Return the rows as a table; None if they have to be read one by one."""
        chosen = wanted.columns
        names = self._types if chosen is None else dict.fromkeys((*chosen, *wanted.others))
        if not names or not all(name in self._types for name in names):
            return None
        sizes = np.diff(piece.ends, prepend=0)
        raw = whole_objects(piece) if sizes.max() <= inputs.CELL_BYTES else None
        if raw is None:
            return None
        # Two blocks, for two threads; a block holds at least one row.
        block = max(len(raw) // 2, 2 * int(sizes.max())) + 1
        read = arrow_json.ReadOptions(use_threads=True, block_size=block)
        parse = arrow_json.ParseOptions(
            explicit_schema=pa.schema([(name, self._types[name]) for name in names]),
            unexpected_field_behavior="error" if chosen is None else "ignore",
        )
        try:
            table = arrow_json.read_json(pa.BufferReader(raw), read, parse)
        except pa.ArrowException:
            return None
        exact = all(exact_numbers(table.column(name)) for name in names)
        return table if exact and table.num_rows == sizes.size else None

    def _read_each(self, piece: Piece, wanted: Wanted) -> Cells:
        """Return the rows as a table, read one by one, and the faults of bad ones."""
        rows, faults = [], list[tuple[int, Fault]]()
        for row, record in enumerate(records_of(piece)):
            found, fault = read_object(record)
            rows.append(found)
            if fault is not None:
                faults.append((row, fault))
        if wanted.columns is None:
            keys = dict.fromkeys(key for found in rows for key in found)
            names = list(check_column_names(list(keys), self._text.name))
            what = f"{len(names)} columns in {len(rows)} rows, which are {{}} cells"
            check_limit(what, len(names) * len(rows), CELLS, self._text.name)
        else:
            names = list(dict.fromkeys((*wanted.columns, *wanted.others)))
        columns = []
        for name in names:
            values, bad = single_values([found.get(name) for found in rows], name)
            columns.append(typed_array(values))
            faults += bad
        return Cells(pa.table(columns, names=names), faults)


def records_of(piece: Piece) -> list[bytes]:
    """Return the records of a piece."""
    return [piece.record(row) for row in range(piece.ends.size)]


def whole_objects(piece: Piece) -> bytes | None:
    """Return the bytes of a piece; None unless every line is UTF-8 and of the form ``{...}``.

    Then no object can continue on the next line.
    """
    raw = piece.raw
    view = np.frombuffer(raw, np.uint8)
    starts = np.concatenate([[0], piece.ends[:-1]])
    last = piece.ends - 1
    last = last - (view[last] == ord("\n"))
    last = last - (view[last] == ord("\r"))
    if not ((view[starts] == ord("{")) & (view[last] == ord("}"))).all():
        records = [record.strip() for record in records_of(piece)]
        if not all(each.startswith(b"{") and each.endswith(b"}") for each in records):
            return None
        raw = b"\n".join(records)
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return None
    return raw


def exact_numbers(column: Any) -> bool:
    """Whether no number of a column may have been an integer that is not exact as a float."""
    if not pa.types.is_floating(column.type):
        return True
    largest = compute.max(compute.abs(column)).as_py()
    return largest is None or not largest >= EXACT


def read_object(record: bytes) -> tuple[dict[str, Any], Fault | None]:
    """Return the object on a line, an empty one and the fault if the line is bad."""
    reason = JSON
    try:
        found = json.loads(record.decode())
        if isinstance(found, dict):
            return found, None
    except UnicodeDecodeError:
        reason = INVALID_TEXT
    except (ValueError, RecursionError):
        pass
    return {}, Fault(reason, None, shown(record))


def single_values(values: list[Any], name: str) -> tuple[list[Any], list[tuple[int, Fault]]]:
    """Return the cells of a column, None where they are nested, too long or no text; the faults."""
    if not any(isinstance(value, str | list | dict) for value in values):
        return values, []
    faults = []
    for row, value in enumerate(values):
        if isinstance(value, list | dict):
            fault = Fault(NESTED, name, shown(value))
        elif not isinstance(value, str) or (value.isascii() and len(value) <= inputs.CELL_BYTES):
            continue
        elif not encodable(value):
            fault = Fault(INVALID_TEXT, name, shown(value))
        elif len(value.encode()) > inputs.CELL_BYTES:
            fault = Fault(LONG_CELL, name, f"{len(value.encode())} bytes")
        else:
            continue
        faults.append((row, fault))
    bad = {row for row, _ in faults}
    return [None if row in bad else value for row, value in enumerate(values)], faults


def typed_array(values: Sequence[Any]) -> Any:
    """Return cells as an array: of one type if it is exact, else of texts."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    if kinds in ({str}, {bool}):
        return pa.array(values)
    if kinds <= {int, float}:
        largest = max((abs(value) for value in values if type(value) is int), default=0)
        if kinds == {int} and largest < 2**63:
            return pa.array(values, pa.int64())
        if largest <= EXACT:
            return pa.array(values, pa.float64())
    return pa.array([cell_text(value) for value in values], pa.string())

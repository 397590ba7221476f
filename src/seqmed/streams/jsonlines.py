"""JSON lines: an object on every line.

pyarrow reads many rows at once, with the types of the rows before them. Rows of other types, and
rows that pyarrow would read differently from the json module, are read one by one.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, types
from pyarrow import json as arrow_json

from seqmed.streams import inputs
from seqmed.streams.faults import INVALID_TEXT, JSON, NESTED, Fault, StreamError
from seqmed.streams.inputs import check_limit
from seqmed.streams.pieces import (
    SAMPLE,
    Cells,
    Piece,
    Text,
    TextTable,
    Wanted,
    check_column_names,
    decoded_texts,
    line_ends,
)
from seqmed.tables.cells import cell_text
from seqmed.tables.messages import shown

# Larger integers are not exact as floats.
EXACT = 2**53
# Largest number of cells in a block of rows with different keys.
CELLS = 2**24
# Brackets in a row, of which each may begin a list or record; a row with more is not read.
BRACKETS = 2**19


class JsonLines(TextTable):
    """A text of JSON lines; see `Table`. Its columns are the keys in its first rows."""

    complete = False

    def __init__(self, text: Text):
        super().__init__(text, line_ends)
        if text.buffer[text.head :].startswith(b"["):
            raise StreamError(
                f"{text.name} begins with '[', expected an object on every line: convert the "
                "array, for example with jq -c '.[]'."
            )
        first = text.first(line_ends, SAMPLE).records()
        self.names = self._keys([read_object(record)[0] for record in first])
        self._types: dict[str, Any] = {}

    def _keys(self, rows: list[dict[str, Any]]) -> tuple[str, ...]:
        """Return the keys of some rows, in the order of their first occurrence."""
        keys = dict.fromkeys(chain.from_iterable(dict.fromkeys(map(tuple, rows))))
        return check_column_names(list(keys), self._text.name)

    def cells(self, piece: Piece, wanted: Wanted) -> Cells:
        table = self._read_at_once(piece, wanted)
        return self._read_each(piece, wanted) if table is None else Cells(table, [])

    def _read_at_once(self, piece: Piece, wanted: Wanted) -> Any:
        """Return the rows as a table; None if they have to be read one by one."""
        chosen = wanted.columns
        names = self._types if chosen is None else dict.fromkeys((*chosen, *wanted.others))
        raw = whole_objects(piece) if names and self._types.keys() >= {*names} else b""
        if not raw:
            return None
        # Two blocks, for two threads; a block holds at least one row.
        sizes = np.diff(piece.ends, prepend=0)
        block = max(len(raw) // 2, 2 * int(sizes.max())) + 1
        parse = arrow_json.ParseOptions(
            explicit_schema=pa.schema([(name, self._types[name]) for name in names]),
            unexpected_field_behavior="error" if chosen is None else "ignore",
        )
        try:
            read = arrow_json.ReadOptions(block_size=block)
            table = arrow_json.read_json(pa.BufferReader(raw), read, parse)
        except pa.ArrowException:
            return None
        exact = all(map(is_exact, table.columns)) and table.num_rows == sizes.size
        return table if exact else None

    def _read_each(self, piece: Piece, wanted: Wanted) -> Cells:
        """Return the rows as a table, read one by one, and the faults of bad ones."""
        found = [read_object(record) for record in piece.records()]
        rows = [row for row, _ in found]
        faults = [(row, fault) for row, (_, fault) in enumerate(found) if fault is not None]
        if wanted.columns is None:
            names = self._keys(rows)
            what = f"{len(names)} columns in {len(rows)} rows, which are {{}} cells"
            check_limit(what, len(names) * len(rows), CELLS, self._text.name)
        else:
            names = tuple(dict.fromkeys((*wanted.columns, *wanted.others)))
        columns = []
        values = zip(*[[row.get(name) for name in names] for row in rows], strict=True)
        for name, cells in zip(names, values, strict=True):
            column, bad = typed_array(list(cells), name)
            columns.append(column)
            faults += bad
            if name not in self._types or not types.is_null(column.type):
                self._types[name] = column.type
        return Cells(pa.table(columns, names=names), faults)


def whole_objects(piece: Piece) -> bytes:
    """Return the rows of a piece as lines, if all are short, UTF-8 and ``{...}``; else nothing."""
    records = [record.strip(b" \t\r\n") for record in piece.records()]
    # then no object continues on the next line
    whole = all(record[:1] + record[-1:] == b"{}" for record in records)
    raw = b"\n".join(records) if whole and max(map(len, records)) <= inputs.CELL_BYTES else b""
    try:
        raw.isascii() or raw.decode()
    except UnicodeDecodeError:
        return b""
    return raw


def is_exact(column: Any) -> bool:
    """Whether no number of a column may have been an integer that is not exact as a float."""
    largest = compute.max(compute.abs(column)).as_py() if types.is_floating(column.type) else 0
    return largest is None or largest < EXACT


def read_object(record: bytes) -> tuple[dict[str, Any], Fault | None]:
    """Return the object on a line, an empty one and the fault if the line is bad."""
    reason = JSON
    if len(record) > BRACKETS and record.count(b"[") + record.count(b"{") > BRACKETS:
        return {}, Fault(NESTED, None, shown(record))
    try:
        found = json.loads(record.decode())
        if isinstance(found, dict):
            return found, None
    except UnicodeDecodeError:
        reason = INVALID_TEXT
    except (ValueError, RecursionError):
        pass
    return {}, Fault(reason, None, shown(record))


def typed_array(values: list[Any], name: str) -> tuple[Any, list[tuple[int, Fault]]]:
    """Return the cells of a column as an array of one type if it is exact, else of texts.

    Cells that are nested, too long or no text are null, and have faults.
    """
    kinds = set(map(type, values)) - {type(None)}
    faults = []
    if kinds & {list, dict}:
        for row, value in enumerate(values):
            if isinstance(value, list | dict):
                faults.append((row, Fault(NESTED, name, shown(value))))
                values[row] = None
        kinds -= {list, dict}
    if not kinds:
        return pa.nulls(len(values)), faults
    if kinds == {bool}:
        return pa.array(values), faults
    if kinds <= {int, float}:
        largest = max((abs(value) for value in values if type(value) is int), default=0)
        if kinds == {int} and largest < 2**63:
            return pa.array(values, pa.int64()), faults
        if largest <= EXACT:
            return pa.array(values, pa.float64()), faults
    texts = values if kinds == {str} else [cell_text(value) for value in values]
    try:
        column = pa.array(texts, pa.binary())
    except UnicodeEncodeError:  # JSON allows strings that are not UTF-8
        column = pa.array(
            [text and text.encode("utf-8", "surrogatepass") for text in texts], pa.binary()
        )
    column, bad = decoded_texts(column, name)
    return column, faults + bad

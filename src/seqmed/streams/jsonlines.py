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
from seqmed.streams.inputs import Allowance, check_limit, encodable
from seqmed.streams.pieces import (
    SAMPLE,
    Cells,
    Chunk,
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
# Brackets in a row longer than a cell may be; a row with more of them is not read.
BRACKETS = 100_000
BYTES_OF_A_CELL = 16


class JsonLines(TextTable):
    """A text of JSON lines; see `Table`. Its columns are the keys in its first rows."""

    complete = False

    def __init__(self, text: Text):
        super().__init__(text, line_ends)
        text.peek(line_ends, 1)
        if text.buffer.lstrip(b"\r\n").startswith(b"["):
            raise StreamError(
                f"{text.name} begins with '[', expected an object on every line: convert the "
                "array, for example with jq -c '.[]'."
            )
        first = Objects(text.buffered(line_ends, SAMPLE), Wanted(), text.name)
        self.names = check_column_names(first.read().table.column_names, text.name)
        self._types: dict[str, Any] = {}

    def _cells(self, chunk: Chunk, wanted: Wanted) -> Cells:
        table = self._read_at_once(chunk, wanted)
        if table is not None:
            return Cells(table, [])
        cells = Objects(chunk, wanted, self._text.name).read()
        for field in cells.table.schema:
            both = {field.type, self._types.get(field.name, field.type)}
            wide = pa.float64() if both == {pa.int64(), pa.float64()} else field.type
            if field.type != pa.null() or field.name not in self._types:
                self._types[field.name] = wide
        return cells

    def _read_at_once(self, chunk: Chunk, wanted: Wanted) -> Any:
        """Return the rows as a table; None if they have to be read one by one."""
        chosen = wanted.columns
        names = self._types if chosen is None else dict.fromkeys((*chosen, *wanted.others))
        if not names or not all(name in self._types for name in names):
            return None
        sizes = np.diff(chunk.ends, prepend=0)
        if not sizes.size or sizes.max() > inputs.CELL_BYTES:
            return None
        raw = whole_objects(chunk)
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


def whole_objects(chunk: Chunk) -> bytes | None:
    """Return the bytes of a chunk; None unless every line is UTF-8 and of the form ``{...}``.

    Then no object can continue on the next line.
    """
    raw = chunk.raw
    view = np.frombuffer(raw, np.uint8)
    starts = np.concatenate([[0], chunk.ends[:-1]])
    last = chunk.ends - 1
    last = last - (view[last] == ord("\n"))
    last = last - (view[last] == ord("\r"))
    if not ((view[starts] == ord("{")) & (view[last] == ord("}"))).all():
        records = [chunk.record(place).strip() for place in range(chunk.ends.size)]
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


class Objects:
    """Reads the records of a chunk one by one.

    Parameters
    ----------
    chunk : the records.
    wanted : the columns to read.
    source : name of the text for messages.
    """

    def __init__(self, chunk: Chunk, wanted: Wanted, source: str):
        self._chunk, self._source = chunk, source
        names = () if wanted.columns is None else (*wanted.columns, *wanted.others)
        self._all = wanted.columns is None
        self._columns: dict[str, list[Any]] = {name: [] for name in names}
        self._faults: list[tuple[int, Fault]] = []
        self._cells = Allowance(source, len(chunk.raw))
        sizes = np.diff(chunk.ends, prepend=0)
        self._long = bool(sizes.size) and int(sizes.max()) > inputs.CELL_BYTES

    def read(self) -> Cells:
        """Return all rows as a table, and the faults of bad ones."""
        size = self._chunk.ends.size
        for row in range(size):
            found = self._object(row)
            check_limit("{} columns", len(found), inputs.COLUMNS, self._source)
            for name, value in found.items():
                column = self._columns.get(name)
                if column is None and self._all:
                    column = self._columns[name] = []
                    check_limit("{} columns", len(self._columns), inputs.COLUMNS, self._source)
                if column is not None:
                    self._pad(column, row)
                    column.append(value)
        for column in self._columns.values():
            self._pad(column, size)
        arrays = [self._array(name, column) for name, column in self._columns.items()]
        return Cells(pa.table(arrays, names=list(self._columns)), self._faults)

    def _pad(self, column: list[Any], size: int) -> None:
        """Fill a column with missing cells up to a row."""
        missing = size - len(column)
        if missing > 0:
            self._cells.spend(BYTES_OF_A_CELL * missing)
            column.extend([None] * missing)

    def _object(self, row: int) -> dict[str, Any]:
        """Return the object on a line, an empty one if the line is bad."""
        record, found, reason = self._chunk.record(row), None, JSON
        long = len(record) > inputs.CELL_BYTES
        if long and record.count(b"[") + record.count(b"{") > BRACKETS:
            self._add_fault(row, NESTED, None, shown(record[:100]))
            return {}
        try:
            found = json.loads(record.decode())
        except UnicodeDecodeError:
            reason = INVALID_TEXT
        except (ValueError, RecursionError):
            pass
        if not isinstance(found, dict):
            self._add_fault(row, reason, None, shown(record))
            return {}
        return found

    def _add_fault(self, row: int, reason: str, column: str | None, got: str) -> None:
        self._faults.append((row, Fault(reason, column, got)))

    def _array(self, name: str, values: list[Any]) -> Any:
        """Return the values of a column as an array of pyarrow; a bad cell is null."""
        if not encodable(name):
            check_column_names([name], self._source)
        kinds = set(map(type, values)) - {type(None)}
        if not (kinds & {list, dict} or (str in kinds and self._long)):
            try:
                return typed_array(values, kinds)
            except UnicodeEncodeError:
                pass
        values = [self._single(name, row, value) for row, value in enumerate(values)]
        return typed_array(values, set(map(type, values)) - {type(None)})

    def _single(self, name: str, row: int, value: Any) -> Any:
        """Return a cell, None if it is nested, too long or cannot be encoded."""
        if isinstance(value, list | dict):
            reason = NESTED
        elif isinstance(value, str) and not encodable(value):
            reason = INVALID_TEXT
        elif (
            isinstance(value, str)
            and len(value) > inputs.CELL_BYTES // 4
            and (len(value.encode()) > inputs.CELL_BYTES)
        ):
            self._add_fault(row, LONG_CELL, name, f"{len(value.encode())} bytes")
            return None
        else:
            return value
        self._add_fault(row, reason, name, shown(value))
        return None


def typed_array(values: Sequence[Any], kinds: set[type]) -> Any:
    """Return values of some types as an array: of one type if it is exact, else of texts."""
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {str}:
        return pa.array(values, pa.string())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds <= {int, float}:
        largest = max((abs(value) for value in values if type(value) is int), default=0)
        if kinds == {int} and largest < 2**63:
            return pa.array(values, pa.int64())
        if largest <= EXACT:
            return pa.array(values, pa.float64())
    return pa.array([cell_text(value) for value in values], pa.string())

"""Comma-separated values, and other separators.

pyarrow reads many rows at once. Rows that it cannot read, or would read differently from `Grammar`,
are found first and read one by one. Both ways give the same values for a good row. The
`invalid_row_handler` of pyarrow sees only rows with a wrong number of fields, which are as quickly
counted here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from seqmed.streams import inputs
from seqmed.streams.dialects import (
    COMMA,
    NUMBER,
    POINT,
    TAB,
    Dialect,
    Grammar,
    find_number_style,
    find_separator,
    take_excel_line,
    usual_numbers,
)
from seqmed.streams.faults import FIELDS, QUOTES, Fault, StreamError
from seqmed.streams.inputs import UTF8, check_limit
from seqmed.streams.pieces import (
    MARK,
    Cells,
    Chunk,
    Text,
    TextTable,
    Wanted,
    check_column_names,
    column_of,
    decoded_texts,
    places,
)
from seqmed.tables.messages import shown


class Delimited(TextTable):
    """A text of separated values with a header; see `Table`.

    Parameters
    ----------
    text : the text from its beginning.
    kind : "csv" or "tsv", which determines the default separator.
    encoding : its encoding.
    chosen : the parts of the dialect that the user has chosen.
    tell : receives a line if the detected dialect is not the default.
    """

    complete = True

    def __init__(
        self, text: Text, kind: str, encoding: str, chosen: Dialect, tell: Callable[[str], None]
    ):
        default = TAB if kind == "tsv" else COMMA
        while not (text.at_end or text.buffer.count(b"\n") > 1 or len(text.buffer) > 2**16):
            text.fill()  # a header and a row, from which the dialect is detected
        excel, named = take_excel_line(text)
        separator = chosen.sep or named or find_separator(text, default)
        self._grammar = Grammar(separator)
        super().__init__(text, self._grammar.split)
        self._style = self._number_style(chosen)
        first = text.peek(self._grammar.split, 1)
        record = first.record(0) if first.ends.size else text.buffer[: inputs.ROW_BYTES]
        self._check_width(record)
        self._head = text.mark + excel + text.take(len(first.raw))
        if b"\r" in record.strip(b"\r\n") and self._grammar.fields(record) is None:
            raise StreamError(
                f"{text.name}: the first line contains a carriage return: convert the line ends to "
                "\\n."
            )
        self.names = self._read_header(record) if first.ends.size else ()
        detected = Dialect(
            None if separator in (default, chosen.sep) else separator,
            None if self._style[0] in (POINT, chosen.decimal) else self._style[0],
            None if self._style[1] in ("", chosen.thousands) else self._style[1],
            None if encoding in (UTF8, chosen.encoding) else encoding,
        )
        if detected != Dialect():
            tell(f"{text.name}: read with {detected} (detected from the first lines).")

    def _number_style(self, chosen: Dialect) -> tuple[str, str]:
        """Return the decimal character and the thousands separator, chosen or detected."""
        if chosen.decimal is not None and chosen.thousands is not None:
            return chosen.decimal, chosen.thousands
        decimal, thousands = find_number_style(self._text, self._grammar.delimiter, chosen.decimal)
        if chosen.thousands is not None:
            thousands = chosen.thousands
            decimal = POINT if decimal == thousands else decimal
        return decimal, thousands

    def _check_width(self, record: bytes) -> None:
        """Refuse a header with too many fields before it is split."""
        count = record.count(self._grammar.delimiter.encode()) + 1
        if count > inputs.COLUMNS and b'"' in record:
            count = int(self._grammar.separators(record).size) + 1
        check_limit("{} columns", count, inputs.COLUMNS, self._text.name)

    def _read_header(self, record: bytes) -> tuple[str, ...]:
        where = f"{self._text.name}: the first line"
        fields = self._grammar.fields(record)
        try:
            names = [field.decode().strip() for field in fields or ()]
        except UnicodeDecodeError:
            raise StreamError(
                f"{where} is {shown(record)}, expected column names in UTF-8: name the encoding "
                "with --encoding cp1252 or --encoding latin-1."
            ) from None
        if not names:
            raise StreamError(
                f"{where} is {shown(record)}, expected column names: check the format, and the "
                "quotes of this line."
            )
        if len(names) == 1 and any(other in names[0] for other in ",;\t|"):
            raise StreamError(
                f"{where} is {shown(names[0])}, expected names separated by "
                f"{self._grammar.delimiter!r}: set the separator with --sep."
            )
        counted = [str(place) for place in range(len(names))]
        if names != counted and all(NUMBER.fullmatch(name) for name in names):
            raise StreamError(
                f"{where} holds numbers ({shown(names[0])}, ...), expected column names: add a "
                "header line."
            )
        return check_column_names(names, self._text.name)

    def _cells(self, chunk: Chunk, wanted: Wanted) -> Cells:
        names = wanted.of(self.names)
        table, faults = Records(self._grammar, self.names, names, chunk).read()
        if self._style != (POINT, ""):
            for place, name in enumerate(table.column_names):
                if name not in wanted.others:
                    usual = usual_numbers(table.column(place), *self._style)
                    table = table.set_column(place, name, usual)
        return Cells(table, faults)


class Records:
    """Reads the records of a chunk.

    Parameters
    ----------
    grammar : the grammar of the text.
    names : all columns.
    chosen : the columns to read.
    chunk : the records.
    """

    def __init__(self, grammar: Grammar, names: tuple[str, ...], chosen: list[str], chunk: Chunk):
        self._grammar, self._names, self._chosen = grammar, names, chosen
        self._chunk = chunk

    def read(self) -> Cells:
        """Return all rows as a table, and the faults of bad ones."""
        sizes = np.diff(self._chunk.ends, prepend=0)
        if sizes.size and self._chosen and sizes.max() <= inputs.CELL_BYTES:
            table = self._read_at_once(self._chunk.raw, self._chunk.ends, pa.string())
            if table is not None:
                return Cells(table, [])
        return self._read_with_faults()

    def _read_with_faults(self) -> Cells:
        """Return all rows as a table, those that pyarrow cannot read one by one."""
        strange, chunk = self._strange(), self._chunk
        rows = np.flatnonzero(~strange)
        records = list(map(chunk.record, rows.tolist()))
        raw, ends = b"".join(records), np.cumsum([0, *map(len, records)])[1:]
        if rows.size:
            wrong = self._field_counts(raw, ends) != len(self._names)
            if wrong.any():
                strange[rows[wrong]] = True
                rows = rows[~wrong]
                raw = b"".join(
                    record for record, bad in zip(records, wrong, strict=True) if not bad
                )
        table = self._read_at_once(raw, ends[: rows.size], pa.binary()) if self._chosen else None
        if table is None and self._chosen:
            strange[:] = True
        alone = np.flatnonzero(strange)
        cells, faults = self._read_each(alone)
        if table is not None:
            order = np.argsort(np.concatenate([rows, alone]))
            cells = pa.concat_tables([table, cells]).take(pa.array(order))
        columns = []
        for name in self._chosen:
            column, bad = decoded_texts(column_of(cells, name, cells.num_rows), name)
            columns.append(column)
            faults += bad
        return Cells(pa.table(columns, schema=self._schema(pa.string())), faults)

    def _schema(self, kind: Any) -> Any:
        return pa.schema([(name, kind) for name in self._chosen])

    def _strange(self) -> NDArray[np.bool_]:
        """Return a mask of the records that pyarrow would read differently from `Grammar`."""
        raw, ends = self._chunk.raw, self._chunk.ends
        strange = np.zeros(ends.size, dtype=bool)
        for character in ('"', "\r"):
            found = np.searchsorted(ends, places(raw, character), side="right")
            strange[np.unique(found[found < ends.size])] = True
        if MARK in raw:
            strange[:] = True
        for row in np.flatnonzero(strange).tolist():
            record = self._chunk.record(row)
            strange[row] = not self._grammar.is_regular(record) or record.startswith(MARK)
        return strange

    def _field_counts(self, raw: bytes, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of fields of records with regular quotes."""
        return np.diff(np.searchsorted(self._grammar.separators(raw), ends), prepend=0) + 1

    def _read_each(self, rows: NDArray[np.intp]) -> tuple[Any, list[tuple[int, Fault]]]:
        """Return rows read one by one, of bytes; all cells of a broken row are null."""
        faults: list[tuple[int, Fault]] = []
        columns: list[list[bytes | None]] = [[] for _ in self._chosen]
        for row in rows.tolist():
            fields, fault = self._read_one(self._chunk.record(row))
            if fault is not None:
                faults.append((row, fault))
            found = dict(zip(self._names, fields, strict=True)) if fields else {}
            for name, column in zip(self._chosen, columns, strict=True):
                column.append(found.get(name) or None)
        arrays = [pa.array(column, pa.binary()) for column in columns]
        return pa.table(arrays, schema=self._schema(pa.binary())), faults

    def _read_one(self, record: bytes) -> tuple[list[bytes], Fault | None]:
        """Return the fields of a record, none if it is broken, and the fault."""
        separator, width = self._grammar.delimiter.encode(), len(self._names)
        simple = b'"' not in record and b"\r" not in record.removesuffix(b"\r\n")
        count = record.count(separator) + 1
        fields = None if simple and count != width else self._grammar.fields(record)
        if fields is None and not simple:
            return [], Fault(QUOTES, None, shown(record))
        if fields is None or len(fields) != width:
            got = f"{count if fields is None else len(fields)} for {width} columns: {shown(record)}"
            return [], Fault(FIELDS, None, got)
        return fields, None

    def _read_at_once(self, raw: bytes, ends: NDArray[np.int64], kind: Any) -> Any:
        """Return records as a table; None if pyarrow would read them differently.

        Parameters
        ----------
        raw : the records.
        ends : (n,) the end of every record.
        kind : type of the columns: texts, or bytes if they may not be UTF-8.
        """
        if not ends.size or raw.startswith(MARK):
            return None
        if b"\r" in raw and raw.count(b"\r") > raw.count(b"\r\n"):
            return None
        quoted = b'"' in raw
        if quoted and not self._grammar.are_closed(raw):
            return None
        read = csv.ReadOptions(use_threads=False, block_size=len(raw) + 1, column_names=self._names)
        parse = csv.ParseOptions(
            delimiter=self._grammar.delimiter,
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
        )
        convert = csv.ConvertOptions(
            column_types=self._schema(kind),
            include_columns=self._chosen,
            null_values=[""],
            strings_can_be_null=True,
        )
        try:
            table = csv.read_csv(pa.BufferReader(raw), read, parse, convert)
        except pa.ArrowException:
            return None
        return table if table.num_rows == ends.size else None

"""Comma-separated values, and other separators.

pyarrow reads many rows at once. Rows that it cannot read, or would read differently from `Grammar`,
are read one by one, to find the fault. Both ways give the same values for a good row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, csv

from seqmed.streams.detection import find_number_style, find_separator, take_excel_line
from seqmed.streams.dialects import COMMA, NUMBER, POINT, TAB, Dialect, usual_numbers
from seqmed.streams.encodings import UTF8
from seqmed.streams.errors import FIELDS, INVALID_TEXT, LONG_CELL, QUOTES, Fault, StreamError, shown
from seqmed.streams.grammar import Grammar
from seqmed.streams.tables import Cells, ReadOptions, Wanted, check_column_names
from seqmed.streams.text import MARK, Chunk, Text, TextTable

# Groups of at most this many rows with a bad row are read one by one; larger ones are halved.
FEW = 32


class Delimited(TextTable):
    """A text of separated values with a header; see `Table`.

    Parameters
    ----------
    text : the text from its beginning.
    kind : "csv" or "tsv", which determines the default separator.
    encoding : its encoding.
    options : dialect and limits.
    """

    complete = True

    def __init__(self, text: Text, kind: str, encoding: str, options: ReadOptions):
        chosen, default = options.dialect, TAB if kind == "tsv" else COMMA
        while not (text.at_end or text.buffer.count(b"\n") > 1 or len(text.buffer) > 2**16):
            text.fill()  # a header and a row, from which the dialect is detected
        excel, named = take_excel_line(text)
        separator = chosen.sep or named or find_separator(text, default)
        self._grammar = Grammar(separator)
        super().__init__(text, self._grammar.split)
        self._style = self._number_style(chosen)
        first = text.peek(self._grammar.split, 1)
        record = first.record(0) if first.ends.size else text.buffer[: text.limits.row_bytes]
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
            options.tell(f"{text.name}: read with {detected} (detected from the first lines).")

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
        if count > self._text.limits.columns and b'"' in record:
            count = int(self._grammar.separators(record).size) + 1
        self._text.limits.check("columns", self._text.name, count)

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
        return check_column_names(names, self._text.name, self._text.limits)

    def _cells(self, chunk: Chunk, wanted: Wanted) -> Cells:
        rows = Rows(self._grammar, self.names, wanted.of(self.names), chunk)
        table, faults = rows.read()
        sizes = np.diff(chunk.ends, prepend=0)
        if sizes.size and sizes.max() > self._text.limits.cell_bytes:
            table = self._without_long_cells(table, faults, chunk)
        if self._style != (POINT, ""):
            for place, name in enumerate(table.column_names):
                if name not in wanted.others:
                    usual = usual_numbers(table.column(place), *self._style)
                    table = table.set_column(place, name, usual)
        return Cells(table, faults)

    def _without_long_cells(self, table: Any, faults: dict[int, Fault], chunk: Chunk) -> Any:
        """Return a table with cells above the limit as null; their rows are added to the faults."""
        for place, name in enumerate(table.column_names):
            column, limit = table.column(place), self._text.limits.cell_bytes
            long = compute.greater(compute.binary_length(column), limit).fill_null(False)
            for row in np.flatnonzero(long.to_numpy()).tolist():
                got = f"{len(column[row].as_py().encode())} bytes"
                faults.setdefault(row, Fault(LONG_CELL, name, got, chunk.line_of(row)))
            short = compute.if_else(long, pa.scalar(None, pa.string()), column)
            table = table.set_column(place, name, short)
        return table


class Rows:
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
        self._tables: list[Any] = []
        self._order: list[NDArray[np.intp]] = []
        self._faults: dict[int, Fault] = {}

    def read(self) -> tuple[Any, dict[int, Fault]]:
        """Return all rows as a table, and the faults of bad ones."""
        rows = np.arange(self._chunk.ends.size)
        if not rows.size or not self._chosen or not self._read_at_once(rows):
            misshapen = self._misshapen()
            self._read_each(rows[misshapen])
            self._read(rows[~misshapen])
        if len(self._tables) == 1:
            return self._tables[0], self._faults
        table = pa.concat_tables(self._tables or [self._schema.empty_table()])
        order = np.concatenate([*self._order, rows[:0]])
        return table.take(pa.array(np.argsort(order))), self._faults

    @property
    def _schema(self) -> Any:
        return pa.schema([(name, pa.string()) for name in self._chosen])

    def _misshapen(self) -> NDArray[np.bool_]:
        """Return a mask of records with a wrong number of fields; none if quotes are broken."""
        raw, ends = self._chunk.raw, self._chunk.ends
        if not self._grammar.is_closed(raw):
            return np.zeros(ends.size, dtype=bool)
        counts = np.diff(np.searchsorted(self._grammar.separators(raw), ends), prepend=0) + 1
        return np.asarray(counts != len(self._names))

    def _read(self, rows: NDArray[np.intp]) -> None:
        """Read some rows, as many as possible at once."""
        if rows.size <= FEW:
            self._read_each(rows)
        elif not self._read_at_once(rows):
            for half in np.array_split(rows, 2):
                self._read(half)

    def _read_each(self, rows: NDArray[np.intp]) -> None:
        """Read rows one by one; a bad cell is None, and so are all cells of a broken row."""
        if rows.size:
            cells = [self._read_one(row) for row in rows.tolist()]
            columns = zip(*cells, strict=True) if self._chosen else ()
            arrays = [pa.array(column, pa.string()) for column in columns]
            self._tables.append(pa.table(arrays, schema=self._schema))
            self._order.append(rows)

    def _read_one(self, row: int) -> list[str | None]:
        record, chunk = self._chunk.record(row), self._chunk
        empty: list[str | None] = [None] * len(self._chosen)
        width = len(self._names)
        separator = self._grammar.delimiter.encode()
        simple = b'"' not in record and b"\r" not in record.removesuffix(b"\r\n")
        count = record.count(separator) + 1
        fields = None if simple and count != width else self._grammar.fields(record)
        if fields is None and not simple:
            self._faults[row] = Fault(QUOTES, None, shown(record), chunk.line_of(row))
            return empty
        if fields is None or len(fields) != width:
            got = f"{count if fields is None else len(fields)} for {width} columns: {shown(record)}"
            self._faults[row] = Fault(FIELDS, None, got, chunk.line_of(row))
            return empty
        found = dict(zip(self._names, fields, strict=True))
        for place, name in enumerate(self._chosen):
            try:
                empty[place] = found[name].decode() or None
            except UnicodeDecodeError:
                fault = Fault(INVALID_TEXT, name, shown(found[name]), chunk.line_of(row))
                self._faults.setdefault(row, fault)
        return empty

    def _read_at_once(self, rows: NDArray[np.intp]) -> bool:
        """Read some rows with pyarrow; return False if it would read them unlike `Grammar`."""
        chunk = self._chunk
        whole = rows.size == chunk.ends.size
        raw = chunk.raw if whole else b"".join(map(chunk.record, rows.tolist()))
        if raw.startswith(MARK) or (b"\r" in raw and raw.count(b"\r") > raw.count(b"\r\n")):
            return False
        quoted = b'"' in raw
        if quoted and not self._grammar.is_closed(raw):
            return False
        try:
            table = csv.read_csv(pa.BufferReader(raw), *self._options(len(raw), quoted))
        except pa.ArrowException:
            return False
        if table.num_rows != rows.size:
            return False
        self._tables.append(table)
        self._order.append(rows)
        return True

    def _options(self, size: int, quoted: bool) -> tuple[Any, Any, Any]:
        read = csv.ReadOptions(use_threads=False, block_size=size + 1, column_names=self._names)
        parse = csv.ParseOptions(
            delimiter=self._grammar.delimiter,
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
        )
        convert = csv.ConvertOptions(
            column_types=self._schema,
            include_columns=self._chosen,
            null_values=[""],
            strings_can_be_null=True,
        )
        return read, parse, convert

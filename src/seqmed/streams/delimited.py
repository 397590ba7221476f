"""Comma- and tab-separated values.

pyarrow reads many rows at once. Rows that it cannot read, or would read differently from `Grammar`,
are read one by one, to find the fault. Both ways give the same values for a good row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, csv

from seqmed.arrays import Array
from seqmed.streams.errors import (
    FIELDS,
    INVALID_TEXT,
    NOT_A_NUMBER,
    QUOTES,
    Fault,
    StreamError,
    shown,
)
from seqmed.streams.grammar import Grammar
from seqmed.streams.tables import Wanted, bad_numbers, check_column_names
from seqmed.streams.text import MARK, Cells, Chunk, Text, TextTable, places
from seqmed.streams.values import MISSING_WORDS, NUMBER, number_in

# Groups of at most this many rows with a bad row are read one by one; larger ones are halved.
FEW = 32


class Delimited(TextTable):
    """A CSV or TSV text with a header; see `Table`.

    Parameters
    ----------
    text : the text from its beginning.
    delimiter : the character between fields.
    """

    complete = True

    def __init__(self, text: Text, delimiter: str):
        self._grammar = Grammar(delimiter)
        super().__init__(text, self._grammar.split)
        first = text.peek(self._grammar.split, 1)
        self._head = text.mark + text.take(len(first.raw))
        record = first.record(0) if first.ends.size else text.buffer
        if b"\r" in record.strip(b"\r\n") and self._grammar.fields(record) is None:
            raise StreamError(
                f"{text.name}: the first line contains a carriage return: convert the line ends to "
                "\\n."
            )
        self.names = self._read_header(record) if first.ends.size else ()

    def _read_header(self, record: bytes) -> tuple[str, ...]:
        where = f"{self._text.name}: the first line"
        fields = self._grammar.fields(record)
        try:
            names = [field.decode() for field in fields or ()]
        except UnicodeDecodeError:
            names = []
        if not names:
            raise StreamError(
                f"{where} is {shown(record)}, expected column names in UTF-8: check the format, or "
                "convert the file."
            )
        if len(names) == 1 and any(other in names[0] for other in ",;\t|"):
            raise StreamError(
                f"{where} is {shown(names[0])}, expected names separated by "
                f"{self._grammar.delimiter!r}: convert the file, or set its format with --format."
            )
        counted = [str(place) for place in range(len(names))]
        if names != counted and all(NUMBER.fullmatch(name) for name in names):
            raise StreamError(
                f"{where} holds numbers ({shown(names[0])}, ...), expected column names: add a "
                "header line."
            )
        return check_column_names(names, self._text.name)

    def sample(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {name: [] for name in self.names}
        chunk = self._text.peek(self._grammar.split)
        for place in range(chunk.ends.size):
            fields = self._grammar.fields(chunk.record(place))
            if fields is not None and len(fields) == len(self.names):
                for name, field in zip(self.names, fields, strict=True):
                    columns[name].append(sampled_cell(field.decode("utf-8", "replace")))
        return columns

    def _parser(self, wanted: Wanted) -> Callable[[Chunk], Cells]:
        return Parser(self._grammar, self.names, wanted).parse


def sampled_cell(cell: str) -> float | str | None:
    """Return a cell as a number or a text, None if it is missing."""
    number = number_in(cell)
    if isinstance(number, float):
        return number
    return cell if number == NOT_A_NUMBER else None


class Parser:
    """Converts records to rows."""

    def __init__(self, grammar: Grammar, names: tuple[str, ...], wanted: Wanted):
        self._grammar, self._names, self._wanted = grammar, names, wanted
        self._places = {name: place for place, name in enumerate(names)}
        self._present = [name for name in wanted.values if name in self._places]

    def parse(self, chunk: Chunk) -> Cells:
        """Return the rows of a chunk, including bad ones."""
        size = chunk.ends.size
        numbers = np.full((size, len(self._wanted.numbers)), np.nan)
        cells = Cells(numbers, {name: [None] * size for name in self._wanted.values}, {})
        rows = np.arange(size)
        if size and not self._read_at_once(chunk, rows, cells, self._numeric_types(chunk)):
            misshapen = self._misshapen(chunk)
            self._read_each(chunk, rows[misshapen], cells)
            self._read(chunk, rows[~misshapen], cells)
        return cells

    def _misshapen(self, chunk: Chunk) -> NDArray[np.bool_]:
        """Return a mask of records with a wrong number of fields; none if quotes are broken."""
        quotes = places(chunk.raw, '"')
        if quotes.size % 2 or not self._grammar.regular(chunk.raw, quotes):
            return np.zeros(chunk.ends.size, dtype=bool)
        delimiters = places(chunk.raw, self._grammar.delimiter)
        delimiters = delimiters[np.searchsorted(quotes, delimiters) % 2 == 0]
        counts = np.diff(np.searchsorted(delimiters, chunk.ends), prepend=0) + 1
        return np.asarray(counts != len(self._names))

    def _read(self, chunk: Chunk, rows: NDArray[np.intp], cells: Cells) -> None:
        """Read some rows, as many as possible at once."""
        if rows.size <= FEW:
            self._read_each(chunk, rows, cells)
        elif not self._read_at_once(chunk, rows, cells, {}):
            for half in np.array_split(rows, 2):
                self._read(chunk, half, cells)

    def _read_each(self, chunk: Chunk, rows: NDArray[np.intp], cells: Cells) -> None:
        for row in rows.tolist():
            fault = self._read_one(chunk, row, cells)
            if fault is not None:
                cells.faults[row] = fault

    def _read_one(self, chunk: Chunk, row: int, cells: Cells) -> Fault | None:
        """Read a row; return its fault if it is bad."""
        record, line = chunk.record(row), chunk.line_of(row)
        fields = self._grammar.fields(record)
        if fields is None:
            return Fault(QUOTES, None, shown(record), line)
        if len(fields) != len(self._names):
            got = f"{len(fields)} for {len(self._names)} columns: {shown(record)}"
            return Fault(FIELDS, None, got, line)
        for column, name in enumerate(self._wanted.numbers):
            field = fields[self._places[name]]
            number = number_in(field.decode("utf-8", "replace"))
            if isinstance(number, str):
                return Fault(number, name, shown(field), line)
            cells.numbers[row, column] = number
        for name in self._present:
            field = fields[self._places[name]]
            try:
                cells.values[name][row] = field.decode()
            except UnicodeDecodeError:
                return Fault(INVALID_TEXT, name, shown(field), line)
        return None

    def _read_at_once(
        self, chunk: Chunk, rows: NDArray[np.intp], cells: Cells, types: dict[str, Any]
    ) -> bool:
        """Read some rows with pyarrow; return False if it would read them unlike `Grammar`.

        Columns without a type are read as strings.
        """
        whole = rows.size == chunk.ends.size
        raw = chunk.raw if whole else b"".join(map(chunk.record, rows.tolist()))
        if raw.startswith(MARK) or (b"\r" in raw and raw.count(b"\r") > raw.count(b"\r\n")):
            return False
        quotes = places(raw, '"') if b'"' in raw else np.zeros(0, dtype=np.int64)
        if quotes.size % 2 or not self._grammar.regular(raw, quotes):
            return False
        try:
            table = csv.read_csv(pa.BufferReader(raw), *self._options(raw, types))
        except pa.ArrowException:
            return False
        if table.num_rows != rows.size:
            return False
        target = slice(None) if whole else rows
        for place, name in enumerate(self._wanted.numbers):
            cells.numbers[target, place] = floats_in_cells(table.column(name))
        for name in self._present:
            found = table.column(name).to_pylist()
            for row, value in zip(rows.tolist(), found, strict=True):
                cells.values[name][row] = value
        self._read_each(chunk, rows[bad_numbers(cells.numbers[target])], cells)
        return True

    def _numeric_types(self, chunk: Chunk) -> dict[str, Any]:
        """Return types of the columns of numbers: boolean or float, by the first row.

        A wrong type only costs time.
        """
        first = self._grammar.fields(chunk.record(0)) or []
        types = {}
        for name in self._wanted.numbers:
            cell = b"".join(first[self._places[name] :][:1]).lower()
            types[name] = pa.bool_() if cell in (b"true", b"false") else pa.float64()
        return types

    def _options(self, raw: bytes, types: dict[str, Any]) -> tuple[Any, Any, Any]:
        columns = dict.fromkeys(self._wanted.numbers, pa.string()) | types
        columns |= dict.fromkeys(self._present, pa.string())
        read = csv.ReadOptions(use_threads=False, block_size=len(raw) + 1, column_names=self._names)
        parse = csv.ParseOptions(delimiter=self._grammar.delimiter, newlines_in_values=b'"' in raw)
        convert = csv.ConvertOptions(
            column_types=columns,
            include_columns=list(columns),
            null_values=MISSING_WORDS,
            true_values=("true", "True", "TRUE", "1"),
            false_values=("false", "False", "FALSE", "0"),
        )
        return read, parse, convert


def floats_in_cells(column: Any) -> Array:
    """Return cells as numbers, NaN for any other cell."""
    if not pa.types.is_string(column.type):
        return np.asarray(column.cast(pa.float64()).to_numpy())
    written = compute.match_substring_regex(column, f"^(?:{NUMBER.pattern})$")
    trimmed = compute.if_else(written, compute.utf8_trim(column, " \t"), "nan")
    numbers: Array = trimmed.cast(pa.float64()).to_numpy().copy()
    for row in np.flatnonzero(~written.to_numpy()).tolist():
        found = number_in(column[row].as_py())
        numbers[row] = found if isinstance(found, float) else np.nan
    return numbers

"""Comma- and tab-separated values.

Rows are read by pyarrow, many at once, as long as nothing is wrong with any of them; and one by one
where something is, to find out what. Every row comes out the same either way, so that nothing
depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from seqmed.streams.cells import BOOLEANS, MISSING_WORDS, NUMBER, number_in
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
from seqmed.streams.tables import Piece, Start, Wanted, bad_numbers, check_names
from seqmed.streams.text import MARK, Cells, Chunk, Text, places

# Rows that are read one by one, rather than divided once more to find the bad one among them.
FEW = 32


class Delimited:
    """A CSV or TSV text with a header; see `Table`.

    Parameters
    ----------
    text : from its beginning.
    delimiter : what separates fields, one character.
    grows : whether rows may be added to it later.
    """

    complete = True

    def __init__(self, text: Text, delimiter: str, grows: bool):
        self._text, self._grows = text, grows
        self._grammar = Grammar(delimiter)
        first = text.peek(self._grammar.split, 1)
        self._head = text.mark + text.take(len(first.raw))
        self.names = self._read_header(first.record(0)) if first.ends.size else ()

    def _read_header(self, record: bytes) -> tuple[str, ...]:
        where = f"{self._text.name}: the first line"
        fields = self._grammar.fields(record)
        if fields is None and b"\r" in record.rstrip(b"\r\n"):
            raise StreamError(f"{where} has a carriage return in it: convert the line ends to \\n.")
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
                f"{self._grammar.delimiter!r}: convert the file, or name its format with --format."
            )
        counted = [str(place) for place in range(len(names))]
        if names != counted and all(NUMBER.fullmatch(name) for name in names):
            raise StreamError(
                f"{where} holds numbers ({shown(names[0])}, ...), expected column names: add a "
                "header line."
            )
        return check_names(names, self._text.name)

    def sample(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {name: [] for name in self.names}
        chunk = self._text.peek(self._grammar.split)
        for place in range(chunk.ends.size):
            fields = self._grammar.fields(chunk.record(place))
            if fields is not None and len(fields) == len(self.names):
                for name, field in zip(self.names, fields, strict=True):
                    columns[name].append(sampled(field.decode("utf-8", "replace")))
        return columns

    def has_rows(self) -> bool:
        return self._text.peek(self._grammar.split, 1).ends.size > 0

    def pieces(self, wanted: Wanted, start: Start) -> Iterator[Piece]:
        parser = Parser(self._grammar, self.names, wanted)
        return self._text.pieces(self._grammar.split, parser.parse, self._head, start, self._grows)

    def fraction(self) -> float:
        return self._text.fraction()


def sampled(cell: str) -> float | str | None:
    """Return a cell as a value of the type it looks like; None if there is none."""
    number = number_in(cell)
    if isinstance(number, float):
        return number
    return cell if number == NOT_A_NUMBER else None


class Parser:
    """Records to rows.

    Parameters
    ----------
    grammar : of the text.
    names : its columns.
    wanted : those that are read.
    """

    def __init__(self, grammar: Grammar, names: tuple[str, ...], wanted: Wanted):
        self._grammar, self._names, self._wanted = grammar, names, wanted
        self._places = {name: place for place, name in enumerate(names)}
        self._present = [name for name in wanted.values if name in self._places]

    def parse(self, chunk: Chunk) -> Cells:
        """Return the rows of a chunk, bad ones included."""
        size = chunk.ends.size
        if size and (cells := self._parse_at_once(chunk)) is not None:
            return cells
        if size <= FEW:
            return self._parse_each(chunk)
        middle = size // 2
        return joined(self.parse(chunk.part(0, middle)), self.parse(chunk.part(middle, size)))

    def _parse_each(self, chunk: Chunk) -> Cells:
        size, absent = chunk.ends.size, [None] * len(self._present)
        numbers = np.full((size, len(self._wanted.numbers)), np.nan)
        rows: list[list[Any]] = []
        faults = {}
        for place in range(size):
            found = self._read(chunk, place)
            if isinstance(found, Fault):
                faults[place] = found
                rows.append(absent)
            else:
                numbers[place] = found[0]
                rows.append(found[1])
        columns = dict(zip(self._present, map(list, zip(*rows, strict=True)), strict=False))
        return Cells(numbers, self._with_absent(columns, size), faults)

    def _read(self, chunk: Chunk, place: int) -> tuple[list[float], list[Any]] | Fault:
        """Return the numbers and the values of one row, or what is wrong with it."""
        record, line = chunk.record(place), chunk.line_of(place)
        fields = self._grammar.fields(record)
        if fields is None:
            return Fault(QUOTES, None, shown(record), line)
        if len(fields) != len(self._names):
            got = f"{len(fields)} for {len(self._names)} columns: {shown(record)}"
            return Fault(FIELDS, None, got, line)
        numbers, values = [], []
        for name in self._wanted.numbers:
            field = fields[self._places[name]]
            number = number_in(field.decode("utf-8", "replace"))
            if isinstance(number, str):
                return Fault(number, name, shown(field), line)
            numbers.append(number)
        for name in self._present:
            field = fields[self._places[name]]
            try:
                values.append(field.decode())
            except UnicodeDecodeError:
                return Fault(INVALID_TEXT, name, shown(field), line)
        return numbers, values

    def _parse_at_once(self, chunk: Chunk) -> Cells | None:
        """Return the rows of a chunk if nothing is wrong but numbers that are missing or too large.

        Returns None where pyarrow does not read the text as `Grammar` does, or not at all.
        """
        raw = chunk.raw
        if raw.startswith(MARK) or (b"\r" in raw and raw.count(b"\r") > raw.count(b"\r\n")):
            return None
        quotes = places(raw, '"') if b'"' in raw else np.zeros(0, dtype=np.int64)
        if quotes.size % 2 or not self._grammar.regular(raw, quotes):
            return None
        try:
            table = csv.read_csv(pa.BufferReader(raw), *self._options(chunk))
        except pa.ArrowException:
            return None
        if table.num_rows != chunk.ends.size:
            return None
        numbers = np.empty((table.num_rows, len(self._wanted.numbers)))
        for column, name in enumerate(self._wanted.numbers):
            cells = table.column(name)
            if pa.types.is_string(cells.type):
                found = map(number_in, cells.to_pylist())
                numbers[:, column] = [each if isinstance(each, float) else np.nan for each in found]
            else:
                numbers[:, column] = cells.cast(pa.float64()).to_numpy()
        columns = {name: table.column(name).to_pylist() for name in self._present}
        faults = {}
        for place in bad_numbers(numbers).tolist():
            fault = self._read(chunk, place)
            assert isinstance(fault, Fault)
            faults[place] = fault
        return Cells(numbers, self._with_absent(columns, table.num_rows), faults)

    def _options(self, chunk: Chunk) -> tuple[Any, Any, Any]:
        """Return the options by which pyarrow reads a chunk.

        Columns of true and false are told by the first row. A wrong guess costs time only.
        """
        first = self._grammar.fields(chunk.record(0)) or []
        types = {}
        for name in self._wanted.numbers:
            cell = b"".join(first[self._places[name] :][:1])
            types[name] = pa.bool_() if cell.lower().decode("latin-1") in BOOLEANS else pa.float64()
        types |= dict.fromkeys(self._present, pa.string())
        read = csv.ReadOptions(
            use_threads=False, block_size=len(chunk.raw) + 1, column_names=self._names
        )
        parse = csv.ParseOptions(
            delimiter=self._grammar.delimiter, newlines_in_values=b'"' in chunk.raw
        )
        convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=MISSING_WORDS,
            true_values=("true", "True", "TRUE", "1"),
            false_values=("false", "False", "FALSE", "0"),
        )
        return read, parse, convert

    def _with_absent(self, columns: dict[str, list[Any]], size: int) -> dict[str, list[Any]]:
        return {name: columns.get(name, [None] * size) for name in self._wanted.values}


def joined(first: Cells, second: Cells) -> Cells:
    """Return the rows of both, one after the other."""
    size = first.numbers.shape[0]
    return Cells(
        np.vstack([first.numbers, second.numbers]),
        {name: column + second.values[name] for name, column in first.values.items()},
        first.faults | {size + place: fault for place, fault in second.faults.items()},
    )

"""Comma-separated values, and other separators.

pyarrow reads many rows at once. Rows that it cannot read, or would read differently from `Grammar`,
are written as it reads them first. The `invalid_row_handler` of pyarrow sees only rows with a wrong
number of fields, which are as quickly counted here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from seqmed.numeric.words import in_words
from seqmed.streams import inputs
from seqmed.streams.dialects import (
    SEPARATORS,
    TAB,
    Dialect,
    Records,
    find_number_style,
    find_separator,
)
from seqmed.streams.faults import FIELDS, QUOTES, Fault, StreamError, notice
from seqmed.streams.inputs import UTF8, check_limit
from seqmed.streams.pieces import (
    LITTLE,
    MARK,
    SAMPLE,
    Cells,
    Ends,
    Piece,
    Text,
    TextTable,
    Wanted,
    check_column_names,
    decoded_texts,
    places,
    without_blank,
)
from seqmed.tables.cells import COMMA, NUMBER, POINT, usual_numbers
from seqmed.tables.messages import shown

# The first line by which Excel is told the separator.
EXCEL = re.compile(rb"sep=([^\w\s\"]|\t)\r?\n", re.IGNORECASE)


class Delimited(TextTable):
    """A text of separated values with a header; see `Table`.

    ``chosen`` are the parts of the dialect that the user has chosen. ``tell`` receives a line if
    the detected dialect is not the default.
    """

    def __init__(
        self, text: Text, kind: str, encoding: str, chosen: Dialect, tell: Callable[[str], None]
    ):
        default = TAB if kind == "tsv" else COMMA
        while not (text.at_end or text.buffer.count(b"\n") > 1 or len(text.buffer) > LITTLE):
            text.fill()  # a header and a row, from which the dialect is detected
        excel = EXCEL.match(text.buffer, text.head)
        if excel is not None:
            text.head = excel.end()
        named = chosen.sep or (excel and excel[1].decode())
        candidates = (named,) if named else (default, *SEPARATORS)
        records = {each: first_records(text, Grammar(each)) for each in candidates}
        separator = find_separator(records, candidates[0])
        self._grammar = Grammar(separator)
        super().__init__(text, self._grammar.split)
        header, rows = records[separator]
        self._row_names = have_row_names(header, rows)
        header = ["", *header] if self._row_names else header
        self._style = find_number_style((header, rows), separator, chosen)
        self.names = self._take_header()
        text.block = max(inputs.BLOCK, inputs.COLUMN_BYTES * len(self.names))
        detected = Dialect(
            None if separator in (default, chosen.sep) else separator,
            None if self._style[0] in (POINT, chosen.decimal) else self._style[0],
            None if self._style[1] in ("", chosen.thousands) else self._style[1],
            None if encoding in (UTF8, chosen.encoding) else encoding,
        )
        if detected != Dialect():
            tell(f"{text.name}: read with {detected} (detected from the first lines).")

    def _take_header(self) -> tuple[str, ...]:
        """Return the column names in the first line, none if there is no line."""
        text = self._text
        first = text.first(self._grammar.split, 1)
        record = first.record(0) if first.ends.size else text.buffer[text.head :]
        text.head += len(first.raw)
        check_limit(
            "{} columns", self._grammar.separators(record).size + 1, inputs.COLUMNS, text.name
        )
        fields, where = self._grammar.fields(record), f"{text.name}: the first line"
        if fields is None and b"\r" in record.strip(b"\r\n"):
            raise StreamError(f"{where} contains a carriage return: convert the line ends to \\n.")
        if not first.ends.size:
            return ()
        try:
            names = [field.decode().strip() for field in fields or ()]
        except UnicodeDecodeError:
            raise StreamError(
                f"{where} is {shown(record)}, expected column names in UTF-8: "
                + in_words(
                    "name the encoding with --encoding cp1252 or --encoding latin-1.",
                    "name the encoding with Dialect(encoding='cp1252') or 'latin-1'.",
                )
            ) from None
        if not names:
            raise StreamError(
                f"{where} is {shown(record)}, expected column names: check the format, and the "
                "quotes of this line."
            )
        if len(names) == 1 and any(other in names[0] for other in ",;\t|"):
            raise StreamError(
                f"{where} is {shown(names[0])}, expected names separated by "
                f"{self._grammar.delimiter!r}: set the separator with "
                + in_words("--sep.", "Dialect(sep=).")
            )
        counted = [str(place) for place in range(len(names))]
        if names != counted and all(NUMBER.fullmatch(name) for name in names):
            raise StreamError(
                f"{where} holds numbers ({shown(names[0])}, ...), expected column names: add a "
                "header line."
            )
        if self._row_names:
            notice(f"{text.name}: rows have one field more than the header, a name of the row.")
            names = ["", *names]
        return check_column_names(with_names(names), self._text.name)

    def cells(self, piece: Piece, wanted: Wanted) -> Cells:
        names, sizes = wanted.of(self.names), np.diff(piece.ends, prepend=0)
        table, faults = None, list[tuple[int, Fault]]()
        if sizes.size and sizes.max() <= inputs.CELL_BYTES and self._grammar.are_regular(piece.raw):
            try:
                table = self._parsed(piece.raw, names, pa.string())
            except pa.ArrowInvalid:
                table = None  # has rows with a wrong number of fields, or is not UTF-8
        if table is None or table.num_rows != sizes.size:
            raw, faults = self._mended(piece)
            table = self._parsed(raw, names, pa.binary())
        columns = []
        for name, column in zip(names, table.columns, strict=False):  # one more if none is wanted
            if column.type == pa.binary():
                column, bad = decoded_texts(column.combine_chunks(), name)
                faults += bad
            if self._style != (POINT, "") and name not in wanted.others:
                column = usual_numbers(column, *self._style)
            columns.append(column)
        return Cells(pa.table(columns, names=names), faults)

    def _parsed(self, raw: bytes, names: list[str], kind: Any) -> Any:
        """Return some columns of regular records, as texts or as bytes that may not be UTF-8."""
        quoted = b'"' in raw
        read = csv.ReadOptions(use_threads=False, block_size=len(raw) + 1, column_names=self.names)
        parse = csv.ParseOptions(
            delimiter=self._grammar.delimiter,
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
        )
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(names, kind),
            include_columns=names or self.names[:1],
            null_values=[""],
            strings_can_be_null=True,
        )
        return csv.read_csv(pa.BufferReader(raw), read, parse, convert)

    def _mended(self, piece: Piece) -> tuple[bytes, list[tuple[int, Fault]]]:
        """Return the records as pyarrow reads them, and the faults of broken ones.

        A broken record is replaced by one of empty fields.
        """
        separator, width = self._grammar.delimiter.encode(), len(self.names)
        empty = (separator * (width - 1) or b'""') + b"\n"
        records = [record.removesuffix(b"\n") + b"\n" for record in piece.records()]
        faults = []
        for row, record in enumerate(records):
            if b'"' in record or b"\r" in record[:-2] or record.startswith(MARK):
                fields = self._grammar.fields(record)
                if fields is None:
                    faults.append((row, Fault(QUOTES, None, shown(piece.record(row)))))
                quoted = [b'"' + field.replace(b'"', b'""') + b'"' for field in fields or ()]
                records[row] = separator.join(quoted) + b"\n" if quoted else empty
        ends = np.cumsum([len(record) for record in records])
        found = np.searchsorted(self._grammar.separators(b"".join(records)), ends)
        widths = np.diff(found, prepend=0) + 1
        for row in np.flatnonzero(widths != width).tolist():
            got = f"{widths[row]} for {width} columns: {shown(piece.record(row))}"
            faults.append((row, Fault(FIELDS, None, got)))
            records[row] = empty
        return b"".join(records), faults


def have_row_names(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether all rows begin with a different name, which has no field in the header, as R does.

    A header that another separator splits is read with the wrong one.
    """
    firsts = {row[0] for row in rows if len(row) == len(header) + 1}
    split = any(other in name for name in header for other in SEPARATORS)
    return len(firsts) == len(rows) > 1 and not split


def with_names(names: Sequence[str]) -> list[str]:
    """Return column names with "Unnamed: 0" in place of an empty first one, as pandas reads it."""
    found = list(names)
    for place in [place for place, name in enumerate(names) if not name]:
        found[place] = f"Unnamed: {place}"
        for number in count(1):
            if found[place] not in names:
                break
            found[place] = f"Unnamed: {place}.{number}"
    return found


def first_records(text: Text, grammar: Grammar) -> Records:
    """Return the fields of the first line, and of the rows after it; not more than are allowed."""
    records = []
    for record in text.first(grammar.split, SAMPLE + 1).records():
        ends = grammar.separators(record)
        if ends.size > inputs.COLUMNS:
            record = record[: ends[inputs.COLUMNS]]
        fields = grammar.fields(record) or []
        records.append([field.decode("utf-8", "replace") for field in fields])
    return (records[0], records[1:]) if records else ([], [])


# -- records and fields ----------------------------------------------------------------------------


class Grammar:
    """Grammar of records and fields, as in RFC 4180.

    A quoted field may hold delimiters, line ends and doubled quotes. In a field that does not begin
    with a quote, quotes are ordinary characters.
    """

    def __init__(self, delimiter: str):
        self.delimiter = delimiter
        quoted, bare = rb'"((?:[^"]++|"")*+)"(D|\r?\n|\r?\Z)', rb'((?!")[^D\n]*+)(D|\n|\Z)'
        pattern = (quoted + b"|" + bare).replace(b"D", re.escape(delimiter).encode())
        self._field = re.compile(pattern)
        self._edges = np.zeros(256, dtype=bool)
        self._edges[[ord(delimiter), ord("\n")]] = True
        self._unclosed = re.compile(rb'"(?:[^"]++|"")*+\Z')

    def fields(self, record: bytes) -> list[bytes] | None:
        """Return the fields of one record; None if its quotes or line ends are broken."""
        found, end = self._scan(record, 0)
        return found or None if end == len(record) else None

    def split(self, raw: bytes, final: bool) -> Ends:
        """Return the ends of records; see `Split`."""
        ends = places(raw, "\n")
        ends += 1
        if b'"' in raw:
            quotes = places(raw, '"')
            unclosed = final and quotes.size % 2 == 1
            if self._has_regular_quotes(raw, quotes) and not unclosed:
                before = np.searchsorted(quotes, ends)
                before &= 1
                ends = ends[before == 0]
            else:
                ends = self._split_one_by_one(raw, final)
        return without_blank(raw, ends, final)

    def _has_regular_quotes(self, raw: bytes, quotes: NDArray[np.int64]) -> bool:
        """Whether all quotes are at the edges of fields, or doubled within quoted fields."""
        view = np.frombuffer(raw, np.uint8)
        opening, closing = quotes[0::2], quotes[1::2]
        doubled = opening[1:] == closing[: opening.size - 1] + 1
        opens = self._edges[view[opening - 1]]
        opens[:1] |= opening[:1] == 0
        opens[1:] |= doubled
        if not opens.all():
            return False
        after = view.take(closing + 1, mode="clip")
        closes = self._edges[after]
        closes[: doubled.size] |= doubled
        closes[-1:] |= closing[-1:] + 1 == view.size  # the end of a text is a line end
        if closes.all():
            return True
        second = view.take(closing + 2, mode="clip")
        line_end = (second == ord("\n")) | (closing + 2 == view.size)
        return bool((closes | ((after == ord("\r")) & line_end)).all())

    def are_regular(self, raw: bytes) -> bool:
        """Whether pyarrow reads all of some whole records as `fields` does."""
        if raw.startswith(MARK) or (b"\r" in raw and raw.count(b"\r") > raw.count(b"\r\n")):
            return False
        if b'"' not in raw:
            return True
        quotes = places(raw, '"')
        return quotes.size % 2 == 0 and self._has_regular_quotes(raw, quotes)

    def separators(self, raw: bytes) -> NDArray[np.int64]:
        """Return the positions of separators outside quotes."""
        found = places(raw, self.delimiter)
        if b'"' in raw:
            found = found[np.searchsorted(places(raw, '"'), found) % 2 == 0]
        return found

    def _split_one_by_one(self, raw: bytes, final: bool) -> Ends:
        """Return the ends of records; a record with broken quotes ends with its first line."""
        ends, start = [], 0
        while start < len(raw):
            found, end = self._scan(raw, start)
            still_open = found is None and end == len(raw)
            if found is None:
                end = raw.find(b"\n", start) + 1 or len(raw)
            if not final and (still_open or raw[end - 1 : end] != b"\n"):
                break
            ends.append(end)
            start = end
        return np.array(ends, dtype=np.int64)

    def _scan(self, raw: bytes, start: int) -> tuple[list[bytes] | None, int]:
        """Return the fields of the record that begins at ``start``, and its end.

        Fields are left out after the first that no column can have.
        The list of fields is empty if a field has a carriage return, and None if quotes are wrong.
        The end is then the length of ``raw`` if a quote is not closed, and -1 otherwise.
        """
        found, place, stray = list[bytes](), start, False
        while match := self._field.match(raw, place):
            quoted, after_quote, bare, after_bare = match.groups()
            last = (after_quote or after_bare) != self.delimiter.encode()
            if quoted is not None:
                field = quoted.replace(b'""', b'"')
            else:
                field = bare.removesuffix(b"\r") if last else bare
                stray |= b"\r" in field
            if len(found) <= inputs.COLUMNS:
                found.append(field)
            place = match.end()
            if last:
                return ([] if stray else found), place
        return None, len(raw) if self._unclosed.match(raw, place) else -1

"""How a text writes its records and cells, chosen by the user or detected from its first lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow import compute

from seqmed.streams import inputs
from seqmed.streams.faults import StreamError
from seqmed.streams.inputs import known_encoding
from seqmed.streams.pieces import SAMPLE, Chunk, Ends, Text, places, without_blank
from seqmed.tables.cells import MISSING_SIGNS, MISSING_WORDS

COMMA, SEMICOLON, TAB, PIPE = SEPARATORS = (",", ";", "\t", "|")
POINT = "."
SPACE = " "
# Spellings of separators at a shell.
NAMED = {"\\t": TAB, "tab": TAB, "comma": COMMA, "semicolon": SEMICOLON, "pipe": PIPE}
DECIMALS = (POINT, COMMA)
THOUSANDS = ("", POINT, COMMA, SPACE, "'")
# Spaces that separate thousands: the usual, the no-break and the narrow no-break one.
SPACES = "[ \u00a0\u202f]"
# The first line that Excel writes to name the separator.
EXCEL = re.compile(rb"sep=([^\w\s\"]|\t)\r?\n", re.IGNORECASE)
# Fraction of the cells of a column that have to be numbers for it to be a column of numbers.
NUMERIC = 0.9
# Bytes that are looked at, if they hold two lines.
LITTLE = 2**16

NumberStyle = tuple[str, str]
"""Decimal character and thousands separator, which is empty if there is none."""


@dataclass(frozen=True)
class Dialect:
    r"""How texts are written; None is detected from the first lines of each file.

    Parameters
    ----------
    sep : the character between fields of CSV: a comma, semicolon, tab, "|" or another one.
    decimal : "." or ",".
    thousands : the character between groups of three digits: ".", ",", " " or "'"; "" for none.
    encoding : a name of a Python codec, such as "utf-8", "cp1252" or "latin-1". A byte order mark
        is always recognised.
    """

    sep: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.sep is not None:
            sep = NAMED.get(self.sep, self.sep)
            if len(sep) != 1 or not sep.isascii() or sep.isalnum() or sep in '"\r\n\0.+-':
                raise StreamError(
                    f"sep={self.sep!r}, expected one character such as ',', ';', 'tab' or '|'."
                )
            object.__setattr__(self, "sep", sep)
        if self.decimal not in (None, *DECIMALS):
            raise StreamError(f"decimal={self.decimal!r}, expected '.' or ','.")
        if self.thousands not in (None, *THOUSANDS):
            raise StreamError(
                f"thousands={self.thousands!r}, expected '.', ',', ' ', \"'\" or '' for none."
            )
        if self.thousands and self.thousands == self.decimal:
            raise StreamError(
                f"decimal and thousands are both {self.decimal!r}, expected different characters."
            )
        if self.encoding is not None:
            object.__setattr__(self, "encoding", known_encoding(self.encoding))

    def over(self, other: Dialect) -> Dialect:
        """Return this dialect, with the parts of another one where it has none."""
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(other, **own)

    def __str__(self) -> str:
        shown = {TAB: "tab", COMMA: "','", SEMICOLON: "';'", PIPE: "'|'"}
        options = []
        if self.sep is not None:
            options.append(f"--sep {shown.get(self.sep, repr(self.sep))}")
        if self.decimal is not None:
            options.append(f"--decimal '{self.decimal}'")
        if self.thousands:
            quoted = '"\'"' if self.thousands == "'" else f"'{self.thousands}'"
            options.append(f"--thousands {quoted}")
        if self.encoding is not None:
            options.append(f"--encoding {self.encoding}")
        return " ".join(options)


@lru_cache(maxsize=32)
def number_pattern(decimal: str, thousands: str) -> str:
    """Return the pattern of a whole cell that is a number."""
    group = SPACES if thousands == SPACE else re.escape(thousands)
    digits = f"(?:[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+|[0-9]+)" if thousands else "[0-9]+"
    point = re.escape(decimal)
    number = f"(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)"
    return f"^[ \t]*[+-]?{number}(?:[eE][+-]?[0-9]+)?[ \t]*$"


NUMBER = re.compile(number_pattern(POINT, ""))


def usual_numbers(column: Any, decimal: str, thousands: str) -> Any:
    """Return a column of texts with numbers in the usual notation: 1.234,5 becomes 1234.5.

    Only cells that are wholly a number are changed.

    Parameters
    ----------
    column : pyarrow array of strings.
    decimal, thousands : as in `Dialect`; ``thousands`` may be empty.
    """
    marks = [mark for mark in (decimal, thousands) if mark not in ("", POINT)]
    marks += [POINT] if thousands == POINT else []
    pattern = "|".join(SPACES if mark == SPACE else re.escape(mark) for mark in marks)
    if not marks or not compute.any(compute.match_substring_regex(column, pattern)).as_py():
        return column
    written = compute.match_substring_regex(column, number_pattern(decimal, thousands))
    if not compute.any(written).as_py():
        return column
    usual = column
    if thousands == SPACE:
        usual = compute.replace_substring_regex(usual, SPACES, "")
    elif thousands:
        usual = compute.replace_substring(usual, thousands, "")
    if decimal != POINT:
        usual = compute.replace_substring(usual, decimal, POINT)
    return compute.if_else(written, usual, column)


# -- records and fields ----------------------------------------------------------------------------


class Grammar:
    """Grammar of records and fields, as in RFC 4180.

    A quoted field may hold delimiters, line ends and doubled quotes. In a field that does not begin
    with a quote, quotes are ordinary characters.

    Parameters
    ----------
    delimiter : the character between fields.
    """

    def __init__(self, delimiter: str):
        self.delimiter = delimiter

        def pattern(text: bytes) -> re.Pattern[bytes]:
            return re.compile(text.replace(b"D", re.escape(delimiter).encode()))

        quoted, bare = rb'"((?:[^"]++|"")*+)"(D|\r?\n|\r?\Z)', rb'((?!")[^D\n]*+)(D|\n|\Z)'
        self._field = pattern(quoted + b"|" + bare)
        field = rb'(?:"(?:[^"\r]++|""|\r\n)*+"|[^"D\r\n]*+)'
        self._regular = pattern(field + b"(?:D" + field + rb")*+(?:\r?\n)?")
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

    def is_regular(self, record: bytes) -> bool:
        """Whether pyarrow reads a record as `fields` does: quotes and line ends are as they should.

        A quote within a field that does not begin with one is valid, but not regular.
        """
        return self._regular.fullmatch(record) is not None

    def are_closed(self, raw: bytes) -> bool:
        """Whether the quotes of whole records are regular, and all are closed."""
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

        The list of fields is empty if a field has a carriage return, and None if quotes are wrong.
        The end is then the length of ``raw`` if a quote is not closed, and -1 otherwise.
        """
        found, place, stray = [], start, False
        while match := self._field.match(raw, place):
            quoted, after_quote, bare, after_bare = match.groups()
            last = (after_quote or after_bare) != self.delimiter.encode()
            if quoted is not None:
                found.append(quoted.replace(b'""', b'"'))
            else:
                bare = bare.removesuffix(b"\r") if last else bare
                stray |= b"\r" in bare
                found.append(bare)
            place = match.end()
            if last:
                return ([] if stray else found), place
        return None, len(raw) if self._unclosed.match(raw, place) else -1


# -- detection -------------------------------------------------------------------------------------


def find_separator(text: Text, default: str) -> str:
    """Return the separator with which most of the first rows have as many fields as the header.

    With equal counts, more fields are better. The default is used if there is one column.
    """
    best, separator = (0.0, 1), default
    for each in dict.fromkeys((default, *SEPARATORS)):
        header, rows = first_records(text, Grammar(each))
        if len(header) < 2:
            continue
        same = sum(len(row) == len(header) for row in rows) / len(rows) if rows else 1.0
        if (same, len(header)) > best:
            best, separator = (same, len(header)), each
    return separator


def find_number_style(text: Text, separator: str, decimal: str | None) -> NumberStyle:
    """Return the style of numbers that explains most columns in the first rows.

    "1,234" alone is a grouped number if the fields are separated by commas or tabs, and a decimal
    fraction if they are separated by semicolons, as spreadsheets write them.
    """
    header, rows = first_records(text, Grammar(separator))
    columns = cells_by_column(rows, len(header))
    styles: list[NumberStyle] = [(POINT, ""), (POINT, COMMA), (COMMA, ""), (COMMA, POINT)]
    if separator == SEMICOLON:
        styles[1], styles[2] = styles[2], styles[1]
    styles += [(COMMA, SPACE), (POINT, SPACE), (COMMA, "'"), (POINT, "'")]
    styles = [style for style in styles if decimal in (None, style[0])]
    scores = [sum(explains(style, cells) for cells in columns) for style in styles]
    return styles[scores.index(max(scores))]


def cells_by_column(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the cells of each column, without missing ones and rows of another width."""
    missing = {*MISSING_WORDS, *MISSING_SIGNS}
    good = [row for row in rows if len(row) == width]
    return [
        [cell for cell in (row[place].strip() for row in good) if cell not in missing]
        for place in range(width)
    ]


def explains(style: NumberStyle, cells: Sequence[str]) -> bool:
    """Whether nearly all cells are numbers in a style; a space needs a decimal character too."""
    pattern = re.compile(number_pattern(*style))
    found = [cell for cell in cells if pattern.match(cell)]
    if style[1] in (SPACE, "'") and not any(style[0] in cell for cell in found):
        return False
    return bool(cells) and len(found) >= NUMERIC * len(cells)


def first_records(text: Text, grammar: Grammar) -> tuple[list[str], list[list[str]]]:
    """Return the fields of the first line, and of the rows after it that are in the buffer."""
    size = LITTLE if text.buffer.count(b"\n", 0, LITTLE) > 1 else inputs.ROW_BYTES
    raw = text.buffer[:size]
    ends = grammar.split(raw, text.at_end and size >= len(text.buffer))[: SAMPLE + 1]
    chunk = Chunk(raw, ends, 1)
    records = [grammar.fields(chunk.record(place)) or [] for place in range(chunk.ends.size)]
    decoded = [[field.decode("utf-8", "replace") for field in record] for record in records]
    return (decoded[0], decoded[1:]) if decoded else ([], [])


def take_excel_line(text: Text) -> tuple[bytes, str | None]:
    """Remove a first line like ``sep=;`` from a text; return it, and the separator it names."""
    match = EXCEL.match(text.buffer)
    if match is None:
        return b"", None
    return text.take(match.end()), match[1].decode()

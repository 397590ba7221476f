"""Detection of the dialect of a delimited text from its first lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seqmed.streams.dialects import (
    COMMA,
    MISSING_WORDS,
    POINT,
    SEMICOLON,
    SEPARATORS,
    SPACE,
    number_pattern,
)
from seqmed.streams.grammar import Grammar
from seqmed.streams.text import SAMPLE, Chunk, Text

# The first line that Excel writes to name the separator.
EXCEL = re.compile(rb"sep=([^\w\s\"]|\t)\r?\n", re.IGNORECASE)
# Fraction of the cells of a column that have to be numbers for it to be a column of numbers.
NUMERIC = 0.9

# Bytes that are looked at, if they hold two lines.
LITTLE = 2**16

NumberStyle = tuple[str, str]
"""Decimal character and thousands separator, which is empty if there is none."""


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
    good = [row for row in rows if len(row) == width]
    return [
        [cell for cell in (row[place].strip() for row in good) if cell not in MISSING_WORDS]
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
    size = LITTLE if text.buffer.count(b"\n", 0, LITTLE) > 1 else text.limits.row_bytes
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

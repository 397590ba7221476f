"""How a text writes fields and numbers, chosen by the user or detected from its first lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from seqmed.numeric.words import Shown
from seqmed.streams.faults import StreamError
from seqmed.streams.inputs import known_encoding
from seqmed.tables.cells import (
    COMMA,
    MISSING_SIGNS,
    MISSING_WORDS,
    POINT,
    THOUSANDS,
    number_pattern,
)

SEMICOLON, TAB = ";", "\t"
SEPARATORS = (COMMA, SEMICOLON, TAB, "|")
# Spellings of the tab at a shell.
NAMED = {"\\t": TAB, "tab": TAB}
# Fraction of the cells of a column that have to be numbers for it to be a column of numbers.
NUMERIC = 0.9

NumberStyle = tuple[str, str]
"""Decimal character and thousands separator, which is empty if there is none."""
Records = tuple[list[str], list[list[str]]]
"""The fields of a header, and of the rows after it."""


@dataclass(frozen=True)
class Dialect:
    r"""How texts are written; None is detected from the first lines of each file.

    Parameters
    ----------
    sep : the character between fields of CSV: a comma, semicolon, tab, "|" or another one.
    decimal : "." or ",".
    thousands : the character between groups of three digits: ".", ",", a space or an apostrophe; ""
        for none. Spaces and apostrophes are not detected.
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
        if self.decimal not in (None, POINT, COMMA):
            raise StreamError(f"decimal={self.decimal!r}, expected '.' or ','.")
        if self.thousands not in (None, "", *THOUSANDS):
            raise StreamError(
                f"thousands={self.thousands!r}, expected '.', ',', a space, an apostrophe, or '' "
                "for none."
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
        if not Shown.by_command:
            own = {name: value for name, value in asdict(self).items() if value is not None}
            return ", ".join(f"{name}={value!r}" for name, value in own.items())
        options = {
            "--sep": self.sep and ("tab" if self.sep == TAB else f"'{self.sep}'"),
            "--decimal": self.decimal and f"'{self.decimal}'",
            "--thousands": self.thousands and f"'{self.thousands}'",
            "--encoding": self.encoding,
        }
        return " ".join(f"{name} {value}" for name, value in options.items() if value)


# -- detection -------------------------------------------------------------------------------------


def find_separator(tables: Mapping[str, Records], default: str) -> str:
    """Return the separator with which most of the first rows have as many fields as the header.

    With equal counts, more fields are better. The default is used if there is one column. The
    tables are the first rows, split by each separator.
    """
    best, separator = (0.0, 1), default
    for each, (header, rows) in tables.items():
        if len(header) < 2:
            continue
        same = sum(len(row) == len(header) for row in rows) / len(rows) if rows else 1.0
        if (same, len(header)) > best:
            best, separator = (same, len(header)), each
    return separator


def find_number_style(records: Records, separator: str, chosen: Dialect) -> NumberStyle:
    """Return the style of numbers that explains most columns in the first rows.

    "1,234" alone is a grouped number if the fields are separated by commas or tabs, and a decimal
    fraction if they are separated by semicolons, as spreadsheets write them. Of styles that explain
    as many columns, the best leaves most of the other columns numbers, as "1.5" is in any style.
    """
    header, rows = records
    missing = {*MISSING_WORDS, *MISSING_SIGNS}
    good = [[cell.strip() for cell in row] for row in rows if len(row) == len(header)]
    columns = [
        [cell for cell in column if cell not in missing] for column in zip(*good, strict=True)
    ]
    styles: list[NumberStyle] = [(POINT, ""), (POINT, COMMA), (COMMA, ""), (COMMA, POINT)]
    if separator == SEMICOLON:
        styles[1], styles[2] = styles[2], styles[1]
    if chosen.thousands in THOUSANDS[2:]:
        styles = [(POINT, chosen.thousands), (COMMA, chosen.thousands)]
    styles = [
        (decimal, thousands)
        for decimal, thousands in styles
        if chosen.decimal in (None, decimal) and chosen.thousands in (None, thousands)
    ]
    scores = [
        (
            sum(explains([style], cells) for cells in columns),
            sum(explains([style, (POINT, "")], cells) for cells in columns),
        )
        for style in styles
    ]
    return styles[scores.index(max(scores))]


def explains(styles: Sequence[NumberStyle], cells: Sequence[str]) -> bool:
    """Whether nearly all cells of a column are numbers in one of some styles."""
    pattern = re.compile("|".join(number_pattern(*style) for style in styles))
    return bool(cells) and sum(map(bool, map(pattern.match, cells))) >= NUMERIC * len(cells)

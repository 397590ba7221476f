"""How a text writes its cells: separator, decimal character, thousands separator, encoding."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from pyarrow import compute

from seqmed.streams.encodings import known_encoding
from seqmed.streams.errors import StreamError

COMMA, SEMICOLON, TAB, PIPE = SEPARATORS = (",", ";", "\t", "|")
POINT = "."
SPACE = " "
# Spellings of separators at a shell.
NAMED = {"\\t": TAB, "tab": TAB, "comma": COMMA, "semicolon": SEMICOLON, "pipe": PIPE}
DECIMALS = (POINT, COMMA)
THOUSANDS = ("", POINT, COMMA, SPACE, "'")
# Spaces that separate thousands: the usual, the no-break and the narrow no-break one.
SPACES = "[ \u00a0\u202f]"
# Texts that mark a missing label or a missing cell in the first lines.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")


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

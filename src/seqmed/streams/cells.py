"""Values of single cells: numbers, missing values, texts."""

from __future__ import annotations

import math
import re
from typing import Any

from seqmed.estimators.validation import LARGEST_FEATURE
from seqmed.streams.errors import MISSING, NOT_A_NUMBER, NOT_FINITE

# What stands for a value that is not there, besides nothing at all.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
BOOLEANS = {"true": 1.0, "false": 0.0}

NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)(?:\(.*\))?", re.IGNORECASE)
WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,18}))(?:\.0*)?")


def number_in(cell: str) -> float | str:
    """Return the number that is written in a cell, or why there is none.

    True and false, in any case, are 1 and 0.
    """
    if NUMBER.fullmatch(cell):
        return bounded_number(float(cell))
    word = cell.strip()
    if word in MISSING_WORDS:
        return MISSING
    if NO_NUMBER.fullmatch(word):
        return NOT_FINITE
    return BOOLEANS.get(word.lower(), NOT_A_NUMBER)


def number_of(value: Any) -> float | str:
    """Return a value of a typed format as a number, or why it is none; strings never are."""
    if value is None:
        return MISSING
    if not isinstance(value, int | float):
        return NOT_A_NUMBER
    try:
        number = float(value)
    except OverflowError:
        return NOT_FINITE
    return MISSING if math.isnan(number) else bounded_number(number)


def bounded_number(number: float) -> float | str:
    """Return a number, or why it cannot be a feature."""
    return number if abs(number) <= LARGEST_FEATURE else NOT_FINITE


def cell_text(value: Any) -> str | None:
    """Return a value as one text, whatever format it was stored in; None if there is none.

    1, 1.0 and "1" are the same text, and so are True and "true".
    """
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def encodable(value: Any) -> bool:
    """Whether a value is no string with half a character in it, as JSON can spell."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Single values as texts: the same text for every type of storage."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

BOOLEANS = {"true": 1.0, "false": 0.0}
# Whole numbers and other numbers as levels. Codes with leading zeros, such as 007, are no numbers.
WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,300}))(?:\.0*)?")
DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?")
ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?")
EPOCH = datetime(1970, 1, 1)
# Cells that a spreadsheet runs, with any apostrophes before them, and numbers, which it does not.
FORMULA = re.compile(r"'*[=+\-@\t\r]")
PLAIN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def cell_text(value: Any) -> str | None:
    """Return a value as text, the same for every type of storage; None for a missing value.

    1, 1.0 and "1" have the same text, and so do True and "true".
    """
    if isinstance(value, str):
        return value.strip() or None
    if value is None or value != value:  # NaN, NaT
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").strip() or None
    if isinstance(value, float | np.floating):
        return whole_or_float(float(value))
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return date_text(moment)
    return str(value)


def whole_or_float(value: float) -> str:
    """Return a number as text: a whole number without a decimal point."""
    return str(int(value)) if value.is_integer() else repr(value)


def date_text(moment: datetime) -> str:
    """Return a date as text, without a time if it is midnight."""
    text = moment.isoformat(" ")
    return text.removesuffix(" 00:00:00")


def level_text(text: str) -> str:
    """Return a level in its usual notation: numbers, true and false, and dates in ISO 8601."""
    if text[:1] in "tTfF" and text.lower() in BOOLEANS:
        return text.lower()
    if not text or text[0] not in "+-.0123456789":
        return text
    match = WHOLE.fullmatch(text)
    if match:
        return str(int(match[1]))
    if DECIMAL.fullmatch(text) and any(map(str.isdigit, text)):
        value = float(text)
        return whole_or_float(value) if math.isfinite(value) else text
    if ISO_DATE.fullmatch(text):
        try:
            return date_text(EPOCH + timedelta(microseconds=round(iso_date(text) * 1e6)))
        except (OverflowError, ValueError):  # NaN, or beyond the years 1 to 9999
            return text
    return text


def iso_date(text: str) -> float:
    """Return a text in ISO 8601 as seconds since 1970, NaN for any other text."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (OverflowError, ValueError):
        return math.nan


def safe_cell(text: str) -> str:
    """Return a cell of a CSV that no spreadsheet runs; `read_safe_cell` gives the text back.

    A text that begins with =, +, -, @, a tab or a carriage return gets a leading apostrophe, unless
    it is a number. So does such a text after apostrophes, which would else be read as another one.
    """
    if FORMULA.match(text) and not PLAIN_NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def read_safe_cell(cell: str) -> str:
    """Return the text of a cell that `safe_cell` has written."""
    return cell[1:] if cell[:1] == "'" and FORMULA.match(cell) else cell

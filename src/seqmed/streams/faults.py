"""Bad rows, errors and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from seqmed.numeric.words import in_words
from seqmed.tables.cells import NOT_A_NUMBER, NOT_FINITE
from seqmed.tables.dates import NOT_A_DATE
from seqmed.tables.kinds import Fault as Fault

# Examples of bad rows that are kept for each reason.
EXAMPLES = 3

FIELDS = "wrong number of fields"
INVALID_TEXT = "invalid UTF-8"
JSON = "broken JSON"
LABEL = "label of another type"
LONG_CELL = "cell too long"
NESTED = "not a single value"
QUOTES = "broken quotes or line end"

# Expected value and remedy for each reason, on the command line and in Python.
REMEDIES = {
    FIELDS: (
        "one field for every column name: correct the row, or set the separator with --sep",
        "one field for every column name: correct the row, or set the separator with Dialect(sep=)",
    ),
    INVALID_TEXT: (
        "UTF-8: name the encoding with --encoding cp1252 or --encoding latin-1",
        "UTF-8: name the encoding with Dialect(encoding='cp1252') or 'latin-1'",
    ),
    JSON: ("one JSON object on every line: correct the line",) * 2,
    LABEL: (
        "a label of the same type as before: correct it, or start a new model with --label-type "
        "string",
        "a label of the same type as before: correct it, or start anew with "
        "LabelColumn(type='string')",
    ),
    LONG_CELL: ("at most 1 MiB: shorten the cell, or leave the column out of the file",) * 2,
    NESTED: ("a text, a number, true, false or null: correct the line",) * 2,
    NOT_A_DATE: (
        "a date in the format of the first batch: correct it, or make the model with --date "
        "COLUMN=FORMAT, --na WORD if it is a missing cell, --categorical or --drop",
        "a date in the format of the first batch: correct it, or make the encoder with "
        "missing_values if it is a missing cell, or another kind in kinds",
    ),
    NOT_A_NUMBER: (
        "a number: correct it, or make the model with --na WORD if it is a missing cell, "
        "--categorical or --drop",
        "a number: correct it, or make the encoder with missing_values if it is a missing cell, or "
        "another kind in kinds",
    ),
    NOT_FINITE: (
        "a finite number of at most 1e70: correct it, or leave the column out with --drop",
        "a finite number of at most 1e70: correct it, or leave the column out with the kind 'drop'",
    ),
    QUOTES: ("quotes around a whole field, doubled within it: correct the row",) * 2,
}


class StreamError(ValueError):
    """An input is refused."""


class StreamWarning(UserWarning):
    """A warning about an input."""


def notice(text: str) -> None:
    """Warn the user of something in an input."""
    warnings.warn(text, StreamWarning, stacklevel=3)


class BadRow(NamedTuple):
    """A bad row and its place; rows are counted from 1, without the header."""

    file: str
    row: int
    fault: Fault

    def __str__(self) -> str:
        line, reason, column = self.fault.line, self.fault.reason, self.fault.column
        place = f"row {self.row}" if line is None else f"line {line}"
        where = "" if column is None else f" in column {column!r}"
        return f"{self.file}, {place}: {reason}{where}, got {self.fault.got}"

    def error(self) -> StreamError:
        """Return the error for this row."""
        remedy = in_words(*REMEDIES[self.fault.reason])
        skip = in_words("--on-error skip", "on_error='skip'")
        return StreamError(f"{self}, expected {remedy}, or skip bad rows with {skip}.")


@dataclass
class Skipped:
    """Skipped bad rows: counts by reason, and the first of each reason."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[BadRow]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of skipped rows."""
        return sum(self.counts.values())

    def add(self, bad: BadRow) -> None:
        """Count a row, and keep the first of each reason as examples."""
        reason = bad.fault.reason
        self.counts[reason] = self.counts.get(reason, 0) + 1
        kept = self.examples.setdefault(reason, [])
        if len(kept) < EXAMPLES:
            kept.append(bad)


@contextmanager
def refusing(name: str, kind: str) -> Iterator[None]:
    """Turn any error of a reader into a `StreamError` that names the file.

    Readers of binary formats raise errors of a dozen types on damaged files.
    """
    try:
        yield
    except StreamError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise StreamError(
            f"{name} cannot be read as {kind} ({said}): check the file, or name its format with "
            + in_words("--format.", "file_format=.")
        ) from error

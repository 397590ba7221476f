"""Bad rows, errors and warnings about inputs, and checks of stored values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Characters of a bad value that are shown, names that are listed, and bad rows of a kind that are
# kept as examples.
SHOWN, LISTED, EXAMPLES = 40, 10, 3

FIELDS = "wrong number of fields"
INVALID_TEXT = "invalid UTF-8"
JSON = "broken JSON"
LABEL = "label of another type"
MISSING = "missing value"
NESTED = "not a single value"
NOT_A_NUMBER = "not a number"
NOT_FINITE = "not finite or too large"
QUOTES = "broken quotes or line end"

# What was expected instead, and what can be done about it.
REMEDIES = {
    FIELDS: "one field for every column name: correct the row",
    INVALID_TEXT: "UTF-8: convert the file, for example with iconv",
    JSON: "one JSON object on every line: correct the line",
    LABEL: "one like the labels before it: correct it, start a new model with --label-type string",
    MISSING: "a number: fill it in, leave the column out with --drop",
    NESTED: "a text, a number, true, false or null: correct the line",
    NOT_A_NUMBER: "a number: correct it, leave the column out with --drop",
    NOT_FINITE: "a finite number of at most 1e70: correct it, leave the column out with --drop",
    QUOTES: "quotes around a whole field, doubled within it: correct the row",
}


class StreamError(ValueError):
    """An input that is refused: what it is, where, and what to do."""


class StreamWarning(UserWarning):
    """Something about an input that the user should know, and that stops nothing."""


def notice(text: str) -> None:
    """Tell the user something about an input."""
    warnings.warn(text, StreamWarning, stacklevel=3)


class Fault(NamedTuple):
    """Why a row is bad.

    Parameters
    ----------
    reason : one of the reasons of this module.
    column : the column at fault, None for the whole row.
    got : what was there, shortened.
    line : the line the row begins on, from 1; None in formats without lines.
    """

    reason: str
    column: str | None
    got: str
    line: int | None = None


class BadRow(NamedTuple):
    """A bad row and where it is; rows are counted from 1, without the header."""

    file: str
    row: int
    fault: Fault

    @property
    def place(self) -> str:
        """The file and the line, or the row where there are no lines."""
        line = self.fault.line
        return f"{self.file}, " + (f"row {self.row}" if line is None else f"line {line}")

    def __str__(self) -> str:
        fault = self.fault
        column = "" if fault.column is None else f" in column {fault.column!r}"
        return f"{self.place}: {fault.reason}{column}, got {fault.got}"

    def error(self) -> StreamError:
        """Return the refusal of this row."""
        remedy = f"{REMEDIES[self.fault.reason]}, or pass over bad rows with --on-error skip"
        return StreamError(f"{self}, expected {remedy}.")


@dataclass
class Skipped:
    """Bad rows that were passed over: how many for each reason, and the first of each."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[BadRow]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of rows passed over."""
        return sum(self.counts.values())

    def add(self, bad: BadRow) -> None:
        """Count a row, and keep it if it is among the first."""
        reason = bad.fault.reason
        self.counts[reason] = self.counts.get(reason, 0) + 1
        kept = self.examples.setdefault(reason, [])
        if len(kept) < EXAMPLES:
            kept.append(bad)


def shown(value: Any) -> str:
    """Return a value as it is shown in messages: on one line, and short."""
    if isinstance(value, bytes):
        value = value[: 4 * SHOWN].decode("utf-8", "replace")
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN + 2 else f"{text[:SHOWN]}..."


def listed(texts: Sequence[str]) -> str:
    """Return texts as one, the first of them if there are many."""
    more = f" and {len(texts) - LISTED} others" if len(texts) > LISTED else ""
    return ", ".join(texts[:LISTED]) + more


@contextmanager
def refusing(name: str, kind: str) -> Iterator[None]:
    """Turn whatever a reader of a format raises into a `StreamError` that names the file.

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
            "--format."
        ) from error


def read_fields(data: Any, what: str, **types: type | tuple[type, ...]) -> dict[str, Any]:
    """Return a dict that was read back, with exactly these keys and types; refuse any other.

    True and False are no integers here.
    """
    if not isinstance(data, dict) or set(data) != set(types):
        got = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise StreamError(
            f"the stored {what} has {got}, expected {sorted(types)}: it was made by another "
            "version or is damaged. Start a new model."
        )
    for name, kinds in types.items():
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        value = data[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            refuse_stored(what, name, value)
    return dict(data)


def read_names(what: str, name: str, value: Any) -> tuple[str, ...]:
    """Return a list of distinct strings that was read back as a tuple; refuse anything else."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        refuse_stored(what, name, value)
    if len(set(value)) < len(value):
        refuse_stored(what, name, value)
    return tuple(value)


def refuse_stored(what: str, name: str, value: Any) -> None:
    """Refuse a value that was read back."""
    raise StreamError(
        f"the stored {what} has {name}={shown(value)}, which cannot be: the model file is damaged. "
        "Restore it from a copy, or start a new model."
    )

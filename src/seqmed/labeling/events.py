"""Events of a label log, and the checks of names and labels that people type."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any, NamedTuple

# Kinds of events. `undo` withdraws the last answer of a person and shows its card again.
LABEL, CHANGE, WITHDRAW, UNDO, SKIP, SETTLE = EVENTS = (
    "label",
    "change",
    "withdraw",
    "undo",
    "skip",
    "settle",
)
WITH_LABEL = (LABEL, CHANGE, SETTLE)
# Reasons to ask for the label of a row.
UNCERTAIN, UNLIKE, RANDOM = REASONS = ("uncertain", "unlike", "random")
# Largest number of characters of names and labels.
LONGEST_NAME, LONGEST_LABEL = 60, 200
# Largest number of characters of ids and predicted classes, and of names of files.
LONGEST_TEXT, LONGEST_PATH = 1000, 4096
# A digest of a row. The letter before it keeps spreadsheets from reading a number.
DIGEST = re.compile(r"r[0-9a-f]{16}")
# A cell that begins with one of these is a formula in spreadsheets.
FORMULAS = "=+@"


class LabelingError(ValueError):
    """An event, a name, a label or a request is refused."""


class RowKey(NamedTuple):
    """A row in the label log.

    A label belongs to the cells of a row. Where the row was is a hint where to look for them.

    Attributes
    ----------
    file, row : name of the file and number of the row, from 1, when the row was first labeled.
    digest : digest of its cells (`seqmed.labeling.rows.row_digests`).
    """

    file: str
    row: int
    digest: str


class Event(NamedTuple):
    """One line of a label log.

    Attributes
    ----------
    event : one of `EVENTS`.
    time : time in UTC, ISO 8601.
    person : name of the person.
    file, row, digest : the row; see `RowKey`.
    id : value of the id column, empty without one.
    label : the label; empty for withdraw, undo and skip.
    why : one of `REASONS` if the row was asked for, else empty.
    guess, probability : class predicted when the row was chosen, and its probability; empty and
        None if there was no prediction.
    """

    event: str
    time: str
    person: str
    file: str
    row: int
    digest: str
    id: str = ""
    label: str = ""
    why: str = ""
    guess: str = ""
    probability: float | None = None

    @property
    def key(self) -> RowKey:
        """The row of the event."""
        return RowKey(self.file, self.row, self.digest)

    @property
    def is_answer(self) -> bool:
        """Whether the event answers a card."""
        return self.event in (LABEL, SKIP) and self.why in REASONS


def checked_event(values: dict[str, Any]) -> Event:
    """Return an event from texts by name; refuse an invalid one."""
    event = str(values.get("event", ""))
    if event not in EVENTS:
        raise LabelingError(f"event is {event!r:.40}, expected one of {', '.join(EVENTS)}")
    why = str(values.get("why") or "")
    if why and why not in REASONS:
        raise LabelingError(f"why is {why!r:.40}, expected one of {', '.join(REASONS)}, or nothing")
    label = str(values.get("label") or "")
    if event in WITH_LABEL:
        label = one_label(label)
    elif label:
        raise LabelingError(f"{event} has the label {label!r:.40}, expected none")
    return Event(
        event,
        one_line(str(values.get("time") or ""), "time", 40),
        checked_name(str(values.get("person") or "")),
        one_line(str(values.get("file") or ""), "file", LONGEST_PATH),
        row_number(values.get("row")),
        row_digest(values.get("digest")),
        one_line(str(values.get("id") or ""), "id", LONGEST_TEXT),
        label,
        why,
        one_line(str(values.get("guess") or ""), "guess", LONGEST_TEXT),
        probability(values.get("probability")),
    )


def row_number(value: Any) -> int:
    """Return the number of a row."""
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number < 2**63:
        raise LabelingError(f"row is {value!r:.40}, expected a number from 1")
    return number


def row_digest(value: Any) -> str:
    """Return the digest of a row."""
    text = str(value or "")
    if not DIGEST.fullmatch(text):
        raise LabelingError(
            f"digest is {text!r:.40}, expected r and 16 hexadecimal digits, the digest of the "
            "cells of the row"
        )
    return text


def probability(value: Any) -> float | None:
    """Return a probability, None if there is none."""
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number <= 1.0:
        raise LabelingError(f"probability is {value!r:.40}, expected a number in [0, 1]")
    return number


def one_line(text: str, what: str, longest: int) -> str:
    """Return a text; refuse control characters and texts that are too long."""
    if len(text) > longest:
        raise LabelingError(f"{what} has {len(text)} characters, expected at most {longest}")
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text):
        raise LabelingError(f"{what} has a line break or another control character: remove it")
    return text


def as_one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return a text of the data on one line: control characters become spaces, the end is cut."""
    kinds = ("Cc", "Cs", "Zl", "Zp")
    letters = (" " if unicodedata.category(each) in kinds else each for each in text[:longest])
    return "".join(letters).strip()


def checked_name(text: str) -> str:
    """Return the name of a person without surrounding spaces."""
    return not_a_formula(one_line(" ".join(text.split()), "the name", LONGEST_NAME), "the name")


def checked_label(text: str) -> str:
    """Return the name of a new class without surrounding spaces."""
    return not_a_formula(one_label(text), "the label")


def one_label(text: str) -> str:
    """Return a label without surrounding spaces."""
    return not_empty(one_line(text.strip(), "the label", LONGEST_LABEL), "the label")


def not_empty(text: str, what: str) -> str:
    """Return a text that is not empty."""
    if not text:
        raise LabelingError(f"{what} is empty, expected at least one character")
    return text


def not_a_formula(text: str, what: str) -> str:
    """Return a text that is not empty, and which no spreadsheet takes for a formula."""
    not_empty(text, what)
    if text[0] in FORMULAS or (text[0] == "-" and not is_number(text)):
        raise LabelingError(
            f"{what} begins with {text[0]!r}, which spreadsheets read as a formula: begin with a "
            "letter or a digit"
        )
    return text


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True

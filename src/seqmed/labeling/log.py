"""The label log: an append-only CSV. Every event is on the disk before it is confirmed.

One line is one event. A line is appended by one write and synced. A process that is killed can
therefore leave at most one unfinished line, the last one, which was never confirmed; it is removed
when the log is opened again. Names and labels that people type are checked.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from seqmed.model_file.files import real_path, sync_folder
from seqmed.tables.cells import read_safe_cell, safe_cell

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
    digest : digest of its cells (`seqmed.labeling.pool.row_digests`).
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
    if text[0] in FORMULAS or (text[0] == "-" and not is_number_text(text)):
        raise LabelingError(
            f"{what} begins with {text[0]!r}, which spreadsheets read as a formula: begin with a "
            "letter or a digit"
        )
    return text


def is_number_text(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- the log in a file -----------------------------------------------------------------------------


# Columns of a log. `id` and `label` have the names of these columns in the data.
COLUMNS = Event._fields
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LabelLog:
    """The label log in a file.

    Parameters
    ----------
    path : the file; it is created if it does not exist.
    id_name, label_name : names of the columns of ids and labels.

    Attributes
    ----------
    events : all events on the disk, in order.
    placed : those whose row is in the data; see `place`.
    repaired : number of bytes of an unfinished last line that was removed.
    """

    def __init__(self, path: Path, id_name: str = "id", label_name: str = "label"):
        self.path = path
        self.header = log_columns(id_name, label_name)
        target = real_path(path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(target, flags, 0o666)
        try:
            content = read_all(self._file)
            self.events, end = parsed_log(content, self.header, path)
            self.placed = list(self.events)
            self.repaired = len(content) - end
            if self.repaired:
                os.ftruncate(self._file, end)
                os.fsync(self._file)
            self._size = end
            if not end:
                self._write(line(self.header))
                sync_folder(target.parent)
            elif not content[:end].endswith(b"\n"):
                self._write(b"\n")  # a spreadsheet wrote the last line without its end
        except BaseException:
            os.close(self._file)
            raise

    def append(self, events: Sequence[Event]) -> None:
        """Append events and sync them to the disk. If that fails, the log is unchanged."""
        for event in events:
            if checked_event(event._asdict()) != event:
                raise LabelingError(f"{event.event} of row {event.row} is not in its usual form")
        self._write(b"".join(line(as_cells(event)) for event in events))
        self.events.extend(events)
        self.placed.extend(events)

    def place(self, rows: Container[RowKey]) -> list[Event]:
        """Set aside the events of all other rows, and return them. They stay in the file."""
        self.placed = [event for event in self.events if event.key in rows]
        return [event for event in self.events if event.key not in rows]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise OSError(error.errno, error.strerror, os.fspath(self.path)) from error
        self._size += len(content)


def log_columns(id_name: str, label_name: str) -> list[str]:
    """Return the column names of a log; refuse names that occur twice."""
    names = {"id": id_name, "label": label_name}
    found = [names.get(column, column) for column in COLUMNS]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise LabelingError(
            f"the label log has a column {twice!r} of its own, and the data have an id or label "
            "column of that name: rename the column of the data."
        )
    return found


def parsed_log(content: bytes, names: Sequence[str], path: Path) -> tuple[list[Event], int]:
    """Return the events of a log, and the number of bytes that are whole lines.

    A last line without an end is whole if it has all its fields; then a spreadsheet has written it.
    """
    end = content.rstrip(b"\x00").rfind(b"\n") + 1  # zeros that a crash left are no line
    lines = content[:end].removeprefix(BYTE_ORDER_MARK)
    rest = content[end:]
    try:
        rows = read_rows(lines.decode())
        if rest and b"\x00" not in rest:
            tail = next(iter(read_rows(rest.decode("utf-8", "replace"))), [])
            if len(tail) == len(names) and is_event(tail):
                rows.append(tail)
                end = len(content)
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabelingError(
            f"{path} is not a CSV in UTF-8 ({error}): restore it from a copy."
        ) from None
    if not rows:
        return [], end if content[:end].strip() else 0
    if rows[0] != list(names):
        raise LabelingError(
            f"{path} has the columns {', '.join(rows[0])[:200]}, expected {', '.join(names)}: name "
            "another file with --labels."
        )
    events = []
    for number, row in enumerate(rows[1:], 2):
        if not any(row):
            continue
        try:
            if len(row) != len(names):
                raise LabelingError(f"it has {len(row)} fields, expected {len(names)}")
            events.append(checked_event(dict(zip(COLUMNS, row, strict=True))))
        except LabelingError as error:
            raise LabelingError(
                f"{path}, line {number}: {error}. Correct the line, or restore the file."
            ) from None
    return events, end


def read_rows(text: str) -> list[list[str]]:
    """Return the cells that `line` has written."""
    return [[*map(read_safe_cell, row)] for row in csv.reader(io.StringIO(text, newline=""))]


def is_event(cells: Sequence[str]) -> bool:
    """Whether the cells of a line are a valid event."""
    try:
        checked_event(dict(zip(COLUMNS, cells, strict=True)))
    except LabelingError:
        return False
    return True


def as_cells(event: Event) -> list[str]:
    """Return the cells of an event."""
    return ["" if value is None else str(value) for value in event]


def line(cells: Iterable[str]) -> bytes:
    """Return a line of a CSV, in which no cell is a formula."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(map(safe_cell, cells))
    return text.getvalue().encode()


def read_all(descriptor: int) -> bytes:
    """Return all bytes of an open file."""
    parts = []
    os.lseek(descriptor, 0, os.SEEK_SET)
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


# -- JSON lines ------------------------------------------------------------------------------------


def to_json_lines(events: Iterable[Event]) -> Iterator[bytes]:
    """Yield one JSON object per event."""
    for event in events:
        yield json.dumps(event._asdict(), ensure_ascii=False).encode() + b"\n"


def from_json_lines(content: bytes, name: str) -> list[Event]:
    """Return the events in JSON lines; an error names ``name`` and the line."""
    events = []
    for number, text in enumerate(content.splitlines(), 1):
        if not text.strip():
            continue
        try:
            values: Any = json.loads(text)
            if not isinstance(values, dict):
                raise LabelingError("it is no JSON object")
            unknown = set(values) - set(COLUMNS)
            if unknown:
                raise LabelingError(f"it has {sorted(unknown)[0]!r}, expected {', '.join(COLUMNS)}")
            events.append(checked_event({"event": "label", **values}))
        except (LabelingError, ValueError, RecursionError) as error:
            raise LabelingError(f"{name}, line {number}: {error}. Correct the line.") from None
    return events

"""The label log: an append-only CSV. Every event is on the disk before it is confirmed.

One line is one event. A line is appended by one write and synced. A process that is killed can
therefore leave at most one unfinished line, the last one, which was never confirmed; it is removed
when the log is opened again. Names and labels that people type are checked.
"""

from __future__ import annotations

import csv
import io
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from seqmed.model_file.files import real_path, sync_folder
from seqmed.tables.cells import read_safe_cell, safe_cell

# Kinds of events. `undo` withdraws the last answer of a person and shows its card again.
EVENTS = ("label", "change", "withdraw", "undo", "skip", "settle")
LABEL, CHANGE, WITHDRAW, UNDO, SKIP, SETTLE = EVENTS
WITH_LABEL = (LABEL, CHANGE, SETTLE)
# Reasons to ask for the label of a row.
REASONS = ("uncertain", "unlike", "random")
UNCERTAIN, UNLIKE, RANDOM = REASONS
# Largest number of characters of names and labels.
LONGEST_NAME, LONGEST_LABEL = 60, 200
# Largest number of characters of ids and predicted classes, and of names of files.
LONGEST_TEXT, LONGEST_PATH = 1000, 4096
LONGEST = {"time": 40, "file": LONGEST_PATH, "id": LONGEST_TEXT, "guess": LONGEST_TEXT}
# A digest of a row. The letter before it keeps spreadsheets from reading a number.
DIGEST = re.compile(r"r[0-9a-f]{16}")
# Cells of a line that have a form: as a pattern, and as it is named in errors.
FORMS = {
    "event": ("|".join(EVENTS), f"one of {', '.join(EVENTS)}"),
    "row": ("[1-9][0-9]{0,17}", "a number from 1"),
    "digest": (DIGEST.pattern, "r and 16 hexadecimal digits, the digest of the cells of the row"),
    "why": ("|".join(("", *REASONS)), f"one of {', '.join(REASONS)}, or nothing"),
    "probability": (r"(0|1(\.0)?|0?\.[0-9]+|[0-9](\.[0-9]+)?e-[0-9]+)?", "a number in [0, 1]"),
}


class LabelingError(ValueError):
    """An event, a name, a label or a request is refused."""


class RowKey(NamedTuple):
    """A row in the label log, by its cells; where it was is a hint where to look for them."""

    file: str  # when the row was first labeled
    row: int  # its number there, from 1
    digest: str  # of its cells (`seqmed.labeling.pool.row_digests`)


class Event(NamedTuple):
    """One line of a label log."""

    event: str  # one of `EVENTS`
    time: str  # in UTC, ISO 8601
    person: str
    file: str  # the row, as in `RowKey`
    row: int
    digest: str
    id: str = ""  # value of the id column
    label: str = ""  # empty for withdraw, undo and skip
    why: str = ""  # one of `REASONS` if the row was asked for
    guess: str = ""  # class predicted when the row was chosen
    probability: float | None = None  # of this class

    @property
    def key(self) -> RowKey:
        """The row of the event."""
        return RowKey(self.file, self.row, self.digest)


# Columns of a log. `id` and `label` have the names of these columns in the data.
COLUMNS = Event._fields


# -- texts -----------------------------------------------------------------------------------------


def checked_name(text: str) -> str:
    """Return the name of a person without superfluous spaces; refuse an invalid one."""
    return one_line(" ".join(text.split()), "the name", LONGEST_NAME, 1)


def checked_label(text: str) -> str:
    """Return a label without surrounding spaces; refuse an invalid one."""
    return one_line(text, "the label", LONGEST_LABEL, 1)


def one_line(text: str, what: str, longest: int, least: int = 0) -> str:
    """Return a text without surrounding spaces; refuse control characters and wrong lengths."""
    text = text.strip()
    if not least <= len(text) <= longest:
        raise LabelingError(f"{what} has {len(text)} characters, expected {least} to {longest}")
    if any(map(is_control, text)):
        raise LabelingError(f"{what} has a line break or another control character: remove it")
    return text


def as_one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return a text of the data on one line: control characters become spaces, the end is cut."""
    return "".join(" " if is_control(each) else each for each in text[:longest]).strip()


def is_control(letter: str) -> bool:
    """Whether a character is a control character, a line break or half of a character."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")


# -- lines -----------------------------------------------------------------------------------------


def as_cells(event: Event) -> list[str]:
    """Return the cells of an event."""
    return ["" if value is None else str(value) for value in event]


def event_of(cells: Sequence[str]) -> Event:
    """Return the event with some cells; refuse an invalid one."""
    if len(cells) != len(COLUMNS):
        raise LabelingError(f"it has {len(cells)} fields, expected {len(COLUMNS)}")
    values: dict[str, Any] = dict(zip(COLUMNS, cells, strict=True))
    for name, (pattern, form) in FORMS.items():
        if not re.fullmatch(pattern, values[name]):
            raise LabelingError(f"{name} is {values[name]!r:.40}, expected {form}")
    for name, longest in LONGEST.items():
        values[name] = one_line(values[name], name, longest)
    values["person"] = checked_name(values["person"])
    if values["event"] in WITH_LABEL:
        values["label"] = checked_label(values["label"])
    elif values["label"]:
        raise LabelingError(
            f"{values['event']} has the label {values['label']!r:.40}, expected none"
        )
    values["row"] = int(values["row"])
    values["probability"] = float(values["probability"]) if values["probability"] else None
    return Event(**values)


def line(cells: Iterable[str]) -> bytes:
    """Return a line of a CSV, in which no cell is a formula."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(map(safe_cell, cells))
    return text.getvalue().encode()


def read_lines(content: bytes) -> list[list[str]]:
    """Return the cells of lines that `line` or a spreadsheet has written."""
    rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    return [[*map(read_safe_cell, row)] for row in rows]


# -- the file --------------------------------------------------------------------------------------


class LabelLog:
    """The label log in a file, which is created if it does not exist.

    ``events`` are those on the disk, and ``repaired`` is the number of bytes of an unfinished last
    line that was removed.
    """

    def __init__(self, path: Path, id_name: str = "id", label_name: str = "label"):
        self.path = path
        self.header = log_columns(id_name, label_name)
        target = real_path(path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(target, flags, 0o666)
        try:
            content = target.read_bytes()
            self.events, end = parsed_log(content, self.header, path)
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
            self.close()
            raise

    def append(self, event: Event) -> None:
        """Append an event and sync it to the disk. If that fails, the log is unchanged."""
        cells = as_cells(event)
        if event_of(cells) != event:
            raise LabelingError(f"{event.event} of row {event.row} is not in its usual form")
        self._write(line(cells))
        self.events.append(event)

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
    for name in names.values():
        if found.count(name) > 1:
            raise LabelingError(
                f"the label log has another column {name!r}: rename that column of the data."
            )
    return found


def parsed_log(content: bytes, names: Sequence[str], path: Path) -> tuple[list[Event], int]:
    """Return the events of a log, and the number of bytes that are whole lines.

    A last line without an end is whole if it is an event; then a spreadsheet has written it.
    """
    end = content.rstrip(b"\x00").rfind(b"\n") + 1  # a crash may leave zeros
    if not end and line(names).startswith(content.rstrip(b"\x00")):
        return [], 0  # a new file, or an unfinished header
    try:
        header, *rows = read_lines(content[:end]) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabelingError(
            f"{path} is not a CSV in UTF-8 ({error}): restore it from a copy."
        ) from None
    if header != list(names):
        raise LabelingError(
            f"{path} has the columns {', '.join(header)[:200]}, expected {', '.join(names)}: name "
            "another file with --labels."
        )
    events = []
    for number, row in enumerate(rows, 2):
        try:
            if any(row):
                events.append(event_of(row))
        except LabelingError as error:
            raise LabelingError(
                f"{path}, line {number}: {error}. Correct the line, or restore the file."
            ) from None
    try:
        for row in read_lines(content[end:]):
            events.append(event_of(row))
            end = len(content)
    except (UnicodeDecodeError, csv.Error, LabelingError):
        pass  # unfinished, and never confirmed
    return events, end

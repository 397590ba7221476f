"""The label log: an append-only CSV. Every event is on the disk before it is confirmed.

One line is one event. A line is appended by one write and synced. A process that is killed can
therefore leave at most one unfinished line, the last one, which was never confirmed; it is removed
when the log is opened again.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from seqmed.labeling.events import Event, LabelingError, RowKey, checked_event
from seqmed.model_file.files import real_path, sync_folder
from seqmed.tables.cells import read_safe_cell, safe_cell

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
        self.header = header(id_name, label_name)
        target = real_path(path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(target, flags, 0o666)
        try:
            content = read_all(self._file)
            self.events, end = parse(content, self.header, path)
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


def header(id_name: str, label_name: str) -> list[str]:
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


def parse(content: bytes, names: Sequence[str], path: Path) -> tuple[list[Event], int]:
    """Return the events of a log, and the number of bytes that are whole lines.

    A last line without an end is whole if it has all its fields; then a spreadsheet has written it.
    """
    end = whole_lines(content)
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


def whole_lines(content: bytes) -> int:
    """Return the number of bytes that are whole lines; zeros that a crash left are no line."""
    return content.rstrip(b"\x00").rfind(b"\n") + 1


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

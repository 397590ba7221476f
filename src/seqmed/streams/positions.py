"""Positions in files, and where to resume reading in each file.

A file is identified by its path. The rows that were read must still be there, unchanged: a text has
the same bytes at its beginning, a file of a binary format the same size and modification time.
Otherwise the file is refused. A file that was moved or renamed is a new one.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Self, TypeVar, get_args, get_origin

from seqmed.numeric.annotations import field_types, is_record, of_type
from seqmed.streams.faults import StreamError
from seqmed.streams.inputs import ARROW, PARQUET, Input, accessing
from seqmed.tables.messages import shown

# Clocks of file systems are coarse: a file modified less than this many ns ago may be modified
# again without a change of its modification time.
CLOCK_TICK = 2 * 10**9
DIGEST = re.compile(r"[0-9a-f]{64}")
COUNTS = ("rows", "offset", "size", "modified")
BINARY = (PARQUET, ARROW)
Kind = TypeVar("Kind")
# Fields that files of earlier versions do not have.
ADDED = {"batches_before", "spelling"}


@dataclass(frozen=True)
class FilePosition:
    """Position in one file."""

    path: str  # absolute and without links
    rows: int = 0  # rows read, including bad ones
    offset: int = 0  # bytes read of the text in UTF-8, not compressed; 0 in binary formats
    digest: str = hashlib.sha256().hexdigest()  # of these bytes, with the header
    size: int = 0  # in bytes, when the file was opened
    modified: int = 0  # time in ns, then; 0 if the content of a text has to be compared
    finished: bool = False  # whether the file was read to its end


@dataclass(frozen=True)
class Position:
    """Positions in all files that were ever part of a stream, in order."""

    files: tuple[FilePosition, ...] = ()

    def with_file(self, file: FilePosition) -> Position:
        """Return the position with one file replaced or added."""
        files = {each.path: each for each in self.files} | {file.path: file}
        return Position(tuple(files.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return the position as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a position that was stored by `to_dict`; refuse anything else."""
        position = read_stored(cls, data, "position")
        for each in position.files:
            valid = {name: getattr(each, name) >= 0 for name in COUNTS}
            valid["digest"] = DIGEST.fullmatch(each.digest) is not None
            valid["path"] = bool(each.path) and "\0" not in each.path
            for name, holds in valid.items():
                if not holds:
                    refuse_stored("position", name, getattr(each, name))
        paths = [each.path for each in position.files]
        if len(set(paths)) < len(paths):
            refuse_stored("position", "files", paths)
        return position


def stamp(path: Path) -> tuple[int, int]:
    """Return the size and modification time of a file as it is now, as in `FilePosition`."""
    with accessing(path):
        status = path.stat()
    return status.st_size, max(status.st_mtime_ns, 0)


class Cursor:
    """Position in an open file, at first after the rows that were read before.

    ``rows`` and ``offset`` are those of `FilePosition`, and ``content`` is the SHA-256 of the bytes
    read; it is updated with those before ``offset`` when they are skipped.
    """

    def __init__(self, source: Input, done: FilePosition):
        self.source, self.digest = source, done.digest
        self.rows, self.offset = done.rows, done.offset if done.rows else 0
        self.content = hashlib.sha256()
        self._size, self._modified = stamp(Path(source.key)) if source.resumable else (0, 0)
        recent = time.time_ns() - self._modified < CLOCK_TICK
        if recent and source.kind not in BINARY:
            self._modified = 0

    def advance(self, rows: int, raw: memoryview) -> None:
        """Move forward by some rows, whose bytes in a text are ``raw``."""
        self.content.update(raw)
        self.offset += len(raw)
        self.rows += rows

    def position(self, *, finished: bool, deferred: bool = False) -> FilePosition:
        """Return the position. After a deferred line, the next run compares the content."""
        modified = 0 if deferred else self._modified
        return FilePosition(
            self.source.key, self.rows, self.offset, self.content.hexdigest(), self._size,
            modified, finished,
        )  # fmt: skip


def plan(
    sources: Sequence[Input], position: Position, again: bool
) -> tuple[list[FilePosition | None], Position]:
    """Return where to begin in each source, and a position that includes new files.

    The beginning is None if the source has been read to its end and not been modified since. A
    binary file that has changed is refused here, a text when it is opened.
    With ``again``, finished files are read again, and changed files from their beginning. If the
    previous run was interrupted, that run is completed instead.
    """
    files = {each.key: FilePosition(each.key) for each in sources if each.resumable}
    records = {each.path: each for each in position.files}
    if again and all(each.finished for path, each in records.items() if path in files):
        records = {path: each for path, each in records.items() if path not in files}
    starts: list[FilePosition | None] = []
    for source in sources:
        done = records.get(source.key, FilePosition(source.key))
        untouched = is_untouched(source, done)
        if done.rows and source.kind in BINARY and not untouched:
            raise changed(source, done.rows)
        starts.append(None if done.finished and untouched else done)
    records = {path: each for path, each in records.items() if each.rows or os.path.exists(path)}
    new = {path: each for path, each in files.items() if path not in records}
    return starts, Position(tuple((records | new).values()))


def is_untouched(source: Input, done: FilePosition) -> bool:
    """Whether a file has the size and the modification time of a position in it."""
    known = source.resumable and done.modified != 0
    return known and stamp(Path(source.key)) == (done.size, done.modified)


def changed(source: Input, rows: int) -> StreamError:
    """Return the error for a file whose rows that were read have changed."""
    time_too = " with its modification time" if source.kind in BINARY else ""
    return StreamError(
        f"{source.name} has changed within the first {rows} rows, which have been read: restore "
        f"it{time_too}, put new rows in a new file, or start a new model."
    )


# -- what is stored with a model -------------------------------------------------------------------


def read_stored(kind: type[Kind], data: Any, what: str) -> Kind:
    """Return a dataclass from a stored result of `dataclasses.asdict`.

    Fields are refused unless they are of their annotated types. Lists are read as tuples. Fields
    in `ADDED` may be missing.
    """
    types = field_types(kind)
    if not isinstance(data, dict) or not types.keys() - ADDED <= set(data) <= types.keys():
        got = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise StreamError(
            f"the stored {what} has {got}, expected {sorted(types)}: the file is damaged or of "
            "another version. Start a new model."
        )
    found = {name: nested(types[name], data[name], what) for name in data}
    for name, value in found.items():
        if not of_type(value, types[name]):
            refuse_stored(what, name, value)
    return kind(**found)


def nested(hint: Any, value: Any, what: str) -> Any:
    """Return a stored value with its lists as tuples and its dictionaries as records."""
    for each in get_args(hint) if get_origin(hint) is UnionType else (hint,):
        if is_record(each) and value is not None:
            read = getattr(each, "from_dict", None)
            return read(value) if read else read_stored(each, value, what)
        if get_origin(each) is tuple and isinstance(value, list | tuple):
            return tuple(nested(get_args(each)[0], part, what) for part in value)
    return value


def refuse_stored(what: str, name: str, value: Any) -> None:
    """Refuse a stored value."""
    raise StreamError(
        f"the stored {what} has {name}={shown(value)}, which is not valid: the model file is "
        "damaged. Restore it from a copy, or start a new model."
    )

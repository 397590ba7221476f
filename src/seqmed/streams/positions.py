"""Positions in files, and where to resume reading in each file.

A file is recognised by its content: the part that was read must still be there, unchanged. A file
at a known path with other content is refused. A file that was moved or renamed is recognised if its
old path has no file, or a file with other content.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from seqmed.streams.errors import StreamError, listed, notice, refusing
from seqmed.streams.files import Input, accessing, as_utf8, opened
from seqmed.streams.formats import BINARY, open_table
from seqmed.streams.limits import BLOCK
from seqmed.streams.stored import read_stored, refuse_stored
from seqmed.streams.tables import ReadOptions, Start

# Clocks of file systems are coarse: a file modified less than this many ns ago may be modified
# again without a change of its modification time.
CLOCK_TICK = 2 * 10**9
DIGEST = re.compile(r"[0-9a-f]{64}")
COUNTS = ("rows", "offset", "size", "modified")


@dataclass(frozen=True)
class FilePosition:
    """Position in one file.

    Parameters
    ----------
    path : the file, absolute and without links.
    rows : rows read, including bad ones.
    offset : bytes read, of the uncompressed text in UTF-8 or of the codes of the rows.
    digest : SHA-256 of the first ``offset`` bytes of a text, header included. In binary formats,
        SHA-256 of the codes of the rows (`row_codes`), because the same rows can be stored in many
        ways.
    size, modified : size and modification time in ns of the file when it was opened. A time of 0
        means that the content has to be compared.
    finished : whether the file was read to its end.
    """

    path: str
    rows: int = 0
    offset: int = 0
    digest: str = hashlib.sha256().hexdigest()
    size: int = 0
    modified: int = 0
    finished: bool = False


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


class Stamp(NamedTuple):
    """Size and modification time of a file, as in `FilePosition`."""

    size: int
    modified: int


def stamp(path: Path) -> Stamp:
    """Return the stamp of a file as it is now."""
    with accessing(path):
        status = path.stat()
    old = time.time_ns() - status.st_mtime_ns > CLOCK_TICK
    return Stamp(status.st_size, max(status.st_mtime_ns, 0) if old else 0)


class Cursor:
    """Position in an open file.

    Parameters
    ----------
    source : the file or pipe.
    start : where reading begins.
    content : hash of everything before that.
    """

    def __init__(self, source: Input, start: Start, content: Any):
        self.rows, self._offset = start.rows, start.offset
        self._path, self._content = source.key, content
        self._stamp = stamp(Path(source.key)) if source.resumable else Stamp(0, 0)

    def advance(self, rows: int, raw: memoryview) -> None:
        """Move forward by some rows, whose hashed bytes are ``raw``."""
        self._content.update(raw)
        self._offset += len(raw)
        self.rows += rows

    def position(self, *, finished: bool, deferred: bool = False) -> FilePosition:
        """Return the position. After a deferred line, the next run compares the content."""
        size, modified = self._stamp
        return FilePosition(
            self._path, self.rows, self._offset, self._content.hexdigest(), size,
            0 if deferred else modified, finished,
        )  # fmt: skip


class PlannedRead(NamedTuple):
    """A file or pipe to read.

    Parameters
    ----------
    source : the file or pipe.
    start : where to begin.
    content : hash of everything before that; None if the file has been read to its end and has not
        been modified since.
    """

    source: Input
    start: Start
    content: Any


def plan(
    inputs: Sequence[Input], position: Position, again: bool, options: ReadOptions
) -> tuple[list[PlannedRead], Position]:
    """Return the planned reads, and a position that includes new files, at their beginning.

    Parameters
    ----------
    inputs : the files and pipes of the stream.
    position : position of the previous run.
    again : whether to read finished files again, and changed files from their beginning. If the
        previous run was interrupted, that run is completed instead.
    options : how inputs are read.
    """
    files = [each for each in inputs if each.resumable]
    known = {each.path: each for each in position.files}
    reads, places = recognise(files, known, options)
    changed = [each for each in files if each.key in known and each.key not in places]
    found = [known[path] for path in (*places, *(each.key for each in changed))]
    if again and all(each.finished for each in found):
        reads, places, changed = {}, {}, []
        keys = {each.key for each in files}
        position = Position(tuple(each for each in position.files if each.path not in keys))
    if changed:
        name, rows = changed[0].name, known[changed[0].key].rows
        raise StreamError(
            f"{name} has changed within the first {rows} rows, which have been read: restore it, "
            "put new rows in a new file, or start a new model."
        )
    moved = [f"{new} (before: {old})" for old, new in places.items() if old != new]
    if moved:
        notice(f"moved or renamed files are not read again: {listed(moved)}.")
    records = {}
    for record in position.files:
        path = places.get(record.path, record.path)
        if record.rows or os.path.exists(path):
            records[path] = replace(record, path=path)
    for each in files:
        if each.key not in reads:
            records[each.key] = FilePosition(each.key)
    begun = {each.key: PlannedRead(each, Start(), hashlib.sha256()) for each in inputs} | reads
    return [begun[each.key] for each in inputs], Position(tuple(records.values()))


def recognise(
    files: Sequence[Input], known: dict[str, FilePosition], options: ReadOptions
) -> tuple[dict[str, PlannedRead], dict[str, str]]:
    """Return the reads that resume known files, and new paths of moved files by their old path."""
    reads: dict[str, PlannedRead] = {}
    places: dict[str, str] = {}
    for each in files:
        if each.key in known and (read := resumed(each, known[each.key], options)):
            reads[each.key], places[each.key] = read, each.key
    others = {each.key: each for each in files if each.key not in reads}
    vacant = {
        path: record
        for path, record in known.items()
        if others and record.rows and (path in others or not os.path.exists(path))
    }
    for each in others.values():
        for path, record in vacant.items():
            if may_be(each, record) and (read := resumed(each, record, options)):
                reads[each.key], places[path] = read, each.key
                del vacant[path]
                break
    return reads, places


def may_be(source: Input, record: FilePosition) -> bool:
    """Whether a file has the name, with or without .gz, or the size of a known file."""
    path = Path(source.key)
    names = {Path(each).name.removesuffix(".gz") for each in (path, record.path)}
    return len(names) == 1 or stamp(path).size == record.size


def resumed(source: Input, record: FilePosition, options: ReadOptions) -> PlannedRead | None:
    """Return the read that resumes a file; None if the part that was read has changed."""
    untouched = record.modified and stamp(Path(source.key)) == (record.size, record.modified)
    if record.finished and untouched and source.key == record.path:
        return PlannedRead(source, Start(), None)
    lines = 0
    if source.kind in BINARY:
        content = hash_of_rows(source, record.rows, options)
    else:
        content, lines = hash_of_text(source, record.offset, options)
    if content is None or content.hexdigest() != record.digest:
        return None
    return PlannedRead(source, Start(record.rows, record.offset, lines), content)


def hash_of_text(source: Input, size: int, options: ReadOptions) -> tuple[Any, int]:
    """Return the hash of the first ``size`` bytes of a text, and the number of lines in them.

    The hash is None if the text is shorter, or if the line at the end has become longer.
    """
    content, lines, last = hashlib.sha256(), 0, b"\n"
    with opened(source, options.limits) as file, refusing(source.name, "text"):
        handle, _ = as_utf8(file, options.dialect.encoding, source.name)
        while size:
            block = handle.read(min(size, BLOCK))
            if not block:
                return None, 0
            content.update(block)
            lines, last = lines + block.count(b"\n"), block[-1:]
            size -= len(block)
        longer = last != b"\n" and handle.read(1) not in (b"", b"\r", b"\n")
    return (None, 0) if longer else (content, lines)


def hash_of_rows(source: Input, rows: int, options: ReadOptions) -> Any:
    """Return the hash of the first rows of a binary file, None if there are fewer."""
    content = hashlib.sha256()
    if not rows:
        return content
    with open_table(source, options) as table:
        for piece in table.pieces(Start()):
            size = min(rows, piece.ends.size)
            content.update(piece.part(0, size))
            rows -= size
            if not rows:
                return content
    return None

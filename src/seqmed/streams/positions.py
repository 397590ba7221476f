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
from typing import Any, NamedTuple, Self, TypeVar, get_args, get_origin

from seqmed.model_file.annotations import field_types, is_record, of_type
from seqmed.streams import inputs
from seqmed.streams.faults import StreamError, notice, refusing
from seqmed.streams.inputs import ARROW, PARQUET, Input, accessing, as_utf8, opened
from seqmed.streams.pieces import Start
from seqmed.tables.messages import shown

# Clocks of file systems are coarse: a file modified less than this many ns ago may be modified
# again without a change of its modification time.
CLOCK_TICK = 2 * 10**9
DIGEST = re.compile(r"[0-9a-f]{64}")
COUNTS = ("rows", "offset", "size", "modified")
BINARY = (PARQUET, ARROW)
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class FilePosition:
    """Position in one file.

    Parameters
    ----------
    path : the file, absolute and without links.
    rows : rows read, including bad ones.
    offset : bytes read of the uncompressed text in UTF-8; 0 in binary formats.
    digest : SHA-256 of these bytes, header included.
    size, modified : size and modification time in ns of the file when it was opened. For a text, a
        time of 0 means that the content has to be compared.
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
    return Stamp(status.st_size, max(status.st_mtime_ns, 0))


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
        recent = time.time_ns() - self._stamp.modified < CLOCK_TICK
        if recent and source.kind not in BINARY:
            self._stamp = self._stamp._replace(modified=0)

    def advance(self, rows: int, raw: memoryview) -> None:
        """Move forward by some rows, whose bytes in a text are ``raw``."""
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
    sources: Sequence[Input], position: Position, again: bool, encoding: str | None
) -> tuple[list[PlannedRead], Position]:
    """Return the planned reads, and a position that includes new files, at their beginning.

    Parameters
    ----------
    sources : the files and pipes of the stream.
    position : position of the previous run.
    again : whether to read finished files again, and changed files from their beginning. If the
        previous run was interrupted, that run is completed instead.
    encoding : encoding of texts that the user has chosen.
    """
    files = {each.key: each for each in sources if each.resumable}
    records = {each.path: each for each in position.files}
    known = [each for key, each in records.items() if key in files]
    if again and all(each.finished for each in known):
        records = {path: each for path, each in records.items() if path not in files}
        known = []
    reads = {}
    for record in known:
        source = files[record.path]
        read = resumed(source, record, encoding)
        if read is None:
            time_too = " with its modification time" if source.kind in BINARY else ""
            raise StreamError(
                f"{source.name} has changed within the first {record.rows} rows, which have been "
                f"read: restore it{time_too}, put new rows in a new file, or start a new model."
            )
        reads[record.path] = read
    warn_of_moved([each for key, each in files.items() if key not in records], position)
    records = {path: each for path, each in records.items() if each.rows or os.path.exists(path)}
    records |= {key: FilePosition(key) for key in files if key not in records}
    begun = {each.key: PlannedRead(each, Start(), hashlib.sha256()) for each in sources} | reads
    return [begun[each.key] for each in sources], Position(tuple(records.values()))


def warn_of_moved(new: Sequence[Input], position: Position) -> None:
    """Tell of new files that may be moved ones, whose rows are read again."""
    gone = {
        each.size: each.path
        for each in position.files
        if each.rows and not os.path.exists(each.path)
    }
    for each in new:
        old = gone.get(stamp(Path(each.key)).size)
        if old is not None:
            notice(
                f"{each.name} is a new file and is read from its beginning. It has the size of "
                f"{old}, which was read and is no longer there: if it was moved, move it back."
            )


def resumed(source: Input, record: FilePosition, encoding: str | None) -> PlannedRead | None:
    """Return the read that resumes a file; None if the part that was read has changed.

    Parameters
    ----------
    source : the file.
    record : the position in it.
    encoding : encoding of a text that the user has chosen.
    """
    untouched = record.modified and stamp(Path(source.key)) == (record.size, record.modified)
    if record.finished and untouched:
        return PlannedRead(source, Start(), None)
    content, lines = hashlib.sha256(), 0
    if source.kind in BINARY:
        if record.rows and not untouched:
            return None
    else:
        content, lines = hash_of_text(source, record.offset, encoding)
        if content is None or content.hexdigest() != record.digest:
            return None
    return PlannedRead(source, Start(record.rows, record.offset, lines), content)


def hash_of_text(source: Input, size: int, encoding: str | None) -> tuple[Any, int]:
    """Return the hash of the first ``size`` bytes of a text, and the number of lines in them.

    The hash is None if the text is shorter, or if the line at the end has become longer.
    """
    content, lines, last = hashlib.sha256(), 0, b"\n"
    with opened(source) as file, refusing(source.name, "text"):
        handle, _ = as_utf8(file, encoding, source.name)
        while size:
            block = handle.read(min(size, inputs.BLOCK))
            if not block:
                return None, 0
            content.update(block)
            lines, last = lines + block.count(b"\n"), block[-1:]
            size -= len(block)
        longer = last != b"\n" and handle.read(1) not in (b"", b"\r", b"\n")
    return (None, 0) if longer else (content, lines)


# -- what is stored with a model -------------------------------------------------------------------


def read_stored(kind: type[Kind], data: Any, what: str) -> Kind:
    """Return a dataclass from a stored result of `dataclasses.asdict`.

    Fields are refused unless they are of their annotated types. Lists are read as tuples.
    """
    types = field_types(kind)
    if not isinstance(data, dict) or set(data) != set(types):
        got = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise StreamError(
            f"the stored {what} has {got}, expected {sorted(types)}: the file is damaged or of "
            "another version. Start a new model."
        )
    found = {name: nested(types[name], data[name], what) for name in types}
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

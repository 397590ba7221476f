"""Positions: how far files have been read, with hashes by which they are recognised."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from seqmed.streams.errors import read_fields, refuse_stored
from seqmed.streams.files import accessing

# A file that was written to this short a time ago, in ns, may be written to again without its time
# of modification showing it: clocks of file systems tick slowly.
SETTLED = 2 * 10**9
DIGEST = re.compile(r"[0-9a-f]{64}")
LARGEST = 2**63


class Stamp(NamedTuple):
    """Size of a file and when it was modified, in ns; 0 if it is to be read again in any case."""

    size: int
    modified: int


def stamp(path: Path) -> Stamp:
    """Return the stamp of a file as it is now."""
    with accessing(path):
        status = path.stat()
    settled = time.time_ns() - status.st_mtime_ns > SETTLED
    return Stamp(status.st_size, max(status.st_mtime_ns, 0) if settled else 0)


def fresh_hash() -> Any:
    """Return the hash of nothing, to be updated with what is read."""
    return hashlib.sha256()


@dataclass(frozen=True)
class FilePosition:
    """How far one file has been read.

    Parameters
    ----------
    path : the file, absolute and without links.
    rows : rows read, bad ones included.
    offset : bytes read, of the uncompressed text or of the rows' values; see ``digest``.
    digest : SHA-256 of the first ``offset`` bytes of a text, header included. Binary formats can
        store the same rows in many ways: there it is that of the values of the rows read.
    size, modified : the stamp of the file when it was opened.
    finished : whether it was read to its end.
    """

    path: str
    rows: int = 0
    offset: int = 0
    digest: str = hashlib.sha256().hexdigest()
    size: int = 0
    modified: int = 0
    finished: bool = False

    @property
    def stamp(self) -> Stamp:
        """The stamp of the file when it was opened."""
        return Stamp(self.size, self.modified)

    def to_dict(self) -> dict[str, Any]:
        """Return the position as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a position that was stored; refuse anything else."""
        what = "position"
        fields = read_fields(
            data, what, path=str, rows=int, offset=int, digest=str, size=int, modified=int,
            finished=bool,
        )  # fmt: skip
        for name in ("rows", "offset", "size", "modified"):
            if not 0 <= fields[name] < LARGEST:
                refuse_stored(what, name, fields[name])
        if not DIGEST.fullmatch(fields["digest"]):
            refuse_stored(what, "digest", fields["digest"])
        if not fields["path"] or "\0" in fields["path"]:
            refuse_stored(what, "path", fields["path"])
        return cls(**fields)


class Cursor:
    """How far a file has been read that is open now.

    Parameters
    ----------
    path : the file, as in `FilePosition`.
    rows, offset : how far it had been read when it was opened.
    content : the hash of all before that.
    opened : the stamp of the file, from before it was opened.
    """

    def __init__(self, path: str, rows: int, offset: int, content: Any, opened: Stamp):
        self.rows = rows
        self._path, self._offset, self._content, self._stamp = path, offset, content, opened

    def advance(self, rows: int, raw: memoryview) -> None:
        """Go on by some rows and the bytes they are known by."""
        self._content.update(raw)
        self._offset += len(raw)
        self.rows += rows

    def distrust(self) -> None:
        """Have the file looked at the next time even if it is as it was."""
        self._stamp = self._stamp._replace(modified=0)

    def position(self, finished: bool) -> FilePosition:
        """Return how far the file has been read."""
        digest = self._content.hexdigest()
        return FilePosition(self._path, self.rows, self._offset, digest, *self._stamp, finished)


@dataclass(frozen=True)
class Position:
    """How far a stream has been read: every file that was ever part of it, in order."""

    files: tuple[FilePosition, ...] = ()

    def find(self, path: str) -> FilePosition | None:
        """Return what is known of a file, None if nothing is."""
        return next((each for each in self.files if each.path == path), None)

    def with_file(self, file: FilePosition) -> Position:
        """Return the position with one file read further, or added."""
        if self.find(file.path) is None:
            return replace(self, files=(*self.files, file))
        return replace(
            self, files=tuple(file if each.path == file.path else each for each in self.files)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the position as plain values that JSON can hold."""
        return {"files": [each.to_dict() for each in self.files]}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a position that was stored by `to_dict`; refuse anything else."""
        fields = read_fields(data, "position", files=(list, tuple))
        files = tuple(map(FilePosition.from_dict, fields["files"]))
        if len({each.path for each in files}) < len(files):
            refuse_stored("position", "files", [each.path for each in files])
        return cls(files)

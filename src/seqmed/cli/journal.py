"""The log of learning: a line for every batch, written when the batch is safe, and only once."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from seqmed.cli.errors import naming

FIRST = b'{"batch": '  # how every line begins


class Pending(NamedTuple):
    """Lines of the last checkpoint, which may not have reached the log.

    They are saved with the model and written after it. Whoever goes on from that model writes what
    is missing of them first: so the log has every batch that the model has learned, and no other.

    Parameters
    ----------
    path : the log, absolute and without links.
    text : whole lines.
    """

    path: str
    text: str


def is_log(path: Path) -> bool:
    """Whether a file is a log, or the beginning of one."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return FIRST.startswith(file.read(len(FIRST)))


def append(pending: Pending) -> None:
    """Write lines at the end of their log, or the rest of them if it ends with a part of them."""
    content = pending.text.encode()
    with naming(pending.path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(pending.path, flags, 0o666)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                content = content[written(Path(pending.path), content) :]
            while content:
                content = content[os.write(descriptor, content) :]
        finally:
            os.close(descriptor)


def written(path: Path, content: bytes) -> int:
    """Return how many bytes of the content a file ends with.

    The first line is searched for as a whole, so that long content takes linear time.
    """
    with open(path, "rb") as file:
        file.seek(-min(len(content), os.fstat(file.fileno()).st_size), os.SEEK_END)
        tail = file.read()
    line = content[: content.find(b"\n") + 1]
    start = tail.find(line) if line else -1
    while start >= 0:
        if content.startswith(tail[start:]):
            return len(tail) - start
        start = tail.find(line, start + 1)
    sizes = range(min(len(tail), len(line)), -1, -1)
    return next(size for size in sizes if tail.endswith(line[:size]))

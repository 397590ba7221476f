"""The log of `seqmed learn`: one line per batch, written once, after the batch has been saved."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from seqmed.cli.errors import naming_file

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
    with naming_file(pending.path):
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
    """Return how many bytes of the content a file ends with."""
    with open(path, "rb") as file:
        file.seek(-min(len(content), os.fstat(file.fileno()).st_size), os.SEEK_END)
        tail = file.read()
    line = content[: content.find(b"\n") + 1]
    start = tail.find(line) if line else 0
    # without the first line there can only be a part of it
    tail = tail[start:] if start >= 0 else tail[len(tail) - min(len(tail), len(line)) :]
    return len(tail) if content.startswith(tail) else overlap(tail, content)


def overlap(text: bytes, pattern: bytes) -> int:
    """Return how many bytes of a pattern a text ends with, in linear time.

    By the algorithm of Knuth, Morris and Pratt: ``borders[i]`` is the length of the longest part
    that the first i bytes of the pattern both begin and end with.
    """
    borders = [0, 0]
    for byte in pattern[1 : len(text)]:
        borders.append(longer_match(pattern, borders, borders[-1], byte))
    size = 0
    for byte in text:
        size = longer_match(pattern, borders, borders[size] if size == len(pattern) else size, byte)
    return size


def longer_match(pattern: bytes, borders: list[int], size: int, byte: int) -> int:
    """Return the length of the match, so far of ``size`` bytes, after one more byte of the text."""
    while size and pattern[size] != byte:
        size = borders[size]
    return size + 1 if pattern[size] == byte else 0

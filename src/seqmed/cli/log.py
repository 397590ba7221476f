"""The log of `seqmed learn`: a JSON line for every batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from seqmed.cli.errors import naming_file

FIRST = b'{"batch": '  # the beginning of every line of a log


@dataclass(frozen=True)
class PendingLines:
    """Lines of a log that are saved with the model and then appended to the log.

    If a run is interrupted between the two steps, the next run appends the missing lines. The log
    therefore has exactly one line per learned batch.

    Parameters
    ----------
    path : the log, absolute and without links.
    start : size of the log before the lines, in bytes.
    text : whole lines.
    """

    path: str
    start: int
    text: str

    @classmethod
    def after(cls, path: str, text: str) -> Self:
        """Return lines to be appended to a log as it is now."""
        regular = os.path.isfile(path)
        return cls(path, os.path.getsize(path) if regular else 0, text)

    def append(self) -> None:
        """Append the lines that the log does not have yet."""
        content = self.text.encode()
        with naming_file(self.path), open(self.path, "ab", buffering=0) as log:
            if os.path.isfile(self.path):
                with open(self.path, "rb") as before:
                    before.seek(self.start)
                    found = before.read()
                content = b"" if content in found else content.removeprefix(found)
            while content:
                content = content[log.write(content) :]


def is_log(path: Path) -> bool:
    """Whether a file is a log, or the beginning of one."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return FIRST.startswith(file.read(len(FIRST)))

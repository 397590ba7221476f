"""Handling of closed or full standard streams and of broken pipes."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

BROKEN_PIPE = 141  # 128 + SIGPIPE, as in shells


class Results(io.FileIO):
    """Standard output. If the reader of the pipe has ended, the command ends as after SIGPIPE."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            discard(self.fileno())
            if isinstance(error, BrokenPipeError):
                raise SystemExit(BROKEN_PIPE) from None
            raise OSError(error.errno, error.strerror, "standard output") from None


class Messages(io.FileIO):
    """Standard error. Messages that cannot be written are dropped."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            discard(self.fileno())
            return len(content)


def discard(descriptor: int) -> None:
    """Redirect a descriptor, and its buffered output, to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def prepare() -> None:
    """Replace standard streams for a command."""
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass  # the number of a closed standard stream must not be given to another file
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = replaced(sys.stdout, Results(1, "w", closefd=False))
    if sys.stderr is sys.__stderr__:
        sys.stderr = replaced(sys.stderr, Messages(2, "w", closefd=False))


def replaced(before: TextIO | None, raw: io.FileIO) -> TextIO:
    """Return a text stream over a descriptor; characters that cannot be encoded are escaped."""
    if before is not None:
        before.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=raw.isatty(),
    )

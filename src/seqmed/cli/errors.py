"""Errors and warnings of commands, in one line each, and exit codes."""

from __future__ import annotations

import errno
import os
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from seqmed.cli.standard_streams import BROKEN_PIPE
from seqmed.cli.terminal import say

if TYPE_CHECKING:
    from seqmed.streams import StreamBatch

DEFECT, REFUSED, INTERRUPTED = 1, 2, 130
# What the system says when there is no room: disk, quota, limit on the size of a file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CommandError(ValueError):
    """Something the command will not do: what, why, and what to do instead."""


@contextmanager
def reported_errors(debug: bool) -> Iterator[None]:
    """Turn errors into one line and an exit code, and warnings into lines.

    Parameters
    ----------
    debug : whether to show tracebacks, and warnings that are for programmers.
    """
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        warnings.simplefilter("default" if debug else "ignore")
        warnings.simplefilter("default", UserWarning)
        try:
            yield
        except BrokenPipeError:
            raise SystemExit(BROKEN_PIPE) from None
        except KeyboardInterrupt as error:
            fail(str(error) or "interrupted.", INTERRUPTED, debug)
        except MemoryError:
            fail("there is not enough memory: make batches smaller.", REFUSED, debug)
        except OSError as error:
            fail(system_error(error), REFUSED, debug)
        except (ValueError, ImportError) as error:
            fail(str(error), REFUSED, debug)
        except Exception as error:
            told = f"{type(error).__name__}: {error}. This is a defect: run the command again with "
            fail(f"{told}--debug, and report what it says.", DEFECT, debug)


def fail(message: str, code: int, debug: bool) -> None:
    """Say what went wrong and end with an exit code."""
    if debug:
        traceback.print_exc()
    say(f"seqmed: {message}")
    raise SystemExit(code) from None


def system_error(error: OSError) -> str:
    """Return what the system refused, and what to do about it."""
    place = error.filename if error.filename is not None else "the output"
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        remedy = "make room, and run the same command again: what was saved before is intact."
    elif error.errno == errno.EBADF:
        remedy = "it is closed, and the result could not be written: redirect it to a file."
    elif error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        remedy = "check the path."
    elif error.errno == errno.ELOOP:
        remedy = "remove the link, which leads back to itself, or choose another path."
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = "check the permissions, or choose another place."
    else:
        remedy = "check the device it is on."
    return f"{place}: {reason}: {remedy}"


@contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors of the system that do not, such as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


@contextmanager
def naming_rows(batch: StreamBatch, names: Sequence[str]) -> Iterator[None]:
    """Name the rows of a batch that a model refuses."""
    try:
        yield
    except ValueError as error:
        first, last = (f"{names[batch.file[at]]}, row {batch.row[at]}" for at in (0, -1))
        raise CommandError(
            f"the batch from {first} to {last} cannot be learned: {error}"
        ) from error


def show_warning(message: Any, *where: Any, **more: Any) -> None:
    """Show a warning as one line."""
    say(f"seqmed: warning: {message}")

"""Errors, warnings and exit codes of commands."""

from __future__ import annotations

import errno
import os
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from seqmed.cli.standard_streams import BROKEN_PIPE
from seqmed.cli.terminal import say, warn

if TYPE_CHECKING:
    from seqmed.streams import StreamBatch

DEFECT, REFUSED, INTERRUPTED = 1, 2, 130
# Errors for a full disk, a quota and a limit on file sizes.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CommandError(ValueError):
    """An error in the arguments, the data or the model of a command."""


@contextmanager
def reported_errors(debug: bool) -> Iterator[None]:
    """Report errors and warnings in one line each, and set the exit code.

    Parameters
    ----------
    debug : whether to show tracebacks and all warnings.
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
            fail("not enough memory: make batches smaller with --batch-size.", REFUSED, debug)
        except OSError as error:
            fail(system_error(error), REFUSED, debug)
        except (ValueError, ImportError) as error:
            fail(str(error), REFUSED, debug)
        except Exception as error:
            text = f"{type(error).__name__}: {error}. This is a bug: run the command again with "
            fail(f"{text}--debug, and report its output.", DEFECT, debug)


def fail(message: str, code: int, debug: bool) -> None:
    """Print an error and end the command."""
    if debug:
        traceback.print_exc()
    say(f"seqmed: {message}")
    raise SystemExit(code) from None


def system_error(error: OSError) -> str:
    """Return the message for an error of the operating system."""
    place = error.filename if error.filename is not None else "the output"
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        remedy = "free some space, and run the same command again: earlier saves are intact."
    elif error.errno == errno.EBADF:
        remedy = "the stream is closed: redirect it to a file."
    elif error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        remedy = "check the path."
    elif error.errno == errno.ELOOP:
        remedy = "remove the circular link, or choose another path."
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = "check the permissions, or choose another path."
    else:
        remedy = "check the device."
    return f"{place}: {reason}: {remedy}"


@contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the file name to system errors that lack it, such as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


@contextmanager
def naming_rows(batch: StreamBatch, names: Sequence[str]) -> Iterator[None]:
    """Add the first and last row of a batch to an error of the model."""
    try:
        yield
    except ValueError as error:
        first, last = (f"{names[batch.file[at]]}, row {batch.row[at]}" for at in (0, -1))
        raise CommandError(
            f"the batch from {first} to {last} cannot be learned: {error}"
        ) from error


def show_warning(message: Any, *where: Any, **more: Any) -> None:
    """Show a warning as one line."""
    warn(f"{message}")

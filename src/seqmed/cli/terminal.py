"""What a command says, and how it ends: results, messages, errors, exit codes, signals.

Results go to standard output; messages and progress go to standard error.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from seqmed.numeric.words import DeviceMemoryError, Shown

if TYPE_CHECKING:
    from seqmed.streams import Skipped, StreamBatch

# Seconds between two lines of progress without a terminal.
PAUSE = 10.0
# Width of a table that is not printed to a terminal.
WIDE = 10_000
# Exit codes; the last is 128 + SIGPIPE, as in shells.
DEFECT, REFUSED, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
EXIT_CODES = (
    "Exit codes: 0 success, 1 a defect in seqmed, 2 refused (arguments, data, model or disk), "
    "130 interrupted, 141 the reader of the output has closed it."
)
# Signals that end a command, besides Ctrl-C.
ENDING_SIGNALS = ("SIGTERM", "SIGHUP")
# What to do about an error of the operating system, by its number.
REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "free some space, and run the same command again: earlier saves are intact.",
    ),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR), "check the path."),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "check the permissions, or choose another path."
    ),
    errno.ELOOP: "remove the circular link, or choose another path.",
}


class Terminal(Console):
    """A console that ends the command if the reader of its output has ended."""

    def on_broken_pipe(self) -> None:
        """End with the exit code of shells; called by rich."""
        discard(self.file.fileno())
        raise SystemExit(BROKEN_PIPE)


MESSAGES = Terminal(stderr=True)


class Chosen:
    """Which messages are printed, as chosen by --quiet."""

    quiet = False


def say(message: str) -> None:
    """Print a message on one line to standard error, above a progress bar."""
    MESSAGES.print(Text(" ".join(message.split())), soft_wrap=True)


def tell(message: str) -> None:
    """Print a message, unless --quiet is set."""
    if not Chosen.quiet:
        say(message)


def warn(message: str) -> None:
    """Print a warning."""
    say(f"seqmed: warning: {message}")


def show(line: str) -> None:
    """Print a line of results."""
    Terminal().print(Text(line), soft_wrap=True)


def summarize(line: str) -> None:
    """Print a line of results, unless --quiet is set."""
    if not Chosen.quiet:
        show(line)


def show_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table of results."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(header):
        table.add_column(Text(name), justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Terminal(width=None if Terminal().is_terminal else WIDE).print(table)


def show_json(results: Mapping[str, Any]) -> None:
    """Print results as JSON."""
    print(json.dumps(results, indent=1, allow_nan=False), flush=True)


def percent(share: float | None) -> str:
    """Return a fraction in per cent."""
    return "unknown" if share is None else f"{100 * share:.1f} %"


def percent_range(low: float, high: float) -> str:
    """Return an interval of fractions in per cent."""
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def percent_with_interval(correct: int, total: int) -> str:
    """Return a fraction in per cent with its 95 % interval."""
    from seqmed.selection.measures import wilson_interval

    if not total:
        return "unknown"
    return f"{percent(correct / total)} ({percent_range(*wilson_interval(correct, total))})"


def duration(seconds: float) -> str:
    """Return a duration in words, rounded."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{max(seconds, 1.0):.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def tell_skipped(skipped: Skipped) -> None:
    """Print the number of skipped bad rows by reason, with an example."""
    for reason, count in skipped.counts.items():
        rows = counted(count, "bad row")
        say(f"skipped {rows}: {reason}; for example {skipped.examples[reason][0]}.")


class Reporter:
    """Progress: a bar on a terminal, a line every `PAUSE` seconds elsewhere, nothing with --quiet.

    Parameters
    ----------
    task : name of the work.
    wait : seconds before the first line.
    """

    def __init__(self, task: str, wait: float = PAUSE):
        self._task, self._start = task, time.monotonic()
        self._next = self._start + wait
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[text]}", markup=False),
            console=MESSAGES,
            disable=Chosen.quiet or not MESSAGES.is_terminal,
        )
        self._bar = self._progress.add_task(task, total=None, text="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def report(self, done: float | None, rows: int, text: str, unit: str = "rows") -> None:
        """Show progress.

        Parameters
        ----------
        done : fraction of the input whose rows are done; None if it is unknown.
        rows : rows or other units done in this run.
        text : what to show besides rows per second and the time left.
        unit : what ``rows`` are.
        """
        now = time.monotonic()
        total = None if done is None else 1.0
        self._progress.update(self._bar, total=total, completed=done)
        share = "" if done is None else f"{int(100 * done)}%, "  # 100% at the end only
        each = rows / max(now - self._start, 1e-3)
        speed = f"{each:,.0f} {unit}/s" if each >= 10 or not rows else f"{each:.2g} {unit}/s"
        remaining = self._progress.tasks[0].time_remaining
        left = f", {duration(remaining)} left" if remaining else ""
        line = f"{share}{text}, {speed}{left}"
        self._progress.update(self._bar, text=line)
        if now >= self._next and not MESSAGES.is_terminal:
            self._next = now + PAUSE
            tell(f"{self._task}: {line}")


# -- errors and warnings ---------------------------------------------------------------------------


class CommandError(ValueError):
    """An error in the arguments, the data or the model of a command."""


@contextmanager
def reported_errors(debug: bool) -> Iterator[None]:
    """Report errors and warnings in one line each, or with ``debug`` in full; set the exit code."""
    with warnings.catch_warnings(), shown_by_command():
        warnings.showwarning = lambda message, *where, **more: warn(f"{message}")
        warnings.simplefilter("default" if debug else "ignore")
        warnings.simplefilter("default", UserWarning)
        try:
            yield
        except BrokenPipeError:
            discard(1)
            raise SystemExit(BROKEN_PIPE) from None
        except KeyboardInterrupt as error:
            fail(str(error) or "interrupted.", INTERRUPTED, debug)
        except DeviceMemoryError as error:
            fail(str(error), REFUSED, debug)
        except MemoryError:
            fail("not enough memory: make batches smaller with --batch-size.", REFUSED, debug)
        except OSError as error:
            if error.filename is None:
                discard(1)
            fail(system_error(error), REFUSED, debug)
        except (ValueError, ImportError) as error:
            fail(str(error), REFUSED, debug)
        except Exception as error:
            text = f"{type(error).__name__}: {error}. This is a bug: run the command again with "
            fail(f"{text}--debug, and report its output.", DEFECT, debug)


@contextmanager
def shown_by_command() -> Iterator[None]:
    """Name options of the command line in messages, not parameters of Python."""
    before, Shown.by_command = Shown.by_command, True
    try:
        yield
    finally:
        Shown.by_command = before


def fail(message: str, code: int, debug: bool) -> None:
    """Print an error and end the command."""
    if debug:
        traceback.print_exc()
    say(f"seqmed: {message}")
    raise SystemExit(code) from None


def system_error(error: OSError) -> str:
    """Return the message for an error of the operating system."""
    place = error.filename if error.filename is not None else "standard output"
    remedy = REMEDIES.get(error.errno or 0, "check the device.")
    return f"{place}: {error.strerror or error}: {remedy}"


def discard(descriptor: int) -> None:
    """Redirect a descriptor, and what is still buffered for it, to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


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


# -- signals ---------------------------------------------------------------------------------------


def end_by_exception() -> None:
    """Make SIGTERM and SIGHUP end the command by an exception, so that temporary files are removed.

    Signals that are ignored, as with nohup, stay ignored.
    """
    for number in (getattr(signal, name) for name in ENDING_SIGNALS if hasattr(signal, name)):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def end(number: int, frame: Any) -> NoReturn:
    """End the command after a signal."""
    raise SystemExit(128 + number)


def keep_handlers() -> None:
    """Disable the signal handlers of pyarrow."""
    import pyarrow

    pyarrow.enable_signal_handlers(False)

"""What a command says, and how it ends: results, messages, errors, exit codes, signals.

Results go to standard output; messages and progress go to standard error.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from seqmed.streams import Skipped, StreamBatch

MESSAGES = Console(stderr=True)
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
# Errors for a full disk, a quota and a limit on file sizes.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Signals that end a command, and seconds until a lost signal is sent again.
ENDING_SIGNALS, INTERVAL = ("SIGTERM", "SIGHUP", "SIGINT"), 0.5


class Chosen:
    """Which messages are printed, as chosen by --verbose and --quiet."""

    verbose = quiet = False


def set_messages(*, verbose: bool, quiet: bool) -> None:
    """Choose which messages are printed."""
    if verbose and quiet:
        raise ValueError("--verbose and --quiet are given, expected one of them: leave one out.")
    Chosen.verbose, Chosen.quiet = verbose, quiet


def is_quiet() -> bool:
    """Whether only warnings and errors are printed, besides results."""
    return Chosen.quiet


def say(message: str) -> None:
    """Print a message on one line to standard error, above a progress bar."""
    MESSAGES.print(Text(" ".join(message.split())), soft_wrap=True)


def tell(message: str) -> None:
    """Print a message, unless --quiet is set."""
    if not Chosen.quiet:
        say(message)


def detail(message: str) -> None:
    """Print a message if --verbose is set."""
    if Chosen.verbose:
        say(message)


def warn(message: str) -> None:
    """Print a warning."""
    say(f"seqmed: warning: {message}")


def show(line: str) -> None:
    """Print a line of results."""
    Console().print(Text(line), soft_wrap=True)


def show_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table of results."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(header):
        table.add_column(Text(name), justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(width=None if Console().is_terminal else WIDE).print(table)


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
    """Progress: a bar on a terminal, and a line every `PAUSE` seconds elsewhere.

    Nothing is shown if --quiet is set, and every line if --verbose is set.

    Parameters
    ----------
    task : name of the work.
    wait : seconds before the first line.
    """

    def __init__(self, task: str, wait: float = PAUSE):
        self._task, self._start = task, time.monotonic()
        self._next = self._start + wait
        self._first: tuple[float, float] | None = None
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

    def report(self, done: float | None, rows: int, text: str) -> None:
        """Show progress.

        Parameters
        ----------
        done : fraction of the input whose rows are done; None if it is unknown.
        rows : rows done in this run.
        text : what to show besides rows per second and the time left.
        """
        now = time.monotonic()
        share = "" if done is None else f"{int(100 * done)}%, "  # 100% at the end only
        speed = f"{rows / max(now - self._start, 1e-3):,.0f} rows/s"
        line = f"{share}{text}, {speed}{self._time_left(done, now)}"
        total = None if done is None else 1.0
        self._progress.update(self._bar, total=total, completed=done, text=line)
        if Chosen.verbose:
            say(f"{self._task}: {line}")
        elif now >= self._next and not MESSAGES.is_terminal:
            self._next = now + PAUSE
            tell(f"{self._task}: {line}")

    def _time_left(self, done: float | None, now: float) -> str:
        """Return the time left; nothing in the first report, which includes compilation."""
        if done is None:
            return ""
        if self._first is None:
            self._first = done, now
            return ""
        before, start = self._first
        if not before < done < 1.0:
            return ""
        return f", {duration((now - start) * (1.0 - done) / (done - before))} left"


# -- errors and warnings ---------------------------------------------------------------------------


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
        warnings.showwarning = lambda message, *where, **more: warn(f"{message}")
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


# -- help: flags without a type --------------------------------------------------------------------


class WithoutTypesOfFlags:
    """A command whose help shows no type of flags, which take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in parameters:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return parameters


class Command(WithoutTypesOfFlags, TyperCommand):
    """A command."""


class Commands(WithoutTypesOfFlags, TyperGroup):
    """The group of all commands."""


# -- standard streams that are closed or full, and broken pipes ------------------------------------


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


# -- signals end a command by an exception ---------------------------------------------------------


class ExceptionFromSignal:
    """Handler that raises SystemExit, or KeyboardInterrupt for SIGINT.

    Temporary files are then removed. The exception can be lost in three ways. A signal that arrives
    just before a blocking read does not interrupt it, and the handler is not called. An exception
    raised in a callback, such as that of a weak reference, is ignored. In both cases a thread sends
    the signal again. While pyarrow reads, it has its own handlers, which lose signals that arrive
    near the end. These handlers are disabled.

    Attributes
    ----------
    raised : whether an exception was raised and, as far as is known, not lost.
    """

    def __init__(self) -> None:
        self.raised = False

    def __call__(self, number: int, frame: Any) -> NoReturn:
        """Raise the exception of a signal."""
        self.raised = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def report_ignored(self, ignored: Any) -> None:
        """Note that the exception was ignored; report other ignored exceptions."""
        if self.raised and issubclass(ignored.exc_type, KeyboardInterrupt | SystemExit):
            self.raised = False
        else:
            sys.__unraisablehook__(ignored)

    def send_again(self, arrived: int) -> None:
        """Send the first signal to the main thread again whenever it was lost.

        Parameters
        ----------
        arrived : file descriptor from which the numbers of the arriving signals are read.
        """
        main = threading.main_thread().ident
        assert main is not None
        handler: Any = self
        while signal.getsignal(number := os.read(arrived, 1)[0]) is not handler:
            pass  # a signal that does not end the command
        while True:
            time.sleep(INTERVAL)
            if not self.raised:
                signal.pthread_kill(main, number)


def end_by_exception() -> None:
    """Make SIGTERM, SIGHUP and SIGINT end the command by an exception."""
    handler = ExceptionFromSignal()
    for number in (getattr(signal, name) for name in ENDING_SIGNALS if hasattr(signal, name)):
        # signals that are ignored, as with nohup, stay ignored
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, handler)
    if hasattr(signal, "pthread_kill"):
        sys.unraisablehook = handler.report_ignored
        arrived, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=handler.send_again, args=(arrived,), daemon=True).start()


def keep_handlers() -> None:
    """Disable the signal handlers of pyarrow."""
    import pyarrow

    pyarrow.enable_signal_handlers(False)

"""Results on standard output; messages and progress on standard error."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from seqmed.streams import Skipped

MESSAGES = Console(stderr=True)
# Seconds between two lines of progress without a terminal.
PAUSE = 10.0
# Width of a table that is not printed to a terminal.
WIDE = 10_000


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

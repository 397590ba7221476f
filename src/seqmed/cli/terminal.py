"""Results on standard output; messages and progress on standard error."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from seqmed.streams import Skipped

MESSAGES = Console(stderr=True)
# Seconds between two lines of progress where there is no terminal.
PAUSE = 10.0
# Characters in a line of a table where there is no terminal to fit it to.
WIDE = 10_000


def say(message: str) -> None:
    """Print a message on one line beside the output, clear of a progress bar."""
    MESSAGES.print(Text(" ".join(message.split())), soft_wrap=True)


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
    """Return a share as people read it."""
    return "unknown" if share is None else f"{100 * share:.1f} %"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number of things."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def tell_skipped(skipped: Skipped) -> None:
    """Say how many bad rows were skipped, why, and where the first of each kind is."""
    for reason, count in skipped.counts.items():
        rows = counted(count, "bad row")
        say(f"skipped {rows}: {reason}; for example {skipped.examples[reason][0]}.")


def reporter(task: str, wait: float = PAUSE) -> Bar | Lines:
    """Return a progress bar on a terminal, lines elsewhere: the first after some seconds."""
    return Bar(task) if MESSAGES.is_terminal else Lines(task, wait)


class Bar:
    """A progress bar: how much is read, rows a second, time left."""

    def __init__(self, task: str):
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[share]}"),
            TextColumn("{task.fields[text]}", markup=False),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=MESSAGES,
        )
        self._bar: TaskID = self._progress.add_task(task, total=None, share="", text="", rate="")
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._progress.stop()

    def report(self, done: float | None, rows: int, text: str) -> None:
        """Show the share of the input that has been read (or None), the rows read, and a text."""
        self._progress.update(
            self._bar,
            total=None if done is None else 1.0,
            completed=done,
            share="" if done is None else f"{done:4.0%}",
            text=text,
            rate=rate(rows, self._start),
        )


class Lines:
    """A line of progress now and then."""

    def __init__(self, task: str, wait: float):
        self._task, self._start = task, time.monotonic()
        self._next = self._start + wait

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        pass

    def report(self, done: float | None, rows: int, text: str) -> None:
        """Print what `Bar.report` shows, if it is time for a line."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PAUSE
            share = "" if done is None else f"{done:.0%}, "
            say(f"{self._task}: {share}{text}, {rate(rows, self._start)}")


def rate(rows: int, start: float) -> str:
    """Return how many rows a second there have been since some time."""
    return f"{rows / max(time.monotonic() - start, 1e-3):,.0f} rows/s"

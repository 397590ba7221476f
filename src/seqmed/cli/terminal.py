"""Results on standard output; messages and progress on standard error."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from seqmed.streams import Skipped

MESSAGES = Console(stderr=True)
# Seconds between two lines of progress without a terminal.
PAUSE = 10.0
# Width of a table that is not printed to a terminal.
WIDE = 10_000


def say(message: str) -> None:
    """Print a message on one line to standard error, above a progress bar."""
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
    """Return a fraction in per cent."""
    return "unknown" if share is None else f"{100 * share:.1f} %"


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
            TimeRemainingColumn(compact=True),
            console=MESSAGES,
            disable=not MESSAGES.is_terminal,
        )
        self._bar = self._progress.add_task(task, total=None, text="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def report(self, done: float | None, rows: int, text: str) -> None:
        """Show the fraction of the input that has been read (None: unknown), a text and rows/s."""
        now = time.monotonic()
        share = "" if done is None else f"{done:.0%}, "
        line = f"{share}{text}, {rows / max(now - self._start, 1e-3):,.0f} rows/s"
        total = None if done is None else 1.0
        self._progress.update(self._bar, total=total, completed=done, text=line)
        if now >= self._next and not MESSAGES.is_terminal:
            self._next = now + PAUSE
            say(f"{self._task}: {line}")

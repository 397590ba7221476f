"""Choosing the rows to have labeled, of any number of them, in constant memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqmed import active
from seqmed.arrays import Array, Points, distinct_rows, stack, take_rows
from seqmed.cli import outputs, state, terminal
from seqmed.cli.errors import CommandError
from seqmed.cli.inputs import labeled, tell_skipped
from seqmed.cli.state import Classifier
from seqmed.cli.terminal import counted
from seqmed.streams import Batch, Stream

# Rows read in one go: what the labeled rows of the model cost is paid once for all of them.
ROWS_AT_ONCE = 10_000
# Candidates for every row wanted, at least as many as `active.query` compares with each other.
CANDIDATES = 10


class Shortlist:
    """The most doubtful distinct rows so far; before there are two classes, a random sample.

    Parameters
    ----------
    model : asks the questions.
    size : rows to hold at most.
    """

    def __init__(self, model: Classifier, size: int):
        self.points: Points | None = None
        self.places: list[tuple[Any, ...]] = []
        self._model, self._size = model, size
        self._values: Array = np.zeros(0)
        self._random = np.random.default_rng(0)

    def add(self, points: Points, places: Sequence[tuple[Any, ...]]) -> None:
        """Add rows (n, p), of which some are held, and what is to be told of each."""
        if not places:
            return
        values = active.doubt(self._model, points)
        if values is None:
            values = self._random.random(len(places))
        every = points if self.points is None else stack(self.points, points)
        values = np.concatenate([self._values, values])
        together = [*self.places, *places]
        distinct = distinct_rows(every)
        best = np.sort(distinct[np.argsort(-values[distinct], kind="stable")[: self._size]])
        self.points, self._values = take_rows(every, best), values[best]
        self.places = [together[place] for place in best.tolist()]


def query(
    path: Path,
    data: Sequence[Path],
    number: int,
    *,
    output: Path,
    to: str | None,
    force: bool,
    keep: Sequence[str],
    file_format: str | None,
    on_error: str,
) -> None:
    """Write where the rows are that are most worth a label."""
    to = outputs.checked_kind(output, to, path, data, file_format, force=force)
    model, progress = state.load(path)
    columns = outputs.header(keep, {})
    stream = Stream(
        data,
        schema=progress.known_schema,
        batch_size=ROWS_AT_ONCE,
        on_error=on_error,
        final=True,
        file_format=file_format,
        label_required=False,
        keep=keep,
    )
    shortlist, rows = Shortlist(model, max(active.SHORTLIST, CANDIDATES * number)), 0
    with terminal.reporter("reading") as bar:
        for batch in stream:
            rows += batch.row.size
            shortlist.add(*candidates(batch, stream.names))
            bar.report(stream.fraction, rows, counted(rows, "row"))
    tell_skipped(stream.skipped)
    if len(shortlist.places) < number:
        raise CommandError(
            f"there are {counted(len(shortlist.places), 'distinct row')} without a label, expected "
            f"at least {number}: ask for fewer with -n, or pass more data."
        )
    chosen = active.query(model, shortlist.points, number)
    found = zip(*(shortlist.places[place] for place in chosen.tolist()), strict=True)
    outputs.write(output, to, columns, [[list(values) for values in found]])


def candidates(batch: Batch, names: Sequence[str]) -> tuple[Points, list[tuple[Any, ...]]]:
    """Return the rows of a batch that have no label, and what is to be told of each."""
    free = np.flatnonzero(~labeled(batch))
    every = list(zip(*outputs.located(batch, names), strict=True))
    return take_rows(batch.X, free), [every[place] for place in free.tolist()]

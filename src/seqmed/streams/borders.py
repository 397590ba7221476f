"""Where one batch ends and the next begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.streams.columns import levels
from seqmed.streams.errors import notice, shown
from seqmed.tables.texts import cell_text

# Recent values that are compared, to warn of rows that are not sorted.
REMEMBERED = 1000


class Borders:
    """Cuts rows into batches.

    Parameters
    ----------
    batch_by : a column; a batch ends where its value changes. None for no such column.
    batch_size : largest number of rows in a batch; None for no limit.
    first : smallest number of rows in the first batch.
    warn : whether to warn of a value that occurs again.

    Attributes
    ----------
    held : rows of the current batch, counted by the caller.
    """

    def __init__(self, batch_by: str | None, batch_size: int | None, first: int, warn: bool = True):
        self._column, self._batch_size, self._first = batch_by, batch_size, first
        self._recent: deque[str | None] = deque(maxlen=REMEMBERED)
        self._warn = warn
        self.held = 0

    def next_batch(self) -> None:
        """Begin another batch."""
        self.held = self._first = 0

    def cut(
        self, cells: Any, good: NDArray[np.intp], name: str
    ) -> Iterator[NDArray[np.intp] | None]:
        """Yield rows for the current batch, and None where it is complete.

        Parameters
        ----------
        cells : array of the border column, ignored if there is none.
        good : the rows that may be used.
        name : name of the input in messages.
        """
        for key, run in self._runs(cells, good):
            if self._changes(key, name) and self.held and self.held >= self._first:
                yield None
            while run.size:
                free = run.size
                if self._batch_size is not None:
                    free = max(self._batch_size, self._first) - self.held
                rows, run = run[:free], run[free:]
                yield rows
                if self._batch_size and self.held >= max(self._batch_size, self._first):
                    yield None

    def _runs(
        self, cells: Any, good: NDArray[np.intp]
    ) -> Iterator[tuple[str | None, NDArray[np.intp]]]:
        """Yield the good rows, split where the value of the column changes."""
        if not good.size:
            return
        if self._column is None:
            yield None, good
            return
        codes, values = levels(cells)
        keys = [cell_text(value) for value in values]
        distinct = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        codes = np.array([distinct[key] for key in keys])[codes][good]
        for run in np.split(np.arange(good.size), np.flatnonzero(np.diff(codes)) + 1):
            yield list(distinct)[codes[run[0]]], good[run]

    def _changes(self, key: str | None, name: str) -> bool:
        """Whether a value of the column differs from the one before."""
        if self._column is None or (self._recent and key == self._recent[-1]):
            return False
        if key in self._recent and self._warn:
            self._warn = False
            notice(
                f"{name}: {shown(key)} occurs again in column {self._column!r} and begins another "
                "batch: sort the rows by this column to have one batch for each value."
            )
        self._recent.append(key)
        return True

"""Borders between batches: rows at which the value of a column changes."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from seqmed.streams.errors import notice, shown
from seqmed.streams.tables import Piece
from seqmed.streams.values import cell_text

# Recent values that are compared, to warn of rows that are not sorted.
REMEMBERED = 1000


class Borders:
    """Borders of the column ``batch_by``; None for no borders."""

    def __init__(self, batch_by: str | None) -> None:
        self._column = batch_by
        self._recent: deque[str | None] = deque(maxlen=REMEMBERED)
        self._warned = False

    def runs(self, piece: Piece, good: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Return the good rows of a piece, split where the value changes."""
        if self._column is None or not good.size:
            return [good] if good.size else []
        column = piece.values[self._column]
        keys = [cell_text(column[row]) for row in good.tolist()]
        borders = [place for place, pair in enumerate(pairwise(keys), 1) if pair[0] != pair[1]]
        return np.split(good, borders)

    def changes(self, piece: Piece, row: int, name: str) -> bool:
        """Whether the value changes at a row of the input ``name``."""
        if self._column is None:
            return False
        key = cell_text(piece.values[self._column][row])
        if self._recent and key == self._recent[-1]:
            return False
        if key in self._recent and not self._warned:
            self._warned = True
            notice(
                f"{name}: {shown(key)} occurs again in column {self._column!r} and begins another "
                "batch: sort the rows by this column to have one batch for each value."
            )
        self._recent.append(key)
        return True

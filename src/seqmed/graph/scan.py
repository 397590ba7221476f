"""Exact nearest rows among the kept ones, in strips of queries and blocks of rows."""

from __future__ import annotations

import numpy as np

from seqmed.graph import loops
from seqmed.graph.loops import drop
from seqmed.graph.metrics import Metric, Stored
from seqmed.graph.neighbours import Lists, Side, Single, Slots, empty_lists

__all__ = ["Scan", "drop"]

# Rows nearest by inner products that are compared exactly, beyond those wanted: the farthest that
# is wanted bounds the search.
GUESSES = 3


class Scan:
    """A search through all blocks, strip by strip, in memory that is used again."""

    def __init__(self, metric: Metric, blocks: tuple[Stored, ...], lists: Lists) -> None:
        self.metric, self.blocks, self.lists = metric, blocks, lists
        starts = np.cumsum([0, *(block.size for block in blocks)])
        self.sides = [
            self.side(block, np.arange(first, first + block.size, dtype=np.int32))
            for first, block in zip(starts, blocks, strict=False)
        ]
        self.memory = np.empty(0, dtype=np.float32)

    def side(self, stored: Stored, slots: Slots) -> Side:
        """Return rows ready to be compared."""
        slack = self.metric.slack(stored.rows.shape[1])
        side = Side(stored.rows, np.float32(1.0 - slack) * stored.norms, slots)
        return side if self.metric.refines else inexact(side)

    def nearest(
        self, queries: Stored, own: Slots, length: int, receiving: Lists | None = None
    ) -> Lists:
        """Return the nearest rows of queries, and insert these in the lists ``receiving``.

        Parameters
        ----------
        queries : at most `STRIP` rows.
        own : (m,) slots to be left out, one for each query; -1 for none.
        length : entries wanted.
        receiving : the lists of all kept rows if the queries have just been put among them.
        """
        strip, limit = self.side(queries, own), self.metric.limit
        found = empty_lists(queries.size, length, limit)
        guesses = empty_lists(queries.size, length + GUESSES, np.inf)
        pairs, start = [], 0
        self.reserve(queries.size * self.lists.sizes.size)
        for stored, block in zip(self.blocks, self.sides, strict=True):
            stop = start + queries.size * stored.size
            values = self.memory[start:stop].reshape(queries.size, stored.size)
            self.metric.products(queries, stored, values)
            if self.metric.refines:
                loops.offer(values, inexact(strip), inexact(block), guesses)
            pairs.append((values, block))
            start = stop
        if self.metric.refines:
            found.horizons[:] = np.nextafter(self.radii(guesses.slots, strip, length), np.inf)
        for values, block in pairs:
            loops.offer(values, strip, block, found)
        if receiving is not None:
            for values, block in pairs:
                part = receiving.take(slice(block.slots[0], block.slots[-1] + 1))
                loops.receive(values, strip, block, part)
        return found

    def reserve(self, size: int) -> None:
        """Make room for so many inner products."""
        if self.memory.size < size:
            self.memory = np.empty(size, dtype=np.float32)

    def radii(self, guesses: Slots, strip: Side, length: int) -> Single:
        """Return squared distances (m,) within which so many of the guessed rows (m, g) lie."""
        lists = empty_lists(strip.norms.size, length, np.inf)
        for block in self.sides:
            loops.measure(guesses, strip, block, lists)
        return lists.distances[:, -1]


def inexact(side: Side) -> Side:
    """Return a side without the rows that exact distances are computed from."""
    return side._replace(rows=np.zeros((side.norms.size, 0), dtype=np.float32))

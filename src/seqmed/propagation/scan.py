"""Exact nearest rows among the kept ones, in strips of queries and blocks of rows."""

from __future__ import annotations

import numpy as np

from seqmed.propagation import loops
from seqmed.propagation.lists import Lists, Side, Single, Slots, empty_lists
from seqmed.propagation.loops import drop
from seqmed.propagation.metrics import Metric, Stored

__all__ = ["Scan", "drop"]


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

    def products(self, queries: Stored) -> list[Single]:
        """Return inner products (m, b) of at most `STRIP` queries with every block."""
        needed = queries.size * self.lists.sizes.size
        if self.memory.size < needed:
            self.memory = np.empty(needed, dtype=np.float32)
        found, start = [], 0
        for block in self.blocks:
            stop = start + queries.size * block.size
            found.append(self.memory[start:stop].reshape(queries.size, block.size))
            self.metric.products(queries, block, found[-1])
            start = stop
        return found

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
        pairs = list(zip(self.products(queries), self.sides, strict=True))
        found = empty_lists(queries.size, length, limit)
        if self.metric.refines:
            radii = self.radii(pairs, strip, length)
            found.horizons[:] = np.nextafter(radii, np.float32(np.inf))
        for values, block in pairs:
            loops.offer(values, strip, block, found)
        if receiving is not None:
            for values, block in pairs:
                part = receiving.take(slice(block.slots[0], block.slots[-1] + 1))
                loops.receive(values, strip, block, part)
        return found

    def radii(self, pairs: list[tuple[Single, Side]], strip: Side, length: int) -> Single:
        """Return squared distances (m,) within which so many rows lie.

        They are those of the row nearest by sketches, and of its own nearest rows.
        """
        lists = self.lists
        best = empty_lists(strip.norms.size, 1, np.inf)
        for values, block in pairs:
            known = lists.sizes[block.slots] >= length
            norms = np.where(known, block.norms, np.float32(np.inf))
            loops.offer(values, inexact(strip), inexact(block)._replace(norms=norms), best)
        guesses = np.hstack([best.slots, lists.slots[best.slots[:, 0]]])
        guesses[best.sizes == 0] = -1
        guesses[guesses == strip.slots[:, None]] = -1
        fits = np.cumsum(guesses >= 0, axis=1) <= length
        guesses = np.where(fits, guesses, np.int32(-1))
        radii = np.zeros(strip.norms.size, dtype=np.float32)
        for _, block in pairs:
            loops.widen(radii, guesses, strip, block)
        radii[(guesses >= 0).sum(axis=1) < length] = np.inf
        return radii


def inexact(side: Side) -> Side:
    """Return a side without the rows that exact distances are computed from."""
    return side._replace(rows=np.zeros((side.norms.size, 0), dtype=np.float32))

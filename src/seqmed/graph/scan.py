"""Exact nearest neighbours among the kept rows, in strips of queries and blocks of rows."""

from __future__ import annotations

import numpy as np

from seqmed.graph import neighbour_loops
from seqmed.graph.metrics import Metric, Stored
from seqmed.graph.neighbour_loops import drop
from seqmed.graph.neighbours import ComparedRows, Lists, Single, Slots, empty_lists

__all__ = ["Scan", "drop"]

# To find k rows, the rows are divided into at least `GROUPS` * k groups. The nearest row of each
# group is found by inner products. The nearest k + `GUESSES` of these rows are compared exactly,
# and their distances bound the search.
GROUPS, GUESSES = 4, 3


class Scan:
    """A search through all blocks, strip by strip, in memory that is reused."""

    def __init__(self, metric: Metric, blocks: tuple[Stored, ...], lists: Lists) -> None:
        self.metric, self.blocks, self.lists = metric, blocks, lists
        dense = all(isinstance(block.rows, np.ndarray) for block in blocks)
        self.unit = metric.unit_norms
        # a product of dense rows of unit length is rounded differently among other rows
        self.refines = metric.refines or (self.unit and dense)
        starts = np.cumsum([0, *(block.size for block in blocks)])
        self.sides = [
            self.side(block, np.arange(first, first + block.size, dtype=np.int32))
            for first, block in zip(starts, blocks, strict=False)
        ]
        self.memory = np.empty(0, dtype=np.float32)

    def side(self, stored: Stored, slots: Slots) -> ComparedRows:
        """Return rows prepared for comparisons."""
        if not self.refines:
            return inexact(ComparedRows(stored.rows, stored.norms, slots))
        slack = self.metric.slack(stored.rows.shape[1])
        return ComparedRows(stored.rows, np.float32(1.0 - slack) * stored.norms, slots)

    def nearest(
        self, queries: Stored, own: Slots, length: int, receiving: Lists | None = None
    ) -> Lists:
        """Return the nearest rows of the queries, and insert the queries in ``receiving``.

        Parameters
        ----------
        queries : at most `STRIP` rows.
        own : (m,) slot to be left out for each query; -1 for none.
        length : number of entries.
        receiving : lists of all kept rows, changed in place; None if the queries are not kept rows.
        """
        strip = self.side(queries, own)
        shape = queries.size, -(-GROUPS * length // neighbour_loops.LANES) * neighbour_loops.LANES
        nearest = np.full(shape, np.inf, dtype=np.float32)
        slots = np.full(shape, -1, dtype=np.int32)
        compared, start = [], 0
        self.reserve(queries.size * self.lists.sizes.size)
        for stored, block in zip(self.blocks, self.sides, strict=True):
            stop = start + queries.size * stored.size
            values = self.memory[start:stop].reshape(queries.size, stored.size)
            self.metric.products(queries, stored, values)
            neighbour_loops.nearest_of_groups(values, tuple(block), nearest, slots)
            compared.append((values, block))
            start = stop
        found = empty_lists(queries.size, length, self.metric.limit)
        radii = self.radii(nearest, slots, strip, length)
        np.minimum(np.nextafter(radii, np.inf), found.horizons, out=found.horizons)
        for values, block in compared:
            neighbour_loops.insert_rows(values, tuple(strip), tuple(block), tuple(found), self.unit)
            if receiving is not None:
                part = receiving.take(slice(block.slots[0], block.slots[-1] + 1))
                neighbour_loops.insert_queries(
                    values, tuple(strip), tuple(block), tuple(part), self.unit
                )
        return found

    def reserve(self, size: int) -> None:
        """Allocate memory for ``size`` inner products, if there is less."""
        if self.memory.size < size:
            self.memory = np.empty(size, dtype=np.float32)

    def radii(self, values: Single, slots: Slots, strip: ComparedRows, length: int) -> Single:
        """Return squared distances (m,) within which there are at least ``length`` rows.

        Parameters
        ----------
        values, slots : (m, g) as written by `neighbour_loops.nearest_of_groups`.
        strip : the queries.
        length : number of rows.
        """
        itself = slots == strip.slots[:, None]
        values[itself], slots[itself] = np.inf, -1
        chosen = np.argpartition(values, length + GUESSES, axis=1)[:, : length + GUESSES]
        guesses = np.take_along_axis(slots, chosen, axis=1)
        distances = strip.norms[:, None] + np.take_along_axis(values, chosen, axis=1)
        if self.refines:
            for block in self.sides:
                neighbour_loops.measure(guesses, tuple(strip), tuple(block), distances, self.unit)
        return np.maximum(np.partition(distances, length - 1, axis=1)[:, length - 1], 0.0)


def inexact(side: ComparedRows) -> ComparedRows:
    """Return the set without the rows from which exact distances are computed."""
    return side._replace(rows=np.zeros((side.norms.size, 0), dtype=np.float32))

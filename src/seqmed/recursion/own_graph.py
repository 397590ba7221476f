"""What recursions have in common whose batches are graphs of their own: no point is pinned."""

from __future__ import annotations

from typing import ClassVar, Self

from seqmed.arrays import Points


class OwnGraph:
    """Every batch is a graph of its own, and all of the state is needed between batches."""

    pins: ClassVar[bool] = False
    grows: ClassVar[bool] = False

    def vertices(self, points: Points, labeled: Points) -> Points:
        """Return what a graph of the batch spans: the batch."""
        return points

    def reach(self, window: Points, n_new: int) -> Self:
        """Return the recursion itself: labels are learned with the whole kernel."""
        return self

    def repin(self, pinned: Points) -> Self:
        """Return the recursion itself: it keeps no point because it is pinned."""
        return self

    def at_rest(self) -> Self:
        """Return the recursion itself: all of it is needed."""
        return self

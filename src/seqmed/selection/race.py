"""The record of a race between candidates that predict the same rows, and who is out of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array

# Rows on which just one of two candidates was right before one of them may be dropped: as many of
# equal weight as would tell no less.
FEWEST_DISAGREEMENTS = 10.0


class Dropped(NamedTuple):
    """Why a candidate was dropped.

    In which batch, in favour of which leader, and the (discounted) weight of the rows on which only
    the leader was right, ``lost``, and on which only the candidate was, ``won``.
    """

    batch: int
    leader: int
    lost: float
    won: float


@dataclass(frozen=True)
class Record:
    """How the candidates have done on labels they had not learned.

    Parameters
    ----------
    right : (c,) weight of the rows each had right, discounted.
    alone : (c, c) weight of the rows on which the first was right and the second wrong, discounted.
    squares : (c, c) sum of the squares of those discounted weights.
    total : weight of the rows scored, discounted.
    right_in_all, total_in_all : the same without discount; of candidates that were dropped, up to
        that batch.
    dropped : (c,) why each was dropped; None for those still in the race.
    """

    right: Array
    alone: Array
    squares: Array
    total: float
    right_in_all: Array
    total_in_all: Array
    dropped: tuple[Dropped | None, ...]

    @property
    def racing(self) -> NDArray[np.intp]:
        """The candidates that have not been dropped."""
        return np.array([i for i, why in enumerate(self.dropped) if why is None], dtype=np.intp)

    @property
    def ranking(self) -> NDArray[np.intp]:
        """The candidates in the race, best first; the first in the grid of equals."""
        racing = self.racing
        return racing[np.argsort(-self.right[racing], kind="stable")]

    def discounted(self, share: float) -> Record:
        """Return the record with everything so far counting less."""
        return replace(
            self,
            right=share * self.right,
            alone=share * self.alone,
            squares=share**2 * self.squares,
            total=share * self.total,
        )

    def add(self, correct: NDArray[np.bool_], weights: Array) -> Record:
        """Return the record with rows that the racing candidates, (r, n), had right or wrong."""
        racing = self.racing
        right, alone, squares = self.right.copy(), self.alone.copy(), self.squares.copy()
        in_all, totals = self.right_in_all.copy(), self.total_in_all.copy()
        new = (correct * weights).sum(axis=1)  # row by row: equal candidates have equal sums
        right[racing] += new
        in_all[racing] += new
        totals[racing] += weights.sum()
        alone[np.ix_(racing, racing)] += (correct * weights) @ (~correct).T
        squares[np.ix_(racing, racing)] += (correct * weights**2) @ (~correct).T
        return replace(
            self, right=right, alone=alone, squares=squares, right_in_all=in_all,
            total=self.total + float(weights.sum()), total_in_all=totals,
        )  # fmt: skip

    def drop_hopeless(self, batch: int, limit: float) -> Record:
        """Return the record without candidates that the leader beats by ``limit`` deviations.

        If neither were better, each row on which just one is right would be a fair coin: the
        difference of the two counts has the sum of the squared weights for variance, which for
        rows of weight 1 is ``lost + won``.
        """
        leader = int(self.ranking[0])
        dropped = list(self.dropped)
        for rival in self.racing.tolist():
            lost, won = float(self.alone[leader, rival]), float(self.alone[rival, leader])
            variance = float(self.squares[leader, rival] + self.squares[rival, leader])
            enough = (lost + won) ** 2 >= FEWEST_DISAGREEMENTS * variance > 0.0
            if enough and lost - won > limit * np.sqrt(variance):
                dropped[rival] = Dropped(batch, leader, lost, won)
        return replace(self, dropped=tuple(dropped))


def empty_record(n_candidates: int) -> Record:
    """Return the record before any label."""
    nothing = np.zeros(n_candidates)
    return Record(
        nothing,
        np.zeros((n_candidates, n_candidates)),
        np.zeros((n_candidates, n_candidates)),
        0.0,
        nothing,
        nothing,
        (None,) * n_candidates,
    )

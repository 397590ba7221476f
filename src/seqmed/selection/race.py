"""Candidates of a search: how they are made, scored and dropped.

All candidates predict the same rows. Two of them are compared on the rows that only one of them
predicts correctly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.labels import split_labels
from seqmed.estimators.validation import read_labels
from seqmed.numeric.arrays import Array, Indices, Mask
from seqmed.numeric.expectations import expect_shape

# Smallest number of disagreements between two candidates before one may be dropped. Rows of unequal
# weight count by their effective number, ``(sum of weights)^2 / sum of squared weights``.
FEWEST_DISAGREEMENTS = 10.0


class Dropped(NamedTuple):
    """The reason why a candidate was dropped.

    Attributes
    ----------
    batch : number of the batch.
    leader : index of the best candidate at that time.
    lost : discounted weight of the rows that only the leader predicted correctly.
    won : discounted weight of the rows that only this candidate predicted correctly.
    """

    batch: int
    leader: int
    lost: float
    won: float


@dataclass(frozen=True)
class Record:
    """Accuracy of the candidates on labels they had not learned: weights of rows, discounted.

    The wins are those of the rows that the first candidate predicted correctly and the second not.
    """

    correct: Array  # (c,) predicted correctly by each candidate
    wins: Array  # (c, c)
    squared_wins: Array  # (c, c) sums of the squares of these discounted weights
    total: float  # of all rows
    correct_undiscounted: Array  # (c,) predicted correctly by each candidate
    total_undiscounted: Array  # (c,) predicted by each candidate
    dropped: tuple[Dropped | None, ...]  # (c,) why; None for those in the race

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the same candidates."""
        size = len(self.dropped)
        expect_shape(self, (size,), "correct", "correct_undiscounted", "total_undiscounted")
        expect_shape(self, (size, size), "wins", "squared_wins")

    @property
    def racing(self) -> Indices:
        """Indices of the candidates that have not been dropped."""
        return np.array([i for i, why in enumerate(self.dropped) if why is None], dtype=np.intp)

    @property
    def ranking(self) -> Indices:
        """Indices of the candidates in the race, best first. Ties keep the order of the grid."""
        racing = self.racing
        return racing[np.argsort(-self.correct[racing], kind="stable")]

    def discounted(self, factor: float) -> Record:
        """Return the record with all weights so far multiplied by ``factor``."""
        return replace(
            self,
            correct=factor * self.correct,
            wins=factor * self.wins,
            squared_wins=factor**2 * self.squared_wins,
            total=factor * self.total,
        )

    def add(self, hits: Mask, weights: Array) -> Record:
        """Return the record with n more rows and their mask of correct predictions, (r, n)."""
        right, wrong = np.zeros((2, len(self.dropped), weights.size), dtype=bool)
        right[self.racing], wrong[self.racing] = hits, ~hits
        correct = (right * weights).sum(axis=1)  # the same order of summation for all candidates
        return replace(
            self,
            correct=self.correct + correct,
            wins=self.wins + (right * weights) @ wrong.T,
            squared_wins=self.squared_wins + (right * weights**2) @ wrong.T,
            total=self.total + float(weights.sum()),
            correct_undiscounted=self.correct_undiscounted + correct,
            total_undiscounted=self.total_undiscounted + ((right | wrong) * weights).sum(axis=1),
        )

    def drop_inferior(self, batch: int, limit: float) -> Record:
        """Return the record without candidates that are significantly worse than the leader.

        If two candidates are equally good, each of the two wins a disagreement with probability
        1/2. Then ``lost - won`` has mean 0, and its variance is the sum of the squared weights. A
        candidate is dropped if ``lost - won`` exceeds ``limit`` standard deviations.
        """
        leader = int(self.ranking[0])
        dropped = list(self.dropped)
        for other in self.racing.tolist():
            lost, won = float(self.wins[leader, other]), float(self.wins[other, leader])
            variance = float(self.squared_wins[leader, other] + self.squared_wins[other, leader])
            enough = (lost + won) ** 2 >= FEWEST_DISAGREEMENTS * variance > 0.0
            if enough and lost - won > limit * np.sqrt(variance):
                dropped[other] = Dropped(batch, leader, lost, won)
        return replace(self, dropped=tuple(dropped))


def empty_race(n_candidates: int) -> Record:
    """Return the record before the first label."""
    each, pairs = np.zeros(n_candidates), np.zeros((n_candidates, n_candidates))
    return Record(each, pairs, pairs, 0.0, each, each, (None,) * n_candidates)


def make_candidates(estimator: Any, grid: list[dict[str, Any]]) -> list[Any]:
    """Return one candidate per combination of parameters.

    All candidates have the same seeds: they then keep the same points and differ only in their
    parameters. Estimators in the grid are cloned, so that candidates share none.
    """
    base = clone(estimator)
    draw = check_random_state(None).randint
    for name, value in base.get_params().items():
        if name.endswith("random_state") and value is None:
            base.set_params(**{name: int(draw(np.iinfo(np.int32).max))})
    return [
        clone(base).set_params(**{name: clone(each, safe=False) for name, each in chosen.items()})
        for chosen in grid
    ]


def common_classes(candidates: list[Any]) -> NDArray[Any]:
    """Return the classes of all candidates; refuse candidates with different classes."""
    first: NDArray[Any] = candidates[0].classes_
    if any(not np.array_equal(other.classes_, first) for other in candidates[1:]):
        raise ValueError(
            "candidates read the same labels as different classes, expected the same classes: "
            "leave unlabeled out of param_grid."
        )
    return first


def labels_of(
    estimator: Any, y: ArrayLike, known: NDArray[Any], *, alone: bool = False
) -> tuple[Mask, NDArray[Any]]:
    """Return the mask of labeled rows and their labels, by the conventions of an estimator."""
    final = getattr(estimator, "_final_estimator", estimator)
    if isinstance(final, StreamClassifier):
        return read_labels(final, y, known, alone=alone)
    return split_labels(y, None, known=known)

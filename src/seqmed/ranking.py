"""Ranking measures: area under the ROC curve, average precision, and the precision-recall curve.

They depend on the order of all probabilities. They are exact while the distinct probabilities are
few enough to be kept. After that, probabilities are counted in bins, and the measures have a bound
of their error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, logit

from seqmed.arrays import Array

# Bins of a histogram of probabilities: equal in log odds from -LARGEST_LOGIT to LARGEST_LOGIT, so
# that the odds of two rows in one bin differ by at most 0.05 %.
SCORE_BINS, LARGEST_LOGIT = 2**17, 30.0
# Points of a precision-recall curve.
CURVE_POINTS = 1000


class Ranking(NamedTuple):
    """How well the probabilities of one class rank its rows before the others.

    Parameters
    ----------
    roc_auc : area under the ROC curve.
    average_precision : average precision, as in scikit-learn: without interpolation.
    roc_auc_error, average_precision_error : largest possible error of these numbers, 0 if they are
        exact.
    """

    roc_auc: float
    average_precision: float
    roc_auc_error: float
    average_precision_error: float


class RankedScores:
    """Counts of positive and negative rows by their score, a probability.

    All distinct scores are kept up to a limit. Beyond it, scores are counted in `SCORE_BINS` bins.
    Rows in one bin then count as ties. Their true order is unknown, which bounds the error: if a
    bin has the fraction a of the positive rows and b of the negative ones, the area under the ROC
    curve is wrong by at most a b / 2 per bin. For the average precision, the bounds are those
    with all positive rows of a bin before its negative ones, and after them.
    """

    def __init__(self) -> None:
        self._scores: Array = np.zeros(0)
        self._counts: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)
        self._pending: list[tuple[Array, NDArray[np.int64]]] = []
        self._n_pending = 0
        self.binned = False

    def add(self, scores: Array, positive: NDArray[np.bool_], limit: int) -> None:
        """Add rows with scores (n,) in [0, 1]; keep at most ``limit`` distinct scores."""
        self.add_counts(scores, np.column_stack([positive, ~positive]).astype(np.int64), limit)

    def add_counts(self, scores: Array, counts: NDArray[np.int64], limit: int) -> None:
        """Add scores (n,) with their numbers of positive and negative rows (n, 2)."""
        self._pending.append((scores, counts))
        self._n_pending += scores.size
        room = SCORE_BINS if self.binned else max(limit - self._scores.size, limit // 4)
        if self._n_pending > room:
            self._merge()
        if not self.binned and self._scores.size > limit:
            self.binned = True
            counts = self._counts
            self._counts = np.zeros((SCORE_BINS, 2), dtype=np.int64)
            self._count_in_bins(self._scores, counts)
            self._scores = np.zeros(0)

    def _merge(self) -> None:
        """Count the pending scores."""
        pending, self._pending, self._n_pending = self._pending, [], 0
        if self.binned:
            for each in pending:
                self._count_in_bins(*each)
        elif pending:
            scores = np.concatenate([self._scores, *(each for each, _ in pending)])
            counts = np.concatenate([self._counts, *(each for _, each in pending)])
            self._scores, places = np.unique(scores, return_inverse=True)
            self._counts = summed(places, counts, self._scores.size)

    def _count_in_bins(self, scores: Array, counts: NDArray[np.int64]) -> None:
        with np.errstate(divide="ignore"):
            shares = (logit(scores) / LARGEST_LOGIT + 1.0) / 2.0
        places = np.clip(shares * SCORE_BINS, 0, SCORE_BINS - 1).astype(np.intp)
        self._counts += summed(places, counts, SCORE_BINS)

    def _descending(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positive and negative rows of every score, from the highest score down."""
        self._merge()
        filled = self._counts[self._counts.any(axis=1)][::-1]
        return filled[:, 0], filled[:, 1]

    def ranking(self) -> Ranking | None:
        """Return the measures; None without a positive or without a negative row."""
        positive, negative = self._descending()
        n_positive, n_negative = int(positive.sum()), int(negative.sum())
        if not n_positive or not n_negative:
            return None
        a, b = positive / n_positive, negative / n_negative
        above = np.cumsum(a) - a
        area = float(b @ (above + a / 2))
        hits, misses = np.cumsum(positive), np.cumsum(negative)
        average = float(a @ (hits / (hits + misses)))
        if not self.binned:
            return Ranking(area, average, 0.0, 0.0)
        first = float(a @ (hits / np.maximum(hits + misses - negative, 1)))
        # the sum of k / (k + misses) over the positive rows k of a bin
        tail = digamma(hits + misses + 1.0) - digamma(hits - positive + misses + 1.0)
        last = float((positive - misses * tail).sum() / n_positive)
        error = max(first - average, average - last)
        return Ranking(area, average, float(a @ b / 2), max(error, 0.0))

    def curve(self) -> tuple[Array, Array]:
        """Return recall and precision, (m,) each, from the highest threshold to the lowest.

        Recall begins at 0. There are at most `CURVE_POINTS` points, evenly spaced in recall.
        """
        positive, negative = self._descending()
        hits, misses = np.cumsum(positive), np.cumsum(negative)
        if not hits.size or not hits[-1]:
            return np.zeros(0), np.zeros(0)
        recall, precision = hits / hits[-1], hits / (hits + misses)
        recall, precision = np.append(0.0, recall), np.append(precision[0], precision)
        if recall.size > CURVE_POINTS:
            wanted = np.linspace(0.0, 1.0, CURVE_POINTS)
            chosen = np.unique(np.searchsorted(recall, wanted).clip(max=recall.size - 1))
            recall, precision = recall[chosen], precision[chosen]
        return recall, precision


def summed(places: NDArray[np.intp], counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the sums (size, 2) of counts (n, 2) with the same place."""
    columns = [np.bincount(places, column, minlength=size) for column in counts.T]
    return np.column_stack(columns).astype(np.int64)  # exact below 2**53

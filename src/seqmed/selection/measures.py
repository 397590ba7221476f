"""Measures of predictions, summed over batches in bounded memory.

Every measure equals that of `sklearn.metrics` on all rows, except the ranking measures: areas under
the ROC curve, average precisions and precision-recall curves depend on the order of all
probabilities. These are counted in bins, whose odds differ by at most 0.05 %.

Sums are exact, so that the measures do not depend on how the rows are divided: a logarithm or a
probability is rounded to a multiple of `STEP`, and costs are counted by their value.
"""

from __future__ import annotations

import math
from collections import Counter
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, ndtri

from seqmed.numeric.arrays import Array

# Number of bins of the calibration error, which divide the probabilities from 0 to 1 equally.
BINS = 15
# Smallest probability in the log loss, as in scikit-learn.
SMALLEST = float(np.finfo(np.float64).eps)
# Values are summed as whole multiples of this step, up to 2**21 values of 37 in 64 bits at once.
STEP = 2.0**-36
# Level of confidence intervals.
CONFIDENCE = 0.95
# Bins of a histogram of probabilities: equal in log odds from -LARGEST_LOGIT to LARGEST_LOGIT, so
# that the odds of two rows in one bin differ by at most 0.05 %. A class takes 2 MB.
SCORE_BINS, LARGEST_LOGIT = 2**17, 30.0
# Points of a precision-recall curve.
CURVE_POINTS = 1000
# Largest number of classes whose ranking is measured.
RANKED_CLASSES = 10
# Largest number of classes that the model does not know. More of them are not classes.
UNKNOWN_CLASSES = 1000


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Return Wilson's score interval of a fraction, by the numbers of successes and of trials.

    It is within [0, 1], and the whole of it without trials.

    Examples
    --------
    >>> low, high = wilson_interval(912, 1000)
    >>> round(low, 3), round(high, 3)
    (0.893, 0.928)
    """
    if not total:
        return 0.0, 1.0
    z = float(ndtri(0.5 + CONFIDENCE / 2))
    fraction, spread = correct / total, z * z / total
    middle = (fraction + spread / 2) / (1 + spread)
    half = z / (1 + spread) * np.sqrt(fraction * (1 - fraction) / total + spread / (4 * total))
    # the ends are exact where all or none are correct, and rounding must not move them
    low = 0.0 if correct == 0 else max(float(middle - half), 0.0)
    high = 1.0 if correct == total else min(float(middle + half), 1.0)
    return low, high


class Ranking(NamedTuple):
    """How well the probabilities of one class rank its rows before the others."""

    roc_auc: float  # area under the ROC curve
    average_precision: float  # without interpolation, as in scikit-learn


class ScoreHistogram:
    """Counts of positive and negative rows in bins of their score, a probability.

    Rows in one bin count as ties. The first rows, given by their numbers, have score 0.
    """

    def __init__(self, positive: int = 0, negative: int = 0) -> None:
        self._counts: NDArray[np.int64] = np.zeros((SCORE_BINS, 2), dtype=np.int64)
        self._counts[0] = positive, negative

    def add(self, scores: Array, positive: NDArray[np.bool_]) -> None:
        """Add rows with scores (n,) in [0, 1]."""
        with np.errstate(divide="ignore"):
            shares = (logit(scores) / LARGEST_LOGIT + 1.0) / 2.0
        places = np.clip(shares * SCORE_BINS, 0, SCORE_BINS - 1).astype(np.intp)
        np.add.at(self._counts, (places, np.where(positive, 0, 1)), 1)

    def merge(self, other: ScoreHistogram) -> None:
        """Add the rows of another histogram."""
        self._counts += other._counts

    def _hits_and_misses(self) -> Array:
        """Return the positive and negative rows above m thresholds, (2, m), from the highest down.

        The first threshold is above all rows.
        """
        filled = self._counts[self._counts.any(axis=1)][::-1]
        return np.vstack([np.zeros(2), np.cumsum(filled, axis=0)]).T

    def ranking(self) -> Ranking | None:
        """Return the measures; None without a positive or without a negative row."""
        hits, misses = self._hits_and_misses()
        if not hits[-1] or not misses[-1]:
            return None
        area = np.trapezoid(hits / hits[-1], misses / misses[-1])
        precision = hits[1:] / (hits + misses)[1:]
        return Ranking(float(area), float(np.diff(hits) @ precision / hits[-1]))

    def curve(self) -> tuple[Array, Array]:
        """Return recall and precision, (m,) each, from the highest threshold to the lowest.

        Recall begins at 0. There are at most `CURVE_POINTS` points, evenly spaced in recall.
        """
        hits, misses = self._hits_and_misses()
        if not hits[-1]:
            return np.zeros(0), np.zeros(0)
        precision = hits[1:] / (hits + misses)[1:]
        recall, precision = hits / hits[-1], np.append(precision[0], precision)
        if recall.size > CURVE_POINTS:
            wanted = np.linspace(0.0, 1.0, CURVE_POINTS)
            chosen = np.unique(np.searchsorted(recall, wanted).clip(max=recall.size - 1))
            recall, precision = recall[chosen], precision[chosen]
        return recall, precision


class ClassMeasures(NamedTuple):
    """Measures of one class; None where the denominator is 0.

    Of ``support`` rows of the class and ``predicted`` rows predicted as it, ``correct`` are both.
    The average precision is None with more than `RANKED_CLASSES` classes.
    """

    label: Any
    precision: float | None
    recall: float | None
    f1: float | None
    correct: int
    support: int
    predicted: int
    average_precision: float | None


class Measures:
    """Measures of predictions, from sums over all rows.

    ``confusion`` has the numbers of rows by true and predicted class.
    """

    def __init__(self) -> None:
        self.confusion: Counter[tuple[Any, Any]] = Counter()
        self.size = self.correct = 0
        self._support: Counter[Any] = Counter()
        self._predicted: Counter[Any] = Counter()
        self._model_classes: set[Any] = set()
        self._counts, self._hits = np.zeros((2, BINS))
        self._confidence_steps = [0] * BINS
        self._log_loss_steps = 0
        self._costs: Counter[float] = Counter()
        self._ranked = True
        self._scores: dict[Any, ScoreHistogram] = {}

    def add(
        self,
        truth: NDArray[Any],
        classes: NDArray[Any],
        probabilities: Array,
        predicted: NDArray[np.intp] | None = None,
        costs: Array | None = None,
    ) -> None:
        """Add n rows with their labels, and the probabilities (n, K) of the K classes of the model.

        A label that the model does not know counts as an error. ``predicted`` (n,) are indices of
        classes, None for the most probable ones. ``costs`` (n,) are those of the predictions, if
        there are any.
        """
        places = {label: place for place, label in enumerate(classes.tolist())}
        labels = truth.tolist()
        columns = np.array([places.get(label, -1) for label in labels], dtype=np.intp)
        if predicted is None:
            predicted = probabilities.argmax(axis=1)
        every = np.arange(columns.size)
        own = np.where(columns < 0, 0.0, probabilities[every, columns])
        confidence, hit = probabilities[every, predicted], columns == predicted
        self._add_scores(classes, columns, probabilities)
        losses = -np.log(np.clip(own, SMALLEST, 1.0 - SMALLEST))
        self._log_loss_steps += int(in_steps(losses).sum())
        bins = np.clip((confidence * BINS).astype(int), 0, BINS - 1)
        self._counts += np.bincount(bins, minlength=BINS)
        steps = in_steps(confidence)
        for place in range(BINS):
            self._confidence_steps[place] += int(steps[bins == place].sum())
        self._hits += np.bincount(bins, hit, minlength=BINS)
        names = classes[predicted].tolist()
        self.confusion.update(zip(labels, names, strict=True))
        self._support.update(labels)
        self._predicted.update(names)
        self._model_classes.update(places)
        self.size += columns.size
        self.correct += int(hit.sum())
        self._costs.update([] if costs is None else costs.tolist())
        self._check_unknown_classes()

    def plus(self, other: Measures) -> Measures:
        """Return the measures of the rows of both; the order does not matter."""
        total = deepcopy(self)
        for label in {*self._scores, *other._scores}:
            own = total._scores.setdefault(label, total._histogram(label))
            own.merge(other._scores.get(label, other._histogram(label)))
        total._ranked = self._ranked and other._ranked and len(total._scores) <= RANKED_CLASSES
        if not total._ranked:
            total._scores = {}
        for name in ("confusion", "_support", "_predicted", "_costs"):
            getattr(total, name).update(getattr(other, name))
        total._model_classes |= other._model_classes
        for name in ("size", "correct", "_counts", "_hits", "_log_loss_steps"):
            setattr(total, name, getattr(self, name) + getattr(other, name))
        for place, steps in enumerate(other._confidence_steps):
            total._confidence_steps[place] += steps
        total._check_unknown_classes()
        return total

    def _check_unknown_classes(self) -> None:
        """Refuse more labels that the model has not learned than there can be classes."""
        strange = self.unknown_classes
        if len(strange) > UNKNOWN_CLASSES:
            raise ValueError(
                f"there are more than {UNKNOWN_CLASSES:,} labels that the model has not learned, "
                f"such as {strange[0]!r}, expected the classes of the model: check the column of "
                "labels."
            )

    def _add_scores(
        self, classes: NDArray[Any], columns: NDArray[np.intp], probabilities: Array
    ) -> None:
        """Add the probabilities of every class; a class is unknown, with probability 0, before."""
        names = classes.tolist()
        new = [label for label in names if label not in self._scores]
        if self._ranked and len(self._scores) + len(new) > RANKED_CLASSES:
            self._ranked, self._scores = False, {}
        if not self._ranked:
            return
        for label in new:
            self._scores[label] = self._histogram(label)
        for place, label in enumerate(names):
            self._scores[label].add(probabilities[:, place], columns == place)

    def _histogram(self, label: Any) -> ScoreHistogram:
        """Return the histogram of a class that had the probability 0 at all rows so far."""
        support = self._support[label]
        return ScoreHistogram(support, self.size - support)

    @property
    def _confidences(self) -> Array:
        """Sums of the probabilities of the predicted classes, by bin."""
        return np.array([steps * STEP for steps in self._confidence_steps])

    @property
    def classes(self) -> list[Any]:
        """All classes, true or predicted."""
        return sorted({label for pair in self.confusion for label in pair})

    @property
    def unknown_classes(self) -> list[Any]:
        """Classes of rows that the model has not learned."""
        return sorted(self._support.keys() - self._model_classes)

    @property
    def matrix(self) -> NDArray[np.int64]:
        """Counts (K, K) of true (rows) and predicted (columns) classes."""
        places = {label: place for place, label in enumerate(self.classes)}
        matrix = np.zeros((len(places), len(places)), dtype=np.int64)
        for (true, got), count in self.confusion.items():
            matrix[places[true], places[got]] = count
        return matrix

    @property
    def calibration(self) -> tuple[Array, Array, Array]:
        """Counts, mean probabilities and accuracies of the bins that are not empty."""
        filled = self._counts > 0
        counts = self._counts[filled]
        return counts, self._confidences[filled] / counts, self._hits[filled] / counts

    @property
    def accuracy(self) -> float:
        """The fraction of correct predictions."""
        return self.correct / self.size

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have rows."""
        recalls = [self.confusion[each, each] / count for each, count in self._support.items()]
        return float(np.mean(recalls))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of all classes, true or predicted."""
        rows = self._support + self._predicted  # at least 1 for every class
        return float(np.mean([2 * self.confusion[each, each] / rows[each] for each in rows]))

    @property
    def log_loss(self) -> float:
        """The mean negative logarithm of the probability of the true class."""
        return self._log_loss_steps * STEP / self.size

    @property
    def calibration_error(self) -> float:
        """The mean difference of probability and accuracy in the bins, weighted by their rows."""
        return float(np.abs(self._hits - self._confidences).sum() / self.size)

    @property
    def mean_cost(self) -> float:
        """The mean cost of a prediction."""
        return math.fsum(cost * count for cost, count in self._costs.items()) / self.size

    def by_class(self) -> list[ClassMeasures]:
        """Return the measures of every class, true or predicted."""
        found = []
        for label in self.classes:
            hits, support = self.confusion[label, label], self._support[label]
            predicted = self._predicted[label]
            ranking = self.ranking(label)
            found.append(
                ClassMeasures(
                    label,
                    ratio(hits, predicted),
                    ratio(hits, support),
                    ratio(2 * hits, support + predicted),
                    hits,
                    support,
                    predicted,
                    None if ranking is None else ranking.average_precision,
                )
            )
        return found

    def ranking(self, label: Any) -> Ranking | None:
        """Return how the probability of a class ranks the rows.

        None with more than `RANKED_CLASSES` classes, for a class that the model does not know, and
        if all rows or none are of this class.
        """
        return self._scores[label].ranking() if label in self._scores else None

    def curves(self) -> dict[Any, tuple[Array, Array]]:
        """Return recall and precision of every class that has rows; none with too many classes."""
        return {
            label: self._scores[label].curve()
            for label in sorted(self._scores)
            if self._support[label]
        }


def in_steps(values: Array) -> NDArray[np.int64]:
    """Return values from 0 to 40 as whole multiples of `STEP`."""
    return np.rint(values / STEP).astype(np.int64)


def ratio(part: int, whole: int) -> float | None:
    """Return a fraction, None if its denominator is 0."""
    return part / whole if whole else None

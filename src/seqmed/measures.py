"""Measures of predictions, summed over batches in bounded memory.

Every measure equals that of `sklearn.metrics` on all rows, except the ranking measures of many
distinct probabilities (`seqmed.ranking`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from seqmed.arrays import Array
from seqmed.ranking import RankedScores, Ranking

# Number of bins of the calibration error, which divide the probabilities from 0 to 1 equally.
BINS = 15
# Smallest probability in the log loss, as in scikit-learn.
SMALLEST = float(np.finfo(np.float64).eps)
# Level of confidence intervals.
CONFIDENCE = 0.95
# Distinct probabilities that are kept, of all classes together: 48 MB.
KEPT = 2_000_000
# Largest number of classes whose ranking is measured.
RANKED_CLASSES = 10
# Largest number of classes that the model does not know. More of them are not classes.
UNKNOWN_CLASSES = 1000


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def wilson_interval(correct: int, total: int, confidence: float = CONFIDENCE) -> Interval:
    """Return Wilson's score interval of a fraction.

    Parameters
    ----------
    correct, total : number of successes, and of trials.
    confidence : level of the interval, in (0, 1).

    Returns
    -------
    interval : Interval
        Within [0, 1]; the whole of it without trials.

    Examples
    --------
    >>> low, high = wilson_interval(912, 1000)
    >>> round(low, 3), round(high, 3)
    (0.893, 0.928)
    """
    if not total:
        return Interval(0.0, 1.0)
    z = float(ndtri(0.5 + confidence / 2))
    fraction, spread = correct / total, z * z / total
    middle = (fraction + spread / 2) / (1 + spread)
    half = z / (1 + spread) * np.sqrt(fraction * (1 - fraction) / total + spread / (4 * total))
    # the ends are exact where all or none are correct, and rounding must not move them
    low = 0.0 if correct == 0 else max(float(middle - half), 0.0)
    high = 1.0 if correct == total else min(float(middle + half), 1.0)
    return Interval(low, high)


class ClassMeasures(NamedTuple):
    """Measures of one class; None where the denominator is 0.

    Parameters
    ----------
    label : the class.
    precision : fraction of the rows predicted as this class that are of this class.
    recall : fraction of the rows of this class that are predicted as this class.
    f1 : harmonic mean of precision and recall.
    correct, support, predicted : number of rows of this class that are predicted as this class, of
        all rows of this class, and of all rows predicted as this class.
    average_precision : as in `Ranking`; None with more than `RANKED_CLASSES` classes.
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

    Parameters
    ----------
    kept : distinct probabilities that are kept, of all classes together.

    Attributes
    ----------
    confusion : numbers of rows by true and predicted class.
    size, correct : number of rows, and of correct predictions.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self.confusion: Counter[tuple[Any, Any]] = Counter()
        self.size = self.correct = 0
        self._support: Counter[Any] = Counter()
        self._model_classes: set[Any] = set()
        self._counts, self._confidences, self._hits = np.zeros((3, BINS))
        self._log_loss = self._cost = 0.0
        self._kept, self._ranked = kept, True
        self._scores: dict[Any, RankedScores] = {}

    def add(
        self,
        truth: NDArray[Any],
        classes: NDArray[Any],
        probabilities: Array,
        predicted: NDArray[np.intp] | None = None,
        costs: Array | None = None,
    ) -> float:
        """Add rows and return their accuracy.

        Parameters
        ----------
        truth : (n,) labels; a class that the model does not know counts as an error.
        classes : (K,) classes of the model.
        probabilities : (n, K) their probabilities.
        predicted : (n,) indices of the predicted classes; None for the most probable ones.
        costs : (n,) cost of every prediction, None without costs.
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
        self._log_loss -= float(np.log(np.clip(own, SMALLEST, 1.0 - SMALLEST)).sum())
        bins = np.clip((confidence * BINS).astype(int), 0, BINS - 1)
        for sums, values in (
            (self._counts, None), (self._confidences, confidence), (self._hits, hit),
        ):  # fmt: skip
            sums += np.bincount(bins, values, minlength=BINS)
        self.confusion.update(zip(labels, classes[predicted].tolist(), strict=True))
        self._support.update(labels)
        self._model_classes.update(places)
        self.size += columns.size
        self.correct += int(hit.sum())
        self._cost += 0.0 if costs is None else float(costs.sum())
        self._refuse_strange_labels()
        return float(hit.mean())

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
        self._scores |= {label: RankedScores() for label in new}
        limit = self._kept // len(self._scores)
        for label in new if self.size else ():
            support = self._support[label]
            counts = np.array([[support, self.size - support]], dtype=np.int64)
            self._scores[label].add_counts(np.zeros(1), counts, limit)
        for place, label in enumerate(names):
            self._scores[label].add(probabilities[:, place], columns == place, limit)

    def _refuse_strange_labels(self) -> None:
        strange = self._support.keys() - self._model_classes
        if len(strange) > UNKNOWN_CLASSES:
            example = min(strange, key=str)
            raise ValueError(
                f"there are more than {UNKNOWN_CLASSES:,} labels that the model has not learned, "
                f"such as {example!r}, expected the classes of the model: check the column of "
                "labels."
            )

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
        rows = self._support + self._predicted()  # at least 1 for every class
        return float(np.mean([2 * self.confusion[each, each] / rows[each] for each in rows]))

    @property
    def log_loss(self) -> float:
        """The mean negative logarithm of the probability of the true class."""
        return self._log_loss / self.size

    @property
    def calibration_error(self) -> float:
        """The mean difference of probability and accuracy in the bins, weighted by their rows."""
        return float(np.abs(self._hits - self._confidences).sum() / self.size)

    @property
    def mean_cost(self) -> float:
        """The mean cost of a prediction."""
        return self._cost / self.size

    def _predicted(self) -> Counter[Any]:
        """Return the number of rows predicted as each class."""
        predicted: Counter[Any] = Counter()
        for (_, got), count in self.confusion.items():
            predicted[got] += count
        return predicted

    def by_class(self) -> list[ClassMeasures]:
        """Return the measures of every class, true or predicted."""
        predicted, found = self._predicted(), []
        for label in self.classes:
            hits, support = self.confusion[label, label], self._support[label]
            ranking = self.ranking(label)
            found.append(
                ClassMeasures(
                    label,
                    ratio(hits, predicted[label]),
                    ratio(hits, support),
                    ratio(2 * hits, support + predicted[label]),
                    hits,
                    support,
                    predicted[label],
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


def ratio(part: int, whole: int) -> float | None:
    """Return a fraction, None if its denominator is 0."""
    return part / whole if whole else None

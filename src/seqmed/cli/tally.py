"""Accuracy, log loss, calibration error and confusion, summed over batches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

# Number of bins of the calibration error, which divide the probabilities from 0 to 1 equally.
BINS = 15
# Smallest probability in the log loss, as in scikit-learn.
SMALLEST = float(np.finfo(np.float64).eps)


class Tally:
    """Sums over predictions, from which all measures are computed."""

    def __init__(self) -> None:
        self.confusion: Counter[tuple[Any, Any]] = Counter()
        self.counts, self.confidences, self.hits = np.zeros((3, BINS))
        self._log_loss = 0.0

    def add(self, truth: np.ndarray, classes: np.ndarray, probabilities: np.ndarray) -> float:
        """Add rows with labels (n,) and probabilities (n, K); return their accuracy."""
        places = {label: place for place, label in enumerate(classes.tolist())}
        columns = np.array([places.get(label, -1) for label in truth.tolist()])
        winners, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        own = np.where(columns < 0, 0.0, probabilities[np.arange(truth.size), columns])
        self._log_loss -= float(np.log(np.clip(own, SMALLEST, 1.0 - SMALLEST)).sum())
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        hit = columns == winners
        for sums, values in (
            (self.counts, None), (self.confidences, confidence), (self.hits, hit),
        ):  # fmt: skip
            sums += np.bincount(bins, values, minlength=BINS)
        self.confusion.update(zip(truth.tolist(), classes[winners].tolist(), strict=True))
        return float(hit.mean())

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.confusion.total()

    @property
    def classes(self) -> list[Any]:
        """All classes, true or predicted."""
        return sorted({label for pair in self.confusion for label in pair})

    @property
    def matrix(self) -> np.ndarray:
        """Counts of true (rows) and predicted (columns) classes."""
        classes = self.classes
        return np.array([[self.confusion[true, got] for got in classes] for true in classes])

    @property
    def calibration(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts, mean probabilities and accuracies of the bins that are not empty."""
        filled = self.counts > 0
        counts = self.counts[filled]
        return counts, self.confidences[filled] / counts, self.hits[filled] / counts

    @property
    def measures(self) -> dict[str, float]:
        """The measures by name."""
        matrix, size = self.matrix, self.size
        true = matrix.sum(axis=1)
        recalls = np.diagonal(matrix)[true > 0] / true[true > 0]
        return {
            "accuracy": float(np.trace(matrix) / size),
            "balanced_accuracy": float(recalls.mean()),
            "log_loss": self._log_loss / size,
            "calibration_error": float(np.abs(self.hits - self.confidences).sum() / size),
        }

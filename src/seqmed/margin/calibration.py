"""Calibrated probabilities, from the record of earlier scores and their labels.

Every labeled row is scored before it is learned. A slope A > 0 turns class scores s into
probabilities ``softmax(A s)``. The record is its log-likelihood under every slope of a fixed grid.
To forget old scores, these log-likelihoods are scaled down.

Probabilities are averaged over the slopes, weighted by a prior and the likelihood of the record.
Predictions and probabilities agree. With few scored labels, small slopes keep their weight, and
probabilities are less extreme.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from seqmed.classes import ClassCounts
from seqmed.kernels import blocks
from seqmed.numeric.arrays import Array

# Grid of slopes in steps of half an octave. Scores on the margin are mostly +-1, but as small as
# ``1 - slack_shape / C`` if C is close to slack_shape: they need the steepest slopes.
SLOPES = 2.0 ** np.arange(-5.0, 12.5, 0.5)
# Mean and standard deviation of the normal prior of the slope, in octaves.
PRIOR_MEAN, PRIOR_DEVIATION = 1.5, 2.0
# Probability of a random label: it bounds the influence of a single row.
LABEL_NOISE = 1e-3
# Largest exponent, to avoid overflow.
LARGEST_EXPONENT = 50.0
# Slopes with a smaller weight are left out of the average.
SMALLEST_WEIGHT = 1e-9


@dataclass(frozen=True)
class Calibration:
    """The record of labeled rows that were scored before they were learned.

    ``log_likelihoods`` are those of the record under every slope of `SLOPES`, ``n_scored`` is the
    total weight of its labels.
    """

    log_likelihoods: Array = field(default_factory=lambda: np.zeros(SLOPES.size))
    n_scored: float = 0.0

    @property
    def slope_weights(self) -> Array:
        """Posterior probability of every slope of the grid, (slopes,)."""
        octaves = (np.log2(SLOPES) - PRIOR_MEAN) / PRIOR_DEVIATION
        weights: Array = softmax(self.log_likelihoods - 0.5 * octaves**2)
        return weights

    @property
    def slope(self) -> float:
        """Geometric mean of the slope under its posterior."""
        return float(np.exp(self.slope_weights @ np.log(SLOPES)))

    def forget(self, forgetting: float) -> Calibration:
        """Return the record discounted by the forgetting factor, in (0, 1]."""
        return Calibration(forgetting * self.log_likelihoods, forgetting * self.n_scored)

    def add(self, scores: Array, codes: NDArray[np.intp], weights: Array) -> Calibration:
        """Return the record with the scores (n, K) of rows of the classes ``codes`` (n,)."""
        found = np.zeros(SLOPES.size)
        for rows in blocks(codes.size, SLOPES.size * scores.shape[1]):
            own = np.arange(scores.shape[1]) == codes[rows, None]
            margins = scores[rows] - scores[rows][own][:, None]
            others = margins[~own].reshape(margins.shape[0], -1).T
            # the inverse probability of the true class is the sum of exp(A (s_c - s_true))
            exponents = np.clip(SLOPES[:, None, None] * others, -LARGEST_EXPONENT, LARGEST_EXPONENT)
            inverse = 1.0 + np.exp(exponents).sum(axis=1)
            likelihoods = (1.0 - LABEL_NOISE) / inverse + LABEL_NOISE / scores.shape[1]
            found += np.log(likelihoods) @ weights[rows]
        return replace(
            self,
            log_likelihoods=self.log_likelihoods + found,
            n_scored=self.n_scored + float(weights.sum()),
        )

    def probabilities(self, scores: Array) -> Array:
        """Return class probabilities from class scores, both (n, K)."""
        weights = self.slope_weights
        used = np.flatnonzero(weights > SMALLEST_WEIGHT)
        total = np.zeros_like(scores)
        for place in used:
            total += weights[place] * softmax(SLOPES[place] * scores, axis=1)
        return total / float(weights[used].sum())


def record(
    calibration: Calibration,
    counts: ClassCounts,
    scores: Array,
    codes: NDArray[np.intp],
    weights: Array,
) -> Calibration:
    """Add a labeled batch to the record, with its scores (n, machines) before it was learned.

    ``counts`` are the labels before; rows of classes without labels are left out.
    """
    seen = counts.seen
    usable = seen[codes] & np.isfinite(scores).all(axis=1)
    places = np.cumsum(seen) - 1
    of_classes = counts.class_scores(scores[usable])[:, seen]
    return calibration.add(of_classes, places[codes[usable]], weights[usable])


def probabilities(calibration: Calibration, counts: ClassCounts, scores: Array) -> Array:
    """Return the probabilities of the classes, given their scores, both (n, K)."""
    return with_unseen(counts, calibration.probabilities(scores[:, counts.seen]), scores)


def with_unseen(counts: ClassCounts, seen: Array, of_classes: Array) -> Array:
    """Return the probability of every class, (n, K), given those of the classes with labels.

    A declared class without a label has the probability ``1 / (n_labels + n_classes)``, by
    Laplace's rule of succession. The class with the largest score in ``of_classes`` (n, K) keeps
    the largest probability, also after rounding.
    """
    unseen = 1.0 / (counts.weights.sum() + counts.size)
    found = np.full((seen.shape[0], counts.size), unseen)
    rest = 1.0 - unseen * np.count_nonzero(~counts.seen)
    found[:, counts.seen] = rest * seen
    winners = counts.best(of_classes)
    beaten = np.flatnonzero(found.argmax(axis=1) != winners)
    found[beaten, winners[beaten]] = np.nextafter(found[beaten].max(axis=1), 2.0)
    return found

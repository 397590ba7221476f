"""Probabilities from scores, by how earlier scores turned out.

The posterior's own spread is no probability of error: labels never shrink it. What is honest is the
record of the stream itself, because every labeled row is scored before it is learned. A slope A > 0
makes probabilities of scores, ``softmax(A s)``, or ``sigmoid(A f)`` for the one score of two
classes. How likely the record is under each slope of a fixed grid is all that is kept of it: a sum
of a few numbers, whatever the length of the stream, which forgets by being scaled.

Probabilities are the mean over the slopes, weighted by a prior and that record. Under every slope
the largest score has the largest probability, so predictions and probabilities agree; and while
few labels have been scored, flat slopes keep their weight and probabilities keep near ignorance.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from seqmed.arrays import Array
from seqmed.classes import ClassRegistry
from seqmed.kernels import blocks

# Scores of +-1 are the margin, with C close to slack_shape scores of ``1 - slack_shape / C``. Half
# octaves from flat to steep enough for either.
SLOPES = 2.0 ** np.arange(-5.0, 12.5, 0.5)
# The prior of a slope, before any label has been scored, is normal in octaves.
PRIOR_OCTAVE, PRIOR_SPREAD = 1.5, 2.0
# Probability that a label in the record is anybody's guess: bounds what a single row, however far
# its score, can say against a slope.
SLIP = 1e-3
# Exponent beyond which a class weighs nothing, or everything but for a slip.
LARGEST_EXPONENT = 50.0
# Slopes of a smaller share in the mean are left out.
SMALLEST_SHARE = 1e-9


@dataclass(frozen=True)
class Calibration:
    """The record of scores that were given before their labels were learned.

    Parameters
    ----------
    log_likelihoods : (slopes,) of that record under every slope of `SLOPES`.
    n_scored : total weight of the labels in it.
    """

    log_likelihoods: Array = field(default_factory=lambda: np.zeros(SLOPES.size))
    n_scored: float = 0.0

    @property
    def shares(self) -> Array:
        """The posterior of the slope: a weight >= 0 for every one of the grid, summing to 1."""
        octaves = (np.log2(SLOPES) - PRIOR_OCTAVE) / PRIOR_SPREAD
        return softmax(self.log_likelihoods - 0.5 * octaves**2)

    @property
    def slope(self) -> float:
        """The slope to be expected: its geometric mean."""
        return float(np.exp(self.shares @ np.log(SLOPES)))

    def forget(self, share: float) -> Calibration:
        """Return the record scaled by ``share`` in (0, 1]."""
        if share == 1.0:
            return self
        return Calibration(share * self.log_likelihoods, share * self.n_scored)

    def add(self, scores: Array, codes: NDArray[np.intp], weights: Array) -> Calibration:
        """Return the record with scores (n, K) of rows of the classes ``codes`` (n,) added."""
        found = np.zeros(SLOPES.size)
        for rows in blocks(codes.size, SLOPES.size * scores.shape[1]):
            own = np.arange(scores.shape[1]) == codes[rows, None]
            margins = scores[rows] - scores[rows][own][:, None]
            others = margins[~own].reshape(margins.shape[0], -1).T
            # the probability of the true class is one in as many as the classes weigh against it
            exponents = np.clip(SLOPES[:, None, None] * others, -LARGEST_EXPONENT, LARGEST_EXPONENT)
            odds = 1.0 + np.exp(exponents).sum(axis=1)
            likelihoods = (1.0 - SLIP) / odds + SLIP / scores.shape[1]
            found += np.log(likelihoods) @ weights[rows]
        return replace(
            self,
            log_likelihoods=self.log_likelihoods + found,
            n_scored=self.n_scored + float(weights.sum()),
        )

    def probabilities(self, scores: Array) -> Array:
        """Return the probabilities of the classes with these scores, both (n, K)."""
        shares = self.shares
        used = np.flatnonzero(shares > SMALLEST_SHARE)
        total = np.zeros_like(scores)
        for which in used:
            total += shares[which] * softmax(SLOPES[which] * scores, axis=1)
        return total / shares[used].sum()


def no_record() -> Calibration:
    """Return the record before any label has been scored."""
    return Calibration()


def record(
    calibration: Calibration,
    registry: ClassRegistry,
    scores: Array,
    codes: NDArray[np.intp],
    weights: Array,
) -> Calibration:
    """Return the record after a labeled batch was scored by what was known before it.

    Parameters
    ----------
    calibration : the record so far.
    registry : the classes known when the rows were scored; at least two of them seen.
    scores : (n, machines).
    codes : (n,) indices of the true classes in the registry, -1 for a class that is not in it. Rows
        of classes not seen before say nothing of the slope and are left out.
    weights : (n,).
    """
    usable = (codes >= 0) & np.isfinite(scores).all(axis=1)
    usable[usable] = registry.seen[codes[usable]]
    places = np.cumsum(registry.seen) - 1
    of_classes = registry.class_scores(scores[usable])[:, registry.seen]
    return calibration.add(of_classes, places[codes[usable]], weights[usable])


def probabilities(calibration: Calibration, registry: ClassRegistry, scores: Array) -> Array:
    """Return the probability of every class, (n, K), from scores of the machines."""
    of_classes = registry.class_scores(scores)
    return with_unseen(
        registry, calibration.probabilities(of_classes[:, registry.seen]), of_classes
    )


def with_unseen(registry: ClassRegistry, seen: Array, of_classes: Array) -> Array:
    """Return the probability of every class known, (n, K), from those of the classes seen.

    A class that was declared, and of which no example has come, has what Laplace's rule of
    succession gives it: one in all labels so far and all classes. The largest probability is
    always that of the class with the largest score of ``of_classes`` (n, K), also where rounding
    would make two of them equal.
    """
    unseen = 1.0 / (registry.weights.sum() + registry.classes.size)
    found = np.full((seen.shape[0], registry.classes.size), unseen)
    rest = 1.0 - unseen * np.count_nonzero(~registry.seen)
    found[:, registry.seen] = rest * seen
    winners = registry.best(of_classes)
    beaten = np.flatnonzero(found.argmax(axis=1) != winners)
    found[beaten, winners[beaten]] = np.nextafter(found[beaten].max(axis=1), 2.0)
    return found

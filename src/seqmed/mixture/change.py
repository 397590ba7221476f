"""Changes of the concept: a test on the record, and the trial of a new start.

The record holds scores of labeled rows before they were learned. If the mixture is wrong more often
on its newer rows than on its older ones, for any division in two, the concept has changed. The test
statistic of a division is the difference of the two error rates in units of its standard error; one
error of the newer rows is not counted, as the normal approximation fails where errors are rare.

Errors that come in groups look like a change, but the labels before the group stay valid. Only the
next labels can tell. So a new start does not replace the state: both learn, and both predict. Their
probabilities are mixed, with the weight and the temperatures that predict best the labeled rows
since the change. A state whose weight becomes small is dropped.

The rows between the change and its alarm count too. The new start was fitted on them, so it is
given the class frequencies of the other rows there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.mixture.pooling import (
    Recorded,
    best_temperature,
    log_probabilities,
    mixture_weights,
    normalised,
)
from seqmed.numeric.arrays import Array, Indices, Mask

# Largest number of labeled rows in the record.
RECORD = 300
# Rows at least on both sides of a division, and standard errors from which on it is a change. The
# threshold is high because all divisions are tested at every batch.
SMALLEST_SIDE, SIGNIFICANT = 20, 4.5
# Labels at least since a change.
FEWEST_LABELS = 5


class Change(NamedTuple):
    """A change of the concept.

    Attributes
    ----------
    n_labels : recorded labels since the change.
    error_before, error_after : error rates on the record before and after it.
    """

    n_labels: int
    error_before: float
    error_after: float


def find_change(wrong: Mask, n_searched: int = RECORD) -> Change | None:
    """Return the most significant rise of the error rate; None if none is significant.

    A rise must be significant with `SMALLEST_SIDE` newer rows. It may have begun later: the labels
    just before a change are the most harmful ones.

    Parameters
    ----------
    wrong : (r,) rows of the record that were predicted wrongly, oldest first.
    n_searched : number of newest rows in which a change may begin.
    """
    first = max(SMALLEST_SIDE, wrong.size - n_searched)
    older = np.arange(first, wrong.size - FEWEST_LABELS + 1)
    deviation = wrong.std() if wrong.size else 0.0
    if wrong.size < first + SMALLEST_SIDE or deviation == 0:
        return None
    newer = wrong.size - older
    sums = np.cumsum(wrong)
    before, after = sums[older - 1] / older, (sums[-1] - sums[older - 1]) / newer
    rise = after - before - 1.0 / newer
    statistic = rise / (deviation * np.sqrt(1.0 / older + 1.0 / newer))
    if statistic[newer >= SMALLEST_SIDE].max() < SIGNIFICANT:
        return None
    best = int(np.argmax(statistic))
    return Change(int(newer[best]), float(before[best]), float(after[best]))


# Pseudo-counts of both states of a trial.
TRIAL_COUNTS = np.array([2.0, 2.0])
# A state with a smaller weight is dropped, and the one with the smaller weight after this many
# labels.
SMALLEST_WEIGHT, LONGEST = 0.05, 100


def weigh_start(before: Array, after: Array, record: Recorded) -> tuple[float, Array]:
    """Return the weight of a new start, and the temperatures (2,) of both states.

    Parameters
    ----------
    before, after : (r, K) probabilities of the state without the new start, and of the new start,
        for the labeled rows since the change.
    record : these rows; their own probabilities are not used.
    """
    both = np.stack([before, after], axis=1)
    logs = log_probabilities(record._replace(probabilities=both))
    temperatures = np.array([best_temperature(logs[:, state], record) for state in range(2)])
    logs = normalised(temperatures[:, None] * logs)
    chosen = np.exp(logs[np.arange(record.codes.size), :, record.codes])
    weights = mixture_weights(chosen, record.weights, TRIAL_COUNTS)
    return float(weights[1]), temperatures


def class_frequencies(codes: Indices, known: Mask) -> Array:
    """Return the class frequencies (n, K) of the other n - 1 rows, for every row.

    Every known class has half a row more, so that no frequency is 0.
    """
    own = np.eye(known.shape[1])[codes]
    counts = np.where(known, own.sum(axis=0) - own + 0.5, 0.0)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def is_decided(weight: float, n_labels: int) -> bool | None:
    """Return whether a new start is kept after ``n_labels`` labels; None if the trial goes on."""
    if min(weight, 1.0 - weight) >= SMALLEST_WEIGHT and n_labels < LONGEST:
        return None
    return weight >= 0.5

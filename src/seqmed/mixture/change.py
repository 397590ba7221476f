"""Changes of the concept: a test on the record, and the trial of a new start.

The record holds scores of labeled rows before they were learned. If the mixture is wrong more often
on its newer rows than on its older ones, for any division in two, the concept has changed. The test
statistic of a division is the difference of the two error rates in units of its standard error; one
error of the newer rows is not counted, as the normal approximation fails where errors are rare.

Errors that come in groups look like a change, but the labels before the group stay valid. Only the
next labels can tell. The state with the new start and the state without it predict them before they
learn them, and the new start is revoked if it predicts them worse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.numeric.arrays import Mask

# Largest number of labeled rows in the record.
RECORD = 300
# Rows at least on both sides of a division, and standard errors from which on it is a change. The
# threshold is high because all divisions are tested at every batch.
SMALLEST_SIDE, SIGNIFICANT = 15, 3.5
# Labels at least since a change.
FEWEST_LABELS = 5


class Change(NamedTuple):
    """A change of the concept.

    Attributes
    ----------
    n_labels : labels since the change.
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


# The trial ends if the numbers of errors differ by this many standard errors, and by this many
# errors at least.
DECISIVE, FEWEST_ERRORS = 1.5, 3
# The trial ends after this many labels; the state with fewer errors is kept, the new one if equal.
LONGEST = 100


def compare(wrong: Mask, wrong_before: Mask, n_labels: int) -> bool | None:
    """Return whether the new start is kept; None if the trial goes on.

    Parameters
    ----------
    wrong, wrong_before : (m,) labels since the new start that are predicted wrongly, with and
        without it.
    n_labels : number of labels since the new start.
    """
    more = int(wrong.sum()) - int(wrong_before.sum())
    # the standard error of a difference of paired errors
    error = np.sqrt(np.count_nonzero(wrong != wrong_before))
    if abs(more) >= max(FEWEST_ERRORS, DECISIVE * error) or n_labels >= LONGEST:
        return more <= 0
    return None

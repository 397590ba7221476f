"""Changes of the concept: a test on the record.

The record holds scores of labeled rows before they were learned. If the mixture is wrong more often
on its newer rows than on its older ones, for any division in two, the concept has changed. The test
statistic of a division is the difference of the two error rates in units of its standard error; one
error of the newer rows is not counted, as the normal approximation fails where errors are rare.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.arrays import Mask
from seqmed.mixture.record import RECORD

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

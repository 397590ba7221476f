"""Mini-batches: parts of a batch, which the experts learn one after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.arrays import Mask
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry


class MiniBatch(NamedTuple):
    """One mini-batch for an expert.

    Attributes
    ----------
    rows : the whole batch it belongs to.
    part : (n,) mask of its rows in the batch.
    is_first : whether it is the first of its batch.
    new_points : whether the rows are new; False for late labels.
    registry : the classes, this mini-batch included.
    """

    rows: Rows
    part: Mask
    is_first: bool
    new_points: bool
    registry: ClassRegistry


def mini_batches(labeled: Mask, n_labels: float) -> list[slice]:
    """Divide a batch into mini-batches, so that even a single large batch gives a record.

    A mini-batch ends after max(4, a quarter of the labels so far) labeled rows.

    Parameters
    ----------
    labeled : (m,) mask of the labeled rows of the batch.
    n_labels : labels learned before it.
    """
    ends, since, total = [], 0, n_labels
    for row in np.flatnonzero(labeled).tolist():
        since += 1
        if since >= max(4, total / 4):
            ends.append(row + 1)
            total += since
            since = 0
    if ends and since == 0:
        ends[-1] = labeled.size
    else:
        ends.append(labeled.size)
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

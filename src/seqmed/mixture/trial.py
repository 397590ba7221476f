"""The trial of a new start after a change of the concept.

Errors that come in groups look like a change, but the labels before the group stay valid. Only the
next labels can tell. The state with the new start and the state without it predict them before they
learn them, and the new start is revoked if it predicts them worse.
"""

from __future__ import annotations

import numpy as np

from seqmed.arrays import Mask

# The trial ends if the numbers of errors differ by this many standard errors, and by this many
# errors at least.
SIGNIFICANT, FEWEST_ERRORS = 1.5, 3
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
    if abs(more) >= max(FEWEST_ERRORS, SIGNIFICANT * error) or n_labels >= LONGEST:
        return more <= 0
    return None

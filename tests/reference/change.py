"""The test for a change of the concept, division by division."""

import numpy as np


def naive_change(wrong, smallest_side, fewest_labels, significant):
    """Return labels since the change and both error rates; None if no division is significant."""
    statistics = {}
    for n_newer in range(fewest_labels, len(wrong) - smallest_side + 1):
        older, newer = wrong[:-n_newer], wrong[-n_newer:]
        variance = np.var(wrong) / len(older) + np.var(wrong) / len(newer)
        if variance > 0:
            difference = (sum(newer) - 1) / len(newer) - sum(older) / len(older)
            statistics[n_newer] = difference / np.sqrt(variance)
    tested = [value for n_newer, value in statistics.items() if n_newer >= smallest_side]
    if not tested or max(tested) < significant:
        return None
    n_newer = max(statistics, key=lambda n: (statistics[n], n))
    older, newer = wrong[:-n_newer], wrong[-n_newer:]
    return n_newer, sum(older) / len(older), sum(newer) / len(newer)

"""The test for a change of the concept, division by division."""

import numpy as np


def naive_change(wrong, smallest_side, significant):
    """Return labels since the change and both error rates; None if no division is significant."""
    best = None
    for n_older in range(smallest_side, len(wrong) - smallest_side + 1):
        older, newer = wrong[:n_older], wrong[n_older:]
        before, after = sum(older) / len(older), sum(newer) / len(newer)
        variance = np.var(wrong) / len(older) + np.var(wrong) / len(newer)
        if variance == 0:
            continue
        statistic = ((sum(newer) - 1) / len(newer) - before) / np.sqrt(variance)
        if statistic >= significant and (best is None or statistic > best[0] + 1e-12):
            best = statistic, (len(newer), before, after)
    return None if best is None else best[1]

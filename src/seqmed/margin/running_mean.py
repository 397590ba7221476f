"""Averaging with ``averaging="auto"``: when the running mean of posterior means is used.

A label whose multiplier is frozen has a multiplier that only the labels of its time have chosen.
Posterior means then vary from update to update, and their running mean predicts better. The running
mean begins when the first label leaves the window because of its size.

If the stream drifts, the running mean is late. Labeled rows are therefore scored with both means
before they are learned. Rows on which exactly one of them is right are compared. Predictions use
the newest mean while it is ahead, and the running mean starts again at the newest mean when that
mean is far ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmed.numeric.arrays import Array, Mask
from seqmed.numeric.expectations import expect

# Lead of the newest mean in standard errors, at which predictions use it, and at which the running
# mean starts again. The standard error is the root of the number of compared rows and these ones,
# so that a few rows give no lead: docs/decisions, 0012.
LEAD_TO_PREDICT, LEAD_TO_RESTART, PRIOR_ROWS = 1.5, 3.0, 10


@dataclass(frozen=True)
class RunningMean:
    """The running mean since a label left the window; its coefficients are `Terms.averages`.

    Parameters
    ----------
    n_means : number of posterior means in it, at least 1; 0 if the next update starts it again.
    biases : (machines,) of the running mean.
    newest : (m, machines) landmark coefficients of the newest mean.
    lead : number of compared rows on which the newest mean alone was right, less the number of
        those on which the running mean alone was right. It is at least 0.
    n_compared : number of rows compared since the lead was last 0.
    """

    n_means: int
    biases: Array
    newest: Array
    lead: int = 0
    n_compared: int = 0

    def validate(self) -> None:
        """Raise a ValueError if the counts are not those of a mean."""
        expect(self.n_means >= 1, "at least one mean in a running mean")
        expect(0 <= self.lead <= self.n_compared, "a lead of at most the compared rows")

    @property
    def newest_leads(self) -> bool:
        """Whether predictions use the newest mean."""
        return self._leads_by(LEAD_TO_PREDICT)

    def restarted(self) -> Self:
        """Return the record before a new running mean, which the next update begins."""
        return replace(self, n_means=0, lead=0, n_compared=0)

    def compared(self, newest: Mask, averaged: Mask) -> Self:
        """Return the record after labeled rows, (n,): for which of them each mean was right."""
        lead = self.lead + int(np.sum(newest)) - int(np.sum(averaged))
        if lead <= 0:
            return replace(self, lead=0, n_compared=0)
        n_compared = self.n_compared + int(np.sum(newest != averaged))
        found = replace(self, lead=lead, n_compared=n_compared)
        return found.restarted() if found._leads_by(LEAD_TO_RESTART) else found

    def _leads_by(self, standard_errors: float) -> bool:
        return self.lead >= standard_errors * float(np.sqrt(self.n_compared + PRIOR_ROWS))

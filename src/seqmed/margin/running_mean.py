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
# mean starts again: docs/decisions, 0012.
LEAD_TO_PREDICT, LEAD_TO_RESTART = 1.5, 3.0


@dataclass(frozen=True)
class RunningMean:
    """The running mean since a label left the window; its coefficients are `Terms.averages`.

    Parameters
    ----------
    n_means : number of posterior means in it, at least 1; 0 if the next update starts it again.
    biases : (machines,) of the running mean.
    newest : (m, machines) landmark coefficients of the newest mean.
    lead : weight of the compared rows on which the newest mean alone was right, less that of rows
        on which the running mean alone was right. It is at least 0.
    variance : sum of the squared weights of the rows compared since the lead was last 0.
    """

    n_means: int
    biases: Array
    newest: Array
    lead: float = 0.0
    variance: float = 0.0

    def validate(self) -> None:
        """Raise a ValueError if the counts are not those of a mean."""
        expect(self.n_means >= 1, "at least one mean in a running mean")
        expect(self.lead >= 0 and self.variance >= 0, "a lead and a variance of at least 0")

    @property
    def newest_leads(self) -> bool:
        """Whether predictions use the newest mean."""
        return self._leads_by(LEAD_TO_PREDICT)

    def restarted(self) -> Self:
        """Return a record with which the next update starts the running mean again."""
        return replace(self, n_means=0, lead=0.0, variance=0.0)

    def compared(self, newest: Mask, averaged: Mask, weights: Array) -> Self:
        """Return the record after labeled rows, (n,): for which of them each mean was right."""
        differ = newest != averaged
        lead = self.lead + float(weights @ (newest.astype(float) - averaged))
        if lead <= 0:
            return replace(self, lead=0.0, variance=0.0)
        found = replace(
            self, lead=lead, variance=self.variance + float(np.sum(weights[differ] ** 2))
        )
        return found.restarted() if found._leads_by(LEAD_TO_RESTART) else found

    def _leads_by(self, standard_errors: float) -> bool:
        return self.lead > 0 and self.lead >= standard_errors * float(np.sqrt(self.variance))

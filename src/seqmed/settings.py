"""Parameters of one update."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Parameters of one update; all of them may differ from one batch to the next.

    The estimators have the defaults.

    Parameters
    ----------
    C : upper bound of the multiplier of a row of weight 1.
    slack_shape : shape of the slack prior, >= 0 and < C.
    beta : smoothness weight, >= 0; the penalty is ``2 beta f' L f``.
    bias : "median" for the paper's median rule, otherwise the bias of the solver.
    tol, max_iter : tolerance and largest number of iterations of the dual solver.
    lag : batches with labels whose multipliers are optimised together, None for all.
    window : labeled rows whose multipliers are optimised together, None for all.
    averaging : whether predictions use the running mean of the posterior means.
    forgetting : forgetting factor per batch, in (0, 1].
    capacity : labeled points kept exactly; None for all.
    """

    C: float
    slack_shape: float
    beta: float
    bias: str
    tol: float
    max_iter: int
    lag: int | None
    window: int | None
    averaging: bool
    forgetting: float
    capacity: int | None

"""Parameters of one update."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Parameters of one update; all of them may differ from one batch to the next.

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
    slack_shape: float = 1.0
    beta: float = 0.0
    bias: str = "exact"
    tol: float = 1e-3
    max_iter: int = -1
    lag: int | None = 1
    window: int | None = None
    averaging: bool = False
    forgetting: float = 1.0
    capacity: int | None = None

"""One update: its parameters, its batch, and its report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.late_rows import LateLabels
from seqmed.margin.covariance.protocol import WindowCovariance
from seqmed.margin.dual import DualSolution
from seqmed.numeric.arrays import Array, Points, take_rows


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


@dataclass(frozen=True)
class Batch:
    """One batch, ready for a step.

    Parameters
    ----------
    points : (n, p) all rows, labeled or not.
    labeled : (l,) indices of the labeled rows.
    targets : (l, machines) each -1.0 or +1.0.
    weights : (l,) positive weights of the labeled rows.
    class_weights : (l,) positive weights of the classes of these rows; the two weights are
        multiplied.
    geometry : `Posterior.landmark_geometry` of the labeled rows before the update. It gives their
        scores before the update, and the update solves its duals with it if nothing has changed.
    """

    points: Points
    labeled: NDArray[np.intp]
    targets: Array
    weights: Array
    class_weights: Array
    geometry: WindowCovariance | None = None

    @cached_property
    def labeled_points(self) -> Points:
        """Return a copy of the labeled rows, (l, p)."""
        return take_rows(self.points, self.labeled)


class UpdateInfo(NamedTuple):
    """The report of an update.

    Attributes
    ----------
    solutions : one per machine; None for a machine without a dual to solve.
    n_points : rows of the batch.
    n_labeled : labeled rows of the batch.
    n_window : labeled points whose multipliers were optimised.
    projection_cost : (machines,) norm, in the base kernel's space, of the residual of projecting
        points beyond the budget; multiplied by ``sqrt(k(x, x))`` it bounds the change of the score
        of x.
    replacement_cost : largest change of the variance at a replaced landmark z, as a fraction of
        ``k(z, z)``.
    forgot : whether earlier labels have been discounted by `Settings.forgetting`.
    C, beta : multiplier bound of a row of weight 1, and smoothness weight.
    late_labels : numbers of the late labels; None if they were not late.

    A batch of many labels may be learned in mini-batches. The solutions are then those of the last
    mini-batch.
    """

    solutions: tuple[DualSolution | None, ...]
    n_points: int
    n_labeled: int
    n_window: int
    projection_cost: Array
    replacement_cost: float
    forgot: bool
    C: float = float("inf")
    beta: float = 0.0
    late_labels: LateLabels | None = None

    def after(self, earlier: list[UpdateInfo]) -> UpdateInfo:
        """Combine this report of the last mini-batch with the reports of the earlier ones."""
        if not earlier:
            return self
        every = [*earlier, self]
        cost = self.projection_cost
        for info in earlier:  # classes may have been added since
            same = info.projection_cost.size == cost.size
            cost = cost + (info.projection_cost if same else info.projection_cost.max())
        return self._replace(
            n_points=earlier[0].n_points,
            n_labeled=sum(info.n_labeled for info in every),
            projection_cost=cost,
            replacement_cost=max(info.replacement_cost for info in every),
            forgot=any(info.forgot for info in every),
        )

    @property
    def solved(self) -> tuple[DualSolution, ...]:
        """The solutions of the machines that had a problem to solve."""
        return tuple(solution for solution in self.solutions if solution is not None)

    @property
    def gap(self) -> float:
        """The largest duality gap of the update; NaN if no dual was solved."""
        return max((solution.gap for solution in self.solved), default=float("nan"))

    @property
    def relative_gap(self) -> float:
        """The largest gap relative to its objective; NaN if no dual was solved."""
        return max((solution.relative_gap for solution in self.solved), default=float("nan"))

    @property
    def n_iter(self) -> int:
        """Solver iterations of all machines together."""
        return sum(solution.n_iter for solution in self.solved)

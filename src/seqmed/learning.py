"""One update of the stream learner: posterior and batch in, posterior out.

A batch passes through in this order (Theorems 1 and 2 of the paper):

1. its labeled points enter the window, and the oldest leave it for good;
2. the geometry of its points is folded into the covariance;
3. prior mean and covariance are evaluated on the window;
4. one dual per head gives the multipliers of the window and the bias;
5. the new mean is averaged, kept to its budget, and put in a form ready to evaluate.

Nothing here is changed in place: a step that fails leaves the posterior it began with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed import upkeep, windows
from seqmed.arrays import Array, Points, distinct_rows, no_indices, no_rows, take_rows
from seqmed.dual import DualSolution
from seqmed.graph import GraphRecipe, find_neighbours, measure_heat_width, smoothness
from seqmed.kernels import Expansion
from seqmed.posterior import Posterior, Recursion, Terms, Watched, Window
from seqmed.settings import Settings
from seqmed.solving import learn, poses, unchanged

# Kernel values are multiplied three at a time; beyond this they would overflow.
LARGEST_VARIANCE = 1e100


@dataclass(frozen=True)
class Batch:
    """One batch, ready for a step.

    Parameters
    ----------
    points : (n, p) all rows, labeled or not.
    labeled : (l,) indices of the labeled ones.
    targets : (l, heads) each -1.0 or +1.0.
    weights : (l,) positive weights of the labeled rows.
    class_weights : (l,) positive weights of their classes, which multiply the others.
    """

    points: Points
    labeled: NDArray[np.intp]
    targets: Array
    weights: Array
    class_weights: Array

    @cached_property
    def labeled_points(self) -> Points:
        """Return a copy of the labeled rows, (l, p): one, so that kernel values are found again."""
        return take_rows(self.points, self.labeled)


class StepInfo(NamedTuple):
    """What a step has to report.

    Attributes
    ----------
    solutions : one per head; None where the batch posed no problem to that head.
    n_points : rows of the batch.
    n_labeled : labeled rows of the batch.
    n_window : labeled points whose multipliers were optimised.
    projection_cost : (heads,) norm, in the base kernel's space, of what was lost by projecting
        points beyond the budget; times ``sqrt(k(x, x))`` it bounds the change of any score.
    replacement_cost : largest change, by replacing landmarks, of the variance at one that left, as
        a share of ``k(z, z)``.
    forgot : whether what labels taught before has been scaled by `Settings.forgetting`.
    """

    solutions: tuple[DualSolution | None, ...]
    n_points: int
    n_labeled: int
    n_window: int
    projection_cost: Array
    replacement_cost: float
    forgot: bool

    @property
    def solved(self) -> tuple[DualSolution, ...]:
        """The solutions of the heads that had a problem to solve."""
        return tuple(solution for solution in self.solutions if solution is not None)

    @property
    def gap(self) -> float:
        """The largest duality gap of the step; NaN if no dual was posed."""
        return max((solution.gap for solution in self.solved), default=float("nan"))

    @property
    def relative_gap(self) -> float:
        """The largest gap relative to its objective; NaN if no dual was posed."""
        return max((solution.relative_gap for solution in self.solved), default=float("nan"))

    @property
    def n_iter(self) -> int:
        """Solver iterations of all heads together."""
        return sum(solution.n_iter for solution in self.solved)


class BiasPrior(NamedTuple):
    """The normal prior of the bias: a variance of 0 is a known bias, inf a diffuse one."""

    mean: float
    variance: float


def begin(recursion: Recursion, graph: GraphRecipe, points: Points, bias: BiasPrior) -> Posterior:
    """Return the prior of one head: mean zero but for the bias, the base kernel for covariance.

    ``points`` gives the format of the rows to come.
    """
    heads = 1
    empty, nothing, none = no_rows(points), np.zeros((0, heads)), np.zeros(0)
    return Posterior(
        recursion=recursion,
        graph=graph,
        frozen=Terms(empty, nothing, nothing),
        window=Window(
            empty, nothing, nothing, nothing, nothing, none, none, none, none, no_indices()
        ),
        on_anchors=Watched(empty, nothing, nothing, nothing),
        mean_parts=(Expansion(empty, nothing),),
        intercepts=np.full(heads, bias.mean),
        biases=np.full(heads, bias.mean),
        bias_means=np.full(heads, bias.mean),
        settled_balances=np.zeros(heads),
        solved=np.zeros(heads, dtype=np.intp),
        projection_errors=np.zeros((2, heads)),
        bias_variance=bias.variance,
        n_batches=0,
    )


def rehead(posterior: Posterior, transfer: Array, offsets: Array, *, known_bias: bool) -> Posterior:
    """Return the posterior with heads that are signed copies of old ones, or new.

    Parameters
    ----------
    posterior : with ``h`` heads.
    transfer : (h, H) with at most one nonzero entry, -1 or +1, per column; an empty column is a
        head that has learned nothing, to which every point of the window is a negative example.
    offsets : (H,) the intercepts of the new heads, 0 for the copies.
    known_bias : whether the bias is known to be ``offsets`` in a new head, whose multipliers for
        all earlier points are then 0: it has solved every dual so far.
    """
    window = posterior.window
    signs = window.signs @ transfer
    new = ~np.abs(transfer).any(axis=0)
    signs[:, new] = -1.0
    solved = posterior.solved @ np.abs(transfer).astype(np.intp)
    if known_bias:
        solved[new] = posterior.solved.max()
    # Where the window holds all that was ever learned, it says itself what was not of a new class.
    lasting = known_bias or not upkeep.is_all_in_window(posterior)
    return replace(
        posterior,
        frozen=posterior.frozen.mapped(transfer),
        window=replace(window.mapped(transfer), signs=signs),
        on_anchors=posterior.on_anchors.mapped(transfer),
        mean_parts=tuple(
            Expansion(part.points, part.coefficients @ transfer) for part in posterior.mean_parts
        ),
        intercepts=posterior.intercepts @ transfer + offsets,
        biases=posterior.biases @ transfer + offsets,
        bias_means=posterior.bias_means @ transfer + (offsets if lasting else 0.0),
        settled_balances=posterior.settled_balances @ transfer,
        solved=solved,
        projection_errors=posterior.projection_errors @ np.abs(transfer),
    )


def step(posterior: Posterior, batch: Batch, settings: Settings) -> tuple[Posterior, StepInfo]:
    """Learn one batch."""
    check_variances(posterior, batch.points)
    past = posterior
    forgot = forgets(posterior, batch, settings, posterior.n_batches)
    if forgot:
        past = upkeep.forget_labels(past, settings.forgetting)
    window, leaving = advance(past, batch, settings, past.n_batches)
    recursion, graph = fold_geometry(past, batch.points, settings)
    recursion = recursion.reach(window.points, batch.labeled.size)
    prior = replace(upkeep.follow(past, recursion), window=window)
    prior = replace(upkeep.settle(prior, leaving), graph=graph, n_batches=posterior.n_batches + 1)
    nothing_new = recursion.covariance is posterior.covariance and not batch.labeled.size
    return relearn(past, prior, batch, settings, forgot=forgot, posed=not nothing_new)


def label(posterior: Posterior, batch: Batch, settings: Settings) -> tuple[Posterior, StepInfo]:
    """Learn labels of points whose geometry was learned before; all rows are labeled.

    They count as labels of the last batch, which forgets for them unless it had labels itself.
    """
    check_variances(posterior, batch.points)
    number, past = posterior.n_batches - 1, posterior
    forgot = number not in past.window.batches and forgets(posterior, batch, settings, number)
    if forgot:
        past = upkeep.forget_labels(past, settings.forgetting)
    window, leaving = advance(past, batch, settings, number)
    recursion = past.recursion.reach(window.points, batch.labeled.size)
    prior = replace(upkeep.follow(past, recursion), window=window)
    return relearn(past, upkeep.settle(prior, leaving), batch, settings, forgot=forgot)


def retract(
    posterior: Posterior, batch: Batch, rows: NDArray[np.bool_], settings: Settings
) -> tuple[Posterior, StepInfo]:
    """Take back the labels of some points of the window, by a mask; their geometry stays.

    ``batch`` holds those points, for the report. A head that has nothing left to learn from is as
    it was before any label.
    """
    window = posterior.window.take(~rows)
    prior = replace(upkeep.without_window(posterior), window=window)
    poor = np.array([not poses(prior, head) for head in range(prior.biases.size)])
    untaught = poor & ~np.any(prior.frozen.coefficients != 0, axis=0)
    untaught &= ~np.any(prior.on_anchors.coefficients != 0, axis=0)
    prior = replace(
        prior,
        window=replace(window, coefficients=np.where(poor, 0.0, window.coefficients)),
        biases=np.where(untaught, unlearned_biases(prior), prior.biases),
        solved=np.where(untaught, 0, prior.solved),
    )
    prior = upkeep.with_window(prior)
    return relearn(prior, prior, batch, settings)


def unlearned_biases(posterior: Posterior) -> Array:
    """Return the bias of every head, (heads,), before any label: the mean of a proper prior."""
    proper = np.isfinite(posterior.bias_variance)
    return posterior.bias_means if proper else np.zeros_like(posterior.bias_means)


def relearn(
    past: Posterior,
    prior: Posterior,
    batch: Batch,
    settings: Settings,
    *,
    forgot: bool = False,
    posed: bool = True,
) -> tuple[Posterior, StepInfo]:
    """Optimise the multipliers of the window, and make what follows from them.

    Parameters
    ----------
    past : the posterior before its points were moved, to tell what moving them has cost.
    forgot : whether it has just forgotten.
    prior : the posterior with its newest window and covariance.
    batch : what brought them about.
    posed : whether there is anything new to optimise for.
    """
    learned, solutions, newest = learn(prior, settings) if posed else unchanged(prior)
    if settings.averaging:
        solved = np.array([solution is not None for solution in solutions])
        learned = upkeep.average(learned, solved, settings.forgetting, newest)
    cost = prior.projection_errors - past.projection_errors - learned.projection_errors
    kept = upkeep.within_budget(learned, settings.room)
    cost = (cost + kept.projection_errors).max(axis=0)
    bounded = settings.room is not None
    learned = upkeep.ready(kept, settings.averaging, bounded, newest if kept is learned else None)
    info = StepInfo(
        solutions=solutions,
        n_points=batch.points.shape[0],
        n_labeled=batch.labeled.size,
        n_window=prior.window.size,
        projection_cost=cost,
        replacement_cost=prior.recursion.replacement_cost,
        forgot=forgot,
    )
    return learned, info


def forgets(posterior: Posterior, batch: Batch, settings: Settings, number: int) -> bool:
    """Whether to forget for the labels of a batch: if they pose a dual, else there is no reason."""
    if settings.forgetting == 1.0 or not batch.labeled.size:
        return False
    window, _ = advance(posterior, batch, settings, number)
    grown = replace(posterior, window=window)
    return any(poses(grown, head) for head in range(posterior.biases.size))


def advance(
    posterior: Posterior, batch: Batch, settings: Settings, number: int
) -> tuple[Window, Terms]:
    """Return the window with the labeled points of a batch, and what leaves it for them."""
    weights = batch.weights * batch.class_weights
    nothing = np.zeros_like(batch.targets)
    entering = Window(
        points=batch.labeled_points,
        coefficients=nothing,
        averages=nothing,
        settled=np.full_like(batch.targets, np.nan),
        signs=batch.targets,
        bounds=settings.bound * weights,
        shapes=settings.slack_shape * weights,
        weights=batch.weights,
        discounted=batch.weights,
        batches=np.full(batch.labeled.size, number),
    )
    return windows.advance(posterior.window, entering, settings.lag, settings.window, settings.room)


def fold_geometry(
    posterior: Posterior, points: Points, settings: Settings
) -> tuple[Recursion, GraphRecipe]:
    """Fold the smoothness of a batch into the covariance; repeated rows count as one vertex.

    The graph's recipe comes back with its heat width, once there are distances to measure it by.
    """
    recursion, recipe = posterior.recursion, posterior.graph
    sufficient = settings.room is None or not recursion.grows
    if settings.smoothing == 0 and settings.forgetting == 1.0 and sufficient:
        return recursion, recipe
    if settings.forgetting < 1:
        recursion = recursion.forget(settings.forgetting)
    if settings.smoothing == 0 and not recursion.grows:
        return recursion, recipe
    kernel = recursion.covariance.kernel
    vertices = take_rows(points, distinct_rows(points))
    penalty = None
    if settings.smoothing > 0:
        neighbours = find_neighbours(kernel, vertices, recipe.n_neighbors)
        if recipe.lacks_width:
            recipe = replace(recipe, heat_width=measure_heat_width(neighbours))
        penalty = smoothness(neighbours, recipe, settings.smoothing)
    return recursion.fold(vertices, penalty), recipe


def check_variances(posterior: Posterior, points: Points) -> None:
    """Refuse a batch on which products of kernel values would overflow."""
    with np.errstate(over="ignore"):
        variances = posterior.covariance.kernel.diagonal(points)
    within = variances < LARGEST_VARIANCE
    if not within.all():
        row = int(np.flatnonzero(~within)[0])
        raise ValueError(
            f"row {row} of the batch has k(x, x) = {variances[row]:.3g}, expected a value below "
            f"{LARGEST_VARIANCE:g}: scale the features (for example with StandardScaler) or choose "
            "another kernel."
        )

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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed import dual, upkeep, windows
from seqmed.arrays import (
    Array,
    Points,
    distinct_rows,
    found_among,
    no_indices,
    no_rows,
    take_rows,
)
from seqmed.dual import DualProblem, DualSolution
from seqmed.graph import GraphRecipe, find_neighbours, measure_heat_width, smoothness
from seqmed.kernels import ComputedGram, Expansion, evaluate
from seqmed.posterior import (
    Covariance,
    CovarianceFunction,
    Posterior,
    Recursion,
    Terms,
    Window,
)

# Kernel values are multiplied three at a time; beyond this they would overflow.
LARGEST_VARIANCE = 1e100
# Points of a window whose covariances are held in memory, where they are the base kernel's.
LARGEST_GRAM = 12_000


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


@dataclass(frozen=True)
class Settings:
    """What governs one step; all of it may differ from one batch to the next.

    Parameters
    ----------
    bound : the multiplier bound C of a row of weight 1.
    slack_shape : shape of the slack prior, >= 0 and < bound.
    smoothing : the strength ``2 beta >= 0`` of the smoothness penalty.
    bias : "exact", or "median" for the paper's rule.
    tol, max_iter : of the dual solver.
    lag : batches with labels whose multipliers are optimised together, None for all.
    averaging : whether predictions are by the running mean of the means.
    forgetting : share in (0, 1] that is left of the past at every batch.
    room : labeled points kept exactly; None for all.
    """

    bound: float
    slack_shape: float = 1.0
    smoothing: float = 0.0
    bias: str = "exact"
    tol: float = 1e-3
    max_iter: int = -1
    lag: int | None = 1
    averaging: bool = False
    forgetting: float = 1.0
    room: int | None = None


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


def begin(
    recursion: Recursion, graph: GraphRecipe, points: Points, bias_variance: float
) -> Posterior:
    """Return the prior of one head: mean zero, and the base kernel for covariance.

    ``points`` gives the format of the rows to come.
    """
    heads = 1
    empty, nothing, none = no_rows(points), np.zeros((0, heads)), np.zeros(0)
    return Posterior(
        recursion=recursion,
        graph=graph,
        frozen=Terms(empty, nothing, nothing),
        window=Window(empty, nothing, nothing, nothing, none, none, none, no_indices()),
        on_anchors=Terms(empty, nothing, nothing),
        mean_parts=(Expansion(empty, nothing),),
        intercepts=np.zeros(heads),
        biases=np.zeros(heads),
        bias_means=np.zeros(heads),
        settled_balances=np.zeros(heads),
        solved=np.zeros(heads, dtype=np.intp),
        projection_errors=np.zeros((2, heads)),
        bias_variance=bias_variance,
        n_batches=0,
    )


def rehead(posterior: Posterior, transfer: Array, offsets: Array) -> Posterior:
    """Return the posterior with heads that are signed copies of old ones, or new.

    Parameters
    ----------
    posterior : with ``h`` heads.
    transfer : (h, H) with at most one nonzero entry, -1 or +1, per column; an empty column is a
        head that has learned nothing, to which every point of the window is a negative example.
    offsets : (H,) the intercepts of the new heads, 0 for the copies.
    """
    window = posterior.window
    signs = window.signs @ transfer
    signs[:, ~np.abs(transfer).any(axis=0)] = -1.0
    # Where the window holds all that was ever learned, it says itself what was not of a new class.
    beyond_window = posterior.frozen.size or posterior.on_anchors.carrying.any()
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
        bias_means=posterior.bias_means @ transfer + (offsets if beyond_window else 0.0),
        settled_balances=posterior.settled_balances @ transfer,
        solved=posterior.solved @ np.abs(transfer).astype(np.intp),
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
    recursion, graph = fold_geometry(past, window.points, batch.points, settings)
    prior = upkeep.settle(upkeep.follow(past, recursion), leaving)
    prior = replace(prior, graph=graph, window=window, n_batches=posterior.n_batches + 1)
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
    prior = upkeep.settle(past, leaving)
    prior = replace(prior, window=window, recursion=past.recursion.repin(window.points))
    return relearn(past, prior, batch, settings, forgot=forgot)


def retract(
    posterior: Posterior, batch: Batch, rows: NDArray[np.bool_], settings: Settings
) -> tuple[Posterior, StepInfo]:
    """Take back the labels of some points of the window, by a mask; their geometry stays.

    ``batch`` holds those points, for the report. A head that has nothing left to learn from is as
    it was before any label.
    """
    window = posterior.window.take(~rows)
    prior = replace(posterior, window=window, recursion=posterior.recursion.repin(window.points))
    poor = np.array([not poses(prior, head) for head in range(prior.biases.size)])
    untaught = poor & ~np.any(prior.frozen.coefficients != 0, axis=0)
    untaught &= ~np.any(prior.on_anchors.coefficients != 0, axis=0)
    prior = replace(
        prior,
        window=replace(window, coefficients=np.where(poor, 0.0, window.coefficients)),
        biases=np.where(untaught, 0.0, prior.biases),
        solved=np.where(untaught, 0, prior.solved),
    )
    return relearn(prior, prior, batch, settings)


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
    solutions = solve(prior, settings) if posed else (None,) * prior.biases.size
    learned = take_in(prior, solutions)
    if settings.averaging:
        solved = np.array([solution is not None for solution in solutions])
        learned = upkeep.average(learned, solved, settings.forgetting)
    cost = prior.projection_errors - past.projection_errors - learned.projection_errors
    learned = upkeep.within_budget(learned, settings.room)
    cost = (cost + learned.projection_errors).max(axis=0)
    learned = upkeep.ready(learned, settings.averaging, bounded=settings.room is not None)
    info = StepInfo(
        solutions=solutions,
        n_points=batch.points.shape[0],
        n_labeled=batch.labeled.size,
        n_window=prior.window.size,
        projection_cost=cost,
        replacement_cost=prior.recursion.replacement_cost,
        forgot=forgot,
    )
    return replace(learned, recursion=learned.recursion.at_rest()), info


def forgets(posterior: Posterior, batch: Batch, settings: Settings, number: int) -> bool:
    """Whether to forget for the labels of a batch: if they pose a dual, else there is no reason."""
    if settings.forgetting == 1.0 or not batch.labeled.size:
        return False
    window, _ = advance(posterior, batch, settings, number)
    grown = replace(posterior, window=window)
    return any(poses(grown, head) for head in range(posterior.biases.size))


def poses(posterior: Posterior, head: int) -> bool:
    """Whether the window poses a dual to a head: not if empty, nor one class to a diffuse bias."""
    signs = posterior.window.signs[:, head]
    if signs.size == 0 or np.isfinite(posterior.bias_variance):
        return bool(signs.size)
    return bool(abs(signs.sum()) < signs.size)


def advance(
    posterior: Posterior, batch: Batch, settings: Settings, number: int
) -> tuple[Window, Terms]:
    """Return the window with the labeled points of a batch, and what leaves it for them."""
    weights = batch.weights * batch.class_weights
    nothing = np.zeros_like(batch.targets)
    entering = Window(
        points=take_rows(batch.points, batch.labeled),
        coefficients=nothing,
        averages=nothing,
        signs=batch.targets,
        bounds=settings.bound * weights,
        shapes=settings.slack_shape * weights,
        weights=batch.weights,
        batches=np.full(batch.labeled.size, number),
    )
    return windows.advance(posterior.window, entering, settings.lag, settings.room)


def fold_geometry(
    posterior: Posterior, labeled: Points, points: Points, settings: Settings
) -> tuple[Recursion, GraphRecipe]:
    """Fold the smoothness of a batch into the covariance; repeated rows count as one vertex.

    ``labeled`` are the points of the window, which a recursion that keeps points has to keep. The
    graph's recipe comes back with its heat width, once there are distances to measure it by.
    """
    recursion, recipe = posterior.recursion, posterior.graph
    unlinked = not recursion.pins or recursion.anchors is None
    unneeded = settings.room is None and settings.forgetting == 1.0
    if settings.smoothing == 0 and unneeded and unlinked:
        return recursion, recipe
    if settings.forgetting < 1:
        recursion = recursion.forget(settings.forgetting)
    kernel = recursion.covariance.kernel
    vertices = recursion.vertices(take_rows(points, distinct_rows(points)), labeled)
    penalty = None
    if settings.smoothing > 0:
        neighbours = find_neighbours(kernel, vertices, recipe.n_neighbors)
        if recipe.lacks_width:
            recipe = replace(recipe, heat_width=measure_heat_width(neighbours))
        penalty = smoothness(neighbours, recipe, settings.smoothing)
    pinned = found_among(vertices, labeled) if recursion.pins else None
    return recursion.fold(vertices, penalty, pinned), recipe


def solve(prior: Posterior, settings: Settings) -> tuple[DualSolution | None, ...]:
    """Solve one dual per head over the points of the window."""
    window, covariance = prior.window, prior.covariance
    settled = replace(prior, window=window.take(no_indices())).support
    prior_parts = covariance.in_base_kernel(settled)
    prior_scores = evaluate(covariance.kernel, prior_parts, window.points)
    gram = gram_of(covariance, window.points)
    return tuple(
        solve_head(prior, head, gram, prior_scores[:, head], settings)
        for head in range(prior.biases.size)
    )


def gram_of(covariance: CovarianceFunction, points: Points) -> Array | ComputedGram:
    """Return the covariances of the window's points, in memory unless they are too many."""
    plain = isinstance(covariance, Covariance) and covariance.reduction is None
    if plain and points.shape[0] > LARGEST_GRAM:
        return ComputedGram(covariance.kernel, points)
    return covariance(points, points)


def solve_head(
    prior: Posterior, head: int, gram: Array | ComputedGram, prior_scores: Array, settings: Settings
) -> DualSolution | None:
    """Solve the dual of one head; None where it has no labels, or one class and a diffuse bias.

    It starts from the multipliers of the last update.
    """
    window = prior.window
    signs = np.ascontiguousarray(window.signs[:, head])
    diffuse = not np.isfinite(prior.bias_variance)
    if not poses(prior, head):
        return None
    problem = DualProblem(
        gram=gram,
        signs=signs,
        prior_scores=prior_scores if diffuse else prior_scores + prior_bias(prior, head),
        bounds=window.bounds,
        shapes=window.shapes,
        bias_variance=prior.bias_variance,
        balance=dual.attainable(signs, window.bounds, -prior.settled_balances[head]),
    )
    solution = dual.solve(
        problem,
        tol=settings.tol,
        max_iter=settings.max_iter,
        start=dual.feasible(problem, signs * window.coefficients[:, head]),
        previous_bias=float(prior.biases[head]) if prior.solved[head] else None,
    )
    on_margin = solution.multipliers > 0
    if settings.bias == "exact" or not on_margin.any():
        return solution
    scores = prior_scores + gram @ (signs * solution.multipliers)
    median = float(np.median((signs - scores)[on_margin]))
    return dual.with_bias(problem, solution, median)


def prior_bias(prior: Posterior, head: int) -> float:
    """Return the mean of a bias of finite variance, given the settled multipliers."""
    return float(prior.bias_means[head] + prior.bias_variance * prior.settled_balances[head])


def take_in(prior: Posterior, solutions: tuple[DualSolution | None, ...]) -> Posterior:
    """Return the posterior with the multipliers and biases of the solutions there are."""
    window, solved = prior.window, prior.solved.copy()
    coefficients, biases = window.coefficients.copy(), prior.biases.copy()
    for head, solution in enumerate(solutions):
        signs = window.signs[:, head]
        if solution is not None:
            coefficients[:, head] = signs * solution.multipliers
            carried = prior_bias(prior, head) if np.isfinite(prior.bias_variance) else 0.0
            biases[head] = carried + solution.bias
            solved[head] += 1
        elif signs.size and not solved[head] and biases[head] == 0:
            biases[head] = signs[0]  # one class is all that is known: predict it
    window = replace(window, coefficients=coefficients)
    return replace(prior, window=window, biases=biases, solved=solved)


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

"""One update of the stream learner: posterior and batch in, posterior out.

A batch passes through in this order (Theorems 1 and 2 of the paper):

1. the geometry of its points is folded into the covariance;
2. prior mean and covariance are evaluated on its labeled points;
3. one small dual per head gives their multipliers and the bias;
4. they join the support vectors, and the new mean is put in a form ready to evaluate.

Nothing here is changed in place: a step that fails leaves the posterior it began with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed import dual
from seqmed.arrays import Array, Points, distinct_rows, no_rows, take_rows
from seqmed.dual import DualProblem, DualSolution
from seqmed.graph import GraphRecipe, find_neighbours, measure_heat_width, smoothness
from seqmed.kernels import Expansion, Kernel
from seqmed.posterior import Posterior, Recursion, evaluate

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
    """

    points: Points
    labeled: NDArray[np.intp]
    targets: Array
    weights: Array


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
    """

    bound: float
    slack_shape: float = 1.0
    smoothing: float = 0.0
    bias: str = "exact"
    tol: float = 1e-3
    max_iter: int = -1


class StepInfo(NamedTuple):
    """What a step has to report.

    Attributes
    ----------
    solutions : one per head; None where the batch posed no problem to that head.
    n_points : rows of the batch.
    n_labeled : labeled rows of the batch.
    """

    solutions: tuple[DualSolution | None, ...]
    n_points: int
    n_labeled: int

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
    empty = Expansion(no_rows(points), np.zeros((0, heads)))
    return Posterior(
        recursion=recursion,
        graph=graph,
        support=empty,
        mean_parts=(empty,),
        intercepts=np.zeros(heads),
        solved=np.zeros(heads, dtype=bool),
        bias_variance=bias_variance,
        n_batches=0,
    )


def rehead(posterior: Posterior, transfer: Array, offsets: Array) -> Posterior:
    """Return the posterior with heads that are signed copies of old ones, or new.

    Parameters
    ----------
    posterior : with ``h`` heads.
    transfer : (h, H) with at most one nonzero entry, -1 or +1, per column; an empty column is a
        head that has learned nothing.
    offsets : (H,) the intercepts of the new heads, 0 for the copies.
    """
    points, coefficients = posterior.support
    return replace(
        posterior,
        support=Expansion(points, coefficients @ transfer),
        mean_parts=tuple(
            Expansion(part.points, part.coefficients @ transfer) for part in posterior.mean_parts
        ),
        intercepts=posterior.intercepts @ transfer + offsets,
        solved=(posterior.solved @ np.abs(transfer)) > 0,
    )


def step(posterior: Posterior, batch: Batch, settings: Settings) -> tuple[Posterior, StepInfo]:
    """Learn one batch."""
    with np.errstate(over="ignore"):
        variances = posterior.covariance.kernel.diagonal(batch.points)
    check_variances(variances)
    recursion, graph = fold_geometry(posterior, batch.points, settings.smoothing)
    covariance = recursion.covariance
    kernel = covariance.kernel
    labeled = take_rows(batch.points, batch.labeled)

    prior_parts = covariance.in_base_kernel(posterior.support)
    prior_scores = evaluate(kernel, prior_parts, labeled)
    gram = covariance(labeled, labeled)

    heads = posterior.intercepts.size
    coefficients = np.zeros((batch.labeled.size, heads))
    intercepts, solved = posterior.intercepts.copy(), posterior.solved.copy()
    solutions: list[DualSolution | None] = []
    for head in range(heads):
        signs = batch.targets[:, head]
        solution = solve_head(posterior, head, gram, prior_scores[:, head], batch, settings)
        solutions.append(solution)
        if solution is not None:
            coefficients[:, head] = signs * solution.multipliers
            carried = intercepts[head] if np.isfinite(posterior.bias_variance) else 0.0
            intercepts[head] = carried + solution.bias
            solved[head] = True
        elif signs.size and not solved[head] and intercepts[head] == 0:
            intercepts[head] = signs[0]  # one class is all that is known: predict it

    support = extend(kernel, posterior.support, Expansion(labeled, coefficients))
    learned = replace(
        posterior,
        recursion=recursion,
        graph=graph,
        support=support,
        mean_parts=ready_to_evaluate(kernel, covariance.in_base_kernel(support)),
        intercepts=intercepts,
        solved=solved,
        n_batches=posterior.n_batches + 1,
    )
    info = StepInfo(tuple(solutions), batch.points.shape[0], batch.labeled.size)
    return learned, info


def fold_geometry(
    posterior: Posterior, points: Points, smoothing: float
) -> tuple[Recursion, GraphRecipe]:
    """Fold the smoothness of a batch into the covariance; repeated rows count as one vertex.

    The graph's recipe comes back with its heat width, once there are distances to measure it by.
    """
    recursion, recipe = posterior.recursion, posterior.graph
    if smoothing == 0:
        return recursion, recipe
    vertices = take_rows(points, distinct_rows(points))
    neighbours = find_neighbours(recursion.covariance.kernel, vertices, recipe.n_neighbors)
    if recipe.weights == "heat" and recipe.heat_width is None:
        recipe = replace(recipe, heat_width=measure_heat_width(neighbours))
    return recursion.fold(vertices, smoothness(neighbours, recipe, smoothing)), recipe


def solve_head(
    posterior: Posterior,
    head: int,
    gram: Array,
    prior_scores: Array,
    batch: Batch,
    settings: Settings,
) -> DualSolution | None:
    """Solve the dual of one head; None where it has no labels, or one class and a diffuse bias."""
    signs = np.ascontiguousarray(batch.targets[:, head])
    diffuse = not np.isfinite(posterior.bias_variance)
    if signs.size == 0 or (diffuse and abs(signs.sum()) == signs.size):
        return None
    prior_bias = 0.0 if diffuse else posterior.intercepts[head]
    problem = DualProblem(
        gram=gram,
        signs=signs,
        prior_scores=prior_scores + prior_bias,
        bounds=settings.bound * batch.weights,
        shapes=settings.slack_shape * batch.weights,
        bias_variance=posterior.bias_variance,
    )
    previous = float(posterior.intercepts[head]) if posterior.solved[head] else None
    solution = dual.solve(
        problem, tol=settings.tol, max_iter=settings.max_iter, previous_bias=previous
    )
    on_margin = solution.multipliers > 0
    if settings.bias == "exact" or not on_margin.any():
        return solution
    scores = prior_scores + gram @ (signs * solution.multipliers)
    median = float(np.median((signs - scores)[on_margin]))
    return dual.with_bias(problem, solution, median)


def extend(kernel: Kernel, support: Expansion, new: Expansion) -> Expansion:
    """Return the support with the new points that carry a coefficient."""
    carrying = np.any(new.coefficients != 0, axis=1)
    kept = Expansion(take_rows(new.points, carrying), new.coefficients[carrying])
    return kernel.join(support, kept)


def ready_to_evaluate(kernel: Kernel, parts: tuple[Expansion, ...]) -> tuple[Expansion, ...]:
    """Return the parts summed into one where that makes them smaller (linear weights)."""
    return (reduce(kernel.join, parts),) if kernel.compact else parts


def check_variances(variances: Array) -> None:
    """Refuse a batch on which products of kernel values would overflow."""
    within = variances < LARGEST_VARIANCE
    if not within.all():
        row = int(np.flatnonzero(~within)[0])
        raise ValueError(
            f"row {row} of the batch has k(x, x) = {variances[row]:.3g}, expected a value below "
            f"{LARGEST_VARIANCE:g}: scale the features (for example with StandardScaler) or choose "
            "another kernel."
        )

"""One update of the posterior: posterior and batch in, posterior out.

The steps of an update are (Theorems 1 and 2 of the paper, `seqmed.margin.theory`):

1. earlier labels are discounted by the forgetting factor;
2. the smoothness of the new rows is folded into the covariance (Theorem 2);
3. new labeled rows enter the window, and the multipliers of the oldest rows are frozen;
4. one dual per machine gives the multipliers of the window and the bias (Theorem 1);
5. the new mean is averaged, kept within its budget, and expanded in the base kernel.

Nothing is changed in place: a step that fails leaves the posterior as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.kernels import evaluate
from seqmed.late_rows import LateLabels
from seqmed.margin.covariance.exact import FoldResult, WindowCovariance
from seqmed.margin.dual.problem import (
    Block,
    ComputedRows,
    DualProblem,
    DualSolution,
    attainable_sum,
    feasible,
    with_bias,
)
from seqmed.margin.laplacian import GraphParameters, find_neighbours, measure_heat_width, smoothness
from seqmed.margin.posterior import (
    KNOWN_BIAS,
    Posterior,
    Window,
    as_terms,
    average,
    forget_labels,
    freeze,
    joined_windows,
    with_mean_parts,
    with_recursion,
    within_budget,
)
from seqmed.numeric.arrays import Array, Mask, Points, distinct_rows, take_rows


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


# Largest kernel value whose third power does not overflow.
LARGEST_VARIANCE = 1e100


def step(posterior: Posterior, batch: Batch, settings: Settings) -> tuple[Posterior, UpdateInfo]:
    """Learn one batch."""
    check_variances(posterior, batch.points)
    number = posterior.n_batches
    entering = labeled_window(batch, settings, number)
    past, forgot = with_forgetting(posterior, entering, settings)
    folded, graph_parameters = fold_geometry(past, batch.points, settings)
    prior = replace(
        with_recursion(past, folded), graph_parameters=graph_parameters, n_batches=number + 1
    )
    prior = enter(prior, entering, settings)
    changed = bool(batch.labeled.size) or prior.covariance is not posterior.covariance
    if not changed and folded.origin is None:  # the mean is unchanged
        return prior, report(prior, batch, (None,) * prior.biases.size)
    learned, info = relearn(past, prior, batch, settings, changed=changed)
    return learned, info._replace(forgot=forgot, replacement_cost=folded.replacement_cost)


def add_labels(
    posterior: Posterior, batch: Batch, settings: Settings
) -> tuple[Posterior, UpdateInfo]:
    """Learn late labels of points that are already part of the covariance.

    Late labels count as labels of the last batch. Earlier labels are discounted unless this batch
    already had labels.
    """
    check_variances(posterior, batch.points)
    number, past, forgot = posterior.n_batches - 1, posterior, False
    entering = labeled_window(batch, settings, number)
    if number not in posterior.window.batches:
        past, forgot = with_forgetting(posterior, entering, settings)
    learned, info = relearn(past, enter(past, entering, settings), batch, settings)
    return learned, info._replace(forgot=forgot)


def remove_labels(
    posterior: Posterior, batch: Batch, rows: NDArray[np.bool_], settings: Settings
) -> tuple[Posterior, UpdateInfo]:
    """Retract the labels of window points, given by a mask; the covariance is unchanged.

    ``batch`` holds those points, for the report. A machine that has no labels left returns to its
    prior.
    """
    window = posterior.window.take(~rows)
    prior = replace(posterior, window=window)
    poor = np.array([not has_dual(prior, machine) for machine in range(prior.biases.size)])
    unlearned = poor & ~prior.frozen.coefficients.any(axis=0)
    unlearned &= ~prior.landmarks.coefficients.any(axis=0)
    prior = replace(
        prior,
        window=replace(window, coefficients=np.where(poor, 0.0, window.coefficients)),
        biases=np.where(unlearned, KNOWN_BIAS if prior.known_bias else 0.0, prior.biases),
        n_solved=np.where(unlearned, 0, prior.n_solved),
    )
    return relearn(prior, prior, batch, settings)


def relearn(
    past: Posterior, prior: Posterior, batch: Batch, settings: Settings, *, changed: bool = True
) -> tuple[Posterior, UpdateInfo]:
    """Optimise the multipliers of the window, and update the mean.

    Parameters
    ----------
    past : the posterior before points were frozen or projected, for the projection cost.
    prior : the posterior with its newest window and covariance.
    batch : the rows of this update.
    changed : whether the labels or the covariance have changed.
    """
    geometry, replaced = batch.geometry, prior.covariance is not past.covariance
    if geometry is None or replaced or prior.window.size > batch.labeled.size:
        geometry = prior.covariance.on_window(prior.window.points, prior.landmarks.points)
    learned, solutions, newest = solve_all(prior, geometry, settings, changed=changed)
    if settings.averaging:
        solved = np.array([solution is not None for solution in solutions])
        learned = average(learned, solved, settings.forgetting, newest)
    kept = within_budget(learned, settings.capacity)
    if kept is not learned and not kept.covariance.on_landmarks:  # where freezing is exact
        newest = kept.landmark_coefficients()
    moved = prior.projection_errors - past.projection_errors
    projected = kept.projection_errors - learned.projection_errors
    bounded = settings.capacity is not None
    info = report(prior, batch, solutions)._replace(projection_cost=(moved + projected).max(axis=0))
    return with_mean_parts(kept, settings.averaging, bounded, newest), info


def report(prior: Posterior, batch: Batch, solutions: Solutions) -> UpdateInfo:
    """Return the report of an update that neither projected nor forgot anything."""
    return UpdateInfo(
        solutions=solutions,
        n_points=batch.points.shape[0],
        n_labeled=batch.labeled.size,
        n_window=prior.window.size,
        projection_cost=np.zeros(prior.biases.size),
        replacement_cost=0.0,
        forgot=False,
    )


def labeled_window(batch: Batch, settings: Settings, number: int) -> Window:
    """Return the labeled points of a batch as a window; `enter` adds their frozen scores."""
    weights = batch.weights * batch.class_weights
    nothing = np.zeros_like(batch.targets)
    return Window(
        points=batch.labeled_points,
        coefficients=nothing,
        averages=nothing,
        frozen_scores=nothing,
        signs=batch.targets,
        bounds=settings.C * weights,
        shapes=settings.slack_shape * weights,
        weights=batch.weights,
        discounted=batch.weights,
        batches=np.full(batch.labeled.size, number),
    )


def leaving(window: Window, entering: Window, settings: Settings) -> Mask:
    """Return a mask (n,) of the points that leave the window when others enter it.

    The window contains the last `Settings.lag` batches with labels. It has at most
    `Settings.window` and `Settings.capacity` points, unless the newest batch alone has more. If
    there are more than `window` points, the oldest ones leave. If there are more than `capacity`
    points, those with the smallest multipliers leave, older points first.
    """
    lag, size, capacity = settings.lag, settings.window, settings.capacity
    leaves = np.zeros(window.size, dtype=bool)
    if lag is not None:
        recent = np.union1d(window.batches, entering.batches[-1:])[-lag:]
        leaves = window.batches < recent[0]
    if size is not None:
        leaves[: max(window.size + entering.size - size, 0)] = True
    if capacity is not None:
        staying = np.flatnonzero(~leaves)
        excess = min(staying.size + entering.size - capacity, staying.size)
        if excess > 0:
            weights = np.abs(window.coefficients[staying]).max(axis=1)
            leaves[staying[np.argsort(weights, kind="stable")[:excess]]] = True
    return leaves


def with_forgetting(
    posterior: Posterior, entering: Window, settings: Settings
) -> tuple[Posterior, bool]:
    """Return the posterior after forgetting, and whether earlier labels were discounted.

    Earlier labels are discounted if the window, with the new labels, has a dual to solve.
    """
    if settings.forgetting == 1.0 or not entering.size:
        return posterior, False
    staying = posterior.window.take(~leaving(posterior.window, entering, settings))
    grown = replace(posterior, window=joined_windows(staying, entering))
    if not any(has_dual(grown, machine) for machine in range(posterior.biases.size)):
        return posterior, False
    return forget_labels(posterior, settings.forgetting), True


def enter(posterior: Posterior, entering: Window, settings: Settings) -> Posterior:
    """Return the posterior with newly labeled points in the window and the oldest points frozen."""
    if not entering.size:
        return posterior
    folded = posterior.recursion.add_labeled(entering.points)
    posterior = with_recursion(posterior, folded)
    window = posterior.window
    leaves = leaving(window, entering, settings)
    posterior = replace(posterior, window=window.take(~leaves)) if leaves.any() else posterior
    posterior = freeze(posterior, as_terms(window).take(leaves))
    if posterior.frozen.size:
        parts = (posterior.frozen.expansion,)
        scores = evaluate(posterior.covariance.kernel, parts, entering.points)
        entering = replace(entering, frozen_scores=scores)
    return replace(posterior, window=joined_windows(posterior.window, entering))


def fold_geometry(
    posterior: Posterior, points: Points, settings: Settings
) -> tuple[FoldResult, GraphParameters]:
    """Fold the smoothness of a batch into the discounted covariance; equal rows are one vertex.

    The graph parameters are returned with the heat width, once it can be measured.
    """
    recursion, graph_parameters = posterior.recursion, posterior.graph_parameters
    grows = recursion.grows and settings.capacity is not None
    if settings.beta == 0 and settings.forgetting == 1 and not grows:
        return FoldResult(recursion), graph_parameters
    kernel = recursion.covariance.kernel
    vertices = take_rows(points, distinct_rows(points))
    penalty = None
    if settings.beta > 0:
        neighbours = find_neighbours(kernel, vertices, graph_parameters.n_neighbors)
        if graph_parameters.lacks_width:
            graph_parameters = replace(graph_parameters, heat_width=measure_heat_width(neighbours))
        penalty = smoothness(neighbours, graph_parameters, 2.0 * settings.beta)
    return recursion.fold(vertices, penalty, settings.forgetting), graph_parameters


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


Solutions = tuple[DualSolution | None, ...]

# A point at least this far beyond its margin is left out at first.
SPARE = 0.2


def solve_all(
    prior: Posterior, geometry: WindowCovariance, settings: Settings, *, changed: bool
) -> tuple[Posterior, Solutions, Array]:
    """Solve one dual per machine over the points of the window.

    ``geometry`` is the covariance of the window. ``changed`` is whether labels or the covariance
    have changed; if not, nothing is solved.
    Returns the posterior with new multipliers and biases, the solutions, and the
    `Posterior.landmark_coefficients` of the new mean, (m, machines).
    """
    window, frozen = prior.window, prior.frozen_coefficients()
    machines = range(prior.biases.size)
    solutions: Solutions = (None,) * prior.biases.size
    if changed and any(has_dual(prior, machine) for machine in machines):
        gram = geometry.gram()
        scores = window.frozen_scores + geometry.scores(frozen)
        solutions = tuple(
            solve_machine(prior, machine, gram, geometry.block, scores[:, machine], settings)
            for machine in machines
        )
    posterior = with_solutions(prior, solutions)
    newest = frozen + geometry.landmark_part(posterior.window.coefficients)
    return posterior, solutions, newest


def has_dual(posterior: Posterior, machine: int) -> bool:
    """Whether there is a dual: the window has labels, of both signs if the bias is diffuse."""
    signs = posterior.window.signs[:, machine]
    if signs.size == 0 or posterior.known_bias:
        return bool(signs.size)
    return bool(abs(signs.sum()) < signs.size)


def solve_machine(
    prior: Posterior,
    machine: int,
    gram: Array | ComputedRows,
    block: Block | None,
    prior_scores: Array,
    settings: Settings,
) -> DualSolution | None:
    """Solve the dual of one machine; None if it has none (`has_dual`).

    The solver starts from the multipliers of the last update. If ``block`` is given, a product with
    the Gram matrix is cheap and its entries are not: points beyond their margins are first left
    out.
    """
    if not has_dual(prior, machine):
        return None
    from seqmed.margin.dual import screening, smo  # numba: by the first update, not by an import

    window = prior.window
    signs = np.ascontiguousarray(window.signs[:, machine])
    problem = DualProblem(
        gram=gram,
        signs=signs,
        prior_scores=prior_scores + KNOWN_BIAS if prior.known_bias else prior_scores,
        bounds=window.bounds,
        shapes=window.shapes,
        known_bias=prior.known_bias,
        multiplier_sum=attainable_sum(signs, window.bounds, -prior.frozen_sums[machine]),
    )
    coefficients = window.coefficients[:, machine]
    solver: dict[str, Any] = {
        "tol": settings.tol,
        "max_iter": settings.max_iter,
        "start": feasible(problem, signs * coefficients),
        "previous_bias": float(prior.biases[machine]) if prior.n_solved[machine] else None,
    }
    if block is None:
        solution = smo.solve(problem, **solver)
    else:
        expected = prior_scores + gram @ coefficients + prior.biases[machine]
        rows = (signs * expected < 1.0 + SPARE) | (coefficients != 0)
        solution = screening.solve_screened(problem, rows, block, **solver)
    on_margin = solution.multipliers > 0
    if settings.bias != "median" or not on_margin.any():
        return solution
    scores = prior_scores + gram @ (signs * solution.multipliers)
    median = float(np.median((signs - scores)[on_margin]))
    return with_bias(problem, solution, median)


def with_solutions(prior: Posterior, solutions: Solutions) -> Posterior:
    """Return the posterior with the multipliers and biases of the solutions that are not None."""
    window, n_solved = prior.window, prior.n_solved.copy()
    coefficients, biases = window.coefficients.copy(), prior.biases.copy()
    for machine, solution in enumerate(solutions):
        signs = window.signs[:, machine]
        if solution is not None:
            coefficients[:, machine] = signs * solution.multipliers
            biases[machine] = solution.bias + (KNOWN_BIAS if prior.known_bias else 0.0)
            n_solved[machine] += 1
        elif signs.size and not n_solved[machine] and biases[machine] == 0:
            biases[machine] = signs[0]  # one class so far: predict it
    window = replace(window, coefficients=coefficients)
    return replace(prior, window=window, biases=biases, n_solved=n_solved)

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
from typing import Any, NamedTuple

import numpy as np

from seqmed.kernels import Kernel, evaluate
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
    average,
    forget_labels,
    freeze,
    joined_windows,
    with_mean_parts,
    with_recursion,
    within_budget,
)
from seqmed.numeric.arrays import Array, Mask, Points, distinct_rows, take_rows

# Largest number of labels in one dual with a budget, as a multiple of the kept labeled rows; and
# the number of labels that SeqMED never divides.
LABELS_AT_ONCE, FEWEST_AT_ONCE = 4, 2000


class Smoothing(NamedTuple):
    """Parameters of SeqLapMED that SeqMED does not have.

    Attributes
    ----------
    beta : smoothness weight.
    gammas : gamma_A and gamma_I of the paper, which replace C and beta; None without them.
    graph : the graph of a batch.
    recursion : name of the recursion of the covariance.
    n_landmarks : largest number of landmarks.
    """

    beta: float
    gammas: tuple[float, float] | None
    graph: GraphParameters
    recursion: str
    n_landmarks: int


@dataclass(frozen=True)
class MarginParameters:
    """Parameters of the margin learner. SeqMED and SeqLapMED describe them and have the defaults.

    An update takes them with the C and beta of its batch (`for_batch`).

    Parameters
    ----------
    kernel : the kernel before the first batch; None for a precomputed one.
    slack_shape : shape of the slack prior; None for min(1, C / 2).
    class_weight : (K,) weights of the classes, "balanced", or None.
    smoothing : parameters of SeqLapMED; None in SeqMED.
    """

    kernel: Kernel | None
    C: float
    slack_shape: float | None
    bias: str
    window: int | None
    lag: int | None
    averaging: bool
    forgetting: float
    budget: int | None
    class_weight: Any
    tol: float
    max_iter: int
    smoothing: Smoothing | None = None

    @property
    def beta(self) -> float:
        """Smoothness weight; the penalty is ``2 beta f' L f``."""
        return 0.0 if self.smoothing is None else float(self.smoothing.beta)

    @property
    def shape(self) -> float:
        """Slack shape of a row of weight 1."""
        return min(1.0, 0.5 * self.C) if self.slack_shape is None else self.slack_shape

    @property
    def n_landmarks(self) -> int:
        """Largest number of landmarks."""
        if self.smoothing is None:
            return 0 if self.budget is None else self.budget // 2
        most = self.smoothing.n_landmarks
        return most if self.budget is None else min(most, self.budget // 2)

    @property
    def capacity(self) -> int | None:
        """Number of labeled rows kept within the budget; None for all."""
        return None if self.budget is None else self.budget - self.n_landmarks

    @property
    def labels_at_once(self) -> int | None:
        """Largest number of labels in one dual; None for any number."""
        if self.capacity is None:
            return None
        fewest = FEWEST_AT_ONCE if self.smoothing is None else 0
        return max(fewest, LABELS_AT_ONCE * self.capacity)


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
    forgot : whether earlier labels have been discounted by `MarginParameters.forgetting`.
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

    @classmethod
    def combined(cls, infos: list[UpdateInfo]) -> UpdateInfo:
        """Return the report of a batch that was learned in mini-batches, in the order of these."""
        last = infos[-1]
        cost = last.projection_cost
        for info in infos[:-1]:  # classes may have been added since
            same = info.projection_cost.size == cost.size
            cost = cost + (info.projection_cost if same else info.projection_cost.max())
        return last._replace(
            n_points=infos[0].n_points,
            n_labeled=sum(info.n_labeled for info in infos),
            projection_cost=cost,
            replacement_cost=max(info.replacement_cost for info in infos),
            forgot=any(info.forgot for info in infos),
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


def step(
    posterior: Posterior,
    points: Points,
    entering: Window,
    parameters: MarginParameters,
    geometry: WindowCovariance | None = None,
) -> tuple[Posterior, UpdateInfo]:
    """Learn one batch.

    Parameters
    ----------
    posterior : the posterior before the batch.
    points : (n, p) all rows of the batch, labeled or not.
    entering : its labeled rows, see `labeled_window`.
    parameters : the parameters with the C and beta of the batch.
    geometry : `Posterior.landmark_geometry` of the labeled rows, if it is known. The duals are
        solved with it if nothing has changed.
    """
    check_variances(posterior, points)
    past, forgot = with_forgetting(posterior, entering, parameters)
    folded, graph_parameters = fold_geometry(past, points, parameters)
    prior = with_recursion(past, folded)
    prior = replace(prior, graph_parameters=graph_parameters, n_batches=prior.n_batches + 1)
    prior = enter(prior, entering, parameters)
    changed = bool(entering.size) or prior.covariance is not posterior.covariance
    if not changed and folded.origin is None:  # the mean is unchanged
        learned, info = prior, report(prior, (None,) * prior.biases.size)
    else:
        known = geometry if prior.window.size == entering.size else None
        learned, info = relearn(past, prior, parameters, known, changed=changed)
    return learned, info._replace(
        n_points=points.shape[0],
        n_labeled=entering.size,
        forgot=forgot,
        replacement_cost=folded.replacement_cost,
    )


def add_labels(
    posterior: Posterior,
    entering: Window,
    parameters: MarginParameters,
    geometry: WindowCovariance | None = None,
) -> tuple[Posterior, UpdateInfo]:
    """Learn late labels of points that are already part of the covariance; see `step`.

    Late labels count as labels of the last batch. Earlier labels are discounted unless this batch
    already had labels.
    """
    check_variances(posterior, entering.points)
    past, forgot = posterior, False
    if posterior.n_batches - 1 not in posterior.window.batches:
        past, forgot = with_forgetting(posterior, entering, parameters)
    prior = enter(past, entering, parameters)
    known = geometry if prior.window.size == entering.size else None
    learned, info = relearn(past, prior, parameters, known)
    return learned, info._replace(n_points=entering.size, n_labeled=entering.size, forgot=forgot)


def remove_labels(
    posterior: Posterior, rows: Mask, parameters: MarginParameters
) -> tuple[Posterior, UpdateInfo]:
    """Retract the labels of window points, given by a mask; the covariance is unchanged.

    A machine that has no labels left returns to its prior.
    """
    window = posterior.window.take(~rows)
    prior = replace(posterior, window=window)
    poor = ~has_dual(prior)
    unlearned = poor & ~prior.frozen.coefficients.any(axis=0)
    unlearned &= ~prior.landmarks.coefficients.any(axis=0)
    prior = replace(
        prior,
        window=replace(window, coefficients=np.where(poor, 0.0, window.coefficients)),
        biases=np.where(unlearned, KNOWN_BIAS if prior.known_bias else 0.0, prior.biases),
        n_solved=np.where(unlearned, 0, prior.n_solved),
    )
    learned, info = relearn(prior, prior, parameters)
    n_removed = int(np.count_nonzero(rows))
    return learned, info._replace(n_points=n_removed, n_labeled=n_removed)


def relearn(
    past: Posterior,
    prior: Posterior,
    parameters: MarginParameters,
    geometry: WindowCovariance | None = None,
    *,
    changed: bool = True,
) -> tuple[Posterior, UpdateInfo]:
    """Optimise the multipliers of the window, and update the mean.

    Parameters
    ----------
    past : the posterior before points were frozen or projected, for the projection cost.
    prior : the posterior with its newest window and covariance.
    parameters : the parameters with the C and beta of the batch.
    geometry : the covariance of the window before the update, if it is known.
    changed : whether the labels or the covariance have changed; if not, no dual is solved.
    """
    window, frozen = prior.window, prior.frozen_coefficients()
    if geometry is None or prior.covariance is not past.covariance:
        geometry = prior.covariance.on_window(window.points, prior.landmarks.points)
    solutions: Solutions = (None,) * prior.biases.size
    solvable = has_dual(prior)
    if changed and solvable.any():
        gram = geometry.gram()
        scores = window.frozen_scores + geometry.scores(frozen)
        solutions = tuple(
            solve_machine(prior, machine, gram, geometry.block, scores[:, machine], parameters)
            if solvable[machine]
            else None
            for machine in range(prior.biases.size)
        )
    learned = with_solutions(prior, solutions)
    newest = frozen + geometry.landmark_part(learned.window.coefficients)
    if parameters.averaging:
        solved = np.array([solution is not None for solution in solutions])
        learned = average(learned, solved, parameters.forgetting, newest)
    kept = within_budget(learned, parameters.capacity)
    if kept is not learned and not kept.covariance.on_landmarks:  # where freezing is exact
        newest = kept.landmark_coefficients()
    moved = prior.projection_errors - past.projection_errors
    projected = kept.projection_errors - learned.projection_errors
    bounded = parameters.capacity is not None
    info = report(prior, solutions)._replace(projection_cost=(moved + projected).max(axis=0))
    return with_mean_parts(kept, parameters.averaging, bounded, newest), info


def report(prior: Posterior, solutions: Solutions) -> UpdateInfo:
    """Return the report of an update; it lacks rows, costs and forgetting."""
    return UpdateInfo(
        solutions=solutions,
        n_points=0,
        n_labeled=0,
        n_window=prior.window.size,
        projection_cost=np.zeros(prior.biases.size),
        replacement_cost=0.0,
        forgot=False,
    )


def labeled_window(
    points: Points,
    signs: Array,
    weights: Array,
    class_weights: Array,
    number: int,
    parameters: MarginParameters,
) -> Window:
    """Return the labeled points of a batch as a window; `enter` adds their frozen scores.

    Parameters
    ----------
    points : (n, p).
    signs : (n, machines) targets, each -1.0 or +1.0.
    weights, class_weights : (n,) positive weights of the rows and of their classes. They are
        multiplied.
    number : number of the batch.
    parameters : the parameters with the C of the batch.
    """
    nothing, products = np.zeros_like(signs), weights * class_weights
    return Window(
        points=points,
        coefficients=nothing,
        averages=nothing,
        frozen_scores=nothing,
        signs=signs,
        bounds=parameters.C * products,
        shapes=parameters.shape * products,
        weights=weights,
        discounted=weights,
        batches=np.full(weights.size, number),
    )


def leaving(window: Window, entering: Window, parameters: MarginParameters) -> Mask:
    """Return a mask (n,) of the points that leave the window when others enter it.

    The window contains the last ``lag`` batches with labels. It has at most ``window`` and
    ``capacity`` points, unless the newest batch alone has more. If there are more than ``window``
    points, the oldest ones leave. If there are more than ``capacity`` points, those with the
    smallest multipliers leave, older points first.
    """
    lag, size, capacity = parameters.lag, parameters.window, parameters.capacity
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
    posterior: Posterior, entering: Window, parameters: MarginParameters
) -> tuple[Posterior, bool]:
    """Return the posterior after forgetting, and whether earlier labels were discounted.

    Earlier labels are discounted if the window, with the new labels, has a dual to solve.
    """
    if parameters.forgetting == 1.0 or not entering.size:
        return posterior, False
    staying = posterior.window.take(~leaving(posterior.window, entering, parameters))
    grown = replace(posterior, window=joined_windows(staying, entering))
    if not has_dual(grown).any():
        return posterior, False
    return forget_labels(posterior, parameters.forgetting), True


def enter(posterior: Posterior, entering: Window, parameters: MarginParameters) -> Posterior:
    """Return the posterior with newly labeled points in the window and the oldest points frozen."""
    if not entering.size:
        return posterior
    folded = posterior.recursion.add_labeled(entering.points)
    posterior = with_recursion(posterior, folded)
    window = posterior.window
    leaves = leaving(window, entering, parameters)
    posterior = replace(posterior, window=window.take(~leaves)) if leaves.any() else posterior
    posterior = freeze(posterior, window.take(leaves))
    if posterior.frozen.size:
        parts = (posterior.frozen.expansion,)
        scores = evaluate(posterior.covariance.kernel, parts, entering.points)
        entering = replace(entering, frozen_scores=scores)
    return replace(posterior, window=joined_windows(posterior.window, entering))


def fold_geometry(
    posterior: Posterior, points: Points, parameters: MarginParameters
) -> tuple[FoldResult, GraphParameters]:
    """Fold the smoothness of a batch into the discounted covariance; equal rows are one vertex.

    The graph parameters are returned with the heat width, once it can be measured.
    """
    recursion, graph_parameters = posterior.recursion, posterior.graph_parameters
    grows = recursion.grows and parameters.capacity is not None
    if parameters.beta == 0 and parameters.forgetting == 1 and not grows:
        return FoldResult(recursion), graph_parameters
    kernel = recursion.covariance.kernel
    vertices = take_rows(points, distinct_rows(points))
    penalty = None
    if parameters.beta > 0:
        neighbours = find_neighbours(kernel, vertices, graph_parameters.n_neighbors)
        if graph_parameters.lacks_width:
            graph_parameters = replace(graph_parameters, heat_width=measure_heat_width(neighbours))
        penalty = smoothness(neighbours, graph_parameters, 2.0 * parameters.beta)
    return recursion.fold(vertices, penalty, parameters.forgetting), graph_parameters


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


def has_dual(posterior: Posterior) -> Mask:
    """Return a mask (machines,) of the machines with a dual.

    The window has labels, and labels of both signs if the bias is diffuse.
    """
    signs = posterior.window.signs
    size = posterior.window.size
    if size == 0 or posterior.known_bias:
        return np.full(signs.shape[1], size > 0)
    return np.asarray(np.abs(signs.sum(axis=0)) < size)


def solve_machine(
    prior: Posterior,
    machine: int,
    gram: Array | ComputedRows,
    block: Block | None,
    prior_scores: Array,
    parameters: MarginParameters,
) -> DualSolution:
    """Solve the dual of one machine.

    The solver starts from the multipliers of the last update. If ``block`` is given, a product with
    the Gram matrix is cheap and its entries are not: points beyond their margins are first left
    out.
    """
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
        "tol": parameters.tol,
        "max_iter": parameters.max_iter,
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
    if parameters.bias != "median" or not on_margin.any():
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

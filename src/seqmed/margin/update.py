"""One update of the posterior: posterior and batch in, posterior out.

The steps of an update are (Theorems 1 and 2 of the paper, `seqmed.margin.theory`):

1. earlier labels are discounted by the forgetting factor;
2. the smoothness of the new rows is folded into the covariance (Theorem 2);
3. new labeled rows enter the window, and the multipliers of the oldest rows are frozen;
4. one dual per machine gives the multipliers of the window and the bias (Theorem 1);
5. the new mean is averaged (`seqmed.margin.running_mean`), kept within its budget, and expanded in
   the base kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from seqmed.kernels import Kernel, evaluate
from seqmed.late_rows import LateLabels
from seqmed.margin.covariance.exact import WindowCovariance
from seqmed.margin.covariance.nystroem import NystroemGram
from seqmed.margin.dual.problem import (
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
    extend_running_mean,
    forget_labels,
    freeze,
    joined_windows,
    with_mean_parts,
    with_recursion,
    within_budget,
    without_running_mean,
)
from seqmed.numeric.arrays import Array, Mask, Points, distinct_rows, take_rows

# Largest number of labels in one dual, as a multiple of the kept ones, and the least for SeqMED.
LABELS_AT_ONCE, FEWEST_AT_ONCE = 4, 2000


@dataclass(frozen=True)
class MarginParameters:
    """Parameters of the margin learner. SeqMED and SeqLapMED describe them and have the defaults.

    An update takes them with the C and beta of its batch (`for_batch`).

    Parameters
    ----------
    kernel : the kernel before the first batch; None for a precomputed one.
    slack_shape : None for min(1, C / 2).
    class_weight : (K,) weights of the classes, "balanced", or None.
    gammas : gamma_A and gamma_I of the paper, which replace C and beta; None without them.
    averaging : "auto", True or False.
    recursion, most_landmarks : the representation of the covariance; None and 0 in SeqMED.
    """

    kernel: Kernel | None
    C: float
    slack_shape: float | None
    bias: str
    window: int | None
    lag: int | None
    averaging: bool | str
    forgetting: float
    budget: int | None
    class_weight: Any
    tol: float
    max_iter: int
    beta: float = 0.0
    gammas: tuple[float, float] | None = None
    graph: GraphParameters = GraphParameters()  # noqa: RUF009 - it is frozen
    recursion: str | None = None
    most_landmarks: int = 0

    @property
    def shape(self) -> float:
        """Slack shape of a row of weight 1."""
        return min(1.0, 0.5 * self.C) if self.slack_shape is None else self.slack_shape

    @property
    def averages_when_full(self) -> bool:
        """Whether a running mean begins when the window is full.

        Forgetting is for streams that drift, where the running mean would be late. With ``lag=1``
        the window is a batch, as in the paper.
        """
        constant = self.forgetting == 1.0 and self.recursion != "spectral"
        return self.averaging == "auto" and constant and self.lag != 1

    @property
    def n_landmarks(self) -> int:
        """Largest number of landmarks."""
        if self.budget is None:
            return self.most_landmarks
        half = self.budget // 2
        return half if self.recursion is None else min(self.most_landmarks, half)

    @property
    def capacity(self) -> int | None:
        """Number of labeled rows kept within the budget; None for all."""
        return None if self.budget is None else self.budget - self.n_landmarks

    @property
    def labels_at_once(self) -> int | None:
        """Largest number of labels in one dual; None for any number."""
        if self.capacity is None:
            return None
        fewest = FEWEST_AT_ONCE if self.recursion is None else 0
        return max(fewest, LABELS_AT_ONCE * self.capacity)


class UpdateInfo(NamedTuple):
    """The report of an update; if labels were learned in mini-batches, of the last of them.

    Attributes
    ----------
    solutions : one per machine; None for a machine without a dual to solve.
    n_window : labeled points whose multipliers were optimised.
    n_points, n_labeled : rows and labeled rows of the whole batch.
    C, beta : multiplier bound of a row of weight 1, and smoothness weight.
    late_labels : numbers of the late labels; None if they were not late.
    """

    solutions: tuple[DualSolution | None, ...]
    n_window: int
    n_points: int = 0
    n_labeled: int = 0
    C: float = float("inf")
    beta: float = 0.0
    late_labels: LateLabels | None = None

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
# A point at least this far beyond its margin is left out of a dual at first.
SPARE = 0.2


def step(
    posterior: Posterior,
    points: Points | None,
    entering: Window,
    parameters: MarginParameters,
    geometry: WindowCovariance | None = None,
    frozen_scores: Array | None = None,
) -> tuple[Posterior, UpdateInfo, float]:
    """Learn one batch; return the posterior, the report, and the discount of earlier labels.

    ``points`` (n, p) are all its rows, None for late labels. These count as labels of the last
    batch: earlier labels are discounted unless this batch already had labels. ``entering`` are its
    labeled rows, with coefficients and frozen scores of 0. ``geometry`` is their covariance, and
    ``frozen_scores`` (l, machines) their scores by frozen support vectors, if known: without
    forgetting these may be given. ``parameters`` have the C and beta of the batch.
    """
    check_variances(posterior.covariance.kernel, entering.points if points is None else points)
    past, left = posterior, 1.0
    if points is not None or posterior.n_batches - 1 not in posterior.window.batches:
        past, left = with_forgetting(posterior, entering, parameters)
    prior = past if points is None else fold_geometry(past, points, parameters)
    if entering.size:
        prior = enter(prior, entering, parameters, frozen_scores)
    elif prior.landmarks is past.landmarks and prior.covariance is past.covariance:
        return prior, UpdateInfo((None,) * prior.biases.size, prior.window.size), left
    if prior.window.size != entering.size or prior.covariance is not past.covariance:
        geometry = None
    changed = bool(entering.size) or prior.covariance is not past.covariance
    return *relearn(prior, parameters, geometry, changed=changed), left


def remove_labels(
    posterior: Posterior, rows: Mask, parameters: MarginParameters
) -> tuple[Posterior, UpdateInfo]:
    """Retract the labels of window points, by a mask; a machine without labels is as before any.

    The running mean loses the terms of these points. On landmarks these are not kept apart: there
    the running mean starts again at the newest mean.
    """
    running = posterior.running
    if running is not None and posterior.landmarks.size:
        running = running.restarted()
    window = posterior.window.take(~rows)
    poor = ~has_dual(window.signs, posterior.known_bias)
    unlearned = poor & ~posterior.frozen.coefficients.any(axis=0)
    unlearned &= ~posterior.landmarks.coefficients.any(axis=0)
    prior_bias = KNOWN_BIAS if posterior.known_bias else 0.0
    prior = replace(
        posterior,
        window=replace(window, coefficients=np.where(poor, 0.0, window.coefficients)),
        biases=np.where(unlearned, prior_bias, posterior.biases),
        n_solved=np.where(unlearned, 0, posterior.n_solved),
        running=running,
    )
    return relearn(prior, parameters)


def relearn(
    prior: Posterior,
    parameters: MarginParameters,
    geometry: WindowCovariance | None = None,
    *,
    changed: bool = True,
) -> tuple[Posterior, UpdateInfo]:
    """Optimise the multipliers of the window, if labels or covariance ``changed``; update the mean.

    ``geometry`` is the covariance of the window, if it is known.
    """
    if prior.running is not None and not parameters.averages_when_full:
        prior = without_running_mean(prior)
    window, frozen = prior.window, prior.frozen_coefficients()
    if geometry is None:
        geometry = prior.covariance.on_window(window.points, prior.landmarks.points)
    solvable = has_dual(window.signs, prior.known_bias) & changed
    solutions: list[DualSolution | None] = [None] * prior.biases.size
    if solvable.any():
        gram, scores = geometry.gram(), window.frozen_scores + geometry.scores(frozen)
        for machine in np.flatnonzero(solvable).tolist():
            solutions[machine] = solve_machine(prior, machine, gram, scores[:, machine], parameters)
    learned = with_solutions(prior, solutions)
    newest = frozen + geometry.landmark_part(learned.window.coefficients)
    if parameters.averaging is True:
        learned = average(learned, solvable, parameters.forgetting, newest)
    elif learned.running is not None and (solvable.any() or not learned.running.n_means):
        learned = extend_running_mean(learned, newest)
    kept = within_budget(learned, parameters.capacity)
    if kept is not learned and not kept.covariance.on_landmarks:  # where freezing is exact
        newest = kept.landmark_coefficients()
    averaged, bounded = parameters.averaging is True, parameters.capacity is not None
    if kept.running is not None:
        running = replace(kept.running, newest=newest)
        averaged = not running.newest_leads
        kept = replace(kept, running=running, intercepts=running.biases)
    learned = with_mean_parts(kept, averaged, bounded, newest)
    return learned, UpdateInfo(tuple(solutions), window.size)


def leaving(window: Window, entering: Window, parameters: MarginParameters) -> Mask:
    """Return a mask (n,) of the points that leave the window when others enter it.

    These are points before the last ``lag`` batches with labels, the oldest ones beyond ``window``
    points, and those with the smallest multipliers beyond ``capacity``. No entering point leaves.
    """
    size, capacity = parameters.window, parameters.capacity
    leaves = beyond_lag(window, entering, parameters.lag)
    if size is not None:
        leaves[: max(window.size + entering.size - size, 0)] = True
    if capacity is not None:
        staying = np.flatnonzero(~leaves)
        excess = min(staying.size + entering.size - capacity, staying.size)
        if excess > 0:
            weights = np.abs(window.coefficients[staying]).max(axis=1)
            leaves[staying[np.argsort(weights, kind="stable")[:excess]]] = True
    return leaves


def beyond_lag(window: Window, entering: Window, lag: int | None) -> Mask:
    """Return a mask (n,) of the points before the last ``lag`` batches with labels."""
    if lag is None:
        return np.zeros(window.size, dtype=bool)
    recent = np.union1d(window.batches, entering.batches[-1:])[-lag:]
    return np.asarray(window.batches < recent[0])


def overflows(
    window: Window, entering: Window, parameters: MarginParameters, n_labels: int
) -> bool:
    """Return whether points within the lag leave the window because there are too many.

    ``n_labels`` is the number of labels learned before. As long as there are at most
    ``parameters.window`` labels, points may leave because of the budget only; these do not count.
    """
    size, capacity = parameters.window, parameters.capacity
    staying = ~beyond_lag(window, entering, parameters.lag)
    if size is None or not staying.any():
        return False
    beyond_size = staying[: max(window.size + entering.size - size, 0)].any()
    beyond_budget = capacity is not None and np.sum(staying) + entering.size > capacity
    return bool(beyond_size or (beyond_budget and n_labels + entering.size > size))


def with_forgetting(
    posterior: Posterior, entering: Window, parameters: MarginParameters
) -> tuple[Posterior, float]:
    """Return the posterior with labels discounted if there is a dual to solve, and the factor."""
    if parameters.forgetting == 1.0 or not entering.size:
        return posterior, 1.0
    staying = ~leaving(posterior.window, entering, parameters)
    signs = np.vstack([posterior.window.signs[staying], entering.signs])
    if not has_dual(signs, posterior.known_bias).any():
        return posterior, 1.0
    return forget_labels(posterior, parameters.forgetting), parameters.forgetting


def enter(
    posterior: Posterior,
    entering: Window,
    parameters: MarginParameters,
    frozen_scores: Array | None,
) -> Posterior:
    """Return the posterior with newly labeled points in the window and the oldest points frozen.

    ``frozen_scores`` are scores by the points that are frozen already, if known.
    """
    posterior = with_recursion(posterior, posterior.recursion.add_labeled(entering.points))
    window = posterior.window
    leaves = leaving(window, entering, parameters)
    left = window.take(leaves)
    posterior = freeze(replace(posterior, window=window.take(~leaves)), left)
    if posterior.frozen.size:
        kernel = posterior.covariance.kernel
        if frozen_scores is None:
            scores = evaluate(kernel, (posterior.frozen.expansion,), entering.points)
        else:
            scores = frozen_scores + evaluate(kernel, (left.expansion,), entering.points)
        entering = replace(entering, frozen_scores=scores)
    return replace(posterior, window=joined_windows(posterior.window, entering))


def fold_geometry(posterior: Posterior, points: Points, parameters: MarginParameters) -> Posterior:
    """Fold the smoothness of a batch into the discounted covariance; equal rows are one vertex."""
    recursion, graph = posterior.recursion, posterior.graph_parameters
    posterior = replace(posterior, n_batches=posterior.n_batches + 1)
    grows = recursion.grows and parameters.capacity is not None
    if parameters.beta == 0 and parameters.forgetting == 1 and not grows:
        return posterior
    vertices, penalty = take_rows(points, distinct_rows(points)), None
    if parameters.beta > 0:
        neighbours = find_neighbours(recursion.covariance.kernel, vertices, graph.n_neighbors)
        if graph.weights == "heat" and graph.heat_width is None:
            graph = replace(graph, heat_width=measure_heat_width(neighbours))
        penalty = smoothness(neighbours, graph, 2.0 * parameters.beta)
    folded = recursion.fold(vertices, penalty, parameters.forgetting)
    return replace(with_recursion(posterior, folded), graph_parameters=graph)


def check_variances(kernel: Kernel, points: Points) -> None:
    """Refuse a batch on which products of kernel values would overflow."""
    with np.errstate(over="ignore"):
        variances = kernel.diagonal(points)
    within = variances < LARGEST_VARIANCE
    if not within.all():
        row = int(np.flatnonzero(~within)[0])
        raise ValueError(
            f"row {row} of the batch has k(x, x) = {variances[row]:.3g}, expected a value below "
            f"{LARGEST_VARIANCE:g}: scale the features (for example with StandardScaler) or choose "
            "another kernel."
        )


def has_dual(signs: Array, known_bias: bool) -> Mask:
    """Return a mask (machines,): whether there are labels, and of both signs for a diffuse bias."""
    size = signs.shape[0]
    if size == 0 or known_bias:
        return np.full(signs.shape[1], size > 0)
    return np.asarray(np.abs(signs.sum(axis=0)) < size)


def solve_machine(
    prior: Posterior,
    machine: int,
    gram: Array | ComputedRows,
    prior_scores: Array,
    parameters: MarginParameters,
) -> DualSolution:
    """Solve the dual of one machine, starting from the multipliers of the last update.

    With Nystroem features, entries of ``gram`` cost most: points beyond their margins can wait.
    """
    from seqmed.margin.dual import smo  # numba: by the first update, not by an import

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
    if not isinstance(gram, NystroemGram):
        solution = smo.solve(problem, **solver)
    else:
        expected = prior_scores + gram @ coefficients + prior.biases[machine]
        rows = (signs * expected < 1.0 + SPARE) | (coefficients != 0)
        solution = smo.solve_screened(problem, rows, gram.block, **solver)
    on_margin = solution.multipliers > 0
    if parameters.bias != "median" or not on_margin.any():
        return solution
    scores = prior_scores + gram @ (signs * solution.multipliers)
    median = float(np.median((signs - scores)[on_margin]))
    return with_bias(problem, solution, median)


def with_solutions(prior: Posterior, solutions: list[DualSolution | None]) -> Posterior:
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

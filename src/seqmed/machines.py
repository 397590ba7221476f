"""The machines of one update: each solves its dual over the window (Theorem 1).

`seqmed.dual` has the dual and its solver.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from seqmed import dual
from seqmed.arrays import Array
from seqmed.covariance.protocol import WindowCovariance
from seqmed.dual import Block, ComputedRows, DualProblem, DualSolution
from seqmed.posterior import KNOWN_BIAS, Posterior
from seqmed.settings import Settings

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
            solve(prior, machine, gram, geometry.block, scores[:, machine], settings)
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


def solve(
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
    window = prior.window
    signs = np.ascontiguousarray(window.signs[:, machine])
    problem = DualProblem(
        gram=gram,
        signs=signs,
        prior_scores=prior_scores + KNOWN_BIAS if prior.known_bias else prior_scores,
        bounds=window.bounds,
        shapes=window.shapes,
        bias_variance=0.0 if prior.known_bias else np.inf,
        multiplier_sum=dual.attainable_sum(signs, window.bounds, -prior.frozen_sums[machine]),
    )
    coefficients = window.coefficients[:, machine]
    solver: dict[str, Any] = {
        "tol": settings.tol,
        "max_iter": settings.max_iter,
        "start": dual.feasible(problem, signs * coefficients),
        "previous_bias": float(prior.biases[machine]) if prior.n_solved[machine] else None,
    }
    if block is None:
        solution = dual.solve(problem, **solver)
    else:
        expected = prior_scores + gram @ coefficients + prior.biases[machine]
        rows = (signs * expected < 1.0 + SPARE) | (coefficients != 0)
        solution = dual.solve_from(problem, rows, block, **solver)
    on_margin = solution.multipliers > 0
    if settings.bias != "median" or not on_margin.any():
        return solution
    scores = prior_scores + gram @ (signs * solution.multipliers)
    median = float(np.median((signs - scores)[on_margin]))
    return dual.with_bias(problem, solution, median)


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

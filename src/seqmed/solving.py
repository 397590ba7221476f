"""The duals of one update: a problem per head over the window's points, and what they teach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqmed import dual
from seqmed.arrays import Array, Points, no_indices
from seqmed.dual import DualProblem, DualSolution
from seqmed.kernels import ComputedGram, Expansion, evaluate
from seqmed.posterior import (
    Covariance,
    CovarianceFunction,
    Posterior,
    check_reduction,
    loaded,
)
from seqmed.recursion import SpectralRecursion
from seqmed.recursion.span import SpanCovariance, SpanGram
from seqmed.settings import Settings
from seqmed.upkeep import base_coefficients, with_settled

Gram = Array | ComputedGram | SpanGram
Solutions = tuple[DualSolution | None, ...]

# Points of a window whose covariances are held in memory.
LARGEST_GRAM = 12_000
# Distance beyond its margin at which a point is first left out.
SPARE = 0.2


class Learned(NamedTuple):
    """What an update has learned.

    Attributes
    ----------
    posterior : with new multipliers and biases.
    solutions : one per head; None where there was no problem to solve.
    on_anchors : (q, heads), the `base_coefficients` of the new mean.
    """

    posterior: Posterior
    solutions: Solutions
    on_anchors: Array


def learn(prior: Posterior, settings: Settings) -> Learned:
    """Solve one dual per head over the points of the window."""
    window, covariance = prior.window, prior.covariance
    if isinstance(covariance, SpanCovariance):
        return learn_in_span(prior, covariance, settings)
    prior, settled, prior_scores = settle(prior)
    solutions = solve_heads(prior, gram_of(covariance, window.points), prior_scores, settings)
    learned = take_in(prior, solutions)
    return Learned(learned, solutions, base_coefficients(learned, settled))


def settle(prior: Posterior) -> tuple[Posterior, Array, Array]:
    """Return what is settled: its coefficients on anchors, and its scores at the window's points.

    Coefficients (q, heads) are in the base kernel, and scores (n, heads) without the bias. The
    posterior that comes with them remembers what it knows of both.
    """
    window, covariance, kernel = prior.window, prior.covariance, prior.covariance.kernel
    if isinstance(prior.recursion, SpectralRecursion):
        before = replace(prior, window=window.take(no_indices()))
        parts = covariance.in_base_kernel(before.support)
        return prior, prior.on_anchors.coefficients, evaluate(kernel, parts, window.points)
    prior = with_settled(prior)
    anchors = prior.on_anchors
    values, coefficients = anchors.settled, anchors.coefficients
    if coefficients.any():
        values = values + evaluate(kernel, (loaded(anchors),), anchors.points)
    if anchors.size:
        coefficients = coefficients + covariance.smoothed(values)
    scores = evaluate(kernel, (Expansion(anchors.points, coefficients),), window.points)
    return prior, coefficients, prior.window.settled + scores


def unchanged(prior: Posterior) -> Learned:
    """Return what there is where nothing new asks to be optimised."""
    solutions: Solutions = (None,) * prior.biases.size
    return Learned(take_in(prior, solutions), solutions, base_coefficients(prior))


def learn_in_span(prior: Posterior, covariance: SpanCovariance, settings: Settings) -> Learned:
    """Learn where every function is a sum over landmarks: the anchors carry the whole mean."""
    window, anchors = prior.window, prior.on_anchors
    gram = covariance.gram(window.points)
    settled = anchors.coefficients - gram.on_landmarks(window.coefficients)
    solutions = solve_heads(prior, gram, gram.values @ settled, settings)
    learned = take_in(prior, solutions)
    newest = settled + gram.on_landmarks(learned.window.coefficients)
    learned = replace(learned, on_anchors=replace(anchors, coefficients=newest))
    return Learned(learned, solutions, newest)


def solve_heads(prior: Posterior, gram: Gram, prior_scores: Array, settings: Settings) -> Solutions:
    """Solve one dual per head, given the window's covariances and prior scores (n, heads)."""
    return tuple(
        solve_head(prior, head, gram, prior_scores[:, head], settings)
        for head in range(prior.biases.size)
    )


def poses(posterior: Posterior, head: int) -> bool:
    """Whether the window poses a dual to a head: not if empty, nor one class to a diffuse bias."""
    signs = posterior.window.signs[:, head]
    if signs.size == 0 or np.isfinite(posterior.bias_variance):
        return bool(signs.size)
    return bool(abs(signs.sum()) < signs.size)


def gram_of(covariance: CovarianceFunction, points: Points) -> Array | ComputedGram:
    """Return the covariances of the window's points, in memory unless they are too many."""
    if points.shape[0] <= LARGEST_GRAM or not isinstance(covariance, Covariance):
        return covariance(points, points)
    kernel, reduction, features = covariance.kernel, covariance.reduction, None
    if reduction is not None:
        features = reduction.features(kernel, points)
        check_reduction(kernel.diagonal(points), features)
    return ComputedGram(kernel, points, features)


def solve_head(
    prior: Posterior,
    head: int,
    gram: Gram,
    prior_scores: Array,
    settings: Settings,
) -> DualSolution | None:
    """Solve the dual of one head; None where it has no labels, or one class and a diffuse bias.

    It starts from the multipliers of the last update. Within a span, where a point costs little to
    score and much to optimise, points beyond their margins at the last update are first left out.
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
    coefficients = window.coefficients[:, head]
    solver: dict[str, Any] = {
        "tol": settings.tol,
        "max_iter": settings.max_iter,
        "start": dual.feasible(problem, signs * coefficients),
        "previous_bias": float(prior.biases[head]) if prior.solved[head] else None,
    }
    if isinstance(gram, SpanGram):
        expected = prior_scores + gram @ coefficients + prior.biases[head]
        rows = (signs * expected < 1.0 + SPARE) | (coefficients != 0)
        solution = dual.solve_from(problem, rows, gram.block, **solver)
    else:
        solution = dual.solve(problem, **solver)
    on_margin = solution.multipliers > 0
    if settings.bias != "median" or not on_margin.any():
        return solution
    scores = prior_scores + gram @ (signs * solution.multipliers)
    median = float(np.median((signs - scores)[on_margin]))
    return dual.with_bias(problem, solution, median)


def prior_bias(prior: Posterior, head: int) -> float:
    """Return the mean of a bias of finite variance, given the settled multipliers."""
    return float(prior.bias_means[head] + prior.bias_variance * prior.settled_balances[head])


def take_in(prior: Posterior, solutions: Solutions) -> Posterior:
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

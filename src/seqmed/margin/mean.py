"""The mean between two solves: forgetting, new landmarks, freezing, averaging, the budget.

Each function returns a new posterior. `seqmed.margin.posterior` defines the form of the mean.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from seqmed.kernels import Expansion, Kernel, evaluate
from seqmed.margin.covariance.protocol import FoldResult, Recursion
from seqmed.margin.posterior import Posterior, ScoredTerms, Terms, as_terms
from seqmed.numeric.arrays import Array, no_rows, take_rows

SomeTerms = TypeVar("SomeTerms", bound=Terms)
SomeScored = TypeVar("SomeScored", bound=ScoredTerms)

# Coefficients below this fraction of the largest coefficient are dropped.
NEGLIGIBLE = 1e-9


def forget_labels(posterior: Posterior, forgetting: float) -> Posterior:
    """Return the posterior with the effect of labels discounted by ``forgetting`` in (0, 1].

    Frozen coefficients and their part of the bias are discounted. In the window, bounds and shapes
    are discounted too, which scales the weight of a row. Support vectors with negligible
    coefficients are dropped.
    """
    window = discounted(posterior.window, forgetting)
    window = replace(
        window,
        bounds=forgetting * window.bounds,
        shapes=forgetting * window.shapes,
        discounted=forgetting * window.discounted,
    )
    frozen = replace(posterior.frozen, coefficients=forgetting * posterior.frozen.coefficients)
    gone = negligible(frozen)
    newest, averaged = posterior.projection_errors
    posterior = replace(
        posterior,
        # compared with the weight of new labels, which is not discounted
        window=window.take(window.bounds > NEGLIGIBLE * posterior.window.bounds.max(initial=0.0)),
        frozen=frozen.take(~gone),
        landmarks=discounted(posterior.landmarks, forgetting),
        frozen_sums=forgetting * posterior.frozen_sums,
        projection_errors=np.stack([forgetting * newest, averaged]),
    )
    return add_frozen_scores(posterior, frozen.take(gone), -1.0)


def discounted(terms: SomeScored, forgetting: float) -> SomeScored:
    """Return the terms with the effect of labels discounted."""
    return replace(
        terms,
        coefficients=forgetting * terms.coefficients,
        frozen_scores=forgetting * terms.frozen_scores,
    )


def negligible(terms: Terms) -> NDArray[np.bool_]:
    """Return a mask (n,) of the points whose coefficients are negligible."""
    mask = np.ones(terms.size, dtype=bool)
    for values in (terms.coefficients, terms.averages):
        sizes = np.abs(values).max(axis=1, initial=0.0)
        mask &= sizes <= NEGLIGIBLE * sizes.max(initial=0.0)
    return mask


def add_frozen_scores(posterior: Posterior, terms: Terms, sign: float) -> Posterior:
    """Add ``sign`` times the scores of the terms to the cached scores of frozen support vectors."""
    if not terms.size:
        return posterior
    kernel, parts = posterior.covariance.kernel, (terms.expansion,)

    def with_scores(scored: SomeScored) -> SomeScored:
        if not scored.size:
            return scored
        values = evaluate(kernel, parts, scored.points)
        return replace(scored, frozen_scores=scored.frozen_scores + sign * values)

    return replace(
        posterior,
        window=with_scores(posterior.window),
        landmarks=with_scores(posterior.landmarks),
    )


def with_recursion(posterior: Posterior, folded: FoldResult) -> Posterior:
    """Return the posterior with an updated recursion and expansions on its new landmarks.

    The coefficients of replaced landmarks are projected on the new landmarks.
    """
    recursion, origin = folded.recursion, folded.origin
    if origin is None:
        return replace(posterior, recursion=recursion)
    old, frozen = posterior.landmarks, posterior.frozen
    points = no_rows(frozen.points) if recursion.landmarks is None else recursion.landmarks
    machines = posterior.biases.size
    values = np.hstack([old.coefficients, old.averages])
    moved = np.zeros((points.shape[0], 2 * machines))
    scores = np.zeros((points.shape[0], machines))
    stayed, new = origin >= 0, np.flatnonzero(origin < 0)
    moved[stayed], scores[stayed] = values[origin[stayed]], old.frozen_scores[origin[stayed]]
    if new.size and frozen.size:
        kernel, parts = recursion.covariance.kernel, (frozen.expansion,)
        scores[new] = evaluate(kernel, parts, take_rows(points, new))
    errors = posterior.projection_errors
    left = np.setdiff1d(np.flatnonzero(old.nonzero), origin[stayed])
    if left.size:
        found = recursion.project(old.points[left], values[left])
        moved += found.coefficients
        errors = errors + norms(found.squared_error)
    return replace(
        posterior,
        recursion=recursion,
        landmarks=ScoredTerms(points, *halves(moved), scores),
        projection_errors=errors,
    )


def freeze(posterior: Posterior, leaving: Terms) -> Posterior:
    """Return the posterior with the points that have left the window frozen.

    If every function is an expansion on the landmarks, the points are added to that expansion.
    """
    if not leaving.size:
        return posterior
    sums = posterior.frozen_sums + leaving.coefficients.sum(axis=0)
    posterior = replace(posterior, frozen_sums=sums)
    leaving = leaving.take(leaving.nonzero)
    if not leaving.size:
        return posterior
    if posterior.covariance.on_landmarks:
        landmarks = posterior.landmarks
        geometry = posterior.covariance.on_window(leaving.points, landmarks.points)
        coefficients = landmarks.coefficients + geometry.landmark_part(leaving.coefficients)
        return replace(posterior, landmarks=replace(landmarks, coefficients=coefficients))
    frozen = joined_terms(posterior.covariance.kernel, posterior.frozen, leaving)
    return replace(add_frozen_scores(posterior, leaving, 1.0), frozen=frozen)


def joined_terms(kernel: Kernel, first: Terms, second: Terms) -> Terms:
    """Return the terms of both, summed if the kernel allows it."""
    parts = (
        Expansion(terms.points, np.hstack([terms.coefficients, terms.averages]))
        for terms in (first, second)
    )
    points, values = reduce(kernel.join, parts)
    return Terms(points, *halves(values))


def halves(values: Array) -> tuple[Array, Array]:
    """Return copies of the left and the right half of the columns."""
    machines = values.shape[1] // 2
    return values[:, :machines].copy(), values[:, machines:].copy()


def average(
    posterior: Posterior, solved: NDArray[np.bool_], forgetting: float, newest: Array
) -> Posterior:
    """Return the posterior with its newest mean added to the running mean of all means.

    Parameters
    ----------
    posterior : posterior after a solve, which is already counted in ``posterior.n_solved``.
    solved : (machines,) whether this update has solved a dual of the machine. The averages of the
        other machines do not change.
    forgetting : forgetting factor in (0, 1]; it also applies to the running mean.
    newest : (m, machines) `Posterior.landmark_coefficients` of the newest mean.
    """
    counts = np.maximum(posterior.n_solved, 1)
    step = np.where(solved, np.maximum(1.0 / counts, 1.0 - forgetting), 0.0)
    step[posterior.n_solved == 0] = 1.0  # the first mean

    def taken_in(terms: SomeTerms, newest: Array) -> SomeTerms:
        return replace(terms, averages=terms.averages + step * (newest - terms.averages))

    newest_error, averaged_error = posterior.projection_errors
    frozen, window = posterior.frozen, posterior.window
    if not posterior.covariance.on_landmarks:
        frozen = taken_in(frozen, frozen.coefficients)
        window = taken_in(window, window.coefficients)
    errors = [newest_error, averaged_error + step * (newest_error - averaged_error)]
    return replace(
        posterior,
        frozen=frozen,
        window=window,
        landmarks=taken_in(posterior.landmarks, newest),
        intercepts=posterior.intercepts + step * (posterior.biases - posterior.intercepts),
        projection_errors=np.stack(errors),
    )


def within_budget(posterior: Posterior, capacity: int | None) -> Posterior:
    """Return the posterior with at most ``capacity`` labeled points kept exactly.

    Points of the window with the smallest multipliers are frozen first. Then the frozen points with
    the smallest projection error are projected on the landmarks.
    """
    if capacity is None:
        return posterior
    window = posterior.window
    if window.size > capacity:
        order = np.argsort(np.abs(window.coefficients).max(axis=1), kind="stable")[::-1]
        kept = np.zeros(window.size, dtype=bool)
        kept[order[:capacity]] = True
        leaving = as_terms(window).take(~kept)
        posterior = freeze(replace(posterior, window=window.take(kept)), leaving)
    frozen = posterior.frozen
    excess = frozen.size + posterior.window.size - capacity
    if excess <= 0 or posterior.covariance.kernel.compact:
        return posterior
    leaves = np.zeros(frozen.size, dtype=bool)
    errors = projection_errors(posterior.recursion, frozen)
    leaves[np.argsort(errors, kind="stable")[:excess]] = True
    left = frozen.take(leaves)
    found = posterior.recursion.project(left.points, np.hstack([left.coefficients, left.averages]))
    coefficients, averages = halves(found.coefficients)
    posterior = add_frozen_scores(posterior, left, -1.0)
    landmarks = posterior.landmarks
    return replace(
        posterior,
        frozen=frozen.take(~leaves),
        landmarks=replace(
            landmarks,
            coefficients=landmarks.coefficients + coefficients,
            averages=landmarks.averages + averages,
        ),
        projection_errors=posterior.projection_errors + norms(found.squared_error),
    )


def norms(squared_errors: Array) -> Array:
    """Return norms (2, machines), of the newest and of the averaged mean, from squared norms."""
    return np.sqrt(squared_errors.reshape(2, -1))


def projection_errors(recursion: Recursion, terms: Terms) -> Array:
    """Return the squared error of projecting each point alone, (n,), over all machines."""
    weights = np.sum(terms.coefficients**2 + terms.averages**2, axis=1)
    return np.asarray(weights * recursion.residual_variances(terms.points))


def with_mean_parts(
    posterior: Posterior, averaging: bool, bounded: bool, newest: Array
) -> Posterior:
    """Return the posterior with its mean expanded in the base kernel, for predictions.

    Points without a coefficient are left out, unless the state is ``bounded``. A bounded state
    shares its points with the mean, and its size does not depend on the number of zero
    coefficients. ``newest`` (m, machines) are its `Posterior.landmark_coefficients`.
    """
    kernel, landmarks = posterior.covariance.kernel, posterior.landmarks
    own = () if posterior.covariance.on_landmarks else (posterior.frozen, posterior.window)
    if averaging:
        parts = tuple(Expansion(terms.points, terms.averages) for terms in (landmarks, *own))
        return replace(posterior, mean_parts=summed(kernel, parts))
    kept = tuple(
        Expansion(terms.points, terms.coefficients) if bounded else terms.expansion for terms in own
    )
    parts = (Expansion(landmarks.points, newest), *kept)
    return replace(posterior, mean_parts=summed(kernel, parts), intercepts=posterior.biases)


def summed(kernel: Kernel, parts: tuple[Expansion, ...]) -> tuple[Expansion, ...]:
    """Return the parts that have points, summed if that makes them smaller (linear weights)."""
    if kernel.compact:
        return (reduce(kernel.join, parts),)
    return tuple(part for part in parts if part.points.shape[0]) or parts[:1]

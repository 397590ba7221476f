"""What happens to a posterior besides learning: forgetting, averaging, staying within a budget.

Each function returns a new posterior. The mean they keep is, in the current covariance,

    m(x) = sum_window k_t(x, x_s) c_s + sum_frozen k_t(x, x_s) c_s + sum_anchors k_t(x, z) a_z.

Where every function is a sum over anchors, the last of the three is the whole mean, and what the
window carries is part of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, no_rows, take_rows
from seqmed.kernels import Expansion, Kernel, evaluate
from seqmed.posterior import Posterior, Recursion, Terms, Watched, Window, loaded

SomeTerms = TypeVar("SomeTerms", bound=Terms)
SomeWatched = TypeVar("SomeWatched", bound=Watched)

# A coefficient this small against the largest of its kind has faded.
FADED = 1e-9
# A function this small against what was taken from it is what rounding has left of nothing.
ROUNDED = 1e-7


def forget_labels(posterior: Posterior, share: float) -> Posterior:
    """Return the posterior with what labels have taught scaled by ``share`` in (0, 1].

    Settled coefficients and the bias they add shrink; in the window it is the bounds and shapes
    that do, which is a row's weight. What has faded is dropped.
    """
    if share == 1.0:
        return posterior
    window = scaled(posterior.window, share)
    window = replace(
        window,
        bounds=share * window.bounds,
        shapes=share * window.shapes,
        discounted=share * window.discounted,
    )
    frozen = replace(posterior.frozen, coefficients=share * posterior.frozen.coefficients)
    gone = faded(frozen)
    newest, averaged = posterior.projection_errors
    posterior = replace(
        posterior,
        # against the labels to come, which count in full
        window=window.take(window.bounds > FADED * posterior.window.bounds.max(initial=0.0)),
        frozen=frozen.take(~gone),
        on_anchors=scaled(posterior.on_anchors, share),
        settled_balances=share * posterior.settled_balances,
        projection_errors=np.stack([share * newest, averaged]),
    )
    return heard(posterior, frozen.take(gone), -1.0) if gone.any() else posterior


def scaled(terms: SomeWatched, share: float) -> SomeWatched:
    """Return the terms with what labels have taught scaled."""
    return replace(terms, coefficients=share * terms.coefficients, settled=share * terms.settled)


def faded(terms: Terms) -> NDArray[np.bool_]:
    """Return a mask (n,) of the points whose coefficients no longer count."""
    mask = np.ones(terms.size, dtype=bool)
    for values in (terms.coefficients, terms.averages):
        sizes = np.abs(values).max(axis=1, initial=0.0)
        mask &= sizes <= FADED * sizes.max(initial=0.0)
    return mask


def follow(posterior: Posterior, recursion: Recursion) -> Posterior:
    """Return the posterior with a recursion one fold further, its expansions on the new anchors.

    Where an anchor was dropped, what stood on it is projected on those that last.
    """
    if recursion is posterior.recursion:
        return posterior
    if np.array_equal(recursion.origin, np.arange(posterior.on_anchors.size)):
        return replace(posterior, recursion=recursion)  # all are where they were
    posterior = without_window(posterior)
    old, origin = posterior.on_anchors, recursion.origin
    points = no_rows(posterior.frozen.points) if recursion.anchors is None else recursion.anchors
    heads = old.coefficients.shape[1]
    values = np.hstack([old.coefficients, old.averages])
    moved = np.zeros((points.shape[0], 2 * heads))
    settled = np.full((points.shape[0], heads), np.nan)
    stayed = origin >= 0
    moved[stayed], settled[stayed] = values[origin[stayed]], old.settled[origin[stayed]]
    errors = posterior.projection_errors
    left = np.setdiff1d(np.flatnonzero(old.carrying), origin[stayed])
    if left.size:
        found = recursion.project(old.points[left], values[left])
        moved += found.coefficients
        errors = errors + norms(found.squared_error)
    posterior = replace(
        posterior,
        recursion=recursion,
        on_anchors=Watched(points, *halves(moved), settled),
        projection_errors=errors,
    )
    return with_window(posterior)


def settle(posterior: Posterior, leaving: Terms) -> Posterior:
    """Return the posterior with points that have left the window among the frozen ones.

    Where every function is a sum over anchors, they are part of it already.
    """
    if not leaving.size:
        return posterior
    balances = posterior.settled_balances + leaving.coefficients.sum(axis=0)
    posterior = replace(posterior, settled_balances=balances)
    if posterior.covariance.within_anchors:
        return posterior
    carrying = leaving.take(leaving.carrying)
    if not carrying.size:
        return posterior
    frozen = join(posterior.covariance.kernel, posterior.frozen, carrying)
    return replace(heard(posterior, carrying, 1.0), frozen=frozen)


def heard(posterior: Posterior, terms: Terms, share: float) -> Posterior:
    """Return the posterior with a share of what some terms say added to what is known of that."""
    kernel, said = posterior.covariance.kernel, (loaded(terms),)

    def at(watched: SomeWatched) -> SomeWatched:
        if np.isnan(watched.settled).all():
            return watched
        values = evaluate(kernel, said, watched.points)
        return replace(watched, settled=watched.settled + share * values)

    return replace(posterior, window=at(posterior.window), on_anchors=at(posterior.on_anchors))


def with_settled(posterior: Posterior) -> Posterior:
    """Return the posterior with all that is to be known of what settled labels say."""
    kernel, said = posterior.covariance.kernel, (loaded(posterior.frozen),)

    def seen(terms: SomeWatched) -> SomeWatched:
        unknown = np.flatnonzero(np.isnan(terms.settled).any(axis=1))
        if not unknown.size:
            return terms
        settled = terms.settled.copy()
        settled[unknown] = evaluate(kernel, said, take_rows(terms.points, unknown))
        return replace(terms, settled=settled)

    return replace(posterior, window=seen(posterior.window), on_anchors=seen(posterior.on_anchors))


def without_window(posterior: Posterior) -> Posterior:
    """Return the posterior with what the window carries taken off the anchors, if it is there.

    A head of which no more than rounding is left has nothing left.
    """
    expansion, covariance = loaded(posterior.window), posterior.covariance
    if not covariance.within_anchors or not expansion.points.shape[0]:
        return posterior
    anchors = posterior.on_anchors
    (part,) = covariance.in_base_kernel(expansion)
    rest = anchors.coefficients - part.coefficients
    # rounding shows in the coefficients, amplified, long before it does in the function
    gram = covariance.kernel(anchors.points, anchors.points)
    squares = [np.sum(each * (gram @ each), axis=0) for each in (rest, part.coefficients)]
    rest[:, squares[0] <= ROUNDED**2 * squares[1]] = 0.0
    return replace(posterior, on_anchors=replace(anchors, coefficients=rest))


def with_window(posterior: Posterior) -> Posterior:
    """Return the posterior with what the window carries put on the anchors, if it belongs there."""
    expansion, covariance = loaded(posterior.window), posterior.covariance
    if not covariance.within_anchors or not expansion.points.shape[0]:
        return posterior
    anchors = posterior.on_anchors
    (part,) = covariance.in_base_kernel(expansion)
    whole = anchors.coefficients + part.coefficients
    return replace(posterior, on_anchors=replace(anchors, coefficients=whole))


def is_all_in_window(posterior: Posterior) -> bool:
    """Whether the window holds everything that labels have taught."""
    if posterior.covariance.within_anchors:
        return not without_window(posterior).on_anchors.coefficients.any()
    return not (posterior.frozen.size or posterior.on_anchors.carrying.any())


def join(kernel: Kernel, first: Terms, second: Terms) -> Terms:
    """Return the terms of both, summed where the kernel can."""
    parts = (
        Expansion(terms.points, np.hstack([terms.coefficients, terms.averages]))
        for terms in (first, second)
    )
    points, values = reduce(kernel.join, parts)
    return Terms(points, *halves(values))


def halves(values: Array) -> tuple[Array, Array]:
    """Return the left and the right half of the columns, each an array of its own."""
    heads = values.shape[1] // 2
    return values[:, :heads].copy(), values[:, heads:].copy()


def average(
    posterior: Posterior, solved: NDArray[np.bool_], forgetting: float, newest_on_anchors: Array
) -> Posterior:
    """Return the posterior with its newest mean taken into the running mean of mean functions.

    Parameters
    ----------
    posterior : after a solve; ``posterior.solved`` counts it already.
    solved : (heads,) whether this update has solved a dual of the head; others stay as they were.
    forgetting : share in (0, 1]; below 1 the running mean forgets too.
    newest_on_anchors : (q, heads), its `base_coefficients`.
    """
    counts = np.maximum(posterior.solved, 1)
    share = np.where(solved, np.maximum(1.0 / counts, 1.0 - forgetting), 0.0)
    share[posterior.solved == 0] = 1.0  # nothing to average yet: the mean is the newest

    def taken_in(terms: SomeTerms, newest: Array) -> SomeTerms:
        return replace(terms, averages=terms.averages + share * (newest - terms.averages))

    newest, averaged = posterior.projection_errors
    frozen, window = posterior.frozen, posterior.window
    if not posterior.covariance.within_anchors:
        frozen, window = (
            taken_in(frozen, frozen.coefficients),
            taken_in(window, window.coefficients),
        )
    return replace(
        posterior,
        frozen=frozen,
        window=window,
        on_anchors=taken_in(posterior.on_anchors, newest_on_anchors),
        intercepts=posterior.intercepts + share * (posterior.biases - posterior.intercepts),
        projection_errors=np.stack([newest, averaged + share * (newest - averaged)]),
    )


def base_coefficients(posterior: Posterior, settled: Array | None = None) -> Array:
    """Return the coefficients (q, heads) on the anchors that the newest mean has in base kernel.

    ``settled`` (q, heads) are those of all but the window, where they are known.
    """
    anchors = posterior.on_anchors
    if not anchors.size:
        return anchors.coefficients
    covariance = posterior.covariance
    if covariance.within_anchors:
        return anchors.coefficients
    if settled is None:
        settled, expansion = anchors.coefficients, posterior.support
    elif covariance.kernel.remembered:
        # values of the whole window are known, and remembered
        expansion = Expansion(posterior.window.points, posterior.window.coefficients)
    else:
        expansion = loaded(posterior.window)
    _, *parts = covariance.in_base_kernel(expansion)
    return settled + parts[0].coefficients if parts else settled


def within_budget(posterior: Posterior, room: int | None) -> Posterior:
    """Return the posterior with at most ``room`` labeled points kept exactly.

    The points dearest to project are kept, those of the window first; the others are projected on
    the landmarks.
    """
    if room is None:
        return posterior
    heads = posterior.biases.size
    window = posterior.window
    if window.size > room:
        heaviest = np.argsort(np.abs(window.coefficients).max(axis=1), kind="stable")[::-1][:room]
        kept = np.zeros(window.size, dtype=bool)
        kept[heaviest] = True
        leaving = as_terms(window).take(~kept)
        posterior = settle(replace(posterior, window=window.take(kept)), leaving)
    frozen = posterior.frozen
    excess = frozen.size + posterior.window.size - room
    if excess <= 0 or posterior.covariance.kernel.compact:
        return posterior
    cheapest = np.argsort(projection_prices(posterior.recursion, frozen), kind="stable")[:excess]
    leaves = np.zeros(frozen.size, dtype=bool)
    leaves[cheapest] = True
    left = frozen.take(leaves)
    found = posterior.recursion.project(left.points, np.hstack([left.coefficients, left.averages]))
    costs = norms(found.squared_error)
    posterior = heard(posterior, left, -1.0)
    anchors = posterior.on_anchors
    return replace(
        posterior,
        frozen=frozen.take(~leaves),
        on_anchors=replace(
            anchors,
            coefficients=anchors.coefficients + found.coefficients[:, :heads],
            averages=anchors.averages + found.coefficients[:, heads:],
        ),
        projection_errors=posterior.projection_errors + costs,
    )


def norms(squared_errors: Array) -> Array:
    """Return norms (2, heads), of the newest mean and of the averaged one, from their squares."""
    return np.sqrt(squared_errors.reshape(2, -1))


def as_terms(window: Window) -> Terms:
    """Return what the window's points carry, without what would be needed to optimise it."""
    return Terms(window.points, window.coefficients, window.averages)


def projection_prices(recursion: Recursion, terms: Terms) -> Array:
    """Return what projecting each point alone would lose, (n,): squared norms over all heads."""
    weights = np.sum(terms.coefficients**2 + terms.averages**2, axis=1)
    return weights * recursion.unexplained(terms.points)


def ready(
    posterior: Posterior, averaging: bool, bounded: bool = False, newest: Array | None = None
) -> Posterior:
    """Return the posterior with the mean for predictions as expansions in the base kernel.

    Points without a coefficient are left out, unless the state is ``bounded``: it then shares its
    points with the mean, and its size does not vary with how many of them carry a coefficient.
    ``newest`` (q, heads) are its `base_coefficients`, where they are known.
    """
    kernel, anchors = posterior.covariance.kernel, posterior.on_anchors
    own = () if posterior.covariance.within_anchors else (posterior.frozen, posterior.window)
    if averaging:
        parts = tuple(Expansion(terms.points, terms.averages) for terms in (anchors, *own))
        return replace(posterior, mean_parts=summed(kernel, parts))
    if anchors.size:
        support = tuple(
            Expansion(terms.points, terms.coefficients) if bounded else loaded(terms)
            for terms in own
        )
        newest = base_coefficients(posterior) if newest is None else newest
        parts = (Expansion(anchors.points, newest), *support)
    else:
        parts = posterior.covariance.in_base_kernel(posterior.support)
    return replace(posterior, mean_parts=summed(kernel, parts), intercepts=posterior.biases)


def summed(kernel: Kernel, parts: tuple[Expansion, ...]) -> tuple[Expansion, ...]:
    """Return the parts that have points, summed where that makes them smaller (linear weights)."""
    if kernel.compact:
        return (reduce(kernel.join, parts),)
    return tuple(part for part in parts if part.points.shape[0]) or parts[:1]

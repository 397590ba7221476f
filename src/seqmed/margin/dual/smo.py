"""Pairwise solver for the dual: sequential minimal optimisation with a log barrier.

Each step moves two signed coefficients against each other, ``c_i += d`` and ``c_j -= d``, which
keeps ``y'a`` unchanged. Among the coefficients that can increase, ``i`` implies the largest bias.
``j`` is the partner with the largest second-order gain. ``d`` solves the one-dimensional problem of
the pair. The loops are compiled, see `seqmed.margin.dual.steps`. Around them:

- Shrinking: points at a bound that no step would move leave the *active set* temporarily, which
  makes steps cheaper.
- If progress is slow, `seqmed.margin.dual.interior_point` solves the problem by Newton's method.
- Screening: points expected beyond their margins are left out until they violate the optimality
  conditions (`solve_screened`).
- A large problem is solved with a cache of rows in single precision. A solve ends only after score
  errors have been recomputed in double precision.

A known bias is one more point, which implies a bias of 0, and has variance 0 and no bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.margin.dual import interior_point
from seqmed.margin.dual.problem import (
    Block,
    DualProblem,
    DualSolution,
    KKTResiduals,
    attainable_sum,
    certify,
    feasible,
    fits_single_precision,
    kkt_residuals,
    score_errors,
)
from seqmed.margin.dual.steps import RUNNING, refresh, subtract_product, take_steps
from seqmed.numeric.arrays import Array, Indices, Mask

# Pair steps between two returns to the interpreter, so that a long solve can be interrupted.
STEPS_PER_CALL = 100_000
# Rounding is reported after this many consecutive checks that fail to halve the violation.
PATIENCE = 3
# A solve is slow after this many steps, or this many per point if that is more: Newton's method is
# tried once, with a fraction of as many steps after it. Then as many steps must reduce the gap.
SLOW, SLOW_PER_POINT, SLOWEST_FALL, TRIAL = 100_000, 50, 0.9, 0.1
# Smallest active set that is shrunk, and the largest fraction of its points that may remain.
SHRINKABLE, WORTH_SHRINKING = 400, 0.8
# The first solve of a large problem, before all points are checked, uses this many times tol.
COARSE = 10.0
SINGLE = float(np.finfo(np.float32).eps)
# Memory of the row cache.
ROW_BYTES = 2**29


class RowCache(NamedTuple):
    """A cache of rows of the covariance over the n active points, replaced by the clock algorithm.

    Attributes
    ----------
    source : (N, N) all covariances; (0, 0) if all rows are cached.
    columns : (n,) the index of every point in ``source``.
    values : (slots, n) the cached rows.
    slots : (n,) the slot of the row of every point; -1 if it is not cached.
    owners : (slots,) the point whose row is in a slot; -1 for none.
    referenced : (slots,) whether a slot was used since the hand last passed it.
    hand : (1,) the slot to be replaced next, unless it was referenced.
    """

    source: Array
    columns: Indices
    values: NDArray[np.floating]
    slots: Indices
    owners: Indices
    referenced: Mask
    hand: Indices


def full_row_cache(values: Any) -> RowCache:
    """Return a cache that holds all rows, (n, n)."""
    own = np.arange(values.shape[0])
    return unreferenced(np.empty((0, 0)), own, values, own, own)


def empty_row_cache(gram: Any, places: Indices) -> RowCache:
    """Return an empty cache for rows of the covariances, in single precision."""
    n = places.size
    slots = int(min(n, max(ROW_BYTES // (4 * n), 2)))
    single = fits_single_precision(float(np.abs(gram.diagonal()).max()))
    values = np.empty((slots, n), dtype=np.float32 if single else np.float64)
    values[0] = 0.0  # a step of length zero uses this row
    return unreferenced(gram, places, values, np.full(n, -1), np.full(slots, -1))


def unreferenced(source: Any, columns: Indices, values: Any, slots: Any, owners: Any) -> RowCache:
    """Return a cache in which no slot was used yet."""
    referenced, hand = np.zeros(owners.size, dtype=np.bool_), np.zeros(1, dtype=np.intp)
    return RowCache(source, columns, values, slots, owners, referenced, hand)


class ActiveSet(NamedTuple):
    """The points whose multipliers the steps may change.

    Attributes
    ----------
    places : (n,) indices of the points in the whole problem.
    part : the problem of these points, with the covariances of the whole problem.
    multipliers, errors : (n,) changed in place by `take_steps`.
    shifts, traits : (3, n) and (4, n), see `seqmed.margin.dual.steps.refresh_point`.
    """

    places: Indices
    part: DualProblem
    multipliers: Array
    errors: Array
    shifts: Array
    traits: Array
    rows: RowCache


def solve(
    problem: DualProblem,
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    start: Array | None = None,
    previous_bias: float | None = None,
) -> DualSolution:
    """Solve the dual by pair steps from ``start`` (by default the feasible point nearest to 0).

    Parameters
    ----------
    problem : the data of the dual.
    tol : largest KKT violation accepted, in units of the margin.
    max_iter : largest number of pair steps; -1 means 10 million, or 100 per point if more.
    start : (n,) first multipliers, see `feasible`.
    previous_bias : see `exact_bias`.
    """
    n = problem.signs.size
    allowed = max(10_000_000, 100 * n) if max_iter < 0 else max_iter
    multipliers = (
        feasible(problem, np.zeros(n)) if start is None else np.array(start, dtype=np.float64)
    )
    gram = np.require(problem.gram, np.float64, ["C", "W"])
    problem = replace(problem, gram=gram)
    status, used, patience, shrinking = "rounding", 0, PATIENCE, n > SHRINKABLE
    least, active = float("inf"), None
    pause, best = many_steps(n), None

    def certified(multipliers: Array) -> DualSolution:
        return certify(
            problem,
            multipliers,
            tol=tol,
            status=status,
            n_iter=used,
            previous_bias=previous_bias,
            residuals=residuals,
        )

    while True:
        # Steps accumulate rounding in the errors, so a solve ends only after errors are recomputed.
        errors = problem.signs - problem.prior_scores
        subtract_product(errors, gram, problem.signs * multipliers)
        residuals = kkt_residuals(problem, multipliers, errors)
        violation = residuals.violation
        if violation <= tol or status == "max_iter" or not patience:
            break
        if used >= pause:
            now, pause = certified(multipliers), used + many_steps(n)
            if best is None:
                newton = interior_point.solve_by_newton(problem, multipliers, tol)
                if newton is not None and newton.gap < now.gap:
                    best, used = newton, used + newton.n_iter
                    if newton.status == "converged":
                        break
                    multipliers, active = newton.multipliers.copy(), None
                    patience, least = PATIENCE, float("inf")
                    pause = used + int(TRIAL * many_steps(n))
                    continue
            elif now.gap > SLOWEST_FALL * best.gap:
                break
            best = now
        movable = residuals.movable
        if active is None or movable.sum() > movable[active.places].sum():  # a left-out point
            rows = full_row_cache(gram)
            active = active_set_of(problem, np.arange(n), rows, multipliers, errors)
        else:
            active = active._replace(errors=errors[active.places])
        # a coarse tolerance first: it shows which points were left out wrongly
        target = COARSE * tol if shrinking and violation > COARSE * tol else tol
        outcome, taken, active = descend(
            active, multipliers, target, min(allowed, pause) - used, shrinking
        )
        used += taken
        if used >= allowed and outcome == RUNNING:
            status = "max_iter"
        if outcome != RUNNING:
            patience = PATIENCE if violation < 0.5 * least else patience - 1
        least = min(least, violation)
        if taken == 0 or not patience:
            patience = 0
            if shrinking:  # rounding is reported only with all points active
                patience, least, shrinking, active = PATIENCE, float("inf"), False, None
    if best is not None and best.status == "converged":
        return best._replace(n_iter=used)
    last = certified(multipliers)
    if best is None or last.status == "converged" or last.gap <= best.gap:
        return last
    return best._replace(status=status, n_iter=used)


def many_steps(n: int) -> int:
    """Return the number of steps after which a solve of n points is slow."""
    return max(SLOW, SLOW_PER_POINT * n)


def descend(
    active: ActiveSet, multipliers: Array, tol: float, allowed: int, shrinking: bool
) -> tuple[int, int, ActiveSet]:
    """Take up to ``allowed`` pair steps; ``multipliers`` of the whole problem change in place.

    Returns (outcome, steps taken, the active set at the end). If ``shrinking``, points at a bound
    that no step would move leave the active set.
    """
    outcome, used = RUNNING, 0
    while outcome == RUNNING and used < allowed:
        shrinkable = shrinking and active.places.size > SHRINKABLE
        if shrinkable:
            active = shrink(active)
        check_at = max(active.places.size // 2, SHRINKABLE) if shrinkable else STEPS_PER_CALL
        error = SINGLE if active.rows.values.dtype == np.float32 else 0.0
        limits = np.array([tol, min(check_at, allowed - used), error])
        outcome, taken = take_steps(
            tuple(active.rows),
            active.traits,
            active.multipliers,
            active.errors,
            active.shifts,
            active.part.known_bias,
            limits,
        )
        used += taken
        multipliers[active.places] = active.multipliers
    return outcome, used, active


def active_set_of(
    problem: DualProblem,
    places: Indices,
    rows: RowCache,
    multipliers: Array,
    errors: Array,
) -> ActiveSet:
    """Return the active set of the points at these places; the cache has all of their rows."""
    part, variances = problem.take(places), rows.values.diagonal().astype(np.float64)
    traits = np.stack((part.signs, part.bounds, part.shapes, variances))
    shifts = np.empty((3, places.size))
    active = ActiveSet(places, part, multipliers[places], errors[places], shifts, traits, rows)
    refresh(traits, active.multipliers, shifts)
    return active


def shrink(active: ActiveSet) -> ActiveSet:
    """Return the active set without the points that no step would move, if there are many."""
    kept = kkt_residuals(active.part, active.multipliers, active.errors).movable
    if kept.sum() >= WORTH_SHRINKING * kept.size or not kept.any():
        return active
    return without_others(active, kept)


def without_others(active: ActiveSet, kept: Mask) -> ActiveSet:
    """Return the active set of the points in a mask (n,)."""
    places = active.places[kept]
    return ActiveSet(
        places=places,
        part=active.part.take(kept),
        multipliers=active.multipliers[kept],
        errors=active.errors[kept],
        shifts=np.ascontiguousarray(active.shifts[:, kept]),
        traits=np.ascontiguousarray(active.traits[:, kept]),
        rows=empty_row_cache(active.part.gram, places),
    )


# -- screening: a solve that begins without some of the points ------------------------------------

# A point at most this far beyond its margin is added together with violating points.
SPARE = 0.1
# Largest number of points to start with. Later the active set is at most doubled at a time.
MOST_AT_FIRST = 3000
# Number of steps per active point before score errors are recomputed.
STEPS_PER_POINT = 100
# The solve ends after this many consecutive checks without a smaller violation.
LONGEST_STALL = 30
# Largest number of points for which such a solve continues in double precision.
LARGEST_IN_DOUBLE = 4000


def solve_screened(
    problem: DualProblem,
    rows: Mask,
    block: Block,
    *,
    start: Array,
    tol: float = 1e-3,
    max_iter: int = -1,
    previous_bias: float | None = None,
) -> DualSolution:
    """Solve a dual with a cheap product ``gram @ c`` as `solve` does, starting with some points.

    ``rows`` (n,) is a mask of these points.
    """
    allowed = max(10_000_000, 100 * rows.size) if max_iter < 0 else max_iter
    multipliers, used, status = start.copy(), 0, "rounding"
    rows = first_rows(problem, rows, multipliers > 0)
    least, patience, stalled = float("inf"), PATIENCE, 0
    active, outcome = None, RUNNING
    while True:
        residuals = kkt_residuals(problem, multipliers, score_errors(problem, multipliers))
        violation = residuals.violation
        if violation <= tol or status == "max_iter" or not patience:
            break
        if active is not None:
            missed = violating(problem, residuals, rows)
            rows = rows | thinned(missed, max(MOST_AT_FIRST, int(rows.sum())))
        if active is None or rows.sum() > active.places.size:
            places, gram = block(rows)
            held = full_row_cache(gram)
            active = active_set_of(problem, places, held, multipliers, residuals.errors)
        else:
            active = active._replace(errors=residuals.errors[active.places])
            stalled = 0 if violation < least else stalled + 1
            if outcome != RUNNING:  # no step makes progress
                patience = PATIENCE if violation < 0.5 * least else patience - 1
            elif stalled == LONGEST_STALL:
                patience = 0
        # a coarse tolerance first: it shows which points were left out wrongly
        target = COARSE * tol if least == float("inf") and not rows.all() else tol
        least = min(least, violation)
        most = min(allowed - used, STEPS_PER_POINT * active.places.size)
        outcome, taken, active = descend(active, multipliers, target, most, False)
        used += taken
        if used >= allowed:
            status = "max_iter"
        elif used >= many_steps(rows.size) and rows.size <= LARGEST_IN_DOUBLE:
            patience = 0
    if violation > tol and status == "rounding" and rows.size <= LARGEST_IN_DOUBLE:
        every = replace(problem, gram=problem.gram[np.arange(rows.size)])
        solution = solve(
            every,
            tol=tol,
            max_iter=allowed - used,
            start=multipliers,
            previous_bias=previous_bias,
        )
        return solution._replace(n_iter=used + solution.n_iter)
    return certify(
        problem,
        multipliers,
        tol=tol,
        status=status,
        n_iter=used,
        previous_bias=previous_bias,
        residuals=residuals,
    )


def violating(problem: DualProblem, residuals: KKTResiduals, rows: Mask) -> Mask:
    """Return a mask (n,) of points not in ``rows`` that violate the conditions, or nearly do."""
    bias = 0.0
    if not problem.known_bias:
        lowest = residuals.implied_biases.max(initial=-np.inf, where=residuals.can_increase & rows)
        highest = residuals.implied_biases.min(initial=np.inf, where=residuals.can_decrease & rows)
        bias = float(0.5 * (lowest + highest))
    growing, shrinking = ~rows & residuals.can_increase, ~rows & residuals.can_decrease
    missed = (growing & (residuals.implied_biases > bias)) | (
        shrinking & (residuals.implied_biases < bias)
    )
    if not missed.any():
        return missed
    near = residuals.implied_biases > bias - SPARE, residuals.implied_biases < bias + SPARE
    return (growing & near[0]) | (shrinking & near[1])


def first_rows(problem: DualProblem, rows: Mask, support: Mask) -> Mask:
    """Return a mask (n,) of the points to start with: some of ``rows``, and all of ``support``.

    They are all of ``rows``, or all points, if fewer cannot attain the sum of multipliers.
    """
    wanted = problem.multiplier_sum
    for some in (thinned(rows, MOST_AT_FIRST) | support, rows | support):
        signs = problem.signs[some]
        if problem.known_bias:
            enough = bool(some.any())
        else:
            both = bool((signs > 0).any() and (signs < 0).any())
            enough = both and attainable_sum(signs, problem.bounds[some], wanted) == wanted
        if enough:
            return some
    return np.ones_like(rows)


def thinned(mask: Mask, most: int) -> Mask:
    """Return a mask with at most ``most`` of the points of a mask, evenly spaced."""
    places = np.flatnonzero(mask)
    if places.size <= most:
        return mask
    some = np.zeros_like(mask)
    some[places[np.linspace(0, places.size - 1, most).astype(np.intp)]] = True
    return some

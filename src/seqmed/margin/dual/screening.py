"""Screening: solve the dual without the points that are expected to have a multiplier of zero.

A multiplier of zero is optimal for a point beyond its margin. Points that are expected to lie
beyond their margins are left out first. The optimality conditions are then checked over all points,
and points that violate them are added. The result is a solution of the whole problem, with its
certificate.

The steps are those of `seqmed.margin.dual.smo`. Covariances may be in single precision: a solve
ends only after score errors have been recomputed in double precision.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqmed.margin.dual import smo, steps
from seqmed.margin.dual.problem import (
    Block,
    DualProblem,
    DualSolution,
    KKTResiduals,
    attainable_sum,
    certify,
    kkt_residuals,
    score_errors,
)
from seqmed.margin.dual.smo import active_set_of, empty_row_cache, full_row_cache
from seqmed.numeric.arrays import Array, Mask

# A point at most this far beyond its margin is added together with violating points.
SPARE = 0.1
# Largest number of points whose covariances are all held; beyond it, a cache of rows is used.
LARGEST_BLOCK = 12_000
# Largest number of points to start with. Later the active set is at most doubled at a time.
MOST_AT_FIRST = 3000
# Number of steps per active point before score errors are recomputed.
STEPS_PER_POINT = 100
# The solve ends after this many consecutive checks without a smaller violation.
LONGEST_STALL = 30
# Largest number of points for which a solve that is slow, or did not converge in single precision,
# is continued with all points in double precision.
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
    """Solve the dual, starting with some of its points.

    Parameters
    ----------
    problem : problem with n points and a cheap product ``gram @ c``.
    rows : (n,) mask of the points to start with.
    block : function of a mask (n,). It returns the indices (m,) of these points, in any order, and
        their covariances (m, m) in single or double precision.
    start, tol, max_iter, previous_bias : as in `seqmed.margin.dual.smo.solve`.
    """
    allowed = max(10_000_000, 100 * rows.size) if max_iter < 0 else max_iter
    multipliers, used, status = start.copy(), 0, "rounding"
    rows = first_rows(problem, rows, multipliers > 0)
    least, patience, stalled = float("inf"), smo.PATIENCE, 0
    active, outcome = None, steps.RUNNING
    while True:
        residuals = kkt_residuals(problem, multipliers, score_errors(problem, multipliers))
        violation = residuals.violation
        if violation <= tol or status == "max_iter" or not patience:
            break
        if active is not None:
            missed = violating(problem, residuals, rows)
            rows = rows | thinned(missed, max(MOST_AT_FIRST, int(rows.sum())))
        if active is None or rows.sum() > active.places.size:
            if rows.sum() <= LARGEST_BLOCK:
                places, gram = block(rows)
                variances, held = gram.diagonal().astype(np.float64), full_row_cache(gram)
            else:
                places = np.flatnonzero(rows)
                variances = problem.gram.diagonal()[places]
                held = empty_row_cache(problem.gram, places)
            active = active_set_of(problem, places, variances, held, multipliers, residuals.errors)
        else:
            active = active._replace(errors=residuals.errors[active.places])
            stalled = 0 if violation < least else stalled + 1
            if outcome != steps.RUNNING:  # no step makes progress
                patience = smo.PATIENCE if violation < 0.5 * least else patience - 1
            elif stalled == LONGEST_STALL:
                patience = 0
        # a coarse tolerance first: it shows which points were left out wrongly
        target = smo.COARSE * tol if least == float("inf") and not rows.all() else tol
        least = min(least, violation)
        most = min(allowed - used, STEPS_PER_POINT * active.places.size)
        outcome, taken, active = smo.descend(active, multipliers, target, most, False)
        used += taken
        if used >= allowed:
            status = "max_iter"
        elif used >= smo.many_steps(rows.size) and rows.size <= LARGEST_IN_DOUBLE:
            patience = 0
    if violation > tol and status == "rounding" and rows.size <= LARGEST_IN_DOUBLE:
        every = replace(problem, gram=problem.gram[np.arange(rows.size)])
        solution = smo.solve(
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
    """Return a mask (n,) of the left-out points to add; empty if none violates the conditions.

    The bias is determined by the points ``rows``. Points near a violation are added as well.
    """
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

    If these cannot attain the sum of multipliers, the mask contains all of ``rows``; if that is not
    enough either, all points.
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

"""A dual of which most points are thought to be easy: solved over the others, and then looked at.

A multiplier of zero is optimal for a point that ends up beyond its margin. So points expected to
are left out, the optimality conditions are looked at over all points, and those left out that fall
short join in. What comes out is a solution of the whole problem, with its certificate.

The steps are those of `seqmed.dual.smo`. Their covariances may be in single precision: only margins
from a fresh product with the whole problem's, in double, may end a solve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask
from seqmed.dual import loops, smo
from seqmed.dual.problem import (
    DualProblem,
    DualSolution,
    KKTResiduals,
    attainable,
    certify,
    kkt_residuals,
    margins_left,
)

Block = Callable[[Mask], tuple[Indices, NDArray[np.floating]]]

# Distance beyond its margin at which a point need not join those that fall short of theirs.
SPARE = 0.1
# Points up to which their covariances are held, beyond that 512 MB of their rows.
LARGEST_BLOCK = 12_000
# Points to begin with at most; from then on those active are at most doubled at a time.
BEGINNING = 3000
# Steps that a point active is good for, before margins are computed afresh.
STEPS_PER_POINT = 100
# Fresh margins in a row without progress, as long as steps are taken.
LONGEST_STALL = 30
# Points up to which all covariances are held in double precision, should single not do.
LARGEST_IN_DOUBLE = 4000


def solve_from(
    problem: DualProblem,
    rows: Mask,
    block: Block,
    *,
    start: Array,
    tol: float = 1e-3,
    max_iter: int = -1,
    previous_bias: float | None = None,
) -> DualSolution:
    """Solve the dual, from a part of it.

    Parameters
    ----------
    problem : what to solve, of n points; its ``gram @ c`` is to be cheap.
    rows : (n,) mask of the points to begin with.
    block : returns the places (m,) of the points of a mask, in an order of its own, and their
        covariances (m, m), single precision will do.
    start, tol, max_iter, previous_bias : as in `seqmed.dual.smo.solve`.
    """
    allowed = max(10_000_000, 100 * rows.size) if max_iter < 0 else max_iter
    multipliers, used, status = start.copy(), 0, "rounding"
    rows = first_rows(problem, rows, multipliers > 0)
    least, patience, stalled = float("inf"), smo.PATIENCE, 0
    active, outcome = None, loops.RUNNING
    while True:
        residuals = kkt_residuals(problem, multipliers, margins_left(problem, multipliers))
        violation = residuals.violation
        if violation <= tol or status == "max_iter" or not patience:
            break
        if active is not None:
            missed = fall_short(problem, residuals, rows, multipliers)
            rows = rows | thinned(missed, max(BEGINNING, int(rows.sum())))
        if active is None or rows.sum() > active.places.size:
            active = play_of(problem, rows, block, multipliers, residuals.left)
        else:
            active = active._replace(left=residuals.left[active.places])
            stalled = 0 if violation < least else stalled + 1
            if outcome != loops.RUNNING:  # it has gone as far as it could
                patience = smo.PATIENCE if violation < 0.5 * least else patience - 1
            elif stalled == LONGEST_STALL:
                patience = 0
        # at first not to the last digit: who was left out wrongly shows then
        target = smo.COARSE * tol if least == float("inf") and not rows.all() else tol
        least = min(least, violation)
        total = float(problem.signs @ multipliers)
        most = min(allowed - used, STEPS_PER_POINT * active.places.size)
        outcome, steps, active = smo.descend(active, multipliers, total, target, most, False)
        used += steps
        if used >= allowed:
            status = "max_iter"
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


def play_of(
    problem: DualProblem, rows: Mask, block: Block, multipliers: Array, left: Array
) -> smo.ActiveSet:
    """Return the active set of some points, by a mask; if they are many, without their rows."""
    if rows.sum() <= LARGEST_BLOCK:
        places, gram = block(rows)
        variances, own = gram.diagonal().astype(np.float64), np.arange(places.size)
        held = loops.Rows(
            source=np.empty((0, 0)),
            columns=places,
            values=gram,
            slots=own,
            owners=own.copy(),
            wanted=np.zeros(places.size, dtype=np.bool_),
            hand=np.zeros(1, dtype=np.intp),
        )
    else:
        places = np.flatnonzero(rows)
        variances, held = problem.gram.diagonal()[places], smo.no_rows_of(problem.gram, places)
    part = replace(
        problem,
        signs=problem.signs[places],
        prior_scores=problem.prior_scores[places],
        bounds=problem.bounds[places],
        shapes=problem.shapes[places],
    )
    traits = np.stack((part.signs, part.bounds, part.shapes, variances))
    shifts = np.empty((3, places.size))
    active = smo.ActiveSet(places, part, multipliers[places], left[places], shifts, traits, held)
    loops.refresh(traits, active.multipliers, shifts)
    return active


def fall_short(
    problem: DualProblem, residuals: KKTResiduals, rows: Mask, multipliers: Array
) -> Mask:
    """Return a mask (n,) of the other points to be taken in, none if no multiplier would help.

    That is judged by the bias of those that are in.
    """
    if np.isfinite(problem.bias_variance):
        bias = problem.bias_variance * float(problem.signs @ multipliers)
    else:
        lowest = residuals.demand.max(initial=-np.inf, where=residuals.may_grow & rows)
        highest = residuals.demand.min(initial=np.inf, where=residuals.may_shrink & rows)
        bias = float(0.5 * (lowest + highest))
    growing, shrinking = ~rows & residuals.may_grow, ~rows & residuals.may_shrink
    missed = (growing & (residuals.demand > bias)) | (shrinking & (residuals.demand < bias))
    if not missed.any():
        return missed
    near = residuals.demand > bias - SPARE, residuals.demand < bias + SPARE
    return (growing & near[0]) | (shrinking & near[1])


def first_rows(problem: DualProblem, rows: Mask, carrying: Mask) -> Mask:
    """Return a mask (n,) of the points to begin with: some of ``rows``, and all that carry.

    Should these not do to balance a diffuse bias, all of ``rows``; or else all there are.
    """
    for some in (thinned(rows, BEGINNING) | carrying, rows | carrying):
        if stand_alone(problem, some):
            return some
    return np.ones_like(rows)


def thinned(mask: Mask, most: int) -> Mask:
    """Return a mask of at most so many of the points of a mask, spread evenly."""
    places = np.flatnonzero(mask)
    if places.size <= most:
        return mask
    some = np.zeros_like(mask)
    some[places[np.linspace(0, places.size - 1, most).astype(np.intp)]] = True
    return some


def stand_alone(problem: DualProblem, rows: Mask) -> bool:
    """Whether some points alone can balance a diffuse bias as the whole problem does."""
    if np.isfinite(problem.bias_variance):
        return bool(rows.any())
    signs, bounds = problem.signs[rows], problem.bounds[rows]
    both = bool((signs > 0).any() and (signs < 0).any())
    return both and attainable(signs, bounds, problem.balance) == problem.balance

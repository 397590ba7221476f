"""Pairwise solver for the dual: sequential minimal optimisation with a log barrier.

Each step moves two signed coefficients against each other, ``c_i += d`` and ``c_j -= d``, which
keeps ``y'a`` where it is. ``i`` asks for the largest bias among the coefficients that can grow;
``j`` is the partner of the largest second-order gain; ``d`` solves their one-dimensional problem.
The loops are compiled, see `seqmed.dual.loops`; here is what surrounds them:

- Many points sit at a bound that they would only be pulled beyond. They leave the *active set*
  for a while, and the others take cheaper steps.
- A large problem is solved with rows in single precision, fetched when they are first asked for.
  Their error is that of what has changed since the missing margins were last computed in double
  precision: it goes to zero with the violation, and only a fresh margin may end a solve.

A finite bias variance ``v`` needs no second algorithm. With ``u = y'a`` as a variable of its own,
its price ``v u^2 / 2`` and the constraint ``y'a - u = 0`` form the same problem with one more
point: covariance ``v`` with itself, 0 with the others, target 0, prior score 0, and no bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqmed.arrays import Array, Indices, Mask
from seqmed.dual import loops
from seqmed.dual.loops import MISSING, RUNNING, Rows, refresh, sweep
from seqmed.dual.problem import (
    DualProblem,
    DualSolution,
    KKTResiduals,
    certify,
    feasible,
    is_moderate,
    kkt_residuals,
    margins_left,
)

# Pair steps between two returns to the interpreter: keeps a long solve interruptible.
STEPS_PER_CALL = 100_000
# Fresh margins in a row that may fail to halve the violation before it is put down to rounding.
PATIENCE = 3
# Points from which on those that no step would move are left out for a while, and the share that
# must go to make it worth laying out the others anew.
SHRINKABLE, WORTH_SHRINKING = 400, 0.8
# Tolerances to which a large problem is solved before all points are looked at again.
COARSE = 10.0
# Memory for fetched rows, and how many rows that are not in memory are computed at a time.
ROW_BYTES, ROWS_AT_A_TIME = 2**29, 16
SINGLE = float(np.finfo(np.float32).eps)


class ActiveSet(NamedTuple):
    """The points that take part in the steps.

    Attributes
    ----------
    places : (n,) their places in the whole problem.
    part : the problem without the others; its covariances are those of the whole.
    multipliers, left : (n,) their state, changed by `sweep`.
    shifts, traits : (3, n) and (4, n), see `seqmed.dual.loops.refresh_point`.
    rows : their covariances.
    """

    places: Indices
    part: DualProblem
    multipliers: Array
    left: Array
    shifts: Array
    traits: Array
    rows: Rows


def solve(
    problem: DualProblem,
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    start: Array | None = None,
    previous_bias: float | None = None,
) -> DualSolution:
    """Solve the dual by pair steps from ``start`` (by default zeros, or nearest to them).

    Parameters
    ----------
    problem : what to solve.
    tol : largest KKT violation accepted, in units of the margin.
    max_iter : largest number of pair steps; -1 means 10 million, or 100 per point if more.
    start : (n,) multipliers to begin with, within their bounds (below them where the slack shape is
        positive), and with ``y'a = t`` under a diffuse bias.
    previous_bias : the bias to stay close to where the problem does not fix it.
    """
    n = problem.signs.size
    allowed = max(10_000_000, 100 * n) if max_iter < 0 else max_iter
    multipliers = (
        feasible(problem, np.zeros(n)) if start is None else np.array(start, dtype=np.float64)
    )
    caps = np.where(problem.shapes > 0, np.nextafter(problem.bounds, 0.0), problem.bounds)
    if not ((multipliers >= 0) & (multipliers <= caps)).all():
        raise ValueError(
            f"start has entries in [{multipliers.min():g}, {multipliers.max():g}], expected each "
            "between 0 and its bound: clip the start, or begin with none."
        )
    if isinstance(problem.gram, np.ndarray):
        problem = replace(problem, gram=np.require(problem.gram, np.float64, ["C", "W"]))
    status, used, patience, shrinking = "rounding", 0, PATIENCE, n > SHRINKABLE
    least, active = float("inf"), None
    while True:
        # The steps update their margins as they go; only freshly computed ones may end a solve.
        residuals = kkt_residuals(problem, multipliers, fresh_margins(problem, multipliers))
        violation = residuals.violation
        if violation <= tol or status == "max_iter" or not patience:
            break
        if active is None or left_out(active, residuals):
            active = all_active(problem, multipliers, residuals.left)
        else:
            active = active._replace(left=residuals.left[active.places])
        # at first not to the last digit: whom a smaller problem left out wrongly shows then
        target = COARSE * tol if shrinking and violation > COARSE * tol else tol
        total = float(problem.signs @ multipliers)
        outcome, steps, active = descend(
            active, multipliers, total, target, allowed - used, shrinking
        )
        used += steps
        if outcome == RUNNING:
            status = "max_iter"
        patience = PATIENCE if violation < 0.5 * least else patience - 1
        least = min(least, violation)
        if steps == 0 or not patience:
            patience = 0
            if shrinking:  # before this is put down to rounding, nobody is left out
                patience, least, shrinking, active = PATIENCE, float("inf"), False, None
    return certify(
        problem,
        multipliers,
        tol=tol,
        status=status,
        n_iter=used,
        previous_bias=previous_bias,
        residuals=residuals,
    )


def fresh_margins(problem: DualProblem, multipliers: Array) -> Array:
    """Return `margins_left`, (n,), without visiting the rows of points that are not support."""
    if not isinstance(problem.gram, np.ndarray):
        return margins_left(problem, multipliers)
    left = problem.signs - problem.prior_scores
    loops.take_away(left, problem.gram, problem.signs * multipliers)
    return left


def descend(
    active: ActiveSet, multipliers: Array, total: float, tol: float, allowed: int, shrinking: bool
) -> tuple[int, int, ActiveSet]:
    """Take up to ``allowed`` pair steps, changing the ``multipliers`` of the whole in place.

    ``total`` is their ``y'a``. If ``shrinking``, points at a bound that no step would move leave
    the active set. Whether that was right is checked when margins are recomputed. Returns
    (outcome, steps taken, the active set at the end). Compiled calls are short, so that an
    interrupt takes effect within moments.
    """
    bias_state = np.array([active.part.bias_variance, total])
    outcome, used, since_check = RUNNING, 0, 0
    while outcome in (RUNNING, MISSING) and used < allowed:
        shrinkable = shrinking and active.places.size > SHRINKABLE
        if shrinkable and since_check == 0:
            active = shrink(active, bias_state[1])
        check_at = max(active.places.size // 2, SHRINKABLE) if shrinkable else STEPS_PER_CALL
        error = SINGLE if active.rows.values.dtype == np.float32 else 0.0
        limits = np.array([tol, min(check_at - since_check, allowed - used), error])
        outcome, steps, missing = sweep(
            active.rows,
            active.traits,
            active.multipliers,
            active.left,
            active.shifts,
            bias_state,
            limits,
        )
        used, since_check = used + steps, since_check + steps
        if outcome == MISSING:
            compute_rows(active, missing)
        else:
            since_check = 0
            multipliers[active.places] = active.multipliers
    return (RUNNING if outcome == MISSING else outcome), used, active


def left_out(active: ActiveSet, residuals: KKTResiduals) -> bool:
    """Whether a point that a step would move does not take part."""
    contested = residuals.contested
    return bool(contested.sum() > contested[active.places].sum())


def all_active(problem: DualProblem, multipliers: Array, left: Array) -> ActiveSet:
    """Return the active set of all points."""
    n = multipliers.size
    everyone = np.arange(n)
    traits = np.stack((problem.signs, problem.bounds, problem.shapes, problem.gram.diagonal()))
    if isinstance(problem.gram, np.ndarray):
        held, hand = np.zeros(n, dtype=np.bool_), np.zeros(1, dtype=np.intp)
        rows = Rows(problem.gram, everyone, problem.gram, everyone, everyone, held, hand)
    else:
        rows = no_rows_of(problem.gram, everyone)
    active = ActiveSet(
        everyone, problem, multipliers.copy(), left.copy(), np.empty((3, n)), traits, rows
    )
    refresh(traits, active.multipliers, active.shifts)
    return active


def no_rows_of(gram: Any, places: Indices) -> Rows:
    """Return room for rows of the covariances, in single precision, none of them fetched."""
    n = places.size
    slots = int(min(n, max(ROW_BYTES // (4 * n), 4 * ROWS_AT_A_TIME)))
    single = is_moderate(float(np.abs(gram.diagonal()).max()))
    values = np.empty((slots, n), dtype=np.float32 if single else np.float64)
    values[0] = 0.0  # a step of length zero is taken with whatever is there
    return Rows(
        source=gram if isinstance(gram, np.ndarray) else np.empty((0, 0)),
        columns=places,
        values=values,
        slots=np.full(n, -1),
        owners=np.full(slots, -1),
        wanted=np.zeros(slots, dtype=np.bool_),
        hand=np.zeros(1, dtype=np.intp),
    )


def shrink(active: ActiveSet, total: float) -> ActiveSet:
    """Return the active set without the points that no step would move, if they are many.

    ``total`` is ``y'a`` of the whole problem.
    """
    kept = kkt_residuals(active.part, active.multipliers, active.left, total).contested
    if kept.sum() >= WORTH_SHRINKING * kept.size or not kept.any():
        return active
    return without_others(active, kept)


def without_others(active: ActiveSet, kept: Mask) -> ActiveSet:
    """Return the active set of some of its points, by a mask (n,)."""
    places, part = active.places[kept], active.part
    rows = no_rows_of(part.gram, places)
    if not isinstance(part.gram, np.ndarray):  # rows that were computed are not computed again
        renumbered = np.cumsum(kept) - 1
        for point in np.flatnonzero(kept & (active.rows.slots >= 0))[: rows.owners.size]:
            slot = loops.vacate(rows, renumbered[point], -1)
            rows.values[slot] = active.rows.values[active.rows.slots[point], kept]
    return ActiveSet(
        places=places,
        part=replace(
            part,
            signs=part.signs[kept],
            prior_scores=part.prior_scores[kept],
            bounds=part.bounds[kept],
            shapes=part.shapes[kept],
        ),
        multipliers=active.multipliers[kept],
        left=active.left[kept],
        shifts=np.ascontiguousarray(active.shifts[:, kept]),
        traits=np.ascontiguousarray(active.traits[:, kept]),
        rows=rows,
    )


def compute_rows(active: ActiveSet, missing: int) -> None:
    """Compute the row of a point that is missing, and those most likely to be asked for next."""
    absent = active.rows.slots < 0
    half = min(ROWS_AT_A_TIME // 2, int(absent.sum()))
    growing = np.where(absent, active.left + active.shifts[0], -np.inf)
    shrinking = np.where(absent, -active.left - active.shifts[1], -np.inf)
    points = [missing]
    for wanted in (growing, shrinking):
        best = np.argpartition(wanted, -half)[-half:]
        points.extend(best[np.isfinite(wanted[best])])
    asked = np.unique(points)
    values = active.part.gram[active.places[asked]]
    for point, row in zip(asked, values, strict=True):
        active.rows.values[loops.vacate(active.rows, point, -1)] = row[active.places]

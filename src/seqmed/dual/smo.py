"""Pairwise solver for the dual: sequential minimal optimisation with a log barrier, compiled.

Each step moves two signed coefficients against each other, ``c_i += d`` and ``c_j -= d``, which
keeps ``y'a`` where it is. ``i`` asks for the largest bias among the coefficients that can grow;
``j`` is the partner of the largest second-order gain; ``d`` solves their one-dimensional problem.

A finite bias variance ``v`` needs no second algorithm. With ``u = y'a`` as a variable of its own,
its price ``v u^2 / 2`` and the constraint ``y'a - u = 0`` form the same problem with one more
point: covariance ``v`` with itself, 0 with the others, target 0, prior score 0, and no bounds.
The loop below carries it in the last place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from seqmed.arrays import Array
from seqmed.dual.problem import (
    ROUNDING,
    DualProblem,
    DualSolution,
    bias_interval,
    certify,
    contested,
    demands,
    feasible,
    margins_left,
)

# Curvature of a direction in which the objective is linear (duplicate points, hard box).
FLAT_CURVATURE = 1e-12
# Pair steps between two returns to the interpreter: keeps a long solve interruptible.
STEPS_PER_CALL = 100_000
# Fresh residuals in a row that may fail to halve the violation before it is put down to rounding.
PATIENCE = 3
NEWTON_STEPS = 100
# Points from which on those that no step would move are left out for a while, and the share that
# must go to make it worth copying the others.
SHRINKABLE, WORTH_SHRINKING = 400, 0.8
# Tolerances to which a large problem is solved before all points are looked at again.
COARSE = 10.0
# Relative precision to which the length of a step is worked out.
STEP_PRECISION = 1e-15

CONVERGED, RUNNING, STUCK = 0, 1, 2


@njit(cache=True)
def pair_step(demand_gap, curvature, shapes, rooms, senses, limit):
    """Return the step ``d`` in ``[0, limit]`` that minimises the objective along one pair.

    The slope along the pair is ``-demand_gap + d * (curvature + sum_k e_k / (R_k (R_k - s_k d)))``
    over its two points, with ``R_k`` the room ``C_k - a_k`` and ``s_k`` +1 if the step uses it up
    and -1 if it frees some. Written so, nothing cancels. It rises in ``d``: Newton inside a
    bracket, bisecting when a step would leave it.
    """
    low, high = 0.0, limit
    stiffness = curvature
    for k in range(2):
        if shapes[k] > 0.0:
            stiffness += shapes[k] / (rooms[k] * rooms[k])
    step = demand_gap / max(stiffness, FLAT_CURVATURE)
    if shapes[0] == 0.0 and shapes[1] == 0.0:
        return min(step, limit)
    if step >= high:
        step = 0.5 * high
        slope = curvature * high - demand_gap
        for k in range(2):
            if shapes[k] > 0.0:
                rest = rooms[k] - senses[k] * high
                if rest <= 0.0:
                    slope = np.inf
                    break
                slope += high * shapes[k] / (rooms[k] * rest)
        if slope <= 0.0:
            return high
    for _ in range(NEWTON_STEPS):
        slope = curvature * step - demand_gap
        bend = curvature
        for k in range(2):
            if shapes[k] > 0.0:
                rest = rooms[k] - senses[k] * step
                slope += step * shapes[k] / (rooms[k] * rest)
                bend += shapes[k] / (rest * rest)
        if slope > 0.0:
            high = step
        else:
            low = step
        move = slope / bend
        if abs(move) <= STEP_PRECISION * step:
            break
        proposal = step - move
        if not (low < proposal < high):
            proposal = 0.5 * (low + high)
            if not (low < proposal < high):
                break
        step = proposal
    return step


@njit(cache=True)
def refresh_point(point, signs, bounds, shapes, multipliers, own, shifts):
    """Recompute what ``point`` adds to its missing margin to form its demand.

    ``shifts[0]`` holds it for coefficients that can grow (else -inf), ``shifts[1]`` for those that
    can shrink (else +inf), ``shifts[2]`` the curvature of its own variance and of its slack term.
    """
    room = bounds[point] - multipliers[point]
    slope = blur = curvature = 0.0
    if shapes[point] > 0.0:
        slope = shapes[point] / room
        curvature = slope / room
        blur = ROUNDING * bounds[point] * curvature
    below_bound = shapes[point] > 0.0 or room > 0.0
    above_zero = multipliers[point] > 0.0
    positive = signs[point] > 0.0
    may_grow = below_bound if positive else above_zero
    may_shrink = above_zero if positive else below_bound
    shift = -signs[point] * slope
    shifts[0, point] = shift - blur if may_grow else -np.inf
    shifts[1, point] = shift + blur if may_shrink else np.inf
    shifts[2, point] = own + curvature


# The four loops below are most of a solve. Each does one simple thing to whole arrays, without a
# branch, so that the compiler can take several entries at a time.


@njit(cache=True)
def largest(values):
    """Return the largest of some numbers; -inf if there are none."""
    n_rounds = values.size // 8
    a = b = c = d = e = f = g = h = -np.inf  # eight at a time: no comparison waits for the last
    for i in range(n_rounds):
        v = values[8 * i : 8 * i + 8]
        a = v[0] if v[0] > a else a
        b = v[1] if v[1] > b else b
        c = v[2] if v[2] > c else c
        d = v[3] if v[3] > d else d
        e = v[4] if v[4] > e else e
        f = v[5] if v[5] > f else f
        g = v[6] if v[6] > g else g
        h = v[7] if v[7] > h else h
    for k in range(8 * n_rounds, values.size):
        a = values[k] if values[k] > a else a
    return max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))


@njit(cache=True)
def first_at(values, wanted):
    """Return where a value first stands; -1 if nowhere."""
    for k in range(values.size):
        if values[k] == wanted:
            return k
    return -1


@njit(cache=True)
def find_grower(left, shifts, work):
    """Return the largest demand among the coefficients that can grow, and whose it is."""
    for k in range(left.size):
        work[0, k] = left[k] + shifts[0, k]
    top = largest(work[0])
    return top, first_at(work[0], top) if top > -np.inf else -1


@njit(cache=True, error_model="numpy")
def find_shrinker(left, shifts, covariances, own, top, work):
    """Return the largest demand gap to a coefficient that can shrink, the best gain, and its place.

    ``covariances`` (n,) are those with the grower and ``own`` its curvature. The gain of a pair is
    to second order; the place is -1 if no pair gains.
    """
    for k in range(left.size):
        gap = top - (left[k] + shifts[1, k])
        gap = gap if gap > 0.0 else 0.0
        curvature = own + shifts[2, k] - 2.0 * covariances[k]
        curvature = curvature if curvature > FLAT_CURVATURE else FLAT_CURVATURE
        work[0, k] = gap
        work[1, k] = gap * gap / curvature
    gain = largest(work[1])
    return largest(work[0]), gain, first_at(work[1], gain) if gain > 0.0 else -1


@njit(cache=True)
def move(left, step, grown, shrunk):
    """Take a step's effect from the missing margins, ``step * (grown - shrunk)``, in place."""
    for k in range(left.size):
        left[k] -= step * (grown[k] - shrunk[k])


@njit(cache=True)
def sweep(gram, signs, bounds, shapes, multipliers, left, bias_state, limits):
    """Take pair steps until the violation is at most ``tol`` or the steps are used up.

    ``multipliers`` and ``left`` (n,) are updated in place. ``bias_state`` is (variance, y'a), with
    a variance of inf for the equality. ``limits`` is (tol, largest number of steps).
    Returns (outcome, steps taken).
    """
    n = signs.shape[0]
    bias_variance = bias_state[0]
    finite = np.isfinite(bias_variance)
    tol, most_steps = limits[0], int(limits[1])
    shifts = np.empty((3, n))
    for k in range(n):
        refresh_point(k, signs, bounds, shapes, multipliers, gram[k, k], shifts)
    work, nothing = np.empty((2, n)), np.zeros(n)
    pair_shapes, pair_rooms, pair_senses = np.zeros(2), np.ones(2), np.zeros(2)
    moved = np.zeros(2)

    for taken in range(most_steps + 1):
        top, grower = find_grower(left, shifts, work)
        if finite and bias_variance * bias_state[1] > top:
            top, grower = bias_variance * bias_state[1], n
        if grower < 0:
            return CONVERGED, taken
        own = bias_variance if grower == n else shifts[2, grower]
        grown = nothing if grower == n else gram[grower]
        violation, best_gain, shrinker = find_shrinker(left, shifts, grown, own, top, work)
        if finite and grower < n:
            gap = top - bias_variance * bias_state[1]
            violation = max(violation, gap)
            gain = gap * gap / max(own + bias_variance, FLAT_CURVATURE)
            if gap > 0.0 and gain > best_gain:
                best_gain, shrinker = gain, n
        if violation <= tol or shrinker < 0:
            return CONVERGED, taken
        if taken == most_steps:
            return RUNNING, taken

        demand_gap = top
        demand_gap -= (
            bias_variance * bias_state[1]
            if shrinker == n
            else (left[shrinker] + shifts[1, shrinker])
        )
        curvature = 0.0
        step_limit = np.inf
        for end in range(2):
            point = grower if end == 0 else shrinker
            if point == n:
                pair_shapes[end] = 0.0
                curvature += bias_variance
                continue
            curvature += gram[point, point]
            room = bounds[point] - multipliers[point]
            uses_room = (signs[point] > 0.0) == (end == 0)
            pair_shapes[end] = shapes[point]
            pair_rooms[end] = room
            pair_senses[end] = 1.0 if uses_room else -1.0
            step_limit = min(step_limit, room if uses_room else multipliers[point])
        if grower < n and shrinker < n:
            curvature -= 2.0 * gram[grower, shrinker]
        curvature = max(curvature, 0.0)
        step = pair_step(demand_gap, curvature, pair_shapes, pair_rooms, pair_senses, step_limit)

        # A step below one end's last digit would lose y'a, unless it takes the other to its bound.
        n_moved, landed = 0, False
        for end in range(2):
            point = grower if end == 0 else shrinker
            signed_step = step if end == 0 else -step
            if point == n:
                moved[end] = bias_state[1] - signed_step
                n_moved += moved[end] != bias_state[1]
                continue
            changed = multipliers[point] + signs[point] * signed_step
            if shapes[point] > 0.0 and changed >= bounds[point]:
                changed = np.nextafter(bounds[point], 0.0)
            moved[end] = min(max(changed, 0.0), bounds[point])
            if moved[end] != multipliers[point]:
                n_moved += 1
                landed = landed or moved[end] == 0.0 or moved[end] == bounds[point]
        if n_moved < 2 and not landed:
            return STUCK, taken
        for end in range(2):
            point = grower if end == 0 else shrinker
            if point == n:
                bias_state[1] = moved[end]
            else:
                multipliers[point] = moved[end]
                own = gram[point, point]
                refresh_point(point, signs, bounds, shapes, multipliers, own, shifts)
        move(left, step, grown, nothing if shrinker == n else gram[shrinker])
    return RUNNING, most_steps


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
    # compiled for arrays that may be written to, of which there is one kind
    gram = np.require(problem.gram, np.float64, ["C", "W"])
    status, used, patience, shrinking = "rounding", 0, PATIENCE, n > SHRINKABLE
    least = float("inf")
    while True:
        # The steps update their residual as they go; only a freshly computed one may end a solve.
        left = margins_left(problem, multipliers)
        lowest, highest = bias_interval(problem, multipliers, demands(problem, multipliers, left))
        violation = lowest - highest
        if violation <= tol:
            break
        # at first not to the last digit: whom a smaller problem left out wrongly shows then
        target = COARSE * tol if shrinking and violation > COARSE * tol else tol
        outcome, steps = descend(
            problem, gram, multipliers, left, target, allowed - used, shrinking
        )
        used += steps
        if outcome == RUNNING:
            status = "max_iter"
        if outcome == RUNNING or steps == 0:
            break
        patience = PATIENCE if violation < 0.5 * least else patience - 1
        least = min(least, violation)
        if not patience and not shrinking:
            break
        if not patience:  # before this is put down to rounding, nobody is left out
            patience, least, shrinking = PATIENCE, float("inf"), False
    return certify(
        problem, multipliers, tol=tol, status=status, n_iter=used, previous_bias=previous_bias
    )


def descend(
    problem: DualProblem,
    gram: Array,
    multipliers: Array,
    left: Array,
    tol: float,
    allowed: int,
    shrinking: bool,
) -> tuple[int, int]:
    """Take up to ``allowed`` pair steps from fresh missing margins, ``multipliers`` in place.

    If ``shrinking``, points at a bound that no step would move are left out as it goes: the others
    get a smaller problem, whose rows lie close together. Whether they were rightly left out shows
    when margins are computed afresh. Returns (outcome, steps taken). The interpreter is visited now
    and then, so that an interrupt is honoured within moments.
    """
    bias_state = np.array([problem.bias_variance, problem.signs @ multipliers])
    part = replace(problem, gram=gram)
    rows, own, left = np.arange(left.size), multipliers.copy(), left.copy()
    outcome, used = RUNNING, 0
    while outcome == RUNNING and used < allowed:
        shrinkable = shrinking and rows.size > SHRINKABLE
        steps_now = max(rows.size // 2, SHRINKABLE) if shrinkable else STEPS_PER_CALL
        limits = np.array([tol, min(steps_now, allowed - used)])
        outcome, steps = sweep(
            part.gram, part.signs, part.bounds, part.shapes, own, left, bias_state, limits
        )
        used += steps
        multipliers[rows] = own
        if outcome == RUNNING and shrinkable:
            demand = demands(part, own, left)
            interval = bias_interval(part, own, demand, bias_state[1])
            kept = np.flatnonzero(contested(part, own, demand, interval))
            if kept.size < WORTH_SHRINKING * rows.size:
                rows, own, left = rows[kept], own[kept], left[kept]
                part = DualProblem(
                    gram=part.gram[kept[:, None], kept],
                    signs=part.signs[kept],
                    prior_scores=part.prior_scores[kept],
                    bounds=part.bounds[kept],
                    shapes=part.shapes[kept],
                    bias_variance=part.bias_variance,
                    balance=part.balance,
                )
    return outcome, used

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

import numpy as np
from numba import njit

from seqmed.arrays import Array
from seqmed.dual.problem import (
    ROUNDING,
    DualProblem,
    DualSolution,
    certify,
    feasible,
    kkt_violation,
    margins_left,
)

# Curvature of a direction in which the objective is linear (duplicate points, hard box).
FLAT_CURVATURE = 1e-12
# Pair steps between two returns to the interpreter: keeps a long solve interruptible.
STEPS_PER_CALL = 100_000
# Fresh residuals in a row that may fail to halve the violation before it is put down to rounding.
PATIENCE = 3
NEWTON_STEPS = 100
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
def refresh_point(point, signs, bounds, shapes, multipliers, shifts):
    """Recompute what ``point`` adds to its missing margin to form its demand.

    ``shifts[0]`` holds it for coefficients that can grow (else -inf), ``shifts[1]`` for those that
    can shrink (else +inf), ``shifts[2]`` the curvature of the slack term.
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
    shifts[2, point] = curvature


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
        refresh_point(k, signs, bounds, shapes, multipliers, shifts)
    pair_shapes, pair_rooms, pair_senses = np.zeros(2), np.ones(2), np.zeros(2)
    moved = np.zeros(2)

    for taken in range(most_steps + 1):
        grower, top = -1, -np.inf
        for k in range(n):
            value = left[k] + shifts[0, k]
            if value > top:
                top, grower = value, k
        if finite and bias_variance * bias_state[1] > top:
            top, grower = bias_variance * bias_state[1], n

        shrinker, best_gain, bottom = -1, 0.0, np.inf
        own = bias_variance if grower == n else gram[grower, grower] + shifts[2, grower]
        for k in range(n):
            value = left[k] + shifts[1, k]
            if value < bottom:
                bottom = value
            if value < top:
                curvature = own + gram[k, k] + shifts[2, k]
                if grower < n:
                    curvature -= 2.0 * gram[grower, k]
                gain = (top - value) * (top - value) / max(curvature, FLAT_CURVATURE)
                if gain > best_gain:
                    best_gain, shrinker = gain, k
        if finite and grower < n:
            value = bias_variance * bias_state[1]
            bottom = min(bottom, value)
            if value < top:
                gain = (top - value) * (top - value) / max(own + bias_variance, FLAT_CURVATURE)
                if gain > best_gain:
                    best_gain, shrinker = gain, n
        if top - bottom <= tol or shrinker < 0:
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
                refresh_point(point, signs, bounds, shapes, multipliers, shifts)
        if grower == n:
            for k in range(n):
                left[k] += step * gram[shrinker, k]
        elif shrinker == n:
            for k in range(n):
                left[k] -= step * gram[grower, k]
        else:
            for k in range(n):
                left[k] -= step * (gram[grower, k] - gram[shrinker, k])
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
    highest = np.where(problem.shapes > 0, np.nextafter(problem.bounds, 0.0), problem.bounds)
    if not ((multipliers >= 0) & (multipliers <= highest)).all():
        raise ValueError(
            f"start has entries in [{multipliers.min():g}, {multipliers.max():g}], expected each "
            "between 0 and its bound: clip the start, or begin with none."
        )
    # compiled for arrays that may be written to, of which there is one kind
    gram = np.require(problem.gram, np.float64, ["C", "W"])
    status, used, patience, least = "rounding", 0, PATIENCE, np.inf
    while patience:
        # The steps update their residual as they go; only a freshly computed one may end a solve.
        outcome, steps = descend(problem, gram, multipliers, tol, allowed - used)
        used += steps
        if outcome == RUNNING:
            status = "max_iter"
            break
        if steps == 0:
            break
        violation = kkt_violation(problem, multipliers)
        patience = PATIENCE if violation < 0.5 * least else patience - 1
        least = min(least, violation)
    return certify(
        problem, multipliers, tol=tol, status=status, n_iter=used, previous_bias=previous_bias
    )


def descend(
    problem: DualProblem, gram: Array, multipliers: Array, tol: float, allowed: int
) -> tuple[int, int]:
    """Take up to ``allowed`` pair steps from a fresh residual, improving ``multipliers`` in place.

    Returns (outcome, steps taken). The interpreter is visited now and then, so that an interrupt
    is honoured within moments.
    """
    left = margins_left(problem, multipliers)
    bias_state = np.array([problem.bias_variance, problem.signs @ multipliers])
    outcome, used = RUNNING, 0
    while outcome == RUNNING and used < allowed:
        limits = np.array([tol, min(STEPS_PER_CALL, allowed - used)])
        outcome, steps = sweep(
            gram, problem.signs, problem.bounds, problem.shapes,
            multipliers, left, bias_state, limits,
        )  # fmt: skip
        used += steps
    return outcome, used

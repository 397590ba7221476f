"""The compiled loops of the pairwise solver: everything that is done once per step.

A step visits every point twice: once to find whose coefficient should grow, while the last step's
effect is taken from the missing margins, and once to find its partner. Both visits are written so
that the compiler takes several points at a time: no branches, and maxima of integers. The bit
pattern of a double that is not negative grows with the double; of one that is, it falls, which
`order` mends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask
from seqmed.dual.problem import ROUNDING

# Curvature, as a share of the largest variance, of a direction in which the objective is linear
# (duplicate points, hard box).
FLAT_CURVATURE = 1e-12
NEWTON_STEPS = 100
# Relative precision to which the length of a step is worked out.
STEP_PRECISION = 1e-15
# Share of the way to a barrier from which on Newton's first guess is not begun with: so close to it
# the next one hardly moves, which would pass for convergence.
NEAR_LIMIT = 0.999
# Points of which only the largest value is noted at first; whose it is, is looked up afterwards.
BLOCK = 64
LOWEST = -0x7FFFFFFFFFFFFFFF

CONVERGED, RUNNING, STUCK, MISSING = 0, 1, 2, 3


class Rows(NamedTuple):
    """Rows of the covariance over the n points active, as far as they have been fetched.

    Attributes
    ----------
    source : (N, N) all covariances; (0, 0) where rows are computed by the caller.
    columns : (n,) the place in ``source`` of every point.
    values : (slots, n) the rows held.
    slots : (n,) where in ``values`` the row of a point is; -1 if it is not held.
    owners : (slots,) whose row it is; -1 for none.
    wanted : (slots,) whether it was asked for since the hand came by.
    hand : (1,) the slot to be given up next, unless it was wanted.
    """

    source: Array
    columns: Indices
    values: NDArray[np.floating]
    slots: Indices
    owners: Indices
    wanted: Mask
    hand: Indices


@njit(cache=True)
def vacate(rows, point, kept):
    """Return a slot for a point's row, not slot ``kept``; its former owner loses it."""
    while True:
        slot = rows.hand[0]
        rows.hand[0] = (slot + 1) % rows.owners.size
        if slot == kept:
            continue
        if rows.wanted[slot]:
            rows.wanted[slot] = False
            continue
        if rows.owners[slot] >= 0:
            rows.slots[rows.owners[slot]] = -1
        rows.owners[slot] = point
        rows.slots[point] = slot
        return slot


@njit(cache=True)
def fetch(rows, point, kept):
    """Return the slot of a point's row, -1 if the caller has to compute it."""
    slot = rows.slots[point]
    if slot < 0:
        if rows.source.shape[0] == 0:
            return -1
        slot = vacate(rows, point, kept)
        into, place = np.uintp(slot), np.uintp(rows.columns[point])
        for k in range(np.uintp(rows.columns.size)):
            rows.values[into, k] = rows.source[place, np.uintp(rows.columns[k])]
    rows.wanted[slot] = True
    return slot


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
    step = demand_gap / stiffness
    if shapes[0] == 0.0 and shapes[1] == 0.0:
        return min(step, limit)
    if step >= NEAR_LIMIT * high:
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
def refresh_point(point, traits, multipliers, shifts):
    """Recompute what ``point`` adds to its missing margin to form its demand.

    ``traits`` are (signs, bounds, shapes, variances), (4, n). ``shifts[0]`` holds the sum for
    coefficients that can grow (else -inf), ``shifts[1]`` for those that can shrink (else +inf),
    ``shifts[2]`` the curvature of the point's own variance and of its slack term.
    """
    sign, bound, shape = traits[0, point], traits[1, point], traits[2, point]
    room = bound - multipliers[point]
    slope = blur = curvature = 0.0
    if shape > 0.0:
        slope = shape / room
        curvature = slope / room
        blur = ROUNDING * bound * curvature
    below_bound = shape > 0.0 or room > 0.0
    above_zero = multipliers[point] > 0.0
    may_grow = below_bound if sign > 0.0 else above_zero
    may_shrink = above_zero if sign > 0.0 else below_bound
    shift = -sign * slope
    shifts[0, point] = shift - blur if may_grow else -np.inf
    shifts[1, point] = shift + blur if may_shrink else np.inf
    shifts[2, point] = traits[3, point] + curvature


@njit(cache=True)
def refresh(traits, multipliers, shifts):
    """Do so for all points."""
    for point in range(multipliers.size):
        refresh_point(point, traits, multipliers, shifts)


@njit(cache=True)
def order(value):
    """Return an integer that grows with a double, whatever its sign."""
    bits = np.float64(value).view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))


@njit(cache=True)
def bits_of(value):
    """Return an integer that grows with a double that is not negative."""
    return np.float64(value).view(np.int64)


@njit(cache=True)
def single_bits_of(value):
    """Return an integer that grows with a single that is not negative."""
    return np.float32(value).view(np.int32)


@njit(cache=True)
def double_of(bits):
    """Return the double of which these are the bits."""
    return np.int64(bits).view(np.float64)


@njit(cache=True)
def move(left, values, slots, steps, shifts):
    """Take a step from the missing margins, in place, and find the next coefficient to grow.

    The step's effect is ``steps[0] * values[slots[0]] - steps[1] * values[slots[1]]``. Returns the
    largest demand among the coefficients that can grow, and whose it is: -1 if none can.
    """
    n, block = np.uintp(left.size), np.uintp(BLOCK)
    up, down = np.uintp(slots[0]), np.uintp(slots[1])
    rise, fall = steps[0], steps[1]
    top, found = np.int64(LOWEST), np.uintp(0)
    for start in range(np.uintp(0), n, block):
        highest = np.int64(LOWEST)
        for k in range(start, min(start + block, n)):
            value = left[k] - (rise * values[up, k] - fall * values[down, k])
            left[k] = value
            highest = max(highest, order(value + shifts[0, k]))
        if highest > top:
            top, found = highest, np.uintp(start)
    for k in range(found, min(found + block, n)):
        demand = left[k] + shifts[0, k]
        if order(demand) == top and demand > -np.inf:
            return demand, np.intp(k)
    return -np.inf, np.intp(-1)


@njit(cache=True)
def take_away(left, gram, coefficients):
    """Take ``gram @ coefficients`` from missing margins, in place; a zero's row is not visited."""
    n = np.uintp(left.size)
    places = np.flatnonzero(coefficients).astype(np.uintp)
    last = np.uintp(max(places.size - 1, 0))
    for i in range(0, places.size, 4):  # four rows to a visit of the margins
        first = np.uintp(i)
        second, third = min(first + np.uintp(1), last), min(first + np.uintp(2), last)
        fourth = min(first + np.uintp(3), last)
        a, b, c, d = places[first], places[second], places[third], places[fourth]
        u = coefficients[a]
        v = coefficients[b] if second > first else 0.0
        w = coefficients[c] if third > second else 0.0
        x = coefficients[d] if fourth > third else 0.0
        for k in range(n):
            left[k] -= (u * gram[a, k] + v * gram[b, k]) + (w * gram[c, k] + x * gram[d, k])


@njit(cache=True, error_model="numpy")
def find_shrinker(left, values, shifts, grower, scales, gains):
    """Return the largest demand gap to a coefficient that can shrink, and who shrinks best.

    ``grower`` is (slot of its row, demand, curvature, 1 or for no row 0). Gains are to second
    order, ``gap^2 / curvature``, compared in single precision and therefore scaled; ``gains`` (n,)
    is room for their bits. The place is -1 if no gap is positive.
    """
    slot, top, own, twice = np.uintp(grower[0]), grower[1], grower[2], 2.0 * grower[3]
    gap_scale, curvature_scale = scales[0], scales[1]
    n, block, zero = np.uintp(left.size), np.uintp(BLOCK), np.uintp(0)
    shrinks, bends = np.uintp(1), np.uintp(2)
    best, found = np.int32(0), zero
    widest, wide = np.int64(0), zero
    for start in range(zero, n, block):
        best_here, widest_here = np.int32(0), np.int64(0)
        for k in range(start, min(start + block, n)):
            gap = top - (left[k] + shifts[shrinks, k])
            gap = gap if gap > 0.0 else 0.0
            bend = curvature_scale * (own + shifts[bends, k] - twice * values[slot, k])
            bend = bend if bend > FLAT_CURVATURE else FLAT_CURVATURE
            single = np.float32(gap_scale * gap)
            gains[k] = single_bits_of(single * single / np.float32(bend))
            widest_here = max(widest_here, bits_of(gap))
            best_here = max(best_here, gains[k])
        if best_here > best:
            best, found = best_here, np.uintp(start)
        if widest_here > widest:
            widest, wide = widest_here, np.uintp(start)
    if widest == 0:
        return 0.0, np.intp(-1)
    if best > 0:
        for k in range(found, min(found + block, n)):
            if gains[k] == best:
                return double_of(widest), np.intp(k)
    for k in range(wide, min(wide + block, n)):  # gains too small for single precision
        if top - (left[k] + shifts[shrinks, k]) == double_of(widest):
            return double_of(widest), np.intp(k)
    return double_of(widest), np.intp(-1)


@njit(cache=True)
def sweep(rows, traits, multipliers, left, shifts, bias_state, limits):
    """Take pair steps until the violation is at most ``tol`` or the steps are used up.

    ``multipliers`` and ``left`` (n,) are updated in place, and so are the ``shifts`` (3, n) of
    `refresh`; ``traits`` (4, n) are its signs, bounds, shapes and variances. ``bias_state`` is
    (variance, y'a), with a variance of inf for the equality. ``limits`` is (tol, largest number of
    steps, relative error of the rows). Returns (outcome, steps taken, whose row is missing).
    """
    n = left.size
    signs, bounds, shapes, variances = traits[0], traits[1], traits[2], traits[3]
    bias_variance = bias_state[0]
    finite = np.isfinite(bias_variance)
    tol, most_steps, blur = limits[0], int(limits[1]), limits[2]
    pair_shapes, pair_rooms, pair_senses = np.zeros(2), np.ones(2), np.zeros(2)
    moved, gains = np.zeros(2), np.empty(n, dtype=np.int32)
    widest, tallest = 1.0, 0.0
    for k in range(n):
        widest = max(widest, abs(left[k]))
        tallest = max(tallest, variances[k])
    tallest = tallest if tallest > 0.0 else 1.0
    flat, scales = FLAT_CURVATURE * tallest, (1.0 / widest, 1.0 / tallest)

    slot = other_slot = 0
    step = rise = fall = 0.0
    for taken in range(most_steps + 1):
        top, grower = move(left, rows.values, (slot, other_slot), (rise, fall), shifts)
        if finite and bias_variance * bias_state[1] > top:
            top, grower = bias_variance * bias_state[1], n
        if grower < 0:
            return CONVERGED, taken, -1
        slot, rise, own = 0, 0.0, bias_variance
        if grower < n:
            slot, rise, own = fetch(rows, grower, -1), 1.0, shifts[2, grower]
            if slot < 0:
                return MISSING, taken, grower
        violation, shrinker = find_shrinker(
            left, rows.values, shifts, (slot, top, own, rise), scales, gains
        )
        if finite and grower < n:
            gap = top - bias_variance * bias_state[1]
            violation = max(violation, gap)
            if gap > 0.0:
                best = 0.0
                if shrinker >= 0:
                    other = top - (left[shrinker] + shifts[1, shrinker])
                    bend = own + shifts[2, shrinker] - 2.0 * rows.values[slot, shrinker]
                    best = other * other / max(bend, flat)
                if gap * gap / max(own + bias_variance, flat) > best:
                    shrinker = n
        if violation <= tol or shrinker < 0:
            return CONVERGED, taken, -1
        if taken == most_steps:
            return RUNNING, taken, -1
        other_slot, fall = 0, 0.0
        if shrinker < n:
            other_slot, fall = fetch(rows, shrinker, slot), 1.0
            if other_slot < 0:
                return MISSING, taken, shrinker

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
            curvature += variances[point]
            room = bounds[point] - multipliers[point]
            uses_room = (signs[point] > 0.0) == (end == 0)
            pair_shapes[end] = shapes[point]
            pair_rooms[end] = room
            pair_senses[end] = 1.0 if uses_room else -1.0
            step_limit = min(step_limit, room if uses_room else multipliers[point])
        least = blur * curvature
        if grower < n and shrinker < n:
            curvature -= 2.0 * rows.values[slot, shrinker]
        curvature = max(curvature, max(least, flat))
        step = pair_step(demand_gap, curvature, pair_shapes, pair_rooms, pair_senses, step_limit)
        rise, fall = step * rise, step * fall

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
            return STUCK, taken, -1
        for end in range(2):
            point = grower if end == 0 else shrinker
            if point == n:
                bias_state[1] = moved[end]
            else:
                multipliers[point] = moved[end]
                refresh_point(point, traits, multipliers, shifts)
    return RUNNING, most_steps, -1

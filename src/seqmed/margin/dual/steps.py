"""The compiled loops of the pairwise solver: the work of each step.

A step passes over all points twice, to find the coefficient to increase and the one to decrease.
Both passes are written so that the compiler vectorises them: no branches, and maxima of integers.
The bits of a nonnegative double, as an integer, increase with it; `order` is for all doubles.

Signatures have arrays, numbers and plain tuples only, because numba's cache names their classes.
They are all in this file, because numba compiles again only when the file of a function changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.margin.dual.problem import ROUNDING
from seqmed.numeric.arrays import Array
from seqmed.numeric.execution import compiled

# Smallest curvature of a direction, as a fraction of the largest variance (duplicate points).
FLAT_CURVATURE = 1e-12
NEWTON_STEPS = 100
# Relative precision of the length of a step.
STEP_PRECISION = 1e-15
# Newton's method starts at most at this fraction of the distance to a barrier: closer to it, short
# steps would be mistaken for convergence.
NEAR_LIMIT = 0.999
# Number of points in a block. A pass finds the block of the largest value; the point is looked up
# afterwards.
BLOCK = 64
LOWEST = -0x7FFFFFFFFFFFFFFF

CONVERGED, RUNNING, STUCK = 0, 1, 2

Index = int | np.intp
# The arrays of a `RowCache`, as a plain tuple, and their places in it. An array is taken only where
# it is used: unpacking the tuple would count references to all of them.
Rows = tuple[Any, ...]
SOURCE, COLUMNS, VALUES, SLOTS, OWNERS, REFERENCED, HAND = range(7)


@compiled()
def evict(rows: Rows, point: Index, kept: Index) -> Index:
    """Return a slot for the row of a point; its previous row is evicted. Never slot ``kept``."""
    slots, owners, referenced, hand = rows[SLOTS], rows[OWNERS], rows[REFERENCED], rows[HAND]
    while True:
        slot: Index = hand[0]
        hand[0] = (slot + 1) % owners.size
        if slot == kept:
            continue
        if referenced[slot]:
            referenced[slot] = False
            continue
        if owners[slot] >= 0:
            slots[owners[slot]] = -1
        owners[slot] = point
        slots[point] = slot
        return slot


@compiled()
def fetch(rows: Rows, point: Index, kept: Index) -> Index:
    """Return the slot of the row of a point, which is copied from the source if needed."""
    slot: Index = rows[SLOTS][point]
    if slot < 0:
        source, columns, values = rows[SOURCE], rows[COLUMNS], rows[VALUES]
        slot = evict(rows, point, kept)
        into, place = np.uintp(slot), np.uintp(columns[point])
        for k in range(np.uintp(columns.size)):
            values[into, k] = source[place, np.uintp(columns[k])]
    rows[REFERENCED][slot] = True
    return slot


@compiled()
def pair_step(
    bias_gap: float, curvature: float, shapes: Array, distances: Array, senses: Array, limit: float
) -> float:
    """Return the step ``d`` in ``[0, limit]`` that minimises the objective along one pair.

    Its slope is ``-bias_gap + d * (curvature + sum_k e_k / (R_k (R_k - s_k d)))`` over both points,
    a form in which no digits cancel. Here ``R_k = C_k - a_k`` is the distance to the bound, and
    ``s_k`` is +1 if the step reduces it, else -1. The root is found by Newton's method.
    """
    low, high = 0.0, limit
    stiffness = curvature
    for k in range(2):
        if shapes[k] > 0.0:
            stiffness += shapes[k] / (distances[k] * distances[k])
    step = bias_gap / stiffness
    if shapes[0] == 0.0 and shapes[1] == 0.0:
        return min(step, limit)
    if step >= NEAR_LIMIT * high:
        step = 0.5 * high
        slope = curvature * high - bias_gap
        for k in range(2):
            if shapes[k] > 0.0:
                rest = distances[k] - senses[k] * high
                if rest <= 0.0:
                    slope = np.inf
                    break
                slope += high * shapes[k] / (distances[k] * rest)
        if slope <= 0.0:
            return high
    for _ in range(NEWTON_STEPS):
        slope = curvature * step - bias_gap
        bend = curvature
        for k in range(2):
            if shapes[k] > 0.0:
                rest = distances[k] - senses[k] * step
                slope += step * shapes[k] / (distances[k] * rest)
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


@compiled()
def refresh_point(point: Index, traits: Array, multipliers: Array, shifts: Array) -> None:
    """Recompute the difference between the implied bias of ``point`` and its score error.

    ``traits`` are (signs, bounds, shapes, variances), (4, n). ``shifts[0]`` is this difference for
    coefficients that can increase (else -inf), ``shifts[1]`` for those that can decrease (else
    +inf). ``shifts[2]`` is the curvature: the point's own variance plus that of its slack term.
    """
    sign, bound, shape = traits[0, point], traits[1, point], traits[2, point]
    distance = bound - multipliers[point]
    slope = rounding = curvature = 0.0
    if shape > 0.0:
        slope = shape / distance
        curvature = slope / distance
        rounding = ROUNDING * bound * curvature
    below_bound = shape > 0.0 or distance > 0.0
    above_zero = multipliers[point] > 0.0
    can_increase = below_bound if sign > 0.0 else above_zero
    can_decrease = above_zero if sign > 0.0 else below_bound
    shift = -sign * slope
    shifts[0, point] = shift - rounding if can_increase else -np.inf
    shifts[1, point] = shift + rounding if can_decrease else np.inf
    shifts[2, point] = traits[3, point] + curvature


@compiled()
def refresh(traits: Array, multipliers: Array, shifts: Array) -> None:
    """Refresh all points."""
    for point in range(multipliers.size):
        refresh_point(point, traits, multipliers, shifts)


@compiled()
def order(value: float) -> np.int64:
    """Return an integer that increases with a double of any sign."""
    bits = np.float64(value).view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))


@compiled()
def move(
    errors: Array,
    values: NDArray[np.floating],
    slots: tuple[Index, Index],
    steps: tuple[float, float],
    shifts: Array,
) -> tuple[float, Index]:
    """Update the score errors by a step, in place, and find the next coefficient to increase.

    The step's effect is ``steps[0] * values[slots[0]] - steps[1] * values[slots[1]]``. Returns the
    largest bias implied by a coefficient that can increase, and the index of its point, or -1.
    """
    n, block = np.uintp(errors.size), np.uintp(BLOCK)
    up, down = np.uintp(slots[0]), np.uintp(slots[1])
    rise, fall = steps[0], steps[1]
    top, found = np.int64(LOWEST), np.uintp(0)
    for start in range(np.uintp(0), n, block):
        highest = np.int64(LOWEST)
        for k in range(start, min(start + block, n)):
            value = errors[k] - (rise * values[up, k] - fall * values[down, k])
            errors[k] = value
            highest = max(highest, order(value + shifts[0, k]))
        if highest > top:
            top, found = highest, np.uintp(start)
    for k in range(found, min(found + block, n)):
        implied = errors[k] + shifts[0, k]
        if order(implied) == top and implied > -np.inf:
            return implied, np.intp(k)
    return -np.inf, np.intp(-1)


@compiled()
def subtract_product(errors: Array, gram: Array, coefficients: Array) -> None:
    """Subtract ``gram @ coefficients`` from score errors, in place; rows of zeros are skipped."""
    n = np.uintp(errors.size)
    places = np.flatnonzero(coefficients).astype(np.uintp)
    last = np.uintp(max(places.size - 1, 0))
    for i in range(0, places.size, 4):  # four rows at a time
        first = np.uintp(i)
        second, third = min(first + np.uintp(1), last), min(first + np.uintp(2), last)
        fourth = min(first + np.uintp(3), last)
        a, b, c, d = places[first], places[second], places[third], places[fourth]
        u = coefficients[a]
        v = coefficients[b] if second > first else 0.0
        w = coefficients[c] if third > second else 0.0
        x = coefficients[d] if fourth > third else 0.0
        for k in range(n):
            errors[k] -= (u * gram[a, k] + v * gram[b, k]) + (w * gram[c, k] + x * gram[d, k])


@compiled(error_model="numpy")
def find_decreasing(
    errors: Array,
    values: NDArray[np.floating],
    shifts: Array,
    grower: tuple[Index, float, float, float],
    scales: tuple[float, float],
    gains: NDArray[np.int32],
) -> tuple[float, Index]:
    """Return the largest bias gap to a coefficient that can decrease, and the best partner's index.

    ``grower`` describes the coefficient to increase: (slot of its row, implied bias, curvature, 1
    if it has a row, else 0). The best partner has the largest second-order gain,
    ``gap^2 / curvature``. Gains are scaled, because they are compared in single precision.
    ``gains`` (n,) is a buffer for the bits of the gains. The index is -1 if no gap is positive.
    """
    slot, top, own, twice = np.uintp(grower[0]), grower[1], grower[2], 2.0 * grower[3]
    gap_scale, curvature_scale = scales[0], scales[1]
    n, block, zero = np.uintp(errors.size), np.uintp(BLOCK), np.uintp(0)
    shrinks, bends = np.uintp(1), np.uintp(2)
    best, found = np.int32(0), zero
    widest, wide = np.int64(0), zero
    for start in range(zero, n, block):
        best_here, widest_here = np.int32(0), np.int64(0)
        for k in range(start, min(start + block, n)):
            gap = top - (errors[k] + shifts[shrinks, k])
            gap = gap if gap > 0.0 else 0.0
            bend = curvature_scale * (own + shifts[bends, k] - twice * values[slot, k])
            bend = bend if bend > FLAT_CURVATURE else FLAT_CURVATURE
            single = np.float32(gap_scale * gap)
            gains[k] = np.float32(single * single / np.float32(bend)).view(np.int32)
            widest_here = max(widest_here, np.float64(gap).view(np.int64))
            best_here = max(best_here, gains[k])
        if best_here > best:
            best, found = best_here, np.uintp(start)
        if widest_here > widest:
            widest, wide = widest_here, np.uintp(start)
    widest_gap = np.int64(widest).view(np.float64)
    if widest == 0:
        return widest_gap, np.intp(-1)
    if best > 0:
        for k in range(found, min(found + block, n)):
            if gains[k] == best:
                return widest_gap, np.intp(k)
    for k in range(wide, min(wide + block, n)):  # gains too small for single precision
        if top - (errors[k] + shifts[shrinks, k]) == widest_gap:
            return widest_gap, np.intp(k)
    return widest_gap, np.intp(-1)


@compiled()
def take_steps(
    rows: Rows,
    traits: Array,
    multipliers: Array,
    errors: Array,
    shifts: Array,
    known_bias: bool,
    limits: Array,
) -> tuple[int, int]:
    """Take pair steps until the violation is at most ``tol`` or the steps are used up.

    ``multipliers``, ``errors`` (n,) and ``shifts`` (3, n) are updated in place; ``traits`` are in
    `refresh_point`. ``limits`` is (tol, largest number of steps, relative error of the rows). A
    known bias is an additional point n. Returns (outcome, steps taken).
    """
    n, values = errors.size, rows[VALUES]
    signs, bounds, shapes, variances = traits[0], traits[1], traits[2], traits[3]
    tol, most_steps, relative_error = limits[0], int(limits[1]), limits[2]
    pair_shapes, pair_distances, pair_senses = np.zeros(2), np.ones(2), np.zeros(2)
    moved, gains = np.zeros(2), np.empty(n, dtype=np.int32)
    widest, tallest = 1.0, 0.0
    for k in range(n):
        widest = max(widest, abs(errors[k]))
        tallest = max(tallest, variances[k])
    tallest = tallest if tallest > 0.0 else 1.0
    flat, scales = FLAT_CURVATURE * tallest, (1.0 / widest, 1.0 / tallest)

    slot: Index = 0
    other_slot: Index = 0
    step = rise = fall = 0.0
    for taken in range(most_steps + 1):
        top, grower = move(errors, values, (slot, other_slot), (rise, fall), shifts)
        if known_bias and top < 0.0:
            top, grower = 0.0, n
        if grower < 0:
            return CONVERGED, taken
        slot, rise, own = 0, 0.0, 0.0
        if grower < n:
            slot, rise, own = fetch(rows, grower, -1), 1.0, shifts[2, grower]
        violation, shrinker = find_decreasing(
            errors, values, shifts, (slot, top, own, rise), scales, gains
        )
        if known_bias and grower < n:
            violation = max(violation, top)
            if top > 0.0:
                best = 0.0
                if shrinker >= 0:
                    other = top - (errors[shrinker] + shifts[1, shrinker])
                    bend = own + shifts[2, shrinker] - 2.0 * values[slot, shrinker]
                    best = other * other / max(bend, flat)
                if top * top / max(own, flat) > best:
                    shrinker = n
        if violation <= tol or shrinker < 0:
            return CONVERGED, taken
        if taken == most_steps:
            return RUNNING, taken
        other_slot, fall = 0, 0.0
        if shrinker < n:
            other_slot, fall = fetch(rows, shrinker, slot), 1.0

        bias_gap = top
        if shrinker < n:
            bias_gap -= errors[shrinker] + shifts[1, shrinker]
        curvature = 0.0
        step_limit = np.inf
        for end in range(2):
            point = grower if end == 0 else shrinker
            if point == n:
                pair_shapes[end] = 0.0
                continue
            curvature += variances[point]
            distance = bounds[point] - multipliers[point]
            nears_bound = (signs[point] > 0.0) == (end == 0)
            pair_shapes[end] = shapes[point]
            pair_distances[end] = distance
            pair_senses[end] = 1.0 if nears_bound else -1.0
            step_limit = min(step_limit, distance if nears_bound else multipliers[point])
        least = relative_error * curvature
        if grower < n and shrinker < n:
            curvature -= 2.0 * values[slot, shrinker]
        curvature = max(curvature, max(least, flat))
        step = pair_step(bias_gap, curvature, pair_shapes, pair_distances, pair_senses, step_limit)
        rise, fall = step * rise, step * fall

        # If rounding leaves one of the two coefficients unchanged, y'a changes. The step is
        # accepted only if the other coefficient reaches a bound.
        n_moved, landed = 0, False
        for end in range(2):
            point = grower if end == 0 else shrinker
            signed_step = step if end == 0 else -step
            if point == n:
                n_moved += 1
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
            if point < n:
                multipliers[point] = moved[end]
                refresh_point(point, traits, multipliers, shifts)
    return RUNNING, most_steps

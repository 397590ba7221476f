"""The evidence of mixed scores: cross-entropy at the best temperature, in compiled loops.

For scores s and true classes y, the cost of a temperature ``T = 2^t`` is the weighted sum of
``-log softmax(T s)[y]`` plus ``t^2``, in nats. Newton's method in t finds its minimum.
"""

from __future__ import annotations

import numpy as np

from seqmed.numeric.arrays import Array
from seqmed.numeric.execution import compiled

# Newton's method: largest step in octaves, precision, and number of steps.
LARGEST_STEP, PRECISION, STEPS = 2.0, 1e-3, 40
# Largest |t|. The penalty keeps the minimum well below it, unless the classes are separable.
LARGEST_OCTAVE = 12.0
# Small scores that predict well have two minima: one near t = 0, where the penalty is small, and a
# lower one at high temperatures. Newton's method starts again from these octaves.
STARTS = (3.0, 6.0, 9.0, 12.0)
# Relative rounding error of a cost. A step that gains less than this is not halved.
ROUNDING = 1e-12


@compiled(nogil=True)
def cost(margins: Array, weights: Array, octave: float) -> tuple[float, float, float]:
    """Return the cost of a temperature, and its first two derivatives in t.

    ``margins`` (r, K) are scores minus the score of the true class, -inf for unknown classes.
    """
    temperature = 2.0**octave
    total, first, second = 0.0, 0.0, 0.0
    for row in range(margins.shape[0]):
        top = 0.0
        for column in range(margins.shape[1]):
            top = max(top, margins[row, column])
        sums, means, squares = 0.0, 0.0, 0.0
        for column in range(margins.shape[1]):
            margin = margins[row, column]
            if margin > -np.inf:
                power = np.exp(temperature * (margin - top))
                sums += power
                means += power * margin
                squares += power * margin * margin
        if sums == 0.0:  # no score of this row is a number
            return np.inf, 0.0, 2.0
        means /= sums
        total += weights[row] * (np.log(sums) + temperature * top)
        first += weights[row] * means
        second += weights[row] * (squares / sums - means * means)
    slope = np.log(2.0) * temperature
    first *= slope
    second = slope * slope * second + np.log(2.0) * first
    return total + octave * octave, first + 2.0 * octave, second + 2.0


@compiled(nogil=True)
def newton_minimum(margins: Array, weights: Array, octave: float) -> tuple[float, float]:
    """Return the cost at the minimum that Newton's method finds below an octave, and its t."""
    lowest, slope, curvature = cost(margins, weights, octave)
    for _ in range(STEPS):
        step = min(max(-slope / max(curvature, 1.0), -LARGEST_STEP), LARGEST_STEP)
        trial = min(max(octave + step, -LARGEST_OCTAVE), LARGEST_OCTAVE)
        found, new_slope, new_curvature = cost(margins, weights, trial)
        while found > lowest + ROUNDING * abs(lowest) and abs(trial - octave) > PRECISION:
            trial = 0.5 * (octave + trial)
            found, new_slope, new_curvature = cost(margins, weights, trial)
        moved = abs(trial - octave)
        if found <= lowest:
            octave, lowest, slope, curvature = trial, found, new_slope, new_curvature
        if moved <= PRECISION:
            break
    return lowest, octave


@compiled(nogil=True)
def best_octave(margins: Array, weights: Array) -> tuple[float, float]:
    """Return the smallest cost of ``margins`` (r, K), and its t."""
    lowest, octave = newton_minimum(margins, weights, 0.0)
    for start in STARTS:
        if start > octave:
            _, slope, _ = cost(margins, weights, start)
            if slope >= 2.0 * start:
                break  # the cross-entropy, convex in T, rises from here on, and so does the penalty
            found, trial = newton_minimum(margins, weights, start)
            if found < lowest:
                lowest, octave = found, trial
    return lowest, octave


@compiled(nogil=True)
def component_weights(
    likelihoods: Array, row_weights: Array, counts: Array, precision: float, steps: int
) -> Array:
    """Return the weights (M,) of fixed components, by expectation maximisation.

    The first weights are the pseudo-counts, divided by their sum.

    Parameters
    ----------
    likelihoods : (r, M) > 0, likelihood of every row under every component.
    row_weights : (r,) weights of the rows.
    counts : (M,) > 0, pseudo-counts of the components.
    precision, steps : it ends if no weight moves by more than the precision, or after the steps.
    """
    n_rows, n_members = likelihoods.shape
    weights: Array = counts / counts.sum()
    total = counts.sum() + row_weights.sum()
    for _ in range(steps):
        sums = counts.copy()
        for row in range(n_rows):
            mean = 0.0
            for member in range(n_members):
                mean += weights[member] * likelihoods[row, member]
            for member in range(n_members):
                share = weights[member] * likelihoods[row, member] / mean
                sums[member] += row_weights[row] * share
        sums /= total
        moved = np.abs(sums - weights).max()
        weights = sums
        if moved <= precision:
            break
    return weights

"""The record of scores, and the weights of the experts that it chooses.

The record has the scores of labeled rows by all experts before each row was learned, and what is
needed to compute the margin score F for every exponent delta. Each scale sigma is the root mean
square of row-centred scores of unlabeled rows.

Scores can cancel: two equal rows with opposite labels leave rounding errors, which differ with the
rows that are scored together. Divided by their own scale, they would count as evidence. The scale
is therefore compared with the rounding error of the terms that were summed.

The record chooses the weight w of the graph first: J(w) is the smallest value over T of the
cross-entropy of ``softmax(T S)`` on the record plus ``(log2 T)^2``, in nats, for the mixed score
``S = (1 - w) F / sigma_F + w V / sigma_V``. w is the mean of a grid of weights under the posterior
``p(w) ~ exp(-J(w) - WEIGHT_PRIOR w)``.

The linear expert is added by the same rule: S becomes ``(1 - v) S + v L / sigma_L`` for its score
L. If 0 is the most probable weight, v is 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqmed.classes import Rows
from seqmed.graph.kept_rows import Lists, empty_lists
from seqmed.margin import margin_state
from seqmed.mixture.mixture_state import (
    Choice,
    MixtureState,
    ScoreRecord,
    ScoreScales,
    class_factors,
    core_probabilities,
    expert_scores,
    member_probabilities,
)
from seqmed.mixture.pooling import pooled
from seqmed.numeric.arrays import Array, Indices, Mask, Points, no_indices, take_rows

# Number of unlabeled rows on which the scales of the scores are measured.
PROBES = 50
# Squared distance, relative to the squared norm, that rounding in single precision gives to equal
# rows.
SAME_ROW = 1e-6
# Smallest and largest scores whose squares are in the range of doubles.
SMALLEST_SQUARED, LARGEST_SQUARED = 1e-100, 1e100
# Relative rounding errors of the scores of the graph, and of all other scores.
SINGLE, DOUBLE = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
# Largest error that rounding may cause in a scaled score. In double precision the error depends on
# the rows that are scored together. In single precision it does not, and there are fewer digits.
LARGEST_SINGLE_ERROR, LARGEST_DOUBLE_ERROR = 1e-2, 1e-9


def recorded(
    state: MixtureState, rows: Rows, scaled: Points, *, late: bool
) -> tuple[MixtureState, ScoreRecord]:
    """Return the record with the scores of labeled rows by all experts before learning.

    ``scaled`` are the points of the rows, divided by the scales of the columns, and ``late`` is
    whether they may already be kept as unlabeled rows. In the state that is returned, experts that
    failed have no fit.
    """
    usable = np.asarray(state.score_scales.compared[rows.codes])
    if not usable.any():
        return state, state.record
    rows, scaled = rows.take(usable), take_rows(scaled, usable)
    neighbours = left_out_neighbours(state, scaled, no_indices()) if late else None
    scores = expert_scores(state, scaled, neighbours=neighbours)
    finite = np.isfinite(scores).all(axis=(1, 2))
    rows, scores = rows.take(np.asarray(finite)), scores[finite]
    found, failed = member_probabilities(state, rows.points, scores)
    state = state._replace(
        experts=tuple(
            replace(expert, fit=None, failed=True) if fails else expert
            for expert, fails in zip(state.experts, failed, strict=True)
        )
    )
    record = state.record.add(scores, found, state.score_scales, rows.codes, rows.weights)
    return state, record


def left_out_neighbours(state: MixtureState, points: Points, slots: Indices) -> Lists:
    """Return the nearest kept rows of rows that may be kept, each without the row itself.

    ``slots`` are the slots of the last of these rows, -1 if unknown. The neighbours of a row with a
    known slot need no search, which saves a tenth of the time of a small update.
    """
    kept = state.graph.rows
    slots = np.append(np.full(points.shape[0] - slots.size, -1), slots)
    found = empty_lists(slots.size, kept.list_length, np.inf)
    known, unknown = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
    for array, values in zip(found, kept.lists_of(slots[known]), strict=True):
        array[known] = values
    if unknown.size:
        stored = kept.store(take_rows(points, unknown))
        nearest = kept.search(stored, length=kept.n_neighbors + 1)
        equal = 0.0 if kept.metric.refines else SAME_ROW * stored.norms
        own = (nearest.distances[:, 0] <= equal) & (nearest.sizes > 0)
        for name in ("slots", "distances"):
            values = getattr(nearest, name)
            values[own, :-1] = values[own, 1:].copy()
            getattr(found, name)[unknown, : values.shape[1]] = values
        found.sizes[unknown] = np.minimum(nearest.sizes - own, kept.n_neighbors)
    return found


# -- scales of the scores --------------------------------------------------------------------------


def measured_scales_of(state: MixtureState, slots: Indices) -> ScoreScales:
    """Return the scales of the experts that have learned a mini-batch.

    They are measured on the last unlabeled rows. If there are few of these, rows of the record are
    added. ``slots`` are the slots of the newest unlabeled rows, -1 for a row that is not
    kept.
    """
    # the discounted weight of a class may underflow to 0
    counts = np.maximum(state.margin.counts.discounted, np.finfo(np.float64).tiny)
    counts = np.where(state.counts.seen, counts, 0.0)
    record, points = state.record, state.probes
    newest = slice(max(0, record.size - max(0, PROBES - points.shape[0])), None)
    experts = (record.margin, record.graph, record.linear)
    scores = np.stack([each[newest] for each in experts], axis=1)
    if points.shape[0]:
        neighbours = left_out_neighbours(state, points, slots)
        scores = np.concatenate([expert_scores(state, points, neighbours=neighbours), scores])
    scores = scores[np.isfinite(scores).all(axis=(1, 2))]
    return measured_score_scales(scores, counts, state.by_counts, summed_sizes(state))


def summed_sizes(state: MixtureState) -> Array:
    """Return the root mean square of the sum of ``|term|`` over the terms of a score, (3,).

    It is that of the last unlabeled or labeled rows. The scores of the graph are shares of 1.
    """
    points = state.probes
    if not points.shape[0]:
        points = state.scaled(state.labels.newest(PROBES).points)
    if not points.shape[0]:
        return np.array([0.0, 1.0, 0.0])
    with np.errstate(over="ignore", invalid="ignore"):
        margin = margin_state.summed_size(state.margin, points)
        return np.array([margin, 1.0, state.linear.summed_size(points)])


def measured_score_scales(
    scores: Array, counts: Array, by_counts: bool, sizes: Array
) -> ScoreScales:
    """Return the scales of scores (m, 3, K) with summed sizes (3,)."""
    known = counts > 0
    factors = class_factors(counts, by_counts)

    def measured(values: Array, size: float) -> float:
        return scale_of(values[:, known], DOUBLE * size, LARGEST_DOUBLE_ERROR)

    return ScoreScales(
        counts,
        np.array([measured(scores[:, 0] * f, sizes[0] * f.max(initial=0.0)) for f in factors]),
        scale_of(scores[:, 1, known], SINGLE * sizes[1], LARGEST_SINGLE_ERROR),
        measured(scores[:, 2], sizes[2]),
    )


def scale_of(scores: Array, rounding: float, largest_error: float) -> float:
    """Return the root mean square of row-centred scores (m, K); 1 where all are equal.

    Scores are equal if they differ by no more than rounding errors. The scale is at least
    ``rounding / largest_error``, so that the error of a scaled score is at most ``largest_error``.

    Parameters
    ----------
    scores : (m, K) scores of the known classes.
    rounding : size of their rounding errors; errors are at least those of the scores themselves.
    largest_error : largest rounding error of a scaled score.
    """
    if not scores.size:
        return 1.0
    rounding = max(rounding, DOUBLE * root_mean_square(scores))
    found = root_mean_square(scores - scores.mean(axis=1, keepdims=True))
    return max(found, rounding / largest_error) if rounding < found < np.inf else 1.0


def root_mean_square(values: Array) -> float:
    """Return the root mean square of some values; infinity if one is not finite."""
    largest = float(np.abs(values).max())
    if not largest < np.inf:
        return np.inf
    unit = 1.0 if SMALLEST_SQUARED < largest < LARGEST_SQUARED else largest or 1.0
    return unit * float(np.sqrt(np.mean((values / unit) ** 2)))


# -- weights ---------------------------------------------------------------------------------------

WEIGHTS = np.linspace(0.0, 1.0, 11)
# Difference in log prior between a weight of 0 and a weight of 1, in nats.
WEIGHT_PRIOR = 2.0
# A smaller mean weight is set to 0; predictions then need no neighbours.
SMALLEST_WEIGHT = 0.05
# A larger exponent of the class priors must reduce the cost by this many nats.
PRIOR_GUARD = 1.0


def mean_weight(costs: Array) -> float:
    """Return the posterior mean of the graph weight, given J for every weight of the grid."""
    if not np.isfinite(costs).any():
        return 0.0
    logs = -costs - WEIGHT_PRIOR * WEIGHTS
    posterior = np.exp(logs - logs.max())
    mean = float(posterior @ WEIGHTS / posterior.sum())
    return mean if mean >= SMALLEST_WEIGHT else 0.0


# Weight of the graph while the record is empty: the mean of the prior.
FIRST_WEIGHT = mean_weight(np.zeros(WEIGHTS.size))


def choose(record: ScoreRecord, by_counts: bool, weight: float | None, class_prior: bool) -> Choice:
    """Choose weight, temperature and exponent by the record.

    Parameters
    ----------
    record : scores of labeled rows before they were learned.
    by_counts : whether the scores of the margin expert are divided by roots of label counts.
    weight : weight of the graph if it is fixed; None to choose it.
    class_prior : whether class priors may be used.
    """
    grid = WEIGHTS if weight is None else np.array([weight])
    if not record.size:
        return Choice(FIRST_WEIGHT if weight is None else weight, 1.0, 0, 0.0)
    factors = class_factors(record.counts, by_counts)
    graph = record.graph / record.graph_scales[:, None]
    place, lowest = 0, np.inf
    costs = octaves = np.zeros(0)
    for exponent, factor in enumerate(factors):
        if exponent and not (by_counts and class_prior and np.any(factor != factors[0])):
            break
        margin = record.margin * factor / record.margin_scales[:, exponent, None]
        found = best_temperatures(mixed(margin, graph, grid), record)
        smallest = float(found[0].min())
        if not exponent or smallest < lowest - (PRIOR_GUARD if place == 0 else 0.0):
            place, lowest, (costs, octaves) = exponent, smallest, found
    chosen = mean_weight(costs) if weight is None else weight
    choice = Choice(chosen, 2.0 ** float(np.interp(chosen, grid, octaves)), place, 0.0)
    return with_linear(choice, record, factors[place]) if weight is None else choice


def with_linear(choice: Choice, record: ScoreRecord, factor: Array) -> Choice:
    """Return the choice with a weight of the linear expert, 0 unless the record favours it."""
    scores = record.linear / record.linear_scales[:, None]
    if not scores.any():
        return choice
    before = record_scores(record, choice, factor)
    costs, octaves = best_temperatures(mixed(before, scores, WEIGHTS), record)
    if not (costs + WEIGHT_PRIOR * WEIGHTS).argmin():
        return choice
    weight = mean_weight(costs)
    return Choice(
        (1.0 - weight) * choice.weight,
        2.0 ** float(np.interp(weight, WEIGHTS, octaves)),
        choice.exponent,
        weight,
    )


def mixed(first: Array, second: Array, weights: Array) -> Array:
    """Return mixed scores (g, r, K) of scaled scores (r, K), for every weight of the second."""
    w = weights[:, None, None]
    return (1.0 - w) * first + w * second


def best_temperatures(scores: Array, record: ScoreRecord) -> tuple[Array, Array]:
    """Return ``min_T [cross-entropy + (log2 T)^2]`` and its log2 T, both (g,).

    ``scores`` (g, r, K) are mixed scores of the rows of the record, for every weight of the grid.
    """
    from seqmed.mixture import evidence  # numba is imported by the first update

    rows = np.arange(record.size)
    margins = scores - scores[:, rows, record.codes][:, :, None]
    margins = np.where(record.counts > 0, margins, -np.inf)
    found = [evidence.best_octave(of_weight, record.weights) for of_weight in margins]
    costs, octaves = np.array(found).T
    overflow = np.isnan(costs)
    return np.where(overflow, np.inf, costs), np.where(overflow, 0.0, octaves)


def record_scores(record: ScoreRecord, choice: Choice, factor: Array) -> Array:
    """Return the mixed scores of the rows of the record, (r, K), at temperature 1.

    ``factor`` (r, K) are the class factors of the chosen exponent.
    """
    margin = record.margin * factor / record.margin_scales[:, choice.exponent, None]
    total = choice.weights[0] * margin
    total += choice.weight / record.graph_scales[:, None] * record.graph
    total += choice.linear / record.linear_scales[:, None] * record.linear
    return np.asarray(total)


def record_probabilities(state: MixtureState) -> Array:
    """Return the probabilities (r, K) of the rows of the record, as they are mixed now."""
    record, choice, known = state.record, state.choice, state.record.counts > 0
    if state.has_pool:
        return pooled(np.where(known[:, None], record.probabilities, 0.0), state.pool)
    factor = class_factors(record.counts, state.by_counts)[choice.exponent]
    return core_probabilities(choice.temperature * record_scores(record, choice, factor), known)


def wrong_rows(state: MixtureState) -> Mask:
    """Return the rows of the record that are predicted wrongly, as they are mixed now, (r,)."""
    if not state.record.size:
        return np.zeros(0, dtype=bool)
    return np.asarray(record_probabilities(state).argmax(axis=1) != state.record.codes)

"""The mixture of experts, weighted by evidence.

The record of scores (`seqmed.mixture.record`) chooses the weights of the experts, the temperature
of the probabilities and the exponent of the class priors.

The mixed score of a class is ``S = (1 - w) F / sigma_F + w V / sigma_V``: F is the score of the
margin expert, V that of the graph, and each sigma is the scale of these scores. J(w) is the
smallest value over T of the cross-entropy of ``softmax(T S)`` on the record plus ``(log2 T)^2``, in
nats. w is the mean of a grid of weights under the posterior ``p(w) ~ exp(-J(w) - WEIGHT_PRIOR w)``.

Further experts are added one after the other by the same rule: S becomes ``(1 - v) S + v L /
sigma_L`` for the score L of the next expert. If 0 is the most probable weight, v is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.mixture.record import ScoreRecord, Scores, ScoreScales, class_factors
from seqmed.numeric.arrays import Array, Mask

WEIGHTS = np.linspace(0.0, 1.0, 11)
# Difference in log prior between a weight of 0 and a weight of 1, in nats.
WEIGHT_PRIOR = 2.0
# A smaller mean weight is set to 0; predictions then need no neighbours.
SMALLEST_WEIGHT = 0.05
# A larger exponent of the class priors must reduce the cost by this many nats.
PRIOR_GUARD = 1.0


class Choice(NamedTuple):
    """How scores are mixed.

    Attributes
    ----------
    weight : weight of the graph, in [0, 1].
    temperature : T > 0.
    exponent : exponent of the class priors, as an index into `PRIOR_EXPONENTS`.
    refitted : weights of refitted experts, in [0, 1]; that of the margin expert is the rest.
    """

    weight: float
    temperature: float
    exponent: int
    refitted: tuple[float, ...]

    @property
    def margin(self) -> float:
        """Weight of the margin expert; exactly 0 if nothing is left for it."""
        return max(0.0, 1.0 - sum(self.refitted) - self.weight)


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
    none = (0.0,) * record.refitted.shape[1]
    if not record.size:
        return Choice(FIRST_WEIGHT if weight is None else weight, 1.0, 0, none)
    known = record.counts > 0
    factors = class_factors(record.counts, by_counts)
    graph = record.graph / record.graph_scales[:, None]
    best: tuple[float, int, Array, Array] | None = None
    for place, factor in enumerate(factors):
        if place and not (by_counts and class_prior and np.any(factor != factors[0])):
            break
        margin = record.margin * factor / record.margin_scales[:, place, None]
        costs, octaves = best_temperatures(mixed(margin, graph, grid), known, record)
        lowest = float(costs.min())
        if best is None or lowest < best[0] - (PRIOR_GUARD if best[1] == 0 else 0.0):
            best = lowest, place, costs, octaves
    assert best is not None
    _, place, costs, octaves = best
    chosen = mean_weight(costs) if weight is None else weight
    choice = Choice(chosen, 2.0 ** float(np.interp(chosen, grid, octaves)), place, none)
    if weight is None:
        for expert in range(record.refitted.shape[1]):
            choice = with_expert(choice, expert, record, by_counts)
    return choice


def with_expert(choice: Choice, expert: int, record: ScoreRecord, by_counts: bool) -> Choice:
    """Return the choice with a weight for one more expert, 0 unless the record favours it."""
    scores = record.refitted[:, expert] / record.refitted_scales[:, expert, None]
    if not scores.any():
        return choice
    before = record_scores(record, choice, by_counts)
    costs, octaves = best_temperatures(mixed(before, scores, WEIGHTS), record.counts > 0, record)
    if not (costs + WEIGHT_PRIOR * WEIGHTS).argmin():
        return choice
    weight = mean_weight(costs)
    refitted = tuple((1.0 - weight) * each for each in choice.refitted)
    return Choice(
        (1.0 - weight) * choice.weight,
        2.0 ** float(np.interp(weight, WEIGHTS, octaves)),
        choice.exponent,
        (*refitted[:expert], weight, *refitted[expert + 1 :]),
    )


def mixed(first: Array, second: Array, weights: Array) -> Array:
    """Return mixed scores (g, r, K) of scaled scores (r, K), for every weight of the second."""
    w = weights[:, None, None]
    return (1.0 - w) * first + w * second


def record_scores(record: ScoreRecord, choice: Choice, by_counts: bool) -> Array:
    """Return the mixed scores of the rows of the record, (r, K), at temperature 1."""
    factor = class_factors(record.counts, by_counts)[choice.exponent]
    margin = record.margin * factor / record.margin_scales[:, choice.exponent, None]
    total = choice.margin * margin
    total += choice.weight / record.graph_scales[:, None] * record.graph
    shares = np.array(choice.refitted) / record.refitted_scales
    return np.asarray(total + np.einsum("re,rek->rk", shares, record.refitted))


def wrong(record: ScoreRecord, choice: Choice, by_counts: bool) -> Mask:
    """Return the rows of the record that mixed scores predict wrongly, (r,)."""
    if not record.size:
        return np.zeros(0, dtype=bool)
    scores = record_scores(record, choice, by_counts)
    scores = np.where(record.counts > 0, scores, -np.inf)
    return np.asarray(scores.argmax(axis=1) != record.codes)


def best_temperatures(scores: Array, known: Mask, record: ScoreRecord) -> tuple[Array, Array]:
    """Return ``min_T [cross-entropy + (log2 T)^2]`` and its log2 T, both (g,).

    Parameters
    ----------
    scores : (g, r, K) mixed scores, for every weight of the grid.
    known : (r, K) classes known when a row was scored.
    record : provides the true classes and weights of the rows.
    """
    from seqmed.mixture import evidence  # numba is imported by the first update

    rows = np.arange(record.size)
    margins = scores - scores[:, rows, record.codes][:, :, None]
    margins = np.where(known, margins, -np.inf)
    found = [evidence.best_octave(of_weight, record.weights) for of_weight in margins]
    costs, octaves = np.array(found).T
    overflow = np.isnan(costs)
    return np.where(overflow, np.inf, costs), np.where(overflow, 0.0, octaves)


def mix(scores: Scores, scales: ScoreScales, choice: Choice, by_counts: bool) -> Array:
    """Return mixed scores (m, K), in units in which softmax gives probabilities.

    The columns of unknown classes are 0. An expert with weight 0 is ignored.
    """
    total = np.zeros_like(scores.margin)
    if choice.margin > 0:
        factor = class_factors(scales.counts, by_counts)[choice.exponent]
        sigma = scales.margin[choice.exponent]
        total += choice.margin / sigma * factor * scores.margin
    if choice.weight > 0:
        total += choice.weight / scales.graph * scores.graph
    for place, weight in enumerate(choice.refitted):
        if weight > 0:
            total += weight / scales.refitted[place] * scores.refitted[:, place]
    return choice.temperature * np.where(scales.known, total, 0.0)

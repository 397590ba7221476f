"""The mixture of margin expert and graph expert, weighted by evidence.

Both experts score every labeled row before it is learned. The weight of the graph, the temperature
of the probabilities and the exponent of the class priors are chosen by the last `RECORD` of these
scores.

The mixed score of a class is ``(1 - w) F / sigma_F + w V / sigma_V``: V is the score of the graph,
and ``F_c = e_c n_c^{-1/2} pi_c^delta`` combines the score e of the margin expert, the label count n
and the class prior pi. Each sigma is the root mean square of row-centred scores of unlabeled rows.
With ``J(w) = min_T [cross-entropy of softmax(T score) on the record + (log2 T)^2]``, in nats, w is
the mean of a grid of weights under the posterior ``p(w) ~ exp(-J(w) - WEIGHT_PRIOR w)``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask
from seqmed.classes import moved

WEIGHTS = np.linspace(0.0, 1.0, 11)
PRIOR_EXPONENTS = np.array([0.0, 0.25, 0.5])
# Largest number of labeled rows in the record.
RECORD = 300
# Difference in log prior between a weight of 0 and a weight of 1, in nats.
WEIGHT_PRIOR = 2.0
# A smaller mean weight is set to 0; predictions then need no neighbours.
SMALLEST_WEIGHT = 0.05
# Smallest and largest scores whose squares are in the range of doubles.
SMALLEST_SQUARED, LARGEST_SQUARED = 1e-100, 1e100
# A larger exponent of the class priors must reduce the cost by this many nats.
PRIOR_GUARD = 1.0


class Scores(NamedTuple):
    """The scores of both experts for m rows.

    Attributes
    ----------
    margin : (m, K) scores of the margin expert, before any scaling by classes.
    graph : (m, K) scores of the graph expert.
    """

    margin: Array
    graph: Array


class Scales(NamedTuple):
    """Scales of the scores of both experts.

    Attributes
    ----------
    counts : (K,) number of labels of every class so far.
    margin : (3,) sigma_F under every exponent of `PRIOR_EXPONENTS`.
    graph : sigma_V.
    """

    counts: Array
    margin: Array
    graph: float

    @property
    def known(self) -> Mask:
        """Mask (K,) of the classes with a label."""
        return self.counts > 0


class Choice(NamedTuple):
    """How scores are mixed.

    Attributes
    ----------
    weight : weight of the graph, in [0, 1].
    temperature : T > 0.
    exponent : exponent of the class priors, as an index into `PRIOR_EXPONENTS`.
    """

    weight: float
    temperature: float
    exponent: int


@dataclass(frozen=True)
class ScoreRecord:
    """Scores of labeled rows before each was learned, oldest first.

    Parameters
    ----------
    margin, graph : (r, K) raw scores.
    counts : (r, K) label counts when the row was scored; 0 for a class without a label.
    margin_scales : (r, 3) sigma_F when the row was scored.
    graph_scales : (r,) sigma_V when the row was scored.
    codes : (r,) the true classes.
    weights : (r,) weights of the rows.
    """

    margin: Array
    graph: Array
    counts: Array
    margin_scales: Array
    graph_scales: Array
    codes: Indices
    weights: Array

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    def add(
        self, scores: Scores, scales: Scales, codes: NDArray[np.integer], weights: Array
    ) -> ScoreRecord:
        """Return the record with m more rows, limited to the newest `RECORD` rows.

        Rows of a class without a label so far are left out, and so are rows scored when fewer than
        two classes had labels.
        """
        known = scales.known if scales.known.sum() > 1 else np.zeros_like(scales.known)
        usable = np.flatnonzero(known[codes])
        m = usable.size
        new = ScoreRecord(
            margin=scores.margin[usable],
            graph=scores.graph[usable],
            counts=np.tile(scales.counts, (m, 1)),
            margin_scales=np.tile(scales.margin, (m, 1)),
            graph_scales=np.full(m, scales.graph),
            codes=codes[usable].astype(np.intp),
            weights=weights[usable],
        )
        joined = {
            f.name: np.concatenate([getattr(self, f.name), getattr(new, f.name)])[-RECORD:]
            for f in fields(ScoreRecord)
        }
        return ScoreRecord(**joined)

    def newest(self, n: int) -> ScoreRecord:
        """Return the newest ``n`` > 0 rows."""
        return ScoreRecord(**{f.name: getattr(self, f.name)[-n:] for f in fields(self)})

    def forget(self, forgetting: float) -> ScoreRecord:
        """Return the record with weights scaled by ``forgetting`` in (0, 1]."""
        return self if forgetting == 1.0 else replace(self, weights=forgetting * self.weights)

    def with_classes(self, places: Indices, n_classes: int) -> ScoreRecord:
        """Return the record with class c moved to ``places[c]`` of ``n_classes``; -1 drops it."""
        rows = np.flatnonzero(places[self.codes] >= 0)
        return ScoreRecord(
            margin=moved(self.margin[rows], places, n_classes),
            graph=moved(self.graph[rows], places, n_classes),
            counts=moved(self.counts[rows], places, n_classes),
            margin_scales=self.margin_scales[rows],
            graph_scales=self.graph_scales[rows],
            codes=places[self.codes[rows]],
            weights=self.weights[rows],
        )


def empty_record() -> ScoreRecord:
    """Return a record without rows or classes."""
    nothing, none = np.zeros((0, 0)), np.zeros(0)
    return ScoreRecord(
        nothing, nothing, nothing, np.zeros((0, PRIOR_EXPONENTS.size)), none,
        np.zeros(0, dtype=np.intp), none,
    )  # fmt: skip


def class_factors(counts: Array, scaled: bool) -> Array:
    """Return the factors of the margin's scores, (3, ..., K) for counts (..., K).

    They are ``n_c^{-1/2} pi_c^delta`` for every exponent delta, relative to the mean of
    ``n_c^{-1/2}`` over known classes. They are 0 for unknown classes. If ``scaled`` is False, they
    are 1 for all known classes.

    The class priors pi are shrunk towards uniform priors, to the extent that chance explains their
    differences.
    """
    known = counts > 0
    if not scaled:
        return np.broadcast_to(known.astype(float), (PRIOR_EXPONENTS.size, *counts.shape))
    n_known = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    totals = counts.sum(axis=-1, keepdims=True)
    expected = np.maximum(totals, 1e-300) / n_known
    chi2 = np.where(known, (counts - expected) ** 2, 0.0).sum(axis=-1, keepdims=True) / expected
    shrink = np.minimum(1.0, (n_known - 1) / np.maximum(chi2, 1e-300))
    priors = shrink / n_known + (1.0 - shrink) * counts / np.maximum(totals, 1e-300)
    # a quotient of roots, because the quotient of the counts may overflow
    roots = np.sqrt(expected) / np.sqrt(np.where(known, counts, 1.0))
    exponents = PRIOR_EXPONENTS.reshape(-1, *(1,) * counts.ndim)
    return np.where(known, roots * (n_known * priors) ** exponents, 0.0)


def measured_scales(scores: Scores, counts: Array, scaled: bool) -> Scales:
    """Return the scales of the scores of both experts on unlabeled rows."""
    known = counts > 0
    factors = class_factors(counts, scaled)
    return Scales(
        counts,
        np.array([root_mean_square((scores.margin * factor)[:, known]) for factor in factors]),
        root_mean_square(scores.graph[:, known]),
    )


def root_mean_square(scores: Array) -> float:
    """Return the root mean square of row-centred scores (m, K); 1 where all are equal."""
    if not scores.size:
        return 1.0
    centred = scores - scores.mean(axis=1, keepdims=True)
    largest = float(np.abs(centred).max())
    if not 0.0 < largest < np.inf:
        return 1.0
    if not SMALLEST_SQUARED < largest < LARGEST_SQUARED:
        centred, unit = centred / largest, largest
    else:
        unit = 1.0
    return unit * float(np.sqrt(np.mean(centred**2)))


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


def choose(record: ScoreRecord, scaled: bool, weight: float | None, class_prior: bool) -> Choice:
    """Choose weight, temperature and exponent by the record.

    Parameters
    ----------
    record : scores of labeled rows before they were learned.
    scaled : whether the scores of the margin expert are scaled by label counts.
    weight : weight of the graph if it is fixed; None to choose it.
    class_prior : whether class priors may be used.
    """
    grid = WEIGHTS if weight is None else np.array([weight])
    if not record.size:
        return Choice(FIRST_WEIGHT if weight is None else weight, 1.0, 0)
    known = record.counts > 0
    factors = class_factors(record.counts, scaled)
    graph = record.graph / record.graph_scales[:, None]
    best: tuple[float, int, Array, Array] | None = None
    for place, factor in enumerate(factors):
        if place and not (scaled and class_prior and np.any(factor != factors[0])):
            break
        margin = record.margin * factor / record.margin_scales[:, place, None]
        costs, octaves = best_temperatures(mixed(margin, graph, grid), known, record)
        overflow = np.isnan(costs)
        costs, octaves = np.where(overflow, np.inf, costs), np.where(overflow, 0.0, octaves)
        lowest = float(costs.min())
        if best is None or lowest < best[0] - (PRIOR_GUARD if best[1] == 0 else 0.0):
            best = lowest, place, costs, octaves
    assert best is not None
    _, place, costs, octaves = best
    chosen = mean_weight(costs) if weight is None else weight
    octave = float(np.interp(chosen, grid, octaves))
    return Choice(chosen, 2.0**octave, place)


def mixed(margin: Array, graph: Array, weights: Array) -> Array:
    """Return mixed scores (g, r, K) from scaled scores (r, K), for every weight of the graph."""
    w = weights[:, None, None]
    return (1.0 - w) * margin + w * graph


def wrong(record: ScoreRecord, choice: Choice, scaled: bool) -> Mask:
    """Return the rows of the record that mixed scores predict wrongly, (r,)."""
    factor = class_factors(record.counts, scaled)[choice.exponent]
    margin = record.margin * factor / record.margin_scales[:, choice.exponent, None]
    graph = record.graph / record.graph_scales[:, None]
    scores = mixed(margin, graph, np.array([choice.weight]))[0]
    scores = np.where(record.counts > 0, scores, -np.inf)
    return scores.argmax(axis=1) != record.codes if record.size else np.zeros(0, dtype=bool)


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
    return costs, octaves


def mix(scores: Scores, scales: Scales, choice: Choice, scaled: bool) -> Array:
    """Return mixed scores (m, K), in units in which softmax gives probabilities.

    The columns of unknown classes are 0. An expert with weight 0 is ignored.
    """
    total = np.zeros_like(scores.margin)
    if choice.weight < 1:
        factor = class_factors(scales.counts, scaled)[choice.exponent]
        sigma = scales.margin[choice.exponent]
        total += (1.0 - choice.weight) / sigma * factor * scores.margin
    if choice.weight > 0:
        total += choice.weight / scales.graph * scores.graph
    return choice.temperature * np.where(scales.known, total, 0.0)


def mini_batches(labeled: Mask, n_labels: float) -> list[slice]:
    """Divide a batch into mini-batches, so that even a single large batch gives a record.

    A mini-batch ends after max(4, a quarter of the labels so far) labeled rows.

    Parameters
    ----------
    labeled : (m,) mask of the labeled rows of the batch.
    n_labels : labels learned before it.
    """
    ends, since, total = [], 0, n_labels
    for row in np.flatnonzero(labeled).tolist():
        since += 1
        if since >= max(4, total / 4):
            ends.append(row + 1)
            total += since
            since = 0
    if ends and since == 0:
        ends[-1] = labeled.size
    else:
        ends.append(labeled.size)
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

"""The record: scores of labeled rows by all experts before each row was learned.

The margin score of a class is ``F_c = e_c n_c^{-1/2} pi_c^delta``: it combines the score e of the
margin expert, the label count n and the class prior pi. The record has raw scores, and what is
needed to compute F for every exponent delta. Each scale sigma is the root mean square of
row-centred scores of unlabeled rows.

Scores can cancel: two equal rows with opposite labels leave rounding errors, which differ with the
rows that are scored together. Divided by their own scale, they would count as evidence. The scale
is therefore compared with the rounding error of the terms that were summed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.classes import moved
from seqmed.numeric.arrays import Array, Indices, Mask

PRIOR_EXPONENTS = np.array([0.0, 0.25, 0.5])
# Largest number of labeled rows in the record.
RECORD = 300
# Smallest and largest scores whose squares are in the range of doubles.
SMALLEST_SQUARED, LARGEST_SQUARED = 1e-100, 1e100
# Relative rounding errors of the scores of the graph, and of all other scores.
SINGLE, DOUBLE = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
# Largest error that rounding may cause in a scaled score. In double precision the error depends on
# the rows that are scored together. In single precision it does not, and there are fewer digits.
LARGEST_SINGLE_ERROR, LARGEST_DOUBLE_ERROR = 1e-2, 1e-9


class Scores(NamedTuple):
    """The scores of the experts for m rows.

    Attributes
    ----------
    margin : (m, K) scores of the margin expert, before any scaling by classes.
    graph : (m, K) scores of the graph expert.
    refitted : (m, E, K) scores of refitted experts.
    """

    margin: Array
    graph: Array
    refitted: Array

    def take(self, rows: Mask) -> Scores:
        """Return the scores of some rows."""
        return Scores(*(each[rows] for each in self))

    @property
    def finite(self) -> Mask:
        """Mask (m,) of the rows whose scores are all finite."""
        refitted = np.isfinite(self.refitted).all(axis=(1, 2))
        return np.asarray(np.isfinite(self.margin).all(axis=1) & refitted)


class SummedSizes(NamedTuple):
    """Root mean squares of the sums of ``|term|`` over the terms of a score.

    Attributes
    ----------
    margin : of the scores of the margin expert.
    refitted : (E,) of the scores of refitted experts.
    """

    margin: float
    refitted: Array


class ScoreScales(NamedTuple):
    """Scales of the scores of the experts.

    Attributes
    ----------
    counts : (K,) number of labels of every class so far.
    margin : (3,) sigma_F under every exponent of `PRIOR_EXPONENTS`.
    graph : sigma_V.
    refitted : (E,) scales of refitted experts.
    """

    counts: Array
    margin: Array
    graph: float
    refitted: Array

    @property
    def known(self) -> Mask:
        """Mask (K,) of the classes with a label."""
        return self.counts > 0


@dataclass(frozen=True)
class ScoreRecord:
    """Scores of labeled rows before each was learned, oldest first.

    Parameters
    ----------
    margin, graph : (r, K) raw scores.
    refitted : (r, E, K) raw scores of refitted experts.
    counts : (r, K) label counts when the row was scored; 0 for a class without a label.
    margin_scales : (r, 3) sigma_F when the row was scored.
    graph_scales : (r,) sigma_V when the row was scored.
    refitted_scales : (r, E) scales of refitted experts when the row was scored.
    codes : (r,) the true classes.
    weights : (r,) weights of the rows.
    """

    margin: Array
    graph: Array
    refitted: Array
    counts: Array
    margin_scales: Array
    graph_scales: Array
    refitted_scales: Array
    codes: Indices
    weights: Array

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    def add(
        self, scores: Scores, scales: ScoreScales, codes: NDArray[np.integer], weights: Array
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
            refitted=scores.refitted[usable],
            counts=np.tile(scales.counts, (m, 1)),
            margin_scales=np.tile(scales.margin, (m, 1)),
            graph_scales=np.full(m, scales.graph),
            refitted_scales=np.tile(scales.refitted, (m, 1)),
            codes=codes[usable].astype(np.intp),
            weights=weights[usable],
        )
        joined = {
            f.name: np.concatenate([getattr(self, f.name), getattr(new, f.name)])[-RECORD:]
            for f in fields(ScoreRecord)
        }
        return ScoreRecord(**joined)

    def scores(self, n: int) -> Scores:
        """Return the scores of the newest ``n`` rows, or of all rows if there are fewer."""
        newest = slice(max(0, self.size - n), None)
        return Scores(self.margin[newest], self.graph[newest], self.refitted[newest])

    def newest(self, n: int) -> ScoreRecord:
        """Return the newest ``n`` > 0 rows."""
        return ScoreRecord(**{f.name: getattr(self, f.name)[-n:] for f in fields(self)})

    def forget(self, forgetting: float) -> ScoreRecord:
        """Return the record with weights discounted by ``forgetting`` in (0, 1]."""
        return self if forgetting == 1.0 else replace(self, weights=forgetting * self.weights)

    def with_classes(self, places: Indices, n_classes: int) -> ScoreRecord:
        """Return the record with class c moved to ``places[c]`` of ``n_classes``; -1 drops it."""
        rows = np.flatnonzero(places[self.codes] >= 0)
        return ScoreRecord(
            margin=moved(self.margin[rows], places, n_classes),
            graph=moved(self.graph[rows], places, n_classes),
            refitted=moved(self.refitted[rows], places, n_classes),
            counts=moved(self.counts[rows], places, n_classes),
            margin_scales=self.margin_scales[rows],
            graph_scales=self.graph_scales[rows],
            refitted_scales=self.refitted_scales[rows],
            codes=places[self.codes[rows]],
            weights=self.weights[rows],
        )


def first_score_scales(n_refitted: int) -> ScoreScales:
    """Return the scales before the first batch."""
    return ScoreScales(np.zeros(0), np.ones(PRIOR_EXPONENTS.size), 1.0, np.ones(n_refitted))


def empty_record(n_refitted: int) -> ScoreRecord:
    """Return a record without rows or classes, for ``n_refitted`` refitted experts."""
    nothing, none = np.zeros((0, 0)), np.zeros(0)
    return ScoreRecord(
        margin=nothing,
        graph=nothing,
        refitted=np.zeros((0, n_refitted, 0)),
        counts=nothing,
        margin_scales=np.zeros((0, PRIOR_EXPONENTS.size)),
        graph_scales=none,
        refitted_scales=np.zeros((0, n_refitted)),
        codes=np.zeros(0, dtype=np.intp),
        weights=none,
    )


def class_factors(counts: Array, by_counts: bool) -> Array:
    """Return the factors of the margin's scores, (3, ..., K) for counts (..., K).

    They are ``n_c^{-1/2} pi_c^delta`` for every exponent delta, relative to the mean of
    ``n_c^{-1/2}`` over known classes. They are 0 for unknown classes. If ``by_counts`` is False,
    they are 1 for all known classes.

    The class priors pi are shrunk towards uniform priors, to the extent that chance explains their
    differences.
    """
    known = counts > 0
    if not by_counts:
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


def measured_score_scales(
    scores: Scores, counts: Array, by_counts: bool, sizes: SummedSizes
) -> ScoreScales:
    """Return the scales of the scores of all experts on unlabeled rows."""
    known = counts > 0
    factors = class_factors(counts, by_counts)

    def measured(values: Array, size: float) -> float:
        return scale_of(values[:, known], DOUBLE * size, LARGEST_DOUBLE_ERROR)

    return ScoreScales(
        counts,
        np.array(
            [
                measured(scores.margin * each, sizes.margin * each.max(initial=0.0))
                for each in factors
            ]
        ),
        # the scores of the graph are shares, whose sum is 1
        scale_of(scores.graph[:, known], SINGLE, LARGEST_SINGLE_ERROR),
        np.array(list(map(measured, scores.refitted.swapaxes(0, 1), sizes.refitted))),
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

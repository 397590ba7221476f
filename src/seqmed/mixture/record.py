"""The record: scores of labeled rows by all experts before each row was learned.

The margin score of a class is ``F_c = e_c n_c^{-1/2} pi_c^delta``: it combines the score e of the
margin expert, the label count n and the class prior pi. The record has raw scores, and what is
needed to compute F for every exponent delta. Each scale sigma is the root mean square of
row-centred scores of unlabeled rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask
from seqmed.classes import moved

PRIOR_EXPONENTS = np.array([0.0, 0.25, 0.5])
# Largest number of labeled rows in the record.
RECORD = 300
# Smallest and largest scores whose squares are in the range of doubles.
SMALLEST_SQUARED, LARGEST_SQUARED = 1e-100, 1e100


class Scores(NamedTuple):
    """The scores of the experts for m rows.

    Attributes
    ----------
    margin : (m, K) scores of the margin expert, before any scaling by classes.
    graph : (m, K) scores of the graph expert.
    others : (m, E, K) scores of further experts.
    """

    margin: Array
    graph: Array
    others: Array

    def take(self, rows: Mask) -> Scores:
        """Return the scores of some rows."""
        return Scores(*(each[rows] for each in self))

    @property
    def finite(self) -> Mask:
        """Mask (m,) of the rows whose scores are all finite."""
        others = np.isfinite(self.others).all(axis=(1, 2))
        return np.asarray(np.isfinite(self.margin).all(axis=1) & others)


class Scales(NamedTuple):
    """Scales of the scores of the experts.

    Attributes
    ----------
    counts : (K,) number of labels of every class so far.
    margin : (3,) sigma_F under every exponent of `PRIOR_EXPONENTS`.
    graph : sigma_V.
    others : (E,) scales of further experts.
    """

    counts: Array
    margin: Array
    graph: float
    others: Array

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
    others : (r, E, K) raw scores of further experts.
    counts : (r, K) label counts when the row was scored; 0 for a class without a label.
    margin_scales : (r, 3) sigma_F when the row was scored.
    graph_scales : (r,) sigma_V when the row was scored.
    other_scales : (r, E) scales of further experts when the row was scored.
    codes : (r,) the true classes.
    weights : (r,) weights of the rows.
    """

    margin: Array
    graph: Array
    others: Array
    counts: Array
    margin_scales: Array
    graph_scales: Array
    other_scales: Array
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
            others=scores.others[usable],
            counts=np.tile(scales.counts, (m, 1)),
            margin_scales=np.tile(scales.margin, (m, 1)),
            graph_scales=np.full(m, scales.graph),
            other_scales=np.tile(scales.others, (m, 1)),
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
        return Scores(self.margin[newest], self.graph[newest], self.others[newest])

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
            others=moved(self.others[rows], places, n_classes),
            counts=moved(self.counts[rows], places, n_classes),
            margin_scales=self.margin_scales[rows],
            graph_scales=self.graph_scales[rows],
            other_scales=self.other_scales[rows],
            codes=places[self.codes[rows]],
            weights=self.weights[rows],
        )


def first_scales(n_others: int) -> Scales:
    """Return the scales before the first batch."""
    return Scales(np.zeros(0), np.ones(PRIOR_EXPONENTS.size), 1.0, np.ones(n_others))


def empty_record(n_others: int) -> ScoreRecord:
    """Return a record without rows or classes, for ``n_others`` further experts."""
    nothing, none = np.zeros((0, 0)), np.zeros(0)
    return ScoreRecord(
        margin=nothing,
        graph=nothing,
        others=np.zeros((0, n_others, 0)),
        counts=nothing,
        margin_scales=np.zeros((0, PRIOR_EXPONENTS.size)),
        graph_scales=none,
        other_scales=np.zeros((0, n_others)),
        codes=np.zeros(0, dtype=np.intp),
        weights=none,
    )


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
    """Return the scales of the scores of all experts on unlabeled rows."""
    known = counts > 0
    factors = class_factors(counts, scaled)
    return Scales(
        counts,
        np.array([root_mean_square((scores.margin * factor)[:, known]) for factor in factors]),
        root_mean_square(scores.graph[:, known]),
        np.array([root_mean_square(each[:, known]) for each in scores.others.swapaxes(0, 1)]),
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

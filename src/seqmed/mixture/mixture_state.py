"""The state of the mixture, the scores of its experts, and how they are mixed.

The mixed score of a class is a sum over the experts: ``(1 - w - v) F / sigma_F + w V / sigma_V +
v L / sigma_L``. F is the score of the margin expert, V that of the graph, L that of a refitted
expert, and each sigma is the scale of these scores.

The margin score of a class is ``F_c = e_c n_c^{-1/2} pi_c^delta``: it combines the score e of the
margin expert, the label count n and the class prior pi.

Scores (m, 2 + E, K) have the margin expert first, then the graph, then E refitted experts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from seqmed.classes import ClassCounts, Rows, moved, no_classes
from seqmed.graph import propagation
from seqmed.graph.kept_rows import Lists
from seqmed.graph.propagation import GraphInfo, GraphState
from seqmed.late_rows import KeptLabels, LateLabels, compare_labels, equal_rows
from seqmed.margin import margin_state
from seqmed.margin.margin_state import MarginState
from seqmed.margin.update import MarginParameters, UpdateInfo
from seqmed.mixture.change import RECORD, Change
from seqmed.mixture.experts import REFITTED, RecentRows, RefittedExpert, no_recent_rows
from seqmed.numeric.arrays import Array, Indices, Mask, Points, no_rows
from seqmed.numeric.expectations import expect, expect_shape

PRIOR_EXPONENTS = np.array([0.0, 0.25, 0.5])


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

    def validate(self) -> None:
        """Raise a ValueError if the exponent is unknown."""
        expect(0 <= self.exponent < PRIOR_EXPONENTS.size, "a known exponent")

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of all experts; that of the margin is exactly 0 if nothing is left for it."""
        margin = max(0.0, 1.0 - sum(self.refitted) - self.weight)
        return (margin, self.weight, *self.refitted)


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

    @property
    def compared(self) -> Mask:
        """Mask (K,) of the classes that can be predicted wrongly: none if only one is known."""
        return self.known & bool(self.known.sum() > 1)


class ScoreRecord(NamedTuple):
    """Scores of labeled rows before each was learned, oldest first.

    Attributes
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

    def validate(self) -> None:
        """Raise a ValueError if compiled loops would leave the arrays."""
        n, n_refitted, n_classes = self.refitted.shape
        expect_shape(self, (n, n_classes), "margin", "graph", "counts")
        expect_shape(self, (n, PRIOR_EXPONENTS.size), "margin_scales")
        expect_shape(self, (n, n_refitted), "refitted_scales")
        expect_shape(self, (n,), "graph_scales", "codes", "weights")
        expect(((self.codes >= 0) & (self.codes < n_classes)).all(), "known classes")

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    def add(
        self, scores: Array, scales: ScoreScales, codes: Indices, weights: Array
    ) -> ScoreRecord:
        """Return the newest `RECORD` rows after m more, with their scores (m, 2 + E, K)."""
        m = codes.size
        new = (
            scores[:, 0],
            scores[:, 1],
            scores[:, 2:],
            np.tile(scales.counts, (m, 1)),
            np.tile(scales.margin, (m, 1)),
            np.full(m, scales.graph),
            np.tile(scales.refitted, (m, 1)),
            codes,
            weights,
        )
        pairs = zip(self, new, strict=True)
        return ScoreRecord._make(np.concatenate(pair)[-RECORD:] for pair in pairs)

    def newest(self, n: int) -> ScoreRecord:
        """Return the newest ``n`` > 0 rows."""
        return ScoreRecord._make(each[-n:] for each in self)

    def forget(self, forgetting: float) -> ScoreRecord:
        """Return the record with weights discounted by ``forgetting`` in (0, 1]."""
        return self if forgetting == 1.0 else self._replace(weights=forgetting * self.weights)

    def with_classes(self, places: Indices, n_classes: int) -> ScoreRecord:
        """Return the record with class c moved to ``places[c]`` of ``n_classes``; -1 drops it."""
        kept = ScoreRecord._make(each[places[self.codes] >= 0] for each in self)
        of_classes = {
            name: moved(getattr(kept, name), places, n_classes)
            for name in ("margin", "graph", "refitted", "counts")
        }
        return kept._replace(codes=places[kept.codes], **of_classes)


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


class MixtureParameters(NamedTuple):
    """Parameters of one update of the mixture.

    Attributes
    ----------
    weight : weight of the graph if it is fixed; None to choose it by evidence.
    class_prior : whether class priors may be used.
    forgetting : factor per batch, in (0, 1].
    restarts : whether the experts start again after a change of the concept.
    class_weights : (K,) weights of the classes; None for equal weights.
    margin : parameters of the margin expert.
    """

    weight: float | None
    class_prior: bool
    forgetting: float
    restarts: bool
    class_weights: Array | None
    margin: MarginParameters


class MixtureState(NamedTuple):
    """The state of `SeqGraphMED`.

    Attributes
    ----------
    graph, margin : the two experts that learned every batch.
    refitted : experts that are fitted on the last labeled rows.
    counts : labels of every class so far.
    record, score_scales, choice : how the experts are mixed.
    class_weights : (K,) factors of the graph's scores, and of rows of refitted experts.
    probes : the last unlabeled rows.
    recent : the last labeled rows.
    column_scale : (p,) the columns of all these rows are divided by it; (0,) if they are never
        scaled.
    n_rows, n_measured : rows learned, and their number when the scales were measured.
    n_batches : batches learned.
    margin_seed : seed with which the margin expert begins.
    margin_info : report of the last update of the margin expert; None before the first.
    trial : the state without the last new start, while that start is on trial; None otherwise.
    n_searched : number of newest rows of the record in which a change may begin.
    """

    graph: GraphState
    margin: MarginState
    refitted: tuple[RefittedExpert, ...]
    counts: ClassCounts
    record: ScoreRecord
    score_scales: ScoreScales
    choice: Choice
    class_weights: Array
    probes: Points
    recent: RecentRows
    column_scale: Array
    n_rows: int
    n_measured: int
    n_batches: int
    margin_seed: int
    margin_info: UpdateInfo | None
    trial: Trial | None
    n_searched: int

    @property
    def kept(self) -> Points:
        """Kept rows in the format of the stream."""
        return self.probes

    def validate(self) -> None:
        """Raise a ValueError if the experts are not of the same columns and classes."""
        size, n_refitted, width = self.counts.size, len(self.refitted), self.probes.shape[1]
        kept = (self.probes, self.recent.points, self.margin.kept, self.graph.rows.blocks[0].rows)
        expect({each.shape[1] for each in kept} == {width}, f"rows of {width} columns")
        expect(len({sp.issparse(each) for each in kept}) == 1, "rows of the same format")
        same = self.margin.counts.size == self.graph.influence.shape[1] == size
        expect(same, "the same classes in all experts")
        expect(self.record.refitted.shape[1:] == (n_refitted, size), "a record of all experts")
        expect_shape(self, (size,), "class_weights")
        expect_shape(self.score_scales, (size,), "counts")
        expect_shape(self.score_scales, PRIOR_EXPONENTS.shape, "margin")
        expect_shape(self.score_scales, (n_refitted,), "refitted")
        expect(len(self.choice.refitted) == n_refitted, "a weight for every expert")
        expect((self.recent.codes < size).all(), "known classes in the recent rows")
        expect(self.column_scale.shape in ((0,), (width,)), "a scale for every column")
        before = self if self.trial is None else self.trial.state
        expect(self.trial is None or before.trial is None, "no trial within a trial")
        same = before.counts.size == size and before.probes.shape[1] == width
        expect(same, "the same classes and columns in the trial")

    @property
    def by_counts(self) -> bool:
        """Whether the scores of the margin expert are divided by the roots of label counts."""
        return self.margin.counts.per_class

    def scaled(self, points: Points) -> Points:
        """Return rows divided by the scales of the columns, if one is not 1."""
        return points / self.column_scale if (self.column_scale != 1.0).any() else points


class Trial(NamedTuple):
    """The trial of a new start after a change of the concept.

    Attributes
    ----------
    state : the state without the new start, which learns the same batches.
    n_labels : labels since the new start.
    """

    state: MixtureState
    n_labels: int


class MixtureInfo(NamedTuple):
    """The report of an update.

    Attributes
    ----------
    graph : report of the graph.
    n_mini_batches : number of mini-batches of the batch.
    n_recorded : labeled rows in the record.
    weight, temperature : weight of the graph, and temperature of the mixture.
    refitted : weights of the refitted experts.
    change : the change of the concept that was found; None if there was none.
    revoked : whether the last new start was revoked.
    late_labels : numbers of the late labels; None if they were not late.
    """

    graph: GraphInfo
    n_mini_batches: int
    n_recorded: int
    weight: float
    temperature: float
    refitted: tuple[float, ...]
    change: Change | None = None
    revoked: bool = False
    late_labels: LateLabels | None = None


def begin(
    graph: GraphState,
    rows: Rows,
    column_scale: Array,
    parameters: MarginParameters,
    margin_seed: int,
) -> MixtureState:
    """Return the state before the first batch ``rows``; its columns are already scaled."""
    refitted = tuple(make() for make in REFITTED)
    n = len(refitted)
    return MixtureState(
        graph=graph,
        margin=margin_state.begin(parameters, rows, margin_seed, calibrated=False),
        refitted=refitted,
        counts=no_classes(per_class=True),
        record=empty_record(n),
        score_scales=ScoreScales(np.zeros(0), np.ones(PRIOR_EXPONENTS.size), 1.0, np.ones(n)),
        choice=Choice(0.0, 1.0, 0, (0.0,) * n),
        class_weights=np.zeros(0),
        probes=no_rows(rows.points),
        recent=no_recent_rows(rows.points),
        column_scale=column_scale,
        n_rows=0,
        n_measured=rows.weights.size,
        n_batches=0,
        margin_seed=margin_seed,
        margin_info=None,
        trial=None,
        n_searched=RECORD,
    )


def with_classes(
    state: MixtureState, places: Indices, declared: Mask, margin: MarginState | None = None
) -> MixtureState:
    """Return the state with class c moved to ``places[c]``; -1 drops it.

    Parameters
    ----------
    state : state with k classes.
    places : (k,) indices of these classes afterwards.
    declared : (K,) mask of the classes afterwards that were declared.
    margin : the margin expert with these classes, if it is known.
    """
    size, scales, trial = declared.size, state.score_scales, state.trial
    if margin is None:
        margin = margin_state.with_classes(state.margin, places, declared)
    if trial is not None:
        trial = trial._replace(state=with_classes(trial.state, places, declared))
    return state._replace(
        counts=state.counts.with_classes(places, declared),
        graph=state.graph.with_classes(places, size),
        margin=margin,
        record=state.record.with_classes(places, size),
        refitted=tuple(each.with_classes(places, size) for each in state.refitted),
        recent=state.recent.with_classes(places),
        score_scales=scales._replace(counts=moved(scales.counts, places, size)),
        class_weights=moved(state.class_weights, places, size),
        trial=trial,
    )


def kept_labels(state: MixtureState, points: Points, codes: Indices) -> KeptLabels:
    """Return what the kept rows tell about late labels ``codes`` (m,), -1 for new classes.

    Kept rows are those of the graph, of the window of the margin expert, and the recent rows.
    """
    graph, recent, window = state.graph, state.recent, state.margin.posterior.window
    in_window = state.margin.counts.own_classes(window.signs)
    found = propagation.labels_in_graph(graph, points, codes)
    found = found.joined(compare_labels(equal_rows(recent.points, points), recent.codes, codes))
    return found.joined(compare_labels(equal_rows(window.points, points), in_window, codes))


# -- scores ----------------------------------------------------------------------------------------


def class_scores(state: MixtureState, points: Points) -> Array:
    """Return mixed class scores (n, K) at scaled rows; softmax of them gives probabilities.

    An expert of weight 0 is not evaluated.
    """
    scores = expert_scores(state, points, used=state.choice.weights)
    return mix(scores, state.score_scales, state.choice, state.by_counts)


def expert_scores(
    state: MixtureState,
    points: Points,
    *,
    used: tuple[float, ...] | None = None,
    neighbours: Lists | None = None,
) -> Array:
    """Return the scores of the experts, (m, 2 + E, K).

    Parameters
    ----------
    state : state of the mixture.
    points : (m, p) scaled rows.
    used : weights of the experts; the scores of those of weight 0 are 0. None uses all.
    neighbours : the nearest kept rows of the rows, if they are known.
    """
    used = (1.0,) * (2 + len(state.refitted)) if used is None else used
    found = np.zeros((points.shape[0], len(used), state.counts.size))
    if used[0] > 0:
        found[:, 0] = margin_state.unscaled_scores(state.margin, points)
    if used[1] > 0:
        neighbours = state.graph.search(points) if neighbours is None else neighbours
        found[:, 1] = state.graph.scores(neighbours, state.class_weights)
    for place, expert in enumerate(state.refitted, start=2):
        if used[place] > 0:
            with np.errstate(over="ignore", invalid="ignore"):
                found[:, place] = expert.scores(points)
    return found


def mix(scores: Array, scales: ScoreScales, choice: Choice, by_counts: bool) -> Array:
    """Return mixed scores (m, K), in units in which softmax gives probabilities.

    The columns of unknown classes are 0. An expert with weight 0 is ignored.
    """
    total = np.zeros((scores.shape[0], scores.shape[2]))
    sigmas = (scales.margin[choice.exponent], scales.graph, *scales.refitted)
    for place, (weight, sigma) in enumerate(zip(choice.weights, sigmas, strict=True)):
        if weight > 0:
            factor = weight / sigma
            if place == 0:
                factor = factor * class_factors(scales.counts, by_counts)[choice.exponent]
            total += factor * scores[:, place]
    return choice.temperature * np.where(scales.known, total, 0.0)


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


def expert_weights(state: MixtureState) -> dict[str, float]:
    """Return the weights of the experts by name."""
    names = ("margin", "graph", *(expert.name for expert in state.refitted))
    return dict(zip(names, state.choice.weights, strict=True))

"""The state of the mixture, the scores of its experts, and how they are mixed.

The mixed score of a class is a sum over three experts: ``(1 - w - v) F / sigma_F + w V / sigma_V +
v L / sigma_L``. F is the score of the margin expert, V that of the graph, L that of the linear
expert, and each sigma is the scale of these scores.

The margin score of a class is ``F_c = e_c n_c^{-1/2} pi_c^delta``: it combines the score e of the
margin expert, the label count n and the class prior pi.

Scores (m, 3, K) have the margin expert first, then the graph, then the linear expert.

The softmax of the mixed scores is the core of the pool (`seqmed.mixture.pooling`), whose other
members are the graph alone and the refitted experts. Without refitted experts there is no pool.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.base import BaseEstimator

from seqmed.classes import ClassCounts, Rows, moved, no_classes
from seqmed.graph import propagation
from seqmed.graph.kept_rows import Lists
from seqmed.graph.propagation import GraphInfo, GraphState
from seqmed.late_rows import KeptLabels, LateLabels, compare_labels, equal_rows
from seqmed.margin import margin_state
from seqmed.margin.margin_state import MarginState
from seqmed.margin.update import MarginParameters, UpdateInfo
from seqmed.mixture import pooling
from seqmed.mixture.change import RECORD, Change
from seqmed.mixture.experts import (
    TRIED,
    Check,
    Expert,
    attempted,
    check_of,
    compare_checks,
    floored,
)
from seqmed.mixture.labeled_rows import LabeledRows, no_labeled_rows
from seqmed.mixture.linear_expert import LinearExpert, no_linear_expert
from seqmed.mixture.pooling import MEMBERS, Pooling, Recorded, no_pool
from seqmed.numeric.arrays import Array, Indices, Mask, Points, no_indices, no_rows
from seqmed.numeric.execution import one_thread
from seqmed.numeric.expectations import expect, expect_shape

PRIOR_EXPONENTS = np.array([0.0, 0.25, 0.5])


class Choice(NamedTuple):
    """How scores are mixed.

    Attributes
    ----------
    weight : weight of the graph, in [0, 1].
    temperature : T > 0.
    exponent : exponent of the class priors, as an index into `PRIOR_EXPONENTS`.
    linear : weight of the linear expert, in [0, 1]; that of the margin expert is the rest.
    """

    weight: float
    temperature: float
    exponent: int
    linear: float

    def validate(self) -> None:
        """Raise a ValueError if the exponent is unknown."""
        expect(0 <= self.exponent < PRIOR_EXPONENTS.size, "a known exponent")

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of all experts; that of the margin is exactly 0 if nothing is left for it."""
        margin = max(0.0, 1.0 - self.linear - self.weight)
        return (margin, self.weight, self.linear)


class ScoreScales(NamedTuple):
    """Scales of the scores of the experts.

    Attributes
    ----------
    counts : (K,) number of labels of every class so far.
    margin : (3,) sigma_F under every exponent of `PRIOR_EXPONENTS`.
    graph : sigma_V.
    linear : sigma_L.
    """

    counts: Array
    margin: Array
    graph: float
    linear: float

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
    margin, graph, linear : (r, K) raw scores.
    counts : (r, K) label counts when the row was scored; 0 for a class without a label.
    margin_scales : (r, 3) sigma_F when the row was scored.
    graph_scales, linear_scales : (r,) sigma_V and sigma_L when the row was scored.
    probabilities : (r, M, K) probabilities of the members of the pool.
    codes : (r,) the true classes.
    weights : (r,) weights of the rows.
    """

    margin: Array
    graph: Array
    linear: Array
    counts: Array
    margin_scales: Array
    graph_scales: Array
    linear_scales: Array
    probabilities: Array
    codes: Indices
    weights: Array

    def validate(self) -> None:
        """Raise a ValueError if compiled loops would leave the arrays."""
        n, n_classes = self.margin.shape
        expect_shape(self, (n, n_classes), "graph", "linear", "counts")
        expect_shape(self, (n, PRIOR_EXPONENTS.size), "margin_scales")
        expect_shape(self, (n,), "graph_scales", "linear_scales", "codes", "weights")
        expect(self.probabilities.ndim == 3, "probabilities of members")
        expect(self.probabilities.shape[::2] == (n, n_classes), "probabilities of all classes")
        expect(((self.codes >= 0) & (self.codes < n_classes)).all(), "known classes")

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    def add(
        self,
        scores: Array,
        probabilities: Array,
        scales: ScoreScales,
        codes: Indices,
        weights: Array,
    ) -> ScoreRecord:
        """Return the newest `RECORD` rows after m more.

        ``scores`` (m, 3, K) are those of the experts, and ``probabilities`` (m, M, K) those of the
        members of the pool.
        """
        m = codes.size
        margin, graph, linear = scores.transpose(1, 0, 2)
        new = ScoreRecord(
            margin=margin,
            graph=graph,
            linear=linear,
            counts=np.tile(scales.counts, (m, 1)),
            margin_scales=np.tile(scales.margin, (m, 1)),
            graph_scales=np.full(m, scales.graph),
            linear_scales=np.full(m, scales.linear),
            probabilities=probabilities,
            codes=codes,
            weights=weights,
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
            for name in ("margin", "graph", "linear", "counts", "probabilities")
        }
        return kept._replace(codes=places[kept.codes], **of_classes)

    def with_members(self, places: Indices) -> ScoreRecord:
        """Return the record with members ``places`` (M,) of the pool; -1 for a new one.

        The probabilities of a new member are uniform over the known classes.
        """
        known = (self.counts > 0).astype(np.float64)
        uniform = (known / np.maximum(known.sum(axis=1, keepdims=True), 1.0))[:, None]
        extended = np.concatenate([self.probabilities, uniform], axis=1)
        return self._replace(probabilities=extended[:, places])

    def of_members(self) -> Recorded:
        """Return what the pool is chosen by."""
        return Recorded(self.probabilities, self.counts > 0, self.codes, self.weights)


def empty_record(n_members: int) -> ScoreRecord:
    """Return a record without rows or classes, for ``n_members`` members of the pool."""
    nothing, none = np.zeros((0, 0)), np.zeros(0)
    return ScoreRecord(
        margin=nothing,
        graph=nothing,
        linear=nothing,
        counts=nothing,
        margin_scales=np.zeros((0, PRIOR_EXPONENTS.size)),
        graph_scales=none,
        linear_scales=none,
        probabilities=np.zeros((0, n_members, 0)),
        codes=np.zeros(0, dtype=np.intp),
        weights=none,
    )


class MixtureParameters(NamedTuple):
    """Parameters of one update of the mixture.

    Attributes
    ----------
    weight : weight of the graph if it is fixed; None to choose it by evidence.
    class_prior : whether class priors may be used.
    proportions : (K,) known class proportions; None if they are unknown.
    forgetting : factor per batch, in (0, 1].
    restarts : whether the experts start again after a change of the concept.
    class_weights : (K,) weights of the classes; None for equal weights.
    experts : classifiers that are refitted, by name; without any there is no pool.
    margin : parameters of the margin expert.
    """

    weight: float | None
    class_prior: bool
    proportions: Array | None
    forgetting: float
    restarts: bool
    class_weights: Array | None
    experts: dict[str, BaseEstimator]
    margin: MarginParameters


class MixtureState(NamedTuple):
    """The state of `SeqGraphMED`.

    Attributes
    ----------
    graph, margin : the two experts that learned every batch.
    linear : the linear expert, fitted on the last labeled rows.
    experts : refitted experts.
    counts : labels of every class so far.
    record, score_scales, choice, pool : how the experts are mixed.
    class_weights : (K,) factors of the graph's scores, and of rows of refitted experts.
    probes : the last unlabeled rows, divided by the scales of the columns.
    labels : the labeled rows that are kept.
    column_scale : (p,) the columns are divided by it, but for those of refitted experts; (0,) if
        they are never scaled.
    n_rows, n_measured : rows learned, and their number when the scales were measured.
    n_batches : batches learned.
    margin_seed : seed with which the margin expert begins.
    margin_info : report of the last update of the margin expert; None before the first.
    trial : the trial of the last new start; None if there is none.
    n_searched : number of newest rows of the record in which a change may begin.
    check : probabilities of the experts, in a model file only.
    """

    graph: GraphState
    margin: MarginState
    linear: LinearExpert
    experts: tuple[Expert, ...]
    counts: ClassCounts
    record: ScoreRecord
    score_scales: ScoreScales
    choice: Choice
    pool: Pooling
    class_weights: Array
    probes: Points
    labels: LabeledRows
    column_scale: Array
    n_rows: int
    n_measured: int
    n_batches: int
    margin_seed: int
    margin_info: UpdateInfo | None
    trial: Trial | None
    n_searched: int
    check: Check | None = None

    @property
    def kept(self) -> Points:
        """Kept rows in the format of the stream."""
        return self.probes

    def validate(self) -> None:
        """Raise a ValueError if the experts are not of the same columns and classes."""
        size, width = self.counts.size, self.probes.shape[1]
        kept = [
            self.probes,
            self.labels.points,
            self.margin.kept,
            self.graph.rows.take(no_indices()).rows,
        ]
        kept += [] if self.check is None else [self.check.points]
        expect({each.shape[1] for each in kept} == {width}, f"rows of {width} columns")
        expect(len({sp.issparse(each) for each in kept}) == 1, "rows of the same format")
        same = self.margin.counts.size == self.graph.influence.shape[1] == size
        expect(same, "the same classes in all experts")
        members = len(MEMBERS) + len(self.experts) if self.experts else 0
        expect(self.record.margin.shape[1] == size, "a record of all classes")
        expect(self.record.probabilities.shape[1] == members, "a record of all members")
        expect_shape(self.pool, (members,), "weights")
        expect_shape(self, (size,), "class_weights")
        expect_shape(self.score_scales, (size,), "counts")
        expect_shape(self.score_scales, PRIOR_EXPONENTS.shape, "margin")
        expect(self.linear.fitted.size in (0, size), "the same classes in the linear expert")
        expect((self.labels.codes < size).all(), "known classes in the kept labels")
        expect(self.experts_have_known_classes, "known classes in the experts")
        for expert in self.experts:
            if expert.fit is not None:
                expect(np.isin(expert.fit.numbers, self.labels.numbers).all(), "rows of experts")
        expect(self.column_scale.shape in ((0,), (width,)), "a scale for every column")
        before = self if self.trial is None else self.trial.state
        expect(self.trial is None or before.trial is None, "no trial within a trial")
        same = before.counts.size == size and before.probes.shape[1] == width
        expect(same, "the same classes and columns in the trial")

    @property
    def by_counts(self) -> bool:
        """Whether the scores of the margin expert are divided by the roots of label counts."""
        return self.margin.counts.per_class

    @property
    def recent(self) -> Rows:
        """The last labeled rows, divided by the scales of the columns."""
        newest = self.labels.newest(RECORD)
        return Rows(self.scaled(newest.points), newest.codes, newest.weights)

    @property
    def known(self) -> Mask:
        """Mask (K,) of the classes with a label."""
        return self.counts.seen

    @property
    def has_revoked(self) -> bool:
        """Whether a new start was revoked within the last `RECORD` labels."""
        return self.n_searched < RECORD

    @property
    def experts_have_known_classes(self) -> bool:
        """Whether all experts were fitted on classes of the state."""
        fits = [expert.fit for expert in self.experts if expert.fit is not None]
        return all((fit.present < self.counts.size).all() for fit in fits)

    @property
    def has_pool(self) -> bool:
        """Whether predictions come from the pool."""
        return bool(self.experts) and bool(self.known.sum() > 1)

    def on(self, device: str) -> MixtureState:
        """Return the state with its graph on a device."""
        state = self._replace(graph=self.graph.on(device))
        if self.trial is None:
            return state
        return state._replace(trial=self.trial._replace(state=self.trial.state.on(device)))

    def from_file(self) -> MixtureState:
        """Return the state with its experts fitted again."""
        with one_thread():
            experts = tuple(expert.restored(self.labels) for expert in self.experts)
        if self.check is not None and experts:
            compare_checks(self.check, check_of(experts, self.check.points, self.known))
        return self._replace(experts=experts, check=None)

    def for_file(self) -> MixtureState:
        """Return the state with probabilities that `from_file` compares."""
        if not self.has_pool or not self.experts_have_known_classes:
            return self
        return self._replace(check=check_of(self.experts, self.labels.points[-TRIED:], self.known))

    def scaled(self, points: Points) -> Points:
        """Return rows divided by the scales of the columns, if one is not 1."""
        return points / self.column_scale if (self.column_scale != 1.0).any() else points


class Trial(NamedTuple):
    """The trial of a new start after a change of the concept.

    Attributes
    ----------
    state : the state without the new start, which learns the same batches.
    change : the change that was found.
    n_labels : labels since the new start.
    weight : weight of the new start, in [0, 1].
    temperatures : (2,) temperatures of the state without it, and of the new start.
    """

    state: MixtureState
    change: Change
    n_labels: int
    weight: float
    temperatures: Array

    def validate(self) -> None:
        """Raise a ValueError if there are not two temperatures."""
        expect_shape(self, (2,), "temperatures")


class MixtureInfo(NamedTuple):
    """The report of an update.

    Attributes
    ----------
    graph : report of the graph.
    n_mini_batches : number of mini-batches of the batch.
    n_recorded : labeled rows in the record.
    weight, temperature : weight of the graph, and temperature of the mixture.
    linear : weight of the linear expert.
    change : the change of the concept that was found; None if there was none.
    revoked : whether the last new start was revoked.
    late_labels : numbers of the late labels; None if they were not late.
    """

    graph: GraphInfo
    n_mini_batches: int
    n_recorded: int
    weight: float
    temperature: float
    linear: float
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
    """Return the state before the first batch ``rows``; its columns are not scaled yet."""
    scaled = rows._replace(points=rows.points / column_scale) if column_scale.size else rows
    return MixtureState(
        graph=graph,
        margin=margin_state.begin(parameters, scaled, margin_seed, calibrated=False),
        linear=no_linear_expert(),
        experts=(),
        counts=no_classes(per_class=True),
        record=empty_record(0),
        score_scales=ScoreScales(np.zeros(0), np.ones(PRIOR_EXPONENTS.size), 1.0, 1.0),
        choice=Choice(0.0, 1.0, 0, 0.0),
        pool=no_pool(0),
        class_weights=np.zeros(0),
        probes=no_rows(rows.points),
        labels=no_labeled_rows(rows.points),
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
        linear=state.linear.with_classes(places, size),
        experts=tuple(each.with_classes(places) for each in state.experts),
        labels=state.labels.with_classes(places),
        score_scales=scales._replace(counts=moved(scales.counts, places, size)),
        class_weights=moved(state.class_weights, places, size),
        trial=trial,
    )


def kept_labels(state: MixtureState, points: Points, codes: Indices) -> KeptLabels:
    """Return what the kept rows tell about late labels ``codes`` (m,), -1 for new classes.

    Kept rows are those of the graph, of the window of the margin expert, and the recent rows.
    """
    if state.trial is not None:  # the new start does not have the labels before the change
        state = state.trial.state
    points = state.scaled(points)
    graph, recent, window = state.graph, state.recent, state.margin.posterior.window
    in_window = state.margin.counts.own_classes(window.signs)
    found = propagation.labels_in_graph(graph, points, codes)
    found = found.joined(compare_labels(equal_rows(recent.points, points), recent.codes, codes))
    return found.joined(compare_labels(equal_rows(window.points, points), in_window, codes))


# -- scores ----------------------------------------------------------------------------------------


def class_scores(state: MixtureState, points: Points) -> Array:
    """Return class scores (n, K) at rows; softmax of them gives probabilities.

    They are mixed scores, or log-probabilities if there is a pool or a trial. The columns of
    unknown classes are 0. An expert of weight 0 is not evaluated.
    """
    if state.trial is None and not state.has_pool:
        return core_scores(state, state.scaled(points))
    found = state_probabilities(state, points)
    if state.trial is not None:
        both = (state_probabilities(state.trial.state, points), found)
        found = combined(both, state.trial.weight, state.trial.temperatures)
    found = np.maximum(found, np.finfo(np.float64).tiny)
    return np.where(state.known, np.log(found), 0.0)


def combined(both: tuple[Array, Array], weight: float, temperatures: Array) -> Array:
    """Return the probabilities (m, K) of two states, at their temperatures, mixed.

    ``both`` are those of the state without a new start, and of the new start, which has the weight.
    """
    before, after = map(pooling.sharpened, both, temperatures)
    return (1.0 - weight) * before + weight * after


def state_probabilities(state: MixtureState, points: Points) -> Array:
    """Return class probabilities (n, K) of a state without regard to a trial; 0 if unknown."""
    if not state.has_pool:
        return core_probabilities(core_scores(state, state.scaled(points)), state.known)
    used = state.pool.used()
    margin, graph, linear = (float(used[pooling.CORE]) * each for each in state.choice.weights)
    weights = (margin, max(graph, float(used[pooling.GRAPH])), linear)
    scores = expert_scores(state, state.scaled(points), used=weights)
    return pooling.pooled(member_probabilities(state, points, scores, used)[0], state.pool)


def member_probabilities(
    state: MixtureState, points: Points, scores: Array, used: Mask | None = None
) -> tuple[Array, Mask]:
    """Return the probabilities (m, M, K) of the members of the pool, and the experts that failed.

    Parameters
    ----------
    state : state of the mixture.
    points : (m, p) rows.
    scores : (m, 3, K) scores of margin, graph and linear expert.
    used : (M,) members to evaluate; the others have zeros. None evaluates all.
    """
    known = state.known
    used = np.ones(state.pool.weights.size, dtype=bool) if used is None else used
    found = np.zeros((points.shape[0], used.size, known.size))
    failed = np.zeros(len(state.experts), dtype=bool)
    if not used.size:
        return found, failed
    if used[pooling.CORE]:
        mixed = mix(scores, state.score_scales, state.choice, state.by_counts)
        found[:, pooling.CORE] = core_probabilities(mixed, known)
    if used[pooling.GRAPH]:
        found[:, pooling.GRAPH] = floored(scores[:, 1], known)
    for place, expert in enumerate(state.experts):
        member = len(MEMBERS) + place
        if used[member]:
            found[:, member], failed[place] = attempted(expert, points, known)
    return found, failed


def core_scores(state: MixtureState, points: Points) -> Array:
    """Return the mixed scores (n, K) of margin, graph and linear expert at scaled rows."""
    scores = expert_scores(state, points, used=state.choice.weights)
    return mix(scores, state.score_scales, state.choice, state.by_counts)


def core_probabilities(scores: Array, known: Mask) -> Array:
    """Return the softmax (m, K) of mixed scores over the known classes."""
    return floored(softmax(np.where(known, scores, -np.inf), axis=1), known)


def expert_scores(
    state: MixtureState,
    points: Points,
    *,
    used: tuple[float, ...] = (1.0, 1.0, 1.0),
    neighbours: Lists | None = None,
) -> Array:
    """Return the scores of margin, graph and linear expert, (m, 3, K).

    Parameters
    ----------
    state : state of the mixture.
    points : (m, p) scaled rows.
    used : weights of the experts; the scores of those of weight 0 are 0.
    neighbours : the nearest kept rows of the rows, if they are known.
    """
    found = np.zeros((points.shape[0], len(used), state.counts.size))
    if used[0] > 0:
        sums = state.graph.kernel_sums
        found[:, 0] = margin_state.unscaled_scores(state.margin, points, sums)
    if used[1] > 0:
        neighbours = state.graph.search(points) if neighbours is None else neighbours
        found[:, 1] = state.graph.scores(neighbours, state.class_weights)
    if used[2] > 0:
        with np.errstate(over="ignore", invalid="ignore"):
            found[:, 2] = state.linear.scores(points)
    return found


def mix(scores: Array, scales: ScoreScales, choice: Choice, by_counts: bool) -> Array:
    """Return mixed scores (m, K), in units in which softmax gives probabilities.

    The columns of unknown classes are 0. An expert with weight 0 is ignored.
    """
    total = np.zeros((scores.shape[0], scores.shape[2]))
    sigmas = (scales.margin[choice.exponent], scales.graph, scales.linear)
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


def core_weights(state: MixtureState) -> dict[str, float]:
    """Return the weights of margin, graph and linear expert in the mixture."""
    return dict(zip(("margin", "graph", "linear"), state.choice.weights, strict=True))


def expert_weights(state: MixtureState) -> dict[str, float]:
    """Return the weights of the members of the pool by name; those of the core without a pool.

    During a trial these are the members of both states, times the weight of the state.
    """
    if state.experts:
        names = (*MEMBERS, *(expert.name for expert in state.experts))
        weights = dict(zip(names, state.pool.weights.tolist(), strict=True))
    else:
        weights = core_weights(state)
    if state.trial is None:
        return weights
    weight, before = state.trial.weight, expert_weights(state.trial.state)
    both = {name: (1.0 - weight) * each for name, each in before.items()}
    return both | {f"new {name}": weight * each for name, each in weights.items()}


def graph_weight(state: MixtureState) -> float:
    """Return the weight of the graph, alone and in the core."""
    weight = state.choice.weight
    if state.experts:
        core, graph = state.pool.weights[:2].tolist()
        weight = graph + core * weight
    if state.trial is not None:
        own = state.trial.weight
        weight = (1.0 - own) * graph_weight(state.trial.state) + own * weight
    return float(weight)

"""The state of the mixture, and the scores of its experts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.classes import ClassCounts, moved, no_classes
from seqmed.graph import propagation
from seqmed.graph.graph_state import GraphState
from seqmed.graph.neighbours import empty_lists
from seqmed.graph.propagation import GraphInfo
from seqmed.late_rows import KeptLabels, LateLabels, compare_labels, equal_rows
from seqmed.margin import margin_state
from seqmed.margin.margin_state import MarginParameters, MarginState
from seqmed.margin.update import UpdateInfo
from seqmed.mixture import column_scales, weighting
from seqmed.mixture.change import Change
from seqmed.mixture.experts import REFITTED, RecentRows, RefittedExpert, no_recent_rows
from seqmed.mixture.record import (
    RECORD,
    ScoreRecord,
    Scores,
    ScoreScales,
    SummedSizes,
    empty_record,
    first_score_scales,
    measured_score_scales,
)
from seqmed.mixture.weighting import Choice
from seqmed.numeric.arrays import Array, Indices, Mask, Points, no_rows, take_rows
from seqmed.rows import Rows

# Number of unlabeled rows on which the scales of the scores are measured.
PROBES = 50
# Squared distance, relative to the squared norm, that rounding in single precision gives to equal
# rows.
SAME_ROW = 1e-6


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
    def by_counts(self) -> bool:
        """Whether the scores of the margin expert are divided by the roots of label counts."""
        return self.margin.counts.per_class

    def scaled(self, points: Points) -> Points:
        """Return rows with scaled columns."""
        return column_scales.scaled(points, self.column_scale)


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
    margin = margin_state.begin(parameters, rows, margin_seed, calibrated=False)
    refitted = tuple(make() for make in REFITTED)
    record = empty_record(len(refitted))
    return MixtureState(
        graph=graph,
        margin=margin,
        refitted=refitted,
        counts=no_classes(per_class=True),
        record=record,
        score_scales=first_score_scales(len(refitted)),
        choice=weighting.choose(record, margin.counts.per_class, None, False),
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
    size, trial = declared.size, state.trial
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
        score_scales=state.score_scales._replace(
            counts=moved(state.score_scales.counts, places, size)
        ),
        class_weights=moved(state.class_weights, places, size),
        trial=trial,
    )


def kept_labels(state: MixtureState, points: Points, codes: Indices) -> KeptLabels:
    """Return what the kept rows tell about late labels ``codes`` (m,), -1 for new classes.

    Kept rows are those of the graph, of the window of the margin expert, and the recent rows.
    """
    graph, recent, window = state.graph, state.recent, state.margin.posterior.window
    in_window = state.margin.counts.own_classes(window.signs)
    found = propagation.labels_in_graph(graph, graph.rows.metric.store(points), codes)
    found = found.joined(compare_labels(equal_rows(recent.points, points), recent.codes, codes))
    return found.joined(compare_labels(equal_rows(window.points, points), in_window, codes))


def expert_scores(state: MixtureState, points: Points, used: Choice | None = None) -> Scores:
    """Return the scores of the experts, zeros for those whose weight in a choice is 0."""
    nothing = np.zeros((points.shape[0], state.counts.size))
    margin = graph = nothing
    if used is None or used.margin > 0:
        margin = margin_state.unscaled_scores(state.margin, points)
    if used is None or used.weight > 0:
        graph = state.graph.scores(state.graph.search(points), state.class_weights)
    return Scores(margin, graph, refitted_scores(state, points, used))


def refitted_scores(state: MixtureState, points: Points, used: Choice | None = None) -> Array:
    """Return the scores of the refitted experts, (m, E, K), zeros for those that are not used."""
    found = np.zeros((points.shape[0], len(state.refitted), state.counts.size))
    for place, expert in enumerate(state.refitted):
        if used is None or used.refitted[place] > 0:
            with np.errstate(over="ignore", invalid="ignore"):
                found[:, place] = expert.scores(points)
    return found


def left_out_scores(state: MixtureState, points: Points, slots: Indices) -> Scores:
    """Return the scores of rows that may be kept, each left out of its own neighbours.

    ``slots`` are the slots of the last of these rows, -1 if unknown. The neighbours of a row with a
    known slot need no search, which saves a tenth of the time of a small update.
    """
    kept = state.graph.rows
    slots = np.append(np.full(points.shape[0] - slots.size, -1), slots)
    found = empty_lists(slots.size, kept.lists.slots.shape[1], np.inf)
    known, unknown = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
    for array, values in zip(found, kept.lists.take(slots[known]), strict=True):
        array[known] = values
    if unknown.size:
        stored = kept.metric.store(take_rows(points, unknown))
        nearest = kept.search(stored, length=kept.n_neighbors + 1)
        equal = 0.0 if kept.metric.refines else SAME_ROW * stored.norms
        own = (nearest.distances[:, 0] <= equal) & (nearest.sizes > 0)
        for name in ("slots", "distances"):
            values = getattr(nearest, name)
            values[own, :-1] = values[own, 1:].copy()
            getattr(found, name)[unknown, : values.shape[1]] = values
        found.sizes[unknown] = np.minimum(nearest.sizes - own, kept.n_neighbors)
    graph = state.graph.scores(found, state.class_weights)
    margin = margin_state.unscaled_scores(state.margin, points)
    return Scores(margin, graph, refitted_scores(state, points))


def measured_scales_of(state: MixtureState, slots: Indices) -> ScoreScales:
    """Return the scales of the experts that have learned a mini-batch.

    They are measured on the last unlabeled rows. If there are few of these, rows of the record are
    added. ``slots`` are the slots of the newest unlabeled rows, -1 for a row that is not
    kept.
    """
    # the discounted weight of a class may underflow to 0
    tiny = np.finfo(np.float64).tiny
    counts = np.maximum(state.margin.counts.discounted, tiny)
    counts = np.where(state.counts.seen, counts, 0.0)
    record, missing = state.record, PROBES - state.probes.shape[0]
    scores = record.scores(max(missing, 0))
    if state.probes.shape[0]:
        of_probes = left_out_scores(state, state.probes, slots)
        scores = Scores(*map(np.concatenate, zip(of_probes, scores, strict=True)))
    sizes = summed_sizes(state)
    return measured_score_scales(scores.take(scores.finite), counts, state.by_counts, sizes)


def summed_sizes(state: MixtureState) -> SummedSizes:
    """Return the sizes of the terms of the scores, at the last unlabeled or labeled rows."""
    points = state.probes if state.probes.shape[0] else state.recent.points[-PROBES:]
    if not points.shape[0]:
        return SummedSizes(0.0, np.zeros(len(state.refitted)))
    with np.errstate(over="ignore", invalid="ignore"):
        refitted = np.array([expert.summed_size(points) for expert in state.refitted])
        return SummedSizes(margin_state.summed_size(state.margin, points), refitted)


def class_scores(state: MixtureState, points: Points) -> Array:
    """Return mixed class scores (n, K) at scaled rows; softmax of them gives probabilities.

    An expert of weight 0 is not evaluated.
    """
    scores = expert_scores(state, points, state.choice)
    return weighting.mix(scores, state.score_scales, state.choice, state.by_counts)


def expert_weights(state: MixtureState) -> dict[str, float]:
    """Return the weights of the experts by name."""
    refitted = zip(state.refitted, state.choice.refitted, strict=True)
    return {
        "margin": state.choice.margin,
        "graph": state.choice.weight,
        **{expert.name: weight for expert, weight in refitted},
    }

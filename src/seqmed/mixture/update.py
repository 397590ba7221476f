"""One update of the mixture: margin expert, graph expert, and their weight.

A batch is learned in mini-batches (`seqmed.mixture.weighting.mini_batches`), each in this order:

1. both experts score its labeled rows, and the scores enter the record;
2. some of its rows enter the graph, which is solved again; the margin expert learns its labels;
3. both experts score the last unlabeled rows again, to measure the scales of their scores.

After the last mini-batch the record chooses how the scores are mixed. If it shows a change of the
concept, both experts start again from the labels since then (`restarted`). Nothing is changed in
place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqmed.arrays import (
    Array,
    Indices,
    Points,
    found_among,
    no_indices,
    no_rows,
    stack,
    take_rows,
)
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry, moved
from seqmed.graph import propagation
from seqmed.graph.graph_state import UNLABELED, GraphState
from seqmed.graph.neighbours import empty_lists
from seqmed.graph.propagation import GraphInfo
from seqmed.mixture import weighting
from seqmed.mixture.change import Change, RecentRows, find_change, no_recent_rows
from seqmed.mixture.experts import MarginExpert, MiniBatch
from seqmed.mixture.weighting import Choice, Scales, ScoreRecord, Scores
from seqmed.threads import one_thread

# Number of unlabeled rows on which the scales of the scores are measured.
PROBES = 50
# Squared distance, relative to the squared norm, that rounding in single precision gives to equal
# rows.
SAME_ROW = 1e-6


class MixtureSettings(NamedTuple):
    """Parameters of one update of the mixture.

    Attributes
    ----------
    weight : weight of the graph if it is fixed; None to choose it by evidence.
    class_prior : whether class priors may be used.
    forgetting : factor per batch, in (0, 1].
    restarts : whether the experts start again after a change of the concept.
    class_weight : parameter ``class_weight`` of the estimator.
    """

    weight: float | None
    class_prior: bool
    forgetting: float
    restarts: bool
    class_weight: Any


class MixtureState(NamedTuple):
    """The state of `SeqGraphMED`.

    Attributes
    ----------
    graph, margin : the two experts.
    registry : the classes so far.
    record, scales, choice : how the experts are mixed.
    class_weights : (K,) factors of the graph's scores.
    probes : the last unlabeled rows.
    recent : the last labeled rows.
    n_batches : batches learned.
    fixed, sparse : parameters that may not change, and the format of the rows.
    """

    graph: GraphState
    margin: MarginExpert
    registry: ClassRegistry
    record: ScoreRecord
    scales: Scales
    choice: Choice
    class_weights: Array
    probes: Points
    recent: RecentRows
    n_batches: int
    fixed: dict[str, Any]
    sparse: bool


class MixtureInfo(NamedTuple):
    """The report of an update.

    Attributes
    ----------
    graph : report of the graph.
    n_mini_batches : number of mini-batches of the batch.
    n_recorded : labeled rows in the record.
    weight, temperature : weight of the graph, and temperature of the mixture.
    change : the change of the concept that was found; None if there was none.
    """

    graph: GraphInfo
    n_mini_batches: int
    n_recorded: int
    weight: float
    temperature: float
    change: Change | None = None


def empty_state(
    graph: GraphState,
    margin: MarginExpert,
    registry: ClassRegistry,
    points: Points,
    fixed: dict[str, Any],
    sparse: bool,
) -> MixtureState:
    """Return the state before the first batch, ``points``."""
    return MixtureState(
        graph=graph,
        margin=margin,
        registry=registry,
        record=weighting.empty_record(),
        scales=Scales(np.zeros(0), np.ones(weighting.PRIOR_EXPONENTS.size), 1.0),
        choice=Choice(weighting.FIRST_WEIGHT, 1.0, 0),
        class_weights=np.zeros(0),
        probes=no_rows(points),
        recent=no_recent_rows(points),
        n_batches=0,
        fixed=fixed,
        sparse=sparse,
    )


def learn(
    state: MixtureState,
    rows: Rows,
    settings: MixtureSettings,
    *,
    new_points: bool,
    new_batch: bool,
) -> tuple[MixtureState, MixtureInfo]:
    """Learn a batch, or labels that come late if its points are not new.

    ``new_batch`` is False for a part of a larger batch, which is not counted as a batch.
    """
    forgetting = settings.forgetting if new_batch and state.n_batches else 1.0
    # labels are discounted by batches with labels only, as in the margin expert
    of_labels = forgetting if rows.labeled.any() else 1.0
    state = state._replace(
        graph=state.graph.forget(forgetting, new_labels=bool(rows.labeled.any())),
        record=state.record.forget(of_labels),
        n_batches=state.n_batches + new_batch,
    )
    registry = state.registry.discount(of_labels, no_indices(), np.zeros(0)).declare(rows.declared)
    state = with_classes(state, registry)
    cuts = weighting.mini_batches(rows.labeled, float(state.registry.counts.sum()))
    info = None
    with one_thread():
        for number, cut in enumerate(cuts):
            part = np.zeros(rows.weights.size, dtype=bool)
            part[cut] = True
            mini_batch = MiniBatch(
                rows, part, number == 0 and new_batch, new_points, state.registry
            )
            state, info = learn_mini_batch(state, mini_batch, settings.class_weight)
    assert info is not None
    state, report = with_choice(state, settings, info, len(cuts))
    if not settings.restarts or not new_points:  # late labels may be older than a change
        return state, report
    change = find_change(weighting.wrong(state.record, state.choice, state.margin.scaled))
    if change is None:
        return state, report
    with one_thread():
        state, info = restarted(state, change)
    state, report = with_choice(state, settings, info, len(cuts))
    return state, report._replace(change=change)


def with_choice(
    state: MixtureState, settings: MixtureSettings, info: GraphInfo, n_mini_batches: int
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state with the weight chosen by its record, and the report of the update."""
    choice = weighting.choose(
        state.record, state.margin.scaled, settings.weight, settings.class_prior
    )
    size = state.record.size
    report = MixtureInfo(info, n_mini_batches, size, choice.weight, choice.temperature)
    return state._replace(choice=choice), report


def restarted(state: MixtureState, change: Change) -> tuple[MixtureState, GraphInfo]:
    """Return the state after a change: labels before it are forgotten, the kept rows stay.

    The margin expert begins again with the last labeled and unlabeled rows as its first batch, so
    that its kernel is measured again.
    """
    registry, recent = state.registry, state.recent
    valid = recent.valid_after(change)
    n_probes = state.probes.shape[0]
    rows = Rows(
        points=stack(recent.points, state.probes),
        labeled=np.append(valid, np.zeros(n_probes, dtype=bool)),
        labels=registry.classes[recent.codes[valid]],
        weights=np.append(recent.weights, np.ones(n_probes)),
        declared=registry.classes,
    )
    everything = np.ones(rows.weights.size, dtype=bool)
    margin = state.margin.restarted().learn(MiniBatch(rows, everything, True, True, registry))
    recent = recent.take(valid)
    known = np.bincount(recent.codes, minlength=registry.classes.size) > 0
    graph = propagation.without_labels(state.graph, known)
    stored = graph.rows.metric.store(recent.points)
    graph, info = propagation.learn(graph, stored, recent.codes, recent.weights, late=True)
    state = state._replace(
        graph=graph,
        margin=margin,
        registry=registry.discount(0.0, recent.codes, recent.weights),
        record=state.record.newest(change.n_labels),
        recent=recent,
    )
    return state._replace(scales=measured(state, no_indices())), info


def learn_mini_batch(
    state: MixtureState, mini_batch: MiniBatch, class_weight: Any
) -> tuple[MixtureState, GraphInfo]:
    """Learn one mini-batch."""
    rows = mini_batch.rows
    labeled = np.flatnonzero(rows.labeled & mini_batch.part)
    labels, weights = rows.labels[mini_batch.part[rows.labeled]], rows.weights[labeled]
    registry = state.registry.add(labels, weights)
    codes = registry.find(labels)
    registry = registry.discount(1.0, codes, weights)
    state = with_classes(state, registry)
    record = recorded(state, rows, labeled, codes, late=not mini_batch.new_points)
    state = state._replace(record=record)

    chosen = np.flatnonzero(mini_batch.part)
    all_codes = np.full(rows.weights.size, UNLABELED)
    all_codes[labeled] = codes
    graph, slots = state.graph, np.full(rows.weights.size, -1)
    stored = graph.rows.metric.store(take_rows(rows.points, chosen))
    label_weights = np.where(all_codes >= 0, rows.weights, 0.0)[chosen]
    entering = None
    if mini_batch.new_points:
        entering = propagation.choose_entering(graph, all_codes[chosen])
        slots[chosen[entering.rows]] = entering.slots
    graph, info = propagation.learn(
        graph,
        stored,
        all_codes[chosen],
        label_weights,
        late=not mini_batch.new_points,
        entering=entering,
    )
    margin = state.margin.learn(mini_batch._replace(registry=registry))
    given = class_weight if isinstance(class_weight, dict) else None
    unlabeled = chosen[all_codes[chosen] < 0][-PROBES:]
    state = state._replace(
        graph=graph,
        margin=margin,
        class_weights=registry.class_weights(given),
        probes=stack(state.probes, take_rows(rows.points, unlabeled))[-PROBES:],
        recent=state.recent.add(take_rows(rows.points, labeled), codes, weights),
    )
    return state._replace(scales=measured(state, slots[unlabeled])), info


def with_classes(state: MixtureState, registry: ClassRegistry) -> MixtureState:
    """Return the state with columns for the classes of another registry."""
    size = registry.classes.size
    if size == state.registry.classes.size:
        return state._replace(registry=registry)
    places = state.registry.indices_in(registry)
    return state._replace(
        registry=registry,
        graph=state.graph.with_classes(places, size),
        record=state.record.with_classes(places, size),
        recent=state.recent.with_classes(places),
        scales=state.scales._replace(counts=moved(state.scales.counts, places, size)),
        class_weights=moved(state.class_weights, places, size),
    )


def recorded(
    state: MixtureState, rows: Rows, labeled: Indices, codes: Indices, *, late: bool
) -> ScoreRecord:
    """Return the record with the scores of labeled rows by both experts before learning.

    ``late`` is whether the rows may already be kept as unlabeled rows.
    """
    known = state.scales.known
    usable = known[codes] if known.sum() > 1 else np.zeros(codes.size, dtype=bool)
    if not usable.any():
        return state.record
    points = take_rows(rows.points, labeled[usable])
    scores = left_out_scores(state, points, no_indices()) if late else expert_scores(state, points)
    finite = np.isfinite(scores.margin).all(axis=1)
    scores = Scores(scores.margin[finite], scores.graph[finite])
    weights = rows.weights[labeled[usable]]
    return state.record.add(scores, state.scales, codes[usable][finite], weights[finite])


def expert_scores(
    state: MixtureState, points: Points, *, margin: bool = True, graph: bool = True
) -> Scores:
    """Return the scores of both experts, zeros for one that is left out."""
    nothing = np.zeros((points.shape[0], state.registry.classes.size))
    with np.errstate(over="ignore", invalid="ignore"):
        of_margin = state.margin.scores(points, state.registry) if margin else nothing
    of_graph = nothing
    if graph:
        of_graph = state.graph.scores(state.graph.search(points), state.class_weights)
    return Scores(of_margin, of_graph)


def measured(state: MixtureState, slots: Indices) -> Scales:
    """Return the scales of the experts that have learned a mini-batch.

    They are measured on the last unlabeled rows, and also on the record while there are few
    unlabeled rows. ``slots`` are the slots of the newest unlabeled rows, -1 for a row that is not
    kept.
    """
    # the discounted weight of a class may underflow to 0
    tiny = np.finfo(np.float64).tiny
    counts = state.margin.label_counts(state.registry)
    counts = np.where(state.registry.seen, np.maximum(counts, tiny), 0.0)
    scores = Scores(*(np.zeros((0, counts.size)) for _ in range(2)))
    if state.probes.shape[0]:
        scores = left_out_scores(state, state.probes, slots)
    missing = PROBES - state.probes.shape[0]
    if missing > 0:
        record = state.record
        scores = Scores(
            np.vstack([scores.margin, record.margin[-missing:]]),
            np.vstack([scores.graph, record.graph[-missing:]]),
        )
    finite = np.isfinite(scores.margin).all(axis=1)
    scores = Scores(scores.margin[finite], scores.graph[finite])
    return weighting.measured_scales(scores, counts, state.margin.scaled)


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
    with np.errstate(over="ignore", invalid="ignore"):
        margin = state.margin.scores(points, state.registry)
    return Scores(margin, state.graph.scores(found, state.class_weights))


def class_scores(state: MixtureState, points: Points) -> Array:
    """Return mixed class scores (n, K), in units in which softmax gives probabilities.

    An expert of weight 0 is not evaluated.
    """
    weight = state.choice.weight
    scores = expert_scores(state, points, margin=weight < 1, graph=weight > 0)
    return weighting.mix(scores, state.scales, state.choice, state.margin.scaled)


def retract(
    state: MixtureState, points: Points, codes: Any, settings: MixtureSettings
) -> tuple[MixtureState, MixtureInfo]:
    """Retract the labels of some rows; the rows stay as unlabeled ones, the record stays.

    ``codes`` (n,) are the classes of the labels, None for whatever labels the rows have.
    """
    margin, retracted = state.margin.retract(points, codes, state.registry)
    codes = state.registry.find(retracted.labels)
    graph = state.graph
    stored = graph.rows.metric.store(retracted.points)
    with one_thread():
        retraction = propagation.retract(graph, stored, codes)
    # labels of rows that are no longer kept have the mean discount of their class
    means = state.registry.discounted[codes] / state.registry.weights[codes]
    discounted = np.where(retraction.found, retraction.label_weights, means * retracted.weights)
    recent = state.recent
    state = state._replace(recent=recent.take(~found_among(recent.points, retracted.points)))
    declared = state.margin.estimator._stream.registry.declared
    registry = replace(state.registry, declared=declared).remove(
        codes, retracted.weights, discounted
    )
    state = with_classes(state._replace(graph=retraction.state, margin=margin), registry)
    state = state._replace(scales=measured(state, no_indices()))
    return with_choice(state, settings, retraction.info, 0)
